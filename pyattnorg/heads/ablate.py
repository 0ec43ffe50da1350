"""Ablating heads: what they give is replaced while a model runs, exactly, and nothing of the model is touched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from pyattnorg.capture.contexts import Context
from pyattnorg.capture.intervene import Intervention
from pyattnorg.capture.running import refuse_wrapped, unwrap
from pyattnorg.capture.slots import Slot
from pyattnorg.checks import one_of
from pyattnorg.heads.choose import Choice, HeadsMeant, choose
from pyattnorg.heads.tables import head_table_of, network_of

if TYPE_CHECKING:
    from pyattnorg.heads.means import HeadMeans

Mode = Literal["zero", "mean"]


class Ablation:
    """The edit that puts zeros, or a head's mean, in place of what chosen heads give."""

    def __init__(self, choice: Choice, means: HeadMeans | None) -> None:
        self.choice, self.means = choice, means
        self._chosen: list[int] = []
        self._slot: Slot | None = None
        self._nth = 0

    def wants(self, slot: Slot) -> bool:
        """Whether any chosen head is in this call."""
        self._chosen = self.choice.among(slot.scene.place, slot.layer, slot.first_head, slot.layout.heads)
        return bool(self._chosen)

    def change(self, slot: Slot, context: Context) -> Tensor:
        """What the call gives without them."""
        self._nth = self._nth + 1 if slot is self._slot else 0
        if slot is not self._slot:
            self._slot = slot
            self._chosen = self.choice.among(slot.scene.place, slot.layer, slot.first_head, slot.layout.heads)
        off = torch.zeros(slot.layout.heads, dtype=torch.bool, device=context.values.device)
        off[self._chosen] = True
        mask = context.numbers(off)
        if self.means is None:
            return context.values.masked_fill(mask, 0.0)
        rows = self.means.of(slot, self._nth).to(context.values.device, context.values.dtype)
        return torch.where(mask, context.channels(rows), context.values)


@contextlib.contextmanager
def ablate_heads(
    model: Any,
    heads: HeadsMeant,
    *,
    mode: Mode = "zero",
    means: HeadMeans | None = None,
    inputs: Any = None,
) -> Iterator[None]:
    """Run a model without some of its heads: ``with pa.ablate_heads(model, ["L3H5", "L4H0"]): model(...)``.

    What a head gives (its weights times the values, before the output projection) is replaced by zeros or by the
    head's mean. That is exact, and works for every attention that `capture` sees; no weight and no module is touched,
    so the model gives the same bits as ever once the block is left, whatever happened inside. Blocks may be nested,
    gradients flow to all that is left, and `capture` inside a block sees the ablated model. Only forwards of the thread
    that opened the block are changed.

    Parameters
    ----------
    model : torch.nn.Module or LoadedModel
        Not compiled.
    heads : labels, mapping or Heads
        ``["L3H5", "L3H6"]``, ``"L3H*"``, ``{3: [5, 6]}``, ``["encoder.L0H1"]``, or rows of a capture's table of heads.
        Heads that share keys (grouped queries) are ablated one by one: a head is one of the queries'.
    mode : {"zero", "mean"}
    means : HeadMeans, optional
        For ``mode="mean"``: what `head_means` found on other inputs.
    inputs : optional
        One example, as `capture` takes it: labels are then looked up among those of its capture. Needed for models
        with several parts whose names come from shapes (stages of a vision model).

    Raises
    ------
    ValueError
        A label that means nothing or several heads; at the end of the block, heads that never occurred.
    CaptureError
        Attention whose heads cannot be told apart.

    Notes
    -----
    Zero-ablation: Michel, Levy, Neubig, "Are Sixteen Heads Really Better than One?", 2019 (arXiv 1905.10650). Where
    a module mixes heads after softmax (talking heads), a head is what weighs the values of that number.
    """
    from pyattnorg.heads.means import HeadMeans  # which imports this module

    one_of(mode, "mode", ("zero", "mean"))
    if mode == "mean" and means is None:
        raise ValueError("means: is missing for mode='mean'; pass pa.head_means(model, inputs) of other inputs")
    if means is not None and not isinstance(means, HeadMeans):
        raise TypeError(f"means: got {type(means).__name__}, expected what pyattnorg.head_means returns")
    if mode == "zero" and means is not None:
        raise ValueError("means: got means for mode='zero', expected mode='mean'")
    net = network_of(model)
    refuse_wrapped(net)
    net = unwrap(net)
    choice = choose(heads, None if inputs is None else head_table_of(model, inputs))
    with edited(net, Ablation(choice, means)) as run:
        yield
    if run.ran:
        choice.require_all()


@contextlib.contextmanager
def edited(model: nn.Module, edit: Any) -> Iterator[Intervention]:
    """The model with `edit` in it."""
    intervention = Intervention(model, edit)
    with intervention:
        yield intervention


__all__ = ["Ablation", "Mode", "ablate_heads", "edited"]
