"""Diffusion maps: coordinates in which points that a random walk on the affinity joins quickly lie close."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.affinity import square_matrix
from pyattnorg.arrays import Array, FloatArray, given
from pyattnorg.checks import number, whole
from pyattnorg.threads import one_blas_thread

logger = logging.getLogger("pyattnorg")

NEGLIGIBLE = 1e-8  # affinities below this are 0 (method of the questionnaire)
TREE_VECTORS = 12  # leading vectors, the constant included, that flexible trees look at
DENSE = 100  # up to this size a full decomposition is the faster way to a dozen vectors
TOLERANCE = 1e-10  # residuals of eigenvectors, in units of the largest eigenvalue


@dataclass(frozen=True)
class DiffusionMap:
    """Diffusion coordinates of the points of an axis.

    Attributes
    ----------
    coordinates : array, shape (n, k)
        ``|eigenvalue| ** time * phi``; the constant function is left out. The entry of largest magnitude in every
        column is positive.
    eigenvalues : ndarray, shape (k,)
        Of the random walk, by falling magnitude; negative ones can occur.
    n_connected : int
        Connected parts of the affinity. With several, as many eigenvalues (less one) are 1, and coordinates tell
        the parts apart rather than the points in them.
    """

    coordinates: Any
    eigenvalues: NDArray[np.float64]
    n_connected: int


def diffusion_map(affinity: Array, *, n_components: int = 3, time: float = 1.0) -> DiffusionMap:
    """Diffusion coordinates of an affinity (Coifman and Lafon 2006, density normalised).

    Parameters
    ----------
    affinity : array, shape (n, n)
        Symmetric, not negative.
    n_components : int
        Coordinates wanted. There are n - 1; asking for more warns and gives those.
    time : float
        Diffusion time, at least 0: coordinates are scaled by ``|eigenvalue| ** time``.

    Raises
    ------
    ValueError
        A matrix that is not square, symmetric and free of negative entries.
    """
    n_components, time = whole(n_components, "n_components", at_least=1), number(time, "time", at_least=0)
    ours = given(affinity, "affinity", min_ndim=2)
    k = check_affinity(ours.values)
    available = max(len(k) - 1, 0)
    if n_components > available:
        warnings.warn(
            f"n_components: got {n_components}, but {len(k)} points have {available} coordinates; giving those",
            RuntimeWarning,
            stacklevel=2,
        )
    eigenvalues, phi = leading_vectors(k, min(n_components, available))
    coordinates = (np.abs(eigenvalues) ** time * phi).astype(ours.values.dtype)
    return DiffusionMap(ours.back(coordinates), eigenvalues, count_connected(k))


def check_affinity(affinity: FloatArray, name: str = "affinity") -> NDArray[np.float64]:
    """The affinity in float64, checked; negligible entries are 0 and empty rows are joined to themselves."""
    apart = square_matrix(affinity, name)
    if len(affinity) == 0:
        raise ValueError(f"{name}: got an empty matrix, expected at least one point")
    k = np.array(affinity, np.float64)
    if apart:
        k = (k + k.T) / 2
    k *= k > NEGLIGIBLE
    empty = ~k.any(1)
    if empty.any():
        k[empty, empty] = 1
        logger.warning("%s: %d point(s) are like no other, not even themselves; each stands alone", name, empty.sum())
    return k


def leading_vectors(k: NDArray[np.float64], m: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Leading `m` eigenvalues and eigenvectors of the random walk on a checked affinity, the constant left out.

    ``P = K / (d d')`` with ``d = K 1``, ``S = P / (e e')`` with ``e = sqrt(P 1)``; S e = e is known, so the symmetric
    S - v v' with ``v = e / |e|`` is decomposed and its vectors divided by v. Magnitudes below n times the machine
    epsilon count as 0. Returns (m,) by falling magnitude and (n, m); the largest entry of a vector is positive.
    """
    n = len(k)
    if m == 0:
        return np.zeros(0), np.zeros((n, 0))
    with one_blas_thread():
        d = k.sum(1)
        e = np.sqrt(k @ (1 / d) / d)
        v = e / np.linalg.norm(e)
        s = _scaled(k, 1 / (d * e))
        values, vectors = _largest(s, v, m)
    order = np.argsort(-np.abs(values), kind="stable")[:m]
    values, vectors = values[order], vectors[:, order]
    values = np.where(np.abs(values) < n * np.finfo(float).eps, 0.0, values)
    phi = vectors / v[:, None]
    peak = phi[np.argmax(np.abs(phi), axis=0), np.arange(m)]
    return values, phi * np.where(peak < 0, -1.0, 1.0)


def _scaled(k: NDArray[np.float64], f: NDArray[np.float64]) -> NDArray[np.float64]:
    """``f_i k_ij f_j``, symmetric to the last bit, without a second matrix of factors."""
    out = np.empty_like(k)
    for begin in range(0, len(k), 64):
        rows = slice(begin, begin + 64)
        np.multiply(f[rows, None], f[None], out=out[rows])
        out[rows] *= k[rows]
    return out


def _largest(s: NDArray[np.float64], v: NDArray[np.float64], m: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenpairs of largest magnitude of a symmetric matrix, at least `m` of them, its eigenvector `v` left out."""
    import scipy.linalg

    if len(s) > DENSE:
        # Connected parts have an eigenvalue 1 each; their vectors are known and may be too many for a Krylov space.
        parts = _parts(s)
        known = np.where(parts == np.arange(parts.max() + 1)[:, None], v, 0.0)
        known /= np.linalg.norm(known, axis=1)[:, None]
        if len(known) > m:
            return np.ones(m), _clear_of(v, known)[:, :m]
        found = kernels.largest_eigenpairs(s, known, m - len(known) + 1, TOLERANCE) if m >= len(known) else None
        if found is not None:
            values, vectors = found
            ones = _clear_of(v, known)
            return np.concatenate([np.ones(ones.shape[1]), values]), np.concatenate([ones, vectors.T], axis=1)
        logger.info("the Krylov space did not converge at n = %d; decomposing fully", len(s))
    values, vectors = scipy.linalg.eigh(s - np.outer(v, v), driver="evd")
    return values, vectors


def _clear_of(v: NDArray[np.float64], known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal vectors that span what the rows of `known` do, apart from `v`; shape (n, len(known) - 1)."""
    weights = known @ v
    basis = np.linalg.qr(np.column_stack([weights, np.eye(len(known))[:, :-1]]))[0]
    found: NDArray[np.float64] = known.T @ basis[:, 1:]
    return found


def _parts(s: NDArray[np.float64]) -> NDArray[np.int32]:
    """Which connected part every point belongs to."""
    from scipy.sparse.csgraph import connected_components

    if (s > 0).all():
        return np.zeros(len(s), np.int32)
    labels: NDArray[np.int32] = connected_components(s > 0, directed=False)[1]
    return labels


def tree_coordinates(affinity: FloatArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """|Eigenvalues| (m,) and vectors (n, m) that flexible trees are built from, m = min(12, n) - 1."""
    k = check_affinity(affinity)
    values, phi = leading_vectors(k, min(TREE_VECTORS, len(k)) - 1)
    return np.abs(values), phi


def count_connected(k: NDArray[np.float64]) -> int:
    """Number of connected parts of an affinity."""
    return int(_parts(k).max()) + 1
