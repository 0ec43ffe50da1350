"""Trees built for the coefficients themselves: those whose Haar coefficients have the least sum of magnitudes.

Merging folders of s and M points with means a and b makes the Haar coefficients ``sqrt(s M / (s + M)) (a - b)``, one
for each feature. So a binary tree costs ``sum over merges of sqrt(s M / (s + M)) |a - b|_1``, and with the coefficients
in the bases of all other axes as features that is the l1 norm of the tensor's coefficients, but for the root's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array, FloatArray, given, squarable
from pyattnorg.checks import number, whole
from pyattnorg.folders import IntArray
from pyattnorg.plans import haar_steps
from pyattnorg.progress import Stages
from pyattnorg.trees import PartitionTree

LEAST_SHARE = 1e-6  # of the norm; what gains less may be rounding
ERRORS = 2.0  # standard errors, about, that an exchange has to gain
SLAB_BYTES = 1 << 17
SPREAD_ROWS, SPREAD_COLUMNS = 256, 1 << 16  # points that spread is taken from, features at a time
SAMPLED = 1 << 16  # coefficients that noise is estimated from
MEDIAN_OF_NORMAL = 0.6744897501960817  # of the magnitude of a standard normal number


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
        right on average (`sampled_features`). Time and memory are then those of so many features.

    Raises
    ------
    ValueError
        No points, NaN or infinities, a negative noise.
    """
    values, exponent = squarable(given(features, "features").values)
    if not len(values):
        raise ValueError(f"features: got shape {values.shape}, expected at least one point")
    rows = values.reshape(len(values), -1)
    if max_features is not None and rows.shape[1] > whole(max_features, "max_features", at_least=1):
        rows = sampled_features(rows, max_features)
    level = noise_level(rows) if noise is None else float(np.ldexp(number(noise, "noise", at_least=0), -exponent))
    merges, _, _ = kernels.entropy_tree(np.array(rows, order="C"), level)
    if improve:
        merges, _ = _improved(rows, merges, level)
    return tree_of_merges(merges)


