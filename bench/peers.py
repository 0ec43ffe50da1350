"""The same work by others: what people would use instead, each written as well as we can."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist, pdist, squareform

FloatArray: TypeAlias = NDArray[Any]
START = 0.7  # a start vector of eigsh that is the same every time


# -- pairwise l1 -----------------------------------------------------------------------------------------------------


def l1_numba(x: FloatArray) -> FloatArray:
    """Tiles of 4 x 2 rows, 512 features at a time; slices, which LLVM turns into vectors. A thread has its features."""
    return _summed(_numba_l1(), x)


def l1_numba_indexed(x: FloatArray) -> FloatArray:
    """Tiles of 4 x 4 rows, the loop as it is usually written: by indices into `x`."""
    return _summed(_numba_l1_indexed(), x)


def _summed(loop: Any, x: FloatArray) -> FloatArray:
    if len(x) % 4:
        raise ValueError(f"x: got {len(x)} rows, these loops want a multiple of 4")
    parts = np.zeros((_threads(), len(x), len(x)))
    loop(x, parts)
    upper = np.triu(parts.sum(0), 1)
    return upper + upper.T


@cache
def _numba_l1() -> Any:
    numba = pytest.importorskip("numba")

    @numba.njit(parallel=True, fastmath=True)
    def l1(x, parts):  # type: ignore[no-untyped-def]  # numba
        n, m = x.shape
        share = (m + len(parts) - 1) // len(parts)
        zero = x.dtype.type(0)
        for t in numba.prange(len(parts)):
            out = parts[t]
            for k0 in range(t * share, min(m, (t + 1) * share), 512):
                k1 = min(m, (t + 1) * share, k0 + 512)
                for i in range(0, n, 4):
                    a0, a1, a2, a3 = x[i][k0:k1], x[i + 1][k0:k1], x[i + 2][k0:k1], x[i + 3][k0:k1]
                    for j in range(i, n, 2):
                        b0, b1 = x[j][k0:k1], x[j + 1][k0:k1]
                        s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = zero
                        for k in range(k1 - k0):
                            s00 += abs(a0[k] - b0[k])
                            s01 += abs(a0[k] - b1[k])
                            s10 += abs(a1[k] - b0[k])
                            s11 += abs(a1[k] - b1[k])
                            s20 += abs(a2[k] - b0[k])
                            s21 += abs(a2[k] - b1[k])
                            s30 += abs(a3[k] - b0[k])
                            s31 += abs(a3[k] - b1[k])
                        out[i, j] += s00
                        out[i, j + 1] += s01
                        out[i + 1, j] += s10
                        out[i + 1, j + 1] += s11
                        out[i + 2, j] += s20
                        out[i + 2, j + 1] += s21
                        out[i + 3, j] += s30
                        out[i + 3, j + 1] += s31

    return _compiled(l1)


@cache
def _numba_l1_indexed() -> Any:
    numba = pytest.importorskip("numba")

    @numba.njit(parallel=True, fastmath=True)
    def l1(x, parts):  # type: ignore[no-untyped-def]  # numba
        n, m = x.shape
        share = (m + len(parts) - 1) // len(parts)
        for t in numba.prange(len(parts)):
            out = parts[t]
            for k0 in range(t * share, min(m, (t + 1) * share), 512):
                k1 = min(m, (t + 1) * share, k0 + 512)
                for i in range(0, n, 4):
                    for j in range(i, n, 4):
                        zero = x.dtype.type(0)
                        s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = zero
                        s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = zero
                        for k in range(k0, k1):
                            a0, a1, a2, a3 = x[i, k], x[i + 1, k], x[i + 2, k], x[i + 3, k]
                            b0, b1, b2, b3 = x[j, k], x[j + 1, k], x[j + 2, k], x[j + 3, k]
                            s00 += abs(a0 - b0)
                            s01 += abs(a0 - b1)
                            s02 += abs(a0 - b2)
                            s03 += abs(a0 - b3)
                            s10 += abs(a1 - b0)
                            s11 += abs(a1 - b1)
                            s12 += abs(a1 - b2)
                            s13 += abs(a1 - b3)
                            s20 += abs(a2 - b0)
                            s21 += abs(a2 - b1)
                            s22 += abs(a2 - b2)
                            s23 += abs(a2 - b3)
                            s30 += abs(a3 - b0)
                            s31 += abs(a3 - b1)
                            s32 += abs(a3 - b2)
                            s33 += abs(a3 - b3)
                        out[i, j] += s00
                        out[i, j + 1] += s01
                        out[i, j + 2] += s02
                        out[i, j + 3] += s03
                        out[i + 1, j] += s10
                        out[i + 1, j + 1] += s11
                        out[i + 1, j + 2] += s12
                        out[i + 1, j + 3] += s13
                        out[i + 2, j] += s20
                        out[i + 2, j + 1] += s21
                        out[i + 2, j + 2] += s22
                        out[i + 2, j + 3] += s23
                        out[i + 3, j] += s30
                        out[i + 3, j + 1] += s31
                        out[i + 3, j + 2] += s32
                        out[i + 3, j + 3] += s33

    return _compiled(l1)


def _compiled(function: Any) -> Any:
    for dtype in (np.float32, np.float64):
        function(np.zeros((8, 8), dtype), np.zeros((1, 8, 8)))
    return function


def l1_torch(x: FloatArray) -> FloatArray:
    torch = pytest.importorskip("torch")
    found: FloatArray = squareform(torch.pdist(torch.from_numpy(x), p=1).numpy())
    return found


def l1_scipy(x: FloatArray) -> FloatArray:
    found: FloatArray = squareform(pdist(x, "cityblock"))
    return found


def l1_faiss(x: FloatArray) -> FloatArray:
    faiss = pytest.importorskip("faiss")
    faiss.omp_set_num_threads(_threads())
    found: FloatArray = faiss.pairwise_distances(x, x, faiss.METRIC_L1)
    return found


def _threads() -> int:
    import pyattnorg as pa

    return pa.get_num_threads()


# -- affinities ------------------------------------------------------------------------------------------------------


def cosine_numpy(x: FloatArray) -> FloatArray:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.clip(unit @ unit.T, 0, 1)


def cosine_sklearn(x: FloatArray) -> FloatArray:
    found = pytest.importorskip("sklearn.metrics.pairwise").cosine_similarity(x)
    return np.clip(found, 0, 1)


def gaussian_numpy(x: FloatArray) -> FloatArray:
    """From the Gram matrix: fast, and wrong for points that lie close."""
    squares = np.einsum("ij,ij->i", x, x)
    d = np.maximum(squares[:, None] + squares - 2 * (x @ x.T), 0)
    np.fill_diagonal(d, 0)
    return _gaussian(d)


def gaussian_sklearn(x: FloatArray) -> FloatArray:
    return _gaussian(pytest.importorskip("sklearn.metrics").euclidean_distances(x, squared=True))


def gaussian_rows(x: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
    """The affinity of `rows` among themselves, from exact distances in float64."""
    d = cdist(x[rows].astype(float), x.astype(float), "sqeuclidean")
    width = np.median(np.sqrt(np.partition(d, 4, axis=1)[:, :5]), axis=1)
    kernel = np.exp(-d[:, rows] / np.where(width == 0, 1, width)[:, None] ** 2)
    return (kernel + kernel.T) / 2


def _gaussian(squares: FloatArray) -> FloatArray:
    width = np.median(np.sqrt(np.partition(squares, 4, axis=1)[:, :5]), axis=1)
    width[width == 0] = 1
    half = np.exp(-squares / width[:, None] ** 2)
    return (half + half.T) / 2


# -- eigenvectors ----------------------------------------------------------------------------------------------------


def markov(affinity: FloatArray) -> FloatArray:
    """The symmetric normalised matrix of an affinity, in its own precision."""
    s = np.where(affinity > 1e-8, affinity, 0)
    d = s.sum(1)
    s /= d[:, None]
    s /= d
    e = np.sqrt(s.sum(1))
    s /= e[:, None]
    s /= e
    return s


def leading(s: FloatArray, m: int, tol: float) -> tuple[FloatArray, FloatArray]:
    """The `m` eigenpairs of largest magnitude by scipy's eigsh, the largest first."""
    start = np.cos(np.arange(len(s)) * START).astype(s.dtype)
    values, vectors = eigsh(s, m, which="LM", tol=tol, v0=start)
    order = np.argsort(-np.abs(values))
    return values[order], vectors[:, order]


