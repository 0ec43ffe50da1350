"""Averages of a tensor at every combination of levels of its trees, visited coarse to fine without repeating work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg.spaces import space_for
from pyattnorg.trees import PartitionTree

Values: TypeAlias = Any  # float64: NumPy, or a tensor on a GPU
Corners: TypeAlias = dict[frozenset[int], Values]  # axes that stand one level finer -> averages
Visit: TypeAlias = Callable[[Corners], "list[Values]"]


@dataclass(frozen=True)
class _Levels:
    """Levels of a tree at which the partition changes, as indices into the distinct folders and from level to level."""

    folder: list[NDArray[np.int64]]  # of each folder of a level: its place among the distinct folders
    above: list[NDArray[np.int64]]  # of each folder of a level: the folder one level up that it lies in
    leaves: NDArray[np.int64]  # folder of every leaf at the last level

    def __len__(self) -> int:
        return len(self.folder)


def levels_of(tree: PartitionTree) -> _Levels:
    """The levels of a tree, without those that repeat the partition above."""
    return tree.cached("scale_levels", _levels)


def _levels(tree: PartitionTree) -> _Levels:
    counts = tree.labels.max(1) + 1
    kept = np.flatnonzero(np.append(True, np.diff(counts) > 0))
    folders = tree.folders()
    position = np.argsort(tree.order)
    # A folder is known by where its run of leaves starts and how long it is.
    known = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(folders.start, folders.size))}
    folder, above = [], []
    for at, level in enumerate(kept):
        labels = tree.labels[level]
        first = np.unique(labels, return_index=True)[1]
        size = np.bincount(labels)
        start = np.full(len(size), tree.n_leaves)
        np.minimum.at(start, labels, position)
        folder.append(np.array([known[int(a), int(b)] for a, b in zip(start, size)]))
        above.append(tree.labels[kept[at - 1]][first].astype(np.int64) if at else np.zeros(1, np.int64))
    return _Levels(folder, above, tree.labels[-1].astype(np.int64))


def coarsest(f: Values, trees: Sequence[PartitionTree | None], axes: Sequence[int]) -> Values:
    """`f` averaged over whole axes, of the shape of `f`."""
    out, space = f, space_for(f)
    for axis in axes:
        if trees[axis] is not None:
            out = space.spread(space.mean(out, axis), f.shape)
    return out


def sum_over_scales(f: Values, trees: Sequence[PartitionTree | None], visit: Visit, n_terms: int) -> list[Values]:
    """Sums over all combinations of levels, but the last of every tree, of what `visit` makes of the averages there.

    `visit` gets the averages ``P_(l + 1_T) f`` for every set T of axes with a tree, all by folders of the next levels
    ``l + 1``, and gives `n_terms` arrays of that shape. They are summed level by level and only spread over the leaves
    at the end, so that on trees whose folders halve the cost is that of a few passes over `f`.
    """
    space = space_for(f)
    axes = [axis for axis, tree in enumerate(trees) if tree is not None and len(levels_of(tree)) > 1]
    if len(axes) < sum(tree is not None for tree in trees):  # one leaf: no scales, nothing to sum
        return [space.zeros(f.shape) for _ in range(n_terms)]

    def descend(depth: int, corners: Corners) -> list[Values]:
        if depth == len(axes):
            return visit(corners)
        axis = axes[depth]
        tree = trees[axis]
        assert tree is not None
        levels = levels_of(tree)
        averages = {key: space.averages(value, tree, axis) for key, value in corners.items()}
        total: list[Values] = []
        for fine in range(1, len(levels)):
            above = levels.above[fine]
            here: Corners = {}
            for key, value in averages.items():
                here[key] = space.take(space.take(value, levels.folder[fine - 1], axis), above, axis)
                here[key | {axis}] = space.take(value, levels.folder[fine], axis)
            part = descend(depth + 1, here)
            total = [space.take(a, above, axis) + b for a, b in zip(total, part)] if total else part
        return [space.take(each, levels.leaves, axis) for each in total]

    return descend(0, {frozenset(): f})
