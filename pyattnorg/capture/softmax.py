"""Softmax in the open: its input are the scores, its output the weights, if its result goes on to weigh values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyattnorg.capture.errors import CaptureError, UnsupportedAttentionError
from pyattnorg.capture.layout import Layout, Scene, read_layout, refuse_channels
from pyattnorg.capture.masks import by_numbers, either, truly_hidden
from pyattnorg.capture.maths import Maps, unseen, wide
from pyattnorg.capture.products import Factors
from pyattnorg.capture.trails import Trail

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Note, Recorder


@dataclass
class Candidate:
    """A softmax over scores, waiting for the product that makes it attention."""

    scene: Scene
    note: Note
    dtype: torch.dtype
    trail: Trail
    axis_is_last: bool
    started: float
    layout: Layout | None = None
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
    trail = recorder.trails.get(x)
    if trail is None or trail.stage != "scores":
        recorder.note(scene, x.shape, "its input is no product of queries and keys")
        return
    note = recorder.note(scene, x.shape, "its result weighs no values")
    candidate = Candidate(scene, note, x.dtype, trail, isinstance(axis, int) and axis % x.ndim == x.ndim - 1, started)
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
    layout = read_layout(x.shape, candidate.scene, recorder.batches)
    example = recorder.example_of(layout)
    recorder.budget_allows(layout, x.shape[-2], x.shape[-1])
    # copied now, since the model may go on to change either in place
    candidate.layout = layout
    candidate.scores = _own(layout.pick(x, example))
    candidate.weights = _own(layout.pick(out, example))


def _own(x: Tensor) -> Tensor:
    x = wide(x.detach())
    return x.clone() if x.device.type == "cpu" else x.cpu()


def see_product(recorder: Recorder, factors: Factors, x: Tensor, trail: Trail) -> bool:
    """Record the candidate that `x` comes from, if this product weighs values with it."""
    candidate = trail.candidate
    assert candidate is not None
    keys, queries = (-1, -2) if not trail.flipped else (-2, -1)
    if not factors.sums_over(x, keys, queries):
        return False
    if candidate.note.taken:
        return True
    if not candidate.axis_is_last and candidate.refusal is not None:
        raise candidate.refusal
    candidate.note.taken = True
    with unseen(torch.device("cpu")):
        _record(recorder, candidate, int(x.shape[keys]), factors.width(x))
    return True


def _record(recorder: Recorder, candidate: Candidate, columns: int, width: int) -> None:
    if candidate.refusal is not None:
        raise candidate.refusal
    layout, scores, weights = candidate.layout, candidate.scores, candidate.weights
    candidate.scores = candidate.weights = None
    assert layout is not None and scores is not None and weights is not None
    n_queries, all_keys = scores.shape[-2], scores.shape[-1]
    refuse_channels(candidate.scene, layout.heads, n_queries, width)
    slot = recorder.open(
        candidate.scene, "softmax", layout, n_queries, columns, candidate.trail.key_heads, started=candidate.started
    )
    if slot is None:
        return
    hidden, kind = _hidden(candidate, layout, slot.example, scores, weights)
    maps = Maps(scores, weights, hidden, all_keys - columns)
    if len(slot.heads) < layout.heads:
        some = torch.as_tensor(slot.heads)
        maps = Maps(scores[some], weights[some], None if hidden is None else hidden[some], maps.sinks)
    recorder.keep(slot, maps, mask=kind, dtype=candidate.dtype, raw=False)


def _hidden(
    candidate: Candidate, layout: Layout, example: int, scores: Tensor, weights: Tensor
) -> tuple[Tensor | None, str]:
    """Hidden cells (heads, queries, keys): from the masks seen on the way, and from sentinels where none was."""
    seen, kinds = candidate.trail.hidden, list(candidate.trail.masks)
    if seen is not None:
        seen = layout.pick(seen, example).cpu()
        if seen.shape[-1] not in (1, scores.shape[-1]) or seen.shape[-2] not in (1, scores.shape[-2]):
            seen = None  # the shape changed on the way in a manner that could not be followed
    sentinels = by_numbers(scores, candidate.dtype)
    if bool((sentinels if seen is None else sentinels & ~seen).any()):
        seen, kinds = either(seen, sentinels), [*kinds, "sentinel"]
    if seen is None:
        return None, "none"
    hidden = truly_hidden(seen, weights)
    return (hidden, "+".join(kinds)) if bool(hidden.any()) else (None, "none")


__all__ = ["Candidate", "see_product", "see_softmax"]
