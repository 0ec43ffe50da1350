"""A layer that was let in, and its maps block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyattnorg.capture.cut import count
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.layout import Layout, Scene
from pyattnorg.capture.maths import Maps
from pyattnorg.capture.record import Tokens

# Cells of the maps that are looked at together: every check needs a few arrays of that many.
BLOCK = 1 << 23


@dataclass(frozen=True)
class Slot:
    """A layer that was let in: which heads, queries and keys of which example of it are to be kept."""

    scene: Scene
    backend: str
    layout: Layout
    layer: int
    example: int
    heads: NDArray[np.int64]
    key_heads: int
    started: float
    rows: slice
    columns: slice
    shape: tuple[int, int, int]  # (kept heads of every window, all queries, all keys)
    keeping: Keeping
    tokens: Tokens | None = None  # where windows lie
    call: object = None
    first_head: int = 0  # heads that earlier maps of the same call had

    def take(self, x: Tensor) -> Tensor:
        """The wanted heads of a tensor (heads, …); one that is the same for all heads stays as it is."""
        if len(self.heads) == self.layout.heads or len(x) == 1:
            return x
        rows = (np.arange(len(x) // self.layout.heads)[:, None] * self.layout.heads + self.heads).ravel()
        return x[torch.as_tensor(rows, device=x.device)]

    def take_rows(self, x: Tensor) -> Tensor:
        """The wanted queries of a tensor (heads, queries, …); one that is the same for all queries stays as it is."""
        return x if x.shape[1] == 1 and self.shape[1] > 1 else x[:, self.rows]

    @property
    def kv_group(self) -> NDArray[np.int64]:
        """Which keys each wanted head has."""
        groups = np.arange(self.layout.heads) // (self.layout.heads // self.key_heads)
        return np.asarray(groups[self.heads], np.int64)

    @property
    def kept_shape(self) -> tuple[int, int, int]:
        """(heads, queries, keys) of what is kept."""
        return self.shape[0], count(self.rows), count(self.columns)

    def blocks(self) -> Iterator[Block]:
        """Heads and kept queries, a bounded number of cells at a time; whole heads where they are small enough."""
        heads, queries, keys = self.shape[0], count(self.rows), self.shape[2]
        rows = max(1, min(queries, BLOCK // keys))
        step = max(1, BLOCK // (rows * keys))
        for h in range(0, heads, step):
            for r in range(0, queries, rows):
                yield Block(slice(h, min(h + step, heads)), slice(r, min(r + rows, queries)))


class Block(NamedTuple):
    """Some wanted heads, and some of the kept queries."""

    heads: slice
    rows: slice

    def of(self, x: Tensor) -> Tensor:
        """The part of a tensor (heads or 1, kept queries or 1, …)."""
        x = x if len(x) == 1 else x[self.heads]
        return x if x.shape[1] == 1 else x[:, self.rows]


class Part(NamedTuple):
    """The maps of a block, and how far the output that follows from them is from the model's."""

    block: Block
    maps: Maps
    output_error: float | None = None


def parts_of(slot: Slot, maps: Maps) -> Iterator[Part]:
    """Maps of the wanted heads that are there as a whole, block by block."""
    scores, weights = slot.take_rows(maps.scores), slot.take_rows(maps.weights)
    hidden = None if maps.hidden is None else slot.take_rows(maps.hidden)
    for block in slot.blocks():
        part = None if hidden is None else block.of(hidden)
        yield Part(block, Maps(block.of(scores), block.of(weights), part, maps.sinks))


def need(slot: Slot, sizes: tuple[int, int] | None) -> int:
    """Bytes that a slot's maps take, or its queries and keys: `sizes` as in `Recorder.open`."""
    heads, queries, keys = slot.kept_shape
    size = slot.keeping.itemsize()
    total = heads * queries * keys * size * len(slot.keeping.maps)
    if "qk" in slot.keeping and sizes is not None:
        width, biased = sizes
        key_heads = len(set(slot.kv_group.tolist())) * max(slot.layout.windows, 1)
        total += (heads * queries + key_heads * slot.shape[2]) * width * size
        total += min(heads, biased) * queries * slot.shape[2] * size
    return total


__all__ = ["BLOCK", "Block", "Part", "Slot", "need", "parts_of"]
