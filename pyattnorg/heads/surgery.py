"""Taking heads out of weights, with a way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pyattnorg.heads.anatomy import COUNTS, KEY_COUNTS, Anatomy, sizes
from pyattnorg.heads.removed import RemovedAttention

_INNER = ("all_head_size", "inner_dim", "attn_dim", "split_size")


@dataclass(frozen=True)
class Plan:
    """What is to be done with one module: heads that stay, heads that stay but give nothing, what is added instead."""

    anatomy: Anatomy
    kept: tuple[int, ...]
    zeroed: tuple[int, ...] = ()
    shift: Tensor | None = None  # added to what the output projection gives: the means of the heads that went

    @property
    def kept_keys(self) -> list[int]:
        """Heads of keys and values that stay."""
        group = self.anatomy.heads // self.anatomy.key_heads
        return sorted({h // group for h in self.kept})


@dataclass
class Surgery:
    """Changes to one model; `undo` takes all of them back."""

    model: nn.Module
    _undo: list[tuple[Any, str, Any, bool]] = field(default_factory=list)

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute (a parameter or a module may be one), and remember what it was."""
        self._undo.append((owner, name, getattr(owner, name, None), hasattr(owner, name)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Everything as it was: the same objects in the same places."""
        for owner, name, value, there in reversed(self._undo):
            if there:
                setattr(owner, name, value)
            else:
                delattr(owner, name)
        self._undo.clear()

    def operate(self, plan: Plan) -> None:
        """Do what the plan says."""
        one = plan.anatomy
        if plan.shift is not None:
            self._shift(one.out[1], plan.shift)
        if plan.zeroed:
            self._zero(one.out[1], one.columns(plan.zeroed))
        if len(plan.kept) == one.heads:
            return
        if not plan.kept:
            self._remove(one)
            return
        rows = one.rows(plan.kept, plan.kept_keys)
        for (_, linear), keep in zip(one.inward, rows, strict=True):
            self._cut(linear, keep, outward=True)
        self._cut(one.out[1], one.columns(plan.kept), outward=False)
        self._count(one, len(plan.kept), len(plan.kept_keys))

    def _cut(self, linear: Any, keep: Sequence[int], *, outward: bool) -> None:
        weight, index = linear.weight, torch.tensor(list(keep), dtype=torch.long, device=linear.weight.device)
        plain = isinstance(linear, nn.Linear)
        axis = 0 if outward == plain else 1
        self.put(linear, "weight", _parameter(weight.detach().index_select(axis, index), weight))
        if outward and linear.bias is not None:
            self.put(linear, "bias", _parameter(linear.bias.detach()[index], linear.bias))
        name = ("out_features" if outward else "in_features") if plain else ("nf" if outward else "nx")
        self.put(linear, name, len(keep))

    def _zero(self, out: Any, columns: Sequence[int]) -> None:
        weight = out.weight.detach().clone()
        if isinstance(out, nn.Linear):
            weight[:, list(columns)] = 0.0
        else:
            weight[list(columns)] = 0.0
        self.put(out, "weight", _parameter(weight, out.weight))

    def _shift(self, out: Any, shift: Tensor) -> None:
        width = sizes(out)[1]
        old = torch.zeros(width, dtype=out.weight.dtype, device=out.weight.device) if out.bias is None else out.bias
        new = (old.detach().double() + shift.to(old.device).double()).to(old.dtype)
        self.put(out, "bias", _parameter(new, out.weight))

    def _remove(self, one: Anatomy) -> None:
        layer_idx = getattr(one.module, "layer_idx", None)
        in_tuple = not type(one.module).__module__.startswith("timm.")
        out = one.out[1]
        if one.out_is_own:
            instead = RemovedAttention(sizes(out)[1], out.bias, in_tuple=in_tuple, layer_idx=layer_idx)
        else:  # the projection beside it stays, and has nothing to project
            instead = RemovedAttention(0, None, in_tuple=in_tuple, layer_idx=layer_idx)
            self._cut(out, [], outward=False)
        instead.to(out.weight.device, out.weight.dtype).train(one.module.training)
        above, _, name = one.path.rpartition(".")
        self.put(self.model.get_submodule(above), name, instead)

    def _count(self, one: Anatomy, heads: int, key_heads: int) -> None:
        m: Any = one.module
        for name in COUNTS:
            if getattr(m, name, None) == one.heads:
                self.put(m, name, heads)
        for name in KEY_COUNTS:
            if getattr(m, name, None) == one.key_heads:
                self.put(m, name, key_heads)
        if isinstance(getattr(m, "num_key_value_groups", None), int):
            self.put(m, "num_key_value_groups", heads // key_heads)
        for name in _INNER:
            if getattr(m, name, None) == one.heads * one.value_width:
                self.put(m, name, heads * one.value_width)

    def cut_sinks(self, plan: Plan) -> None:
        """A number a head (GPT-OSS's sinks) goes with its head."""
        sinks = getattr(plan.anatomy.module, "sinks", None)
        if isinstance(sinks, nn.Parameter) and plan.kept:
            self.put(plan.anatomy.module, "sinks", _parameter(sinks.detach()[list(plan.kept)], sinks))


def _parameter(values: Tensor, like: Tensor) -> nn.Parameter:
    return nn.Parameter(values.contiguous(), requires_grad=like.requires_grad)


__all__ = ["Plan", "Surgery"]
