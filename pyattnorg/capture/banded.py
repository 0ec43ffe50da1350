"""Longformer's attention: a band of keys around every query, and a few global tokens, as one map of all tokens.

Beltagy et al. 2020 (arXiv 2004.05150). transformers gives the local softmax as columns, those of the global tokens
first and then the band (2 w + 1 keys around the query), and global queries a softmax of their own over all keys. Which
tokens are global the module is told when it is called, so the map is put together when it returns.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.layout import Layout, Scene
from pyattnorg.capture.masks import by_numbers
from pyattnorg.capture.maths import Maps, unseen, wide
from pyattnorg.capture.slots import parts_of

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Recorder


@dataclass
class Band:
    """The softmaxes of one call so far, (…, columns)."""

    scene: Scene
    scores: list[Tensor]
    weights: list[Tensor]
    dtype: torch.dtype
    started: float


def is_banded(module: nn.Module) -> bool:
    """Whether a module is Longformer's attention or that of its kin (LED)."""
    return isinstance(getattr(module, "one_sided_attn_window_size", None), int) and hasattr(module, "query_global")


def hold_band(recorder: Recorder, scene: Scene, scores: Tensor, weights: Tensor) -> None:
    """Keep a softmax of such a module until it returns."""
    band = recorder.bands.get(id(scene.module))
    if band is None:
        band = recorder.bands[id(scene.module)] = Band(scene, [], [], scores.dtype, time.perf_counter())
    with unseen(scores.device):
        band.scores.append(wide(scores.detach()).clone())
        band.weights.append(wide(weights.detach()).clone())


def see_band(recorder: Recorder, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Record the map of a module that has returned."""
    band = recorder.bands.pop(id(module), None)
    if band is None:
        return
    names = list(inspect.signature(module.forward).parameters)
    call = {**dict(zip(names, args, strict=False)), **kwargs}
    with unseen(band.scores[0].device):
        batch, n, heads, _ = band.scores[0].shape
        layout = Layout(batch, heads, "batch, heads")
        tokens = recorder.passes[-1].inputs.ids.get("input_ids")
        real = n if tokens is None else min(n, tokens.shape[1])  # the model pads to whole windows
        slot = recorder.intake.open(band.scene, "banded", layout, real, real, None, band.started)
        if slot is None:
            return
        if "qk" in slot.keeping:
            raise UnsupportedAttentionError(
                f"{band.scene.name}: its band of keys is put together from two softmaxes, so keep=('qk',) cannot bring "
                "its maps back; keep 'scores' and 'weights', on disk with store="
            )
        maps = _maps(band, call, slot.example, int(module.one_sided_attn_window_size))
        hidden = maps.hidden
        assert hidden is not None
        cut = Maps(maps.scores[:, :real, :real], maps.weights[:, :real, :real], hidden[:, :real, :real])
        dropout = float(getattr(module, "dropout", 0.0)) if module.training else 0.0
        parts = parts_of(slot, cut.take(slot.take))
        recorder.intake.keep(slot, parts, mask="band", dtype=band.dtype, raw=False, dropout=dropout)


def _maps(band: Band, call: Mapping[str, Any], example: int, w: int) -> Maps:
    scores, weights = band.scores[0][example], band.weights[0][example]  # (n, heads, columns)
    n, heads, columns = scores.shape
    first = columns - (2 * w + 1)  # global columns of the example with most of them
    flags = call.get("is_index_global_attn")
    at = torch.nonzero(flags[example]).flatten() if first and flags is not None else scores.new_empty(0).long()
    out = torch.full((heads, n, n), -torch.inf, dtype=scores.dtype, device=scores.device)
    probs = torch.zeros_like(out)
    rows, offsets = torch.arange(n, device=scores.device)[:, None], torch.arange(-w, w + 1, device=scores.device)
    keys = rows + offsets
    inside = (keys >= 0) & (keys < n)
    put = (rows.expand_as(keys)[inside], keys[inside])
    for source, target in ((scores, out), (weights, probs)):
        target[:, put[0], put[1]] = source[..., first:].permute(1, 0, 2)[:, inside]
        if len(at):
            # a global token within the band is masked there, and has its column
            target[:, :, at] = source[..., : len(at)].permute(1, 0, 2)
    if len(at) and len(band.scores) > 1:
        most = band.scores[1].shape[-2]
        for source, target in ((band.scores[1], out), (band.weights[1], probs)):
            target[:, at] = source.reshape(-1, heads, most, n)[example][:, : len(at)]
    hidden = by_numbers(out, band.dtype)
    masked = call.get("is_index_masked")
    if masked is not None:  # queries that are padding give nothing
        hidden = hidden | masked[example][None, :, None]
    return Maps(out, probs, hidden)


__all__ = ["Band", "hold_band", "is_banded", "see_band"]
