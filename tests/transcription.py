"""The method in plain NumPy, transcribed from its formulas: what the package is compared with, and timed against.

It shares no code with `pyattnorg`: arrays in, arrays out, float64, and a tree is its array of labels (levels, n), root
level first, last level singletons, folders numbered by first leaf. Numbers in comments are those of the method's
sections. Points come first: `points[i]` is the i-th point whatever its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.spatial.distance import cdist, pdist, squareform

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# -- 2.1 initial affinities ------------------------------------------------------------------------------------------


def cosine_affinity(points: ArrayLike, missing: float | None = None) -> FloatArray:
    """Cosine over the coordinates valid in both points, negatives floored; entries equal to `missing`, or NaN, are not.

    A point with nothing valid, or all zero, is similar to itself alone. `missing=None` is the plain cosine.
    """
    y = _rows(points)
    if missing is None:
        norm = np.linalg.norm(y, axis=1)
        norms = np.outer(norm, norm)
    else:
        valid = ~(np.isnan(y) | (y == missing))
        y = np.where(valid, y, 0.0)
        energy = valid.astype(float) @ (y * y).T  # [i, j]: sum of y_jk^2 over k valid in both
        norms = np.sqrt(energy) * np.sqrt(energy.T)
    affinity = np.clip(np.divide(y @ y.T, norms, out=np.zeros_like(norms), where=norms > 0), 0.0, 1.0)
    np.fill_diagonal(affinity, 1.0)
    return affinity


def gaussian_affinity(points: ArrayLike, neighbors: int = 5, scale: float = 1.0) -> FloatArray:
    """Mean of the Gaussians of both widths: `scale` x median distance to the nearest `neighbors`, itself included."""
    distance: FloatArray = cdist(_rows(points), _rows(points))
    width = scale * np.median(np.sort(distance, axis=1)[:, :neighbors], axis=1)
    width[width == 0] = 1.0
    kernel = np.exp(-((distance / width[:, None]) ** 2))
    return (kernel + kernel.T) / 2


# -- 2.2 diffusion coordinates ---------------------------------------------------------------------------------------


def markov(affinity: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The symmetric Markov matrix S and its leading eigenvector v_0 = e / |e|, of eigenvalue 1.

    With the self-loops no sum can vanish, so nothing is added to d and e: 1e-15 would move S e away from e by more than
    n x machine epsilon, and the n - 1 zero eigenvalues of equal points would no longer count as zero.
    """
    k = np.array(affinity, dtype=float)
    k[k <= 1e-8] = 0.0
    empty = ~k.any(1)
    k[empty, empty] = 1.0  # an isolated point loops onto itself
    d = k.sum(1)
    p = k / np.outer(d, d)
    e = np.sqrt(p.sum(1))
    return p / np.outer(e, e), e / np.linalg.norm(e)


