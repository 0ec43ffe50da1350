"""Importance by gradients: of a gate on every head, once or again after each removal."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pyattnorg.capture.inputs import Call
from pyattnorg.capture.running import mode_of
from pyattnorg.head_table import Heads
from pyattnorg.heads.ablate import Ablation, edited
from pyattnorg.heads.choose import choose
from pyattnorg.heads.effects import Effects, Loss, next_token_loss, projections

PROJECTIONS = 4  # random directions of the output, a call, where there is no loss


def effects_of(
    model: nn.Module, calls: Sequence[Call], table: Heads, loss: Loss | None, seed: int, without: Sequence[int] = ()
) -> NDArray[np.float64]:
    """Derivatives of losses by gates on heads: (heads, losses), a loss or several random projections for each call.

    `without` are positions in the table of heads that are ablated meanwhile.
    """
    at = {(m, lay, h): i for i, (m, lay, h) in enumerate(zip(table.module, table.layer.tolist(), table.head.tolist()))}
    columns = []
    gone: Any = contextlib.nullcontext()
    if len(without):
        gone = edited(model, Ablation(choose(table.take(list(without))), None))
    with gone:
        for number, call in enumerate(calls):
            for part in range(1 if loss is not None else PROJECTIONS):
                effects = Effects()
                with mode_of(model, True), torch.enable_grad(), edited(model, effects):
                    output = model(*call.args, **call.kwargs)
                    value, several = _loss(output, call, loss, seed + number, part)
                    torch.autograd.backward(value, inputs=effects.gates)
                column = np.zeros(len(table))
                for (module, layer), rows in effects.rows.items():
                    for head, total in enumerate(rows.sum(1).tolist()):
                        if (module, layer, head) in at:
                            column[at[module, layer, head]] = total
                columns.append(column)
                if not several:
                    break
    return np.stack(columns, 1)


def _loss(output: Any, call: Call, loss: Loss | None, seed: int, part: int) -> tuple[Tensor, bool]:
    """The loss of a call, and whether there are more of it."""
    if loss is not None:
        value = loss(output, call)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            said = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"loss: gave {said}, expected a tensor of one number that has a gradient")
        return value, False
    own = next_token_loss(output, call)
    if own is not None:
        return own, False
    return projections(output, part + 1, seed)[part], True


__all__ = ["PROJECTIONS", "effects_of"]
