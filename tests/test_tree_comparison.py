"""How far trees agree: against loops over pairs, other packages, exhaustive permutations, and what must hold."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import NUMPY_FORMS, TORCH_FORMS, caterpillar, random_tree
from numpy.typing import NDArray

import pyattnorg as pa

SIZES = (1, 2, 3, 7, 20)


def _common(tree: pa.PartitionTree, i: int, j: int) -> float:
    """Size of the smallest folder with both leaves, over n."""
    return min(int((row == row[i]).sum()) for row in tree.labels if row[i] == row[j]) / tree.n_leaves


def _star(n: int) -> pa.PartitionTree:
    return pa.PartitionTree.from_labels(np.zeros(n, int))


# -- any scale ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_mantels_correlation_has_no_scale(scale: float) -> None:
    rng = np.random.default_rng(0)
    a, b = (m + m.T for m in rng.random((2, 6, 6)) * (1 - np.eye(6)))
    plain = pa.mantel(a, b, n_permutations=50, seed=0)
    scaled = pa.mantel(scale * a, b, n_permutations=50, seed=0)
    assert scaled.correlation == pytest.approx(plain.correlation, rel=1e-12)
    assert scaled.p_value == plain.p_value


# -- distance and cophenetic correlation ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_distance_and_correlation_are_their_loops(n: int, seed: int) -> None:
    a, b = random_tree(n, seed), random_tree(n, seed + 50)
    pairs = list(combinations(range(n), 2))
    x, y = (np.array([_common(tree, i, j) for i, j in pairs]) for tree in (a, b))
    assert pa.tree_distance(a, b) == pytest.approx(np.abs(x - y).mean() if pairs else 0, rel=1e-12)
    if pairs and np.ptp(x) and np.ptp(y):
        assert pa.cophenetic_correlation(a, b) == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-9)


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_distance_is_a_metric_on_hierarchies(n: int, seed: int) -> None:
    a, b, c = (random_tree(n, seed + i) for i in range(3))
    d = pa.tree_distance
    assert d(a, b) == d(b, a)
    assert d(a, c) <= d(a, b) + d(b, c) + 1e-15
    assert (d(a, b) == 0) == np.array_equal(a.distance_matrix(), b.distance_matrix())
    assert 0 <= d(a, b) < 1
    assert -1 <= pa.cophenetic_correlation(a, b) == pa.cophenetic_correlation(b, a) <= 1


def test_levels_have_no_say_and_flat_trees_tell_nothing() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    tree, chained = pa.PartitionTree.from_labels(labels), pa.PartitionTree.from_labels(np.stack([labels, labels]))
    assert tree != chained
    assert pa.tree_distance(tree, chained) == 0
    assert pa.cophenetic_correlation(tree, chained) == 1
    assert pa.cophenetic_correlation(_star(5), _star(5)) == 1
    assert pa.cophenetic_correlation(_star(5), tree) == 0
    assert pa.cophenetic_correlation(_star(1), _star(1)) == 1
    assert pa.tree_distance(_star(30), pa.PartitionTree.dyadic(30)) > 0.3


def test_cophenetic_correlation_is_scipys() -> None:
    hierarchy = pytest.importorskip("scipy.cluster.hierarchy")
    z = hierarchy.linkage(np.random.default_rng(0).random((20, 3)), "average")
    tree = pa.PartitionTree.from_linkage(z)
    sizes = z.copy()
    sizes[:, 2] = z[:, 3]  # heights that are sizes: the cophenetic distance is that of the smallest common folder
    d = tree.distance_matrix()[np.triu_indices(20, 1)]
    assert np.array_equal(hierarchy.cophenet(sizes), d * 20)


# -- adjusted Rand index ----------------------------------------------------------------------------------------------


def _rand(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Hubert and Arabie's index by pairs."""
    pairs = list(combinations(range(len(x)), 2))
    both = sum(x[i] == x[j] and y[i] == y[j] for i, j in pairs)
    in_x, in_y = (sum(z[i] == z[j] for i, j in pairs) for z in (x, y))
    expected, most = in_x * in_y / len(pairs), (in_x + in_y) / 2
    return 1.0 if most == expected else float((both - expected) / (most - expected))