def diffusion_coordinates(affinity: ArrayLike, n_vectors: int = 12) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (m - 1,) by falling magnitude, and phi (n, m - 1), m = min(n_vectors, n); the constant one left out.

    Eigenvalues below n x machine epsilon are returned as 0. The largest entry of every phi is positive.
    """
    s, v0 = markov(affinity)
    n = len(s)
    values, vectors = eigh(s - np.outer(v0, v0))
    keep = np.argsort(-np.abs(values), kind="stable")[: min(n_vectors, n) - 1]
    values, phi = values[keep], vectors[:, keep] / v0[:, None]
    largest = phi[np.abs(phi).argmax(0), np.arange(len(keep))]
    return np.where(np.abs(values) < n * np.finfo(float).eps, 0.0, values), phi * np.where(largest < 0, -1.0, 1.0)


def diffusion_map(affinity: ArrayLike, n_components: int = 3, time: float = 1.0) -> FloatArray:
    """|lambda_k|^t phi_k for k = 1, ..., n_components (2.9)."""
    values, phi = diffusion_coordinates(affinity)
    return (np.abs(values) ** time * phi)[:, :n_components]


# -- 2.3 trees -------------------------------------------------------------------------------------------------------


def flexible_tree(affinity: ArrayLike, constant: float = 1.0) -> IntArray:
    """Bottom-up tree: every level joins near folders by their mean diffusion distance, whose time doubles."""
    values, phi = diffusion_coordinates(affinity)
    n = len(phi)
    decay = np.abs(values)
    if decay.any():
        decay = decay / decay[0]
    members, levels = np.eye(n), [np.arange(n)]
    while len(members) > 1:
        time = 2.0 ** min(len(levels) - 1, 1000)
        coordinates = decay**time * phi
        mean = members / members.sum(1, keepdims=True)
        between = mean @ cdist(coordinates, coordinates) @ mean.T
        groups = join_folders((between + between.T) / 2, constant)
        members = np.stack([members[group].sum(0) for group in groups])
        levels.append(members.argmax(0))
    return canonical(levels[::-1])


def join_folders(distance: FloatArray, constant: float = 1.0) -> list[list[int]]:
    """The greedy step of one level: groups of folders, in the order of their slots."""
    d = distance.copy()
    np.fill_diagonal(d, 0.0)
    if not d.any():
        return [list(range(len(d)))]
    np.fill_diagonal(d, np.inf)
    median = np.median(d)
    nearest, key = d.argmin(1), d.min(1)
    groups = [[a] for a in range(len(d))]
    slot = np.arange(len(d))  # of the group that holds a folder
    joined = False
    while True:
        a = key.argmin()
        if joined and key[a] >= median:
            return [group for group in groups if group]
        b = nearest[a]
        target = groups[slot[b]]
        if len(target) == 1 or d[a, b] < np.ldexp(median / constant, 1 - len(target)):
            groups[slot[b]] = []
            groups[a] = [int(a), *target]
            slot[groups[a]] = a
            key[a] = key[b] = np.inf
            joined = True
        else:
            d[a, b] = np.inf
            nearest[a], key[a] = d[a].argmin(), d[a].min()


def binary_tree(affinity: ArrayLike, cut: str = "median") -> IntArray:
    """Top-down tree (2.3b): folders split by phi_1 of their own affinity, at its median or at zero."""
    k = np.asarray(affinity, dtype=float)
    levels = [np.zeros(len(k), dtype=np.int64)]
    while levels[-1].max() < len(k) - 1:
        parts = [part for folder in range(levels[-1].max() + 1) for part in _halves(k, levels[-1] == folder, cut)]
        levels.append(np.empty_like(levels[0]))
        for i, part in enumerate(parts):
            levels[-1][part] = i
    return canonical(levels)


def _halves(affinity: FloatArray, members: BoolArray, cut: str) -> list[IntArray]:
    points = np.flatnonzero(members)
    if len(points) == 1:
        return [points]
    values, phi = diffusion_coordinates(affinity[np.ix_(points, points)], n_vectors=2)
    first = phi[:, 0] if values[0] else np.zeros(len(points))  # no direction at all: cut by index
    lower = int((first < 0).sum()) if cut == "zero" else 0
    if len(points) == 2 or lower in (0, len(points)):
        lower = len(points) // 2
    order = np.argsort(first, kind="stable")
    return [points[order[:lower]], points[order[lower:]]]


def canonical(levels: Iterable[ArrayLike]) -> IntArray:
    """Labels of every level renumbered by first leaf."""
    out = []
    for level in levels:
        _, first, inverse = np.unique(np.asarray(level), return_index=True, return_inverse=True)
        out.append(np.argsort(np.argsort(first))[inverse])
    return np.stack(out)


# -- 2.4 folders and their weights -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """A distinct folder of a tree and the levels it spans, 0 being the root's."""

    members: BoolArray
    first_level: int
    last_level: int

    def weight(self, alpha: float, beta: float) -> float:
        """(|I| / n)^beta 2^((1 - level) alpha), the root at level 1, summed over the levels spanned."""
        spans = np.arange(self.first_level, self.last_level + 1)
        return float(self.members.mean() ** beta * np.exp2(-alpha * spans).sum())


