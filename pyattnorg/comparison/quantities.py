"""How well a sub-tensor is organised: the numbers and curves that networks are compared by, beside a null's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.haar import haar
from pyattnorg.holder import mixed_holder
from pyattnorg.questionnaire import Questionnaire
from pyattnorg.sparsity import coefficients_needed, effective_number, l1_entropy
from pyattnorg.threads import one_blas_thread
from pyattnorg.tree_comparison import correlation
from pyattnorg.trees import PartitionTree

Floats = NDArray[np.float64]
ERROR = 0.05
LEVELS = 64  # of the quantile function of heads
SHARES = np.geomspace(1e-4, 1.0, 61)  # of coefficients, where the curve of errors is kept
DEPTHS = np.linspace(0.0, 1.0, 21)  # of a tree, root to leaves, where sizes of folders are kept


@dataclass(frozen=True)
class Quantity:
    """A quantity and how it is read.

    Attributes
    ----------
    name, means : str
    better : {"lower", "higher", ""}
        Which way is better organised; nothing where neither is.
    contrast : {"ratio", "difference"}
        With the null: the logarithm of the ratio, or the difference.
    unit : float
        What counts as 1 in the distance; 0 where it is not counted.
    size : str
        How it depends on the size of the tensor.
    """

    name: str
    means: str
    better: Literal["lower", "higher", ""]
    contrast: Literal["ratio", "difference"]
    unit: float
    size: str


QUANTITIES = (
    Quantity("entropy", "normalised l1 entropy", "lower", "ratio", 0.1, "falls as a tensor grows"),
    Quantity("effective", "effective number of coefficients over N", "lower", "ratio", 0.0, "as entropy, squared"),
    Quantity("needed", "share of coefficients for 5 % error", "lower", "ratio", 0.2, "falls as a tensor grows"),
    Quantity("decay", "area under error against share kept", "lower", "ratio", 0.2, "falls as a tensor grows"),
    Quantity("smoothness", "mixed-Hoelder exponent", "higher", "difference", 0.1, "none for a power law"),
    Quantity(
        "imbalance", "Sackin index of the head tree over Yule's", "", "ratio", 0.2, "1 for Yule trees of any size"
    ),
    Quantity("fit", "cophenetic correlation of the head tree", "higher", "difference", 0.1, "falls slowly with heads"),
    Quantity("alone", "share of heads that stand alone", "", "difference", 0.1, "falls with heads, grows with tokens"),
    Quantity("rank", "effective rank of the head affinity over h", "lower", "ratio", 0.2, "falls with heads"),
)
HEADS_UNIT = SPECTRUM_UNIT = 0.1
NAMES = tuple(quantity.name for quantity in QUANTITIES)


class Numbers(NamedTuple):
    """Of one tensor: values in the order of `QUANTITIES`, entropy of every head, and curves."""

    values: Floats
    heads: Floats
    spectrum: Floats
    errors: Floats
    folders: Floats


class Measured(NamedTuple):
    """Of a sub-tensor and its null: the values of both, contrasts, and what distributions and curves are kept."""

    values: Floats
    null: Floats
    contrasts: Floats
    heads: Floats  # (h,), logarithm of entropy over the null's
    spectrum: Floats
    errors: Floats
    null_errors: Floats
    folders: Floats


def measure(x: FloatArray, null: FloatArray, options: Mapping[str, Any]) -> Measured:
    """A tensor set against its null."""
    found, beside = numbers(x, options), numbers(null, options)
    contrasts = np.array(
        [
            _log_ratio(a, b) if quantity.contrast == "ratio" else a - b
            for quantity, a, b in zip(QUANTITIES, found.values, beside.values)
        ]
    )
    heads = np.array([_log_ratio(a, b) for a, b in zip(found.heads, beside.heads)])
    return Measured(
        found.values, beside.values, contrasts, heads, found.spectrum, found.errors, beside.errors, found.folders
    )


def numbers(x: FloatArray, options: Mapping[str, Any]) -> Numbers:
    """All quantities of a tensor, organised by itself. None depends on its scale."""
    peak = float(np.abs(x).max())
    shift = -int(np.frexp(peak)[1])
    x = np.ldexp(x, shift)  # by a power of two, exactly: no square leaves the range of numbers
    if options.get("missing") is not None:
        options = {**options, "missing": float(np.ldexp(options["missing"], shift))}
    fitted = Questionnaire(**options).fit(x)
    c = fitted.coefficients()
    tree, distances, h = fitted.trees_[2], fitted.distances_[2], x.shape[2]
    errors = error_curve(c)
    spectrum = eigenvalue_shares(fitted.affinities_[2])
    parts = np.bincount(tree.parts(max(2, h // 3) if h > 2 else 1))
    holder = mixed_holder(x, fitted.trees_).exponent if max(x.shape) > 1 else np.nan
    pairs = np.triu_indices(h, 1)
    fit = correlation(tree.distance_matrix()[pairs], np.asarray(distances, np.float64)[pairs]) if h > 2 else np.nan
    values = (
        l1_entropy(c),
        effective_number(c) / c.size,
        coefficients_needed(c, ERROR) / c.size,
        float(errors.mean()),
        holder,
        imbalance(tree),
        fit,
        float((parts == 1).sum()) / h if h > 2 else np.nan,
        effective_rank(spectrum) / h if h > 1 else np.nan,
    )
    share = np.arange(1, c.size + 1) / c.size
    curve = np.interp(np.log(SHARES), np.log(share), errors)
    return Numbers(np.array(values), _head_entropies(x, fitted.trees_), spectrum, curve, folder_profile(tree))


def error_curve(c: FloatArray) -> Floats:
    """Relative l2 error after the 1, 2, ... largest coefficients, (N,), falling to 0; zeros for zeros."""
    magnitude = np.sort(np.abs(c), axis=None).astype(np.float64)
    if not magnitude.size or not magnitude[-1]:
        return np.zeros(magnitude.size)
    left = np.cumsum(np.square(magnitude / magnitude[-1]))
    out: Floats = np.sqrt(np.append(left[:-1][::-1], 0.0) / left[-1])
    return out


def imbalance(tree: PartitionTree) -> float:
    """Sackin's index, the sum of the depths of leaves, over what it is on average for Yule trees; NaN below 3 leaves.

    Depth counts distinct folders. Yule's expectation is ``2 n (1/2 + 1/3 + ... + 1/n)`` (Kirkpatrick and Slatkin 1993).
    """
    n = tree.n_leaves
    if n < 3:
        return float("nan")
    folders = tree.folders()
    depth = np.zeros(len(folders), np.int64)
    for i in range(1, len(folders)):  # parents come before their children
        depth[i] = depth[folders.parent[i]] + 1
    return float(depth[folders.size == 1].sum() / (2 * n * (1 / np.arange(2, n + 1)).sum()))


def folder_profile(tree: PartitionTree) -> Floats:
    """Mean share of the points in a point's folder, from the root (1) to the leaves (1/n), at relative depths."""
    sizes = np.array([np.mean(np.bincount(row)[row]) for row in tree.labels]) / tree.n_leaves
    return np.interp(DEPTHS, np.linspace(0, 1, len(sizes)), sizes) if len(sizes) > 1 else np.ones(len(DEPTHS))


