"""Queries and keys instead of maps: n·d numbers in place of n², heads being computed when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.capture.spans import Spans
from pyattnorg.threads import one_blas_thread

BLOCK = 1 << 18  # cells that are computed at a time


@dataclass(frozen=True)
class QueriesKeys:
    """What the scores of a layer are made of: ``queries @ keys.T * scale``, and a bias where the model adds one.

    Arrays, or what reads one head of them (``head(i)``).
    """

    queries: Any  # (heads, queries, d)
    keys: Any  # (heads of keys, keys and columns of sinks, d)
    key_head: NDArray[np.int64]  # (heads,), which keys each head has
    scale: float
    bias: Any = None  # (1 or heads, queries, keys and columns of sinks), 0 in hidden cells
    sinks: int = 0  # last columns that belong to no token

    def maps(self, head: int, rows: slice, visible: NDArray[np.bool_] | None) -> tuple[FloatArray, FloatArray]:
        """Scores and weights of some rows of a head, (rows, keys); `visible` are its visible cells of these rows."""
        q, k = _head(self.queries, head)[rows], _head(self.keys, int(self.key_head[head]))
        dtype = np.float64 if q.dtype == np.float64 else np.float32
        with one_blas_thread():
            scores = q.astype(dtype, copy=False) @ k.astype(dtype, copy=False).T
        scores *= dtype(self.scale)
        if self.bias is not None:
            scores += _head(self.bias, head if len(self.bias) > 1 else 0)[rows]
        masked = scores
        if visible is not None:
            pad = np.ones((len(visible), self.sinks), bool)
            masked = np.where(np.concatenate([visible, pad], 1) if self.sinks else visible, scores, -np.inf)
        top = masked.max(1, keepdims=True)
        weights = np.exp(masked - np.where(np.isfinite(top), top, 0))
        weights /= np.maximum(weights.sum(1, keepdims=True), np.finfo(dtype).tiny)
        n = scores.shape[1] - self.sinks
        return scores[:, :n], weights[:, :n]

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(_nbytes(x) for x in (self.queries, self.keys, self.bias) if x is not None)


def _nbytes(x: Any) -> int:
    return int(np.prod(x.shape) * x.dtype.itemsize)


def _head(x: Any, i: int) -> Any:
    return x[i] if isinstance(x, np.ndarray) else x.head(i)


@dataclass(frozen=True)
class Recomputed:
    """Maps of a layer that are computed head by head, (heads, queries, keys)."""

    source: QueriesKeys
    kind: Literal["scores", "weights"]
    visible: Any
    columns: slice

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, queries, kept keys)."""
        heads, rows, _ = self.source.queries.shape
        n = self.source.keys.shape[1] - self.source.sinks
        return heads, rows, len(range(*self.columns.indices(n)))

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """Float64 where the queries are, else float32."""
        return np.dtype(np.float64 if self.source.queries.dtype == np.float64 else np.float32)

    def head(self, i: int, rows: slice = slice(None)) -> FloatArray:
        """One head, or rows of it. A row is computed with its block: its bytes do not depend on what else is read."""
        _, n, keys = self.shape
        at = np.arange(n)[rows]
        out = np.empty((len(at), keys), self.dtype)
        step = max(1, BLOCK // max(self.source.keys.shape[1], 1))
        for number in np.unique(at // step):
            block = slice(number * step, min((number + 1) * step, n))
            scores, weights = self.source.maps(i, block, cells_of(self.visible, i, block))
            here = at // step == number
            out[here] = (scores if self.kind == "scores" else weights)[at[here] - block.start, self.columns]
        return out


def cells_of(visible: Any, head: int, rows: slice = slice(None)) -> NDArray[np.bool_] | None:
    """Visible cells of a head of a record, (queries, keys)."""
    if visible is None:
        return None
    if isinstance(visible, Spans):
        return visible.cells(rows)
    if len(visible.shape) == 2:
        found = visible[rows] if isinstance(visible, np.ndarray) else visible.read()[rows]
    else:
        found = visible[head][rows] if isinstance(visible, np.ndarray) else visible.head(head, rows)
    return np.asarray(found, bool)


__all__ = ["QueriesKeys", "Recomputed", "cells_of"]
