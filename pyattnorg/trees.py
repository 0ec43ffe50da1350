"""Partition trees: nested partitions of one axis, root level first, every leaf at the same depth.

A tree is its labels: `labels[level, leaf]` is the folder of `leaf` at `level`. Folders that repeat from level to
level (chains) are stored once, with the levels they span. Nothing here recurses, so depth is no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array, to_numpy
from pyattnorg.checks import position, whole
from pyattnorg.folders import Folders, IntArray, distinct_folders, fixed

T = TypeVar("T")


class PartitionTree:
    """An immutable hierarchy of nested partitions of ``n_leaves`` points.

    Make one with `from_labels`, `from_linkage`, `dyadic` or a builder such as `pyattnorg.flexible_tree`.

    Attributes
    ----------
    labels : ndarray of int32, shape (n_levels, n_leaves)
        Folder of every leaf at every level, root level first, last level singletons. Folders of a level are
        numbered by their first leaf, so equal trees have equal labels. Read-only.
    order : ndarray of int32, shape (n_leaves,)
        Leaves such that every folder is one contiguous run; children stand by first leaf. Read-only.
    """

    def __init__(self, labels: Array) -> None:
        self._take(_checked_levels(labels))

    def _take(self, labels: IntArray) -> None:
        labels.flags.writeable = False
        self._labels = labels
        self._made: dict[str, Any] = {}

    @classmethod
    def _trusted(cls, labels: IntArray) -> PartitionTree:
        """From labels that are known to be canonical, nested, with root and leaves; the array becomes the tree's."""
        tree = cls.__new__(cls)
        tree._take(labels)
        return tree

    # -- making one ---------------------------------------------------------------------------------------------

    @classmethod
    def from_labels(cls, labels: Array) -> PartitionTree:
        """Tree from one row of folder labels per level, root first.

        Parameters
        ----------
        labels : array of integers, shape (levels, n) or (n,)
            Any integers name the folders; every level must refine the one before it. A root level and a level of
            singletons are added where they are missing, so `from_labels(layer_of_head)` is a tree of layers.

        Raises
        ------
        ValueError
            No leaves, or a level that does not refine the one before it.
        """
        return cls(labels)

    @classmethod
    def from_linkage(cls, linkage: Array) -> PartitionTree:
        """Tree from a SciPy linkage matrix of shape (n - 1, 4): the merges, heights ignored.

        A folder's level is its depth from the root; every leaf is carried down to the deepest level.
        """
        merges = to_numpy(linkage, "linkage")
        if merges.ndim != 2 or merges.shape[0] == 0 or merges.shape[1] not in (2, 3, 4):
            raise ValueError(f"linkage: got shape {merges.shape}, expected (n - 1, 4) as scipy.cluster.hierarchy gives")
        if not np.isfinite(merges[:, :2]).all() or (merges[:, :2] != np.rint(merges[:, :2])).any():
            raise ValueError("linkage: its first two columns name clusters, expected integers")
        pairs = merges[:, :2].astype(np.int64)
        n = len(pairs) + 1
        available = n + np.arange(n - 1)[:, None]
        if (pairs < 0).any() or (pairs >= available).any() or len(np.unique(pairs)) != 2 * (n - 1):
            raise ValueError("linkage: every cluster must be merged once, after it was made")
        return cls.from_merges(pairs)

    @classmethod
    def from_merges(cls, pairs: NDArray[np.int64]) -> PartitionTree:
        """Binary tree from (n - 1, 2) merges; merge ``i`` makes cluster ``n + i``. Not checked: see `from_linkage`."""
        n = len(pairs) + 1
        parent, depth = np.full(2 * n - 1, -1), np.zeros(2 * n - 1, np.int64)
        parent[pairs] = n + np.arange(n - 1)[:, None]
        for node in range(2 * n - 3, -1, -1):
            depth[node] = depth[parent[node]] + 1
        deepest = int(depth.max())
        labels = np.empty((deepest + 1, n), np.int32)
        at = np.arange(n)
        for level in range(deepest, -1, -1):
            at = np.where(depth[at] > level, parent[at], at)
            labels[level] = _canonical(at)
        return cls._trusted(labels)

    @classmethod
    def dyadic(cls, n: int) -> PartitionTree:
        """Halve the given order again and again; an odd folder's first half is the larger one."""
        n = whole(n, "n", at_least=1)
        levels = [np.zeros(n, np.int32)]
        starts = np.array([0])
        while len(starts) < n:
            ends = np.append(starts[1:], n)
            starts = np.unique(np.concatenate([starts, starts + (ends - starts + 1) // 2]))
            starts = starts[starts < n]
            levels.append((np.searchsorted(starts, np.arange(n), side="right") - 1).astype(np.int32))
        return cls._trusted(np.stack(levels))

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def labels(self) -> IntArray:
        return self._labels

    @property
    def n_levels(self) -> int:
        return len(self._labels)

    @property
    def n_leaves(self) -> int:
        return int(self._labels.shape[1])

    @property
    def n_folders(self) -> int:
        """Number of distinct folders, root and leaves included; a chain counts once."""
        return len(self.folders())

    @property
    def order(self) -> IntArray:
        return self._order

    @cached_property
    def _order(self) -> IntArray:
        # Labels are numbered by first leaf, so sorting leaves by their path of labels lists the folders depth-first.
        return fixed(np.lexsort(self._labels[::-1]))

    def folder_sizes(self, level: int) -> IntArray:
        """Sizes of the folders of one level; `level` may be negative, -1 is the level of leaves."""
        level = position(level, "level", self.n_levels, "the tree has levels")
        return np.bincount(self._labels[level]).astype(np.int32)

    def folders(self) -> Folders:
        """The distinct folders, breadth-first."""
        return self._folders

    @cached_property
    def _folders(self) -> Folders:
        return distinct_folders(self._labels, self.order)

    def weights(self, alpha: float = 0.0, beta: float = 1.0) -> NDArray[np.float64]:
        """Weight of every distinct folder in the tree distance, shape (n_folders,).

        ``(|I| / n) ** beta * 2 ** ((1 - level) * alpha)`` with the root at level 1, summed over the levels a folder
        spans (Ankenman 2014; arXiv 2506.15541 uses alpha 0, beta 1).
        """
        folders = self.folders()
        levels = (folders.last_level - folders.first_level + 1).astype(float)
        rate = -alpha * np.log(2.0)
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            geometric = np.expm1(rate * levels) / np.expm1(rate) if rate else levels
            span = np.exp(rate * folders.first_level) * geometric
            weights: NDArray[np.float64] = (folders.size / self.n_leaves) ** beta * span
        if not np.isfinite(weights).all():
            raise ValueError(
                f"alpha, beta: got {alpha!r}, {beta!r}, whose folder weights overflow; use smaller exponents"
            )
        return weights

    def distance_matrix(self) -> NDArray[np.float64]:
        """Size of the smallest common folder over n, 0 on the diagonal: an ultrametric, shape (n, n)."""
        n = self.n_leaves
        gap = self.common_sizes() / n
        out = np.zeros((n, n))
        for i in range(n - 1):
            out[i, i + 1 :] = np.maximum.accumulate(gap[i:])
        out += out.T
        back = np.argsort(self.order)
        return out[np.ix_(back, back)]

    def common_sizes(self) -> IntArray:
        """Leaves of the smallest folder that neighbours in `order` share, (n - 1,).

        What two leaves share is the largest of those between them.
        """
        ordered = self._labels[:, self.order]
        shared = (ordered[:, 1:] == ordered[:, :-1]).sum(0)  # levels
        size_at = np.stack([np.bincount(row)[row] for row in ordered])
        sizes: IntArray = size_at[shared - 1, np.arange(self.n_leaves - 1)].astype(np.int32)
        return sizes

    def parts(self, largest: int) -> IntArray:
        """Folder of every leaf among the coarsest ones that hold no more than `largest` leaves, numbered by first leaf.

        Unlike those of a level, such folders are of comparable size in lopsided trees, too.
        """
        largest = whole(largest, "largest", at_least=1)
        sizes = np.stack([np.bincount(row)[row] for row in self._labels])
        level = np.argmax(sizes <= largest, axis=0)
        return _canonical(level * self.n_leaves + self._labels[level, np.arange(self.n_leaves)])

    def cached(self, name: str, make: Callable[[PartitionTree], T]) -> T:
        """What `make` gives for this tree, made once: a tree never changes."""
        if name not in self._made:
            self._made[name] = make(self)
        found: T = self._made[name]
        return found

    # -- giving it away -----------------------------------------------------------------------------------------

    def to_newick(self, names: Sequence[str] | None = None) -> str:
        """Newick text of the distinct folders; leaves are named by `names` or their index."""
        names = [str(i) for i in range(self.n_leaves)] if names is None else [str(name) for name in names]
        if len(names) != self.n_leaves:
            raise ValueError(f"names: got {len(names)}, the tree has {self.n_leaves} leaves")
        folders = self.folders()
        offset, child = folders.children
        text = ["'" + names[leaf].replace("'", "''") + "'" for leaf in self.order]
        parts: dict[int, str] = {}
        for i in range(len(folders) - 1, -1, -1):
            below = child[offset[i] : offset[i + 1]]
            parts[i] = "(" + ",".join(parts.pop(int(c)) for c in below) + ")" if len(below) else text[folders.start[i]]
        return parts[0] + ";"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary that `from_dict` reads back."""
        return {"kind": "PartitionTree", "labels": self._labels.tolist()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PartitionTree:
        """The tree that `to_dict` wrote."""
        if not isinstance(data, Mapping) or data.get("kind") != "PartitionTree" or "labels" not in data:
            raise ValueError("data: expected a dictionary written by PartitionTree.to_dict")
        return cls.from_labels(np.asarray(data["labels"]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionTree) and np.array_equal(self._labels, other._labels)

    def __hash__(self) -> int:
        return hash((self._labels.shape, self._labels.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionTree, (np.array(self._labels),)

    def __repr__(self) -> str:
        return f"PartitionTree({self.n_leaves} leaves, {self.n_levels} levels, {self.n_folders} folders)"


def _checked_levels(labels: Array) -> IntArray:
    """Canonical labels of a tree, root and leaves included, or an error that says what is wrong with them."""
    given = to_numpy(labels, "labels")
    if given.ndim == 1:
        given = given[None]
    if given.ndim != 2 or given.shape[1] == 0:
        raise ValueError(f"labels: got shape {np.shape(labels)}, expected (levels, n) with n at least 1")
    if given.dtype.kind not in "iu" and not np.array_equal(given, np.rint(given)):
        raise ValueError(f"labels: got dtype {given.dtype} with fractions, expected integers")
    levels = [_canonical(row) for row in given]
    n = given.shape[1]
    if not levels or levels[0].max() > 0:
        levels.insert(0, np.zeros(n, np.int32))
    if levels[-1].max() < n - 1:
        levels.append(np.arange(n, dtype=np.int32))
    for level in range(1, len(levels)):
        _, first = np.unique(levels[level], return_index=True)
        bad = np.flatnonzero(levels[level - 1][first][levels[level]] != levels[level - 1])
        if len(bad):
            raise ValueError(
                f"labels: level {level} does not refine level {level - 1}: leaves {first[levels[level][bad[0]]]} "
                f"and {bad[0]} share a folder there but not above; every folder must lie inside one folder above"
            )
    return np.stack(levels)


def _canonical(row: NDArray[Any]) -> IntArray:
    """Labels renumbered 0, 1, ... by first appearance."""
    _, first, inverse = np.unique(row, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]
