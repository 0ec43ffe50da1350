"""Calls of ``scaled_dot_product_attention``: the fused kernel shows no scores, so they are computed from its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.fastpath import intervened
from pyattnorg.capture.layout import Layout, Scene, refuse_channels
from pyattnorg.capture.masks import causal, either, hidden_by_bias
from pyattnorg.capture.maths import attend, output_error, unseen
from pyattnorg.capture.products import Factors
from pyattnorg.capture.reading import lie_of, read_map
from pyattnorg.capture.slots import Part, Slot
from pyattnorg.capture.sources import products

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Recorder

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_DEFAULTS: dict[str, Any] = {
    "attn_mask": None,
    "dropout_p": 0.0,
    "is_causal": False,
    "scale": None,
    "enable_gqa": False,
}


def see_sdpa(recorder: Recorder, scene: Scene, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> None:
    """Record a call from its arguments, and check the maps against the output it gave."""
    call = {**_DEFAULTS, **dict(zip(_NAMES, args, strict=False)), **kwargs}
    q, k, v, mask = call["query"], call["key"], call["value"], call["attn_mask"]
    if any(getattr(x, "is_nested", False) for x in (q, k, v)):
        raise UnsupportedAttentionError(
            f"{scene.name}: scaled_dot_product_attention got nested tensors, expected dense ones with a mask"
        )
    with unseen(q.device):
        q, mask, out = _unpacked(scene, q, k, mask, out)
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        found = Factors(q, k, equation=("nd", "md", "nm"))
        layout, lie = read_map(recorder, scene, (*_lead(q, k), n_queries, n_keys), lie_of(recorder.positions, found))
        turned = q.stride(-1) > q.stride(-2)
        refuse_channels(scene, layout.heads, n_queries, n_keys, v.shape[-1], q.shape[-1], turned, lie[0])
        if recorder.intake.had(scene, n_queries, q, k):
            return
        sizes = (int(q.shape[-1]), _bias_heads(mask, layout))
        slot = recorder.intake.open(
            scene, "sdpa", layout, n_queries, n_keys, _key_heads(k, layout), sizes=sizes, lie=lie
        )
        if slot is None:
            return
        precision = out.dtype if out.is_floating_point() else q.dtype
        picked = [slot.take(_pick(x, layout, slot.example)).to(precision) for x in (q, k, v)]
        hidden, bias, kind = _masks(mask, bool(call["is_causal"]), n_queries, n_keys, layout, slot.example, q.device)
        hidden, bias = (None if x is None else slot.take_rows(slot.take(x)) for x in (hidden, bias))
        scale = 1.0 / math.sqrt(q.shape[-1]) if call["scale"] is None else float(call["scale"])
        dropout = float(call["dropout_p"])
        told = dropout == 0.0 and not intervened()
        theirs = slot.take_rows(slot.take(_pick(out, layout, slot.example))) if told else None
        queries = slot.take_rows(picked[0])
        parts = attended(slot, queries, picked[1], picked[2], scale, hidden, bias, theirs)
        qk = products(slot, queries, picked[1], scale, hidden, bias)
        recorder.intake.keep(slot, parts, mask=kind, dtype=precision, raw=True, dropout=dropout, qk=qk)


def attended(
    slot: Slot, q: Tensor, k: Tensor, v: Tensor, scale: float, hidden: Tensor | None, bias: Tensor | None,
    theirs: Tensor | None,
) -> Iterator[Part]:  # fmt: skip
    """Maps of the wanted heads and queries, block by block, compared with the output where there is one."""
    for block in slot.blocks():
        here = None if hidden is None else block.of(hidden)
        maps = attend(block.of(q), k[block.heads], scale, here, None if bias is None else block.of(bias))
        error = None
        if theirs is not None:
            context = maps.context(v[block.heads].to(maps.weights.dtype))
            error = output_error(context, block.of(theirs), here)
        yield Part(block, maps, error)


def _unpacked(
    scene: Scene, q: Tensor, k: Tensor, mask: Tensor | None, out: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Queries, mask and output with an axis of all heads.

    For a single new token transformers packs the heads that share keys into the axis of queries: what looks like
    several queries of few heads is one query of many.
    """
    groups = getattr(scene.module, "num_key_value_groups", None)
    heads = getattr(getattr(scene.module, "config", None), "num_attention_heads", None)
    packed = (
        isinstance(groups, int) and groups > 1 and isinstance(heads, int) and q.ndim == k.ndim == 4
        and q.shape[2] == groups and q.shape[1] == k.shape[1] and q.shape[1] * groups == heads
    )  # fmt: skip
    if not packed:
        return q, mask, out
    q, out = (x.reshape(x.shape[0], heads, 1, x.shape[-1]) for x in (q, out))
    if mask is not None and mask.ndim == 4 and mask.shape[1] > 1:
        mask = mask.reshape(mask.shape[0], heads, 1, mask.shape[-1])
    return q, mask, out


def packed_heads(out: Tensor, heads: int) -> Tensor:
    """An output with an axis of all heads, where a single new token's were packed by the keys that they share."""
    if out.ndim == 4 and out.shape[1] != heads and out.shape[1] * out.shape[2] == heads:
        return out.reshape(out.shape[0], heads, 1, out.shape[-1])
    return out


def _lead(q: Tensor, k: Tensor) -> tuple[int, ...]:
    """Leading axes of the maps: those of the queries, but keys may bring a larger batch."""
    if q.ndim == 4 and k.ndim == 4:
        return max(q.shape[0], k.shape[0]), max(q.shape[1], k.shape[1])
    return tuple(torch.broadcast_shapes(q.shape[:-2], k.shape[:-2]))


def _key_heads(k: Tensor, layout: Layout) -> int | None:
    if layout.kind != "batch, heads" or k.ndim < 3:
        return None
    return 1 if k.shape[-3] > 1 and k.stride(-3) == 0 else int(k.shape[-3])


def _bias_heads(mask: Tensor | None, layout: Layout) -> int:
    """Heads that have a bias of their own: a mask of numbers that is the same for all heads is taken for a mask."""
    if mask is None or not mask.is_floating_point() or layout.kind != "batch, heads" or mask.ndim < 3:
        return 0
    return layout.heads if mask.shape[-3] > 1 else 0


def _pick(x: Tensor, layout: Layout, example: int) -> Tensor:
    """One example as (heads, n, d), heads of keys repeated for the heads of queries that share them."""
    x = layout.pick(x, example)
    if layout.windowed is None and x.shape[0] != layout.heads:
        x = x.repeat_interleave(layout.heads // x.shape[0], 0)
    return x


def _masks(
    mask: Tensor | None,
    is_causal: bool,
    n_queries: int,
    n_keys: int,
    layout: Layout,
    example: int,
    device: torch.device,
) -> tuple[Tensor | None, Tensor | None, str]:
    """(hidden cells, additive bias, kind of mask) of one example, each (heads or 1, queries, keys)."""
    hidden, bias, kinds = None, None, []
    if is_causal:
        # top-left, as torch runs it: fewer queries than keys then see the first keys only
        hidden, kinds = causal(n_queries, n_keys, device)[None], ["causal"]
    if mask is not None:
        mask = layout.pick(mask.expand(*mask.shape[:-2], n_queries, n_keys), example)
        if mask.dtype == torch.bool:
            hidden, kinds = either(hidden, ~mask), [*kinds, "boolean"]
        else:
            bias, kinds = mask, [*kinds, "additive"]
            hidden = either(hidden, hidden_by_bias(mask))
    return hidden, bias, "+".join(kinds) or "none"


__all__ = ["packed_heads", "see_sdpa"]
