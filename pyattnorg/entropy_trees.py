"""Trees built for the coefficients themselves: those whose Haar coefficients have the least sum of magnitudes.

Merging folders of s and M points with means a and b makes the Haar coefficients ``sqrt(s M / (s + M)) (a - b)``, one
for each feature. So a binary tree costs ``sum over merges of sqrt(s M / (s + M)) |a - b|_1``, and with the coefficients
in the bases of all other axes as features that is the l1 norm of the tensor's coefficients, but for the root's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyattnorg import devices, on_device
from pyattnorg.arrays import Array, given
from pyattnorg.checks import number, whole
from pyattnorg.entropy_arithmetic import arithmetic_for
from pyattnorg.folders import IntArray
from pyattnorg.plans import haar_steps
from pyattnorg.trees import PartitionTree


def entropy_tree(
    features: Array, *, noise: float | None = None, improve: bool = True, max_features: int | None = None
) -> PartitionTree:
    """Binary tree whose Haar coefficients have a small sum of magnitudes.

    Folders are merged from the points up, the cheapest pairs first; then neighbouring folders are exchanged as long as
    that lowers the sum (nearest-neighbour interchange) by more than noise would let it. Ties go to the lowest index.

    Parameters
    ----------
    features : array, shape (n, ...)
        Points, one a row. For an axis of a tensor: its coefficients in the bases of the other axes, as
        ``pa.haar(x, [None, *trees])`` gives. Not changed.
    noise : float, optional
        Standard deviation of the noise in every feature; 0 for none. While merging, features count by
        ``sqrt(1 - noise**2 / variance)``, those that vary no more than noise not at all; an exchange has to gain
        ``2 * noise * sqrt(number of features)``. By default the noise is estimated: the median magnitude of the
        features over that of a standard normal number (Donoho and Johnstone 1994), small where features are sparse.
    improve : bool
        Whether to exchange folders after they were merged.
    max_features : int, optional
        Look at about so many features instead of all, where there are more: for axes of many thousand points. Features
        are drawn by how much points differ in them, and count by the inverse of their chance, so that distances are
        right on average (`pyattnorg.sampling`). Time and memory are then those of so many features.

    Raises
    ------
    ValueError
        No points, NaN or infinities, a negative noise.
    """
    memory, by = devices.memory_for(features), arithmetic_for(features)
    values: Any = on_device.tensor(memory, features, "features", 1) if memory else given(features, "features").values
    if not len(values):
        raise ValueError(f"features: got shape {tuple(values.shape)}, expected at least one point")
    values, exponent = by.squarable(values)
    rows = values.reshape(len(values), int(np.prod(values.shape[1:], dtype=np.int64)))
    if max_features is not None and rows.shape[1] > whole(max_features, "max_features", at_least=1):
        rows = by.sampled(rows, max_features)
    level = by.noise_level(rows) if noise is None else float(np.ldexp(number(noise, "noise", at_least=0), -exponent))
    merges, _ = by.merged(by.copied(rows), level)
    if improve:
        merges, _ = by.improved(by.copied(rows) if memory else rows, merges, level)
    return tree_of_merges(merges)


def tree_of_merges(merges: IntArray) -> PartitionTree:
    """The binary tree of merges (n - 1, 2) that name folders by their first points."""
    n = len(merges) + 1
    if n == 1:
        return PartitionTree.dyadic(1)
    cluster = list(range(n))
    pairs = np.empty((n - 1, 2), np.int64)
    for i, (a, b) in enumerate(merges.tolist()):
        pairs[i] = cluster[a], cluster[b]
        cluster[a] = n + i
    return PartitionTree.from_merges(pairs)


def merges_of_tree(tree: PartitionTree) -> IntArray:
    """Merges (n - 1, 2) by first points, children first, whose Haar coefficients are those of `tree`.

    A folder of several children is what its Haar functions make of it: the smallest child joins the next larger one,
    and so on.
    """
    steps = tree.cached("haar_steps", haar_steps).steps
    first = np.arange(tree.n_leaves)
    merges = np.empty((len(steps), 2), np.int32)
    for i, (left, right, _, _) in enumerate(steps.tolist()):
        a, b = first[left], first[right]
        merges[i] = min(a, b), max(a, b)
        first[right] = min(a, b)
    return merges
