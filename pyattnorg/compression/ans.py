"""Asymmetric numeral systems (Duda 2013, arXiv 1311.2540): many strips of symbols coded side by side.

Each strip has a state of its own in [2^16, 2^32) and words of 16 bits, so that any strip is read without the others.
Strips advance together, one symbol a step, which is what NumPy is quick at. All arithmetic is on whole numbers: the
bytes are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

BITS = 14  # of probabilities
LOW = 1 << 16  # least state
STATE_BYTES = 4
Ints = NDArray[np.int64]


class Tables:
    """Frequencies of symbols in every context, out of ``2^BITS``; shape (contexts, symbols)."""

    def __init__(self, freq: Ints) -> None:
        self.freq = freq
        self.start = np.cumsum(freq, axis=1) - freq
        used = np.flatnonzero(freq.any(1))
        # Symbol of every slot, for contexts that occur; the others never do.
        self.row = np.zeros(len(freq), np.int64)
        self.row[used] = np.arange(len(used)) << BITS
        symbols = np.tile(np.arange(freq.shape[1], dtype=np.uint8), len(used))
        self.symbol = np.repeat(symbols, freq[used].ravel())


def encode(freq: NDArray[np.uint16], start: NDArray[np.uint16], lengths: Ints) -> list[bytes]:
    """Bytes of every strip: its last state, then words of 16 bits, both little-endian, as `decode` takes them.

    Parameters
    ----------
    freq, start : uint16, shape (symbols,)
        Of every symbol of all strips, one strip after the other: its frequency, and the sum of those before it.
    lengths : int64, shape (strips,)
        Symbols of every strip; one without any has no bytes.
    """
    order, active = _falling(lengths)
    begin = (np.cumsum(lengths) - lengths)[order]
    state = np.full(len(lengths), LOW, np.int64)
    words = np.zeros((len(lengths), int(lengths.max(initial=0)) + 1), "<u2")
    count = np.zeros(len(lengths), np.int64)
    for t in range(len(active) - 1, -1, -1):
        n = active[t]
        at = begin[:n] + t
        f = freq[at].astype(np.int64)
        x = state[:n]
        full = np.flatnonzero(x >= f << (32 - BITS))
        if len(full):
            words[full, count[full]] = x[full] & 0xFFFF
            count[full] += 1
            x[full] >>= 16
        quotient = x // f
        x += quotient * ((1 << BITS) - f) + start[at]
    out = [b""] * len(lengths)
    for i, strip in enumerate(order.tolist()):
        if lengths[strip]:
            out[strip] = state[i].astype("<u4").tobytes() + words[i, : count[i]][::-1].tobytes()
    return out


def decode(
    payload: NDArray[np.uint8],
    begin: Ints,
    lengths: Ints,
    tables: Tables,
    contexts: Callable[[Ints], Ints],
    put: Callable[[Ints, NDArray[np.uint8]], None],
) -> Ints:
    """Read strips; gives where in `payload` each one's words end.

    Parameters
    ----------
    payload : uint8
        Bytes of the strips, followed by anything.
    begin, lengths : int64, shape (strips,)
        Where each one begins in `payload`, and how many symbols it has.
    contexts : callable
        Contexts of the symbols with these numbers; symbols are numbered strip after strip.
    put : callable
        Takes numbers and what the symbols are, before contexts of later ones are asked for.

    Raises
    ------
    ValueError
        The bytes end before the symbols do.
    """
    order, active = _falling(lengths)
    first = (np.cumsum(lengths) - lengths)[order]
    place = begin[order]
    padded = np.concatenate([payload, np.zeros(8, np.uint8)]).astype(np.int64)
    state = np.zeros(len(lengths), np.int64)
    coded = np.flatnonzero(lengths[order])
    for byte in range(STATE_BYTES):
        state[coded] += padded[np.minimum(place[coded] + byte, len(payload))] << (8 * byte)
    place[coded] += STATE_BYTES
    for t, n in enumerate(active):
        at = first[:n] + t
        x = state[:n]
        context = contexts(at)
        slot = x & ((1 << BITS) - 1)
        symbol = tables.symbol[tables.row[context] + slot]
        put(at, symbol)
        x >>= BITS
        x *= tables.freq[context, symbol]
        x += slot - tables.start[context, symbol]
        empty = np.flatnonzero(x < LOW)
        if len(empty):
            where = place[empty]
            if where.max() >= len(payload):
                raise ValueError("its coefficients end too soon")
            x[empty] = (x[empty] << 16) | padded[where] | (padded[where + 1] << 8)
            place[empty] += 2
    if (state[coded] != LOW).any():
        raise ValueError("its coefficients are not those that were written")
    ends = np.empty(len(lengths), np.int64)
    ends[order] = place
    return ends


def _falling(lengths: Ints) -> tuple[Ints, list[int]]:
    """Strips by falling length, and how many of them are still there at every step."""
    order = np.argsort(-lengths, kind="stable")
    steps = np.arange(int(lengths.max(initial=0)))
    active = len(lengths) - np.searchsorted(np.sort(lengths), steps, side="right")
    return order, active.tolist()