def leading_svd(s: FloatArray, m: int) -> tuple[FloatArray, FloatArray]:
    """Magnitudes and vectors by sklearn's randomized_svd."""
    svd = pytest.importorskip("sklearn.utils.extmath").randomized_svd
    vectors, values, _ = svd(s, m, random_state=0)
    return values, vectors


def residual(s: FloatArray, values: FloatArray, vectors: FloatArray) -> float:
    """Largest |S v - lambda v| of unit vectors, either sign of lambda, in float64."""
    s, v = s.astype(float), vectors.astype(float) / np.linalg.norm(vectors.astype(float), axis=0)
    product = s @ v
    either = [np.linalg.norm(product - sign * values * v, axis=0) for sign in (1, -1)]
    return float(np.minimum(*either).max())


# -- Haar transforms -------------------------------------------------------------------------------------------------

ROOT_HALF = 0.5**0.5
Transform: TypeAlias = Callable[[FloatArray], FloatArray]


def dyadic_numpy(x: FloatArray, inverse: bool = False) -> FloatArray:
    """All axes of powers of two, level by level: slices of whole arrays."""
    out = np.array(x)
    other = np.empty_like(out)
    scale = x.dtype.type(ROOT_HALF)
    for axis, n in enumerate(x.shape):
        for half in [n >> k for k in range(1, n.bit_length())][:: -1 if inverse else 1]:
            a, b = out.swapaxes(0, axis)[: 2 * half], other.swapaxes(0, axis)[: 2 * half]
            if inverse:
                np.subtract(a[:half], a[half:], out=b[0::2])
                np.add(a[:half], a[half:], out=b[1::2])
            else:
                np.add(a[0::2], a[1::2], out=b[:half])
                np.subtract(a[1::2], a[0::2], out=b[half:])
            np.multiply(b, scale, out=a)
    return out


