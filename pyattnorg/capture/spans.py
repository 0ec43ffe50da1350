"""Visible cells, in few bytes: almost every mask shows each query one run of keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Spans:
    """Query i sees the keys ``first[i]`` to ``last[i] - 1`` of `n_keys`, and no other."""

    first: NDArray[np.int64]  # (queries,)
    last: NDArray[np.int64]
    n_keys: int

    @classmethod
    def of(cls, visible: BoolArray) -> Spans | None:
        """Spans of (queries, keys), or None where some query sees keys with a gap between them."""
        n = visible.shape[1]
        seen = visible.any(1)
        first = np.where(seen, visible.argmax(1), 0).astype(np.int64)
        last = np.where(seen, n - visible[:, ::-1].argmax(1), 0).astype(np.int64)
        return cls(first, last, n) if np.array_equal(last - first, visible.sum(1)) else None

    def cells(self, rows: slice = slice(None)) -> BoolArray:
        """The cells as (queries, keys)."""
        at = np.arange(self.n_keys)
        return np.asarray((at >= self.first[rows, None]) & (at < self.last[rows, None]))


__all__ = ["Spans"]