def folders(labels: IntArray) -> list[Folder]:
    """Distinct folders, breadth-first: by the level at which they split, then by first leaf."""
    spans: dict[bytes, list[int]] = {}
    for level, row in enumerate(labels):
        for folder in range(row.max() + 1):
            spans.setdefault((row == folder).tobytes(), [level, level])[1] = level
    found = [Folder(np.frombuffer(key, dtype=bool), *span) for key, span in spans.items()]
    return sorted(found, key=lambda folder: (folder.last_level, int(folder.members.argmax())))


def folder_averages(labels: IntArray, alpha: float = 0.0, beta: float = 1.0) -> FloatArray:
    """The matrix (folders, n) whose product with a vector is its weighted averages over the distinct folders."""
    return np.stack([f.weight(alpha, beta) / f.members.sum() * f.members for f in folders(labels)])


def level_averages(labels: IntArray, alpha: float = 0.0, beta: float = 1.0) -> FloatArray:
    """The same with one row for every folder of every level: a chain counts once a level."""
    rows = []
    for level, row in enumerate(labels):
        members = row == np.arange(row.max() + 1)[:, None]
        size = members.sum(1, keepdims=True)
        rows.append((size / len(row)) ** beta * 2.0 ** (-alpha * level) * members / size)
    return np.concatenate(rows)


# -- 2.5 to 2.7 distances and affinities -----------------------------------------------------------------------------


def tree_emd(
    points: ArrayLike,
    trees: Sequence[IntArray],
    alpha: float = 0.0,
    beta: float = 1.0,
    averages: Callable[[IntArray, float, float], FloatArray] = folder_averages,
) -> FloatArray:
    """Distances (n, n) of `points` (n, a, b, ...), a tree per further axis: L1 between weighted folder averages.

    One further axis is the tree EMD of 2.5, two are the bi-tree EMD of 2.6.
    """
    features = np.asarray(points, dtype=float)
    for tree in trees:  # contracts the first further axis and puts its folders last, so the order comes round again
        features = np.tensordot(features, averages(tree, alpha, beta), (1, 1))
    distances: FloatArray = squareform(pdist(_rows(features), "cityblock"))
    return distances


def dual_affinity(distances: FloatArray, scale: float = 1.0) -> FloatArray:
    """exp(-E / m), m the median of all of E (2.7)."""
    return np.exp(-distances / (scale * (np.median(distances) or 1.0)))


# -- 2.8 the questionnaire -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """One axis organised once: `given` are the trees of the other axes, in their order (None: an initial affinity)."""

    axis: int
    given: tuple[IntArray, ...] | None
    distances: FloatArray | None
    affinity: FloatArray
    tree: IntArray


@dataclass
class Organized:
    """Trees, distances and affinities per axis, and all the stages on the way; `iterations[i][axis]` is a stage."""

    initial: dict[int, Stage]
    iterations: list[dict[int, Stage]] = field(default_factory=list)

    @property
    def trees(self) -> list[IntArray]:
        return [stage.tree for _, stage in sorted(self.iterations[-1].items())]

    @property
    def distances(self) -> list[FloatArray]:
        return [stage.distances for _, stage in sorted(self.iterations[-1].items()) if stage.distances is not None]

    @property
    def affinities(self) -> list[FloatArray]:
        return [stage.affinity for _, stage in sorted(self.iterations[-1].items())]


