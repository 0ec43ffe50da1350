"""What is expected of every quantised coefficient: a context from its three functions and from those above it.

Magnitudes of tri-Haar coefficients follow the functions of the axes: a number for each function, in steps of a square
root of two, adds up to the logarithm of what is expected. What is known of the two coefficients above (the functions
that the query function and the key function lie within) refines that. Every context has its own frequencies.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.compression.ans import BITS, Tables
from pyattnorg.compression.numbers import Reader, framed, inflated
from pyattnorg.compression.quantize import blocks

Ints = NDArray[np.int64]
EXACT = 16  # magnitudes below are symbols; from there on a symbol is a power of two, and the rest are plain bits
SYMBOLS = EXACT + 48
BASES, MIDDLE = 40, 18  # contexts by expected magnitude; the one for an expectation of 1
ROUNDS = 3
LEAST = -40
FEW, MANY = 2_000, 12_000  # coefficients that are not 0; fewer of them pay for fewer contexts


def symbols_of(magnitude: Ints) -> NDArray[np.uint8]:
    """Symbol of every magnitude."""
    large = magnitude >= EXACT
    out = np.where(large, 0, magnitude)
    out[large] = EXACT - 4 + _log2(magnitude[large])
    return out.astype(np.uint8)


def extra_bits(symbol: NDArray[np.uint8]) -> Ints:
    """Plain bits that follow a symbol."""
    wide = symbol.astype(np.int64)
    return np.where(wide >= EXACT, wide - EXACT + 4, 0)


def _log2(value: Ints) -> Ints:
    return np.frexp(value.astype(np.float64))[1].astype(np.int64) - 1


@dataclass(frozen=True)
class Model:
    """Contexts of the coefficients of a 3-tensor.

    Attributes
    ----------
    steps : int
        Contexts of expected magnitude are so many half octaves wide.
    states : int
        What is told of each coefficient above: 0 to `states`, its magnitude or more.
    scales : tuple of int64 arrays
        Of every function of the three axes, in half octaves.
    codes : int64, shape (contexts, SYMBOLS)
        Logarithms of frequencies, as they are stored.
    tables : Tables
        The frequencies themselves.
    live : bool array, shape (BASES,)
        Expected magnitudes where anything but 0 occurs; in the others nothing is coded.
    """

    steps: int
    states: int
    scales: tuple[Ints, Ints, Ints]
    codes: Ints
    tables: Tables
    live: NDArray[np.bool_]

    def bases(self, rows: Ints, heads: Ints) -> NDArray[np.uint8]:
        """Contexts by expected magnitude, (heads, rows, middle), of some functions of the first and last axis."""
        return _bases((self.scales[0][rows], self.scales[1], self.scales[2][heads]), self.steps)

    def context(self, base: NDArray[np.uint8], above: NDArray[np.uint8], beside: NDArray[np.uint8]) -> Ints:
        """Contexts, given the symbols above on both axes."""
        return _context(base, above, beside, self.states)


def fitted_scales(magnitude: NDArray[np.float32]) -> tuple[Ints, Ints, Ints]:
    """For every function of (heads, rows, middle) the half octaves that best multiply to the mean magnitudes."""
    totals = [magnitude.sum(tuple(a for a in range(3) if a != axis), dtype=np.float64) for axis in (1, 2, 0)]
    total = totals[0].sum()
    if not total:
        return tuple(np.full(len(t), LEAST) for t in totals)  # type: ignore[return-value]
    # Means of a product of three factors: the rank-one fit that keeps the sums of every axis.
    first, middle, last = (t / total * len(t) for t in totals)
    mean = total / magnitude.size
    found = []
    for factor, extra in ((first, 0.0), (middle, 0.0), (last, np.log2(mean))):
        with np.errstate(divide="ignore"):
            octaves = np.log2(factor) + extra
        found.append(np.maximum(np.rint(2 * np.maximum(octaves, LEAST)), LEAST).astype(np.int64))
    return found[0], found[1], found[2]


def fit(magnitude: Ints, above: Ints, beside: Ints, there: NDArray[np.bool_] | None = None) -> tuple[Model, float]:
    """A model for magnitudes (heads, rows, middle), with where the ones above lie on the rows' and the middle axis.

    Only those that are `there` are to be coded. The number is about how many bits they take, the model not counted.
    """
    some = int(np.count_nonzero(magnitude))
    steps, states = (4, 1) if some < FEW else (2, 1) if some < MANY else (1, 2)
    scales = fitted_scales(np.minimum(magnitude, 1 << 20).astype(np.float32))
    base = _bases(scales, steps)
    symbol = symbols_of(magnitude)
    context = _context(base, shifted(symbol, above, 1), shifted(symbol, beside, 2), states)
    size = BASES * (2 * states + 1) * SYMBOLS
    total = np.zeros(size, np.int64)
    context *= SYMBOLS
    context += symbol
    told = context.reshape(-1)
    for block in blocks(told.size):
        coded = told[block] if there is None else told[block][there.reshape(-1)[block]]
        total += np.bincount(coded, minlength=size)
    count: Any = total.reshape(BASES, 2 * states + 1, SYMBOLS)
    live = np.asarray(count[:, :, 1:].any((1, 2)))
    count[~live] = 0
    count = count.reshape(-1, SYMBOLS)
    codes = _codes(count)
    freq = _frequencies(codes)
    large = np.arange(SYMBOLS, dtype=np.uint8)
    bits = BITS - np.log2(np.maximum(freq, 1)) + extra_bits(large) + (large > 0)
    return Model(steps, states, scales, codes, Tables(freq), live), float((count * bits).sum())


def shifted(symbol: NDArray[np.uint8], above: Ints, axis: int) -> NDArray[np.uint8]:
    """What stands above every entry along an axis; 0 where nothing does."""
    found = np.take(symbol, np.maximum(above, 0), axis=axis)
    shape = [1, 1, 1]
    shape[axis] = -1
    return np.where((above >= 0).reshape(shape), found, np.uint8(0))


def model_to_bytes(model: Model) -> bytes:
    """Bytes that `model_from_bytes` reads."""
    scales = np.concatenate([np.diff(s, prepend=0) for s in model.scales]).astype("<i2")
    planes = scales.view(np.uint8).reshape(-1, 2).T.tobytes()
    codes = model.codes
    used = np.flatnonzero(codes.any(0))
    last = int(used[-1]) + 1 if len(used) else 0
    tables = bytes([last]) + codes[:, :last].astype(np.uint8).tobytes()
    return framed([bytes([model.steps, model.states]), zlib.compress(planes, 9), zlib.compress(tables, 9)])


def model_from_bytes(data: bytes, shape: tuple[int, int, int]) -> Model:
    """The model of a 3-tensor that `model_to_bytes` wrote."""
    reader = Reader(data)
    steps, states = reader.framed()
    planes = np.frombuffer(inflated(reader.framed(), 2 * sum(shape)), np.uint8)
    deltas = planes.reshape(2, -1).T.copy().view("<i2").ravel().astype(np.int64)
    if len(deltas) != sum(shape) or not steps or not states:
        raise ValueError("its model is damaged")
    parts = np.split(deltas, np.cumsum(shape)[:2])
    raw = inflated(reader.framed(), 1 + BASES * 512 * SYMBOLS)
    if not raw or len(raw) != 1 + BASES * (2 * states + 1) * raw[0] or raw[0] > SYMBOLS:
        raise ValueError("its model is damaged")
    codes = np.zeros((BASES * (2 * states + 1), SYMBOLS), np.int64)
    codes[:, : raw[0]] = np.frombuffer(raw, np.uint8, offset=1).reshape(len(codes), raw[0])
    freq = _frequencies(codes)
    live = freq.any(1).reshape(BASES, -1).any(1)
    return Model(steps, states, tuple(np.cumsum(p) for p in parts), codes, Tables(freq), live)  # type: ignore[arg-type]


def _context(base: NDArray[np.uint8], above: NDArray[np.uint8], beside: NDArray[np.uint8], states: int) -> Ints:
    out: Ints = base.astype(np.int16)  # a context and a symbol: less than 2^15
    out *= 2 * states + 1
    out += np.minimum(above, states)
    out += np.minimum(beside, states)
    return out


def _bases(scales: tuple[Ints, Ints, Ints], steps: int) -> NDArray[np.uint8]:
    first, middle, last = (s.astype(np.int16) for s in scales)
    octaves = last[:, None, None] + first[None, :, None] + middle[None, None, :]
    return np.asarray(np.clip(octaves // np.int16(steps) + np.int16(MIDDLE), 0, BASES - 1), np.uint8)


def _codes(count: Ints) -> Ints:
    """Frequencies as quarter octaves from 1 on, 0 where there are none."""
    total = count.sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log2(count / total)
    return np.where(count > 0, np.clip(np.rint(4 * (share + BITS)), 0, 4 * BITS) + 1, 0).astype(np.int64)


WEIGHTS = np.array([0] + [round(2 ** (BITS + code / 4)) for code in range(4 * BITS + 1)], np.int64)


def _frequencies(codes: Ints) -> Ints:
    """Frequencies out of 2^BITS, whole numbers made of whole numbers: the same everywhere."""
    if codes.max(initial=0) >= len(WEIGHTS):
        raise ValueError("its model is damaged")
    weight = WEIGHTS[codes]
    total = weight.sum(1, keepdims=True)
    freq = np.where(codes > 0, np.maximum((weight << BITS) // np.maximum(total, 1), 1), 0)
    rows = np.flatnonzero(total[:, 0])
    most = freq[rows].argmax(1)
    freq[rows, most] += (1 << BITS) - freq[rows].sum(1)
    return freq
