"""The table of a model's heads, and inputs as the model takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pyattnorg.capture.api import capture
from pyattnorg.capture.inputs import Call, prepare
from pyattnorg.capture.models import LoadedModel
from pyattnorg.capture.result import Capture
from pyattnorg.capture.running import mode_of
from pyattnorg.head_table import Heads


def network_of(model: Any) -> Any:
    """The module itself, of a model that was loaded by name or of one that was not.

    Raises
    ------
    TypeError
        A name: it has to be loaded first, so that there is something to act on.
    """
    if isinstance(model, LoadedModel):
        return model.model
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        raise TypeError(
            f"model: got the name {str(model)!r}, expected a model; load it with pyattnorg.capture.load_model"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, expected a torch.nn.Module")
    return model


def head_table_of(model: Any, inputs: Any) -> Heads:
    """All heads of a model, in every part of it, as a capture of this example labels them."""
    return heads_of(capture(model, inputs, keep=("weights",), dtype="float16", example=0, check_padding=False))


def heads_of(found: Capture) -> Heads:
    """The heads of all groups of a capture in one table; a head in windows once."""
    columns: dict[str, list[Any]] = {name: [] for name in Heads.COLUMNS}
    for group in found.groups.values():
        table = next(iter(group.tensors.values())).heads
        first = table.window <= 0
        for name, column in table.take(np.flatnonzero(first)).to_dict().items():
            columns[name] += [-1] * int(first.sum()) if name == "window" else column
    return Heads.of(columns, len(columns["head"]))


def calls_of(model: Any, inputs: Any) -> list[Call]:
    """Inputs, one or a list of them, as arguments of the model's forward.

    Raises
    ------
    ValueError
        None, or inputs with padding: what heads give there is of no use.
    """
    several = list(inputs) if isinstance(inputs, (list, Iterator)) and not isinstance(inputs, Tensor) else [inputs]
    if not several:
        raise ValueError("inputs: got none, expected at least one example, as capture takes it")
    loaded = model if isinstance(model, LoadedModel) else None
    net = network_of(model)
    out = []
    for given in several:
        call = prepare(net, given, loaded=loaded)
        for name, value in call.kwargs.items():
            if name.endswith("attention_mask") and isinstance(value, Tensor) and value.ndim == 2 and not value.all():
                raise ValueError(f"inputs: {name} has padding; give examples one by one, without any")
        out.append(call)
    return out


def run(model: nn.Module, call: Call, *, gradients: bool = False) -> Any:
    """The model's output for a call, in evaluation mode."""
    with mode_of(model, True), torch.set_grad_enabled(gradients):
        return model(*call.args, **call.kwargs)


__all__ = ["calls_of", "head_table_of", "heads_of", "network_of", "run"]