def questionnaire(
    x: ArrayLike,
    schedule: str = "refined",
    n_iter: int = 3,
    initial: str = "cosine",
    tree: str = "flexible",
    constant: float = 1.0,
    alpha: float = 0.0,
    beta: float = 1.0,
) -> Organized:
    """Organise the axes of a tensor of order 2 or more: last axis first, then 0, 1, ....

    "refined" is Gauss-Seidel: every axis from the latest trees of the others. "paper" is the reference's order: at
    order 3 the heads come from the initial trees in every iteration (so that stage is worked out once and repeated), at
    order 2 both axes come from the trees of the iteration before; and its cosine takes zeros as missing.
    """
    x = np.asarray(x, dtype=float)
    last, paper = x.ndim - 1, schedule == "paper"
    jacobi = paper and x.ndim == 2
    build = partial(flexible_tree, constant=constant) if tree == "flexible" else binary_tree
    first = gaussian_affinity if initial == "gaussian" else partial(cosine_affinity, missing=0.0 if paper else None)

    def start(axis: int) -> Stage:
        affinity = first(np.moveaxis(x, axis, 0))
        return Stage(axis, None, None, affinity, build(affinity))

    def dual(axis: int, trees: dict[int, IntArray]) -> Stage:
        given = tuple(trees[other] for other in range(x.ndim) if other != axis)
        distances = tree_emd(np.moveaxis(x, axis, 0), given, alpha, beta)
        affinity = dual_affinity(distances)
        return Stage(axis, given, distances, affinity, build(affinity))

    out = Organized({axis: start(axis) for axis in range(x.ndim if jacobi else last)})
    trees = {axis: stage.tree for axis, stage in out.initial.items()}
    for i in range(n_iter):
        stages: dict[int, Stage] = {}
        before = dict(trees)
        for axis in (last, *range(last)):
            if axis == last and paper and not jacobi and i > 0:
                stages[axis] = out.iterations[0][axis]
            else:
                stages[axis] = dual(axis, before if jacobi else trees)
            trees[axis] = stages[axis].tree
        out.iterations.append(stages)
    return out


# -- 2.10 Haar -------------------------------------------------------------------------------------------------------


def haar_basis(labels: IntArray) -> FloatArray:
    """Orthonormal basis of a tree, vectors in columns: the constant, then those of every folder, breadth-first."""
    n = labels.shape[1]
    columns = [np.full(n, n**-0.5)]
    for folder in folders(labels):
        if folder.last_level == len(labels) - 1:
            continue  # a leaf
        below = labels[folder.last_level + 1]
        sizes = np.bincount(below[folder.members])
        children = sorted(np.flatnonzero(sizes), key=lambda child: (-sizes[child], -child))
        rest = folder.members.copy()
        for child in children[:-1]:
            rest &= below != child
            s, m = sizes[child], rest.sum()
            columns.append((m * (below == child) - s * rest.astype(float)) / np.sqrt(float(s * m * (s + m))))
    return np.stack(columns, axis=1)


def haar(x: ArrayLike, trees: Sequence[IntArray | None]) -> FloatArray:
    """Coefficients of `x` in the product of the trees' bases; an axis with None is left alone."""
    return _products(x, [None if tree is None else haar_basis(tree) for tree in trees])


def ihaar(c: ArrayLike, trees: Sequence[IntArray | None]) -> FloatArray:
    """The tensor of the coefficients `c`."""
    return _products(c, [None if tree is None else haar_basis(tree).T for tree in trees])


def _products(x: ArrayLike, matrices: Sequence[FloatArray | None]) -> FloatArray:
    out = np.asarray(x, dtype=float)
    for matrix in matrices:  # the axis worked on is always the first; its result goes last
        out = np.moveaxis(out, 0, -1) if matrix is None else np.tensordot(out, matrix, (0, 0))
    return out


# -- 2.11 entropies --------------------------------------------------------------------------------------------------


def l1_entropy(c: ArrayLike, normalized: bool = True) -> float:
    """Sum |c|; normalised, over |c|_2 sqrt(N), between 1 / sqrt(N) and 1. Zero for c = 0."""
    c = np.asarray(c, dtype=float)
    norm = float(np.linalg.norm(c)) * c.size**0.5 if normalized else 1.0
    return float(np.abs(c).sum()) / norm if norm else 0.0


def effective_number(c: ArrayLike) -> float:
    """(Sum |c| / |c|_2)^2, the effective number of coefficients."""
    return np.size(c) * l1_entropy(c) ** 2


def lp_entropy(c: ArrayLike, p: float = 1.0) -> float:
    """(Sum |c|^p)^(1/p)."""
    return float((np.abs(np.asarray(c, dtype=float)) ** p).sum() ** (1 / p))


def head_entropies(x: ArrayLike, trees: Sequence[IntArray], count: int = 10) -> FloatArray:
    """e_h of every head (the last axis): Sum |c| over its `count` x `count` coarsest bi-Haar vectors, not divided."""
    c = haar(x, [trees[0], trees[1], None])
    return np.asarray(np.abs(c[:count, :count]).sum((0, 1)))