def dyadic_torch(x: FloatArray, inverse: bool = False) -> FloatArray:
    """The same in torch."""
    torch = pytest.importorskip("torch")
    out = torch.from_numpy(np.array(x))
    for axis, n in enumerate(x.shape):
        for half in [n >> k for k in range(1, n.bit_length())][:: -1 if inverse else 1]:
            a = out.transpose(0, axis)[: 2 * half]
            if inverse:
                both = torch.stack([a[:half] - a[half:], a[:half] + a[half:]], 1).reshape(a.shape)
            else:
                both = torch.cat([a[0::2] + a[1::2], a[1::2] - a[0::2]])
            torch.mul(both, ROOT_HALF, out=a)
    found: FloatArray = out.numpy()
    return found


@cache
def _numba_dyadic() -> Any:
    numba = pytest.importorskip("numba")

    @numba.njit(parallel=True, fastmath=True)
    def rows(x, scale):  # type: ignore[no-untyped-def]  # numba
        """Along the last axis, each row in cache."""
        for i in numba.prange(x.shape[0]):
            row = x[i]
            low = np.empty(row.shape[0] // 2, row.dtype)
            half = row.shape[0] // 2
            while half:
                for k in range(half):
                    low[k] = (row[2 * k] + row[2 * k + 1]) * scale
                    row[k] = (row[2 * k + 1] - row[2 * k]) * scale
                for k in range(half):
                    row[half + k] = row[k]
                for k in range(half):
                    row[k] = low[k]
                half //= 2

    @numba.njit(parallel=True, fastmath=True)
    def columns(x, scale):  # type: ignore[no-untyped-def]  # numba
        """Along the first axis, 64 columns at a time."""
        n = x.shape[0]
        for block in numba.prange((x.shape[1] + 63) // 64):
            part = np.ascontiguousarray(x[:, 64 * block : 64 * block + 64])
            low = np.empty((n // 2, part.shape[1]), part.dtype)
            half = n // 2
            while half:
                for k in range(half):
                    a, b, s, d = part[2 * k], part[2 * k + 1], low[k], part[k]
                    for c in range(len(a)):
                        total, difference = (a[c] + b[c]) * scale, (b[c] - a[c]) * scale
                        s[c] = total
                        d[c] = difference
                for k in range(half - 1, -1, -1):
                    part[half + k] = part[k]
                for k in range(half):
                    part[k] = low[k]
                half //= 2
            x[:, 64 * block : 64 * block + 64] = part

    for dtype in (np.float32, np.float64):
        rows(np.zeros((4, 4), dtype), dtype(1))
        columns(np.zeros((4, 4), dtype), dtype(1))
    return rows, columns


def dyadic_numba(x: FloatArray) -> FloatArray:
    """Both axes of a matrix, powers of two."""
    rows, columns = _numba_dyadic()
    out = np.array(x)
    columns(out, x.dtype.type(ROOT_HALF))
    rows(out, x.dtype.type(ROOT_HALF))
    return out


def dyadic_pywavelets(x: FloatArray) -> FloatArray:
    """Both axes of a matrix, each transformed fully (PyWavelets' sign of details is the other one)."""
    pywt = pytest.importorskip("pywt")
    out = x
    for axis in range(x.ndim):
        parts = pywt.wavedec(out, "haar", mode="periodization", axis=axis)
        out = np.concatenate([parts[0], *(-d for d in parts[1:])], axis=axis)
    return out


def by_matrices(x: FloatArray, matrices: list[Any]) -> FloatArray:
    """Every axis multiplied by a matrix, dense or sparse (columns are basis vectors; transposed for the inverse)."""
    out = x
    for axis, matrix in enumerate(matrices):
        first = np.moveaxis(out, axis, 0)
        product = matrix.T @ np.ascontiguousarray(first).reshape(len(first), -1)
        out = np.moveaxis(np.asarray(product).reshape(first.shape), 0, axis)
    return np.ascontiguousarray(out)


def as_sparse(basis: FloatArray) -> Any:
    return sparse.csc_matrix(basis)
