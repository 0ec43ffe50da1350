"""Affinities between the points of an axis: from the data for the start, from distances afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyattnorg import kernels
from pyattnorg.arrays import Array, FloatArray, given, to_numpy
from pyattnorg.checks import number, whole


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
    known = None
    if missing is not None:
        raw = to_numpy(x, "x")
        unknown = np.isnan(raw) if np.isnan(missing) or np.isnan(raw.sum()) else raw == missing
        if unknown.any():
            known = ~(unknown | (raw == missing))
            x = np.where(np.isnan(raw), 0, raw) if np.isnan(raw.sum()) else raw
    ours = given(x, "x")
    rows = ours.values.reshape(len(ours.values), -1)
    if known is None:
        products = kernels.pairwise(rows, term="products")
        squares = np.diagonal(products)
        lengths = squares[:, None] * squares[None]
    else:
        m = known.reshape(rows.shape)
        rows = np.where(m, rows, rows.dtype.type(0))
        products = kernels.pairwise(rows, term="products")
        squares = kernels.pairwise(rows * rows, m.astype(rows.dtype), term="products")
        lengths = squares * squares.T
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        out = products / np.sqrt(lengths)
    out = np.where(np.isfinite(out), np.clip(out, 0, 1), 0).astype(rows.dtype)
    np.fill_diagonal(out, 1)
    return ours.back(out)


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
    squares = kernels.pairwise(ours.values.reshape(n, -1), term="squares")
    if n == 0:
        return ours.back(squares)
    k = min(neighbors, n)
    nearest = np.sqrt(np.partition(squares, k - 1, axis=1)[:, :k])
    width = scale * np.median(nearest, axis=1)
    width[width == 0] = 1
    half = np.exp(-squares / width[:, None] ** 2)
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
    if e.min() < 0:
        raise ValueError(f"distances: got {e.min()} as the least entry, expected none below 0")
    middle = float(kernels.median(e))
    if middle == 0:
        middle = 1.0
    return ours.back(np.exp(e / e.dtype.type(-scale * middle)))


def square_matrix(x: FloatArray, name: str) -> None:
    """Raise unless `x` is square and symmetric (to rounding)."""
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ValueError(f"{name}: got shape {x.shape}, expected a square matrix (n, n)")
    if x.size and not np.allclose(x, x.T, rtol=1e-3, atol=1e-6 * float(np.abs(x).max())):
        raise ValueError(f"{name}: not symmetric, expected a matrix equal to its transpose")