def network_entropy(x: ArrayLike, trees: Sequence[IntArray], count: int = 100) -> float:
    """Sum |c| over the `count` vectors of largest support (ties: breadth-first, last axis fastest), as intended."""
    support = np.ones(())
    for tree in trees:
        support = np.multiply.outer(support, (haar_basis(tree) != 0).sum(0))
    return float(np.abs(haar(x, trees)).ravel()[np.argsort(-support.ravel(), kind="stable")[:count]].sum())


# -- 2.12 what a tree says -------------------------------------------------------------------------------------------


def leaf_order(labels: IntArray) -> IntArray:
    """Leaves depth-first, folders by first leaf: every folder is one run of it."""
    return np.lexsort(labels[::-1])


def tree_distance(labels: IntArray) -> FloatArray:
    """Size of the smallest common folder over n, 0 on the diagonal."""
    n = labels.shape[1]
    out = np.ones((n, n))
    for row in labels:
        out = np.where(row[:, None] == row, np.bincount(row)[row] / n, out)
    np.fill_diagonal(out, 0.0)
    return out


# -- the definitions in loops, for small n ---------------------------------------------------------------------------


def emd_loops(points: ArrayLike, trees: Sequence[IntArray], alpha: float = 0.0, beta: float = 1.0) -> FloatArray:
    """`tree_emd` term by term: every pair of points, every product of folders, every level."""
    x = np.asarray(points, dtype=float)
    out = np.zeros((len(x), len(x)))
    for i, j in product(range(len(x)), repeat=2):
        for levels in product(*(range(len(tree)) for tree in trees)):
            rows = [tree[level] for tree, level in zip(trees, levels, strict=True)]
            for names in product(*(range(row.max() + 1) for row in rows)):
                leaves = [[k for k in range(len(row)) if row[k] == name] for row, name in zip(rows, names, strict=True)]
                weight, total, cells = 1.0, 0.0, 0
                for row, level, inside in zip(rows, levels, leaves, strict=True):
                    weight *= (len(inside) / len(row)) ** beta * 2.0 ** ((1 - (level + 1)) * alpha)
                for cell in product(*leaves):
                    total += x[(i, *cell)] - x[(j, *cell)]
                    cells += 1
                out[i, j] += weight * abs(total / cells)
    return out


def haar_loops(x: ArrayLike, trees: Sequence[IntArray]) -> FloatArray:
    """`haar` term by term: vectors from lists of leaves, then one sum a coefficient."""
    x = np.asarray(x, dtype=float)
    bases = [_vectors(tree.tolist()) for tree in trees]
    out = np.zeros(x.shape)
    for which in np.ndindex(*x.shape):
        for cell in np.ndindex(*x.shape):
            term = x[cell]
            for basis, number, leaf in zip(bases, which, cell, strict=True):
                term *= basis[number][leaf]
            out[which] += term
    return out


def _vectors(labels: list[list[int]]) -> list[list[float]]:
    n = len(labels[0])
    vectors = [[1 / n**0.5] * n]
    for level in range(len(labels) - 1):
        for first in range(n):
            inside = [leaf for leaf in range(n) if labels[level][leaf] == labels[level][first]]
            children: list[list[int]] = []
            for leaf in inside:
                mates = [other for other in inside if labels[level + 1][other] == labels[level + 1][leaf]]
                if mates not in children:
                    children.append(mates)
            if inside[0] != first or len(children) == 1:
                continue  # met before, or a chain
            children.reverse()
            children.sort(key=len, reverse=True)  # stable: ties stay reversed
            for i, child in enumerate(children[:-1]):
                rest = [leaf for other in children[i + 1 :] for leaf in other]
                s, m = len(child), len(rest)
                scale = (s * m * (s + m)) ** 0.5
                vectors.append([(m * (k in child) - s * (k in rest)) / scale for k in range(n)])
    return vectors


def _rows(points: ArrayLike) -> FloatArray:
    points = np.asarray(points, dtype=float)
    return np.ascontiguousarray(points.reshape(len(points), -1))
