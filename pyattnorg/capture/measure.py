"""From tensors to a record: checks, NumPy arrays, and the row of the report."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.layout import Layout, Scene
from pyattnorg.capture.maths import Maps, tolerance, wide
from pyattnorg.capture.record import BoolArray, Record, Tokens

log = logging.getLogger("pyattnorg")

# A difference this large is no rounding: what was recorded is not what the model did.
_WRONG = 0.02


@dataclass(frozen=True)
class Slot:
    """A layer that was let in: which heads of which example of it are to be kept."""

    scene: Scene
    backend: str
    layout: Layout
    layer: int
    example: int
    heads: NDArray[np.int64]
    key_heads: int
    started: float
    tokens: Tokens | None = None  # where windows lie
    call: object = None
    first_head: int = 0  # heads that earlier maps of the same call had

    def take(self, x: Tensor) -> Tensor:
        """The wanted heads of a tensor (heads, …); one that is the same for all heads stays as it is."""
        if len(self.heads) == self.layout.heads or len(x) == 1:
            return x
        rows = (np.arange(len(x) // self.layout.heads)[:, None] * self.layout.heads + self.heads).ravel()
        return x[torch.as_tensor(rows, device=x.device)]


def make_record(
    slot: Slot,
    maps: Maps,
    *,
    kept: frozenset[str],
    mask: str,
    dtype: torch.dtype,
    precision: torch.dtype,
    raw: bool,
    output_error: float | None,
    dropout: float,
    padding: BoolArray | None,
    seconds: float,
    note: str = "",
) -> Record:
    """Check that softmax of the scores is the weights, and pack both.

    Raises
    ------
    UnsupportedAttentionError
        The scores and the weights, or the weights and the output, do not belong together.
    """
    columns = maps.scores.shape[-1] - maps.sinks
    scores, weights, sink = maps.scores[..., :columns], maps.weights[..., :columns], None
    if maps.sinks:
        sink = maps.weights[..., columns:].sum(-1)
    hidden = None if maps.hidden is None else maps.hidden[..., :columns].expand(scores.shape)
    sees = torch.ones(scores.shape[:-1], dtype=torch.bool) if hidden is None else ~hidden.all(-1)
    bad = _nonfinite(scores, weights, hidden)
    if hidden is not None:
        weights = weights.masked_fill(hidden, 0.0)
        if not raw:
            scores = scores.masked_fill(hidden, -torch.inf)
    error, relative = _softmax_error(scores, weights, hidden, sink)
    sums = wide(weights).sum(-1)[sees.to(weights.device)]
    windows = max(slot.layout.windows, 1)
    heads = np.tile(slot.heads, windows) + slot.first_head
    row: dict[str, Any] = {
        "group": "",
        "layer": slot.layer,
        "module": slot.scene.place.module,
        "backend": slot.backend,
        "dtype": str(dtype).removeprefix("torch."),
        "shape": [int(n) for n in weights.shape],
        "windows": slot.layout.windows,
        "mask": mask,
        "visible": 1.0 if hidden is None else float((~hidden).float().mean()),
        "nonfinite": sum(bad),
        "nonfinite_heads": sorted({int(heads[i]) for i, n in enumerate(bad) if n}),
        "row_sums": [float(sums.min()), float(sums.max())] if sums.numel() and not any(bad) else None,
        "sink_mass": None if sink is None else float(sink.mean()),
        "softmax_error": error,
        "output_error": None if any(bad) else output_error,
        "dropout": dropout,
        "seconds": seconds,
        "bytes": 0,
        "padding_error": None,
        "note": note,
    }
    if not row["nonfinite"]:
        _judge(slot, "softmax of its scores and its weights", relative, precision)
        _judge(slot, "its output", output_error, precision)
    groups = np.arange(slot.layout.heads) // (slot.layout.heads // slot.key_heads)
    record = Record(
        place=slot.scene.place,
        layer=slot.layer,
        heads=heads,
        kv_group=np.tile(groups[slot.heads] + slot.first_head, windows).astype(np.int64),
        scores=_numpy(scores) if "scores" in kept else None,
        weights=_numpy(weights) if "weights" in kept else None,
        visible=_visible(hidden),
        raw=raw,
        padding=padding,
        shape=(int(weights.shape[0]), int(weights.shape[1]), int(weights.shape[2])),
        row=row,
        window=np.repeat(np.arange(windows), len(slot.heads)) if slot.layout.windows else None,
        tokens=slot.tokens,
        call=slot.call,
        first_head=slot.first_head,
    )
    row["bytes"] = sum(a.nbytes for a in (record.scores, record.weights, record.visible) if a is not None)
    return record


def _softmax_error(
    scores: Tensor, weights: Tensor, hidden: Tensor | None, sink: Tensor | None
) -> tuple[float | None, float | None]:
    """Largest difference between softmax of the scores over visible cells and the weights, over finite rows.

    As it is, and relative to the largest weight of the row: long rows have small weights.
    """
    again = torch.softmax(scores if hidden is None else scores.masked_fill(hidden, -torch.inf), -1)
    if sink is not None:
        again.mul_((1.0 - sink).unsqueeze(-1))
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


def _judge(slot: Slot, what: str, error: float | None, precision: torch.dtype) -> None:
    """Refuse what is grossly wrong, warn of what is more than rounding."""
    limit = tolerance(precision)
    if error is None or error <= limit:
        return
    if not error <= _WRONG and precision in (torch.float32, torch.float64):
        raise UnsupportedAttentionError(
            f"{slot.scene.name}: the attention recorded from {slot.backend} differs from {what} by {error:.2g}, "
            f"expected at most {limit:.1g}; something in this module is not seen by the capture"
        )
    log.warning("%s: %s differs from the recorded attention by %.2g (%s)", slot.scene.name, what, error, precision)


def _visible(hidden: Tensor | None) -> BoolArray | None:
    if hidden is None or not bool(hidden.any()):
        return None
    if bool((hidden == hidden[:1]).all()):
        hidden = hidden[0]
    return np.asarray((~hidden).cpu().numpy())


def _numpy(x: Tensor) -> NDArray[Any]:
    """An array of its own, so that nothing bigger is kept alive by it."""
    x = wide(x.detach()).cpu()
    if not x.is_contiguous() or x.untyped_storage().nbytes() != x.numel() * x.element_size():
        x = x.contiguous().clone()
    return np.asarray(x.numpy())


__all__ = ["Slot", "make_record"]
