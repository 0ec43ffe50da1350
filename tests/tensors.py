"""Synthetic tensors with a known organisation, for tests and benchmarks.

attention_like   softmax attention weights with hidden token geometry
planted          decaying coefficients in a known dyadic tri-Haar basis, axes permuted
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def attention_like(queries: int, keys: int, heads: int, seed: int = 0) -> FloatArray:
    """Softmax rows, shape (queries, keys, heads); heads in four families (local band, periodic, block, diffuse)."""
    rng = np.random.default_rng(seed)
    x, y = rng.random(queries), rng.random(keys)
    out = np.empty((queries, keys, heads))
    for h in range(heads):
        family, a = h % 4, 1 + (h // 4) % 6
        if family == 0:
            z = -(((x[:, None] - y[None]) * (3 + a)) ** 2)
        elif family == 1:
            z = np.cos(6.28 * a * (x[:, None] - y[None]))
        elif family == 2:
            z = 2.0 * (np.floor(x * (2 + a))[:, None] == np.floor(y * (2 + a))[None])
        else:
            z = -a * y[None] + 0 * x[:, None]
        z = 3 * z + 0.3 * rng.standard_normal((queries, keys))
        e = np.exp(z - z.max(1, keepdims=True))
        out[:, :, h] = e / e.sum(1, keepdims=True)
    return out


def dyadic_labels(n: int) -> IntArray:
    """Labels of the dyadic tree of n = 2 ** depth points, root level first: (depth + 1, n)."""
    depth = int(np.log2(n))
    if 2**depth != n:
        raise ValueError(f"n: {n} is not a power of two")
    return np.stack([np.arange(n) >> (depth - level) for level in range(depth + 1)])


def planted(
    shape: Sequence[int], seed: int, alpha: float = 0.5, noise: float = 0.05, magnitudes: str = "random"
) -> tuple[FloatArray, list[IntArray]]:
    """A permuted tensor and the labels of its true trees, one per axis.

    Coefficients are Gaussian ("random") or of random sign ("constant"), times prod (|I|/n)^(alpha + 1/2);
    the tensor is divided by its standard deviation, then Gaussian noise of standard deviation `noise` is added.
    """
    rng = np.random.default_rng(seed)
    bases = [_haar(n) for n in shape]
    c = rng.standard_normal(shape)
    if magnitudes == "constant":
        c = np.sign(c)
    for axis, (_, rate) in enumerate(bases):
        c = c * (rate ** (alpha + 0.5)).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    for axis, (basis, _) in enumerate(bases):
        c = np.moveaxis(np.tensordot(basis, c, (1, axis)), 0, axis)
    x = c / c.std() + noise * rng.standard_normal(shape)
    orders = [rng.permutation(n) for n in shape]
    return x[np.ix_(*orders)], [dyadic_labels(n)[:, p] for n, p in zip(shape, orders, strict=True)]


def _haar(n: int) -> tuple[FloatArray, FloatArray]:
    """Columns of the dyadic Haar basis and |I|/n of the folder that each one splits."""
    labels = dyadic_labels(n)
    columns, rate = [np.full(n, n**-0.5)], [1.0]
    for level in range(len(labels) - 1):
        for folder in range(2**level):
            left, right = labels[level + 1] == 2 * folder, labels[level + 1] == 2 * folder + 1
            size = left.sum() * 2
            columns.append((left.astype(float) - right) / np.sqrt(size))
            rate.append(size / n)
    return np.stack(columns, 1), np.array(rate)
