"""Paraproducts on trees. P1 to P8 are invariants of the method; P6 is in test_invariance.py too, on whole networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from inputs import caterpillar, random_tree
from numpy.typing import NDArray
from scipy.special import logsumexp

import pyattnorg as pa

FloatArray = NDArray[Any]
SHAPES = [(9,), (12, 7), (1, 6), (5, 6, 7), (2, 3, 2, 3)]


def _trees(shape: Sequence[int], seed: int = 0) -> list[pa.PartitionTree]:
    return [random_tree(n, seed + i) for i, n in enumerate(shape)]


def _f(shape: Sequence[int], seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(tuple(shape))


def _averages(f: FloatArray, trees: Sequence[pa.PartitionTree | None], levels: Sequence[int]) -> FloatArray:
    """P_l f, by one matrix an axis."""
    for axis, (tree, level) in enumerate(zip(trees, levels)):
        if tree is not None:
            same = tree.labels[level][:, None] == tree.labels[level]
            f = np.moveaxis(np.tensordot(same / same.sum(1, keepdims=True), f, (1, axis)), 0, axis)
    return f


def _combinations(trees: Sequence[pa.PartitionTree | None]) -> list[tuple[int, ...]]:
    return list(product(*(range(1 if tree is None else tree.n_levels - 1) for tree in trees)))


def _set_partitions(items: list[int]) -> list[list[list[int]]]:
    if not items:
        return [[]]
    out = []
    for rest in _set_partitions(items[1:]):
        out.append([[items[0]], *rest])
        out += [[[items[0], *part] if part is rest[i] else part for part in rest] for i in range(len(rest))]
    return out


def slow_paraproduct(
    f: FloatArray, trees: Sequence[pa.PartitionTree | None], a: Sequence[Callable[..., Any]]
) -> tuple[FloatArray, list[FloatArray], FloatArray]:
    """Boundary, terms, and the telescoping sum, from the definition: every level, every cell."""
    axes = [i for i, tree in enumerate(trees) if tree is not None]
    leaf = [0 if tree is None else tree.n_levels - 1 for tree in trees]
    boundary = np.zeros(f.shape)
    for k in range(1, len(axes) + 1):
        for coarse in combinations(axes, k):
            at = [0 if i in coarse else level for i, level in enumerate(leaf)]
            boundary -= (-1) ** k * a[0](_averages(f, trees, at))
    terms = [np.zeros(f.shape) for _ in a[1:]]
    telescope = np.zeros(f.shape)
    for levels in _combinations(trees):
        corner = {}
        for k in range(len(axes) + 1):
            for finer in combinations(axes, k):
                corner[finer] = _averages(f, trees, [level + (i in finer) for i, level in enumerate(levels)])
        difference = {}
        for finer in corner:
            inside = [(part, (-1) ** (len(finer) - len(part))) for part in corner if set(part) <= set(finer)]
            difference[finer] = sum(sign * corner[part] for part, sign in inside)
        for finer, value in corner.items():
            telescope += (-1) ** (len(axes) - len(finer)) * a[0](value)
        for partition in _set_partitions(axes):
            if len(partition) <= len(terms):
                parts = [difference[tuple(sorted(part))] for part in partition]
                terms[len(partition) - 1] += a[len(partition)](corner[()]) * np.prod(parts, axis=0)
    return boundary, terms, telescope


EXP = (np.exp,) * 5
SINE = (np.sin, np.cos, lambda t: -np.sin(t), lambda t: -np.cos(t), np.sin)


# -- the definition ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("function", ["exp", "sine"])
@pytest.mark.usefixtures("backend")
def test_P1_identity_and_telescoping_sum(shape: tuple[int, ...], function: str) -> None:
    f, trees = _f(shape), _trees(shape)
    a = (EXP if function == "exp" else SINE)[: len(shape) + 1]
    boundary, terms, telescope = slow_paraproduct(f, trees, a)
    found = pa.paraproduct(f, trees, "exp" if function == "exp" else a)
    assert found.boundary == pytest.approx(boundary, abs=1e-12)
    assert telescope == pytest.approx(a[0](f) - boundary, abs=1e-11)
    assert len(found.terms) == len(shape)
    for got, expected in zip(found.terms, terms):
        assert got == pytest.approx(expected, abs=1e-11)
    total = found.boundary + sum(found.terms) + found.residual
    assert total == pytest.approx(a[0](f), abs=1e-12)
    assert found.residual == pytest.approx(telescope - sum(terms), abs=1e-11)
    assert found.approximation == pytest.approx(found.boundary + sum(found.terms), abs=1e-12)


def test_P1_on_deep_trees_and_trees_with_chains() -> None:
    tree = pa.PartitionTree.from_labels([[0] * 6, [0] * 6, [0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1], [0, 1, 1, 2, 3, 3]])
    trees, f = [caterpillar(25), tree], _f((25, 6))
    _, terms, telescope = slow_paraproduct(f, trees, EXP[:3])
    found = pa.paraproduct(f, trees)
    assert found.first == pytest.approx(terms[0], abs=1e-11)
    assert found.second == pytest.approx(terms[1], abs=1e-11)
    assert found.residual == pytest.approx(telescope - terms[0] - terms[1], abs=1e-11)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_P2_a_linear_function_has_no_residual(shape: tuple[int, ...]) -> None:
    f, trees = _f(shape), _trees(shape)
    found = pa.paraproduct(f, trees, (lambda t: 3 * t - 1, lambda t: np.full_like(t, 3), np.zeros_like, np.zeros_like))
    assert np.abs(found.residual).max() <= 1e-12
    assert not found.second.any()
    assert found.boundary + found.first == pytest.approx(3 * f - 1, abs=1e-12)


def test_P3_the_residual_of_a_square_is_known() -> None:
    f, trees = _f((12, 7)), _trees((12, 7))
    expected = np.zeros(f.shape)
    for i, j in _combinations(trees):
        a = _averages(f, trees, (i, j))
        x, y = _averages(f, trees, (i + 1, j)) - a, _averages(f, trees, (i, j + 1)) - a
        z = _averages(f, trees, (i + 1, j + 1)) - a - x - y
        expected += 2 * (x * z + y * z) + z**2
    found = pa.paraproduct(f, trees, (np.square, lambda t: 2 * t, lambda t: 2 + 0 * t))
    assert found.residual == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("axis", [0, 1])
def test_P4_a_function_of_one_axis_is_its_boundary(axis: int) -> None:
    trees = _trees((12, 7))
    f = np.broadcast_to(np.expand_dims(_f((12, 7)[axis : axis + 1]), 1 - axis), (12, 7))
    found = pa.paraproduct(f, trees)
    assert found.boundary == pytest.approx(np.exp(f), abs=1e-12)
    for rest in (found.first, found.second, found.residual):
        assert np.abs(rest).max() <= 1e-12
    assert found.relative_residual() == 0


def _rough(n: int, order: int, alpha: float, seed: int) -> FloatArray:
    """Gaussian coefficients times ``volume ** (alpha + 1/2)`` on dyadic trees, of standard deviation 0.4."""
    tree = pa.PartitionTree.dyadic(n)
    c = np.random.default_rng(seed).standard_normal((n,) * order)
    for axis in range(order):
        rate = pa.haar_layout(tree).volume ** (alpha + 0.5)
        c = c * rate.reshape([-1 if axis == other else 1 for other in range(order)])
    f = pa.ihaar(c, [tree] * order)
    return 0.4 * f / f.std()


@pytest.mark.parametrize("alpha", [0.45, 0.5, 0.7])
def test_P5_one_axis_doubles_the_exponent(alpha: float) -> None:
    slopes = [pa.paraproduct(_rough(512, 1, alpha, seed)).regularity().slope for seed in range(10)]
    assert np.median([slope["residual"] for slope in slopes]) >= 2 * alpha - 0.15


@pytest.mark.parametrize("alpha", [0.45, 0.5, 0.7])
def test_P5_two_axes_gain_along_the_diagonal_by_second_derivatives(alpha: float) -> None:
    gain, without = [], []
    for seed in range(10):
        f = _rough(512, 2, alpha, seed)
        for into, function in ((gain, "exp"), (without, (np.exp, np.exp))):
            slope = pa.paraproduct(f, None, function).regularity().slope
            into.append(slope["residual"] - slope["argument"])
    assert np.median(gain) >= 0.6 * alpha
    assert np.median(without) <= 0.1


@pytest.mark.parametrize("shape", [(8, 12), (6, 9, 4)], ids=str)
def test_P6_log_softmax_shares_all_coefficients_with_differences_along_keys(shape: tuple[int, ...]) -> None:
    f, trees = 5 * _f(shape), _trees(shape)
    g = pa.paraproduct(f, trees, "softmax").argument
    assert g == pytest.approx(f - logsumexp(f, axis=1, keepdims=True), abs=1e-12)
    ours, theirs = pa.haar(f, trees), pa.haar(g, trees)
    assert np.abs(ours - theirs)[:, 1:].max() <= 1e-12
    assert np.abs(ours - theirs)[:, 0].max() > 0.1


@pytest.mark.parametrize("shape", [(8, 12), (6, 9, 4)], ids=str)
def test_P7_softmax_does_not_see_what_is_added_to_rows(shape: tuple[int, ...]) -> None:
    f, trees = _f(shape), _trees(shape)
    r = 10 * np.random.default_rng(1).standard_normal((shape[0], 1, *shape[2:]))
    one, two = (pa.paraproduct(x, trees, "softmax") for x in (f, f + r))
    assert one.value == pytest.approx(np.exp(f) / np.exp(f).sum(1, keepdims=True), abs=1e-12)
    for name in ("value", "boundary", "first", "second", "residual"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), abs=1e-11)


@pytest.mark.parametrize("shape", [(9,), (12, 7), (5, 6, 7)], ids=str)
def test_P8_permuted_with_its_trees(shape: tuple[int, ...]) -> None:
    f, trees = _f(shape), _trees(shape)
    rng = np.random.default_rng(2)
    orders = [rng.permutation(n) for n in shape]
    moved = [pa.PartitionTree.from_labels(tree.labels[:, p]) for tree, p in zip(trees, orders)]
    at = np.ix_(*orders)
    one, two = pa.paraproduct(f, trees), pa.paraproduct(f[at], moved)
    for name in ("boundary", "first", "second", "residual"):
        assert getattr(two, name) == pytest.approx(getattr(one, name)[at], abs=1e-12)


# -- how it is asked ---------------------------------------------------------------------------------------------------


def test_an_axis_without_a_tree_is_taken_point_by_point() -> None:
    f, trees = _f((12, 7, 3)), _trees((12, 7))
    together = pa.paraproduct(f, [*trees, None])
    for h in range(3):
        alone = pa.paraproduct(f[:, :, h], trees)
        assert together.residual[:, :, h] == pytest.approx(alone.residual, abs=1e-13)
        assert together.relative_residual(axis=2)[h] == pytest.approx(alone.relative_residual(), rel=1e-10)
    assert together.relative_residual(axis=-1) == pytest.approx(together.relative_residual(axis=2))
    softmax = pa.paraproduct(f, [*trees, None], "softmax")
    assert softmax.value.sum(1) == pytest.approx(np.ones((12, 3)), abs=1e-12)


def test_without_trees_the_order_that_came_is_halved() -> None:
    f = _f((8, 6))
    dyadic = [pa.PartitionTree.dyadic(8), pa.PartitionTree.dyadic(6)]
    assert np.array_equal(pa.paraproduct(f).residual, pa.paraproduct(f, dyadic).residual)
    assert pa.paraproduct(f, softmax_axis=0, function="softmax").value.sum(0) == pytest.approx(np.ones(6))
    assert pa.paraproduct([1.0, 2, 3, 4], function="softmax").value.sum() == pytest.approx(1)


def test_fewer_derivatives_leave_more() -> None:
    f, trees = _f((12, 7)), _trees((12, 7))
    full, less = pa.paraproduct(f, trees), pa.paraproduct(f, trees, (np.exp, np.exp))
    assert len(less.terms) == 1
    assert not less.second.any()
    assert less.residual == pytest.approx(full.residual + full.second, abs=1e-12)
    assert "relative residual" in repr(full)


def test_one_cell_and_one_leaf() -> None:
    one = pa.paraproduct([[2.0]])
    assert one.boundary == pytest.approx(np.exp([[2.0]]))
    assert one.relative_residual() == 0
    assert np.isnan(one.regularity().slope["residual"])
    assert len(one.regularity().octave) == 0


def test_regularity_tells_the_levels() -> None:
    f = _rough(64, 2, 0.5, 0)
    found = pa.paraproduct(f).regularity()
    assert found.octave.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.size == pytest.approx(0.5 ** np.arange(6))
    assert found.count.tolist() == [4**o for o in range(6)]
    tree = pa.PartitionTree.dyadic(64)
    c = pa.haar(f, [tree, tree])
    assert found.rms["argument"][2] == pytest.approx(np.sqrt(np.mean(c[4:8, 4:8] ** 2)) / 16, rel=1e-12)
    some = pa.paraproduct(f).regularity(levels=(1, 4))
    assert set(some.slope) == {"argument", "value", "residual"}
    fit = np.polyfit(np.log(some.size[1:5]), np.log(some.rms["argument"][1:5]), 1)[0]
    assert some.slope["argument"] == pytest.approx(fit, rel=1e-10)


def test_refusals() -> None:
    f, trees = _f((4, 5)), _trees((4, 5))
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"trees": trees[0]}, ValueError, r"^trees: got 1, expected one"),
        ({"trees": trees[::-1]}, ValueError, r"^trees: that of axis 0 has 5 leaves, expected 4"),
        ({"trees": [None, None]}, ValueError, r"^trees: got none"),
        ({"function": "tanh"}, ValueError, r"^function: got 'tanh', expected 'exp', 'softmax' or"),
        ({"function": np.exp}, TypeError, r"^function: expected"),
        ({"function": [np.exp]}, ValueError, r"^function: got 1 callable"),
        ({"function": [np.exp, lambda t: t[0]]}, ValueError, r"^function: gave shape"),
        ({"function": [np.log, np.reciprocal]}, ValueError, r"^function: gave NaN or infinity"),
        ({"softmax_axis": 1}, ValueError, r"^softmax_axis: got 1 with another function"),
        ({"softmax_axis": 2, "function": "softmax"}, ValueError, r"^softmax_axis: got 2, f has axes 0 to 1"),
    ]
    for options, error, message in cases:
        with pytest.raises(error, match=message):
            pa.paraproduct(f, **({"trees": trees} | options))
    with pytest.raises(ValueError, match=r"^f: got shape \(0, 5\)"):
        pa.paraproduct(f[:0])
    with pytest.raises(ValueError, match="use 'softmax' rather than 'exp'"):
        pa.paraproduct(1000 * np.ones((2, 2)))
