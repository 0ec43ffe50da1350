"""Every kernel against its definition in plain NumPy, on all backends and instruction sets."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import pytest
import transcription as slow
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from inputs import caterpillar, on_every_instruction_set, random_affinity, random_tree, relative_error
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import pyattnorg as pa
from pyattnorg import _core, kernels, reference
from pyattnorg.diffusion import tree_coordinates
from pyattnorg.plans import haar_steps, sum_program

# Around the sizes at which the loops change: lanes (8, 16), rows of a tile, panels of 256 features.
POINTS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 33)
FEATURES = (0, 1, 2, 255, 256, 257, 1000)
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-14}


def _exact(x: NDArray, y: NDArray, term: str) -> NDArray:
    a, b = x.astype(np.longdouble)[:, None], y.astype(np.longdouble)[None]
    return {"l1": np.abs(a - b), "squares": (a - b) ** 2, "products": a * b}[term].sum(2)


# -- pairwise sums ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("term", ["l1", "squares", "products"])
@pytest.mark.usefixtures("backend")
def test_pairwise_is_its_definition(term: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    for n in POINTS:
        for features in FEATURES:
            x = rng.standard_normal((n, features)).astype(dtype)
            got, exact = kernels.pairwise(x, term=term), _exact(x, x, term)
            assert got.dtype == dtype
            assert got.shape == (n, n)
            assert np.array_equal(got, got.T)
            if term == "products":  # these cancel: the error is one of the magnitudes
                assert np.abs(got - exact).max() <= TOLERANCE[dtype] * np.abs(x).max(initial=1) ** 2 * max(features, 1)
            else:
                assert relative_error(got, exact) <= TOLERANCE[dtype]
                assert not np.diag(got).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("instruction_set")
def test_every_instruction_set_is_right(dtype: type) -> None:
    rng = np.random.default_rng(1)
    for n, features in ((1, 1), (17, 3), (33, 257), (40, 600)):
        x, w = rng.standard_normal((n, features)).astype(dtype), rng.random(features).astype(dtype)
        x[n // 2] = x[0] + dtype(1e-4) * x[-1]
        weighted = x.astype(np.longdouble) * w
        assert relative_error(kernels.pairwise(x), _exact(x, x, "l1")) <= TOLERANCE[dtype]
        assert relative_error(kernels.pairwise(x, weights=w), _exact(weighted, weighted, "l1")) <= TOLERANCE[dtype]
        assert relative_error(kernels.pairwise(x, term="squares"), _exact(x, x, "squares")) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_are_the_same_bytes_on_every_instruction_set(dtype: type) -> None:
    trees = [random_tree(37, 0), random_tree(21, 1)]
    x = (np.random.default_rng(2).standard_normal((53, 37, 21)) + 3).astype(dtype)
    x[7] = x[8] * dtype(1.0001)
    flat = x.reshape(53, -1)
    found = on_every_instruction_set(
        lambda: [
            pa.pairwise_l1(flat).tobytes(),
            pa.pairwise_l1(flat[:9], flat[9:]).tobytes(),
            pa.tree_emd(x, trees, alpha=0.5).tobytes(),
        ]
    )
    assert len(found) == len(kernels.instruction_sets())
    assert all(one == found["baseline"] for one in found.values())


def test_haar_differs_in_the_last_bits_at_most_between_instruction_sets() -> None:
    x = np.random.default_rng(3).standard_normal((31, 40, 5)).astype(np.float32)
    found = on_every_instruction_set(lambda: pa.haar(x, [random_tree(31, 0), random_tree(40, 1), None]))
    for one in found.values():
        assert np.abs(one - found["baseline"]).max() <= 1e-6 * np.abs(one).max()


def test_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ValueError, match="'mmx' does not run here"):
        _core.use_instruction_set("mmx")


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_sets_of_points(dtype: type) -> None:
    rng = np.random.default_rng(4)
    for n, m, features in ((1, 1, 3), (5, 70, 260), (20, 1, 9), (16, 16, 1), (3, 4, 0)):
        x, y = (rng.standard_normal((k, features)).astype(dtype) for k in (n, m))
        y[-1] = x[0]
        got = kernels.pairwise(x, y)
        assert relative_error(got, _exact(x, y, "l1")) <= TOLERANCE[dtype]
        assert got[0, -1] == 0
        assert relative_error(kernels.pairwise(x, y, term="squares"), _exact(x, y, "squares")) <= TOLERANCE[dtype]
    assert kernels.pairwise(x[:0], y).shape == (0, 4)
    assert kernels.pairwise(x, y[:0]).shape == (3, 0)
    assert kernels.pairwise(x[:0]).shape == (0, 0)


@pytest.mark.usefixtures("backend")
def test_weights_of_features() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((12, 300)), rng.random(300)
    w[::3] = 0
    assert kernels.pairwise(x, weights=w) == pytest.approx(cdist(x * w, x * w, "cityblock"), rel=1e-13)
    assert kernels.pairwise(x[:5], x[5:], weights=w) == pytest.approx(
        cdist(x * w, x * w, "cityblock")[:5, 5:], rel=1e-13
    )
    mixed = kernels.pairwise(x.astype(np.float32), x, weights=w)
    assert mixed.dtype == np.float64


@pytest.mark.parametrize(("n", "features"), [(3, 70_000), (2000, 3)])
def test_long_and_wide(n: int, features: int) -> None:
    x = np.random.default_rng(6).standard_normal((n, features)).astype(np.float32)
    assert relative_error(kernels.pairwise(x), cdist(x, x, "cityblock")) <= 1e-5


@pytest.mark.usefixtures("backend")
def test_pairwise_refusals() -> None:
    x = np.zeros((3, 4))
    for bad in (np.zeros((3, 5)), np.zeros((3, 4, 1)), np.zeros((3, 1))):
        with pytest.raises(ValueError, match=r"^y: got shape .*, expected \(m, 4\)"):
            kernels.pairwise(x, bad)
    for weights in (np.zeros(5), np.array([1, 1, 1, -1e-9]), np.zeros((4, 1))):
        with pytest.raises(ValueError, match=r"^weights: "):
            kernels.pairwise(x, weights=weights)
    with pytest.raises(ValueError, match=r"^x: got shape \(3,\), expected at least 2"):
        kernels.pairwise(np.zeros(3))
    for at in ("x", "y", "weights"):
        arguments = {"x": x.copy(), "y": x.copy(), "weights": np.ones(4)}
        arguments[at].flat[2] = np.nan
        with pytest.raises(ValueError, match=rf"^{at}: 1 value\(s\) are NaN"):
            kernels.pairwise(**arguments)


@pytest.mark.usefixtures("backend")
def test_overflow_is_an_error_and_not_an_infinity() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([[1, -1, 1], [-1, 1, -1]], dtype) * np.finfo(dtype).max
        for term in ("l1", "squares", "products"):
            with np.errstate(over="ignore"), pytest.raises(ValueError, match="overflow"):
                kernels.pairwise(x, term=term)
    near = np.array([[1e38, 1e38], [-1e38, 1e38]], np.float32)
    assert kernels.pairwise(near)[0, 1] == np.float32(2e38)


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files")
def test_indices_beyond_32_bits(tmp_path: Path) -> None:
    step = 2**29  # elements between points: the last of them lie beyond 2 ** 31
    sparse = np.memmap(tmp_path / "sparse", np.float32, "w+", shape=(9 * step + 8,))  # holes take no room
    try:
        x = np.lib.stride_tricks.as_strided(sparse, (9, 8), (4 * step, 4))
        x[:] = np.random.default_rng(7).standard_normal((9, 8))
        small = np.array(x)
        assert np.array_equal(kernels.pairwise(x), kernels.pairwise(small))
        assert np.array_equal(kernels.pairwise(x.T), kernels.pairwise(small.T))
        tree, one = random_tree(8, 0), pa.PartitionTree.dyadic(1)
        weights, alone = tree.weights(), one.weights()
        expected = kernels.tree_emd(small[:, :, None], tree, one, weights, alone)
        assert np.array_equal(kernels.tree_emd(x[:, :, None], tree, one, weights, alone), expected)
    finally:
        sparse._mmap.close()  # type: ignore[attr-defined]


# -- programs of trees ------------------------------------------------------------------------------------------------

TREES = [
    *(random_tree(n, n) for n in (1, 2, 3, 8, 30, 57)),
    pa.PartitionTree.dyadic(64),
    pa.PartitionTree.from_labels(np.zeros(50, int)),  # a star
    caterpillar(300),
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_few_sums_are_alive_at_once(tree: pa.PartitionTree) -> None:
    program = sum_program(tree)
    assert sorted(program.folder) == list(range(tree.n_folders))
    assert sorted(program.leaf[program.leaf >= 0]) == list(range(tree.n_leaves))
    assert program.slot.max() <= np.log2(tree.n_leaves)
    slots: dict[int, list[int]] = {}
    for folder, leaf, slot, add in zip(*program):  # plays the program with sets of leaves for sums
        found = [int(leaf)] if leaf >= 0 else slots.pop(int(slot))
        start, size = tree.folders().start[folder], tree.folders().size[folder]
        assert sorted(found) == sorted(tree.order[start : start + size])
        if add:
            slots[int(slot) - 1] = slots[int(slot) - 1] + found
        else:
            slots[int(slot)] = found
    assert len(haar_steps(tree).steps) == tree.n_leaves - 1
    assert sorted(haar_steps(tree).slot) == list(range(tree.n_leaves))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tree", TREES, ids=repr)
@pytest.mark.usefixtures("backend")
def test_folder_averages(tree: pa.PartitionTree, dtype: type) -> None:
    n = tree.n_leaves
    x = np.random.default_rng(n).standard_normal((3, n, 5)).astype(dtype)
    averages = slow.folder_averages(tree.labels.astype(int), 0.0, 0.0)
    spans = tree.folders().last_level - tree.folders().first_level + 1
    expected = np.einsum("fn,anb->afb", averages / spans[:, None], x.astype(float))
    for axis in (1, -2):
        got = kernels.folder_averages(x, tree, axis)
        assert got.dtype == dtype
        assert got == pytest.approx(expected, abs=1e-6 if dtype == np.float32 else 1e-13)
    assert kernels.folder_averages(x[:, :, 0], tree, 1) == pytest.approx(expected[:, :, 0], abs=1e-6)
    assert kernels.folder_averages(x[0], tree).shape == (tree.n_folders, 5)
    assert kernels.folder_averages(x[:0], tree, 1).shape == (0, tree.n_folders, 5)


@pytest.mark.usefixtures("backend")
def test_folder_averages_refusals() -> None:
    tree = pa.PartitionTree.dyadic(4)
    with pytest.raises(ValueError, match=r"^axis: got 2, x has 2 axes"):
        kernels.folder_averages(np.zeros((4, 4)), tree, 2)
    with pytest.raises(ValueError, match=r"^tree: got one of 4 leaves for axis 1 of x, which has 5 points"):
        kernels.folder_averages(np.zeros((4, 5)), tree, 1)


@pytest.mark.parametrize("constant", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 12, 13, 40])
def test_flexible_tree_is_its_definition(n: int, constant: float) -> None:
    affinity = random_affinity(n, n)
    rate, phi = tree_coordinates(affinity)
    got = kernels.flexible_tree(phi, rate, constant)
    assert np.array_equal(pa.PartitionTree.from_labels(got).labels, slow.flexible_tree(affinity, constant))
    assert np.array_equal(got, reference.flexible_tree(phi, rate, constant))


@given(hnp.arrays(np.float64, st.integers(2, 12), elements=st.integers(0, 6).map(float)), st.sampled_from([0.4, 1, 3]))
def test_flexible_tree_breaks_ties_as_its_definition_does(points: NDArray, constant: float) -> None:
    phi, rate = points[:, None], np.ones(1)  # whole numbers on a line: many equal distances, and exact ones
    got = kernels.flexible_tree(phi, rate, constant)
    assert np.array_equal(got, reference.flexible_tree(phi, rate, constant))


@given(
    hnp.arrays(st.sampled_from([np.float32, np.float64]), st.integers(1, 40), elements=st.floats(-1e3, 1e3, width=32))
)
def test_median(values: NDArray) -> None:
    kept = values.copy()
    assert kernels.median(values) == pytest.approx(float(np.median(values.astype(float))), rel=1e-6, abs=1e-6)
    assert np.array_equal(values, kept)
    if values.dtype == np.float64:
        assert kernels.median(values) == pytest.approx(reference.median(values), rel=1e-15, abs=1e-300)


# -- backends ---------------------------------------------------------------------------------------------------------


def test_a_forced_backend_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYATTNORG_BACKEND", "")
    assert kernels.backend() == "cpu"
    for name in ("CPU", "numpy", "gpu"):
        monkeypatch.setenv("PYATTNORG_BACKEND", name)
        with pytest.raises(ImportError, match=rf"^PYATTNORG_BACKEND: got '{name}'"):
            pa.pairwise_l1(np.zeros((2, 2)))


def test_compiled_kernels_check_what_memory_safety_needs() -> None:
    x, out = np.zeros((3, 4)), np.zeros((3, 3))
    program = _core.Program(*(np.array([0], t) for t in (np.int32, np.int32, np.uint8, np.float64)), 1)
    plan = _core.HaarPlan(np.zeros((0, 4), np.int32), np.zeros(1, np.int32))
    int32 = np.int32
    for call in (
        lambda: _core.pairwise(x, None, "l1", 0, np.zeros((2, 3)), 1),
        lambda: _core.pairwise(x, None, "l1", 3, out, 1),
        lambda: _core.pairwise(x, None, "l2", 0, out, 1),
        lambda: _core.pairwise(x, np.zeros(3), "l1", 0, out, 1),
        lambda: _core.pairwise(np.zeros((0, 4)), None, "l1", 0, np.zeros((0, 0)), 1),
        lambda: _core.pairwise(np.zeros(4), None, "l1", 0, out, 1),
        lambda: _core.tree_emd(np.zeros((3, 4, 1)), program, program, out, 1),
        lambda: _core.haar(np.zeros((3, 2, 1)), [None, plan, None], False, np.zeros((3, 2, 1)), 1),
        lambda: _core.haar(np.zeros((3, 1, 1)), [None, plan, None], False, np.zeros((2, 1, 1)), 1),
        lambda: _core.HaarPlan(np.array([[0, 5, 1, 1]], int32), np.zeros(2, int32)),
        lambda: _core.HaarPlan(np.array([[0, 1, 0, 1]], int32), np.zeros(2, int32)),
        lambda: _core.HaarPlan(np.zeros((0, 4), int32), np.array([3], int32)),
        lambda: _core.Program(np.array([1], int32), np.zeros(1, int32), np.zeros(1, np.uint8), np.ones(1), 1),
        lambda: _core.Program(np.array([0], int32), np.zeros(1, int32), np.ones(1, np.uint8), np.ones(1), 1),
        lambda: _core.median(np.zeros(0)),
        lambda: _core.flexible_tree(np.zeros((0, 1)), np.zeros(1), 1.0, 1),
        lambda: _core.flexible_tree(np.zeros((3, 2)), np.zeros(1), 1.0, 1),
        lambda: _core.folder_averages(
            np.zeros((1, 2, 1)),
            np.array([0], int32),
            np.array([1], int32),
            np.array([0], int32),
            np.zeros((1, 1, 1)),
            1,
        ),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()
    frozen = np.zeros((3, 3))
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        _core.pairwise(x, None, "l1", 0, frozen, 1)
    for wrong in (out.astype(np.float32), np.zeros((3, 6))[:, ::2]):
        with pytest.raises(TypeError):
            _core.pairwise(x, None, "l1", 0, wrong, 1)


def test_a_result_is_a_new_array() -> None:
    x = np.random.default_rng(8).standard_normal((6, 5))
    kept = x.copy()
    for out in (kernels.pairwise(x), kernels.haar(x, [None, None], inverse=False), pa.dual_affinity(np.zeros((0, 0)))):
        assert not np.shares_memory(out, x)
        out[...] = 7
    assert np.array_equal(x, kept)


# -- memory -----------------------------------------------------------------------------------------------------------


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_200_calls_leak_nothing() -> None:
    x = np.random.default_rng(9).standard_normal((60, 40, 20))
    trees = [random_tree(40, 0), random_tree(20, 1)]

    def calls(n: int) -> None:
        for _ in range(n):
            e = pa.tree_emd(x, trees)
            pa.flexible_tree(pa.dual_affinity(e))
            pa.haar(x, [None, *trees])
            kernels.folder_averages(x, trees[0], 1)

    calls(20)
    gc.collect()
    before = _resident()
    calls(200)
    gc.collect()
    assert _resident() - before < 3 * 2**20  # one result of any of them is 28 KB to 400 KB, 200 would be 6 to 80 MB
