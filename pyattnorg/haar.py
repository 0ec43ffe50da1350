"""Haar bases of partition trees: bi-Haar for one head, tri-Haar for the whole network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array
from pyattnorg.trees import PartitionTree

Trees: TypeAlias = "PartitionTree | Sequence[PartitionTree | None]"


def haar(x: Array, trees: Trees) -> Any:
    """Coefficients of `x` in the tensor product of the trees' Haar bases (method of arXiv 2506.15541).

    Parameters
    ----------
    x : array
    trees : PartitionTree or sequence
        One for each axis; None leaves an axis alone.

    Returns
    -------
    array of the shape, kind and device of `x`
        Along every axis the first coefficient belongs to the constant, the others to the folders that split,
        breadth-first. The transform is orthonormal: sums of squares are kept.
    """
    return kernels.haar(x, _for_axes(trees), inverse=False)


def ihaar(coefficients: Array, trees: Trees) -> Any:
    """The tensor that has these coefficients; undoes `haar`."""
    return kernels.haar(coefficients, _for_axes(trees), inverse=True)


def haar_basis(tree: PartitionTree) -> NDArray[np.float64]:
    """Orthonormal Haar functions of a tree as columns, in the order of coefficients; shape (n, n)."""
    if not isinstance(tree, PartitionTree):
        raise TypeError(f"tree: got {type(tree).__name__}, expected a PartitionTree")
    basis: NDArray[np.float64] = kernels.haar(np.eye(tree.n_leaves), [None, tree], inverse=False)
    return basis


def _for_axes(trees: Trees) -> list[PartitionTree | None]:
    if not isinstance(trees, (PartitionTree, Sequence)):
        raise TypeError(f"trees: got {type(trees).__name__}, expected a PartitionTree or None for each axis")
    found: list[PartitionTree | None] = [trees] if isinstance(trees, PartitionTree) else list(trees)
    for tree in found:
        if tree is not None and not isinstance(tree, PartitionTree):
            raise TypeError(f"trees: got {type(tree).__name__}, expected a PartitionTree or None for each axis")
    return found
