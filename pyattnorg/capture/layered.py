"""Layers whose maps are read head by head, as the values of one network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.capture.qk import Recomputed, cells_of
from pyattnorg.capture.record import BoolArray, Record
from pyattnorg.capture.spans import Spans

WHOLE = slice(None)


class LayerMaps(Protocol):
    """Maps of one layer, (heads, queries, keys)."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def head(self, i: int, rows: slice = WHOLE) -> FloatArray:
        """One head, (queries, keys)."""
        ...


class _InMemory:
    """An array of a layer as something that is read head by head."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values = values
        self.shape, self.dtype = values.shape, values.dtype

    def head(self, i: int, rows: slice = WHOLE) -> FloatArray:
        return self._values[i, rows]


def maps_of(record: Record, kind: Any) -> Any:
    """The maps of a record, however they were kept: an array, something read head by head, or None."""
    found = getattr(record, kind)
    if found is None and record.qk is not None:
        columns = WHOLE if record.columns is None else slice(*record.columns)
        return Recomputed(record.qk, kind, record.visible, columns)
    return found


def is_plain(maps: Any) -> bool:
    """Whether these are numbers in memory as a `NetworkTensor` holds them."""
    return isinstance(maps, np.ndarray) and maps.dtype.itemsize >= 4


def dense(visible: Any) -> BoolArray | None:
    """Visible cells as an array, however they are kept."""
    if visible is None or isinstance(visible, np.ndarray):
        return visible
    cells: BoolArray = visible.cells() if isinstance(visible, Spans) else visible.read()
    return cells


class LayerStack:
    """The maps of some layers one after the other; padding is left out on the way. A `pyattnorg.lazy.HeadValues`."""

    def __init__(
        self, layers: Sequence[Any], records: Sequence[Record], keep_q: BoolArray | None, keep_k: BoolArray | None
    ) -> None:
        self._layers: list[LayerMaps] = [_InMemory(x) if isinstance(x, np.ndarray) else x for x in layers]
        self._visible = [r.visible for r in records]
        self._columns = [WHOLE if r.columns is None else slice(*r.columns) for r in records]
        self._keep_q, self._keep_k = keep_q, keep_k
        self._place = [(n, i) for n, layer in enumerate(self._layers) for i in range(layer.shape[0])]
        _, q, k = self._layers[0].shape
        n_q = q if keep_q is None else int(keep_q.sum())
        self.shape = (n_q, k if keep_k is None else int(keep_k.sum()), len(self._place))
        wide = any(layer.dtype == np.float64 for layer in self._layers)
        self.dtype: np.dtype[Any] = np.dtype(np.float64 if wide else np.float32)

    def head(self, index: int, rows: slice = WHOLE) -> FloatArray:
        """One head's matrix, (queries, keys)."""
        n, i = self._place[index]
        layer = self._layers[n]
        if self._keep_q is None:
            found = layer.head(i, rows)
        else:
            at = np.flatnonzero(self._keep_q)[rows]
            if len(at) == 0:
                found = layer.head(i, slice(0, 0))
            else:
                span = slice(int(at.min()), int(at.max()) + 1)
                found = layer.head(i, span)[at - span.start]
        found = found if self._keep_k is None else found[:, self._keep_k]
        return np.asarray(found, self.dtype)

    def visible(self, index: int) -> BoolArray | None:
        """Cells that a head can see, (queries, keys); None where it sees all of them."""
        n, i = self._place[index]
        cells = cells_of(self._visible[n], i)
        if cells is None:
            return None
        cells = cells[:, self._columns[n]]
        cells = cells if self._keep_q is None else cells[self._keep_q]
        cells = cells if self._keep_k is None else cells[:, self._keep_k]
        return None if cells.all() else cells


__all__ = ["LayerStack", "dense", "is_plain", "maps_of"]
