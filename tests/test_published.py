"""The paper's entropies as its code computes them, lp entropy, energy curves, numbers of coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transcription as slow
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from inputs import FORMS, NUMPY_FORMS, random_tree
from numpy.typing import NDArray

import pyattnorg as pa

VALUES = st.floats(-1e3, 1e3).map(lambda v: round(v, 3))
ARRAYS = hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=6), elements=VALUES)


def _network(n: int = 14, heads: int = 9, seed: int = 0) -> tuple[NDArray[Any], list[pa.PartitionTree]]:
    x = np.random.default_rng(seed).standard_normal((n, n, heads))
    return x, [random_tree(m, seed + i) for i, m in enumerate(x.shape)]


# -- as published -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4, 10, 50])
def test_published_head_entropy_is_the_transcription(count: int) -> None:
    x, trees = _network()
    labels = [tree.labels.astype(int) for tree in trees]
    assert pa.published_head_entropy(x, trees, count=count) == pytest.approx(
        slow.head_entropies(x, labels[:2], count), rel=1e-10
    )
    assert np.array_equal(pa.published_head_entropy(x, trees), pa.published_head_entropy(x, trees[:2]))
    involvement = pa.head_entropies(x, trees)["involvement"]
    assert involvement == pytest.approx(
        pa.published_head_entropy(x, trees) / pa.published_head_entropy(x, trees).max(), rel=1e-12
    )


def _as_coded(x: NDArray[Any], trees: list[pa.PartitionTree], count: int) -> float:
    """The steps of the published computation, one by one, on dense functions."""
    rows, columns, heads = (pa.haar_basis(tree) for tree in trees)
    count = min(count, x.shape[2])
    support, index = [], []
    for a in range(x.shape[0]):
        for b in range(x.shape[1]):
            support.append(int((np.outer(rows[:, a], columns[:, b]) > 1e-4).sum()))
            index.append((a, b))
    ascending = np.array([index[i] for i in sorted(range(len(index)), key=lambda i: support[i])])
    swapped = np.flip(ascending)  # of a 2-D array: the order of rows, and that of the two columns
    a, b = swapped[(x.shape[2] - 1) % count]
    return sum(
        abs(float(np.einsum("ijk,i,j,k", x, rows[:, a], columns[:, b], heads[:, c]))) for c in range(count - 1, -1, -1)
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 3, 4, 9, 100])
def test_published_network_entropy_is_what_the_code_sums(seed: int, count: int) -> None:
    x, trees = _network(11, 9, seed)
    assert pa.published_network_entropy(x, trees, count=count) == pytest.approx(_as_coded(x, trees, count), rel=1e-10)


@pytest.mark.parametrize("count", [1, 7, 100, 10_000])
def test_coarsest_entropy_is_the_transcription(count: int) -> None:
    x, trees = _network(8, 6, 1)
    labels = [tree.labels.astype(int) for tree in trees]
    assert pa.coarsest_entropy(x, trees, count=count) == pytest.approx(
        slow.network_entropy(x, labels, count), rel=1e-10
    )
    assert pa.coarsest_entropy(x, trees, count=10_000) == pytest.approx(
        pa.l1_entropy(pa.haar(x, trees), normalized=False), rel=1e-12
    )


def test_units_are_those_of_the_data() -> None:
    x, trees = _network()
    for function in (pa.published_head_entropy, pa.published_network_entropy, pa.coarsest_entropy):
        assert function(3 * x, trees) == pytest.approx(3 * function(x, trees), rel=1e-10)
        assert function(x.astype(np.float32), trees) == pytest.approx(function(x, trees), rel=1e-5)
        assert not np.any(function(0 * x, trees))


def test_refusals() -> None:
    x, trees = _network()
    with pytest.raises(ValueError, match=r"^x: got shape \(14, 14\), expected \(queries, keys, heads\)"):
        pa.published_head_entropy(x[:, :, 0], trees)
    with pytest.raises(ValueError, match=r"^x: got shape \(13, 14, 9\), expected as many queries as keys"):
        pa.published_network_entropy(x[1:], [random_tree(13, 0), *trees[1:]])
    with pytest.raises(ValueError, match=r"^trees: got None"):
        pa.published_network_entropy(x, trees[:2])
    for function in (pa.published_head_entropy, pa.published_network_entropy, pa.coarsest_entropy):
        with pytest.raises(ValueError, match=r"^count: got 0"):
            function(x, trees, count=0)
        with pytest.raises(ValueError, match=r"^trees: (that of axis 0|got 1)"):
            function(x, [trees[2]])
    with pytest.raises(ValueError, match=r"^trees: got 1, expected those of queries and keys"):
        pa.head_entropies(x, trees[:1])
    with pytest.raises(ValueError, match=r"^x: got shape \(14,\)"):
        pa.head_entropies(x[:, 0, 0], trees)


# -- per head ---------------------------------------------------------------------------------------------------------


def test_head_entropies_are_those_of_each_head() -> None:
    x, trees = _network(seed=2)
    found = pa.head_entropies(x, trees)
    for h in range(x.shape[2]):
        c = pa.haar(x[:, :, h], trees[:2])
        assert found["l1"][h] == pytest.approx(np.abs(c).sum(), rel=1e-12)
        assert found["entropy"][h] == pytest.approx(slow.l1_entropy(c), rel=1e-12)
        assert found["effective"][h] == pytest.approx(slow.effective_number(c), rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_any_array(form: str) -> None:
    if form not in NUMPY_FORMS:
        pytest.importorskip("torch")
    x = np.random.default_rng(3).integers(-9, 10, (5, 5, 4)).astype(float)
    trees = [random_tree(n, i) for i, n in enumerate(x.shape)]
    given = FORMS[form](x)
    for function in (pa.published_head_entropy, pa.published_network_entropy, pa.coarsest_entropy):
        assert function(given, trees) == pytest.approx(function(x, trees), rel=1e-5)
    for name, numbers in pa.head_entropies(given, trees).items():
        assert numbers.dtype == np.float64
        assert numbers == pytest.approx(pa.head_entropies(x, trees)[name], rel=1e-5)


def test_no_heads_and_one_cell() -> None:
    trees = [random_tree(3, 0), random_tree(4, 1)]
    assert all(len(numbers) == 0 for numbers in pa.head_entropies(np.zeros((3, 4, 0)), trees).values())
    one = [pa.PartitionTree.dyadic(1)] * 3
    cell = np.full((1, 1, 1), -2.0)
    assert pa.published_network_entropy(cell, one) == pa.coarsest_entropy(cell, one) == 2
    assert pa.published_head_entropy(cell, one).tolist() == [2]
    assert pa.head_entropies(cell, one)["entropy"].tolist() == [1]


# -- lp ---------------------------------------------------------------------------------------------------------------


@given(ARRAYS, st.sampled_from([0.3, 0.5, 1.0, 1.5]))
def test_lp_is_the_transcription_and_in_range(c: NDArray[Any], p: float) -> None:
    assert pa.lp_entropy(c, p, normalized=False) == pytest.approx(slow.lp_entropy(c, p), rel=1e-10)
    entropy = pa.lp_entropy(c, p)
    if c.any():
        assert c.size ** (0.5 - 1 / p) * (1 - 1e-9) <= entropy <= 1 + 1e-9
    else:
        assert entropy == 0
    assert pa.lp_entropy(c) == pytest.approx(pa.l1_entropy(c), rel=1e-12)


def test_lp_at_the_limits_of_numbers() -> None:
    c = np.random.default_rng(0).standard_normal(1000)
    for scale in (1e-300, 1e300):
        assert pa.lp_entropy(scale * c, 0.5) == pytest.approx(pa.lp_entropy(c, 0.5), rel=1e-12)
    assert 0 <= pa.lp_entropy(c, 0.01) <= 1
    assert pa.lp_entropy(c, 0.001, normalized=False) == np.inf
    for bad in (0, -1, 2, 3, np.nan):
        with pytest.raises(ValueError, match=r"^p: got"):
            pa.lp_entropy(c, bad)
    assert pa.lp_entropy(np.zeros((0, 2))) == 0


# -- energy -----------------------------------------------------------------------------------------------------------


@given(ARRAYS, st.floats(0, 1.2))
def test_energy_curve_and_coefficients_needed(c: NDArray[Any], error: float) -> None:
    curve, needed = pa.energy_curve(c), pa.coefficients_needed(c, error)
    assert curve.shape == (c.size,)
    if not c.any():
        assert needed == 0
        assert not curve.any()
        return
    assert (np.diff(curve) >= -1e-15).all()
    assert curve[-1] == pytest.approx(1)
    ordered = np.sort(np.abs(c).ravel())[::-1]
    assert curve[0] == pytest.approx(ordered[0] ** 2 / (ordered**2).sum())
    left = [np.sqrt((ordered[k:] ** 2).sum()) / np.linalg.norm(ordered) for k in range(c.size + 1)]
    assert left[needed] <= error + 1e-7
    if needed:
        assert left[needed - 1] > error - 1e-7


def test_coefficients_needed_by_hand() -> None:
    c = np.array([4.0, -3, 0, 0])
    assert [pa.coefficients_needed(c, e) for e in (0, 0.59, 0.6, 0.99, 1, 2)] == [2, 2, 1, 1, 0, 0]
    assert pa.coefficients_needed([], 0.1) == 0
    with pytest.raises(ValueError, match=r"^error: got -0.1"):
        pa.coefficients_needed(c, -0.1)
    with pytest.raises(ValueError, match=r"^c: 1 value"):
        pa.energy_curve([np.inf])
