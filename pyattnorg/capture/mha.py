"""Calls of ``multi_head_attention_forward``, which is what torch.nn.MultiheadAttention and nn.TransformerEncoder run.

The function averages heads or returns no weights at all, and a mode does not see inside it; so projections, masks and
scores are done again for the one example, and checked against the output that it gave.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pyattnorg.arrays import to_numpy
from pyattnorg.capture.fastpath import intervened
from pyattnorg.capture.layout import Layout, Scene
from pyattnorg.capture.masks import causal, either, hidden_by_bias
from pyattnorg.capture.maths import attend, output_error, unseen, wide
from pyattnorg.capture.slots import parts_of
from pyattnorg.capture.sources import products

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Recorder

SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def see_mha(recorder: Recorder, scene: Scene, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
    """Record a call from its arguments, and check the maps against the output it gave."""
    bound = SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    p = bound.arguments
    query, key, value = p["query"], p["key"], p["value"]
    same_tokens = query is key or (query.shape == key.shape and query.data_ptr() == key.data_ptr())
    with unseen(query.device, autocast=True):
        batched = query.ndim == 3
        if not batched:
            query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        heads, sinks = int(p["num_heads"]), int(p["bias_k"] is not None) + int(bool(p["add_zero_attn"]))
        batch, n_queries = query.shape[1], query.shape[0]
        n_keys = key.shape[0] if p["static_k"] is None else p["static_k"].shape[1]
        layout = Layout(batch, heads, "batch, heads")
        width = (query.shape[-1] if p["embed_dim_to_check"] is None else p["embed_dim_to_check"]) // heads
        slot = recorder.intake.open(scene, "mha", layout, n_queries, n_keys, None, sizes=(width, 0))
        if slot is None:
            return
        at = slot.example
        one = [x[:, at : at + 1] for x in (query, key, value)]
        q, k, v = _projected(p, one, heads, at)
        padding = p["key_padding_mask"]
        if padding is not None:
            padding = padding[at] if padding.ndim == 2 else padding
        hidden, bias, kind = _masks(p, padding, n_queries, n_keys, sinks, layout, at, query.device)
    with unseen(query.device):
        maps = attend(q, k, 1.0 / math.sqrt(q.shape[-1]), hidden, bias, sinks)
        dropout = float(p["dropout_p"]) if p["training"] else 0.0
        error = None
        if dropout == 0.0 and not intervened():
            context = maps.context(v.to(maps.weights.dtype)).transpose(0, 1).reshape(n_queries, -1)
            bias_out = None if p["out_proj_bias"] is None else wide(p["out_proj_bias"])
            ours = F.linear(context, wide(p["out_proj_weight"]), bias_out)
            theirs = out[0][:, at] if batched else out[0]
            rows = None if hidden is None else hidden.all(0)  # a row of the output holds all heads
            error = output_error(ours, theirs, rows)
        wanted = [slot.take(x) for x in (q, k)]
        rows = [None if x is None else slot.take_rows(slot.take(x)) for x in (hidden, bias)]
        scale = 1.0 / math.sqrt(q.shape[-1])
        qk = products(slot, slot.take_rows(wanted[0]), wanted[1], scale, rows[0], rows[1], sinks)
        parts = (part._replace(output_error=error) for part in parts_of(slot, maps.take(slot.take)))
        pads = _hidden_and_bias(padding)[0] if same_tokens and padding is not None else None
        recorder.intake.keep(
            slot, parts, mask=kind, dtype=out[0].dtype, raw=True, dropout=dropout,
            padding=None if pads is None else to_numpy(pads, "key_padding_mask"), qk=qk,
        )  # fmt: skip


def _projected(p: Mapping[str, Any], one: list[Tensor], heads: int, at: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one example, (heads, n, d), with the extra columns that the options ask for."""
    if p["use_separate_proj_weight"]:
        matrices = [p["q_proj_weight"], p["k_proj_weight"], p["v_proj_weight"]]
    else:
        matrices = list(p["in_proj_weight"].chunk(3))
    biases = [None] * 3 if p["in_proj_bias"] is None else list(p["in_proj_bias"].chunk(3))
    q, k, v = (F.linear(x, w, b) for x, w, b in zip(one, matrices, biases, strict=True))
    if p["bias_k"] is not None:
        k, v = torch.cat([k, p["bias_k"].to(k.dtype)]), torch.cat([v, p["bias_v"].to(v.dtype)])

    def split(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], heads, -1).transpose(0, 1)

    q, k, v = split(q), split(k), split(v)
    rows = slice(at * heads, (at + 1) * heads)
    k = k if p["static_k"] is None else p["static_k"][rows]
    v = v if p["static_v"] is None else p["static_v"][rows]
    if p["add_zero_attn"]:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    return q, k, v


def _masks(
    p: Mapping[str, Any], padding: Tensor | None, n_queries: int, n_keys: int, sinks: int, layout: Layout, at: int,
    device: torch.device,
) -> tuple[Tensor | None, Tensor | None, str]:  # fmt: skip
    """(hidden cells, additive bias, kind): (heads or 1, queries, keys and extra columns)."""
    mask = p["attn_mask"]
    hidden, bias, kinds = None, None, []
    if p["is_causal"] and padding is None and not p["need_weights"]:
        # torch then trusts the hint and does not look at the mask
        hidden, mask, kinds = causal(n_queries, n_keys + sinks, device)[None], None, ["causal"]
    if mask is not None:
        mask = mask[None] if mask.ndim == 2 else mask
        if mask.shape[0] > 1:
            mask = mask[at * layout.heads : (at + 1) * layout.heads]
        hidden, bias = _hidden_and_bias(mask)
        kinds.append("boolean" if mask.dtype == torch.bool else "additive")
    if padding is not None:
        pad_hidden, pad_bias = _hidden_and_bias(padding[None, None, :])
        hidden = either(hidden, pad_hidden)
        if pad_bias is not None:
            bias = pad_bias if bias is None else bias + pad_bias
        kinds.append("padding")
    if hidden is not None and hidden.shape[-1] == n_keys and sinks:
        hidden = F.pad(hidden.expand(-1, n_queries, n_keys), (0, sinks))
    if bias is not None and sinks:
        bias = F.pad(bias.expand(-1, n_queries, n_keys), (0, sinks))
    return hidden, bias, "+".join(kinds) or "none"


def _hidden_and_bias(mask: Tensor) -> tuple[Tensor | None, Tensor | None]:
    if mask.dtype == torch.bool:
        return mask, None
    return hidden_by_bias(mask), mask


__all__ = ["SIGNATURE", "see_mha"]
