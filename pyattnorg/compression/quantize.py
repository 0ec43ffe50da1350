"""Coefficients as whole numbers: uniform steps with a wide zero, and the step that meets an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
ZERO = 0.6  # of a step: what is smaller becomes 0; half would be least error, more costs fewer bits
OWN = 3  # magnitudes 1, 2 and 3 or more stand at the mean of what they stand for
PARTS = 256
BLOCK = 1 << 16
SHORT = 2.0**30  # number of steps that 32 bits hold
CLOSE = 0.998  # of the error asked, where the search is content
TRIES = 60
FARTHEST = 1e9  # from the first step that a search goes
LARGEST = 2.0**50  # number of steps
RANGE = 64  # squares and sums are far from the ends of float32 for values of up to 2^64, and down to 2^-64


class Quantised(NamedTuple):
    """Whole numbers and what they stand for: ``sign * step * (|q| - ZERO + part / 256)``."""

    q: Ints
    step: float
    parts: tuple[int, ...]


def quantised(c: Reals, step: float, threshold: float = 0.0) -> Quantised:
    """Coefficients in steps; those up to a threshold are 0 even if they are more than a step.

    No coefficient takes more than 2^50 steps: a step that is too small for that becomes larger.
    """
    most = max(float(c.max(initial=0.0)), -float(c.min(initial=0.0)))
    step = max(step, most / LARGEST)
    flat = c.reshape(-1)
    q: Any = np.zeros(flat.size, np.int32 if most < step * SHORT else np.int64)
    count, rest = np.zeros(OWN, np.int64), np.zeros(OWN)
    for block in blocks(flat.size):
        scaled = np.abs(flat[block])
        scaled[scaled <= threshold] = 0.0
        scaled /= step
        some = np.flatnonzero(scaled + (1 - ZERO) >= 1)
        scaled = scaled[some]
        magnitude = (scaled + (1 - ZERO)).astype(np.int64)
        own = np.minimum(magnitude, OWN) - 1
        count += np.bincount(own, minlength=OWN)
        rest += np.bincount(own, scaled - magnitude, minlength=OWN)
        q[block.start + some] = np.where(flat[block][some] < 0, -magnitude, magnitude)
    mean = np.where(count > 0, rest / np.maximum(count, 1) + ZERO, 0.5)
    parts = np.clip(np.rint(mean * PARTS), 0, PARTS - 1).astype(int)
    return Quantised(q.reshape(c.shape), step, tuple(parts.tolist()))


def restored(found: Quantised) -> Reals:
    """The coefficients that whole numbers stand for."""
    offset = np.array([0, *(part / PARTS - ZERO for part in found.parts)])
    q = found.q.reshape(-1)
    out = np.empty(q.size)
    for block in blocks(q.size):
        magnitude = np.abs(q[block])
        out[block] = np.sign(q[block]) * (magnitude + offset[np.minimum(magnitude, OWN)]) * found.step
    return out.reshape(found.q.shape)


def squared_gap(found: Quantised, c: Reals) -> float:
    """Sum of the squares of what coefficients and those that whole numbers stand for differ by."""
    q, flat = found.q.reshape(-1), c.reshape(-1)
    total = 0.0
    for block in blocks(q.size):
        gap = restored(found._replace(q=q[block])) - flat[block]
        total += float(gap @ gap)
    return total


def blocks(size: int) -> Iterator[slice]:
    """Stretches of a long array, so that what is made of each takes no memory to speak of."""
    for begin in range(0, size, BLOCK):
        yield slice(begin, min(size, begin + BLOCK))


def in_range(values: Reals) -> tuple[Reals, int]:
    """Values as they are, or times a power of two where their squares or sums would overflow or vanish.

    Returns
    -------
    values : float64
        The largest is less than 1, if they had to be moved.
    exponent : int
        Of the two that they are to be multiplied by again.
    """
    most = float(np.abs(values).max(initial=0.0))
    if not most or 2.0**-RANGE <= most <= 2.0**RANGE:
        return values, 0
    exponent = int(np.frexp(most)[1])
    moved: Reals = np.ldexp(values, -exponent)
    return moved, exponent


def in_dtype(values: Reals, about: dict[str, Any]) -> NDArray[np.floating[Any]]:
    """Values in the range and the dtype that came; what is beyond the largest number of the dtype is that number."""
    dtype = np.dtype(about["dtype"])
    if exponent := int(about.get("exponent", 0)):
        most = float(np.finfo(dtype).max)
        with np.errstate(over="ignore", under="ignore"):
            values = np.clip(np.ldexp(values, exponent), -most, most)
    return values.astype(dtype)


def largest_step(error_of: Callable[[float], float], error: float, first: float) -> float | None:
    """The largest step, about, whose error is no more than asked; `error_of` rises with the step.

    None where even the smallest steps, a billionth of the first one, do not meet it.
    """
    low = high = 0.0  # steps that meet it, and that do not
    low_error = high_error = 0.0
    step = first
    for _ in range(TRIES):
        now = error_of(step)
        if now <= error:
            low, low_error = step, now
            if now >= CLOSE * error:
                return step
        else:
            high, high_error = step, now
        if not high:
            step = low * 4
            if step > FARTHEST * first:
                return low or None
        elif not low:
            step = high / max(4.0, 1.5 * high_error / error)
            if step < first / FARTHEST:
                return None
        elif high / low < 1 + 1e-4:
            return low or None
        else:  # the error is about a power of the step
            share = np.log(CLOSE**0.5 * error / low_error) / np.log(high_error / low_error) if low_error else 0.5
            step = low * (high / low) ** float(np.clip(share, 0.05, 0.95))
    return low or None
