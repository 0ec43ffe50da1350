"""Which coefficient is which: the folder that a Haar function splits, its level, and how many points it sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyattnorg.folders import IntArray, fixed
from pyattnorg.plans import HaarSteps, haar_steps
from pyattnorg.trees import PartitionTree


@dataclass(frozen=True)
class HaarLayout:
    """What every Haar coefficient of a tree belongs to; all arrays have shape (n,), are read-only and start with the
    constant.

    Attributes
    ----------
    folder : int32
        Index into ``tree.folders()`` of the folder that the function splits; the root (0) for the constant.
    level : int32
        The level at which that folder splits (0 is the root's); -1 for the constant.
    support : int32
        Points where the function is not 0. The first function of a folder sees all of it, the next one all but its
        largest child, and so on.
    left, right : int32
        Points where it is positive and where it is negative; ``right`` is 0 for the constant.
    l1_norm : float64
        Sum of magnitudes of the orthonormal function: ``2 sqrt(s M / (s + M))``, ``sqrt(n)`` for the constant.
    """

    folder: IntArray
    level: IntArray
    support: IntArray
    left: IntArray
    right: IntArray
    l1_norm: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.folder)

    @property
    def volume(self) -> NDArray[np.float64]:
        """Support as a share of all points, ``|I| / n``."""
        return self.support / len(self)


def haar_layout(tree: PartitionTree) -> HaarLayout:
    """Folder, level and support of every coefficient that `pyattnorg.haar` gives along an axis with this tree.

    The functions of a folder with children ``C_1 ... C_m``, largest first, are ``(M on C_i, -s on C_j, j > i) /
    sqrt(s M (s + M))`` with ``s = |C_i|`` and ``M`` the points of the later ones (Gavish, Nadler and Coifman 2010;
    arXiv 2506.15541).
    """
    if not isinstance(tree, PartitionTree):
        raise TypeError(f"tree: got {type(tree).__name__}, expected a PartitionTree")
    return tree.cached("haar_layout", _layout)


def volumes(trees: Sequence[PartitionTree | None], shape: Sequence[int]) -> NDArray[np.float64]:
    """Share of all cells that the function of every coefficient sees, ``|I| |J| ... / N``; an array of that shape.

    An axis without a tree is left alone: each of its functions sees one point.
    """
    out = np.ones(())
    for tree, n in zip(trees, shape):
        out = np.multiply.outer(out, np.full(n, 1 / n) if tree is None else haar_layout(tree).volume)
    return np.asarray(out)


def _layout(tree: PartitionTree) -> HaarLayout:
    steps: HaarSteps = tree.cached("haar_steps", haar_steps)
    n = tree.n_leaves
    left, right = np.zeros(n, np.int64), np.zeros(n, np.int64)
    place = np.empty(n, np.int64)
    place[steps.slot] = np.arange(n)  # every slot but the constant's is the left one of exactly one rotation
    at = place[steps.steps[:, 0]]
    left[at], right[at] = steps.steps[:, 2], steps.steps[:, 3]
    left[0] = n
    level = tree.folders().last_level[steps.folder].astype(np.int64)
    level[0] = -1
    norm = 2 * np.sqrt(left * right / (left + right))
    norm[0] = n**0.5
    norm.flags.writeable = False
    return HaarLayout(fixed(steps.folder), fixed(level), fixed(left + right), fixed(left), fixed(right), norm)
