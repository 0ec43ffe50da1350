"""From tensors to a record: checks, block by block, what is kept, and the row of the report."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyattnorg.capture.cells import Cells
from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.maths import tolerance, wide
from pyattnorg.capture.qk import QueriesKeys
from pyattnorg.capture.record import BoolArray, Record
from pyattnorg.capture.shelf import Shelf
from pyattnorg.capture.slots import Part, Slot
from pyattnorg.capture.spans import Spans

log = logging.getLogger("pyattnorg")

# A difference this large is no rounding: what was recorded is not what the model did.
_WRONG = 0.02

# Queries of a block, evenly spread, of which softmax of the scores is compared with the weights: exponentials take as
# long as the model's own. Sums and non-finite numbers are looked at in all rows, and so is the output.
COMPARED = 64


@dataclass
class _Tally:
    """What the report says of a layer, gathered over its blocks."""

    visible: float = 0.0  # cells
    cells: int = 0
    bad: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sums: list[float] = field(default_factory=list)
    sink: list[tuple[float, int]] = field(default_factory=list)
    softmax_error: float | None = None
    relative: float | None = None
    output_error: float | None = None


def make_record(
    slot: Slot,
    parts: Iterable[Part],
    shelf: Shelf,
    *,
    mask: str,
    dtype: torch.dtype,
    precision: torch.dtype,
    raw: bool,
    dropout: float,
    padding: BoolArray | None,
    qk: QueriesKeys | None = None,
    note: str = "",
) -> Record:
    """Check that softmax of the scores is the weights, and put both on the shelf.

    Raises
    ------
    UnsupportedAttentionError
        The scores and the weights, or the weights and the output, do not belong together.
    """
    tally = _Tally(bad=np.zeros(slot.shape[0], np.int64))
    cells = Cells(slot)
    for part in parts:
        _look(slot, part, shelf, tally, cells, raw)
    bad = [int(n) for n in tally.bad]
    weight = max(sum(n for _, n in tally.sink), 1)
    windows = max(slot.layout.windows, 1)
    heads = np.tile(slot.heads, windows) + slot.first_head
    row: dict[str, Any] = {
        "group": "",
        "layer": slot.layer,
        "module": slot.scene.place.module,
        "backend": slot.backend,
        "dtype": str(dtype).removeprefix("torch."),
        "shape": list(slot.kept_shape),
        "windows": slot.layout.windows,
        "mask": mask,
        "visible": tally.visible / max(tally.cells, 1),
        "nonfinite": sum(bad),
        "nonfinite_heads": sorted({int(heads[i]) for i, n in enumerate(bad) if n}),
        "row_sums": [min(tally.sums), max(tally.sums)] if tally.sums and not any(bad) else None,
        "sink_mass": sum(x * n for x, n in tally.sink) / weight if tally.sink else None,
        "softmax_error": tally.softmax_error,
        "output_error": None if any(bad) else tally.output_error,
        "dropout": dropout,
        "seconds": 0.0,
        "bytes": 0,
        "padding_error": None,
        "note": note,
    }
    if not row["nonfinite"]:
        _judge(slot, "softmax of its scores and its weights", tally.relative, precision)
        _judge(slot, "its output", tally.output_error, precision, terms=slot.shape[2])
    kept = shelf.take()
    record = Record(
        place=slot.scene.place,
        layer=slot.layer,
        heads=heads,
        kv_group=np.tile(slot.kv_group + slot.first_head, windows),
        scores=kept.get("scores"),
        weights=kept.get("weights"),
        visible=cells.take(compact=shelf.lazy or qk is not None),
        raw=raw,
        padding=padding,
        shape=slot.shape,
        row=row,
        rows=_told(slot.rows, slot.shape[1]),
        columns=_told(slot.columns, slot.shape[2]),
        qk=qk,
        window=np.repeat(np.arange(windows), len(slot.heads)) if slot.layout.windows else None,
        tokens=slot.tokens,
        call=slot.call,
        first_head=slot.first_head,
    )
    row["bytes"] = sum(_size(x) for x in (record.scores, record.weights, record.visible)) + (qk.nbytes if qk else 0)
    return record


def _look(slot: Slot, part: Part, shelf: Shelf, tally: _Tally, cells: Cells, raw: bool) -> None:
    """Check one block and put it on the shelf."""
    block, maps, output_error = part
    columns = maps.scores.shape[-1] - maps.sinks
    scores, weights = maps.scores, maps.weights
    hidden = None if maps.hidden is None else maps.hidden.expand(scores.shape)
    if hidden is not None:
        weights = weights.masked_fill(hidden, 0.0)
        if not raw:
            scores = scores.masked_fill(hidden, -torch.inf)
    looked = slice(None, None, max(-(-scores.shape[1] // COMPARED), 1))
    # with the columns of sinks: what these leave may be too little to be told from nothing
    error, relative = _softmax_error(*(None if x is None else x[:, looked] for x in (hidden, scores, weights)))
    if maps.sinks:
        sink = weights[..., columns:].sum(-1)
        tally.sink.append((float(sink.mean()), sink.numel()))
        scores, weights = scores[..., :columns], weights[..., :columns]
        hidden = None if hidden is None else hidden[..., :columns]
    sees = torch.ones(scores.shape[:-1], dtype=torch.bool) if hidden is None else ~hidden.all(-1)
    tally.visible += scores.numel() if hidden is None else float((~hidden).sum())
    tally.cells += scores.numel()
    bad = _nonfinite(scores, weights, hidden)
    tally.bad[block.heads] += bad
    tally.softmax_error = _larger(tally.softmax_error, error)
    tally.relative = _larger(tally.relative, relative)
    tally.output_error = _larger(tally.output_error, output_error)
    sums = wide(weights).sum(-1)[sees.to(weights.device)]
    if sums.numel():
        tally.sums += [float(sums.min()), float(sums.max())]
    cells.put(block, hidden)
    kept = {"scores": scores, "weights": weights}
    for kind in slot.keeping.maps:
        _refuse_overflow(slot, kind, kept[kind], hidden)
        shelf.put(kind, block.heads, block.rows, kept[kind][..., slot.columns])


def _told(part: slice, n: int) -> tuple[int, int, int] | None:
    return None if (part.start, part.stop, part.step) == (0, n, 1) else (part.start, part.stop, part.step)


def _size(x: Any) -> int:
    if isinstance(x, Spans):
        return x.first.nbytes + x.last.nbytes
    return 0 if x is None else int(np.prod(x.shape)) * x.dtype.itemsize


def _larger(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return b if b > a or b != b else a  # NaN stays


def _refuse_overflow(slot: Slot, kind: str, values: Tensor, hidden: Tensor | None) -> None:
    """Refuse finite numbers that the dtype asked for cannot hold."""
    if slot.keeping.dtype is None:
        return
    most = float(np.finfo(slot.keeping.dtype).max)
    finite = torch.isfinite(values) if hidden is None else torch.isfinite(values) & ~hidden
    top = float(torch.where(finite, values.abs(), 0.0).max())
    if top > most:
        raise UnsupportedAttentionError(
            f"{slot.scene.name}: its {kind} go up to {top:.3g}, dtype={slot.keeping.dtype!r} holds at most {most:.3g}; "
            "keep them as float32"
        )


def _softmax_error(hidden: Tensor | None, scores: Tensor, weights: Tensor) -> tuple[float | None, float | None]:
    """Largest difference between softmax of the scores over visible cells and the weights, over finite rows.

    As it is, and relative to the largest weight of the row: long rows have small weights.
    """
    again = torch.softmax(scores if hidden is None else scores.masked_fill(hidden, -torch.inf), -1)
    rows, top = again.sub_(weights).abs_().amax(-1), weights.amax(-1)
    fine = torch.isfinite(rows)  # a row that sees nothing is NaN here
    if not bool(fine.any()):
        return None, None
    return float(rows[fine].max()), float((rows[fine] / top[fine].clamp_min(1e-30)).max())


def _nonfinite(scores: Tensor, weights: Tensor, hidden: Tensor | None) -> list[int]:
    """NaN and infinities in visible cells, per head."""
    if bool(torch.isfinite(scores.sum() + weights.sum())):
        return [0] * len(scores)  # one sum finds any of them
    bad = ~(torch.isfinite(scores) & torch.isfinite(weights))
    bad = bad if hidden is None else bad & ~hidden
    return [int(n) for n in bad.flatten(1).sum(1).tolist()]


def _judge(slot: Slot, what: str, error: float | None, precision: torch.dtype, *, terms: int = 1) -> None:
    """Refuse what is grossly wrong, warn of what is more than rounding."""
    limit = tolerance(precision, terms)
    if error is None or error <= limit:
        return
    if not error <= _WRONG and precision in (torch.float32, torch.float64):
        raise UnsupportedAttentionError(
            f"{slot.scene.name}: the attention recorded from {slot.backend} differs from {what} by {error:.2g}, "
            f"expected at most {limit:.1g}; something in this module is not seen by the capture"
        )
    log.warning("%s: %s differs from the recorded attention by %.2g (%s)", slot.scene.name, what, error, precision)


__all__ = ["make_record"]
