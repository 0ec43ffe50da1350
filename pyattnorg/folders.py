"""The distinct folders of a partition tree: folders that repeat from level to level, stored once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True)
class Folders:
    """The distinct folders of a tree, breadth-first: by the level at which they split, then by first leaf.

    Every field has one entry a folder. `first_level` and `last_level` are the levels it spans (0 is the root's),
    `size` its number of leaves, `start` the position of its first leaf in the tree's `order` (its leaves are
    `order[start:start + size]`), `parent` the folder above (-1 for the root).
    """

    first_level: IntArray
    last_level: IntArray
    size: IntArray
    start: IntArray
    parent: IntArray

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def children(self) -> tuple[IntArray, IntArray]:
        """Children of all folders, by first leaf: `child[offset[i]:offset[i + 1]]` are those of folder `i`."""
        below = np.flatnonzero(self.parent >= 0)
        child = below[np.lexsort((self.start[below], self.parent[below]))]
        counts = np.bincount(self.parent[below], minlength=len(self))
        return fixed(np.concatenate([[0], np.cumsum(counts)])), fixed(child)


def distinct_folders(levels: IntArray, order: IntArray) -> Folders:
    """Folders of a tree given by its labels, root level first, and the order of its leaves."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    first_level: list[NDArray[Any]] = []
    last_level: list[tuple[NDArray[Any], int]] = []
    size: list[NDArray[Any]] = []
    first: list[NDArray[Any]] = []
    parent: list[NDArray[Any]] = []
    above = np.empty(0, np.int64)  # folder of each label one level up
    count = 0
    for level, labels in enumerate(levels):
        sizes = np.bincount(labels)
        firsts = np.unique(labels, return_index=True)[1]
        here = above[levels[level - 1][firsts]] if level else np.full(1, -1)
        known = np.concatenate(size) if size else np.empty(0, np.int64)
        new = np.full(len(sizes), True) if level == 0 else known[here] != sizes
        ids = np.where(new, count + np.cumsum(new) - 1, here)
        first_level.append(np.full(int(new.sum()), level))
        size.append(sizes[new])
        first.append(firsts[new])
        parent.append(here[new])
        count += int(new.sum())
        last_level.append((ids, level))
        above = ids
    last = np.zeros(count, np.int64)
    for ids, level in last_level:
        last[ids] = level
    first_leaf = np.concatenate(first)
    rank = np.lexsort((first_leaf, last))
    back = np.empty(count, np.int64)
    back[rank] = np.arange(count)
    parents = np.concatenate(parent)[rank]
    return Folders(
        first_level=fixed(np.concatenate(first_level)[rank]),
        last_level=fixed(last[rank]),
        size=fixed(np.concatenate(size)[rank]),
        start=fixed(position[first_leaf[rank]]),
        parent=fixed(np.where(parents >= 0, back[parents], -1)),
    )


def fixed(x: NDArray[Any]) -> IntArray:
    """A read-only int32 copy."""
    out = x.astype(np.int32)
    out.flags.writeable = False
    return out
