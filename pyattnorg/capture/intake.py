"""What a recorder lets in: which heads of which example, whether they fit, and where their maps go."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from pyattnorg.capture.errors import CaptureError
from pyattnorg.capture.forwards import Forwards
from pyattnorg.capture.inputs import checked_example
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.layout import Layout, Scene
from pyattnorg.capture.measure import make_record
from pyattnorg.capture.memory import Budget
from pyattnorg.capture.qk import QueriesKeys
from pyattnorg.capture.record import BoolArray
from pyattnorg.capture.select import Selection
from pyattnorg.capture.shelf import MemoryShelf, Shelf
from pyattnorg.capture.slots import Part, Slot, need
from pyattnorg.capture.trails import Lie
from pyattnorg.capture.windows import locate
from pyattnorg.capture.writing import Writer


class Intake:
    """Numbers the layers of a watched forward, takes those that were asked for, and puts them on their shelf."""

    def __init__(
        self,
        forwards: Forwards,
        selection: Selection,
        keeping: Keeping,
        example: int | None,
        max_bytes: int | None,
        writer: Writer | None,
    ) -> None:
        self.forwards, self.selection, self.keeping = forwards, selection, keeping
        self.example, self.max_bytes, self.writer = checked_example(example), max_bytes, writer
        self._last: tuple[object, weakref.ref[Tensor], weakref.ref[Tensor]] | None = None

    def begin(self) -> None:
        """Look how much memory there is."""
        self._budget = Budget(self.max_bytes)

    def clear(self) -> None:
        """Count from nothing again."""
        self._budget.taken = 0

    def example_of(self, layout: Layout) -> int:
        """The example to keep of a batch."""
        if self.example is None:
            if layout.batch > 1:
                raise CaptureError(
                    f"inputs: got a batch of {layout.batch} examples, expected one; "
                    f"pick it with example=0 to {layout.batch - 1}"
                )
            return 0
        if not -layout.batch <= self.example < layout.batch:
            raise CaptureError(f"example: got {self.example}, the batch has {layout.batch} example(s), counted from 0")
        return self.example % layout.batch

    def budget_allows(self, layout: Layout, queries: int, keys: int) -> None:
        """Raise if one layer's maps alone are too large to copy."""
        self._budget.check(0, 0, (layout.rows, queries, keys), layout.rows * queries * keys * 8)

    def open(
        self,
        scene: Scene,
        backend: str,
        layout: Layout,
        queries: int,
        keys: int,
        key_heads: int | None,
        started: float | None = None,
        sizes: tuple[int, int] | None = None,
        lie: Lie = (None, None),
    ) -> Slot | None:
        """Number the layer and let it in; None if it was not asked for, or is on disk.

        `sizes` are the width of queries and keys and the heads with a bias of their own, where these are known.
        """
        started = time.perf_counter() if started is None else started
        current = self.forwards.passes[-1]
        call, common = self.forwards.call_of(scene, queries)
        layer, first = current.continues(call)
        chunk = queries < keys and (layout.heads > 1 or scene.head_count() == 1)
        if layer is None:  # a module that is called again for other tokens gives no further heads
            layer, chunk = (again, True) if (again := current.continues(common)[0]) is not None else (None, chunk)
        if layer is None:
            layer = self.forwards.places.next_layer(scene.place, (queries, keys))
        for key in (common, call):
            current.note_call(key, layer, 0 if chunk else first + layout.heads)
        first = 0 if chunk else first
        current.seen.add(layer)
        heads = self.selection.among(layer, first + layout.heads)
        heads = heads[heads >= first] - first
        if not len(heads):
            return None
        cut, shape = self.keeping.cut, (len(heads) * max(layout.windows, 1), queries, keys)
        key_heads, example = scene.key_head_count(layout.heads, key_heads), self.example_of(layout)
        tokens = None if layout.windowed is None else locate(layout.windowed, *lie, example)
        slot = Slot(
            scene, backend, layout, layer, example, heads, key_heads, started, cut.rows(queries), cut.columns(keys),
            shape, self.keeping, tokens, common, first,
        )  # fmt: skip
        return slot if self.admit(slot, sizes) else None

    def admit(self, slot: Slot, sizes: tuple[int, int] | None) -> bool:
        """Whether the slot's maps are to be computed: they may be on disk already; raise if they cannot fit."""
        if self.writer is not None:
            record = self.writer.stored(len(self.forwards.passes[-1].records), slot)
            if record is not None:
                self.forwards.passes[-1].records.append(record)
            return record is None
        self._budget.admit(slot.layer, self._more_like(slot), slot.kept_shape, need(slot, sizes))
        return True

    def _more_like(self, slot: Slot) -> int:
        """Layers like this one that are to come."""
        alike = self.forwards.count_like(slot.scene.module)
        return sum(self.selection.layer(n) for n in range(slot.layer + 1, max(alike, slot.layer + 1)))

    def had(self, scene: Scene, queries: int, q: Tensor, k: Tensor) -> bool:
        """Whether the same call has given this very map before, for other values (DiffLlama halves them)."""
        call, _ = self.forwards.call_of(scene, queries)
        before, self._last = self._last, (call, weakref.ref(q), weakref.ref(k))
        return before is not None and call is not None and before[0] == call and before[1]() is q and before[2]() is k

    def keep(
        self,
        slot: Slot,
        parts: Iterable[Part],
        *,
        mask: str,
        dtype: torch.dtype,
        raw: bool,
        precision: torch.dtype | None = None,
        dropout: float = 0.0,
        padding: BoolArray | None = None,
        qk: QueriesKeys | None = None,
        note: str = "",
    ) -> None:
        """Check a layer's maps, and keep them."""
        records = self.forwards.passes[-1].records
        shelf: Shelf
        if self.writer is None:
            arena, more = self.forwards.passes[-1].arena, self._more_like(slot)

            def room(kind: str, dtype: str) -> NDArray[Any]:
                return arena.room((kind, slot.scene.place.series), slot.kept_shape, dtype, more)

            shelf = MemoryShelf(self.keeping.dtype, room)
        else:
            shelf = self.writer.shelf(len(records), slot, self.keeping)
        record = make_record(
            slot, parts, shelf, mask=mask, dtype=dtype, precision=precision or dtype, raw=raw, dropout=dropout,
            padding=padding, qk=qk, note=note,
        )  # fmt: skip
        record.row["seconds"] = time.perf_counter() - slot.started
        if self.writer is not None:
            record = self.writer.write(len(records), record)
        records.append(record)


__all__ = ["Intake"]
