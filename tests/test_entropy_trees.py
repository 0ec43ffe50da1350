"""Least-entropy trees: merges and exchanges against slow ones, planted trees found again, entropy that only falls."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from conftest import missing
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import FORMS, TORCH_FORMS, computing_dtype, on_every_instruction_set, random_tree
from numpy.typing import NDArray
from tensors import attention_like, planted

import pyattnorg as pa
from pyattnorg import entropy_trees, kernels, reference, sampling

FloatArray = NDArray[np.float64]
DEVICES = [name for name in ("emulated", "cuda") if not missing(name)]


def points(n: int, features: int, seed: int = 0) -> FloatArray:
    """Points of a few families, so that merging has an order that rounding does not decide."""
    rng = np.random.default_rng(seed)
    families = rng.standard_normal((3, features)) * 2
    return families[rng.integers(3, size=n)] + rng.standard_normal((n, features))


def cost(tree: pa.PartitionTree, x: FloatArray) -> float:
    """Sum of magnitudes of the Haar coefficients, the constant's left out, by dense vectors."""
    return float(np.abs(reference.haar_basis(tree).T[1:] @ x.reshape(len(x), -1)).sum())


def strict_merges(x: FloatArray) -> list[tuple[int, int]]:
    """The cheapest pair of all, again and again."""
    groups = [[i] for i in range(len(x))]
    merges = []
    while len(groups) > 1:

        def price(pair: tuple[int, int]) -> float:
            a, b = groups[pair[0]], groups[pair[1]]
            s, m = len(a), len(b)
            return float((s * m / (s + m)) ** 0.5 * np.abs(x[a].mean(0) - x[b].mean(0)).sum())

        i, j = min(combinations(range(len(groups)), 2), key=price)
        merges.append((groups[i][0], groups[j][0]))
        groups[i] = sorted(groups[i] + groups.pop(j))
    return merges


def cophenetic(tree: pa.PartitionTree, labels: NDArray[Any]) -> float:
    pairs = np.triu_indices(tree.n_leaves, 1)
    a, b = tree.distance_matrix()[pairs], pa.PartitionTree.from_labels(labels).distance_matrix()[pairs]
    return float(np.corrcoef(a, b)[0, 1])


# -- the kernels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "features"), [(2, 1), (3, 5), (17, 40), (40, 700), (70, 1200)])
def test_merges_and_exchanges_as_in_the_reference(
    n: int, features: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = points(n, features).astype(dtype)
    expected_merges, expected_costs = reference.entropy_tree(x)
    better, better_costs = reference.improve_tree(x, expected_merges, 1e-6, 0.0, 200)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12

    def run() -> Any:
        merges, costs, distances = kernels.entropy_tree(x.copy(), 0.0)
        return merges, costs, distances, *kernels.improve_tree(x, merges, least_share=1e-6, least_gain=0.0)

    found = on_every_instruction_set(run)
    for name in DEVICES:
        monkeypatch.setenv("PYATTNORG_BACKEND", name)
        found[name] = run()
    for merges, costs, distances, exchanged, exchanged_costs in found.values():
        assert np.array_equal(merges, expected_merges)
        assert np.allclose(costs, expected_costs, rtol=tolerance)
        assert np.allclose(distances, reference.pairwise(x, None, "l1", None), rtol=tolerance)
        tree, slow = entropy_trees.tree_of_merges(exchanged), entropy_trees.tree_of_merges(better)
        assert tree == slow
        assert exchanged_costs.sum() == pytest.approx(better_costs.sum(), rel=tolerance)
        assert exchanged_costs.sum() == pytest.approx(cost(tree, x.astype(float)), rel=tolerance)


@pytest.mark.parametrize("noise", [0.5, 1.2, 100.0])
def test_noise_shrinks_features(noise: float, backend: str) -> None:
    x = points(20, 300) * np.linspace(0, 2, 300)
    merges, costs, distances = kernels.entropy_tree(x.copy(), noise)
    shrunk = reference.shrink_features(x, noise**2)
    assert (shrunk.shape[1] == 300) == (noise == 100.0)  # as they are, where none would be left
    expected = reference.entropy_tree(shrunk)
    assert np.array_equal(merges, expected[0])
    assert np.allclose(costs, expected[1], rtol=1e-12)
    assert np.allclose(distances, reference.pairwise(shrunk, None, "l1", None), rtol=1e-12)


def test_blocks_of_mutual_pairs_cost_what_the_strict_order_costs() -> None:
    ratios = []
    for seed in range(20):
        x = points(24, 50, seed)
        strict = entropy_trees.tree_of_merges(np.array(strict_merges(x), np.int32))
        ratios.append(kernels.entropy_tree(x.copy(), 0.0)[1].sum() / cost(strict, x))
    assert abs(np.mean(ratios) - 1) < 0.002
    assert max(ratios) < 1.02


def test_threads_change_no_byte() -> None:
    x = points(150, 3000).astype(np.float32)
    found = []
    for threads in (1, 2, 3, 7):
        pa.set_num_threads(threads)
        try:
            merges, costs, distances = kernels.entropy_tree(x.copy(), 1.0)
            better = kernels.improve_tree(x, merges, least_share=1e-6, least_gain=0.0)
        finally:
            pa.set_num_threads(None)
        found.append([part.tobytes() for part in (merges, costs, distances, *better)])
    assert all(one == found[0] for one in found)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 1000), st.sampled_from(["cpu", *DEVICES]))
