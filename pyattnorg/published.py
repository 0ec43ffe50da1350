"""The two entropies of arXiv 2506.15541 exactly as its public code computes them, and the one that its text describes.

They are kept for comparison with the published figures. They follow the units of the data and the shape of the tensor;
`pyattnorg.l1_entropy` and `pyattnorg.effective_number` do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array, FloatArray, given
from pyattnorg.checks import whole
from pyattnorg.haar import fitting_trees, haar
from pyattnorg.haar_layout import HaarLayout, haar_layout, volumes
from pyattnorg.sparsity import COARSEST
from pyattnorg.trees import PartitionTree

SEEN = 1e-4  # above it the published code counts an entry of a function as part of its support


def published_head_entropy(
    x: Array, trees: Sequence[PartitionTree | None], *, count: int = COARSEST
) -> NDArray[np.float64]:
    """Entropy of every head as published: ``sum |<X_h, psi_a psi_b>|`` over the `count` coarsest functions a side.

    The mean is among them, and the published curves are divided by their maximum (arXiv 2506.15541).

    Parameters
    ----------
    x : array, shape (queries, keys, heads)
    trees : sequence of PartitionTree
        Those of queries and keys; a third one is not used.
    count : int
        Functions a side, in breadth-first order; all of them where an axis has fewer.

    Returns
    -------
    ndarray, shape (heads,)
        In the units of `x`.
    """
    values, queries, keys, _ = _network(x, trees)
    count = whole(count, "count", at_least=1)
    out: NDArray[np.float64] = np.abs(haar(values, [queries, keys, None])[:count, :count]).sum((0, 1), dtype=np.float64)
    return out


def published_network_entropy(x: Array, trees: Sequence[PartitionTree | None], *, count: int = 100) -> float:
    """Entropy of a network as published, slips of the code included.

    The paper describes the sum of magnitudes of the `count` tri-Haar coefficients of largest support
    (`pyattnorg.coarsest_entropy`). Its code sums others: supports count entries above 1e-4 only, hence no negative
    ones; an index array is flipped along both of its axes, which swaps query and key functions; and supports of the
    last stage come from an array that no longer holds them, so that all tie. What is left are the first `count` head
    functions against one and the same query-key function, number ``heads - 1`` modulo `count` of the swapped order.
    Where supports tie, functions that come later stand first here; the published code leaves that order to its sort.

    Parameters
    ----------
    x : array, shape (n, n, heads)
        As many queries as keys: the swapped function would not exist otherwise.
    trees : sequence of PartitionTree
        Those of queries, keys and heads.
    count : int
        Number of coefficients, 100 in the paper; all heads where there are fewer.

    Returns
    -------
    float
        In the units of `x`.
    """
    values, queries, keys, heads = _network(x, trees)
    count = min(whole(count, "count", at_least=1), values.shape[2])
    if values.shape[0] != values.shape[1]:
        raise ValueError(f"x: got shape {values.shape}, expected as many queries as keys; use coarsest_entropy")
    if queries is None or keys is None or heads is None:
        raise ValueError("trees: got None, expected the trees of queries, keys and heads")
    order = np.argsort(_seen(queries, keys), axis=None, kind="stable")[::-1]
    key, query = divmod(int(order[(values.shape[2] - 1) % count]), values.shape[1])  # swapped, as published
    c = haar(values.astype(np.float64, copy=False), [queries, keys, heads])
    return float(np.abs(c[query, key, :count]).sum())


def coarsest_entropy(x: Array, trees: Sequence[PartitionTree | None], *, count: int = 100) -> float:
    """Sum of magnitudes of the `count` tri-Haar coefficients of largest support, which arXiv 2506.15541 describes.

    Ties go to the first coefficient. In the units of `x`, and for tensors of any number of axes.
    """
    values = given(x, "x", min_ndim=0).values
    found = fitting_trees(trees, values.shape)
    count = whole(count, "count", at_least=1)
    first = np.argsort(-volumes(found, values.shape), axis=None, kind="stable")[:count]
    return float(np.abs(haar(values, found)).ravel()[first].sum(dtype=np.float64))


def _network(
    x: Array, trees: Sequence[PartitionTree | None]
) -> tuple[FloatArray, PartitionTree | None, PartitionTree | None, PartitionTree | None]:
    values = given(x, "x", min_ndim=0).values
    if values.ndim != 3 or 0 in values.shape:
        raise ValueError(f"x: got shape {values.shape}, expected (queries, keys, heads) with no empty axis")
    found = fitting_trees([*trees, None] if len(trees) == 2 else trees, values.shape)
    return values, found[0], found[1], found[2]


def _seen(queries: PartitionTree, keys: PartitionTree) -> NDArray[np.int64]:
    """Entries above 1e-4 of every product of a query and a key function; shape (n, n)."""
    a, b = haar_layout(queries), haar_layout(keys)
    out = np.zeros((len(a), len(b)), np.int64)
    for (points_a, height_a), (points_b, height_b) in zip(zip(*_signs(a)), zip(*_signs(b))):
        out += np.multiply.outer(points_a, points_b) * (np.multiply.outer(height_a, height_b) > SEEN)
    return out


def _signs(
    layout: HaarLayout,
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Points where each function is positive and where it is negative, and its magnitude there."""
    s, m = layout.left.astype(np.int64), layout.right.astype(np.int64)
    scale = np.sqrt(np.maximum(s * m * (s + m), 1))
    up, down = m / scale, s / scale
    up[0], down[0] = len(layout) ** -0.5, 0.0
    return (s, m), (up, down)
