"""Quantised coefficients of a 3-tensor as strips of bytes, and back, all of them or some heads' and some rows'.

A strip holds the coefficients of one function of the last axis (heads) and a stretch of functions of the first axis
(queries) with all of the middle one (keys). First come the symbols (see `model`), then signs and the plain bits of
large magnitudes. Strips follow one another by heads, then by stretches; one of zeros alone has no bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pyattnorg.compression import ans
from pyattnorg.compression.model import Model, extra_bits, fit, shifted, symbols_of

Ints = NDArray[np.int64]
LONGEST = 1 << 15  # coefficients of a strip, where nothing else is said


@dataclass(frozen=True)
class Layout:
    """Shape (rows, middle, heads), and what lies above along the first two axes in the order of storage.

    A strip has `longest` coefficients, or a single row that has more.
    """

    shape: tuple[int, int, int]
    above: Ints
    beside: Ints
    longest: int = LONGEST

    @property
    def stretch(self) -> int:
        """Rows of a strip."""
        return max(1, min(self.shape[0], self.longest // max(1, self.shape[1])))

    @property
    def stretches(self) -> int:
        """Strips of a function of the last axis."""
        return -(-self.shape[0] // self.stretch)

    def within(self) -> Ints:
        """`above`, but nothing where that lies in another strip."""
        mine = np.arange(self.shape[0]) // self.stretch
        return np.where((self.above >= 0) & (self.above // self.stretch == mine), self.above, -1)


def encode(q: Ints, layout: Layout, *, sized: bool = False) -> tuple[Model, list[bytes]]:
    """The model and the strips of whole numbers q (heads, rows, middle).

    `sized` gives strips of zeros that are as long, to a few bytes.
    """
    magnitude = np.abs(q)
    within = layout.within()
    edges = _edges(layout, layout.shape[2])
    empty = ~np.logical_or.reduceat(magnitude.ravel() > 0, edges[:-1])
    there = np.repeat(~empty, np.diff(edges))
    model, _ = fit(magnitude, within, layout.beside, there.reshape(q.shape))
    symbol = symbols_of(magnitude)
    rows, heads = np.arange(layout.shape[0]), np.arange(layout.shape[2])
    base = model.bases(rows, heads)
    live = np.flatnonzero(model.live[base].ravel() & there)
    context = model.context(base, shifted(symbol, within, 1), shifted(symbol, layout.beside, 2)).ravel()[live]
    told = symbol.ravel()[live]
    lengths = np.diff(np.searchsorted(live, edges))
    if sized:
        bits = (ans.BITS - np.log2(np.maximum(model.tables.freq, 1)))[context, told]
        return model, [bytes(size) for size in _sizes(bits, live, q.ravel(), symbol.ravel(), edges).tolist()]
    del base, there
    freq, start = (table.astype(np.uint16)[context, told] for table in (model.tables.freq, model.tables.start))
    coded = ans.encode(freq, start, lengths)
    plain = _plain_bits(q.ravel(), symbol.ravel(), edges)
    return model, [a + b for a, b in zip(coded, plain)]


def decode(
    payload: bytes, sizes: Ints, model: Model, layout: Layout, heads: Ints, stretches: Ints
) -> tuple[Ints, Ints]:
    """Whole numbers (heads, rows, middle) of some functions of the last axis, and which rows these are.

    Parameters
    ----------
    payload : bytes
        The strips of `heads` x `stretches`, and no others.
    sizes : int64
        Bytes of each.
    """
    rows = (stretches[:, None] * layout.stretch + np.arange(layout.stretch)).ravel()
    rows = rows[rows < layout.shape[0]]
    place = np.full(layout.shape[0] + 1, -1)
    place[rows] = np.arange(len(rows))
    middle = layout.shape[1]
    base = model.bases(rows, heads).ravel()
    edges = np.searchsorted(rows, np.append(stretches * layout.stretch, layout.shape[0]))
    edges = (
        np.append((np.arange(len(heads))[:, None] * len(rows) + edges[:-1]).ravel(), len(heads) * len(rows)) * middle
    )
    live = np.flatnonzero(model.live[base] & np.repeat(sizes > 0, np.diff(edges)))
    lengths = np.diff(np.searchsorted(live, edges))
    # Where the symbols above stand; the last entry of `symbol` is always 0.
    symbol = np.zeros(len(heads) * len(rows) * middle + 1, np.uint8)
    nothing = len(symbol) - 1
    row, column = live // middle, live % middle
    local = place[layout.within()[rows]]
    up = local[row % len(rows)] if len(rows) else row
    above = np.where(up >= 0, (row - row % max(1, len(rows)) + up) * middle + column, nothing)
    side = layout.beside[column]
    beside = np.where(side >= 0, row * middle + side, nothing)
    live_base = base[live]

    def contexts(at: Ints) -> Ints:
        return model.context(live_base[at], symbol[above[at]], symbol[beside[at]])

    def put(at: Ints, found: NDArray[np.uint8]) -> None:
        symbol[live[at]] = found

    data = np.frombuffer(payload, np.uint8)
    begin = np.cumsum(sizes) - sizes
    ends = ans.decode(data, begin, lengths, model.tables, contexts, put)
    if (ends > begin + sizes).any():
        raise ValueError("its coefficients end too soon")
    q = _with_plain_bits(data, ends, symbol[:-1], edges, begin + sizes)
    return q.reshape(len(heads), len(rows), middle), rows


def _edges(layout: Layout, heads: int) -> Ints:
    """First coefficient of every strip, and the end of the last."""
    rows = np.minimum(np.arange(layout.stretches) * layout.stretch, layout.shape[0])
    first = (np.arange(heads)[:, None] * layout.shape[0] + rows).ravel()
    return np.append(first, heads * layout.shape[0]) * layout.shape[1]


def _sizes(bits: NDArray[np.float64], live: Ints, q: Ints, symbol: NDArray[np.uint8], edges: Ints) -> Ints:
    """Bytes of every strip: a state and words of 16 bits, then plain bits."""
    some = np.flatnonzero(q)
    plain = np.concatenate([[0], np.cumsum(extra_bits(symbol[some]) + 1)])[np.searchsorted(some, edges)]
    place = np.searchsorted(live, edges)
    coded = np.diff(np.concatenate([[0.0], np.cumsum(bits)])[place])
    words = ans.STATE_BYTES * (np.diff(place) > 0) + 2 * np.floor(coded / 16).astype(np.int64)
    return np.asarray(words + (np.diff(plain) + 7) // 8)


def _plain_bits(q: Ints, symbol: NDArray[np.uint8], edges: Ints) -> list[bytes]:
    """Signs and low bits, those of a strip packed together."""
    some = np.flatnonzero(q)
    extra = extra_bits(symbol[some])
    width = extra + 1
    at = np.cumsum(width) - width
    bits = np.zeros(int(width.sum()), np.uint8)
    bits[at] = q[some] < 0
    magnitude = np.abs(q[some])
    for k in range(int(extra.max(initial=0))):
        has = np.flatnonzero(extra > k)
        bits[at[has] + 1 + k] = (magnitude[has] >> (extra[has] - 1 - k)) & 1
    first = np.append(at, len(bits))[np.searchsorted(some, edges)].tolist()
    return [np.packbits(bits[a:b]).tobytes() for a, b in pairwise(first)]


def _with_plain_bits(data: NDArray[np.uint8], begin: Ints, symbol: NDArray[np.uint8], edges: Ints, ends: Ints) -> Ints:
    """Whole numbers from symbols and the bits that begin, for every strip, at these bytes."""
    some = np.flatnonzero(symbol)
    extra = extra_bits(symbol[some])
    width = extra + 1
    total = np.cumsum(width)
    strip = np.searchsorted(edges, some, side="right") - 1
    before = np.concatenate([[0], total])[np.searchsorted(some, edges)]  # bits of all strips before
    at = total - width - before[strip] + 8 * begin[strip]
    if (begin + (np.diff(before) + 7) // 8 != ends).any():
        raise ValueError("its coefficients are not those that were written")
    bits = np.unpackbits(data)
    magnitude = np.where(extra > 0, np.int64(1), symbol[some])
    for k in range(int(extra.max(initial=0))):
        has = np.flatnonzero(extra > k)
        magnitude[has] = magnitude[has] << 1 | bits[at[has] + 1 + k]
    out = np.zeros(len(symbol), np.int64)
    out[some] = np.where(bits[at] == 1, -magnitude, magnitude)
    return out
