"""Weights of a tree's folders in the tree distance: powers of size and level, from data, or by a function given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array, FloatArray, require_finite, to_numpy
from pyattnorg.checks import whole
from pyattnorg.spaces import taken
from pyattnorg.trees import PartitionTree

FolderWeights: TypeAlias = Literal["powers", "data"] | Callable[[PartitionTree], Any]


def data_weights(x: Array, tree: PartitionTree, axis: int = 0) -> NDArray[np.float64]:
    """Weights of a tree's folders that the data asks for: how much each tells that the folder above it does not.

    ``w(I)`` is the l2 norm, over all other axes, of the mean of `x` over folder I less its mean over the folder above;
    of its mean itself for the root (Mishne, Talmon, Cohen, Coifman and Kluger 2018, Data-driven tree transforms and
    metrics: the norms of the rows of the tree-difference transform). Divided by the largest, so that distances keep
    the unit of the data.

    Parameters
    ----------
    x : array
    tree : PartitionTree
        Of the points of `axis`.
    axis : int

    Returns
    -------
    ndarray, float64, shape (n_folders,)
        In [0, 1], breadth-first as ``tree.folders()``; zeros where `x` is 0. A folder that repeats from level to level
        counts once, as its differences further down are 0.
    """
    if not isinstance(tree, PartitionTree):
        raise TypeError(f"tree: got {type(tree).__name__}, expected a PartitionTree")
    ours = taken(x, "x")
    values, space = ours.values, ours.space
    axis = whole(axis, "axis", at_least=-values.ndim)
    axis = kernels.axis_of(values, axis, tree)
    peak = float(abs(values).max()) if 0 not in values.shape else 0.0
    if peak and not 1e-100 < peak < 1e100:
        values = values / peak  # squares stay in range
    averages = space.averages(values, tree, axis)
    averages = averages.swapaxes(axis, 0).reshape(tree.n_folders, -1)
    above = tree.folders().parent
    norms = np.empty(tree.n_folders)
    wide, step = space.zeros(()), max(1, space.block // max(averages.shape[1], 1))
    for begin in range(0, tree.n_folders, step):
        at = slice(begin, begin + step)
        parents = space.like(space.take(averages, np.maximum(above[at], 0), 0), wide)
        if begin == 0:
            parents[0] = 0  # of the root, which stands first
        norms[at] = np.sqrt(space.squares(averages[at] - parents, (1,)))
    return norms / (norms.max() or 1.0)


def checked_weights(weights: Array, tree: PartitionTree, name: str) -> NDArray[np.float64]:
    """Weights that came from outside: one finite number of at least 0 for every distinct folder."""
    found = to_numpy(weights, name).astype(np.float64)
    if found.shape != (tree.n_folders,):
        raise ValueError(
            f"{name}: got shape {found.shape}, expected ({tree.n_folders},), a weight for each of tree.folders()"
        )
    require_finite(found, name)
    if (found < 0).any():
        raise ValueError(f"{name}: got {found.min()} as the least weight, expected none below 0")
    return found


def weights_of(
    how: FolderWeights, values: FloatArray, tree: PartitionTree, axis: int, alpha: float, beta: float
) -> NDArray[np.float64]:
    """Folder weights of one axis of a tensor, as asked for."""
    if how == "powers":
        return tree.weights(alpha, beta)
    if how == "data":
        return data_weights(values, tree, axis)
    assert callable(how)
    return checked_weights(how(tree), tree, "weights")