@pytest.mark.parametrize("seed", range(6))
def test_rand_is_its_loops_and_scikit_learns(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 4, 15), rng.integers(-2, 3, 15)
    got = pa.adjusted_rand_index(x, y)
    assert isinstance(got, float)
    assert got == pytest.approx(_rand(x, y), abs=1e-12)
    assert got == pytest.approx(metrics.adjusted_rand_score(x, y), abs=1e-12)


def test_rand_of_every_level() -> None:
    a, b = random_tree(20, 0), random_tree(20, 1)
    layers = np.arange(20) // 5
    both, one = pa.adjusted_rand_index(a, b), pa.adjusted_rand_index(a, layers)
    assert both.shape == (a.n_levels, b.n_levels)
    assert one.shape == (a.n_levels,)
    for i, row in enumerate(a.labels):
        assert one[i] == pytest.approx(_rand(row, layers), abs=1e-12)
        for j, other in enumerate(b.labels):
            assert both[i, j] == pytest.approx(_rand(row, other), abs=1e-12)
    assert np.array_equal(pa.adjusted_rand_index(layers, a), one)
    assert np.diag(pa.adjusted_rand_index(a, a)) == pytest.approx(np.ones(a.n_levels))
    named = pa.PartitionTree.from_labels(layers)
    assert pa.adjusted_rand_index(named, layers).max() == 1


def test_rand_of_trivial_partitions() -> None:
    together, apart, halves = np.zeros(6, int), np.arange(6), np.arange(6) // 3
    assert pa.adjusted_rand_index(together, together) == pa.adjusted_rand_index(apart, apart) == 1
    assert pa.adjusted_rand_index(together, apart) == pa.adjusted_rand_index(together, halves) == 0
    assert pa.adjusted_rand_index([3], [7]) == 1
    assert pa.adjusted_rand_index([0, 1], [0, 1]) == 1
    huge = np.arange(200_000) % 2  # 2e10 pairs: counted in whole numbers
    assert pa.adjusted_rand_index(huge, 1 - huge) == 1


@pytest.mark.parametrize("form", ["int8", "int64", "list", "read-only", "float32", "torch int64"])
def test_labels_of_any_kind(form: str) -> None:
    if form.startswith("torch"):
        pytest.importorskip("torch")
    make = (NUMPY_FORMS | TORCH_FORMS)[form]
    x, y = np.arange(8) // 2, np.arange(8) // 4
    assert pa.adjusted_rand_index(make(x.astype(float)), y) == pa.adjusted_rand_index(x, y)


# -- Mantel -----------------------------------------------------------------------------------------------------------


def _distances(n: int, seed: int) -> NDArray[Any]:
    x = np.random.default_rng(seed).random((n, 2))
    return np.linalg.norm(x[:, None] - x, axis=2)


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_mantel_is_that_of_all_permutations(method: Any, alternative: Any) -> None:
    from scipy import stats

    a = _distances(6, 0)
    b = a + 0.3 * _distances(6, 1)
    pairs = np.triu_indices(6, 1)
    correlate = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[method]
    every = np.array([correlate(a[pairs], b[np.ix_(p, p)][pairs])[0] for p in permutations(range(6))])
    found = pa.mantel(a, b, method=method, alternative=alternative, n_permutations=4000)
    assert found.correlation == pytest.approx(every[0], rel=1e-9)
    extreme = {
        "greater": every >= every[0] - 1e-9,
        "less": every <= every[0] + 1e-9,
        "two-sided": np.abs(every) >= abs(every[0]) - 1e-9,
    }[alternative].mean()
    assert found.p_value == pytest.approx(extreme, abs=5 * np.sqrt(0.25 / 4000))
    assert found.null.shape == (4000,)
    assert set(np.round(found.null, 8)) <= set(np.round(every, 8))


