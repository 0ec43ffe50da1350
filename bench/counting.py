"""How many |a - b| a questionnaire cannot avoid: C, counted from the trees that it met."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pyattnorg as pa


def pair_terms(n: int, trees: tuple[pa.PartitionTree, ...]) -> float:
    """Terms of one tree distance: half matrix, products of distinct folders."""
    return n * (n - 1) / 2 * prod(tree.n_folders for tree in trees)


def first_trees(q: pa.Questionnaire, x: NDArray[Any]) -> list[pa.PartitionTree | None]:
    """The trees that `q` started from, built again: none for the last axis, but in the paper's two-axis order."""
    paper = q.schedule == "paper"
    found: list[pa.PartitionTree | None] = [None] * x.ndim
    for axis in range(x.ndim if paper and x.ndim == 2 else x.ndim - 1):
        rows = np.moveaxis(x, axis, 0)
        if q.initial == "gaussian":
            affinity = pa.gaussian_affinity(rows)
        else:
            affinity = pa.cosine_affinity(rows, missing=0.0 if paper else None)
        found[axis] = pa.flexible_tree(affinity, constant=q.constant)
    return found


def questionnaire_terms(q: pa.Questionnaire, x: NDArray[Any]) -> float:
    """Terms of all tree distances of a fit on `x`; a step whose trees had not changed counts nothing.

    The order of the steps is that of method 2.8: the last axis first, then the others; "refined" takes the latest
    trees, "paper" the first ones for the last of three axes, and those of the iteration before for two axes.
    """
    n_axes, last, paper = x.ndim, x.ndim - 1, q.schedule == "paper"
    first = first_trees(q, x)
    current = list(first)
    used: list[tuple[pa.PartitionTree, ...] | None] = [None] * n_axes
    total = 0.0
    for iteration in q.history_:
        previous = list(current)
        for axis in (last, *range(last)):
            source = current
            if paper:
                source = previous if n_axes == 2 else first if axis == last else current
            trees = tuple(tree for other, tree in enumerate(source) if other != axis and tree is not None)
            if used[axis] != trees:
                total += pair_terms(x.shape[axis], trees)
                used[axis] = trees
            current[axis] = iteration["trees"][axis]
    return total


def last_given(q: pa.Questionnaire, axis: int) -> tuple[pa.PartitionTree, ...]:
    """The trees that gave the final distances of the second axis from the end: the one organised last."""
    n_axes = len(q.trees_)
    if q.schedule == "paper" and n_axes == 2:
        trees = q.history_[-2]["trees"]
    else:
        trees = q.trees_
    return tuple(tree for other, tree in enumerate(trees) if other != axis)
