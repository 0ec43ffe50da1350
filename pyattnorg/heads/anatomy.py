"""Where the heads of an attention module lie in its weights, if they lie in a way that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from pyattnorg.capture.places import Places
from pyattnorg.capture.record import Place

Layout = Literal["apart", "blocks", "by head"]

# names of the projections of queries, keys and values, and what makes them one matrix
_APART = (
    ("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q", "k", "v"),
    ("to_q", "to_k", "to_v"),
)  # fmt: skip
_FUSED: tuple[tuple[str, Layout], ...] = (("qkv", "blocks"), ("c_attn", "blocks"), ("query_key_value", "by head"))
_OUT = ("o_proj", "out_proj", "out_lin", "c_proj", "proj", "dense", "o")
_BESIDE = ("output.dense", "self_output.dense")  # beside a module that gives the heads side by side
_WIDTHS = ("head_dim", "attention_head_size", "head_size")
COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "num_head", "heads")
KEY_COUNTS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")


class CannotPruneError(ValueError):
    """Heads cannot be taken out of the weights; the message names the module and says why, and what can be done."""


@dataclass(frozen=True)
class Anatomy:
    """An attention module: its projections (in `layout`), how many heads there are, and how wide they are."""

    path: str
    module: nn.Module
    place: Place
    layer: int
    inward: tuple[tuple[str, Any], ...]  # paths and modules of queries, keys, values, or of the one that has all
    out: tuple[str, Any]
    layout: Layout
    heads: int
    key_heads: int
    width: int  # of a head's queries and keys
    value_width: int

    @property
    def out_is_own(self) -> bool:
        """Whether the module itself applies the output projection."""
        return self.out[0].startswith(self.path + ".") or not self.path

    def rows(self, kept: Sequence[int], kept_keys: Sequence[int]) -> list[list[int]]:
        """Rows to keep of each projection in `inward`."""
        if self.layout == "by head":
            return [spread(kept, 3 * self.width)]
        parts = [spread(kept, self.width), spread(kept_keys, self.width), spread(kept_keys, self.value_width)]
        if self.layout == "apart":
            return parts
        block = self.heads * self.width
        return [[i * block + row for i, rows in enumerate(parts) for row in rows]]

    def columns(self, heads: Sequence[int]) -> list[int]:
        """Columns of the output projection that belong to some heads."""
        return spread(heads, self.value_width)


def spread(heads: Sequence[int], width: int) -> list[int]:
    """Channels of some heads that lie side by side."""
    return [h * width + i for h in heads for i in range(width)]


def is_linear(module: Any) -> bool:
    """Whether it is a plain matrix: ``torch.nn.Linear``, or the Conv1D of GPT-2, which is one transposed."""
    return type(module) is nn.Linear or type(module).__name__ in ("Conv1D", "NonDynamicallyQuantizableLinear")


def sizes(linear: Any) -> tuple[int, int]:
    """(in, out) of a matrix."""
    if isinstance(linear, nn.Linear):
        return linear.in_features, linear.out_features
    rows, columns = linear.weight.shape
    return int(rows), int(columns)


def anatomies(model: nn.Module) -> Iterator[Anatomy]:
    """Every attention module whose weights are understood, with its place and layer as captures number them."""
    modules = dict(model.named_modules())
    places = Places(modules)
    for path, module in modules.items():
        found = _projections(modules, path, module)
        if found is None:
            continue
        inward, layout, out = found
        counted = _count(module, inward, layout, out)
        if counted is None:
            continue
        steps = path.split(".") if path else []
        place = places.place([name for i in range(len(steps) + 1) if (name := ".".join(steps[:i])) in modules])
        yield Anatomy(path, module, place, places.next_layer(place, (0, 0)), inward, out, layout, *counted)


def _projections(
    modules: dict[str, nn.Module], path: str, module: nn.Module
) -> tuple[tuple[tuple[str, Any], ...], Layout, tuple[str, Any]] | None:
    below = f"{path}." if path else ""
    out = next(((below + n, modules[below + n]) for n in _OUT if is_linear(modules.get(below + n))), None)
    if out is None and path:
        above = path.rpartition(".")[0]
        beside = [f"{above}.{n}" if above else n for n in _BESIDE]
        out = next(((n, modules[n]) for n in beside if is_linear(modules.get(n))), None)
    if out is None:
        return None
    for names in _APART:
        if all(is_linear(modules.get(below + n)) for n in names):
            return tuple((below + n, modules[below + n]) for n in names), "apart", out
    for name, layout in _FUSED:
        if is_linear(modules.get(below + name)):
            return ((below + name, modules[below + name]),), layout, out
    return None


def _count(module: Any, inward: Any, layout: Layout, out: tuple[str, Any]) -> tuple[int, int, int, int] | None:
    """(heads, heads of keys, width, width of values); None where the sizes do not go together."""
    inner = sizes(out[1])[0]
    width = next((w for n in _WIDTHS if isinstance(w := getattr(module, n, None), int) and w > 0), None)
    said = next((c for n in COUNTS if isinstance(c := getattr(module, n, None), int) and c > 0), None)
    rows = [sizes(linear)[1] for _, linear in inward]
    if layout == "apart":
        if said is None and width is None:
            return None
        heads = said if said is not None else rows[0] // (width or 1)
        width = rows[0] // heads
        if heads * width != rows[0] or inner % heads or rows[1] % width:
            return None
        value_width, key_heads = inner // heads, rows[1] // width
        good = key_heads and heads % key_heads == 0 and rows[2] == key_heads * value_width
        return (heads, key_heads, width, value_width) if good else None
    if width is None and said is None:
        return None
    heads = said if said is not None else inner // (width or 1)
    width = inner // heads
    return (heads, heads, width, width) if rows[0] == 3 * inner and heads * width == inner else None


def refuse_unknown_weights(one: Anatomy) -> None:
    """Refuse a module that has other weights than its projections and norms within a head: they may go by head.

    Raises
    ------
    CannotPruneError
    """
    known = {id(p) for _, linear in (*one.inward, one.out) for p in linear.parameters()}
    for name, p in (*one.module.named_parameters(), *one.module.named_buffers()):
        within = name.split(".")[0] in ("q_norm", "k_norm", "q_layernorm", "k_layernorm")
        if id(p) in known or (within and p.ndim == 1 and p.shape[0] == one.width) or (name == "sinks" and p.ndim == 1):
            continue
        if name in ("bias", "masked_bias") and p.dtype in (torch.bool, torch.uint8):
            continue  # the causal mask of old GPT-2
        raise CannotPruneError(
            f"{one.path!r} ({type(one.module).__name__}): its weights {name!r} of shape {tuple(p.shape)} may go by "
            "head (a bias of positions, a gate, a norm over all heads), so heads cannot be taken out; ablate them, or "
            "pass otherwise='zero'"
        )
    shared = ("has_relative_attention_bias", "alibi", "relative_attention")
    odd = next((n for n in shared if hasattr(one.module, n)), None)
    if odd is not None:
        raise CannotPruneError(
            f"{one.path!r} ({type(one.module).__name__}): all layers share a bias of positions that has a matrix a "
            f"head ({odd}), so one layer cannot have fewer heads; ablate them, or pass otherwise='zero'"
        )


__all__ = [
    "COUNTS", "KEY_COUNTS", "Anatomy", "CannotPruneError", "anatomies", "is_linear", "refuse_unknown_weights", "sizes",
    "spread",
]  # fmt: skip
