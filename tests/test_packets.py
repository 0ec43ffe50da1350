"""Best bases of Haar-Walsh packets: against every basis of a small library, orthonormal, never worse than Haar."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import pyattnorg as pa

Tensor = NDArray[np.float64]


def tree_of(n: int, seed: int = 0) -> pa.PartitionTree:
    return pa.entropy_tree(np.random.default_rng(seed).standard_normal((n, 5)), noise=0.0)


def packets(tree: pa.PartitionTree) -> tuple[dict[int, tuple[int, int]], list[dict[int, Tensor]]]:
    """Children of all nodes, and functions of all their packets by tag; from the definition, for binary trees."""
    n = tree.n_leaves
    folders = tree.folders()
    nodes: list[dict[int, Tensor]] = [{} for _ in range(len(folders))]
    children: dict[int, tuple[int, int]] = {}
    for i in range(len(folders) - 1, -1, -1):
        below = np.flatnonzero(folders.parent == i)
        below = below[below != i]
        if not len(below):
            nodes[i] = {0: np.eye(n)[tree.order[folders.start[i]]]}
            continue
        a, b = (int(k) for k in below)
        children[i] = a, b
        s, m = folders.size[a], folders.size[b]
        for tag in nodes[a].keys() | nodes[b].keys():
            if tag not in nodes[a] or tag not in nodes[b]:
                nodes[i][2 * tag] = nodes[a][tag] if tag in nodes[a] else nodes[b][tag]
            else:
                p, q = nodes[a][tag], nodes[b][tag]
                u, v = ((s / (s + m)) ** 0.5, (m / (s + m)) ** 0.5) if tag == 0 else (0.5**0.5, 0.5**0.5)
                nodes[i][2 * tag], nodes[i][2 * tag + 1] = u * p + v * q, v * p - u * q
    return children, nodes


def least_cost(tree: pa.PartitionTree, rows: Tensor) -> float:
    """Of all bases: blocks of tags cut by frequency or by folder, down to single packets; no memory, no shortcuts."""
    children, nodes = packets(tree)

    def best(v: int, tags: range) -> float:
        inside = [tag for tag in nodes[v] if tag in tags]
        if len(inside) < 2:
            return sum(float(np.abs(nodes[v][tag] @ rows).sum()) for tag in inside)
        middle = (tags.start + tags.stop) // 2
        cut = best(v, range(tags.start, middle)) + best(v, range(middle, tags.stop))
        below = range(tags.start // 2, tags.stop // 2)
        return min(cut, sum(best(c, below) for c in children[v]))

    return best(0, range(1 << tree.n_leaves))


@pytest.mark.parametrize("seed", range(8))
def test_no_basis_of_the_library_is_cheaper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, rows = tree_of(9, seed), rng.standard_normal((9, 3)) ** 3
    basis = pa.best_basis(rows, [tree, None])
    found = np.abs(pa.packet_transform(rows, basis)).sum()
    assert found == pytest.approx(least_cost(tree, rows), rel=1e-12)


def test_single_points_haar_and_walsh_functions_are_all_in_the_library() -> None:
    tree = pa.PartitionTree.dyadic(8)
    walsh = np.array([(-1.0) ** bin(5 & i).count("1") for i in range(8)])
    for function in (np.eye(8)[3], np.repeat([1.0, -1.0, 0.0], [2, 2, 4]), walsh):
        (basis,) = pa.best_basis(function, tree)
        c = np.abs(pa.packet_transform(function, [basis]))
        assert c.max() == pytest.approx(np.linalg.norm(function))
        assert (c > 1e-12).sum() == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bases_are_orthonormal_and_never_worse_than_haar(dtype: type) -> None:
    rng = np.random.default_rng(1)
    x: NDArray[Any] = (rng.standard_normal((20, 13, 7)) ** 3).astype(dtype)
    trees = [tree_of(20), pa.PartitionTree.from_labels(np.array([[0] * 13, [0] * 4 + [1] * 5 + [2] * 4])), tree_of(7)]
    bases = pa.best_basis(x, trees, rounds=2)
    one = pa.packet_transform(x, pa.best_basis(x, trees))
    c = pa.packet_transform(x, bases)
    assert c.dtype == dtype
    assert c.shape == x.shape
    assert pa.l1_entropy(c) <= pa.l1_entropy(one) + 1e-6 <= pa.l1_entropy(pa.haar(x, trees)) + 2e-6
    np.testing.assert_allclose(pa.inverse_packet_transform(c, bases), x, atol=1e-5 if dtype == np.float32 else 1e-12)
    for basis in bases:
        assert basis is not None
        np.testing.assert_allclose(basis.matrix().T @ basis.matrix(), np.eye(basis.n_points), atol=1e-12)
    expected = np.einsum("abc,ai,bj,ck->ijk", x, *(basis.matrix() for basis in bases if basis is not None))
    np.testing.assert_allclose(c, expected, atol=1e-4 if dtype == np.float32 else 1e-12)


def test_any_array_will_do() -> None:
    x = np.random.default_rng(2).standard_normal((10, 6))
    trees = [tree_of(10), tree_of(6)]
    bases = pa.best_basis(x, trees)
    expected = pa.packet_transform(x, bases)
    strided = np.zeros((20, 12))[::2, ::-2]
    strided[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    for other in (strided, frozen, torch.tensor(x)):
        again = pa.packet_transform(other, pa.best_basis(other, trees))
        assert isinstance(again, type(other))
        np.testing.assert_array_equal(np.asarray(again), expected)
    one: Any = pa.PartitionTree.dyadic(1)
    np.testing.assert_array_equal(pa.packet_transform([[2.0]], pa.best_basis([[2.0]], [one, one])), [[2.0]])
    empty = np.zeros((10, 0))
    assert pa.packet_transform(empty, pa.best_basis(empty, [trees[0], None])).shape == (10, 0)


def test_what_does_not_fit_is_refused_in_words() -> None:
    x = np.ones((10, 6))
    bases = pa.best_basis(x, [tree_of(10), None])
    with pytest.raises(ValueError, match="rounds"):
        pa.best_basis(x, [tree_of(10), None], rounds=0)
    with pytest.raises(ValueError, match="axis 0 has 9 leaves"):
        pa.best_basis(x, [tree_of(9), None])
    with pytest.raises(ValueError, match="axis 0 has 10 points, expected 6"):
        pa.packet_transform(x.T, bases)
    with pytest.raises(ValueError, match=r"one \(or None\) for each of 2 axes"):
        pa.inverse_packet_transform(x, bases[:1])
    with pytest.raises(TypeError, match=r"expected what pyattnorg\.best_basis gives"):
        pa.packet_transform(x, [tree_of(10), None])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"finite|NaN"):
        pa.best_basis(np.full((10, 6), np.nan), [tree_of(10), None])
