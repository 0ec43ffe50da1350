"""Diffusion maps: coordinates in which points that a random walk on the affinity joins quickly lie close."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.affinity import square_matrix
from pyattnorg.arrays import Array, FloatArray, given, to_numpy
from pyattnorg.checks import number, one_of, whole
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
        column is positive. (For ``variant="paper"``, the eigenvectors themselves.)
    eigenvalues : ndarray, shape (k,)
        Of the random walk, by falling magnitude; negative ones can occur.
    parts : ndarray of int32, shape (n,)
        Connected part of the affinity that every point belongs to, numbered by first point.
    density : ndarray, shape (n,), or None
        What affinities with a point are divided by, ``(sum of its affinities) ** alpha``; None for ``variant="paper"``.
    """

    coordinates: Any
    eigenvalues: NDArray[np.float64]
    parts: NDArray[np.int32]
    density: NDArray[np.float64] | None

    @property
    def n_connected(self) -> int:
        """Number of connected parts: with several, as many eigenvalues (less one) are 1 and only tell parts apart."""
        return int(self.parts.max()) + 1

    @property
    def part_sizes(self) -> NDArray[np.int64]:
        """Points of every connected part."""
        return np.bincount(self.parts)

    def summary(self) -> str:
        """One line on how the affinity hangs together and what that means for the coordinates."""
        n, sizes = len(self.parts), np.sort(self.part_sizes)[::-1]
        if len(sizes) == 1:
            return f"{n} points, connected"
        said = ", ".join(str(size) for size in sizes[:8]) + (", ..." if len(sizes) > 8 else "")
        ones = min(len(sizes) - 1, len(self.eigenvalues))
        return (
            f"{n} points in {len(sizes)} connected parts of {said}; the first {ones} coordinate(s) only tell parts "
            "apart: map a part alone (parts == 0, 1, ...) to see inside it"
        )

    def extend(self, affinity: Array) -> Any:
        """Coordinates of further points, by their affinities to those of the map (Nystrom extension).

        ``phi(z) = sum over y of p(z, y) phi(y) / eigenvalue`` with p the step of the walk from z, its density divided
        out as for the map (Coifman and Lafon 2006, Geometric harmonics). Points of the map keep their coordinates.

        Parameters
        ----------
        affinity : array, shape (m, n)
            Of m further points to the n of the map, made as the affinity of the map was; not negative.

        Returns
        -------
        array, shape (m, k)
            Of the kind and device of `affinity`. Coordinates whose eigenvalue is 0 say nothing about others: 0. Those
            whose eigenvalue is small amplify errors by its inverse.

        Raises
        ------
        ValueError
            A point that is like none of the map, a map of the paper's variant, a shape that does not fit.
        """
        if self.density is None:
            raise ValueError("variant: the paper's has no extension to further points; make the map with 'diffusion'")
        ours = given(affinity, "affinity", min_ndim=2)
        if ours.values.ndim != 2 or ours.values.shape[1] != len(self.density):
            raise ValueError(f"affinity: got shape {ours.values.shape}, expected (m, {len(self.density)})")
        k = np.array(ours.values, np.float64, order="C")  # sums follow the layout, which must change no byte
        if (k < 0).any():
            raise ValueError(f"affinity: got {k.min()} as the least entry, expected none below 0")
        k *= k > NEGLIGIBLE
        lonely = np.flatnonzero(~k.any(1))
        if len(lonely):
            raise ValueError(f"affinity: point {lonely[0]} is like none of the map, so that it has no place there")
        k /= k.max(1, keepdims=True)
        k /= self.density / self.density.max()
        known = to_numpy(self.coordinates, "coordinates").astype(np.float64)
        with one_blas_thread():
            step = k @ known / k.sum(1, keepdims=True)
        eigenvalues = np.where(self.eigenvalues == 0, np.inf, self.eigenvalues)
        return ours.back((step / eigenvalues).astype(ours.values.dtype))


