"""Leaving tokens out of attention: special tokens, say, with rows made whole again or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.visibility import BoolArray


def positions_of(tokens: Sequence[int | str], names: tuple[str, ...] | None, n: int, axis: str) -> NDArray[np.int64]:
    """Positions on an axis of `n` tokens: numbers as they are, names wherever they occur."""
    at: set[int] = set()
    for token in tokens:
        if isinstance(token, str):
            if names is None:
                raise ValueError(f"tokens: got the name {token!r}, but {axis} have no names here; give positions")
            at.update(i for i, name in enumerate(names) if name == token)
        else:
            i = int(token)
            if not -n <= i < n:
                raise ValueError(f"tokens: got {i}, there are {n} {axis}, counted from 0")
            at.add(i % n)
    return np.array(sorted(at), np.int64)


def renormalized(values: FloatArray, seen: BoolArray, kind: str) -> tuple[FloatArray, BoolArray]:
    """Rows of weights (or their logarithms) that sum to 1 over visible cells; rows without any mass see nothing."""
    if kind == "weights":
        sums = np.where(seen, values, 0).sum(1, keepdims=True, dtype=np.float64)
        whole = np.where(seen & (sums > 0), values / np.where(sums > 0, sums, 1), 0).astype(values.dtype)
        return whole, np.asarray(seen & (sums > 0))
    x = np.where(seen, values, -np.inf).astype(np.float64)
    top = x.max(1, keepdims=True)
    some = np.isfinite(top)
    total = np.exp(x - np.where(some, top, 0)).sum(1, keepdims=True)
    whole = np.where(seen, values - np.where(some, top + np.log(np.where(some, total, 1)), 0), 0).astype(values.dtype)
    return whole, np.asarray(seen & some)


def said(kept: dict[str, Any], renormalize: bool, mass: float | None) -> dict[str, Any]:
    """What ``meta["dropped"]`` says."""
    return {**kept, "renormalized": renormalize, "mass": mass}


__all__ = ["positions_of", "renormalized", "said"]
