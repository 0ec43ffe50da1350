"""Weights that data asks for, and any others, in the tree distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transcription as slow
from inputs import FORMS, computing_dtype, random_tree, relative_error
from scipy.spatial.distance import cdist
from tensors import attention_like

import pyattnorg as pa


def _loops(x: Any, tree: pa.PartitionTree, axis: int) -> list[float]:
    """The norm of every folder's mean less its parent's, over the largest."""
    folders, x = tree.folders(), np.moveaxis(np.asarray(x, float), axis, 0)
    runs = [tree.order[start : start + size] for start, size in zip(folders.start, folders.size)]
    found = []
    for i, run in enumerate(runs):
        mean = x[run].mean(0) - (x[runs[folders.parent[i]]].mean(0) if i else 0)
        found.append(float(np.sqrt((mean**2).sum())))
    return [w / (max(found) or 1) for w in found]


@pytest.mark.parametrize(
    ("shape", "axis"), [((9,), 0), ((9, 4), 0), ((4, 9), 1), ((4, 9, 3), -2), ((1, 2), 0)], ids=str
)
def test_data_weights_are_their_loops(shape: tuple[int, ...], axis: int) -> None:
    x, tree = np.random.default_rng(0).standard_normal(shape), random_tree(shape[axis], 1)
    got = pa.data_weights(x, tree, axis)
    assert got.shape == (tree.n_folders,)
    assert got.dtype == np.float64
    assert relative_error(got, _loops(x, tree, axis)) <= 1e-12
    assert relative_error(pa.data_weights(x.astype(np.float32), tree, axis), _loops(x, tree, axis)) <= 1e-5


def test_many_folders_come_in_blocks() -> None:
    x, tree = np.random.default_rng(0).standard_normal((300, 3)), random_tree(300, 0)
    assert relative_error(pa.data_weights(x, tree), _loops(x, tree, 0)) <= 1e-12


def test_data_weights_have_no_scale_and_zeros_have_none() -> None:
    x, tree = np.random.default_rng(1).standard_normal((8, 5)), random_tree(8, 2)
    for scale in (1e-300, 1e-30, 1e30, 1e300):
        assert relative_error(pa.data_weights(scale * x, tree), pa.data_weights(x, tree)) <= 1e-12
    assert not pa.data_weights(np.zeros((8, 5)), tree).any()
    constant = pa.data_weights(np.ones((8, 5)), tree)
    assert constant[0] == 1
    assert np.abs(constant[1:]).max() <= 1e-15
    assert not pa.data_weights(np.ones((8, 0)), tree).any()


@pytest.mark.parametrize("form", FORMS)
def test_data_weights_of_any_array(form: str) -> None:
    if form.startswith("torch"):
        pytest.importorskip("torch")
    x = np.random.default_rng(2).integers(-5, 6, (7, 4)).astype(float)
    tolerance = 1e-6 if computing_dtype(form) == np.float32 else 1e-14
    tree = random_tree(7, 3)
    assert np.abs(pa.data_weights(FORMS[form](x), tree) - pa.data_weights(x, tree)).max() <= tolerance


@pytest.mark.usefixtures("backend")
def test_emd_with_weights_is_the_distance_of_weighted_averages() -> None:
    x = np.random.default_rng(3).standard_normal((6, 9, 8))
    trees = [random_tree(9, 4), random_tree(8, 5)]
    weights = [np.random.default_rng(i).random(tree.n_folders) for i, tree in enumerate(trees)]
    features = x
    for tree, w in zip(trees, weights):
        folders = slow.folders(tree.labels)
        average = np.stack([w[i] * f.members / f.members.sum() for i, f in enumerate(folders)], 1)
        features = np.tensordot(features, average, (1, 0))
    rows = features.reshape(6, -1)
    assert relative_error(pa.tree_emd(x, trees, weights=weights), cdist(rows, rows, "cityblock")) <= 1e-12
    powers = [tree.weights(0.5, 1.0) for tree in trees]
    assert np.array_equal(pa.tree_emd(x, trees, weights=powers), pa.tree_emd(x, trees, alpha=0.5))
    mixed = pa.tree_emd(x, trees, weights=[None, powers[1]], alpha=0.5)
    assert np.array_equal(mixed, pa.tree_emd(x, trees, alpha=0.5))


def test_E1_with_weightless_leaves_it_is_a_pseudometric() -> None:
    tree = pa.PartitionTree.from_labels([0, 0, 1, 1])
    weights = np.where(tree.folders().size > 1, tree.weights(), 0)
    x = np.random.default_rng(4).standard_normal((8, 4))
    x[1] = x[0, [1, 0, 2, 3]]  # differs within the smallest folder only
    e = pa.tree_emd(x, tree, weights=[weights])
    assert e[0, 1] <= 1e-15
    assert pa.tree_emd(x, tree)[0, 1] > 0
    assert np.array_equal(e, e.T)
    assert not np.diag(e).any()
    assert (e[:, None] <= (e[:, :, None] + e[None]) * (1 + 1e-12) + 1e-15).all()


def test_the_questionnaire_weighs_as_told() -> None:
    x = attention_like(14, 12, 9)
    first = [pa.flexible_tree(pa.cosine_affinity(np.moveaxis(x, axis, 0))) for axis in (0, 1)]
    by_data = pa.Questionnaire(1, weights="data").fit(x)
    weights = [pa.data_weights(x, tree, axis) for axis, tree in enumerate(first)]
    assert np.array_equal(by_data.distances_[2], pa.tree_emd(x.transpose(2, 0, 1), first, weights=weights))
    leafless = pa.Questionnaire(1, weights=("powers", lambda t: np.where(t.folders().size > 1, 1.0, 0.0), "data")).fit(
        x
    )
    told = [first[0].weights(), np.where(first[1].folders().size > 1, 1.0, 0.0)]
    assert np.array_equal(leafless.distances_[2], pa.tree_emd(x.transpose(2, 0, 1), first, weights=told))
    heads = leafless.trees_[2]
    told = [np.where(first[1].folders().size > 1, 1.0, 0.0), pa.data_weights(x, heads, 2)]
    assert np.array_equal(leafless.distances_[0], pa.tree_emd(x, [first[1], heads], weights=told))


@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 8, 3), (8, 12, 1), (12, 3)], ids=str)
def test_data_weights_of_degenerate_tensors(shape: tuple[int, ...]) -> None:
    for x in (np.zeros(shape), np.ones(shape), 1e100 * np.random.default_rng(0).standard_normal(shape)):
        fitted = pa.Questionnaire(2, weights="data").fit(x)
        assert all(np.isfinite(e).all() for e in fitted.distances_)


def test_E2_scaling_changes_no_tree_with_data_weights() -> None:
    x = attention_like(20, 18, 12, seed=2)
    fits = [pa.Questionnaire(weights="data").fit(scale * x) for scale in (1.0, 8.0, 2.0**-60)]
    assert fits[0].trees_ == fits[1].trees_ == fits[2].trees_
    assert np.array_equal(fits[1].distances_[0], 8 * fits[0].distances_[0])


def test_refusals() -> None:
    tree = random_tree(5, 0)
    x = np.ones((5, 2))
    with pytest.raises(TypeError, match=r"^tree: got int"):
        pa.data_weights(x, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^tree: got one of 5 leaves for axis 1"):
        pa.data_weights(x, tree, 1)
    with pytest.raises(ValueError, match=r"^axis: "):
        pa.data_weights(x, tree, 2)
    with pytest.raises(ValueError, match=r"^x: 1 value"):
        pa.data_weights(np.array([1, 2, np.nan, 4, 5]), tree)
    n = tree.n_folders
    for bad, message in [
        ([np.ones(n - 1)], r"^weights\[0\]: got shape"),
        ([-np.ones(n)], r"^weights\[0\]: got -1.0 as the least"),
        ([np.full(n, np.nan)], r"^weights\[0\]: "),
        ([], r"^weights: got 0 of them"),
    ]:
        with pytest.raises(ValueError, match=message):
            pa.tree_emd(np.ones((3, 5)), tree, weights=bad)
    with pytest.raises(ValueError, match=r"^weights: got shape \(3,\)"):
        pa.Questionnaire(1, weights=lambda tree: np.ones(3)).fit(attention_like(6, 5, 4))