def diffusion_map(
    affinity: Array,
    *,
    n_components: int = 3,
    time: float = 1.0,
    alpha: float = 1.0,
    variant: Literal["diffusion", "paper"] = "diffusion",
) -> DiffusionMap:
    """Diffusion coordinates of an affinity (Coifman and Lafon 2006, Diffusion maps).

    Parameters
    ----------
    affinity : array, shape (n, n)
        Symmetric, not negative, of entries near 1: those up to 1e-8 count as 0.
    n_components : int
        Coordinates wanted. There are n - 1; asking for more warns and gives those.
    time : float
        Diffusion time, at least 0: coordinates are scaled by ``|eigenvalue| ** time``.
    alpha : float
        How much of the density of points is divided out, from 0 (none: the graph's own random walk) to 1 (all: the
        shape that the points lie on, however unevenly).
    variant : {"diffusion", "paper"}
        ``"paper"`` gives what the code of arXiv 2506.15541 plots under this name: eigenvectors of
        ``D^(-1/2) A D^(-1/2)`` for its *smallest* eigenvalues, by rising eigenvalue. They tell how the walk
        alternates, not which points it joins, so this is no diffusion map; it is here to compare with that paper.

    Raises
    ------
    ValueError
        A matrix that is not square, symmetric and free of negative entries; a time or alpha for the paper's variant,
        which has neither.
    """
    n_components, time = whole(n_components, "n_components", at_least=1), number(time, "time", at_least=0)
    alpha = number(alpha, "alpha", at_least=0)
    if alpha > 1:
        raise ValueError(f"alpha: got {alpha!r}, expected a number from 0 to 1")
    one_of(variant, "variant", ("diffusion", "paper"))
    ours = given(affinity, "affinity", min_ndim=2)
    k = check_affinity(ours.values)
    paper = variant == "paper"
    if paper and (time, alpha) != (1.0, 1.0):
        raise ValueError("variant: the paper's has no time and no alpha; leave them out")
    available = len(k) if paper else len(k) - 1
    if n_components > available:
        warnings.warn(
            f"n_components: got {n_components}, but {len(k)} points have {available} coordinates; giving those",
            RuntimeWarning,
            stacklevel=2,
        )
    n_components = min(n_components, available)
    if paper:
        eigenvalues, coordinates = smallest_vectors(k, n_components)
        density = None
    else:
        sums = row_sums(k)
        eigenvalues, phi = leading_vectors(k, n_components, alpha, sums)
        coordinates = np.abs(eigenvalues) ** time * phi
        density = sums**alpha
    return DiffusionMap(ours.back(coordinates.astype(ours.values.dtype)), eigenvalues, _parts(k), density)


def check_affinity(affinity: FloatArray, name: str = "affinity") -> FloatArray:
    """The affinity, checked; negligible entries are 0 and empty rows are joined to themselves. Not to be changed."""
    apart, least = square_matrix(affinity, name)
    if len(affinity) == 0:
        raise ValueError(f"{name}: got an empty matrix, expected at least one point")
    k = (affinity + affinity.T) / 2 if apart else affinity
    if least > NEGLIGIBLE:
        return k
    k = k * (k > NEGLIGIBLE)
    empty = ~k.any(1)
    if empty.any():
        k[empty, empty] = 1
        logger.warning("%s: %d point(s) are like no other, not even themselves; each stands alone", name, empty.sum())
    return k


def row_sums(k: FloatArray) -> NDArray[np.float64]:
    """Sums of the rows of an affinity in float64."""
    sums: NDArray[np.float64] = kernels.products(k, np.ones((1, len(k))))[0]
    kernels.within_range(sums, "affinity")
    return sums


