"""A generation put together: the prompt's forward and those of every new token, as one forward over all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyattnorg.capture.errors import CaptureError
from pyattnorg.capture.passes import Inputs, Pass
from pyattnorg.capture.record import Record


def assembled(passes: Sequence[Pass]) -> Pass:
    """One pass of several that followed one another with a cache of keys.

    Raises
    ------
    CaptureError
        Layers come and go, or a step's heads are not those of the one before.
    """
    if any(not p.complete for p in passes):
        raise CaptureError("generated: a forward did not end (it raised, or is still running); generate again")
    series: dict[Any, list[Record]] = {}
    for one in passes:
        for r in one.records:
            series.setdefault((r.place.module, r.layer, r.call is None and r.first_head), []).append(r)
    records = [r[0] if len(r) == 1 else _joined(r) for r in series.values()]
    notes = [n for p in passes for n in p.notes]
    seen = set().union(*(p.seen for p in passes))
    whole = Pass(passes[0].model, records, notes, seen, _inputs(passes), True)
    whole.left_out = [text for p in passes[:1] for text in p.left_out]
    return whole


def _inputs(passes: Sequence[Pass]) -> Inputs:
    first, last = passes[0].inputs, passes[-1].inputs
    decoder = "decoder_input_ids" if "decoder_input_ids" in last.ids else "input_ids"
    ids = dict(first.ids)
    steps = [p.inputs.ids[decoder] for p in passes if decoder in p.inputs.ids]
    if steps and len({len(s) for s in steps}) == 1:
        ids[decoder] = np.concatenate(steps, 1)
    real = {**first.real, **last.real} if decoder == "input_ids" else dict(first.real)
    return Inputs(ids, real, first.image)


def _joined(steps: list[Record]) -> Record:
    first, last = steps[0], steps[-1]
    if any(not np.array_equal(r.heads, first.heads) or r.windows for r in steps):
        raise CaptureError(f"generated: {first.place.module!r} gives other heads in some steps, expected the same ones")
    if any(r.rows is not None or r.columns is not None or r.qk is not None for r in steps):
        raise CaptureError("generated: queries=, keys= and keep=('qk',) take no part of a generation; leave them out")
    if any(r.scores is None and r.weights is None for r in steps):
        raise CaptureError("generated: some steps are not held any more, or only the output was kept; record anew")
    cross = first.place.cross
    anew = None if cross else next((i for i, r in enumerate(steps) if i and r.shape[1] == r.shape[2]), None)
    if anew is not None:
        raise CaptureError(
            f"generated: forward {anew} sees its own {steps[anew].shape[1]} token(s) alone and does not go on from the "
            "one before; generate once while watching, with a cache, or take the last forward, .capture(-1), which has "
            "all tokens where there was no cache"
        )
    queries = sum(r.shape[1] for r in steps)
    total = max(r.shape[2] for r in steps) if cross else queries
    ends = np.cumsum([r.shape[1] for r in steps])
    seen = np.zeros((len(first.heads), queries, total), bool)
    arrays = {name: _empty(steps, name, seen.shape) for name in ("scores", "weights")}
    for r, end in zip(steps, ends.tolist()):
        keys = r.shape[2]
        # keys end with the step's own tokens; a cache of fixed length has more, whose rest is masked
        start = 0 if cross or keys > end else end - keys
        width = min(keys, total - start)
        rows, columns = slice(end - r.shape[1], end), slice(start, start + width)
        seen[:, rows, columns] = True if r.visible is None else r.visible[..., :width]
        for name, out in arrays.items():
            if out is not None:
                out[:, rows, columns] = getattr(r, name)[..., :width]
    row = {**first.row, "shape": list(seen.shape), "visible": float(seen.mean())}
    for name in ("softmax_error", "output_error", "dropout"):
        values = [r.row[name] for r in steps if r.row[name] is not None]
        row[name] = max(values) if values else None
    for name in ("seconds", "bytes", "nonfinite"):
        row[name] = sum(r.row[name] for r in steps)
    sums = [s for r in steps for s in r.row["row_sums"] or ()]
    row["row_sums"] = [min(sums), max(sums)] if sums else None
    row["note"] = "; ".join(dict.fromkeys([r.row["note"] for r in steps if r.row["note"]] + [f"{len(steps)} steps"]))
    return Record(
        first.place, first.layer, first.heads, first.kv_group, arrays["scores"], arrays["weights"],
        None if seen.all() else seen, all(r.raw for r in steps), last.padding, seen.shape, row,
    )  # fmt: skip


def _empty(steps: list[Record], name: str, shape: tuple[int, ...]) -> Any:
    first = getattr(steps[0], name)
    return None if first is None else np.full(shape, -np.inf if name == "scores" else 0.0, first.dtype)


__all__ = ["assembled"]
