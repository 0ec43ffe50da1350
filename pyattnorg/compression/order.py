"""In which order the Haar functions of an axis are stored, and which function lies above which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyattnorg.haar import haar
from pyattnorg.haar_layout import haar_layout
from pyattnorg.plans import haar_steps
from pyattnorg.trees import PartitionTree

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class AxisOrder:
    """The functions of an axis as they are stored.

    Attributes
    ----------
    functions : int64, shape (n,)
        Coefficients of `pyattnorg.haar` in the order that they are stored in: depth-first, the largest child first, so
        that the functions that see a point are a few contiguous runs, log2(n) + 1 at most. As they are without a tree.
    above : int64, shape (n,)
        Where the function is stored that a function lies within; without a tree the one before. -1 for the first.
    """

    functions: Ints
    above: Ints

    @classmethod
    def of(cls, tree: PartitionTree | None, n: int) -> AxisOrder:
        """The order of an axis of `n` points."""
        if tree is None:
            return cls(np.arange(n), np.arange(n) - 1)
        parent = parents(tree)
        support = haar_layout(tree).support
        children: list[list[int]] = [[] for _ in range(n)]
        for i in np.lexsort((np.arange(n), -support)).tolist():
            if parent[i] >= 0:
                children[parent[i]].append(i)
        functions: list[int] = []
        stack = [0]
        while stack:
            i = stack.pop()
            functions.append(i)
            stack += reversed(children[i])
        found = np.array(functions)
        place = np.empty(n, np.int64)
        place[found] = np.arange(n)
        above = parent[found]
        return cls(found, np.where(above >= 0, place[above], -1))


def parents(tree: PartitionTree) -> Ints:
    """Of every Haar function the one that it lies within, as `pyattnorg.haar` numbers them; -1 for the constant."""
    steps = haar_steps(tree)
    n = tree.n_leaves
    place = np.empty(n, np.int64)
    place[steps.slot] = np.arange(n)
    owner = [0] * n  # function of the last rotation that used a slot, of those above
    out = np.full(n, -1)
    for left, right, _, _ in reversed(steps.steps.tolist()):
        function = int(place[left])
        out[function] = owner[right]
        owner[left] = owner[right] = function
    return out


def functions_at(tree: PartitionTree | None, points: Ints, n: int) -> tuple[Ints, NDArray[np.float64]]:
    """Functions of an axis that do not vanish on some points, and their values there, (points, functions)."""
    unit = np.zeros((len(points), n))
    unit[np.arange(len(points)), points] = 1.0
    values = unit if tree is None else haar(unit, [None, tree])
    needed = np.flatnonzero((values != 0).any(0))
    return needed, values[:, needed]