def leading_vectors(
    k: FloatArray, m: int, alpha: float = 1.0, sums: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Leading `m` eigenvalues and eigenvectors of the random walk on a checked affinity, the constant left out.

    ``P = K / (d d')`` with ``d = (K 1) ** alpha``, ``S = P / (e e')`` with ``e = sqrt(P 1)``; S e = e is known, so the
    symmetric S - v v' with ``v = e / |e|`` is decomposed and its vectors divided by v. Magnitudes below n times the
    machine epsilon count as 0. `sums` are those of the rows, where they are known. Returns (m,) by falling magnitude
    and (n, m); the largest entry of a vector is positive.
    """
    n = len(k)
    if m == 0:
        return np.zeros(0), np.zeros((n, 0))
    with one_blas_thread():
        d = (row_sums(k) if sums is None else sums) ** alpha
        e = np.sqrt(kernels.products(k, 1 / d[None])[0] / d)
        v = e / np.linalg.norm(e)
        values, vectors = _largest(k, 1 / (d * e), v, m)
    order = np.argsort(-np.abs(values), kind="stable")[:m]
    values, vectors = values[order], vectors[:, order]
    values = np.where(np.abs(values) < n * np.finfo(float).eps, 0.0, values)
    return values, _signed(vectors / v[:, None])


def smallest_vectors(k: FloatArray, m: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The `m` smallest eigenvalues of ``D^(-1/2) K D^(-1/2)``, rising, and their eigenvectors (n, m)."""
    import scipy.linalg

    f = 1 / np.sqrt(row_sums(k))
    with one_blas_thread():
        values, vectors = scipy.linalg.eigh(_scaled(k, f), driver="evd")
    return values[:m], _signed(vectors[:, :m])


def _signed(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns turned so that the entry of largest magnitude is positive, the first of several."""
    peak = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(vectors.shape[1])]
    return vectors * np.where(peak < 0, -1.0, 1.0)


def _scaled(k: FloatArray, f: NDArray[np.float64]) -> NDArray[np.float64]:
    """``f_i k_ij f_j``, symmetric to the last bit, without a second matrix of factors."""
    out = np.empty(k.shape)
    for begin in range(0, len(k), 64):
        rows = slice(begin, begin + 64)
        np.multiply(f[rows, None], f[None], out=out[rows])
        out[rows] *= k[rows]
    return out


def _largest(
    k: FloatArray, f: NDArray[np.float64], v: NDArray[np.float64], m: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenpairs of largest magnitude of ``S = f k f'``, at least `m` of them, its eigenvector `v` left out."""
    import scipy.linalg

    if len(k) > DENSE:
        # Connected parts have an eigenvalue 1 each; their vectors are known and may be too many for a Krylov space.
        parts = _parts(k)
        known = np.where(parts == np.arange(parts.max() + 1)[:, None], v, 0.0)
        known /= np.linalg.norm(known, axis=1)[:, None]
        if len(known) > m:
            return np.ones(m), _clear_of(v, known)[:, :m]
        found = kernels.largest_eigenpairs(k, f, known, m - len(known) + 1, TOLERANCE) if m >= len(known) else None
        if found is not None:
            values, vectors = found
            ones = _clear_of(v, known)
            return np.concatenate([np.ones(ones.shape[1]), values]), np.concatenate([ones, vectors.T], axis=1)
        logger.info("the Krylov space did not converge at n = %d; decomposing fully", len(k))
    values, vectors = scipy.linalg.eigh(_scaled(k, f) - np.outer(v, v), driver="evd")
    return values, vectors


def _clear_of(v: NDArray[np.float64], known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal vectors that span what the rows of `known` do, apart from `v`; shape (n, len(known) - 1)."""
    weights = known @ v
    basis = np.linalg.qr(np.column_stack([weights, np.eye(len(known))[:, :-1]]))[0]
    found: NDArray[np.float64] = known.T @ basis[:, 1:]
    return found


def _parts(k: FloatArray) -> NDArray[np.int32]:
    """Which connected part every point belongs to, numbered by first point."""
    labels = np.full(len(k), -1, np.int32)
    for part in range(len(k)):
        if (labels >= 0).all():
            break
        new = np.flatnonzero(labels < 0)[:1]
        while len(new):  # most often a few rows reach everybody
            labels[new] = part
            near = np.zeros(len(k), bool)
            for begin in range(0, len(new), 16):
                near |= (k[new[begin : begin + 16]] > 0).any(0)
                if (near | (labels >= 0)).all():
                    break
            new = np.flatnonzero(near & (labels < 0))
    return labels


def tree_coordinates(affinity: FloatArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """|Eigenvalues| (m,) and vectors (n, m) that flexible trees are built from, m = min(12, n) - 1."""
    k = check_affinity(affinity)
    values, phi = leading_vectors(k, min(TREE_VECTORS, len(k)) - 1)
    return np.abs(values), phi
