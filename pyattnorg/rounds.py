"""The rounds of a questionnaire: affinity, tree, tree distance, affinity, tree ... on every axis in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from pyattnorg.affinity import cosine_affinity, dual_affinity, gaussian_affinity
from pyattnorg.arrays import Array, FloatArray, require_finite, to_numpy
from pyattnorg.axis_options import AxisOptions, Forest, grow
from pyattnorg.distances import tree_distances
from pyattnorg.entropy_rounds import entropy_rounds
from pyattnorg.folder_weights import weights_of
from pyattnorg.haar import haar
from pyattnorg.kernels import haar_into
from pyattnorg.progress import Progress, Stages
from pyattnorg.sparsity import l1_entropy
from pyattnorg.tree_comparison import tree_distance
from pyattnorg.trees import PartitionTree

Trees: TypeAlias = tuple[PartitionTree, ...]


class Iteration(TypedDict):
    """One round of the questionnaire.

    `trees` it ended with (of several random ones the set of least entropy); normalised l1 `entropy` in their Haar
    basis; `moved`, for every axis `pyattnorg.tree_distance` between its trees before and after (None for the trees of
    an axis that had none before).
    """

    trees: Trees
    entropy: float
    moved: tuple[float | None, ...]


@dataclass
class Rounds:
    """What a questionnaire works with and what it has found so far; one entry an axis in every list."""

    values: Array  # NumPy, or a tensor on a GPU: what is as large as the tensor is then computed there
    options: tuple[AxisOptions, ...]
    paper: bool
    n_trees: int
    seed: int | None
    tol: float
    missing: float | None

    def __post_init__(self) -> None:
        n_axes = self.values.ndim
        self.order = [n_axes - 1, *range(n_axes - 1)]
        self.distances: list[FloatArray | None] = [None] * n_axes
        self.affinities: list[FloatArray | None] = [None] * n_axes
        self.forests: list[Forest | None] = [None] * n_axes
        self.history: list[Iteration] = []
        self.converged = False
        self._weights: dict[tuple[int, PartitionTree], NDArray[np.float64]] = {}

    def run(
        self,
        n_iter: int,
        trees: Sequence[PartitionTree | None],
        affinities: Sequence[FloatArray | None],
        progress: Progress | None,
        verbose: bool,
    ) -> None:
        """`n_iter` rounds at most, from trees or else affinities that are known beforehand."""
        if any(o.tree == "entropy" for o in self.options):
            return self._run_entropy(n_iter, trees, progress, verbose)
        n_axes = self.values.ndim
        first: list[Forest | None] = [None if tree is None else (tree,) * self.n_trees for tree in trees]
        # Of the axis that goes first nobody asks for a tree before it is made, but in the paper's order of two axes.
        everywhere = self.paper and n_axes == 2
        unbuilt = [axis for axis in self.order if trees[axis] is None and (everywhere or axis != self.order[0])]
        stage = Stages(progress, verbose, len(unbuilt) + n_iter * n_axes)
        for axis in unbuilt:
            stage.begin(f"initial tree of axis {axis}")
            known = affinities[axis]
            affinity = self._initial_affinity(axis) if known is None else known
            first[axis] = self._grow(axis, affinity)
        self.forests = list(first)
        used: list[tuple[Forest, ...] | None] = [None] * n_axes
        coefficients = np.empty(self.values.shape, self.values.dtype) if isinstance(self.values, np.ndarray) else None
        for iteration in range(n_iter):
            previous = list(self.forests)
            for axis in self.order:
                stage.begin(f"iteration {iteration + 1}, axis {axis}")
                source = self.forests
                if self.paper:
                    source = previous if n_axes == 2 else first if axis == self.order[0] else source
                others = tuple(f for other, f in enumerate(source) if other != axis and f is not None)
                if used[axis] == others:
                    continue  # the same trees give the same distances
                used[axis] = others
                distances = self._distances(axis, others)
                affinity = dual_affinity(distances)
                self.distances[axis], self.affinities[axis] = distances, affinity
                if self.options[axis].tree != "given":
                    self.forests[axis] = self._grow(axis, affinity)
            moved = tuple(_moved(before, after) for before, after in zip(previous, self.forests))
            trees_now, entropy = self._sparsest(coefficients)
            self.history.append({"trees": trees_now, "entropy": entropy, "moved": moved})
            near = self.tol > 0 and all(m is not None and m <= self.tol for m in moved)
            if self.forests == previous or near:
                self.converged = True
                break
        stage.end()

    def _run_entropy(
        self, n_iter: int, trees: Sequence[PartitionTree | None], progress: Progress | None, verbose: bool
    ) -> None:
        """Rounds of least-entropy trees, which need no affinities; those of the last distances are made at the end."""
        kept = [o.tree == "given" for o in self.options]
        stage = Stages(progress, verbose, trees.count(None) + n_iter * kept.count(False))
        before: tuple[PartitionTree | None, ...] = tuple(trees)
        for found in entropy_rounds(self.values, trees, kept, stage, n_iter):
            moved = tuple(None if a is None else tree_distance(a, b) for a, b in zip(before, found.trees))
            self.history.append({"trees": found.trees, "entropy": found.entropy, "moved": moved})
            before, self.distances = found.trees, list(found.distances)
            near = self.tol > 0 and all(m is not None and m <= self.tol for m in moved)
            if near or not found.changed:
                self.converged = True
                break
        stage.end()
        self.forests = [(tree,) for tree in self.history[-1]["trees"]]
        self.affinities = [None if e is None else dual_affinity(e) for e in self.distances]

    def _initial_affinity(self, axis: int) -> FloatArray:
        points = self._points(axis)
        points = np.ascontiguousarray(points) if isinstance(points, np.ndarray) else points
        points = points.reshape(self.values.shape[axis], -1)
        if self.options[axis].initial == "gaussian":
            found = gaussian_affinity(points)
        else:
            found = cosine_affinity(points, missing=self.missing)
        affinity: FloatArray = to_numpy(found, "affinity", quietly=True)
        require_finite(affinity, "affinity")
        return affinity

    def _points(self, axis: int) -> Array:
        """The values with the points of an axis first; a view."""
        if isinstance(self.values, np.ndarray):
            return np.moveaxis(self.values, axis, 0)
        return self.values.movedim(axis, 0)

    def _grow(self, axis: int, affinity: FloatArray) -> Forest:
        """The trees of an axis."""
        return grow(affinity, self.options[axis], self.n_trees, self.seed)

    def _distances(self, axis: int, others: tuple[Forest, ...]) -> FloatArray:
        """Tree distances of the points of an axis, averaged over the sets of trees on the other axes.

        The i-th trees of all axes make a set, so that the mean of several costs as many distances and not a power.
        """
        points = self._points(axis)
        axes = [other for other in range(self.values.ndim) if other != axis]
        sets = Counter(zip(*others))
        mean: FloatArray | None = None
        for trees, count in sets.items():
            weights = [self._folder_weights(tree, other) for tree, other in zip(trees, axes)]
            found: FloatArray = to_numpy(tree_distances(points, list(trees), weights), "distances", quietly=True)
            require_finite(found, "distances")
            if len(sets) > 1:
                found *= found.dtype.type(count / self.n_trees)
            mean = found if mean is None else mean + found
        assert mean is not None
        return mean

    def _folder_weights(self, tree: PartitionTree, axis: int) -> NDArray[np.float64]:
        key = (axis, tree)
        if key not in self._weights:
            o = self.options[axis]
            self._weights[key] = weights_of(o.weights, self.values, tree, axis, o.alpha, o.beta)
        return self._weights[key]

    def _sparsest(self, coefficients: FloatArray | None) -> tuple[Trees, float]:
        """Of the sets of trees that of least normalised l1 entropy, the first of several, and its entropy."""
        forests = [forest for forest in self.forests if forest is not None]
        entropies = {
            trees: l1_entropy(
                haar(self.values, trees) if coefficients is None else haar_into(coefficients, self.values, trees)
            )
            for trees in dict.fromkeys(zip(*forests))
        }
        best = min(entropies, key=lambda trees: entropies[trees])
        return best, entropies[best]


def _moved(before: Forest | None, after: Forest | None) -> float | None:
    if before is None or after is None:
        return None
    return float(np.mean([tree_distance(a, b) for a, b in zip(before, after)]))