def test_mantel_has_its_level() -> None:
    """Of unrelated matrices about one in ten has p <= 0.1; binomial bounds of 5 standard deviations."""
    p = [pa.mantel(_distances(12, 2 * s), _distances(12, 2 * s + 1), n_permutations=99).p_value for s in range(200)]
    assert abs((np.array(p) <= 0.1).mean() - 0.1) <= 5 * np.sqrt(0.09 / 200)
    assert min(p) >= 0.01


def test_mantel_of_trees_affinities_and_relations() -> None:
    tree = pa.PartitionTree.dyadic(16)
    same = pa.mantel(tree, tree)
    assert same.correlation == pytest.approx(1)
    assert same.p_value <= 0.01
    assert pa.mantel(tree, tree.distance_matrix()).correlation == same.correlation
    against = pa.mantel(tree, np.exp(-tree.distance_matrix()), alternative="less")
    assert against.correlation < -0.9
    assert against.p_value <= 0.01
    assert np.array_equal(pa.mantel(tree, tree, seed=1).null, pa.mantel(tree, tree, seed=1).null)
    assert not np.array_equal(pa.mantel(tree, tree, seed=2).null, same.null)


def test_mantel_has_no_scale_and_constants_tell_nothing() -> None:
    a, b = _distances(8, 0), _distances(8, 1)
    expected = pa.mantel(a, b)
    for scale in (1e-200, 1e-30, 1e30, 1e200):
        found = pa.mantel(scale * a, b / scale)
        assert found.correlation == pytest.approx(expected.correlation, rel=1e-9)
        assert found.p_value == expected.p_value
    assert pa.mantel(a, b + 5 * np.eye(8)).correlation == pytest.approx(expected.correlation, rel=1e-12)  # diagonal
    for flat in (np.zeros((8, 8)), np.full((8, 8), 0.1), _star(8)):
        found = pa.mantel(a, flat)
        assert (found.correlation, found.p_value) == (0, 1)
    assert pa.mantel([[1.0]], [[2.0]]).p_value == 1


@pytest.mark.parametrize("form", ["float32", "float64", "strided", "read-only", "Fortran", "torch float32"])
def test_matrices_of_any_kind(form: str) -> None:
    if form.startswith("torch"):
        pytest.importorskip("torch")
    a, b = np.rint(10 * _distances(6, 0)), np.rint(10 * _distances(6, 1))
    found = pa.mantel((NUMPY_FORMS | TORCH_FORMS)[form](a), b)
    assert found.correlation == pytest.approx(pa.mantel(a, b).correlation, rel=1e-12)


# -- tanglegrams ------------------------------------------------------------------------------------------------------


def _crossed(left: NDArray[Any], right: NDArray[Any]) -> int:
    at, other = np.argsort(left), np.argsort(right)
    return sum((at[i] < at[j]) != (other[i] < other[j]) for i, j in combinations(range(len(at)), 2))


@given(st.integers(1, 20), st.integers(0, 10**6))
def test_tanglegram_keeps_folders_together_and_counts_its_crossings(n: int, seed: int) -> None:
    a, b = random_tree(n, seed), random_tree(n, seed + 1)
    found = pa.tanglegram(a, b)
    assert found.crossings == _crossed(found.left, found.right)
    assert 0 <= found.entanglement <= 1
    assert found.crossings <= _crossed(a.order, b.order)
    for tree, order in ((a, found.left), (b, found.right)):
        assert sorted(order) == list(range(n))
        for row in tree.labels:
            assert (np.diff(row[order]) != 0).sum() == row.max()


