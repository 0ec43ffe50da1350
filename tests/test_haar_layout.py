"""Which coefficient is which, L1-normalised functions, martingale differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inputs import FORMS, NUMPY_FORMS, caterpillar, computing_dtype, random_tree
from numpy.typing import NDArray

import pyattnorg as pa

TREES = [random_tree(n, seed) for seed, n in enumerate((1, 2, 3, 9, 16, 23, 40))] + [caterpillar(30)]


def _largest(x: NDArray[Any]) -> float:
    return float(np.abs(x).max(initial=0))


# -- layout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_layout_tells_what_the_functions_show(tree: pa.PartitionTree) -> None:
    layout, basis = pa.haar_layout(tree), pa.haar_basis(tree)
    folders = tree.folders()
    assert len(layout) == tree.n_leaves
    assert layout.level[0] == -1
    assert layout.folder[0] == 0
    assert layout.support[0] == tree.n_leaves
    assert layout.volume[0] == 1
    for k, psi in enumerate(basis.T):
        plus, minus = psi > 1e-12, psi < -1e-12
        assert (layout.left[k], layout.right[k]) == (plus.sum(), minus.sum())
        assert layout.support[k] == (plus | minus).sum()
        assert layout.l1_norm[k] == pytest.approx(np.abs(psi).sum(), rel=1e-12)
        i = layout.folder[k]
        members = tree.order[folders.start[i] : folders.start[i] + folders.size[i]]
        assert set(np.flatnonzero(plus | minus)) <= set(members.tolist())
        if k:
            assert layout.level[k] == folders.last_level[i]
            assert len(np.unique(tree.labels[layout.level[k]][members])) == 1
            assert len(np.unique(tree.labels[layout.level[k] + 1][plus | minus])) > 1
    assert (np.diff(layout.level) >= 0).all()  # breadth-first
    with pytest.raises(ValueError, match="read-only"):
        layout.support[0] = 1


def test_layout_wants_a_tree() -> None:
    with pytest.raises(TypeError, match=r"^tree: got ndarray, expected a PartitionTree"):
        pa.haar_layout(np.zeros((2, 2)))  # type: ignore[arg-type]


# -- L1 normalisation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_l1_functions_have_magnitudes_that_sum_to_one(tree: pa.PartitionTree) -> None:
    basis = pa.haar_basis(tree, normalization="l1")
    assert np.abs(basis).sum(0) == pytest.approx(np.ones(tree.n_leaves), rel=1e-12)
    x = np.random.default_rng(0).standard_normal(tree.n_leaves)
    c = pa.haar(x, tree, normalization="l1")
    assert c == pytest.approx(basis.T @ x, abs=1e-12)
    assert c[0] == pytest.approx(x.mean(), abs=1e-13)
    for k, psi in enumerate(basis.T[1:], 1):
        assert c[k] == pytest.approx((x[psi > 0].mean() - x[psi < 0].mean()) / 2, abs=1e-12)


def test_l1_comes_back_and_leaves_axes_alone() -> None:
    x, trees = np.random.default_rng(1).standard_normal((9, 7, 5)), [random_tree(9, 0), None, random_tree(5, 1)]
    c = pa.haar(x, trees, normalization="l1")
    assert _largest(pa.ihaar(c, trees, normalization="l1") - x) <= 1e-12
    assert c[0, :, 0] == pytest.approx(x.mean((0, 2)), abs=1e-13)
    with pytest.raises(ValueError, match=r"^normalization: got 'l3'"):
        pa.haar(x, trees, normalization="l3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^trees: got 1, x has 3 axes"):
        pa.ihaar(c, trees[0], normalization="l1")
    with pytest.raises(ValueError, match=r"^tree: got one of 5 leaves for axis 0"):
        pa.ihaar(c, [trees[2], None, None], normalization="l1")


# -- martingale differences -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", TREES, ids=repr)
@pytest.mark.usefixtures("backend")
def test_martingale_differences_are_averages_less_those_above(tree: pa.PartitionTree) -> None:
    x = np.random.default_rng(2).standard_normal((tree.n_leaves, 3))
    d = pa.martingale_differences(x, [tree, None])
    folders = tree.folders()
    means = [x[tree.order[a : a + s]].mean(0) for a, s in zip(folders.start, folders.size)]
    for i, above in enumerate(folders.parent):
        assert d[i] == pytest.approx(means[i] - (means[above] if above >= 0 else 0), abs=1e-13)
    assert _largest(pa.imartingale_differences(d, [tree, None]) - x) <= 1e-12


def test_martingale_differences_of_a_tensor_come_back() -> None:
    shape = (9, 8, 7)
    trees = [random_tree(n, i) for i, n in enumerate(shape)]
    x = np.random.default_rng(3).standard_normal(shape)
    d = pa.martingale_differences(x, trees)
    assert d.shape == tuple(tree.n_folders for tree in trees)
    assert _largest(pa.imartingale_differences(d, trees) - x) <= 1e-12
    assert d[0, 0, 0] == pytest.approx(x.mean(), abs=1e-13)


def test_martingale_differences_and_haar_split_the_same_energy() -> None:
    tree = pa.PartitionTree.dyadic(16)
    x = np.random.default_rng(4).standard_normal(16)
    d, layout, c = pa.martingale_differences(x, tree), pa.haar_layout(tree), pa.haar(x, tree)
    folders = tree.folders()
    energy = np.zeros(len(folders))
    np.add.at(energy, folders.parent[1:], folders.size[1:] * d[1:] ** 2)
    for k in range(1, 16):
        assert energy[layout.folder[k]] == pytest.approx(c[k] ** 2, rel=1e-10)


def test_empty_and_wrong() -> None:
    tree = random_tree(5, 0)
    assert pa.martingale_differences(np.zeros((0, 5)), [None, tree]).shape == (0, tree.n_folders)
    assert pa.imartingale_differences(np.zeros((0, tree.n_folders)), [None, tree]).shape == (0, 5)
    with pytest.raises(ValueError, match=r"^trees: that of axis 0 has 5 leaves, expected 4"):
        pa.martingale_differences(np.zeros(4), tree)
    with pytest.raises(ValueError, match=r"^trees: got 1, expected one \(or None\) for each of 2 axes"):
        pa.imartingale_differences(np.zeros((4, 4)), tree)
    with pytest.raises(ValueError, match=r"^differences: got 4 along axis 0, not the \d+ of its"):
        pa.imartingale_differences(np.zeros(4), tree)
    with pytest.raises(ValueError, match=r"^x: 1 value.* at index \(2,\)"):
        pa.martingale_differences([0, 1, np.nan, 0, 0], tree)


# -- any array --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_any_array(form: str) -> None:
    if form not in NUMPY_FORMS:
        pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 10, (6, 5)).astype(float)
    trees = [random_tree(6, 0), random_tree(5, 1)]
    given = FORMS[form](x)
    tolerance = 1e-5 if computing_dtype(form) == np.float32 else 1e-12
    for function in (
        lambda y: pa.haar(y, trees, normalization="l1"),
        lambda y: pa.ihaar(y, trees, normalization="l1"),
        lambda y: pa.martingale_differences(y, trees),
        lambda y: pa.keep_volumes(y, trees, 0.3),
        lambda y: pa.shrink(y, 2.0),
        lambda y: pa.denoise(y, trees, noise=0.5),
    ):
        out = function(given)
        assert ("torch" in type(out).__module__) == form.startswith("torch")
        assert np.asarray(out).dtype == computing_dtype(form)
        assert np.asarray(out) == pytest.approx(function(x), rel=tolerance, abs=20 * tolerance)
    assert pa.noise_level(given, trees) == pytest.approx(pa.noise_level(x, trees), rel=1e-5)
    for curve in (pa.energy_curve, pa.lp_entropy, pa.coefficients_needed):
        assert curve(given) == pytest.approx(curve(x), rel=1e-5)
    assert pa.mixed_holder(given, trees).rms == pytest.approx(pa.mixed_holder(x, trees).rms, rel=1e-5)
    assert pa.paraproduct(given, trees).value == pytest.approx(np.exp(x), rel=1e-6)
