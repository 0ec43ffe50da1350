"""What a mask hides. Masks are read as masks, where they are applied; numbers decide only where no mask was seen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

# Half of float16's lowest number: no additive bias of a real model is as low, every "minus infinity" is lower.
LOWEST_BIAS = torch.finfo(torch.float16).min / 2
# A fill or a two-valued additive mask this low hides a cell; older code fills with -1e4, -1e9 or -100.
LOWEST_FILL = -100.0
# A cell is hidden only if its weight is nothing: exp(-100) is 4e-44.
NOTHING = 1e-6


def hidden_by_bias(bias: Any) -> Tensor | None:
    """Cells that an additive tensor hides: -inf and the like, or the low value of a mask that holds only 0 and it."""
    if not isinstance(bias, Tensor) or not bias.is_floating_point() or bias.numel() == 0 or bias.ndim < 1:
        return None
    if not has_values(bias):
        return None
    hidden = bias <= LOWEST_BIAS
    if bool(hidden.any()):
        return hidden
    least = bias.min()
    if float(least) <= LOWEST_FILL and bool((bias == 0).any()) and bool(((bias == 0) | (bias == least)).all()):
        return bias == least
    return None


def hidden_by_fill(mask: Any, value: Any) -> Tensor | None:
    """Cells that ``masked_fill(mask, value)`` hides."""
    low = _is_low(value)
    return mask.bool() if low and isinstance(mask, Tensor) else None


def hidden_by_where(condition: Any, chosen: Any, other: Any, scores: Tensor) -> Tensor | None:
    """Cells that ``where(condition, chosen, other)`` hides, one of the two being the scores."""
    if not isinstance(condition, Tensor):
        return None
    if chosen is scores and _is_low(other):
        return ~condition.bool()
    if other is scores and _is_low(chosen):
        return condition.bool()
    return None


def has_values(x: Tensor) -> bool:
    """Whether a tensor holds numbers: those of a run for shapes only (see `survey`) do not."""
    return not x.is_meta and not isinstance(x, FakeTensor)


def _is_low(value: Any) -> bool:
    if isinstance(value, Tensor):
        return has_values(value) and value.numel() > 0 and float(value.max()) <= LOWEST_FILL
    return isinstance(value, (int, float)) and value <= LOWEST_FILL


def either(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Cells hidden by one mask or the other."""
    return b if a is None else a if b is None else a | b


def by_numbers(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Cells at -inf or the neighbourhood of the lowest number of the dtype that the scores were computed in."""
    return scores <= lowest(dtype)


def lowest(dtype: torch.dtype) -> float:
    """What is not above this is taken for -inf, or for the lowest number of the dtype."""
    return float(torch.finfo(dtype).min) / 2


def truly_hidden(hidden: Tensor, weights: Tensor) -> Tensor:
    """Masked cells that got no weight; a row that is masked as a whole (a padding query) counts as hidden too.

    The weights of such a row are whatever softmax makes of equal sentinels, or NaN: nothing the model looks at.
    """
    hidden = hidden.expand(weights.shape)
    return hidden & ((weights.abs() <= NOTHING) | weights.isnan() | hidden.all(-1, keepdim=True))


def causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """Cells hidden by ``is_causal``: torch aligns the triangle to the top left, whatever the lengths."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril().logical_not()


__all__ = [
    "by_numbers",
    "causal",
    "either",
    "has_values",
    "hidden_by_bias",
    "hidden_by_fill",
    "hidden_by_where",
    "lowest",
    "truly_hidden",
]
