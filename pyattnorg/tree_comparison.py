"""How far two trees agree: distance, cophenetic correlation, adjusted Rand indices of their levels, Mantel's test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array, require_finite, to_numpy
from pyattnorg.checks import one_of, whole
from pyattnorg.threads import one_blas_thread
from pyattnorg.trees import PartitionTree

Floats: TypeAlias = NDArray[np.float64]
Partitions: TypeAlias = "PartitionTree | Array"
Alternative: TypeAlias = Literal["greater", "less", "two-sided"]

SYMMETRIC = 1e-4  # how far a matrix may be from its transpose, in units of its largest magnitude
ROUNDING = 1e-12  # correlations this close to the observed one count as equal to it


def tree_distance(a: PartitionTree, b: PartitionTree) -> float:
    """Mean over all pairs of points of ``|d_a - d_b|``, with d the size of the smallest common folder over n.

    A metric on hierarchies of folders, in [0, 1): how much of the axis the smallest folder that two points share gains
    or loses from one tree to the other (the l1 distance of the trees' ultrametrics). Levels have no say in it.
    """
    _same_leaves(a, b)
    if a == b or a.n_leaves < 2:
        return 0.0
    n = a.n_leaves
    return kernels.tree_distance(a, b) / n / (n * (n - 1))


def cophenetic_correlation(a: PartitionTree, b: PartitionTree) -> float:
    """Pearson correlation of the tree distances of all pairs of points (Sokal and Rohlf 1962).

    Returns
    -------
    float
        In [-1, 1]. Trees with the same folders have 1. A tree in which all pairs are equally far (no folders between
        root and leaves) tells nothing about another one: 0.
    """
    _same_leaves(a, b)
    pairs = np.triu_indices(a.n_leaves, 1)
    x, y = a.distance_matrix()[pairs], b.distance_matrix()[pairs]
    return 1.0 if np.array_equal(x, y) else correlation(x, y)


def adjusted_rand_index(a: Partitions, b: Partitions) -> Any:
    """Adjusted Rand index (Hubert and Arabie 1985) of two partitions, or of every level of trees.

    1 for equal partitions, about 0 for unrelated ones, less for partitions that avoid each other.

    Parameters
    ----------
    a, b : PartitionTree, or array of integers of shape (n,)
        A tree stands for the partitions of all its levels; an array names the part of every point, such as the layer
        of every head.

    Returns
    -------
    float, or array of shape (levels of a,), (levels of b,) or (levels of a, levels of b)
        One axis for every argument that is a tree, root level first.
    """
    rows, columns = _levels(a, "a"), _levels(b, "b")
    if rows.shape[1] != columns.shape[1]:
        raise ValueError(f"b: got a partition of {columns.shape[1]} points, a has {rows.shape[1]}")
    out = np.array([[_rand(x, y) for y in columns] for x in rows])
    if not isinstance(a, PartitionTree):
        out = out[0]
    if not isinstance(b, PartitionTree):
        out = out[..., 0]
    return out if out.ndim else float(out)


@dataclass(frozen=True)
class MantelTest:
    """Result of `mantel`.

    Attributes
    ----------
    correlation : float
        Of the entries above the diagonal.
    p_value : float
        Share of permutations with a correlation at least as extreme, the identity counted as one of them.
    null : ndarray, shape (n_permutations,)
        Correlations under random permutations of the points.
    """

    correlation: float
    p_value: float
    null: Floats


def mantel(
    a: Partitions,
    b: Partitions,
    *,
    method: Literal["pearson", "spearman"] = "pearson",
    alternative: Alternative = "greater",
    n_permutations: int = 999,
    seed: int = 0,
) -> MantelTest:
    """Mantel's test (1967): do two matrices of distances, or two trees, tell the same about the same points?

    The correlation of the entries above the diagonal is compared with what it is after random permutations of the
    points of `b`; ``p = (1 + number at least as extreme) / (1 + n_permutations)``.

    Parameters
    ----------
    a, b : PartitionTree, or symmetric array of shape (n, n)
        Distances or affinities; of a tree its `distance_matrix`. The diagonal is not looked at.
    method : {"pearson", "spearman"}
        Of the entries or of their ranks.
    alternative : {"greater", "less", "two-sided"}
        What counts as extreme. Compare a distance with an affinity by "less".
    n_permutations : int
    seed : int
        Of the permutations.

    Raises
    ------
    ValueError
        Matrices that are not square, symmetric, finite and of one size.
    """
    one_of(method, "method", ("pearson", "spearman"))
    one_of(alternative, "alternative", ("greater", "less", "two-sided"))
    n_permutations, seed = whole(n_permutations, "n_permutations", at_least=1), whole(seed, "seed", at_least=0)
    x, y = _matrix(a, "a"), _matrix(b, "b")
    n = len(x)
    if len(y) != n:
        raise ValueError(f"b: got a matrix of {len(y)} points, a has {n}")
    pairs = np.triu_indices(n, 1)
    if method == "spearman":
        x, y = _ranked(x, pairs), _ranked(y, pairs)
    with one_blas_thread():
        left, right = _standard(x[pairs]), _standard(y[pairs])
        observed = _clipped(left @ right)
        # Standardised as a matrix, so that a permutation is one look-up and one product.
        y[pairs] = right
        y = np.triu(y, 1) + np.triu(y, 1).T
        rng = np.random.default_rng(seed)
        null = np.empty(n_permutations)
        for i in range(n_permutations):
            p = rng.permutation(n)
            null[i] = _clipped(left @ y[p[pairs[0]], p[pairs[1]]])
    extreme = {
        "greater": null >= observed - ROUNDING,
        "less": null <= observed + ROUNDING,
        "two-sided": np.abs(null) >= abs(observed) - ROUNDING,
    }[alternative]
    return MantelTest(observed, float((1 + extreme.sum()) / (1 + n_permutations)), null)


def _same_leaves(a: PartitionTree, b: PartitionTree) -> None:
    for name, tree in (("a", a), ("b", b)):
        if not isinstance(tree, PartitionTree):
            raise TypeError(f"{name}: got {type(tree).__name__}, expected a PartitionTree")
    if a.n_leaves != b.n_leaves:
        raise ValueError(f"b: got a tree of {b.n_leaves} leaves, a has {a.n_leaves}; compare trees of the same points")


def _standard(x: Floats) -> Floats:
    """`x` less its mean, of length 1; zeros where all entries are equal."""
    if not x.size or (x == x[0]).all():
        return np.zeros(x.shape)
    top = np.abs(x).max()
    moved = x / top if top > 0 else x  # squares of what is very large or small leave the range of float64
    moved = moved - moved.mean()
    found: Floats = moved / np.linalg.norm(moved)
    return found


def correlation(x: Floats, y: Floats) -> float:
    """Pearson correlation of two vectors, in [-1, 1]; 0 where all entries of one are equal."""
    with one_blas_thread():
        return _clipped(_standard(x) @ _standard(y))


def _clipped(value: Any) -> float:
    return min(1.0, max(-1.0, float(value)))


def _levels(x: Partitions, name: str) -> NDArray[np.int64]:
    if isinstance(x, PartitionTree):
        return x.labels.astype(np.int64)
    labels = to_numpy(x, name)
    if labels.ndim != 1 or not labels.size:
        raise ValueError(
            f"{name}: got shape {labels.shape}, expected a PartitionTree or the label of every point, (n,)"
        )
    if labels.dtype.kind == "f" and not np.array_equal(labels, np.rint(labels)):
        raise ValueError(f"{name}: got dtype {labels.dtype} with fractions or NaN, expected integers")
    return np.unique(labels, return_inverse=True)[1].reshape(1, -1).astype(np.int64)


def _rand(x: NDArray[np.int64], y: NDArray[np.int64]) -> float:
    """Adjusted Rand index from the table of common points, in whole numbers as far as they go."""
    n = len(x)
    together = _pairs(np.unique(x * (int(y.max()) + 1) + y, return_counts=True)[1])
    in_x, in_y, total = _pairs(np.bincount(x)), _pairs(np.bincount(y)), n * (n - 1) // 2
    if in_x == in_y and in_x in (0, total):  # all apart or all together in both: equal, with nothing left to chance
        return 1.0
    expected = in_x * in_y / total
    return (together - expected) / ((in_x + in_y) / 2 - expected)


def _pairs(counts: NDArray[np.int64]) -> int:
    return int((counts * (counts - 1) // 2).sum())


def _matrix(x: Partitions, name: str) -> Floats:
    if isinstance(x, PartitionTree):
        return x.distance_matrix()
    values: Floats = np.array(to_numpy(x, name), np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not values.size:
        raise ValueError(f"{name}: got shape {values.shape}, expected a PartitionTree or a square matrix (n, n)")
    require_finite(values, name)
    if np.abs(values - values.T).max() > SYMMETRIC * np.abs(values).max():
        raise ValueError(f"{name}: not symmetric, expected a matrix equal to its transpose")
    peak = np.abs(values).max()
    return np.ldexp(values, -int(np.frexp(peak)[1])) if peak else values  # squares stay in range


def _ranked(x: Floats, pairs: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Floats:
    from scipy.stats import rankdata

    out = np.zeros_like(x)
    out[pairs] = rankdata(x[pairs])
    return out + out.T
