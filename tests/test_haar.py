"""Haar transforms on trees. H1 to H10 are invariants of the method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transcription as slow
from inputs import on_every_instruction_set, random_tree
from numpy.typing import NDArray

import pyattnorg as pa

SIZES = [1, 2, 3, 7, 16, 23, 40]
SHAPES = [(9,), (1, 7), (12, 7), (10, 8, 6), (3, 1, 40), (2, 33, 65), (70, 17, 2), (3, 4, 3, 5)]


def _trees(shape: tuple[int, ...], seed: int = 0) -> list[pa.PartitionTree]:
    return [random_tree(n, seed + i) for i, n in enumerate(shape)]


def _labels(trees: list[pa.PartitionTree | None]) -> list[NDArray | None]:
    return [None if tree is None else tree.labels.astype(np.int64) for tree in trees]


def _largest(x: NDArray) -> float:
    return float(np.abs(x).max(initial=0))


# -- bases ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.usefixtures("backend")
def test_H1_basis_is_orthonormal_and_the_transcription(n: int) -> None:
    for seed in range(4):
        tree = random_tree(n, seed)
        basis = pa.haar_basis(tree)
        assert basis.shape == (n, n)
        assert _largest(basis.T @ basis - np.eye(n)) <= 1e-12
        assert _largest(basis - slow.haar_basis(tree.labels.astype(int))) <= 1e-14
        assert _largest(basis[:, 0] - n**-0.5) <= 1e-15


@pytest.mark.parametrize("seed", range(5))
def test_H4_functions_sum_to_zero_live_on_one_folder_and_are_constant_on_its_children(seed: int) -> None:
    tree = random_tree((2, 9, 16, 23, 40)[seed], seed)
    folders = slow.folders(tree.labels.astype(int))
    for psi in pa.haar_basis(tree).T[1:]:
        assert abs(psi.sum()) <= 1e-12
        support = np.abs(psi) > 1e-12
        around = [folder for folder in folders if not (support & ~folder.members).any()]
        folder = min(around, key=lambda folder: folder.members.sum())  # the one that is split
        below = tree.labels[folder.last_level + 1]
        for child in np.unique(below[folder.members]):
            assert np.ptp(psi[below == child]) <= 1e-12
        assert any(np.array_equal(psi > 1e-12, folder.members) for folder in folders)


@pytest.mark.parametrize("seed", range(5))
def test_H6_coefficients_are_differences_of_averages(seed: int) -> None:
    n = (2, 9, 16, 23, 40)[seed]
    tree = random_tree(n, seed)
    f = np.random.default_rng(seed).standard_normal(n)
    c = pa.haar(f, tree)
    assert c[0] == pytest.approx(f.sum() / n**0.5, rel=1e-12)
    for k, psi in enumerate(pa.haar_basis(tree).T[1:], 1):
        plus, minus = psi > 1e-12, psi < -1e-12
        s, m = plus.sum(), minus.sum()
        expected = np.sqrt(s * m / (s + m)) * (f[plus].mean() - f[minus].mean())
        assert c[k] == pytest.approx(expected, rel=1e-12, abs=1e-13)


def test_H5_dyadic_tree_gives_the_classical_basis() -> None:
    classical = [np.ones(16) / 4]
    for width in (16, 8, 4, 2):
        for start in range(0, 16, width):
            psi = np.zeros(16)
            psi[start : start + width] = np.repeat([1, -1], width // 2) / np.sqrt(width)
            classical.append(psi)
    overlap = np.abs(pa.haar_basis(pa.PartitionTree.dyadic(16)).T @ np.stack(classical, 1))
    assert overlap == pytest.approx(np.eye(16), abs=1e-12)  # the same functions in the same order, up to sign


def test_children_stand_by_size_and_ties_last_first() -> None:
    tree = pa.PartitionTree.from_labels([[0] * 5, [0, 1, 1, 2, 3], [0, 1, 2, 3, 4]])
    basis = pa.haar_basis(tree)
    assert basis[:, 1] * np.sqrt(30) == pytest.approx([-2, 3, 3, -2, -2])
    assert basis[:, 2] * np.sqrt(6) == pytest.approx([-1, 0, 0, -1, 2])
    assert basis[:, 3] * np.sqrt(2) == pytest.approx([-1, 0, 0, 1, 0], abs=1e-15)


# -- transforms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("backend")
def test_transform_is_the_transcription(shape: tuple[int, ...]) -> None:
    x, trees = np.random.default_rng(0).standard_normal(shape), _trees(shape)
    c = pa.haar(x, trees)
    assert c.shape == shape
    assert _largest(c - slow.haar(x, _labels(trees))) <= 1e-12


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("backend")
def test_H2_energy_is_kept(shape: tuple[int, ...]) -> None:
    x, trees = np.random.default_rng(0).standard_normal(shape), _trees(shape)
    assert np.linalg.norm(pa.haar(x, trees)) == pytest.approx(np.linalg.norm(x), rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("backend")
def test_H3_comes_back_within_1e12(shape: tuple[int, ...]) -> None:
    x, trees = np.random.default_rng(0).standard_normal(shape), _trees(shape)
    assert _largest(pa.ihaar(pa.haar(x, trees), trees) - x) <= 1e-12
    assert _largest(pa.haar(pa.ihaar(x, trees), trees) - x) <= 1e-12
    dense = x
    for axis, tree in enumerate(trees):
        dense = np.moveaxis(np.tensordot(pa.haar_basis(tree), dense, (0, axis)), 0, axis)
    assert _largest(pa.ihaar(dense, trees) - x) <= 1e-12


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("backend")
def test_H7_linear(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y, trees = rng.standard_normal(shape), rng.standard_normal(shape), _trees(shape)
    assert _largest(pa.haar(2 * x - y, trees) - (2 * pa.haar(x, trees) - pa.haar(y, trees))) <= 1e-12


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_H8_l1_norm_lies_between_the_l2_norm_and_root_n_times_it(shape: tuple[int, ...]) -> None:
    c = pa.haar(np.random.default_rng(0).standard_normal(shape), _trees(shape))
    l1, l2 = np.abs(c).sum(), np.linalg.norm(c)
    assert l2 <= l1 * (1 + 1e-15)
    assert l1 <= np.sqrt(c.size) * l2 * (1 + 1e-15)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.usefixtures("backend")
def test_H3_float32_comes_back_within_1e5(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    trees = _trees(shape)
    c = pa.haar(x, trees)
    assert c.dtype == np.float32
    assert _largest(c - slow.haar(x, _labels(trees))) <= 1e-5 * _largest(c)
    back = pa.ihaar(c, trees)
    assert back.dtype == np.float32
    assert _largest(back - x) <= 1e-5 * _largest(x)


@pytest.mark.parametrize("shape", [(300, 20, 3), (1, 2000, 1), (2, 1, 1500), (5, 9, 1000)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_larger_tensors_on_every_instruction_set(shape: tuple[int, ...], dtype: type) -> None:
    x, trees = np.random.default_rng(2).standard_normal(shape).astype(dtype), _trees(shape)
    exact = slow.haar(x, _labels(trees))
    tolerance = 1e-5 if dtype == np.float32 else 1e-12

    def there_and_back() -> tuple[NDArray, NDArray]:
        c = pa.haar(x, trees)
        return c, pa.ihaar(c, trees)

    for c, back in on_every_instruction_set(there_and_back).values():
        assert _largest(c - exact) <= tolerance * _largest(exact)
        assert _largest(back - x) <= tolerance * _largest(x)


@pytest.mark.usefixtures("backend")
def test_H10_heads_transform_after_the_others_and_axes_without_a_tree_are_left_alone() -> None:
    x, trees = np.random.default_rng(3).standard_normal((9, 8, 7)), _trees((9, 8, 7))
    heads = np.stack([pa.haar(x[:, :, h], trees[:2]) for h in range(7)], axis=2)
    assert _largest(pa.haar(x, [*trees[:2], None]) - heads) <= 1e-13
    assert _largest(pa.haar(heads, [None, None, trees[2]]) - pa.haar(x, trees)) <= 1e-12
    assert np.array_equal(pa.haar(x, [None] * 3), x)
    assert not np.shares_memory(pa.haar(x, [None] * 3), x)


def test_H9_separable_tensor_has_separable_coefficients() -> None:
    rng = np.random.default_rng(4)
    parts, trees = [rng.standard_normal(n) for n in (9, 8, 7)], _trees((9, 8, 7))
    c = pa.haar(np.einsum("i,j,k", *parts), trees)
    one_by_one = [pa.haar(part, tree) for part, tree in zip(parts, trees)]
    assert _largest(c - np.einsum("i,j,k", *one_by_one)) <= 1e-12


def test_constant_tensor_has_one_coefficient() -> None:
    trees = _trees((9, 8, 7))
    c = pa.haar(np.full((9, 8, 7), 3.0), trees)
    assert c[0, 0, 0] == pytest.approx(3 * np.sqrt(9 * 8 * 7))
    c[0, 0, 0] = 0
    assert _largest(c) <= 1e-12


def test_permuted_leaves_of_a_binary_tree_permute_nothing_but_signs_and_order() -> None:
    rng = np.random.default_rng(5)
    tree, p, x = pa.PartitionTree.dyadic(16), rng.permutation(16), rng.standard_normal((16, 3))
    moved = pa.PartitionTree.from_labels(tree.labels[:, p])
    c, d = pa.haar(x, [tree, None]), pa.haar(x[p], [moved, None])
    assert np.sort(np.abs(d), axis=0) == pytest.approx(np.sort(np.abs(c), axis=0), abs=1e-13)


@pytest.mark.usefixtures("backend")
def test_empty_and_single() -> None:
    one, tree = pa.PartitionTree.dyadic(1), random_tree(5, 0)
    assert pa.haar(np.zeros((0, 5)), [None, tree]).shape == (0, 5)
    assert pa.haar(np.full((1, 1), 4.0), [one, one]).tolist() == [[4.0]]
    assert pa.haar_basis(one).tolist() == [[1.0]]
    assert pa.haar(np.float32(2), []) == 2
    assert np.abs(pa.haar([1.0, 3.0], pa.PartitionTree.dyadic(2))) == pytest.approx([8**0.5, 2**0.5])


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_tiny_and_huge_values(scale: float) -> None:
    x = np.random.default_rng(6).standard_normal((20, 9))
    trees = _trees((20, 9))
    expected = pa.haar(x, trees) * scale
    assert _largest(pa.haar((scale * x).astype(np.float32), trees) - expected) <= 1e-5 * _largest(expected)


@pytest.mark.usefixtures("backend")
def test_overflow_is_an_error_and_not_an_infinity() -> None:
    for dtype in (np.float32, np.float64):
        x = np.full(64, np.finfo(dtype).max, dtype)  # the mean is 8 times as large, and one leaf adds up 2.2 times
        for transform in (pa.haar, pa.ihaar):
            with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match="overflow"):
                transform(x, pa.PartitionTree.dyadic(64))


def test_refusals() -> None:
    x, tree = np.zeros((4, 4)), random_tree(4, 0)
    cases: list[tuple[Any, type[Exception], str]] = [
        (tree, ValueError, r"^trees: got 1, x has 2 axes"),
        ([tree] * 3, ValueError, r"^trees: got 3, x has 2 axes"),
        ([tree, random_tree(5, 0)], ValueError, r"^tree: got one of 5 leaves for axis 1 of x, which has 4 points"),
        ([tree, tree.labels], TypeError, r"^trees: got ndarray"),
    ]
    for trees, error, message in cases:
        for transform in (pa.haar, pa.ihaar):
            with pytest.raises(error, match=message):
                transform(x, trees)
    x[1, 3] = np.nan
    with pytest.raises(ValueError, match=r"at index \(1, 3\)"):
        pa.haar(x, [tree, tree])
