"""Martingale differences on trees: how much the average of every folder differs from that of the folder above."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array
from pyattnorg.haar import Trees, fitting_trees, for_axes
from pyattnorg.spaces import Space, taken
from pyattnorg.trees import PartitionTree


def martingale_differences(x: Array, trees: Trees) -> Any:
    """``avg_I(x) - avg_parent(I)(x)`` over the distinct folders of every tree, the root's own average first.

    A redundant frame in place of a basis: one number a folder, whatever the number of its children, so nothing depends
    on the order in which children stand (the lineage of Ankenman 2014 and Mishne et al. 2018 weighs folders by it).

    Parameters
    ----------
    x : array
    trees : PartitionTree or sequence
        One for each axis; None leaves an axis alone.

    Returns
    -------
    array of the kind of `x`
        An axis with a tree has ``tree.n_folders`` entries, breadth-first as in ``tree.folders()``.
    """
    ours = taken(x, "x", min_ndim=0)
    out, space = ours.values, ours.space
    for axis, tree in enumerate(fitting_trees(trees, out.shape)):
        if tree is None:
            continue
        averages = space.averages(out, tree, axis)
        with np.errstate(over="ignore"):  # said in the end
            out = averages - space.take(averages, np.maximum(tree.folders().parent, 0), axis)
        root = (slice(None),) * axis + (0,)
        out[root] = averages[root]
    return ours.back(_in_range(space.contiguous(out), "x", space))


def imartingale_differences(differences: Array, trees: Trees) -> Any:
    """The tensor that has these martingale differences: the sum over the folders around every point, exactly."""
    ours = taken(differences, "differences", min_ndim=0)
    found = for_axes(trees)
    out, space = ours.values, ours.space
    if len(found) != out.ndim:
        raise ValueError(f"trees: got {len(found)}, expected one (or None) for each of {out.ndim} axes")
    for axis, tree in enumerate(found):
        if tree is None:
            continue
        if out.shape[axis] != tree.n_folders:
            raise ValueError(
                f"differences: got {out.shape[axis]} along axis {axis}, not the {tree.n_folders} of its tree's folders"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # said in the end
            out = _summed(out, tree, axis, space)
    return ours.back(_in_range(space.contiguous(out), "differences", space))


def _in_range(out: Any, name: str, space: Space) -> Any:
    if space.finite(out):
        return out
    raise kernels.overflow(out, name)


def _summed(differences: Any, tree: PartitionTree, axis: int, space: Space) -> Any:
    folders = tree.folders()
    total = differences + 0  # memory of its own
    before = (slice(None),) * axis
    for generation in tree.cached("generations", _generations)[1:]:
        above = space.indices(folders.parent[generation])
        total[(*before, space.indices(generation))] += total[(*before, above)]
    leaf_folder = np.empty(tree.n_leaves, np.int64)
    leaves = np.flatnonzero(folders.size == 1)
    leaf_folder[tree.order[folders.start[leaves]]] = leaves
    return space.take(total, leaf_folder, axis)


def _generations(tree: PartitionTree) -> list[NDArray[np.int64]]:
    """Distinct folders by how many lie around them: the root, its children, theirs, ..."""
    folders = tree.folders()
    depth = np.zeros(len(folders), np.int64)
    for i in range(1, len(folders)):  # parents come before their children
        depth[i] = depth[folders.parent[i]] + 1
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1)
