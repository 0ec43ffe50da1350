"""Haar bases of partition trees: bi-Haar for one head, tri-Haar for the whole network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import devices, kernels, on_device
from pyattnorg.arrays import Array
from pyattnorg.checks import one_of
from pyattnorg.haar_layout import haar_layout
from pyattnorg.spaces import space_for, taken
from pyattnorg.trees import PartitionTree

Trees: TypeAlias = "PartitionTree | Sequence[PartitionTree | None]"
Normalization: TypeAlias = Literal["l2", "l1"]


def haar(x: Array, trees: Trees, *, normalization: Normalization = "l2") -> Any:
    """Coefficients of `x` in the tensor product of the trees' Haar bases (method of arXiv 2506.15541).

    Parameters
    ----------
    x : array
    trees : PartitionTree or sequence
        One for each axis; None leaves an axis alone.
    normalization : {"l2", "l1"}
        Of the functions that `x` is multiplied by. ``"l2"``: orthonormal, sums of squares are kept. ``"l1"``: their
        magnitudes sum to 1, so that a coefficient is half a difference of averages, and the first one the average.

    Returns
    -------
    array of the shape, kind and device of `x`
        Along every axis the first coefficient belongs to the constant, the others to the folders that split,
        breadth-first; `pyattnorg.haar_layout` says which is which.
    """
    one_of(normalization, "normalization", ("l2", "l1"))
    found = for_axes(trees)
    if normalization == "l2":
        return _transform(x, found, inverse=False)
    ours = taken(x, "x", min_ndim=0)
    return ours.back(_scaled(_transform(ours.values, found, inverse=False), found, -1.0))


def ihaar(coefficients: Array, trees: Trees, *, normalization: Normalization = "l2") -> Any:
    """The tensor that has these coefficients; undoes `haar`."""
    one_of(normalization, "normalization", ("l2", "l1"))
    found = for_axes(trees)
    if normalization == "l2":
        return _transform(coefficients, found, inverse=True)
    ours = taken(coefficients, "coefficients", min_ndim=0)
    fits = len(found) == ours.values.ndim and all(
        t is None or t.n_leaves == n for t, n in zip(found, ours.values.shape)
    )
    scaled = _scaled(ours.values, found, 1.0) if fits else ours.values  # what does not fit is refused below, in words
    return ours.back(_transform(scaled, found, inverse=True))


def _transform(x: Array, trees: list[PartitionTree | None], *, inverse: bool) -> Any:
    if memory := devices.memory_for(x):
        return on_device.haar(memory, x, trees, inverse)
    return kernels.haar(x, trees, inverse=inverse)


def haar_basis(tree: PartitionTree, *, normalization: Normalization = "l2") -> NDArray[np.float64]:
    """Haar functions of a tree as columns, in the order of coefficients; shape (n, n).

    Orthonormal with ``normalization="l2"``; with ``"l1"`` the magnitudes of each sum to 1.
    """
    if not isinstance(tree, PartitionTree):
        raise TypeError(f"tree: got {type(tree).__name__}, expected a PartitionTree")
    basis: NDArray[np.float64] = haar(np.eye(tree.n_leaves), [None, tree], normalization=normalization)
    return basis


def for_axes(trees: Trees) -> list[PartitionTree | None]:
    """One tree or None for each axis, from what a caller may write; TypeError for anything else."""
    if not isinstance(trees, (PartitionTree, Sequence)):
        raise TypeError(f"trees: got {type(trees).__name__}, expected a PartitionTree or None for each axis")
    found: list[PartitionTree | None] = [trees] if isinstance(trees, PartitionTree) else list(trees)
    for tree in found:
        if tree is not None and not isinstance(tree, PartitionTree):
            raise TypeError(f"trees: got {type(tree).__name__}, expected a PartitionTree or None for each axis")
    return found


def fitting_trees(trees: Trees, shape: Sequence[int]) -> list[PartitionTree | None]:
    """`for_axes`, checked against the shape of a tensor."""
    found = for_axes(trees)
    if len(found) != len(shape):
        raise ValueError(f"trees: got {len(found)}, expected one (or None) for each of {len(shape)} axes")
    for axis, (tree, n) in enumerate(zip(found, shape)):
        if tree is not None and tree.n_leaves != n:
            raise ValueError(f"trees: that of axis {axis} has {tree.n_leaves} leaves, expected {n}")
    return found


def _scaled(c: Any, trees: Sequence[PartitionTree | None], power: float) -> Any:
    """Coefficients times a power of the l1 norms of their functions."""
    out, space = c, space_for(c)
    for axis, tree in enumerate(trees):
        if tree is not None:
            norm = haar_layout(tree).l1_norm ** power
            out = out * space.numbers(norm, c).reshape([-1 if axis == other else 1 for other in range(c.ndim)])
    return out
