"""Builders of partition trees from an affinity."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array, FloatArray, given
from pyattnorg.checks import number, one_of, whole
from pyattnorg.diffusion import check_affinity, leading_vectors, tree_coordinates
from pyattnorg.trees import PartitionTree

Cut: TypeAlias = Literal["median", "zero", "random"]


def flexible_tree(affinity: Array, *, constant: float = 1.0) -> PartitionTree:
    """Tree built from the leaves up by diffusion distances at doubling times (Ankenman 2014; arXiv 2506.15541).

    At every level the nearest folders are joined first, and a group of s folders takes another only if that is nearer
    than ``median distance / constant * 2 ** (1 - s)``. Ties go to the lowest index.

    Parameters
    ----------
    affinity : array, shape (n, n)
        Symmetric, not negative.
    constant : float
        Positive; larger ones make taller trees of smaller folders.
    """
    constant = number(constant, "constant", above=0)
    rate, phi = tree_coordinates(given(affinity, "affinity", min_ndim=2).values)
    return PartitionTree.from_labels(kernels.flexible_tree(phi, rate, constant))


def binary_tree(
    affinity: Array, *, balance: float = 1.0, cut: Cut = "median", seed: int | None = None
) -> PartitionTree:
    """Tree built from the root down: every folder is cut in two along its own leading diffusion coordinate.

    Parameters
    ----------
    affinity : array, shape (n, n)
        Symmetric, not negative.
    balance : float
        At least 1, for ``cut="random"``: a folder of n is cut at a rank drawn from ``[n / (1 + b), n b / (1 + b)]``.
    cut : {"median", "zero", "random"}
        At rank n // 2, where the coordinate changes sign, or at a random rank.
    seed : int, optional
        For ``cut="random"``, which is not repeatable without.
    """
    one_of(cut, "cut", ("median", "zero", "random"))
    balance = number(balance, "balance", at_least=1)
    values = given(affinity, "affinity", min_ndim=2).values
    k = check_affinity(values)
    n = len(k)
    rng = np.random.default_rng(None if seed is None else whole(seed, "seed", at_least=0))
    levels = [np.zeros(n, np.int64)]
    while (count := levels[-1].max() + 1) < n:
        labels = levels[-1].copy()
        for folder in range(count):
            members = np.flatnonzero(levels[-1] == folder)
            if len(members) > 1:
                labels[members[_second_part(k[np.ix_(members, members)], cut, balance, rng)]] = labels.max() + 1
        levels.append(labels)
    return PartitionTree.from_labels(np.stack(levels))


def _second_part(k: FloatArray, cut: Cut, balance: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """Positions of the part that leaves a folder, neither none nor all."""
    n = len(k)
    if n == 2:
        return np.array([1])
    values, vectors = leading_vectors(check_affinity(k), 1)
    coordinate = vectors[:, 0] if values[0] else np.zeros(n)  # nothing tells the points apart: cut by index
    if cut == "zero":
        below = coordinate < 0
        if below.any() and not below.all():
            return np.flatnonzero(below)
    rank = n // 2
    if cut == "random":
        low, high = int(np.ceil(n / (1 + balance))), int(np.floor(n * balance / (1 + balance)))
        if low > high:  # an odd folder with balance 1: either side of the middle
            low, high = high, low
        rank = int(rng.integers(low, high + 1))
        rank = min(max(rank, 1), n - 1)
    order = np.argsort(coordinate, kind="stable")
    return np.sort(order[rank:])
