"""Coefficients as whole numbers: uniform steps with a wide zero, and the step that meets an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
ZERO = 0.6  # of a step: what is smaller becomes 0; half would be least error, more costs fewer bits
OWN = 3  # magnitudes 1, 2 and 3 or more stand at the mean of what they stand for
PARTS = 256
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
    step = max(step, float(np.abs(c).max(initial=0.0)) / LARGEST)
    scaled = np.abs(c) / step
    q = (scaled + (1 - ZERO)).astype(np.int64)
    if threshold:
        q[np.abs(c) <= threshold] = 0
    parts = []
    for k in range(1, OWN + 1):
        at = q == k if k < OWN else q >= k
        mean = (scaled[at] - q[at]).mean() + ZERO if at.any() else 0.5
        parts.append(int(np.clip(np.rint(mean * PARTS), 0, PARTS - 1)))
    return Quantised(np.where(c < 0, -q, q), step, tuple(parts))


def restored(found: Quantised) -> Reals:
    """The coefficients that whole numbers stand for."""
    magnitude = np.abs(found.q)
    offset = np.array([0, *(part / PARTS - ZERO for part in found.parts)])
    out: Reals = np.sign(found.q) * (magnitude + offset[np.minimum(magnitude, OWN)]) * found.step
    return out


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