def eigenvalue_shares(affinity: FloatArray) -> Floats:
    """Eigenvalues over their sum, largest first; negative ones, which rounding can give, count as 0."""
    with one_blas_thread():
        found = np.maximum(np.linalg.eigvalsh(np.asarray(affinity, np.float64))[::-1], 0.0)
    shares: Floats = found / found.sum()  # the trace is the number of points, so there are positive ones
    return shares


def effective_rank(shares: Floats) -> float:
    """Exponential of the entropy of shares (Roy and Vetterli 2007)."""
    some = shares[shares > 0]
    return float(np.exp(-(some * np.log(some)).sum()))


def quantile_function(heads: Floats) -> Floats:
    """Quantiles of heads at the middles of `LEVELS` equal steps, so that distributions of any size can be averaged."""
    found: Floats = np.quantile(heads, (np.arange(LEVELS) + 0.5) / LEVELS)
    return found


def _head_entropies(x: FloatArray, trees: tuple[PartitionTree, ...]) -> Floats:
    """Normalised l1 entropy of every head in the bi-Haar basis of the query and key trees."""
    c = np.abs(haar(x, [trees[0], trees[1], None])).astype(np.float64)
    top = c.max((0, 1))
    c /= np.where(top, top, 1)
    length = np.sqrt(np.square(c).sum((0, 1)) * (c.shape[0] * c.shape[1]))
    out: Floats = c.sum((0, 1)) / np.where(top, length, 1)
    return out


def _log_ratio(a: float, b: float) -> float:
    """Logarithm of a / b; 0 where both are 0: there is nothing to organise."""
    if a == b:
        return 0.0
    return float(np.log(a / b)) if a > 0 and b > 0 else float("nan")
