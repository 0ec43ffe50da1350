"""Where a layer's maps go as they are made, block by block: arrays in memory here, files in `writing`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from torch import Tensor

from pyattnorg.capture.maths import wide


class Shelf(Protocol):
    """Takes the maps of one layer."""

    lazy: bool  # what it gives is read head by head later on

    def put(self, kind: str, heads: slice, rows: slice, values: Tensor) -> None:
        """Take a block (heads, queries, keys) of the maps of a kind."""
        ...

    def take(self) -> dict[str, Any]:
        """The maps by kind, (heads, queries, keys)."""
        ...


class MemoryShelf:
    """Arrays in memory, of `dtype` (None: as they were computed)."""

    lazy = False

    def __init__(self, shape: tuple[int, int, int], dtype: str | None) -> None:
        self._shape, self._dtype = shape, dtype
        self._arrays: dict[str, Any] = {}

    def put(self, kind: str, heads: slice, rows: slice, values: Tensor) -> None:
        """Take a block; the only one, being everything, is kept as it is."""
        x = wide(values.detach()).cpu()
        if tuple(x.shape) == self._shape and self._dtype is None:
            if not x.is_contiguous() or x.untyped_storage().nbytes() != x.numel() * x.element_size():
                x = x.contiguous().clone()  # an array of its own, so that nothing bigger is kept alive by it
            self._arrays[kind] = np.asarray(x.numpy())
            return
        if kind not in self._arrays:
            self._arrays[kind] = np.empty(self._shape, self._dtype or str(x.numpy().dtype))
        self._arrays[kind][heads, rows] = x.numpy()

    def take(self) -> dict[str, Any]:
        """The arrays by kind."""
        return self._arrays


__all__ = ["MemoryShelf", "Shelf"]
