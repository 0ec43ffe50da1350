"""What stands where a layer had attention, once all of its heads are gone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class RemovedAttention(nn.Module):  # type: ignore[misc]  # torch leaves it untyped
    """Gives what attention without heads gives: the bias of its output projection, or nothing side by side.

    `width` channels for every token, in a tuple with None (no weights) where the module that was here gave one.
    A cache is told of the tokens, so that later layers and positions still count them.
    """

    def __init__(self, width: int, bias: Tensor | None, *, in_tuple: bool, layer_idx: int | None) -> None:
        super().__init__()
        self.width, self.in_tuple, self.layer_idx = width, in_tuple, layer_idx
        self.num_heads = 0
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Take what attention takes; the first argument holds the tokens."""
        names = ("hidden_states", "x", "query")
        x = args[0] if args else next(kwargs[n] for n in names if n in kwargs)
        cross = any(kwargs.get(n) is not None for n in ("key_value_states", "encoder_hidden_states"))
        self._tell_cache(x, kwargs, cross)
        out = x.new_zeros(*x.shape[:-1], self.width)
        if self.bias is not None:
            out = out + self.bias
        return (out, None) if self.in_tuple else out

    def _tell_cache(self, x: Tensor, kwargs: dict[str, Any], cross: bool) -> None:
        cache = next((c for n in ("cache", "past_key_values", "layer_past") if (c := kwargs.get(n)) is not None), None)
        cache = getattr(cache, "self_attention_cache", cache)
        if cache is not None and not cross and self.layer_idx is not None:
            empty = x.new_zeros(x.shape[0], 1, x.shape[1], 1)
            cache.update(empty, empty, self.layer_idx)

    def extra_repr(self) -> str:
        """For print(model)."""
        return f"width={self.width}, no heads"


def like(device: torch.device, dtype: torch.dtype, width: int) -> Tensor:
    """A bias to be filled from a file."""
    return torch.zeros(width, dtype=dtype, device=device)


__all__ = ["RemovedAttention", "like"]
