"""What is to be compressed: values with a number in every cell, which cells count, trees, and all names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array, given, is_torch, mask_values, plain, to_numpy
from pyattnorg.compression.quantize import in_range
from pyattnorg.haar import fitting_trees
from pyattnorg.network import NetworkTensor
from pyattnorg.organization import Organization
from pyattnorg.trees import PartitionTree
from pyattnorg.visibility import fill_invisible, visible_cells

BoolArray = NDArray[np.bool_]
Trees = Sequence[PartitionTree | None]


@dataclass(frozen=True)
class Intake:
    """A tensor that can be compressed.

    Attributes
    ----------
    values : float64
        A number in every cell, times ``2^-exponent`` of `about`; of networks without the queries and keys that nothing
        sees.
    seen : bool array of the shape of `values`, optional
        Cells that count; None for all.
    trees : list of PartitionTree or None, optional
        Those that were given.
    mask : bool array, optional
        Visible cells as they came: of the whole shape, or of its first two axes.
    about : dict
        The rest, JSON-ready: shape, dtype, exponent where it is not 0, and of networks kind, heads and names.
    """

    values: NDArray[np.float64]
    seen: BoolArray | None
    trees: list[PartitionTree | None] | None
    mask: BoolArray | None
    about: dict[str, Any]


def take_in(x: Any, trees: Trees | None, visible: Array | None) -> Intake:
    """Anything that `pyattnorg.compress` takes."""
    if isinstance(x, Organization):
        return _of_network(x.network, x.trees_ if trees is None else trees, visible, filled=True)
    if isinstance(x, NetworkTensor):
        return _of_network(x, trees, visible, filled="masked" in x.meta)
    if hasattr(x, "reconstruct"):
        raise TypeError("network: got a compressed tensor, expected one that is not: pass its .reconstruct()")
    if hasattr(x, "groups") and hasattr(x, "report"):
        raise TypeError("network: got a capture, expected one of its tensors: pass its .weights or .scores")
    if isinstance(x, (str, bytes)) or hasattr(x, "__fspath__"):
        raise TypeError(f"network: got {x!r}; expected a tensor: capture a model, or load an organisation")
    return _of_array(x, trees, visible)


def _of_network(x: NetworkTensor, trees: Trees | None, visible: Array | None, *, filled: bool) -> Intake:
    if visible is not None:
        raise TypeError("visible: got an array beside a network, which knows its own visible cells")
    meta = {name: value for name, value in x.meta.items() if name not in ("raw", "masked")}
    try:
        meta = json.loads(json.dumps(meta, default=plain))
    except (TypeError, ValueError) as error:
        raise TypeError(f"network.meta: cannot be written as JSON ({error}); keep plain values there") from None
    about = {
        "shape": x.shape,
        "dtype": x.values.dtype.str[1:],
        "kind": x.kind,
        "heads": _columns(x.heads.to_dict()),
        "queries": x.queries,
        "keys": x.keys,
        "meta": meta,
    }
    whole = x if filled else x.filled()
    seen = None if whole.visible is None or whole.visible.all() else whole.visible_cells()
    values: Any = whole.values.astype(np.float64)
    if seen is not None and filled:
        values = fill_invisible(values, seen, "zero" if x.kind == "weights" else "mean")
    found = None if trees is None else _fitting(trees, values.shape, x.shape)
    mask = None if x.visible is None or x.visible.all() else np.asarray(x.visible)
    return _intake(values, seen, found, mask, about)


def _fitting(trees: Trees, kept: tuple[int, ...], shape: tuple[int, ...]) -> list[PartitionTree | None]:
    try:
        return fitting_trees(trees, kept)
    except ValueError as error:
        if kept == shape:
            raise
        told = f"{error}: queries and keys that nothing sees are left out ({shape} is {kept} then), as by organize"
        raise ValueError(told) from None


def _columns(heads: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns of the table of heads that say more than their defaults do."""
    n = len(heads["head"])
    defaults = {
        "kv_group": heads["head"],
        "group": [""] * n,
        "module": [""] * n,
        "window": [-1] * n,
    }
    return {name: column for name, column in heads.items() if column != defaults.get(name)}


def _of_array(x: Any, trees: Trees | None, visible: Array | None) -> Intake:
    raw = to_numpy(x, "network")
    if raw.ndim < 1 or 0 in raw.shape:
        raise ValueError(f"network: got shape {raw.shape}, expected one axis or more with at least one point on each")
    wide = raw.dtype.kind in "iub" or raw.dtype.itemsize >= 8
    single: Any = raw.astype(np.float64 if wide else np.float32, copy=False)
    masks = mask_values(x)
    cells: BoolArray | None
    if raw.ndim > 1 and visible is not None and np.shape(visible) == raw.shape[:2]:
        cells = visible_cells(single.reshape(*raw.shape[:2], -1), visible, masks)
    else:
        cells = visible_cells(single, visible, masks)
    about: dict[str, Any] = {"shape": raw.shape, "dtype": single.dtype.str[1:]}
    if is_torch(x):
        about["array"] = "torch"
    seen = None
    if cells is not None:
        if not cells.any():
            raise ValueError("visible: no cell is visible, so there is nothing to compress; check the mask")
        seen = np.broadcast_to(cells.reshape(cells.shape + (1,) * (raw.ndim - cells.ndim)), raw.shape)
        hidden = np.unique(single[~seen])
        if visible is None and len(hidden) == 1:
            about["hidden"] = float(hidden[0]) if np.isfinite(hidden[0]) else "-inf"
        single = fill_invisible(single, seen, "mean", axis=min(1, raw.ndim - 1))
    values = given(single, "network").values.astype(np.float64)
    found = None if trees is None else fitting_trees(trees, values.shape)
    return _intake(values, seen, found, cells, about)


def _intake(values: NDArray[np.float64], seen: Any, trees: Any, mask: Any, about: dict[str, Any]) -> Intake:
    values, exponent = in_range(values)
    return Intake(values, seen, trees, mask, about | {"exponent": exponent} if exponent else about)