def sampled_features(rows: FloatArray, count: int) -> FloatArray:
    """About `count` columns of rows (n, features), drawn by their spread and divided by the chance to be drawn.

    The l1 distance of two rows of the sample estimates theirs without bias. The draw is systematic (every so much of
    the summed spread), with no random numbers: the same columns every time.
    """
    some = rows[:: max(1, len(rows) // SPREAD_ROWS)]
    spread = np.empty(rows.shape[1])
    for begin in range(0, len(spread), SPREAD_COLUMNS):
        part = some[:, begin : begin + SPREAD_COLUMNS].astype(np.float64)
        spread[begin : begin + SPREAD_COLUMNS] = np.abs(part - part.mean(0)).sum(0)
    chance = np.minimum(1.0, spread * (count / (spread.sum() or 1.0)))
    for _ in range(10):  # what is sure to be drawn leaves its share to the others
        sure = chance >= 1
        rest = chance[~sure].sum()
        if not rest or abs(rest + sure.sum() - count) < 0.5:
            break
        chance[~sure] = np.minimum(1.0, chance[~sure] * ((count - sure.sum()) / rest))
    drawn = np.flatnonzero(np.diff(np.floor(np.cumsum(chance) + 0.5), prepend=0.0))
    if not len(drawn):
        return rows[:, :1]
    out = np.empty((len(rows), len(drawn)), rows.dtype)
    factor = (1 / chance[drawn]).astype(rows.dtype)
    for i, row in enumerate(rows):
        np.multiply(row[drawn], factor, out=out[i])
    return out


def noise_level(coefficients: FloatArray) -> float:
    """Standard deviation of the noise in coefficients of which most are nothing but noise, from their median."""
    flat = coefficients.reshape(-1)
    if not flat.size:
        return 0.0
    step = flat.size // SAMPLED | 1  # odd: not a period of the axes
    return kernels.median(np.abs(flat[::step])) / MEDIAN_OF_NORMAL


class Round(NamedTuple):
    """A round over all axes: its trees, the normalised entropy of the coefficients, and whether a tree changed."""

    trees: tuple[PartitionTree, ...]
    entropy: float
    changed: bool
    distances: tuple[FloatArray, ...]


def entropy_rounds(
    values: FloatArray, first: Sequence[PartitionTree | None], kept: Sequence[bool], stage: Stages, n_iter: int
) -> Iterator[Round]:
    """Least-entropy trees of every axis in turn, the last axis first, given those of the others.

    An axis without a tree takes the first one that is built, and the one of the first round in its place, which knows
    the trees of all other axes. From then on a tree gives way only to one that lowers the norm by more than noise would
    let it: the best of one built from features without noise, one built from all, and itself, each with folders
    exchanged. So entropy never rises from round to round.

    Parameters
    ----------
    values : ndarray, float32 or float64, finite
    first : sequence of PartitionTree or None
        Trees to start from, one an axis.
    kept : sequence of bool
        Axes that keep theirs.
    """
    values, exponent = squarable(values)
    order = [axis for axis in (values.ndim - 1, *range(values.ndim - 1)) if not kept[axis]]
    trees, missing = list(first), [tree is None for tree in first]
    norm = np.inf if any(missing) else _norm(values, trees)
    length = float(np.sqrt(kernels.norms(values)[1] * values.size))
    room = np.empty(values.size, values.dtype)
    distances: list[FloatArray] = [np.empty((0, 0))] * values.ndim
    used: list[object] = [None] * values.ndim
    for axis in (axis for axis in order if missing[axis]):
        stage.begin(f"first tree of axis {axis}")
        trees[axis], distances[axis] = _first_tree(values, trees, axis, room)
    for iteration in range(n_iter):
        changed = iteration == 0 and any(missing)
        for axis in order:
            stage.begin(f"iteration {iteration + 1}, axis {axis}")
            strict = iteration > 0 or not missing[axis]
            given_trees = strict, *(tree for other, tree in enumerate(trees) if other != axis)
            if used[axis] == given_trees:
                continue  # the same trees give the same features
            used[axis] = given_trees
            step = _best_tree(values, trees, axis, room, strict=strict)
            distances[axis] = step.distances
            if not strict or step.norm < norm - max(LEAST_SHARE * norm, step.doubt):
                changed |= step.tree != trees[axis]
                trees[axis], norm = step.tree, step.norm
        for axis in np.flatnonzero(kept):
            distances[axis] = kernels.pairwise(features_of_axis(values, trees, int(axis), room))
        present = tuple(tree for tree in trees if tree is not None)
        yield Round(present, norm / length if length else 0.0, changed, _scaled_back(distances, exponent))
        if not changed:
            return


def _scaled_back(distances: Sequence[FloatArray], exponent: int) -> tuple[FloatArray, ...]:
    if not exponent:
        return tuple(distances)
    with np.errstate(over="ignore", under="ignore"):
        found = tuple(np.ldexp(each, exponent) for each in distances)
    if not all(np.isfinite(each).all() for each in found):
        raise kernels.SumOverflowError("x: distances overflow float64; scale the values down")
    return found


def features_of_axis(
    values: FloatArray, trees: Sequence[PartitionTree | None], axis: int, room: FloatArray | None = None
) -> FloatArray:
    """Coefficients in the bases of the other axes, a row for every point of `axis`, in memory of its own or `room`."""
    moved = np.moveaxis(values, axis, 0)
    rows = (np.empty(values.size, values.dtype) if room is None else room).reshape(moved.shape)
    slabs = max(1, SLAB_BYTES * moved.shape[1] // values.nbytes) if values.nbytes else 1
    if axis == values.ndim - 1:  # a transposition, in pieces that stay in cache
        for begin in range(0, moved.shape[1], slabs):
            rows[:, begin : begin + slabs] = moved[:, begin : begin + slabs]
    else:
        rows[...] = moved
    others = [None, *(tree for other, tree in enumerate(trees) if other != axis)]
    return kernels.haar_into(rows, rows, others).reshape(len(rows), -1)


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


class _Step(NamedTuple):
    """What was found for an axis: a tree, distances of its points, the norm with it and what noise adds to that."""

    tree: PartitionTree
    distances: FloatArray
    norm: float
    doubt: float


def _first_tree(
    values: FloatArray, trees: Sequence[PartitionTree | None], axis: int, room: FloatArray
) -> tuple[PartitionTree, FloatArray]:
    """A tree to start from and the distances of its points: merged from features without noise."""
    rows = features_of_axis(values, trees, axis, room)
    merges, _, distances = kernels.entropy_tree(rows, noise_level(rows))
    return tree_of_merges(merges), distances


def _best_tree(
    values: FloatArray, trees: Sequence[PartitionTree | None], axis: int, room: FloatArray, *, strict: bool
) -> _Step:
    """The best tree found for an axis.

    Where not `strict`, the tree that is there does not take part, nor does one that noise could have a say in.
    """
    rows = features_of_axis(values, trees, axis, room)
    level = noise_level(rows)
    merges, _, distances = kernels.entropy_tree(rows, level)
    found = [merges]
    present = trees[axis]
    if strict:
        if level:
            found.append(kernels.entropy_tree(features_of_axis(values, trees, axis, room), 0.0)[0])
        if present is not None:
            found.append(merges_of_tree(present))
    rows = features_of_axis(values, trees, axis, room)  # merging overwrites them; two copies would be too many
    better = [_improved(rows, merges, level) for merges in found]
    tree = tree_of_merges(min(better, key=lambda one: float(one[1].sum()))[0])
    coefficients = kernels.haar_into(rows, rows, [tree, None])
    doubt = noise_level(coefficients) * float(np.sqrt(coefficients.size))
    return _Step(tree, distances, kernels.norms(coefficients)[0], doubt)


def _improved(rows: FloatArray, merges: IntArray, noise: float) -> tuple[IntArray, NDArray[np.float64]]:
    return kernels.improve_tree(
        rows, merges, least_share=LEAST_SHARE, least_gain=ERRORS * noise * float(np.sqrt(rows.shape[1]))
    )


def _norm(values: FloatArray, trees: Sequence[PartitionTree | None]) -> float:
    return kernels.norms(kernels.haar_into(np.empty(values.shape, values.dtype), values, trees))[0]
