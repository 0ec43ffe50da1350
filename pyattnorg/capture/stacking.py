"""Layers put together: maps as one tensor, without a copy where they lie together already, and their visible cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyattnorg.capture.arena import neighbours
from pyattnorg.capture.record import BoolArray


def stack(arrays: list[Any], keep_q: BoolArray | None = None, keep_k: BoolArray | None = None) -> Any:
    """Layers of (heads, queries, keys) as one (queries, keys, heads) view; the list is emptied, to hold memory once."""
    if keep_q is None and keep_k is None and (whole := neighbours(arrays)) is not None:
        arrays.clear()
        whole.flags.writeable = False
        return whole.transpose(1, 2, 0)
    cropped = crop(arrays[0], keep_q, keep_k)
    dtype = np.result_type(*{a.dtype for a in arrays})
    out = np.empty((sum(len(a) for a in arrays), *cropped.shape[1:]), dtype)
    at = 0
    arrays.reverse()
    while arrays:
        layer = arrays.pop()
        out[at : at + len(layer)] = crop(layer, keep_q, keep_k)
        at += len(layer)
    out.flags.writeable = False  # ours alone, so that nobody needs a copy of it
    return out.transpose(1, 2, 0)


def crop(x: Any, keep_q: BoolArray | None, keep_k: BoolArray | None) -> Any:
    """The part of a layer's maps, or of their cells, (…, queries, keys), that is of real tokens."""
    if x is None:
        return None
    x = x if keep_q is None else x[..., keep_q, :]
    return x if keep_k is None else x[..., keep_k]


def visible_of(layers: Sequence[BoolArray | None], heads: Sequence[int]) -> BoolArray | None:
    """One (queries, keys) for all heads where they agree, else (queries, keys, heads)."""
    known = [v for v in layers if v is not None]
    if not known or all(v.all() for v in known):
        return None
    first = known[0]
    if len(known) == len(layers) and first.ndim == 2 and all(np.array_equal(v, first) for v in known):
        return first
    out = np.ones((sum(heads), *first.shape[-2:]), bool)
    at = 0
    for v, n in zip(layers, heads, strict=True):
        if v is not None:
            out[at : at + n] = v
        at += n
    return out.transpose(1, 2, 0)


__all__ = ["crop", "stack", "visible_of"]
