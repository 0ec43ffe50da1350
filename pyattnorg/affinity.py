"""Affinities between the points of an axis: from the data for the start, from distances afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg import devices, kernels, on_device
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
    if memory := devices.memory_for(x):
        return on_device.cosine_affinity(memory, x, missing)
    back, known, mutual = way_back(x), None, False
    if missing is not None:
        x = to_numpy(x, "x")
        with np.errstate(over="ignore", invalid="ignore"):  # a sum that leaves the range only means a closer look
            holes = bool(np.isnan(x.sum()))
        if missing == 0 and not holes:
            mutual = not x.all()  # without a copy of what may be a whole network
        else:
            unknown = np.isnan(x) | (x == missing) if holes else x == missing
            mutual = bool(unknown.any())
            known = ~unknown if missing != 0 else None
            x = np.where(unknown, x.dtype.type(0), x) if mutual else x
    ours = given(x, "x")
    rows = ours.values.reshape(len(ours.values), int(np.prod(ours.values.shape[1:], dtype=np.int64)))
    m = None if known is None else known.reshape(rows.shape)
    try:
        found = _cosines(rows, mutual, m)
    except kernels.SumOverflowError:
        found = None
    if found is None:
        # Squares have left the range of the dtype: cosines do not change when rows are scaled by powers of two.
        peak = np.abs(rows).max(1, initial=0, keepdims=True)
        found = _cosines(np.ldexp(rows, -np.frexp(np.where(peak > 0, peak, 1))[1]), mutual, m, anyway=True)
    assert found is not None
    np.fill_diagonal(found, 1)
    return back(found)


def _cosines(
    rows: FloatArray, mutual: bool, known: NDArray[np.bool_] | None, anyway: bool = False
) -> FloatArray | None:
    """Cosines of rows, 0 where they are negative or have no length; None where squares may have lost digits.

    Mutual lengths count what both points know: entries that are not 0, or those of `known` where it is given.
    """
    out: FloatArray = kernels.pairwise(rows, term="products")
    if not mutual:
        squares = np.diagonal(out).astype(np.float64)
        mine, others = np.broadcast_to(squares[:, None], out.shape), np.broadcast_to(squares, out.shape)
    else:
        left = rows if known is None else known.astype(rows.dtype)
        mine = kernels.pairwise(left, None if known is None else rows, term="masked").astype(np.float64)
        others = mine.T
    tiny = np.finfo(rows.dtype).tiny
    for some in _stretches(len(out)):
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            lengths = mine[some] * others[some]
            if not (anyway or (lengths.min(initial=1) >= tiny and np.isfinite(lengths.max(initial=1)))):
                return None
            cosines = out[some] / np.sqrt(lengths)
        out[some] = np.where(lengths > 0, np.clip(cosines, 0, 1), 0)
    return out


def _stretches(n: int) -> list[slice]:
    """Rows of an (n, n) matrix in stretches that stay in cache while several operations pass over them."""
    rows = max(1, 2**15 // max(n, 1))
    return [slice(begin, begin + rows) for begin in range(0, n, rows)]


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
    if memory := devices.memory_for(x):
        return on_device.gaussian_affinity(memory, x, neighbors, scale)
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
    width = np.empty(n)
    for some in _stretches(n):
        width[some] = np.median(np.partition(np.sqrt(squares[some], dtype=np.float64), k - 1, axis=1)[:, :k], axis=1)
    width[width == 0] = 1 / scale
    with np.errstate(over="ignore", under="ignore"):  # far apart for their width: 0
        for some in _stretches(n):
            distances = np.sqrt(squares[some], dtype=np.float64)
            mine = np.exp(-np.square(distances / width[some, None] / scale))
            squares[some] = (mine + np.exp(-np.square(distances / width / scale))) / 2
    return ours.back(squares)


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
    if memory := devices.memory_for(distances):
        return on_device.dual_affinity(memory, distances, scale)
    ours = given(distances, "distances", min_ndim=2)
    e = ours.values
    square_matrix(e, "distances")
    if e.size == 0:
        return ours.back(e.copy())
    middle = float(kernels.median(e))
    if middle == 0:
        middle = 1.0
    out = np.empty_like(e)
    with np.errstate(over="ignore", under="ignore"):  # far apart: 0
        for some in _stretches(len(e)):
            out[some] = np.exp(e[some] / -np.float64(middle) / scale)
    return ours.back(out)


def square_matrix(x: FloatArray, name: str) -> tuple[float, float]:
    """How far `x` is from its transpose, and its least entry; raises unless square, symmetric to rounding and >= 0."""
    if x.ndim != 2 or x.shape[0] != x.shape[1]:
        raise ValueError(f"{name}: got shape {x.shape}, expected a square matrix (n, n)")
    if x.size == 0:
        return 0.0, 0.0
    apart, least, largest = kernels.symmetry(x)
    if least < 0:
        raise ValueError(f"{name}: got {least} as the least entry, expected none below 0")
    if apart > SYMMETRIC * largest:
        raise ValueError(f"{name}: not symmetric, expected a matrix equal to its transpose")
    return apart, least
