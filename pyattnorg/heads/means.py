"""What heads give on average: the vectors that mean-ablation puts in their place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyattnorg.capture.contexts import Context
from pyattnorg.capture.running import unwrap
from pyattnorg.capture.slots import Slot
from pyattnorg.heads.ablate import edited
from pyattnorg.heads.tables import calls_of, network_of, run

Key = tuple[str, int, int]  # module, layer, which of several products of the same weights


@dataclass
class HeadMeans:
    """Mean of what every head gave, over tokens and examples: (heads, width) in float64 for each call of attention."""

    sums: dict[Key, Tensor] = field(default_factory=dict, repr=False)
    counts: dict[Key, int] = field(default_factory=dict, repr=False)
    _slot: Slot | None = field(default=None, repr=False)
    _nth: int = 0

    def wants(self, slot: Slot) -> bool:
        """All heads are looked at."""
        return True

    def change(self, slot: Slot, context: Context) -> Tensor:
        """Add what the heads gave; it goes on as it was."""
        self._nth = self._nth + 1 if slot is self._slot else 0
        self._slot = slot
        rows = context.rows(slot.layout.heads).detach().double()
        total = slot.first_head + slot.layout.heads
        key = (slot.scene.place.module, slot.layer, self._nth)
        sums = self.sums.get(key, rows.new_zeros(0, rows.shape[-1]))
        if len(sums) < total:
            sums = torch.cat([sums, rows.new_zeros(total - len(sums), rows.shape[-1])])
        sums[slot.first_head : total] += rows.sum(1)
        self.sums[key] = sums
        self.counts[key] = self.counts.get(key, 0) + (rows.shape[1] if slot.first_head == 0 else 0)
        return context.values

    def of(self, slot: Slot, nth: int = 0) -> Tensor:
        """Means of a call's heads, (heads, width).

        Raises
        ------
        ValueError
            They were never seen.
        """
        module, layer = slot.scene.place.module, slot.layer
        rows = self.at(module, layer, nth)
        return rows[slot.first_head : slot.first_head + slot.layout.heads]

    def at(self, module: str, layer: int, nth: int = 0) -> Tensor:
        """Means of the heads of a module in a layer, (heads, width)."""
        key = (module, layer, nth)
        if key not in self.sums:
            raise ValueError(f"means: hold nothing of {module!r}, layer {layer}; take them from inputs that reach it")
        return self.sums[key] / self.counts[key]


def head_means(model: Any, inputs: Any) -> HeadMeans:
    """Mean of what every head gives (weights times values, before the output projection), over tokens and examples.

    Parameters
    ----------
    model : torch.nn.Module or LoadedModel
    inputs : one example or a list of them, as `capture` takes it
        Without padding. Not those that the ablated model is then judged by.

    Returns
    -------
    HeadMeans
    """
    net = unwrap(network_of(model))
    means = HeadMeans()
    for call in calls_of(model, inputs):
        with edited(net, means):
            run(net, call)
    means._slot = None
    return means


__all__ = ["HeadMeans", "head_means"]