def test_exchanges_never_raise_the_cost(n: int, features: int, seed: int, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYATTNORG_BACKEND", name)
        _exchange(n, features, seed)


def _exchange(n: int, features: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (n, features)).astype(float)  # ties and twins
    start = random_tree(n, seed)
    merges = entropy_trees.merges_of_tree(start)
    better, costs = kernels.improve_tree(x, merges, least_share=1e-9, least_gain=0.0)
    tree = entropy_trees.tree_of_merges(better)
    assert cost(entropy_trees.tree_of_merges(merges), x) == pytest.approx(cost(start, x))
    assert costs.sum() == pytest.approx(cost(tree, x))
    assert costs.sum() <= cost(start, x) * (1 + 1e-9) + 1e-9


@pytest.mark.skipif(not DEVICES, reason="no kernels of a device are built here")
def test_orders_of_threads_change_no_byte_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    x, found = points(90, 200).astype(np.float32), set()
    monkeypatch.setenv("PYATTNORG_BACKEND", DEVICES[0])
    for order in ("forward", "backward", "shuffled"):
        monkeypatch.setenv("PYATTNORG_EMULATED_ORDER", order)
        merges, costs, distances = kernels.entropy_tree(x.copy(), 1.0)
        better = kernels.improve_tree(x, merges, least_share=1e-6, least_gain=0.0)
        found.add(tuple(part.tobytes() for part in (merges, costs, distances, *better)))
    assert len(found) == 1


def test_chains_take_as_many_passes_as_merges(backend: str) -> None:
    x = 3.0 ** np.arange(24)[:, None]  # only the nearest two are ever each other's cheapest
    merges, _, _ = kernels.entropy_tree(x.copy(), 0.0)
    assert merges.tolist() == [[0, i] for i in range(1, 24)]


@pytest.mark.parametrize("merges", [[[0, 1], [1, 2]], [[1, 0], [0, 2]], [[0, 1], [0, 3]], [[-1, 1], [0, 2]]])
def test_merges_that_are_no_tree_are_refused(merges: list[list[int]], backend: str) -> None:
    if backend == "reference":
        return  # a definition, which nothing but tests calls
    with pytest.raises(ValueError, match=r"^merges must name"):
        kernels.improve_tree(np.ones((3, 2)), np.array(merges, np.int32), least_share=0.0, least_gain=0.0)


# -- entropy_tree -----------------------------------------------------------------------------------------------------


def test_twins_are_siblings() -> None:
    x = points(9, 30)
    x[7] = x[2]
    tree = pa.entropy_tree(x, noise=0)
    assert tree.distance_matrix()[2, 7] == pytest.approx(2 / 9)


def test_equal_points_are_merged_by_index() -> None:
    tree = pa.entropy_tree(np.ones((4, 3)))
    assert tree == pa.entropy_tree(np.zeros((4, 3)))
    assert tree == pa.PartitionTree.from_merges(np.array([[0, 1], [4, 2], [5, 3]]))


def test_one_point_and_no_features() -> None:
    assert pa.entropy_tree(np.ones((1, 5))) == pa.PartitionTree.dyadic(1)
    assert pa.entropy_tree(np.ones((3, 0))).n_leaves == 3
    with pytest.raises(ValueError, match="at least one point"):
        pa.entropy_tree(np.ones((0, 5)))


def test_bad_features_are_refused() -> None:
    x = points(5, 4)
    x[1, 2] = np.nan
    with pytest.raises(ValueError, match=r"features: .*\(1, 2\)"):
        pa.entropy_tree(x)
    with pytest.raises(ValueError, match="noise: got -1"):
        pa.entropy_tree(points(5, 4), noise=-1)
    with pytest.raises(ValueError, match="overflow"):
        pa.entropy_tree(np.array([[3e38], [-3e38]], np.float32))


@pytest.mark.parametrize("form", FORMS)
def test_any_kind_of_array(form: str) -> None:
    if form in TORCH_FORMS:
        pytest.importorskip("torch")
    x = np.random.default_rng(0).integers(-9, 10, (12, 4, 6)).astype(float)
    array = FORMS[form](x)
    assert pa.entropy_tree(array) == pa.entropy_tree(x.astype(computing_dtype(form)))
    assert form in (*TORCH_FORMS, "list", "DLPack") or np.array_equal(array, x)


def test_permuted_points_give_the_permuted_tree() -> None:
    x = points(30, 200)
    order = np.random.default_rng(1).permutation(30)
    a, b = pa.entropy_tree(x).distance_matrix(), pa.entropy_tree(x[order]).distance_matrix()
    assert np.array_equal(a[np.ix_(order, order)], b)


# -- the questionnaire ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [995, 500, -560, -1000])
def test_numbers_whose_squares_are_out_of_range(exponent: int) -> None:
    x = attention_like(10, 9, 8, seed=3).astype(np.float64)
    huge = np.ldexp(x, exponent)
    one, other = pa.Questionnaire().fit(x), pa.Questionnaire().fit(huge)
    assert other.trees_ == one.trees_
    assert [step["entropy"] for step in other.history_] == [step["entropy"] for step in one.history_]
    assert all(np.array_equal(np.ldexp(a, exponent), b) for a, b in zip(one.distances_, other.distances_))
    assert pa.entropy_tree(huge) == pa.entropy_tree(x)
    assert pa.entropy_tree(huge, noise=float(np.ldexp(0.01, exponent))) == pa.entropy_tree(x, noise=0.01)
    assert pa.entropy_tree(huge, max_features=30) == pa.entropy_tree(x, max_features=30)


def test_distances_beyond_float64_are_an_error() -> None:
    x = np.ldexp(attention_like(10, 9, 8, seed=3).astype(np.float64), 1022)
    with pytest.raises(ValueError, match="overflow float64; scale the values down"):
        pa.Questionnaire().fit(x)


@pytest.mark.parametrize("noise", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_planted_trees_are_found(seed: int, noise: float) -> None:
    x, labels = planted((64, 64, 32), seed, noise=noise)
    fitted = pa.Questionnaire(10, tree="entropy").fit(x)
    true = pa.l1_entropy(pa.haar(x, [pa.PartitionTree.from_labels(one) for one in labels]))
    assert min(cophenetic(tree, one) for tree, one in zip(fitted.trees_, labels)) >= 0.999
    assert fitted.history_[-1]["entropy"] <= 1.005 * true


@pytest.mark.parametrize("shape", [(24, 20), (16, 20, 12), (6, 8, 5, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entropy_only_falls(shape: tuple[int, ...], dtype: type) -> None:
    x = np.abs(np.random.default_rng(0).standard_normal(shape)) ** 3
    x = (x * np.arange(1, shape[-1] + 1)).astype(dtype)
    fitted = pa.Questionnaire(20, tree="entropy").fit(x)
    entropies = [one["entropy"] for one in fitted.history_]
    assert all(b <= a for a, b in pairwise(entropies))
    assert fitted.converged_
    assert fitted.n_iter_ == len(entropies) < 20
    assert fitted.trees_ == fitted.history_[-1]["trees"]
    assert pa.l1_entropy(fitted.coefficients()) == pytest.approx(entropies[-1], rel=1e-5)
    assert np.allclose(fitted.inverse_transform(fitted.coefficients()), x, atol=1e-4)
    assert [a.shape for a in fitted.affinities_] == [(n, n) for n in shape]
    assert all((a == a.T).all() and (np.diag(a) == 0).all() for a in fitted.distances_)
    assert [t.n_leaves for t in fitted.trees_] == list(shape)


def test_trees_to_start_from_are_never_made_worse() -> None:
    x, labels = planted((16, 16, 8), 3, noise=0.3)
    true = [pa.PartitionTree.from_labels(one) for one in labels]
    fitted = pa.Questionnaire(5, tree="entropy").fit(x, trees=true)
    assert fitted.history_[0]["entropy"] <= pa.l1_entropy(pa.haar(x, true)) * (1 + 1e-12)
    some = pa.Questionnaire(5, tree="entropy").fit(x, trees=[true[0], None, None])
    assert some.history_[-1]["entropy"] <= 1.01 * pa.l1_entropy(pa.haar(x, true))


def test_what_a_mask_hides_has_no_say() -> None:
    x = attention_like(12, 12, 6)
    visible = np.tril(np.ones((12, 12), bool))
    other = np.where(visible[:, :, None], x, np.random.default_rng(0).random(x.shape))
    a, b = (pa.Questionnaire(tree="entropy").fit(one, visible=visible) for one in (x, other))
    assert a.trees_ == b.trees_
    assert a.history_[-1]["entropy"] == b.history_[-1]["entropy"]


def test_it_beats_flexible_trees_on_attention() -> None:
    x = attention_like(48, 48, 24).astype(np.float32)
    ours = pa.Questionnaire(tree="entropy").fit(x).history_[-1]["entropy"]
    theirs = min(one["entropy"] for one in pa.Questionnaire(tree="flexible").fit(x).history_)
    assert ours < theirs


def test_constant_tensors_and_single_points() -> None:
    for x in (np.zeros((4, 5, 3)), np.ones((4, 1, 3)), np.ones((1, 1))):
        fitted = pa.Questionnaire(tree="entropy").fit(x)
        assert [tree.n_leaves for tree in fitted.trees_] == list(x.shape)
        assert np.isfinite(fitted.history_[-1]["entropy"])


def test_the_papers_schedule_knows_no_such_trees() -> None:
    with pytest.raises(ValueError, match="schedule: 'paper'"):
        pa.Questionnaire(tree="entropy", schedule="paper").fit(np.ones((3, 3)))


def test_given_trees_stay() -> None:
    x, labels = planted((16, 16, 8), 1, noise=0.1)
    grid = pa.PartitionTree.dyadic(16)
    kinds = ("given", "entropy", "entropy")
    fitted = pa.Questionnaire(5, tree=kinds).fit(x, trees=[grid, None, None])
    assert fitted.trees_[0] == grid
    assert fitted.distances_[0].shape == (16, 16)
    assert cophenetic(fitted.trees_[2], labels[2]) >= 0.999
    with pytest.raises(ValueError, match="'entropy' goes with itself"):
        pa.Questionnaire(tree=("entropy", "entropy", "flexible")).fit(x)


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    pa.Questionnaire(1, tree="entropy").fit(points(6, 7), progress=lambda *one: told.append(one))
    assert told[0][0] == "first tree of axis 1"
    assert told[-1] == ("organised", 4, 4)


def test_organize_takes_it() -> None:
    found = pa.organize(attention_like(10, 10, 6), tree="entropy")
    assert "scores" in found.summary()
    assert found.trees_[2].n_leaves == 6


# -- many features ----------------------------------------------------------------------------------------------------


def test_sampled_features_keep_distances() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 5000)) * rng.random(5000) ** 6
    sample = sampling.sampled_features(x, 600)
    assert 550 <= sample.shape[1] <= 650
    exact, estimate = (reference.pairwise(one, None, "l1", None) for one in (x, sample))
    pairs = np.triu_indices(40, 1)
    assert np.abs(estimate[pairs] / exact[pairs] - 1).max() < 0.1
    assert np.abs(estimate[pairs].mean() / exact[pairs].mean() - 1) < 0.01
    assert np.array_equal(sample, sampling.sampled_features(x, 600))


def test_few_of_many_features_give_almost_the_same_cost() -> None:
    x = points(60, 4000)
    assert pa.entropy_tree(x, max_features=4000) == pa.entropy_tree(x)
    assert cost(pa.entropy_tree(x, max_features=1000), x) <= 1.02 * cost(pa.entropy_tree(x), x)
    assert pa.entropy_tree(np.ones((5, 9)), max_features=3).n_leaves == 5
    with pytest.raises(ValueError, match="max_features: got 0"):
        pa.entropy_tree(x, max_features=0)
