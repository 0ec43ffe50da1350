"""Whether padding changed what a model did with an example: the example runs alone too, and the maps are compared."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyattnorg.capture.passes import Inputs

log = logging.getLogger("pyattnorg")

CHANGES = 1e-3  # weights that differ by this are another result, not rounding
CHANGES_HALF = 0.05  # of half precision


def cropped(named: Mapping[str, Any], inputs: Inputs, example: int) -> dict[str, Any] | None:
    """The arguments of a forward of one example without its padding; None where it has none that is known of."""
    real = {name: inputs.padding_of(name, example) for name in ("attention_mask", "decoder_attention_mask")}
    if all(r is None for r in real.values()):
        return None
    batch = next((len(m) for m in inputs.real.values()), 0)
    out = {}
    for name, x in named.items():
        mine = real["decoder_attention_mask" if name.startswith("decoder") else "attention_mask"]
        out[name] = _one(x, batch, example % batch, mine) if isinstance(x, Tensor) else x
    return out


def _one(x: Tensor, batch: int, example: int, real: NDArray[np.bool_] | None) -> Tensor:
    if x.ndim == 0 or x.shape[0] != batch:
        return x
    x = x[example : example + 1]
    if real is None:
        return x
    keep = np.flatnonzero(real)
    for axis in range(1, x.ndim):
        if x.shape[axis] == len(real) and (axis < 2 or x.ndim == 4):
            x = x.index_select(axis, torch.as_tensor(keep, device=x.device))
    return x


def compare(found: Any, alone: Any) -> list[tuple[str, int, float]]:
    """(group, layer, largest difference) between two captures' weights, or scores where weights were not kept."""
    out = []
    for name, group in found.groups.items():
        other = alone.groups.get(name)
        kind = next((k for k in ("weights", "scores") if k in group.tensors), None)
        if other is None or kind is None or kind not in other.tensors or other.shape != group.shape:
            continue
        a, b = group.tensors[kind], other.tensors[kind]
        both = a.visible_cells() & b.visible_cells()
        gap = np.where(both, np.abs(a.values - b.values), 0.0)
        if not np.array_equal(a.visible_cells(), b.visible_cells()) and kind == "weights":
            gap = np.abs(a.values - b.values)
        layers = a.heads.layer
        out += [(name, int(n), float(gap[:, :, layers == n].max())) for n in np.unique(layers)]
    return out


def judge(found: Any, alone: Any) -> None:
    """Write differences into the report of `found`; warn where they are no rounding."""
    gaps = {(name, layer): gap for name, layer, gap in compare(found, alone)}
    worst, first = 0.0, ""
    for row in found.report:
        gap = gaps.get((row["group"], row["layer"]))
        row["padding_error"] = gap
        if gap is None or gap <= (CHANGES if row["dtype"] in ("float32", "float64") else CHANGES_HALF):
            continue
        _note(row, f"padding changes it by up to {gap:.2g}")
        if not worst:
            first = row["module"]
        worst = max(worst, gap)
    if worst:
        log.warning(
            "%s: padding changes the attention of this example by up to %.2g; give position_ids that follow the mask, "
            "or the example without padding",
            first,
            worst,
        )


def unchecked(found: Any, error: Exception) -> None:
    """Say that the comparison could not be made."""
    said = next(iter(str(error).splitlines()), type(error).__name__)
    for row in found.report:
        _note(row, f"whether padding changes it is not known: alone the model fails ({said[:100]})")


def _note(row: dict[str, Any], text: str) -> None:
    row["note"] = f"{row['note']}; {text}" if row["note"] else text


__all__ = ["CHANGES", "CHANGES_HALF", "compare", "cropped", "judge", "unchecked"]
