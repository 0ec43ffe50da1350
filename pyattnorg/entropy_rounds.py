"""Rounds of least-entropy trees over all axes of a tensor, each axis given the trees of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyattnorg import kernels
from pyattnorg.arrays import Array, FloatArray
from pyattnorg.entropy_arithmetic import LEAST_SHARE, Arithmetic, arithmetic_for
from pyattnorg.entropy_trees import merges_of_tree, tree_of_merges
from pyattnorg.progress import Stages
from pyattnorg.trees import PartitionTree


class Round(NamedTuple):
    """A round over all axes: its trees, the normalised entropy of the coefficients, and whether a tree changed."""

    trees: tuple[PartitionTree, ...]
    entropy: float
    changed: bool
    distances: tuple[FloatArray, ...]


def entropy_rounds(
    values: Array, first: Sequence[PartitionTree | None], kept: Sequence[bool], stage: Stages, n_iter: int
) -> Iterator[Round]:
    """Least-entropy trees of every axis in turn, the last axis first, given those of the others.

    An axis without a tree takes the first one that is built, and the one of the first round in its place, which knows
    the trees of all other axes. From then on a tree gives way only to one that lowers the norm by more than noise would
    let it: the best of one built from features without noise, one built from all, and itself, each with folders
    exchanged. So entropy never rises from round to round.

    Parameters
    ----------
    values : ndarray, float32 or float64, or a tensor on a GPU; finite
    first : sequence of PartitionTree or None
        Trees to start from, one an axis.
    kept : sequence of bool
        Axes that keep theirs.
    """
    order = [axis for axis in (values.ndim - 1, *range(values.ndim - 1)) if not kept[axis]]
    trees, missing = list(first), [tree is None for tree in first]
    by = arithmetic_for(values)
    values, exponent = by.squarable(values)
    norm = np.inf if any(missing) else by.norm_by(values, trees)
    length = float(np.sqrt(by.norms(values)[1] * np.prod(values.shape, dtype=np.float64)))
    room = by.room(values)
    distances: list[FloatArray] = [np.empty((0, 0))] * values.ndim
    used: list[object] = [None] * values.ndim
    for axis in (axis for axis in order if missing[axis]):
        stage.begin(f"first tree of axis {axis}")
        trees[axis], distances[axis] = _first_tree(by, values, trees, axis, room)
    for iteration in range(n_iter):
        changed = iteration == 0 and any(missing)
        for axis in order:
            stage.begin(f"iteration {iteration + 1}, axis {axis}")
            strict = iteration > 0 or not missing[axis]
            given_trees = strict, *(tree for other, tree in enumerate(trees) if other != axis)
            if used[axis] == given_trees:
                continue  # the same trees give the same features
            used[axis] = given_trees
            step = _best_tree(by, values, trees, axis, room, strict=strict)
            distances[axis] = step.distances
            if not strict or step.norm < norm - max(LEAST_SHARE * norm, step.doubt):
                changed |= step.tree != trees[axis]
                trees[axis], norm = step.tree, step.norm
        for axis in np.flatnonzero(kept):
            distances[axis] = by.host(by.distances(by.rows_of(values, trees, int(axis), room)))
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


class _Step(NamedTuple):
    """What was found for an axis: a tree, distances of its points, the norm with it and what noise adds to that."""

    tree: PartitionTree
    distances: FloatArray
    norm: float
    doubt: float


def _first_tree(
    by: Arithmetic, values: Array, trees: Sequence[PartitionTree | None], axis: int, room: Any
) -> tuple[PartitionTree, FloatArray]:
    """A tree to start from and the distances of its points: merged from features without noise."""
    rows = by.rows_of(values, trees, axis, room)
    merges, distances = by.merged(rows, by.noise_level(rows))
    return tree_of_merges(merges), by.host(distances)


def _best_tree(
    by: Arithmetic, values: Array, trees: Sequence[PartitionTree | None], axis: int, room: Any, *, strict: bool
) -> _Step:
    """The best tree found for an axis.

    Where not `strict`, the tree that is there does not take part, nor does one that noise could have a say in.
    """
    rows = by.rows_of(values, trees, axis, room)
    level = by.noise_level(rows)
    merges, distances = by.merged(rows, level)
    found = [merges]
    present = trees[axis]
    if strict:
        if level:
            found.append(by.merged(by.rows_of(values, trees, axis, room), 0.0)[0])
        if present is not None:
            found.append(merges_of_tree(present))
    rows = by.rows_of(values, trees, axis, room)  # merging overwrites them; two copies would be too many
    better = [by.improved(rows, merges, level) for merges in found]
    tree = tree_of_merges(min(better, key=lambda one: float(one[1].sum()))[0])
    coefficients = by.along(rows, tree)
    doubt = by.noise_level(coefficients) * float(np.sqrt(np.prod(coefficients.shape, dtype=np.float64)))
    return _Step(tree, by.host(distances), by.norms(coefficients)[0], doubt)
