"""Where a layer's maps go as they are made, block by block: arrays in memory here, files in `writing`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from numpy.typing import NDArray
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
    """Arrays in memory, of `dtype` (None: as they were computed); `room` gives them by kind and dtype."""

    lazy = False

    def __init__(self, dtype: str | None, room: Callable[[str, str], NDArray[Any]]) -> None:
        self._dtype, self._room = dtype, room
        self._arrays: dict[str, Any] = {}

    def put(self, kind: str, heads: slice, rows: slice, values: Tensor) -> None:
        """Copy a block to its place."""
        x = wide(values.detach()).cpu().numpy()
        if kind not in self._arrays:
            self._arrays[kind] = self._room(kind, self._dtype or str(x.dtype))
        self._arrays[kind][heads, rows] = x

    def take(self) -> dict[str, Any]:
        """The arrays by kind."""
        return self._arrays


__all__ = ["MemoryShelf", "Shelf"]
