"""What benchmarks work on, and how far answers may be from exact ones."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sizes import sized
from tensors import attention_like

import pyattnorg as pa

FloatArray = NDArray[Any]
TWINS = 8  # near-duplicate rows; as many again are equal to others


def points(n: int, features: int, dtype: str) -> FloatArray:
    """Random rows; the last 8 lie 1e-4 (relative) from the first 8, the 8 before them are equal to the second 8."""
    rng = np.random.default_rng(n + features)
    x = rng.random((n, features), dtype=np.float32).astype(dtype, copy=False)
    x[-TWINS:] = x[:TWINS] * (1 + 1e-4 * rng.standard_normal((TWINS, features), dtype=np.float32))
    x[-2 * TWINS : -TWINS] = x[TWINS : 2 * TWINS]
    return x


@lru_cache(maxsize=4)
def attention(shape: tuple[int, ...], dtype: str = "float32") -> FloatArray:
    """Softmax weights of hidden geometry; two axes are one head.

    The numbers are those of float32 in either precision: weights so small that float32 has 0 for them would otherwise
    be missing for the paper's schedule in one precision and not in the other.
    """
    x = attention_like(*shape) if len(shape) == 3 else attention_like(*shape, 1)[..., 0]
    out = np.ascontiguousarray(x.astype(np.float32), dtype)
    out.flags.writeable = False
    return out


@cache
def affinity(kind: str, n: int, dtype: str = "float64") -> FloatArray:
    """Affinity of n points.

    "attention" is what the questionnaire meets, from distances of attention weights over 512 keys, with eigenvalues
    that fall fast; "cloud" is a Gaussian affinity of random points in space, whose eigenvalues fall slowly.
    """
    if kind == "cloud":
        k = pa.gaussian_affinity(np.random.default_rng(n).standard_normal((n, 3)), neighbors=7)
    else:
        k = pa.dual_affinity(pa.pairwise_l1(attention((n, sized(512, 32)))))
    k = ((k + k.T) / 2).astype(dtype)
    k.flags.writeable = False
    return k


def relative_error(got: FloatArray, exact: FloatArray) -> float:
    """Largest relative error; where the exact value is 0 anything else is infinitely wrong."""
    got, exact = np.asarray(got, float), np.asarray(exact, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(got == exact, 0.0, np.abs(got - exact) / np.abs(exact))
    return float(np.where(np.isnan(error), np.inf, error).max(initial=0.0))


def shared_folders(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Distinct folders (of several leaves) that two trees, given by labels, have in common; of all that either has."""
    one, other = ({(row == f).tobytes() for row in labels for f in range(row.max() + 1)} for labels in (a, b))
    return len(one & other) / len(one | other)
