"""What heads add to the stream: norms of their outputs and of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyattnorg.capture.contexts import Context
from pyattnorg.capture.inputs import Call
from pyattnorg.capture.slots import Slot
from pyattnorg.head_table import Heads
from pyattnorg.heads.ablate import edited
from pyattnorg.heads.anatomy import Anatomy, anatomies
from pyattnorg.heads.tables import run


class Norms:
    """The edit that adds up how much each head's output varies over tokens, behind its output projection."""

    def __init__(self, parts: dict[str, Anatomy]) -> None:
        self.parts = parts
        self.found: dict[tuple[str, int], Tensor] = {}

    def wants(self, slot: Slot) -> bool:
        """All heads are looked at."""
        return True

    def change(self, slot: Slot, context: Context) -> Tensor:
        """Measure them; what they gave goes on as it was."""
        rows = context.rows(slot.layout.heads).detach().double()
        rows = rows - rows.mean(1, keepdim=True)
        part = self.parts.get(slot.scene.place.module)
        if part is not None and part.heads == slot.layout.heads and part.value_width == rows.shape[-1]:
            weight = part.out[1].weight.detach().double()
            weight = weight.T if isinstance(part.out[1], nn.Linear) else weight  # (heads x width, channels)
            rows = rows @ weight.reshape(part.heads, part.value_width, -1)
        key = (slot.scene.place.module, slot.layer)
        norms = rows.square().sum(-1).mean(1).sqrt().cpu()
        old = self.found.get(key, norms.new_zeros(0))
        self.found[key] = torch.cat([old, norms]) if slot.first_head else norms
        return context.values


def output_norms(model: nn.Module, call: Call, table: Heads) -> NDArray[np.float64]:
    """Root mean square of what each head adds to the stream, its mean over tokens taken off: (heads,)."""
    norms = Norms({part.path: part for part in anatomies(model)})
    with edited(model, norms):
        run(model, call)
    return _in_order(norms.found, table)


def weight_norms(model: nn.Module, table: Heads) -> NDArray[np.float64]:
    """Frobenius norms of each head's value and output projections, multiplied; NaN where weights are not understood."""
    found: dict[tuple[str, int], Tensor] = {}
    for one in anatomies(model):
        out = one.out[1].weight.detach().double()
        out = out if isinstance(one.out[1], nn.Linear) else out.T
        numbers = []
        for head in range(one.heads):
            key = head // (one.heads // one.key_heads)
            values = _value_rows(one, key)
            numbers.append(float(values.norm() * out[:, one.columns([head])].norm()))
        for layer in {lay for m, lay in zip(table.module, table.layer.tolist()) if m == one.path}:
            found[one.path, layer] = torch.tensor(numbers, dtype=torch.float64)
    return _in_order(found, table)


def _value_rows(one: Anatomy, key: int) -> Tensor:
    """The rows of the value projection of one head of keys."""
    linear: Any = one.inward[-1][1]
    weight = linear.weight.detach().double()
    weight = weight if isinstance(linear, nn.Linear) else weight.T
    width = one.value_width
    start = {
        "apart": key * width,
        "blocks": 2 * one.heads * one.width + key * width,
        "by head": (3 * key + 2) * one.width,
    }[one.layout]
    return weight[start : start + width]


def _in_order(found: dict[tuple[str, int], Tensor], table: Heads) -> NDArray[np.float64]:
    out = np.full(len(table), np.nan)
    rows: Sequence[tuple[str, int, int]] = list(zip(table.module, table.layer.tolist(), table.head.tolist()))
    for i, (module, layer, head) in enumerate(rows):
        numbers = found.get((module, layer))
        if numbers is not None and head < len(numbers):
            out[i] = float(numbers[head])
    return out


__all__ = ["output_norms", "weight_norms"]
