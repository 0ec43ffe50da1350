"""Softmax in the open: its input are the scores, its output the weights, if its result goes on to weigh values."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyattnorg.capture.banded import hold_band, is_banded
from pyattnorg.capture.errors import CaptureError, UnsupportedAttentionError
from pyattnorg.capture.layout import Layout, Scene, refuse_channels
from pyattnorg.capture.masks import by_numbers, either, has_values, lowest, truly_hidden
from pyattnorg.capture.maths import Maps, unseen, wide
from pyattnorg.capture.products import Factors
from pyattnorg.capture.reading import read_map
from pyattnorg.capture.slots import parts_of
from pyattnorg.capture.trails import Lie, Trail

if TYPE_CHECKING:
    from pyattnorg.capture.passes import Note
    from pyattnorg.capture.recorder import Recorder

# Half precision rounds weights by 0.4 % on the way to the values; this much of a row's largest weight is another map.
CHANGED = 0.02


@dataclass
class Candidate:
    """A softmax over scores, waiting for the product that makes it attention."""

    scene: Scene
    note: Note
    dtype: torch.dtype  # of the scores
    precision: torch.dtype  # of the weights
    trail: Trail
    axis_is_last: bool
    started: float
    result: weakref.ref[Tensor]  # what softmax gave, and how often it had been changed in place by then
    version: int | None
    layout: Layout | None = None
    lie: Lie = (None, None)
    example: int = 0
    scores: Tensor | None = None  # copies of the one example, (heads, queries, keys)
    weights: Tensor | None = None
    refusal: CaptureError | None = None


def see_softmax(recorder: Recorder, scene: Scene, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Copy input and output of a softmax over scores, and follow its result."""
    started = time.perf_counter()
    given = list(args)
    x = next((kwargs[n] for n in ("input", "self") if n in kwargs), None)
    x = given.pop(0) if x is None and given else x
    axis = kwargs.get("dim", given[0] if given else None)
    if not isinstance(x, Tensor) or not isinstance(out, Tensor) or x.ndim < 2:
        return
    if is_banded(scene.module):
        hold_band(recorder, scene, x, out)
        return
    trail = recorder.trails.get(x)
    if trail is None or trail.stage != "scores":
        recorder.note(scene, x.shape, "its input is no product of queries and keys")
        return
    note = recorder.note(scene, x.shape, "its result weighs no values")
    last = isinstance(axis, int) and axis % x.ndim == x.ndim - 1
    candidate = Candidate(scene, note, x.dtype, out.dtype, trail, last, started, weakref.ref(out), _changes(out))
    try:
        with unseen(x.device):
            _copy(recorder, candidate, x, out)
    except CaptureError as refusal:  # counts only if the softmax turns out to be attention
        candidate.refusal = refusal
    recorder.trails.put(out, Trail("weights", candidate=candidate))


def _copy(recorder: Recorder, candidate: Candidate, x: Tensor, out: Tensor) -> None:
    if not candidate.axis_is_last:
        raise UnsupportedAttentionError(
            f"{candidate.scene.name}: its softmax runs over another axis than the last of a map of shape "
            f"{tuple(x.shape)}; expected (…, queries, keys) with softmax over the keys"
        )
    layout, candidate.lie = read_map(recorder, candidate.scene, x.shape, candidate.trail.lie)
    example = recorder.intake.example_of(layout)
    recorder.intake.budget_allows(layout, x.shape[-2], x.shape[-1])
    if recorder.shapes_only:
        candidate.layout, candidate.example, candidate.scores, candidate.weights = layout, example, x, out
        return
    # copied now, since the model may go on to change either in place
    candidate.layout, candidate.example = layout, example
    candidate.scores = _own(layout.pick(x, example))
    candidate.weights = _own(layout.pick(out, example))


def _changes(x: Tensor) -> int | None:
    """How often a tensor was changed in place; None where torch does not count."""
    return None if x.is_inference() else x._version


def _own(x: Tensor) -> Tensor:
    own = wide(x.detach()).cpu()
    return own.clone() if own.data_ptr() == x.data_ptr() else own


def see_product(recorder: Recorder, scene: Scene, factors: Factors, x: Tensor, trail: Trail) -> bool:
    """Record the candidate that `x` comes from, if this product weighs values with it."""
    candidate = trail.candidate
    assert candidate is not None
    # the axis that softmax ran over is that of the keys, wherever a transposition has put it
    keys, queries = (-1, -2) if candidate.axis_is_last != trail.flipped else (-2, -1)
    if not factors.sums_over(x, keys, queries):
        return False
    if candidate.note.taken:
        return True
    if not candidate.axis_is_last and candidate.refusal is not None:
        raise candidate.refusal
    candidate.note.taken = True
    if candidate.refusal is not None:
        raise candidate.refusal
    with unseen(x.device):
        result = candidate.result()
        same = result is x and candidate.version is not None and _changes(x) == candidate.version  # as it was copied
        applied = None if trail.dropout or same else x.transpose(-2, -1) if trail.flipped else x
        _record(recorder, candidate, int(x.shape[keys]), factors.width(x), trail.dropout, applied)
    return True


