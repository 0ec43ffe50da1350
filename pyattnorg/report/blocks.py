"""Showing less than there is: points of an axis drawn together, so that a page stays within its budget of bytes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.trees import PartitionTree

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """Runs of points that are drawn as one.

    Attributes
    ----------
    order : (n,)
        The points in the order shown.
    starts : (m,)
        Position in `order` where each block begins.
    """

    order: IntArray
    starts: IntArray

    @property
    def sizes(self) -> IntArray:
        return np.diff(np.append(self.starts, len(self.order)))

    @property
    def first(self) -> IntArray:
        """The first point of each block."""
        return self.order[self.starts]

    @property
    def collapsed(self) -> bool:
        return len(self.starts) < len(self.order)

    def __len__(self) -> int:
        return len(self.starts)

    def members(self, block: int) -> IntArray:
        """Points of one block."""
        return self.order[self.starts[block] : self.starts[block] + self.sizes[block]]

    def mean(self, values: NDArray[Any], axis: int = 0) -> NDArray[np.float64]:
        """Averages of `values` over each block, along one axis."""
        ordered = np.take(values, self.order, axis).astype(np.float64, copy=False)
        if not self.collapsed:
            return ordered
        known = ~np.isnan(ordered)  # cells that the model cannot see do not count
        sums: NDArray[np.float64] = np.add.reduceat(np.where(known, ordered, 0.0), self.starts, axis)
        counts = np.add.reduceat(known, self.starts, axis, dtype=np.int64)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def names(self, names: tuple[str, ...] | list[str]) -> list[str]:
        """Name of each block: that of its first point, and how many more it holds."""
        return [
            names[point] + (f" +{size - 1}" if size > 1 else "") for point, size in zip(self.first, self.sizes.tolist())
        ]


def by_tree(tree: PartitionTree, most: int) -> Blocks:
    """At most `most` folders of a tree that cover every leaf, in tree order.

    The largest folder is opened again and again, while its children still fit. The last one that does not fit is cut
    into runs of neighbouring children.
    """
    folders = tree.folders()
    offset, child = folders.children
    heap = [(-int(folders.size[0]), 0, 0)]
    starts: list[int] = []
    while heap:
        _, start, folder = heapq.heappop(heap)
        below = child[offset[folder] : offset[folder + 1]]
        room = most - len(starts) - len(heap)
        if len(below) == 0 or room < 2:
            starts.append(start)
        elif len(below) <= room:
            for c in below:
                heapq.heappush(heap, (-int(folders.size[c]), int(folders.start[c]), int(c)))
        else:
            starts.extend(int(folders.start[part[0]]) for part in np.array_split(below, room))
    return Blocks(np.asarray(tree.order, np.int64), np.sort(np.asarray(starts, np.int64)))


def by_runs(n: int, most: int) -> Blocks:
    """At most `most` runs of equal length (give or take one) in the order that came."""
    m = min(n, most)
    return Blocks(np.arange(n), np.arange(m) * n // m)


def cut(tree: PartitionTree, blocks: Blocks) -> PartitionTree:
    """The tree whose leaves are blocks that `by_tree` gave, in their order."""
    return PartitionTree.from_labels(tree.labels[:, blocks.first])


__all__ = ["Blocks", "by_runs", "by_tree", "cut"]
