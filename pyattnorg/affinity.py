"""Affinities between the points of an axis: from the data for the start, from distances afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array, FloatArray, given, to_numpy, way_back
from pyattnorg.checks import number, whole

SYMMETRIC = 1e-4  # how far a matrix may be from its transpose, in units of its largest entry


def cosine_affinity(x: Array, *, missing: float | None = None) -> Any:
    """Cosine of the angle between points, negative ones as 0.

    Parameters
    ----------
    x : array, shape (n, ...)
        One point a row; further axes are flattened.
    missing : float, optional
        Entries equal to this (or NaN, with ``missing=nan``) are unknown: a pair is compared on the entries that both
        know (the mutual cosine of Ankenman's questionnaire). The paper's code takes 0 as missing, which for masked
        attention weights makes unlike points alike; so nothing is missing unless you say so.

    Returns
    -------
    array, shape (n, n)
        In [0, 1], symmetric, ones on the diagonal; a point with no length is like itself only.
    """
    back, known = way_back(x), None
    if missing is not None:
        x = to_numpy(x, "x")
        holes = bool(np.isnan(x.sum()))
        unknown = np.isnan(x) | (x == missing) if holes else x == missing
        if unknown.any():
            known = ~unknown
            x = np.where(unknown, x.dtype.type(0), x) if missing != 0 or holes else x
    ours = given(x, "x")
    rows = ours.values.reshape(len(ours.values), int(np.prod(ours.values.shape[1:], dtype=np.int64)))
    m = None if known is None or missing == 0 else known.reshape(rows.shape)
    mutual = known is not None
    try:
        products, lengths = _products(rows, mutual, m)
    except kernels.SumOverflowError:
        lengths = np.zeros(0)
    if not lengths.size or lengths.min() < np.finfo(rows.dtype).tiny or not np.isfinite(lengths.max()):
        # Squares may have left the range of the dtype: cosines do not change when rows are scaled by powers of two.
        peak = np.abs(rows).max(1, initial=0, keepdims=True)
        rows = np.ldexp(rows, -np.frexp(np.where(peak > 0, peak, 1))[1])
        products, lengths = _products(rows, mutual, m)
    with np.errstate(invalid="ignore", divide="ignore"):
        out = products / np.sqrt(lengths)
    out = np.where(lengths > 0, np.clip(out, 0, 1), 0).astype(rows.dtype)
    np.fill_diagonal(out, 1)
    return back(out)


def _products(
    rows: FloatArray, mutual: bool, known: NDArray[np.bool_] | None
) -> tuple[FloatArray, NDArray[np.float64]]:
    """Inner products of rows, and the products of squared lengths that cosines divide them by.

    Mutual lengths count what both points know: entries that are not 0, or those of `known` where it is given.
    """
    products: FloatArray = kernels.pairwise(rows, term="products")
    with np.errstate(over="ignore", under="ignore"):
        if not mutual:
            squares = np.diagonal(products).astype(np.float64)
            return products, squares[:, None] * squares[None]
        if known is None:
            squares = kernels.pairwise(rows, term="masked").astype(np.float64)
        else:
            squares = kernels.pairwise(known.astype(rows.dtype), rows, term="masked").astype(np.float64)
        return products, squares * squares.T


def gaussian_affinity(x: Array, *, neighbors: int = 5, scale: float = 1.0) -> Any:
    """Gaussian kernel whose width follows the density of points.

    ``K_ij = (exp(-d_ij^2 / s_i^2) + exp(-d_ij^2 / s_j^2)) / 2`` with ``s_i`` the median of the distances from point i
    to its `neighbors` nearest, itself counted, times `scale`; 1 where that is 0.

    Parameters
    ----------
    x : array, shape (n, ...)
        One point a row; further axes are flattened.
    neighbors : int
        At least 1; more than n means n.
    scale : float
        Positive.

    Returns
    -------
    array, shape (n, n)
        In [0, 1], symmetric, ones on the diagonal.
    """
    neighbors, scale = whole(neighbors, "neighbors", at_least=1), number(scale, "scale", above=0)
    ours = given(x, "x")
    n = len(ours.values)
    rows = ours.values.reshape(n, int(np.prod(ours.values.shape[1:], dtype=np.int64)))
    # Distances and widths scale alike: values near 1 keep their squares in the range of the dtype.
    peak = float(np.abs(rows).max(initial=0))
    if peak and not 1e-12 < peak < 1e12:
        rows = np.ldexp(rows, -int(np.frexp(peak)[1]))
    squares = kernels.pairwise(rows, term="squares")
    if n == 0:
        return ours.back(squares)
    k = min(neighbors, n)
    distances = np.sqrt(squares, dtype=np.float64)
    width = np.median(np.partition(distances, k - 1, axis=1)[:, :k], axis=1)
    width[width == 0] = 1 / scale
    with np.errstate(over="ignore", under="ignore"):  # far apart for their width: 0
        half = np.exp(-np.square(distances / width[:, None] / scale))
    return ours.back(((half + half.T) / 2).astype(squares.dtype))


def dual_affinity(distances: Array, *, scale: float = 1.0) -> Any:
    """``exp(-E / (scale m))`` with m the median of all entries of E, zeros on the diagonal included; 1 if that is 0.

    Parameters
    ----------
    distances : array, shape (n, n)
        Symmetric, not negative, such as `pyattnorg.tree_emd` gives.

    Returns
    -------
    array, shape (n, n)
        In [0, 1], ones on the diagonal (values below the smallest number become 0).
    """
    scale = number(scale, "scale", above=0)
    ours = given(distances, "distances", min_ndim=2)
    e = ours.values
    square_matrix(e, "distances")
    if e.size == 0:
        return ours.back(e.copy())
    middle = float(kernels.median(e))
    if middle == 0:
        middle = 1.0
    with np.errstate(over="ignore", under="ignore"):  # far apart: 0
        return ours.back(np.exp(e / -np.float64(middle) / scale).astype(e.dtype, copy=False))


def square_matrix(x: FloatArray, name: str) -> float:
    """How far `x` is from its transpose; raises unless square, symmetric to rounding and without entries below 0."""
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ValueError(f"{name}: got shape {x.shape}, expected a square matrix (n, n)")
    if x.size == 0:
        return 0.0
    apart, least, largest = kernels.symmetry(x)
    if least < 0:
        raise ValueError(f"{name}: got {least} as the least entry, expected none below 0")
    if apart > SYMMETRIC * largest:
        raise ValueError(f"{name}: not symmetric, expected a matrix equal to its transpose")
    return apart
