"""The visible cells of a layer, gathered block by block."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from pyattnorg.capture.cut import count
from pyattnorg.capture.record import BoolArray
from pyattnorg.capture.slots import Block, Slot
from pyattnorg.capture.spans import Spans


class Cells:
    """Visible cells of a layer, (queries, keys) for as long as all heads see the same."""

    def __init__(self, slot: Slot) -> None:
        heads, _, keys = slot.shape
        self._shape = (heads, count(slot.rows), keys)
        self._same: BoolArray | None = None
        self._each: BoolArray | None = None

    def put(self, block: Block, hidden: Tensor | None) -> None:
        """Take what a block can see."""
        if hidden is None or (self._each is None and self._same is None and not bool(hidden.any())):
            seen = np.broadcast_to(np.True_, (1, 1, 1))
            if self._each is None and self._same is None:
                return
        else:
            one = hidden.stride(0) == 0 or bool((hidden == hidden[:1]).all())
            seen = ~(hidden[:1] if one else hidden).cpu().numpy()
        if self._each is None:
            if self._same is None:
                self._same = np.ones(self._shape[1:], bool)
            here = self._same[block.rows]
            if block.heads.start == 0 and len(seen) == 1:
                here[:] = seen[0]
                return
            if (seen == here).all():
                return
            self._each = np.broadcast_to(self._same, self._shape).copy()
        self._each[block.heads, block.rows] = seen

    def take(self, *, compact: bool) -> BoolArray | Spans | None:
        """The cells; None where everything is visible. As `Spans` if they are to be compact, and can be."""
        if self._each is not None:
            return None if self._each.all() else self._each
        if self._same is None or self._same.all():
            return None
        return (Spans.of(self._same) if compact else None) or self._same


__all__ = ["Cells"]
