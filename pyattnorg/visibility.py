"""Cells that a model can see, and what stands in those that it cannot: never a number that a mask left there."""

from __future__ import annotations

import warnings
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array, FloatArray, given, mask_values, to_numpy

BoolArray: TypeAlias = NDArray[np.bool_]
SUSPECT = -5000.0  # no score of a model that trains well is so low


def fill_invisible(values: FloatArray, visible: BoolArray, how: str, axis: int = 1) -> FloatArray:
    """A copy with invisible cells replaced: by 0, or by the mean or minimum of the visible ones along `axis`.

    A row that sees nothing takes the mean (minimum) of all visible cells that differ from it on `axis` 0 as well,
    then of everything visible, so that no sentinel ever reaches a computation.
    """
    seen = np.broadcast_to(visible, values.shape)
    if how == "zero":
        return np.where(seen, values, values.dtype.type(0))
    kept = np.where(seen, values, 0).astype(np.float64)
    fill = np.zeros(values.shape)
    known = np.zeros(values.shape, bool)
    for over in ((axis,), (0, axis) if axis else (0, 1), tuple(range(values.ndim))):
        count = seen.sum(over, keepdims=True)
        if how == "mean":
            with np.errstate(over="ignore", invalid="ignore"):  # 0 stands for a sum beyond float64
                level = kept.sum(over, keepdims=True) / np.maximum(count, 1)
        else:
            level = np.where(seen, values, np.inf).min(over, keepdims=True)
        use = np.broadcast_to(count > 0, values.shape) & ~known
        fill = np.where(use, np.where(np.isfinite(level), level, 0), fill)
        known |= use
        if known.all():
            break
    return np.where(seen, values, fill.astype(values.dtype))


def visible_cells(x: FloatArray, visible: Array | None, masks: tuple[float, ...]) -> BoolArray | None:
    """Visible cells as told, or all that hold none of the numbers in `masks`; None where that is all of them."""
    if visible is None:
        if not masks or (low := x.min()) > max(masks) or (low != low and not np.isin(x, masks).any()):
            return None
        seen = ~np.isin(x, np.array(masks, x.dtype))  # NaN stays visible, so that it is reported
        return None if seen.all() else seen
    seen = to_numpy(visible, "visible")
    if seen.dtype != np.bool_:
        if not np.isin(seen, (0, 1)).all():
            raise ValueError("visible: expected booleans, True where the model can see; got other numbers")
        seen = seen.astype(bool)
    if seen.shape not in (x.shape, x.shape[:2]):
        raise ValueError(f"visible: got shape {seen.shape}, expected {x.shape[:2]} or {x.shape}")
    return None if seen.all() else seen.copy()


def warn_of_masks(x: FloatArray, seen: BoolArray | None) -> None:
    """Warn where some scores lie so far below all others as only the masks of old models do (-10000, -1e9)."""
    if not x.min() <= SUSPECT:
        return
    cells = x if seen is None else x[np.broadcast_to(as_deep_as(seen, x), x.shape)]
    low = cells <= SUSPECT
    if low.any() and not low.all() and np.abs(cells[~low]).max() < -SUSPECT / 10:
        warnings.warn(
            f"values: {int(low.sum())} scores are up to {cells[low].max():.6g}, others within {-SUSPECT / 10:g} of 0, "
            "which looks like a mask; pass visible=, or what is found is the mask",
            RuntimeWarning,
            stacklevel=4,
        )


def as_deep_as(visible: BoolArray, values: FloatArray) -> BoolArray:
    """Cells of (queries, keys) as cells of (queries, keys, heads), where `values` has heads."""
    return visible[:, :, None] if visible.ndim == 2 and values.ndim == 3 else visible


def filled_tensor(x: Array, visible: Array | None) -> FloatArray:
    """Values of a tensor with a number in every cell, that no one else can change; see `Questionnaire.fit`."""
    raw = to_numpy(x, "x")
    if raw.ndim < 2 or 0 in raw.shape:
        raise ValueError(f"x: got shape {raw.shape}, expected two axes or more with at least one point on each")
    wide: FloatArray = raw.astype(
        np.float64 if raw.dtype.kind != "f" or raw.dtype.itemsize >= 8 else np.float32, copy=False
    )
    if visible is not None and np.shape(visible) == raw.shape[:2]:
        visible = np.reshape(to_numpy(visible, "visible"), raw.shape[:2] + (1,) * (raw.ndim - 2))
        visible = np.broadcast_to(visible, raw.shape)
    seen = visible_cells(wide, visible, mask_values(x))
    if seen is not None:
        if not seen.any():
            raise ValueError("visible: no cell is visible, so there is nothing to organise; check the mask")
        return given(fill_invisible(wide, seen, "mean"), "x").values
    values = given(wide, "x").values
    return values.copy() if values.flags.writeable and np.may_share_memory(values, raw) else values
