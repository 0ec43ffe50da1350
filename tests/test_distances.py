"""Distances between points: l1, and the earth mover's distance over trees. E1 to E6 are invariants of the method."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import transcription as slow
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from inputs import on_every_instruction_set, random_tree, relative_error
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

import pyattnorg as pa

SHAPES = [
    (5, 7),
    (2, 1),
    (1, 4),
    (17, 40),
    (4, 6, 5),
    (20, 30, 9),
    (3, 1, 1),
    (4, 5, 3, 4),
    (3, 150, 2, 2),
    (3, 2, 3, 2, 3),
]
WEIGHTS = [(0.0, 1.0), (1.0, 0.0), (0.5, 1.0), (-0.5, 2.0)]


def _trees(shape: tuple[int, ...], seed: int = 0) -> list[pa.PartitionTree]:
    return [random_tree(n, seed + i) for i, n in enumerate(shape[1:])]


def _labels(trees: list[pa.PartitionTree]) -> list[NDArray]:
    return [tree.labels.astype(np.int64) for tree in trees]


def _exact(x: NDArray, trees: list[pa.PartitionTree]) -> NDArray:
    """Distances from the differences of points, so that nothing large is taken from anything large."""
    out = np.zeros((len(x), len(x)))
    for i in range(len(x) - 1):
        features = x[i + 1 :].astype(np.longdouble) - x[i]
        for labels in _labels(trees):
            features = np.tensordot(features.astype(float), slow.folder_averages(labels), (1, 1))
        out[i, i + 1 :] = np.abs(features).reshape(len(features), -1).sum(1)
    return out + out.T


# -- tree_emd is what it says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "beta"), WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("backend")
def test_emd_is_the_transcription(shape: tuple[int, ...], alpha: float, beta: float) -> None:
    x, trees = np.random.default_rng(0).standard_normal(shape), _trees(shape)
    exact = slow.tree_emd(x, _labels(trees), alpha, beta)
    assert relative_error(pa.tree_emd(x, trees, alpha=alpha, beta=beta), exact) <= 1e-12
    got = pa.tree_emd(x.astype(np.float32), trees, alpha=alpha, beta=beta)
    assert got.dtype == np.float32
    rounded = slow.tree_emd(x.astype(np.float32), _labels(trees), alpha, beta)
    assert relative_error(got, rounded) <= 1e-5


@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 5), (3, 3, 2, 4)], ids=str)
@pytest.mark.usefixtures("backend")
def test_E5_emd_is_the_loops_over_every_folder_of_every_level(shape: tuple[int, ...]) -> None:
    x, trees = np.random.default_rng(1).standard_normal(shape), _trees(shape, 3)
    got = pa.tree_emd(x, trees, alpha=0.5, beta=1.0)
    assert relative_error(got, slow.emd_loops(x, _labels(trees), 0.5, 1.0)) <= 1e-12


@pytest.mark.usefixtures("backend")
def test_exponents_for_each_tree() -> None:
    x, trees = np.random.default_rng(2).standard_normal((6, 9, 8, 7)), _trees((6, 9, 8, 7))
    features = x
    for tree, alpha, beta in zip(_labels(trees), (1.0, 0.0, 0.5), (0.0, 1.0, 2.0)):
        features = np.tensordot(features, slow.folder_averages(tree, alpha, beta), (1, 1))
    exact = cdist(features.reshape(6, -1), features.reshape(6, -1), "cityblock")
    for exponents in (((1.0, 0.0, 0.5), (0.0, 1.0, 2.0)), (np.array([1, 0, 0.5]), [0, 1, 2])):
        assert relative_error(pa.tree_emd(x, trees, alpha=exponents[0], beta=exponents[1]), exact) <= 1e-12
    one = pa.tree_emd(x[:, :, 0, 0], trees[0], alpha=np.float64(1), beta=2)
    assert relative_error(one, slow.tree_emd(x[:, :, 0, 0], _labels(trees)[:1], 1.0, 2.0)) <= 1e-12


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.usefixtures("backend")
def test_E3_equal_masses_give_the_wasserstein_distance_of_the_tree(alpha: float) -> None:
    n, tree = 7, random_tree(7, 4)
    mass = np.random.default_rng(2).random((2, n))
    mass /= mass.sum(1, keepdims=True)
    edge = 2.0 ** (-alpha * np.arange(tree.n_levels)) / n  # from a folder of that level to the one above
    cost = 2 * ((tree.labels[:, :, None] != tree.labels[:, None]) * edge[:, None, None]).sum(0)
    marginals = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    best = linprog(cost.ravel(), A_eq=marginals, b_eq=mass.ravel())
    assert pa.tree_emd(mass, tree, alpha=alpha)[0, 1] == pytest.approx(best.fun, rel=1e-9)


def test_masses_need_not_be_equal() -> None:  # float32 rows of a softmax do not sum to 1 exactly (A33)
    rows = np.random.default_rng(3).random((5, 8)).astype(np.float32)
    rows /= rows.sum(1, keepdims=True)
    tree = random_tree(8, 1)
    e = pa.tree_emd(np.concatenate([rows, 2 * rows[:1]]), tree)
    assert np.isfinite(e).all()
    assert e[0, 5] == pytest.approx(slow.tree_emd(np.stack([rows[0], 0 * rows[0]]), _labels([tree]))[0, 1], rel=1e-6)


@pytest.mark.usefixtures("backend")
def test_E4_axis_of_one_point_changes_nothing() -> None:
    x, tree, one = np.random.default_rng(4).standard_normal((6, 9)), random_tree(9, 5), pa.PartitionTree.dyadic(1)
    expected = pa.tree_emd(x, tree)
    assert relative_error(pa.tree_emd(x[:, :, None], [tree, one]), expected) <= 1e-15
    assert relative_error(pa.tree_emd(x[:, None, :], [one, tree]), expected) <= 1e-15
    assert relative_error(pa.tree_emd(x[:, None, :, None], [one, tree, one]), expected) <= 1e-15


@pytest.mark.usefixtures("backend")
def test_order_of_axes_does_not_matter() -> None:
    x, trees = np.random.default_rng(5).standard_normal((8, 12, 30)), _trees((8, 12, 30))
    assert relative_error(pa.tree_emd(x.swapaxes(1, 2), trees[::-1]), pa.tree_emd(x, trees)) <= 1e-12


def test_permuted_points_and_leaves_permute_the_distances() -> None:
    rng = np.random.default_rng(6)
    x, trees = rng.standard_normal((9, 10, 8)), _trees((9, 10, 8))
    points, leaves = rng.permutation(9), rng.permutation(10)
    moved = [pa.PartitionTree.from_labels(trees[0].labels[:, leaves]), trees[1]]
    e = pa.tree_emd(x, trees)
    assert relative_error(pa.tree_emd(x[points][:, leaves], moved), e[np.ix_(points, points)]) <= 1e-12


# -- it is a distance (E1, E2) ----------------------------------------------------------------------------------------

VALUES = st.floats(-100, 100, width=32).map(lambda v: round(v, 3))


@given(hnp.arrays(np.float64, (7, 6, 3), elements=VALUES), st.integers(0, 50), st.sampled_from(WEIGHTS))
def test_E1_emd_is_a_metric(x: NDArray, seed: int, weights: tuple[float, float]) -> None:
    trees = _trees(x.shape, seed)
    for dtype, slack in ((np.float64, 1e-12), (np.float32, 1e-5)):
        e = pa.tree_emd(x.astype(dtype), trees, alpha=weights[0], beta=weights[1]).astype(float)
        assert np.array_equal(e, e.T)
        assert np.array_equal(e == 0, (x.astype(dtype)[:, None] == x.astype(dtype)).all((2, 3)))
        assert (e[:, None] <= (e[:, :, None] + e[None]) * (1 + slack)).all()


@given(hnp.arrays(np.float32, (9, 5), elements=VALUES))
def test_l1_is_a_metric(x: NDArray) -> None:
    e = pa.pairwise_l1(x).astype(float)
    assert np.array_equal(e, e.T)
    assert np.array_equal(e == 0, (x[:, None] == x).all(2))
    assert (e[:, None] <= (e[:, :, None] + e[None]) * (1 + 1e-5)).all()


@pytest.mark.usefixtures("backend")
def test_E2_scaling_and_shifting() -> None:
    x, trees = np.random.default_rng(7).standard_normal((9, 10, 8)), _trees((9, 10, 8))
    e = pa.tree_emd(x, trees)
    assert np.array_equal(pa.tree_emd(4 * x, trees), 4 * e)  # a power of two: exactly
    assert relative_error(pa.tree_emd(-3 * x, trees), 3 * e) <= 1e-13
    assert relative_error(pa.tree_emd(x + 5, trees), e) <= 1e-11
    for scale in (1e-30, 1e-300, 1e30, 1e300):
        assert relative_error(pa.tree_emd(scale * x, trees), scale * e) <= 1e-12
    for scale in (1e-30, 1e30):
        small = (scale * x).astype(np.float32)
        assert relative_error(pa.tree_emd(small, trees), slow.tree_emd(small, _labels(trees))) <= 1e-5


# -- accuracy: float32 within 1e-5 of the exact distance of what was given, for every pair --------------------------


def _with_twins(x: NDArray, difference: float) -> NDArray:
    out = x.copy()
    out[1] = x[0] + difference * np.random.default_rng(9).standard_normal(x.shape[1:])
    out[-1] = x[2] + difference
    out[3] = x[2]
    return out


HARD = {
    "plain": lambda rng, shape: rng.standard_normal(shape),
    "twins": lambda rng, shape: _with_twins(rng.standard_normal(shape), 1e-4),
    "offset": lambda rng, shape: _with_twins(rng.standard_normal(shape), 0.5) + 1000,
    "offset twins": lambda rng, shape: _with_twins(rng.standard_normal(shape), 1e-2) + 1000,
    "heavy tails": lambda rng, shape: _with_twins(rng.standard_cauchy(shape) ** 3, 1e-2),
    "heavy tails, offset": lambda rng, shape: rng.standard_cauchy(shape) + 1000,
    "points of all sizes": lambda rng, shape: (
        rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, (shape[0], 1, 1))
    ),
    "one outlier": lambda rng, shape: (
        rng.standard_normal(shape) * np.where(np.arange(shape[0]) == 0, 1e8, 1)[:, None, None]
    ),
    "one outlier, offset": lambda rng, shape: (
        rng.standard_normal(shape) * np.where(np.arange(shape[0]) == 0, 1e8, 1)[:, None, None] + 1000
    ),
    "positive": lambda rng, shape: _with_twins(rng.random(shape), 1e-3),
}


@pytest.mark.parametrize("shape", [(10, 7, 5), (20, 60, 50), (33, 3, 1)], ids=str)
@pytest.mark.parametrize("case", HARD)
def test_float32_distances_are_accurate(case: str, shape: tuple[int, ...]) -> None:
    x = HARD[case](np.random.default_rng(10), shape).astype(np.float32)
    flat, trees = x.reshape(len(x), -1), _trees(shape)
    wide = flat.astype(np.longdouble)
    exact = np.stack([np.abs(row - wide).sum(1) for row in wide])
    assert relative_error(pa.pairwise_l1(flat), exact) <= 1e-5
    assert relative_error(pa.pairwise_l1(flat[:6], flat[6:]), exact[:6, 6:]) <= 1e-5
    assert relative_error(pa.tree_emd(x, trees), _exact(x, trees)) <= 1e-5


@pytest.mark.parametrize(
    "case", [case for case in HARD if case != "heavy tails"]
)  # twins of 1e-2 among 1e10 are too much
def test_float64_distances_are_accurate(case: str) -> None:
    x = HARD[case](np.random.default_rng(10), (20, 60, 50))
    flat, trees = x.reshape(len(x), -1), _trees(x.shape)
    wide = flat.astype(np.longdouble)
    exact = np.stack([np.abs(row - wide).sum(1) for row in wide])
    assert relative_error(pa.pairwise_l1(flat), exact) <= 1e-13
    assert relative_error(pa.tree_emd(x, trees), _exact(x, trees)) <= 1e-10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(20, 30, 20), (40, 600, 1), (9, 3, 700)], ids=str)
def test_equal_points_are_at_exactly_0_and_others_are_not(shape: tuple[int, ...], dtype: type) -> None:
    x = (np.random.default_rng(11).standard_cauchy(shape) + 100).astype(dtype)
    x[5], x[-1] = x[2], x[2]
    x[6] = x[7]
    x[6, -1, -1] = np.nextafter(x[7, -1, -1], dtype(np.inf))  # as near as can be
    equal = (x[:, None] == x).all((2, 3))
    made = on_every_instruction_set(lambda: [pa.pairwise_l1(x), pa.pairwise_l1(x, x), pa.tree_emd(x, _trees(shape))])
    for l1, split, emd in made.values():
        assert not l1[equal].any()
        assert not split[equal].any()
        assert not emd[equal].any()
        assert l1[~equal].all()
        assert split[~equal].all()
        assert emd[~equal].all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_small_shapes(dtype: type) -> None:
    rng = np.random.default_rng(12)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    for n in range(1, 20):
        for features in range(1, 20):
            x = rng.standard_normal((n, features)).astype(dtype)
            exact = cdist(x, x, "cityblock")
            assert relative_error(pa.pairwise_l1(x), exact) <= tolerance, (n, features)
            assert relative_error(pa.pairwise_l1(np.asfortranarray(x)), exact) <= tolerance, (n, features)
            tree = pa.PartitionTree.dyadic(features)
            emd = slow.tree_emd(x, _labels([tree]))
            assert relative_error(pa.tree_emd(x, tree), emd) <= tolerance, (n, features)
            assert relative_error(pa.tree_emd(np.asfortranarray(x), tree), emd) <= tolerance, (n, features)


def test_weights_far_apart_are_no_garbage() -> None:
    tree = pa.PartitionTree.dyadic(128)  # 8 levels: at alpha 20 the finest weights are 2 ** -140 each
    x = np.random.default_rng(12).standard_normal((20, 128, 128))
    for alpha in (8.0, 20.0, 100.0):
        exact = slow.tree_emd(x.astype(np.float32), _labels([tree, tree]), alpha, 1.0)
        assert relative_error(pa.tree_emd(x.astype(np.float32), [tree, tree], alpha=alpha), exact) <= 1e-5
        assert (
            relative_error(pa.tree_emd(x, [tree, tree], alpha=alpha), slow.tree_emd(x, _labels([tree, tree]), alpha))
            <= 1e-12
        )


@pytest.mark.parametrize(
    ("dtype", "alpha", "n"),
    [(np.float32, -20.0, 128), (np.float32, -40.0, 128), (np.float64, -200.0, 128), (np.float64, -2000.0, 5)],
)
def test_weights_that_overflow_are_refused(dtype: type, alpha: float, n: int) -> None:
    tree, x = pa.PartitionTree.dyadic(n), np.random.default_rng(14).standard_normal((5, n)).astype(dtype)
    with pytest.raises(ValueError, match=r"overflow|alpha"):
        pa.tree_emd(x, tree, alpha=alpha)


# -- what does not fit, and what is empty -----------------------------------------------------------------------------


@pytest.mark.usefixtures("backend")
def test_empty_and_single() -> None:
    tree = random_tree(4, 0)
    for dtype in (np.float32, np.float64):
        assert pa.tree_emd(np.zeros((0, 4), dtype), tree).shape == (0, 0)
        assert pa.tree_emd(np.ones((1, 4), dtype), tree).tolist() == [[0.0]]
        assert pa.pairwise_l1(np.zeros((0, 3), dtype)).shape == (0, 0)
        assert pa.pairwise_l1(np.zeros((3, 0), dtype)).tolist() == [[0.0] * 3] * 3
        assert pa.pairwise_l1(np.array([1, 4], dtype)).tolist() == [[0, 3], [3, 0]]
        assert pa.pairwise_l1(np.array([1, 4], dtype), np.array([2], dtype)).tolist() == [[1], [2]]
        assert pa.pairwise_l1(np.zeros((2, 3), dtype), np.zeros((0, 3), dtype)).shape == (2, 0)
    assert not pa.tree_emd(np.full((5, 4), 7.0), tree).any()


def test_further_axes_are_flattened_and_weights_follow() -> None:
    rng = np.random.default_rng(13)
    x, w = rng.standard_normal((4, 3, 5)), rng.random((3, 5))
    expected = cdist((x * w).reshape(4, -1), (x * w).reshape(4, -1), "cityblock")
    assert pa.pairwise_l1(x, weights=w) == pytest.approx(expected, rel=1e-13)
    assert pa.pairwise_l1(x[:1], x[1:], weights=w) == pytest.approx(expected[:1, 1:], rel=1e-13)
    assert pa.pairwise_l1(x[:, 0, 0], weights=2.0) == pytest.approx(2 * np.abs(x[:, 0, 0, None] - x[:, 0, 0]))


def test_refusals() -> None:
    tree, x = random_tree(4, 0), np.zeros((3, 4))
    for trees in ([], [tree, tree], random_tree(5, 0)):
        with pytest.raises(ValueError, match=r"^trees: got .* x has axes of \[4\]"):
            pa.tree_emd(x, trees)
    for trees in ([None], [tree.labels], tree.labels):
        with pytest.raises(TypeError, match=r"^trees: got "):
            pa.tree_emd(x, trees)
    for name, value in (("alpha", [0.0, 1.0]), ("beta", np.nan), ("alpha", np.inf), ("beta", [])):
        with pytest.raises(ValueError, match=rf"^{name}: got "):
            pa.tree_emd(x, tree, **{name: value})
    for bad in (np.nan, np.inf, -np.inf):
        y = x.copy()
        y[1, 2] = bad
        for call in (lambda: pa.tree_emd(y, tree), lambda: pa.pairwise_l1(y)):  # noqa: B023
            with pytest.raises(ValueError, match=r"^x: 1 value.* at index \(1, 2\)"):
                call()
    with pytest.raises(ValueError, match=r"^x: got shape \(3,\)"):
        pa.tree_emd(np.zeros(3), tree)
    for shape in ((2, 5), (4,), (2, 2, 3)):
        with pytest.raises(ValueError, match=r"^y: got shape"):
            pa.pairwise_l1(x, np.zeros(shape))
    with pytest.raises(ValueError, match=r"^weights: .*not negative"):
        pa.pairwise_l1(x, weights=[1, 1, 1, -1])


# -- memory -----------------------------------------------------------------------------------------------------------

MEMORY = """
import resource, numpy as np, pyattnorg as pa
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rng = np.random.default_rng(0)
{prepare}
before = peak()
{call}
print(peak() - before)
"""
TREES = "trees = [pa.PartitionTree.dyadic(256), pa.PartitionTree.dyadic(128)]; pa.tree_emd(x[:9], trees)"


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
@pytest.mark.parametrize(
    ("prepare", "call", "output"),
    [
        # The features would take 256 x 511 x 255 x 4 bytes, 133 MB.
        (f"x = rng.random((256, 256, 128), np.float32); {TREES}", "pa.tree_emd(x, trees)", 0.25),
        (f"x = rng.random((256, 128, 256), np.float32).swapaxes(1, 2); {TREES}", "pa.tree_emd(x, trees)", 0.25),
        # One point far away makes all other pairs close: a list of them would take 72 MB.
        ("x = rng.random((3000, 64), np.float32); x[0] *= 1e8; pa.pairwise_l1(x[:9])", "pa.pairwise_l1(x)", 36),
        ("x = rng.random((9, 4_000_000), np.float32); pa.pairwise_l1(x[:, :9])", "pa.pairwise_l1(x)", 32),
    ],
    ids=["tree_emd", "tree_emd, strided", "close pairs", "long points"],
)
def test_memory_is_the_output_and_little_more(prepare: str, call: str, output: float) -> None:
    program = MEMORY.format(prepare=prepare, call=call)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(run.stdout) / 1024 < output + 16  # a run of features takes 2 to 4 MB, a centre one point
