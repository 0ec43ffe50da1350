"""Where a questionnaire is computed: on the CPU, or on a GPU that holds the tensor or is asked for."""

from __future__ import annotations

from typing import Any

from pyattnorg import devices
from pyattnorg.arrays import Array, as_tensor, mask_values
from pyattnorg.visibility import filled_tensor


def placed(x: Array, visible: Array | None, device: str | None) -> tuple[Any, Any]:
    """Values that are kept, a number in every cell, and those that are computed with, which may lie on a GPU."""
    where = devices.chosen_device(device)
    there = devices.memory_for(x) if where != "cpu" else None
    if there is not None and visible is None and _all_seen(x):
        values = there.array(as_tensor(x))
        if values.ndim < 2 or 0 in values.shape:
            shape = tuple(values.shape)
            raise ValueError(f"x: got shape {shape}, expected two axes or more with at least one point on each")
        return values, values
    values = filled_tensor(x, visible)
    if where not in (None, "cpu"):
        there = devices.Gpu(where)
    return values, values if there is None else there.array(values)


def _all_seen(x: Array) -> bool:
    """Whether a tensor on a GPU has a number in every cell and none that marks a masked one."""
    tensor = as_tensor(x)
    if not tensor.dtype.is_floating_point or tensor.numel() == 0:
        return True
    least = float(tensor.min())  # NaN if there is any
    return least > max(mask_values(tensor)) and bool(tensor.max() < float("inf"))