@pytest.mark.parametrize("n", [2, 9, 40])
def test_trees_that_can_be_drawn_in_one_order_are(n: int) -> None:
    p = np.random.default_rng(n).permutation(n)
    for tree in (
        random_tree(n, n),
        caterpillar(n),
        pa.PartitionTree.from_labels(pa.PartitionTree.dyadic(n).labels[:, p]),
    ):
        assert pa.tanglegram(tree, tree).crossings == 0
        assert pa.tanglegram(tree, _star(n)).crossings == 0
        coarse = pa.PartitionTree.from_labels(tree.labels[: tree.n_levels // 2 + 1])
        assert pa.tanglegram(tree, coarse).crossings == 0


def test_tanglegram_finds_nearly_the_least_crossings() -> None:
    """Every order of two small binary trees is tried; the sum over 30 pairs may exceed the least by a fifth."""
    got, least = 0, 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        trees = [pa.PartitionTree.from_labels(pa.PartitionTree.dyadic(6).labels[:, rng.permutation(6)]) for _ in "ab"]
        orders = [
            [p for p in permutations(range(6)) if all((np.diff(r[list(p)]) != 0).sum() == r.max() for r in t.labels)]
            for t in trees
        ]
        got += pa.tanglegram(*trees).crossings
        least += min(_crossed(np.array(p), np.array(q)) for p in orders[0] for q in orders[1])
    assert least <= got <= 1.2 * least


# -- refusals ---------------------------------------------------------------------------------------------------------

TREE = pa.PartitionTree.dyadic(4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pa.tree_distance(TREE, pa.PartitionTree.dyadic(5)), ValueError, "^b: got a tree of 5 leaves, a has 4"),
        (lambda: pa.tree_distance(TREE, np.eye(4)), TypeError, "^b: got ndarray"),
        (lambda: pa.cophenetic_correlation("a", TREE), TypeError, "^a: got str"),
        (lambda: pa.tanglegram(TREE, None), TypeError, "^b: got NoneType"),
        (lambda: pa.tanglegram(TREE, pa.PartitionTree.dyadic(5)), ValueError, "^b: got a tree of 5 leaves"),
        (lambda: pa.adjusted_rand_index(TREE, [0, 1]), ValueError, "^b: got a partition of 2 points, a has 4"),
        (lambda: pa.adjusted_rand_index(np.eye(3), [0, 1]), ValueError, r"^a: got shape \(3, 3\)"),
        (lambda: pa.adjusted_rand_index([], []), ValueError, r"^a: got shape \(0,\)"),
        (lambda: pa.adjusted_rand_index([0.5, 1], [0, 1]), ValueError, "^a: got dtype float64 with fractions"),
        (
            lambda: pa.adjusted_rand_index([np.nan, 1], [0, 1]),
            ValueError,
            "^a: got dtype float64 with fractions or NaN",
        ),
        (lambda: pa.adjusted_rand_index(["a", "b"], [0, 1]), TypeError, "^a: got dtype"),
        (lambda: pa.mantel(TREE, np.eye(5)), ValueError, "^b: got a matrix of 5 points, a has 4"),
        (lambda: pa.mantel(np.ones((2, 3)), TREE), ValueError, r"^a: got shape \(2, 3\)"),
        (lambda: pa.mantel(np.ones((0, 0)), TREE), ValueError, r"^a: got shape \(0, 0\)"),
        (lambda: pa.mantel(np.full((4, 4), np.nan), TREE), ValueError, "^a: 16 value"),
        (lambda: pa.mantel(np.triu(np.ones((4, 4))), TREE), ValueError, "^a: not symmetric"),
        (lambda: pa.mantel(TREE, TREE, method="kendall"), ValueError, "^method: got 'kendall'"),
        (lambda: pa.mantel(TREE, TREE, alternative="more"), ValueError, "^alternative: got 'more'"),
        (lambda: pa.mantel(TREE, TREE, n_permutations=0), ValueError, "^n_permutations: got 0"),
        (lambda: pa.mantel(TREE, TREE, seed=-1), ValueError, "^seed: got -1"),
    ],
)
def test_refusals(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
