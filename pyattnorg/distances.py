"""Distances between the points of an axis: l1, and the earth mover's distance that trees on the other axes give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import devices, kernels, on_device
from pyattnorg.arrays import Array, FloatArray, given, require_finite
from pyattnorg.checks import number
from pyattnorg.folder_weights import checked_weights
from pyattnorg.trees import PartitionTree

PerAxis: TypeAlias = "float | Sequence[float]"


def pairwise_l1(x: Array, y: Array | None = None, *, weights: Array | None = None) -> Any:
    """l1 distances between points.

    Parameters
    ----------
    x : array, shape (n, ...)
        One point a row; further axes are flattened.
    y : array, shape (m, ...), optional
        Other points; without them all pairs of `x`.
    weights : array of the shape of one point, optional
        ``sum w |x - y|`` instead; not negative.

    Returns
    -------
    array, shape (n, n) or (n, m)
        Of the kind and device of `x`; for `x` alone symmetric with an exact zero diagonal. float32 results are within
        1e-5 of the exact ones, points that lie close to each other included.
    """
    if memory := devices.memory_for(x):
        return on_device.pairwise_l1(memory, x, y, weights)
    ours = given(x, "x", finite=False)
    rows = _rows(ours.values)
    others = None if y is None else _rows(given(y, "y", finite=False).values)
    w = None
    if weights is not None:
        w = given(weights, "weights", min_ndim=0).values
        if w.shape not in (ours.values.shape[1:], rows.shape[1:]):
            raise ValueError(f"weights: got shape {w.shape}, expected that of one point, {ours.values.shape[1:]}")
        w = w.reshape(-1)
    try:
        return ours.back(kernels.pairwise(rows, others, weights=w))
    except ValueError:
        require_finite(ours.values, "x")  # says where, in the axes that came
        raise


def _rows(x: FloatArray) -> FloatArray:
    return x if x.ndim == 2 else x.reshape(len(x), int(np.prod(x.shape[1:], dtype=np.int64)))


def tree_emd(
    x: Array,
    trees: PartitionTree | Sequence[PartitionTree],
    *,
    alpha: PerAxis = 0.0,
    beta: PerAxis = 1.0,
    weights: Sequence[Array | None] | None = None,
) -> Any:
    """Earth mover's distance between points, by trees on their axes.

    ``E(p, p') = sum over folders I, J, ... of w(I) w(J) ... |average of x_p - x_p' over I x J x ...|`` with folder
    weights ``(|I| / n) ** beta * 2 ** ((1 - level) * alpha)`` (arXiv 2506.15541; Coifman and Leeb 2013).

    With one tree, ``beta=1`` and points of equal total mass this is the Wasserstein distance of the tree metric;
    where masses differ it is the same sum, with no condition on them.

    Parameters
    ----------
    x : array, shape (n, a[, b, ...])
    trees : PartitionTree or sequence of them
        One for each axis after the first.
    alpha, beta : float or one a tree
        Exponents of level and size.
    weights : sequence of arrays or None, optional
        Weights of the distinct folders of every tree, of shape (n_folders,) in the order of ``tree.folders()`` and not
        negative, instead of those by `alpha` and `beta`; such as `pyattnorg.data_weights` gives. Where leaves weigh
        nothing, points that differ within the smallest folders only are at 0.

    Returns
    -------
    array, shape (n, n)
        Symmetric, zero diagonal, of the kind and device of `x`.
    """
    memory = devices.memory_for(x)
    ours = None if memory else given(x, "x", min_ndim=2, finite=False)
    values = on_device.tensor(memory, x, "x", 2) if memory else ours.values if ours else None
    trees = (trees,) if isinstance(trees, PartitionTree) else tuple(trees)
    sizes = tuple(getattr(values, "shape", ())[1:])
    for tree in trees:
        if not isinstance(tree, PartitionTree):
            raise TypeError(f"trees: got {type(tree).__name__}, expected a PartitionTree for each axis after the first")
    if tuple(tree.n_leaves for tree in trees) != sizes:
        raise ValueError(
            f"trees: got {[tree.n_leaves for tree in trees]} leaves, x has axes of {list(sizes)} points after the first"
        )
    told = [None] * len(trees) if weights is None else list(weights)
    if len(told) != len(trees):
        raise ValueError(
            f"weights: got {len(told)} of them, expected an array or None for each of {len(trees)} tree(s)"
        )
    used = [
        tree.weights(a, b) if w is None else checked_weights(w, tree, f"weights[{i}]")
        for i, (tree, w, a, b) in enumerate(
            zip(trees, told, per_axis(alpha, len(trees), "alpha"), per_axis(beta, len(trees), "beta"))
        )
    ]
    if ours is None:
        return tree_distances(values, list(trees), used)
    try:
        return ours.back(tree_distances(ours.values, list(trees), used))
    except ValueError:
        require_finite(ours.values, "x")
        raise


def tree_distances(x: Array, trees: list[PartitionTree], weights: list[NDArray[np.float64]]) -> Any:
    """`tree_emd` of values that are known to be finite, NumPy's or on a GPU, by trees and weights that fit."""
    if memory := devices.memory_for(x):
        return on_device.tree_distances(memory, x, trees, weights)
    if len(trees) == 1:
        root = PartitionTree.dyadic(1)
        return kernels.tree_emd(x[:, :, None], trees[0], root, weights[0], np.ones(1))
    if len(trees) == 2:
        return kernels.tree_emd(x, trees[0], trees[1], weights[0], weights[1])
    # One more axis: the distance is a sum over its folders, of the distances between averages over each of them.
    averages = kernels.folder_averages(x, trees[0], 1)
    out = np.zeros((len(x), len(x)), x.dtype)
    for i, w in enumerate(weights[0]):
        if w:
            out += np.asarray(w, x.dtype) * tree_distances(averages[:, i], trees[1:], weights[1:])
    return out


def per_axis(value: PerAxis, n: int, name: str) -> tuple[float, ...]:
    """One number for every axis, from one for all or one each."""
    if isinstance(value, (list, tuple, np.ndarray)):
        if len(value) != n:
            raise ValueError(f"{name}: got {len(value)} numbers, expected one, or one for each of {n} axes")
        return tuple(number(v, name) for v in value)
    return (number(value, name),) * n
