"""Are the head trees of two inputs, and of resampled queries, the same?

python examples/entropy/stability.py
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from page_parts_of import show, spread, table
from study import HEADS, Fit, Model, cases, fit, fitted, inputs_of, permuted, tensor

import pyattnorg as pa

RESAMPLES = 5
TREES = ("entropy", "flexible", "binary", "average")


class Agreement(NamedTuple):
    """Of two head trees: cophenetic correlation, largest adjusted Rand index, that of permuted heads, Mantel's r."""

    cophenetic: float
    rand: float
    by_chance: float
    mantel: float


def telling(tree: pa.PartitionTree) -> NDArray[np.intp]:
    """Levels of 2 folders to a third of the heads: roots are all the same, and so are single heads."""
    count = tree.labels.max(1) + 1
    levels = np.flatnonzero((count >= 2) & (count <= max(2, tree.n_leaves / 3)))
    return levels if len(levels) else np.array([1])


def rand_index(one: pa.PartitionTree, other: pa.PartitionTree) -> float:
    """Largest adjusted Rand index of any two telling levels."""
    return float(np.asarray(pa.adjusted_rand_index(one, other))[np.ix_(telling(one), telling(other))].max())


def agreement(a: Fit, b: Fit, seed: int) -> Agreement:
    """How far two fits agree about the heads."""
    one, other = a.trees[HEADS], b.trees[HEADS]
    return Agreement(
        pa.cophenetic_correlation(one, other),
        rand_index(one, other),
        rand_index(one, permuted(other, seed)),
        pa.mantel(a.distances[HEADS].astype(float), b.distances[HEADS].astype(float), n_permutations=1).correlation,
    )


@cache
def between_inputs(model: Model, kind: str, tree: str) -> list[Agreement]:
    """All pairs of inputs."""
    found = [fitted(model, name, kind)[tree] for name in inputs_of(model)]
    return [agreement(a, b, seed) for seed, (a, b) in enumerate(combinations(found, 2))]


@cache
def between_resamples(model: Model, kind: str, tree: str) -> list[Agreement]:
    """The first input, and the same with queries drawn with replacement."""
    name = inputs_of(model)[0]
    x, whole = tensor(model, name, kind), fitted(model, name, kind)[tree]
    rng = np.random.default_rng(0)
    drawn = [x[np.sort(rng.integers(len(x), size=len(x)))] for _ in range(RESAMPLES)]
    return [agreement(whole, fit(one, tree), seed) for seed, one in enumerate(drawn)]


def section() -> str:
    """The section of the page."""
    rows = []
    for model, kind in cases():
        for tree in TREES:
            for what, make in (("inputs", between_inputs), ("resamples", between_resamples)):
                each = np.array(make(model, kind, tree))
                rows.append([model.name, kind, tree, what, *(spread(column, 2) for column in each.T)])
    return "\n\n".join(
        [
            "## Stability of the head tree",
            table(["network", "tensor", "tree", "between", "cophenetic", "ARI", "ARI, heads permuted",
                   "Mantel r of distances"], rows),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