def _coarser(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype == torch.float64 else dtype


def _changed(candidate: Candidate, applied: Tensor | None) -> str:
    """What to say of weights that are not the softmax's own result any more when they weigh the values."""
    layout, weights = candidate.layout, candidate.weights
    assert layout is not None
    assert weights is not None
    if applied is None or layout.windowed is not None or not has_values(applied):
        return ""
    queries, columns = applied.shape[-2:]
    if applied.numel() != layout.batch * layout.heads * queries * columns or queries != weights.shape[-2]:
        return ""
    if layout.kind in ("heads, batch", "heads*batch"):
        one = applied.reshape(layout.heads, layout.batch, queries, columns)[:, candidate.example]
    else:
        one = applied.reshape(layout.batch, layout.heads, queries, columns)[candidate.example]
    kept = weights[..., :columns]
    gap = (wide(one).cpu() - kept).abs().amax(-1) / kept.amax(-1).clamp_min(1e-30)
    worst = float(gap.nan_to_num(0.0).max())
    if not worst > CHANGED:
        return ""
    return (
        f"weights are those of softmax; the module mixes, gates or reweights them afterwards, by up to {worst:.0%} of "
        "a row's largest"
    )


def _record(
    recorder: Recorder, candidate: Candidate, columns: int, width: int, dropout: float, applied: Tensor | None
) -> None:
    layout, scores, weights = candidate.layout, candidate.scores, candidate.weights
    compared = weights is not None and layout is not None and not recorder.shapes_only
    note = _changed(candidate, applied) if compared else ""
    candidate.scores = candidate.weights = None
    assert layout is not None
    assert scores is not None
    assert weights is not None
    n_queries, all_keys = scores.shape[-2], scores.shape[-1]
    scene = recorder.forwards.around(candidate.scene)
    trail, lie = candidate.trail, candidate.lie
    refuse_channels(scene, layout.heads, n_queries, columns, width, trail.depth, trail.channels_first, lie[0])
    slot = recorder.intake.open(
        scene, "softmax", layout, n_queries, columns, candidate.trail.key_heads, candidate.started, lie=candidate.lie
    )
    if slot is None:
        return
    if "qk" in slot.keeping:
        raise UnsupportedAttentionError(
            f"{scene.name}: its attention is written out, so that what stands between queries, keys and softmax "
            "(biases, caps) is not known and keep=('qk',) cannot bring its maps back; load the model with "
            "attn_implementation='sdpa', or keep 'scores' and 'weights', on disk with store="
        )
    hidden, kind = _hidden(candidate, layout, slot.example, scores, weights)
    maps = Maps(scores, weights, hidden, all_keys - columns).take(slot.take)
    recorder.intake.keep(
        slot,
        parts_of(slot, maps),
        mask=kind,
        dtype=candidate.dtype,
        # softmax of float32 scores can be done in float64; here it is done in float32
        precision=candidate.precision if scores.dtype == torch.float64 else _coarser(candidate.precision),
        raw=False,
        dropout=dropout,
        note=note,
    )


def _hidden(
    candidate: Candidate, layout: Layout, example: int, scores: Tensor, weights: Tensor
) -> tuple[Tensor | None, str]:
    """Hidden cells (heads, queries, keys): from the masks seen on the way, and from sentinels where none was."""
    seen, kinds = candidate.trail.hidden, list(candidate.trail.masks)
    if seen is not None:
        seen = layout.pick(seen, example).cpu()
        if seen.shape[-1] not in (1, scores.shape[-1]) or seen.shape[-2] not in (1, scores.shape[-2]):
            seen = None  # the shape changed on the way in a manner that could not be followed
    if not scores.numel() or not float(scores.min()) > lowest(candidate.dtype):  # NaN is not
        sentinels = by_numbers(scores, candidate.dtype)
        if bool((sentinels if seen is None else sentinels & ~seen).any()):
            seen, kinds = either(seen, sentinels), [*kinds, "sentinel"]
    if seen is None:
        return None, "none"
    hidden = truly_hidden(seen, weights)
    return (hidden, "+".join(kinds)) if bool(hidden.any()) else (None, "none")


__all__ = ["Candidate", "see_product", "see_softmax"]
