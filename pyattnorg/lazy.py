"""Values of a network that are read head by head: from a file, or computed again when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.memory import available_memory, size_text

BoolArray = NDArray[np.bool_]
WHOLE = slice(None)


@runtime_checkable
class HeadValues(Protocol):
    """Where a network's values come from, one head at a time."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(queries, keys, heads)."""
        ...

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """What heads come as: float32 or float64."""
        ...

    def head(self, index: int, rows: slice = WHOLE) -> FloatArray:
        """One head's matrix, (queries, keys), or some of its rows."""
        ...

    def visible(self, index: int) -> BoolArray | None:
        """Cells that this head can see, (queries, keys); None where it sees all."""
        ...


class SomeHeads:
    """Some heads of lazily read values, in another order perhaps."""

    def __init__(self, values: HeadValues, at: Sequence[int]) -> None:
        self._values, self._at = values, [int(i) for i in at]

    @property
    def shape(self) -> tuple[int, int, int]:
        return *self._values.shape[:2], len(self._at)

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return self._values.dtype

    def head(self, index: int, rows: slice = WHOLE) -> FloatArray:
        return self._values.head(self._at[index], rows)

    def visible(self, index: int) -> BoolArray | None:
        return self._values.visible(self._at[index])


def read_values(values: HeadValues) -> FloatArray:
    """All values as one array (queries, keys, heads).

    Raises
    ------
    MemoryError
        They do not fit in the memory that there is; the message says how to go on.
    """
    queries, keys, heads = values.shape
    _refuse_large(queries * keys * heads * values.dtype.itemsize, values.shape)
    out = np.empty((heads, queries, keys), values.dtype)
    for i in range(heads):
        out[i] = values.head(i)
    return out.transpose(1, 2, 0)


def read_visible(values: HeadValues) -> BoolArray | None:
    """Visible cells: (queries, keys) where all heads see the same, else (queries, keys, heads); None for all."""
    queries, keys, heads = values.shape
    first = values.visible(0)
    several: BoolArray | None = None
    for i in range(1, heads):
        cells = values.visible(i)
        if several is None and not _same(cells, first):
            _refuse_large(queries * keys * heads, values.shape)
            several = np.empty((heads, queries, keys), bool)
            several[:i] = True if first is None else first
        if several is not None:
            several[i] = True if cells is None else cells
    return first if several is None else several.transpose(1, 2, 0)


def _same(a: BoolArray | None, b: BoolArray | None) -> bool:
    if a is b:
        return True
    return a is not None and b is not None and np.array_equal(a, b)


def _refuse_large(need: int, shape: tuple[int, int, int]) -> None:
    free = available_memory()
    if free is not None and need > free * 9 // 10:
        queries, keys, heads = shape
        raise MemoryError(
            f"values: {queries} queries x {keys} keys x {heads} heads take {size_text(need)} in memory, and "
            f"{size_text(free)} are free; take some heads first (network.take_heads([...])), read them one by one "
            "(network['L0H0']), or capture fewer with layers=, heads=, queries= or keys="
        )


__all__ = ["BoolArray", "HeadValues", "SomeHeads", "read_values", "read_visible"]
