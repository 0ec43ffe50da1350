"""Several maps of one call of one module: further heads of its layer, or queries in chunks that make one map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.layered import dense, whole
from pyattnorg.capture.record import BoolArray, Record


def joined(records: Sequence[Record]) -> list[Record]:
    """Records with chunks of queries put together; heads that came one at a time are as they are, numbered already."""
    chunks: dict[object, list[Record]] = {}
    for record in records:
        if record.call is not None and record.first_head == 0:
            chunks.setdefault(record.call, []).append(record)
    out = []
    for record in records:
        parts = chunks.get(record.call, []) if record.call is not None and record.first_head == 0 else []
        if len(parts) < 2:
            out.append(record)
        elif parts[0] is record:  # the whole stands where its first chunk did
            out.append(_chunks(parts))
    return out


def _chunks(chunks: list[Record]) -> Record:
    """One map of maps for some of the queries each, whose keys start at the same token."""
    first, keys = chunks[0], max(r.shape[2] for r in chunks)
    queries = sum(r.shape[1] for r in chunks)
    widths = [r.shape[2] for r in chunks]
    alike = all(np.array_equal(r.heads, first.heads) and r.window is None for r in chunks)
    if not alike or queries != keys or widths != sorted(widths):
        said = ", ".join(f"{r.shape[1]}x{r.shape[2]}" for r in chunks[:4])
        raise UnsupportedAttentionError(
            f"{first.place.module!r}: gives several maps in one call ({said}), which are neither heads of one map nor "
            "chunks of its queries; capture it in pieces that are modules of their own"
        )

    if any(r.rows is not None or r.columns is not None or r.qk is not None for r in chunks):
        raise UnsupportedAttentionError(
            f"{first.place.module!r}: gives its queries in chunks, of which queries=, keys= and keep=('qk',) take no "
            "part; leave them out"
        )

    def stacked(name: str, fill: float) -> Any:
        arrays = [whole(getattr(r, name)) for r in chunks]
        if any(a is None for a in arrays):
            return None
        return np.concatenate(
            [np.pad(a, ((0, 0), (0, 0), (0, keys - a.shape[2])), constant_values=fill) for a in arrays], 1
        )

    visible = np.concatenate([_seen(r, keys) for r in chunks], 1)
    row = {**first.row, "shape": [first.shape[0], queries, keys], "visible": float(visible.mean())}
    for name, pick in (
        ("softmax_error", max),
        ("output_error", max),
        ("seconds", sum),
        ("bytes", sum),
        ("nonfinite", sum),
    ):
        values = [r.row[name] for r in chunks]
        row[name] = None if any(v is None for v in values) else pick(values)
    row["note"] = "; ".join(
        dict.fromkeys([n for r in chunks if (n := r.row["note"])] + [f"queries in {len(chunks)} chunks"])
    )
    return Record(
        first.place, first.layer, first.heads, first.kv_group, stacked("scores", -np.inf), stacked("weights", 0.0),
        None if visible.all() else visible, all(r.raw for r in chunks), first.padding,
        (first.shape[0], queries, keys), row,
    )  # fmt: skip


def _seen(record: Record, keys: int) -> BoolArray:
    heads, queries, own = record.shape
    seen = np.zeros((heads, queries, keys), bool)
    cells = dense(record.visible)
    seen[..., :own] = True if cells is None else cells
    return seen


__all__ = ["joined"]
