"""What a loss says of every head: gradients of gates on what heads give, token by token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pyattnorg.capture.contexts import Context
from pyattnorg.capture.slots import Slot

Key = tuple[str, int]  # module, layer


class Effects:
    """The edit that watches ``output * gradient`` of every head.

    After a backward pass `rows` holds, for each call of attention, (heads, tokens): the derivative of the loss by a
    gate on that head at that token. Their sum over tokens is the derivative by a gate on the head.
    """

    def __init__(self) -> None:
        self.rows: dict[Key, Tensor] = {}
        self.gates: list[Tensor] = []  # differentiate by these alone, and no weight gets a gradient

    def wants(self, slot: Slot) -> bool:
        """All heads are watched."""
        return True

    def change(self, slot: Slot, context: Context) -> Tensor:
        """What the heads gave, through gates of 1."""
        heads = slot.layout.heads
        gate = torch.ones(heads, dtype=context.values.dtype, device=context.values.device, requires_grad=True)
        self.gates.append(gate)
        out = context.values * context.numbers(gate)
        values = context.values.detach()

        def keep(gradient: Tensor) -> None:
            product = Context(values * gradient.detach(), context.head, context.width)
            found = product.rows(heads).double().sum(-1).cpu()
            self._add((slot.scene.place.module, slot.layer), slot.first_head, found)

        if out.requires_grad:
            out.register_hook(keep)
        return out

    def _add(self, key: Key, first: int, found: Tensor) -> None:
        """Heads that come one by one go below, the same heads again (tokens in chunks) beside."""
        old = self.rows.get(key)
        if old is None:
            old = found.new_zeros(0, found.shape[1])
        need = first + len(found)
        if len(old) < need and old.shape[1] == found.shape[1]:
            old = torch.cat([old, found.new_zeros(need - len(old), found.shape[1])])
            old[first:need] += found
            self.rows[key] = old
        elif len(old) == need and old.shape[1] == found.shape[1]:
            old[first:need] += found
        else:
            self.rows[key] = torch.cat([old, found], 1)


Loss = Callable[[Any, Any], Tensor]


def next_token_loss(output: Any, call: Any) -> Tensor | None:
    """Mean negative log-likelihood of each next token, of a model with one logit a token of its text; else None."""
    logits, ids = getattr(output, "logits", None), call.kwargs.get("input_ids")
    if ids is None and call.args and isinstance(call.args[0], Tensor):
        ids = call.args[0]
    if logits is None or not isinstance(ids, Tensor) or logits.ndim != 3 or logits.shape[:2] != ids.shape:
        return None
    return nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]).float(), ids[:, 1:].reshape(-1))


def first_floats(output: Any) -> Tensor:
    """The first tensor of an output that holds real numbers and has a gradient."""
    from pyattnorg.capture.layout import tensors_in

    found = next((t for t in tensors_in(output) if t.is_floating_point() and t.requires_grad), None)
    if found is None:
        raise ValueError(
            "loss: the model's output has no tensor with a gradient; pass loss=, a function of output and call"
        )
    return found


def projections(output: Any, n: int, seed: int) -> list[Tensor]:
    """Random directions of the output, scaled by its size: losses for models that have none of their own."""
    x = first_floats(output)
    generator = torch.Generator().manual_seed(seed)
    scale = float(x.detach().float().norm()) or 1.0
    return [(x.float() * torch.randn(x.shape, generator=generator).to(x.device)).sum() / scale for _ in range(n)]


__all__ = ["Effects", "Loss", "first_floats", "next_token_loss", "projections"]
