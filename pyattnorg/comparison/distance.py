"""The distance of two networks: the root mean square of differences, each in its own unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyattnorg.comparison.chance import (
    LEVEL,
    bootstrap_interval,
    least_p,
    p_value,
    resample_weights,
    side_weights,
)
from pyattnorg.comparison.quantities import (
    HEADS_UNIT,
    LEVELS,
    NAMES,
    QUANTITIES,
    SPECTRUM_UNIT,
    Measured,
    quantile_function,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
N = len(QUANTITIES)
UNITS = np.array([quantity.unit for quantity in QUANTITIES])
PARTS = (*NAMES, "heads", "spectrum")
COUNTED = np.append(UNITS > 0, [True, True])


def features_of(measured: list[Measured]) -> Floats:
    """Of one input, the mean over its draws: contrasts, quantiles of the heads, and spectrum, one after the other."""
    rows = [np.concatenate([one.contrasts, quantile_function(one.heads), one.spectrum]) for one in measured]
    found: Floats = np.mean(rows, axis=0)
    return found


def parts_of(difference: Floats) -> Floats:
    """Sizes of differences of features, (..., features), in units: of every quantity, the heads and the spectrum.

    A quantity that is not counted has 0, one that was not measured NaN.
    """
    contrasts, heads, spectrum = np.split(difference, [N, N + LEVELS], axis=-1)
    counted = np.where(UNITS > 0, np.abs(contrasts) / np.where(UNITS > 0, UNITS, 1), 0.0)
    rest = np.stack([np.abs(heads).mean(-1) / HEADS_UNIT, np.abs(spectrum).sum(-1) / 2 / SPECTRUM_UNIT], axis=-1)
    return np.concatenate([counted, rest], axis=-1)


def counted_parts(features: Sequence[Floats]) -> Bools:
    """Which parts count in all distances: those that were measured in every input of every network, (parts,)."""
    rows = np.concatenate([np.isfinite(parts_of(of_network)) for of_network in features])
    found: Bools = rows.all(axis=0) & COUNTED
    return found


def distance_of(difference: Floats, counted: Bools = COUNTED) -> Floats:
    """The distance, (...), from differences of features, by the parts that count."""
    found: Floats = np.sqrt(np.mean(np.square(parts_of(difference)[..., counted]), axis=-1))
    return found


class Chance(NamedTuple):
    """What resampling over inputs says of a pair. NaN and None where there are too few inputs."""

    low: Floats  # (quantities,), of differences of contrasts
    high: Floats
    p: Floats
    distance_low: float | None
    distance_high: float | None
    distance_p: float | None
    floor: float | None
    least_p: float | None


def chance_of(a: Floats, b: Floats, *, paired: bool, n_resamples: int, seed: int, counted: Bools = COUNTED) -> Chance:
    """Intervals and p values of the difference of two networks, from features (inputs, features) of each."""
    if min(len(a), len(b)) < 2:
        nothing = np.full(N, np.nan)
        return Chance(nothing, nothing, nothing, None, None, None, None, None)
    if (len(a), a.tobytes()) > (len(b), b.tobytes()):  # one order for both ways to ask, so that only signs differ
        turned = chance_of(b, a, paired=paired, n_resamples=n_resamples, seed=seed, counted=counted)
        return turned._replace(low=-turned.high, high=-turned.low)
    rng = np.random.default_rng((seed, len(a), len(b)))
    first = resample_weights(len(a), n_resamples, rng)
    second = first if paired else resample_weights(len(b), n_resamples, rng)
    shifts = first @ a - second @ b
    n = min(len(a), len(b))
    low, high = bootstrap_interval(shifts[:, :N], n)
    here = float(distance_of(a.mean(0) - b.mean(0), counted))
    ends = distance_interval(distance_of(shifts, counted), here, n)
    sides, _ = side_weights(len(a), len(b), paired=paired, n_resamples=n_resamples, rng=rng)
    moved = sides @ np.concatenate([a, b])
    distances = distance_of(moved, counted)
    p = np.array([p_value(np.abs(moved[:, i])) if np.isfinite(moved[:, i]).all() else np.nan for i in range(N)])
    return Chance(
        low,
        high,
        p,
        *ends,
        p_value(distances),
        float(np.median(distances)),
        least_p(len(a), len(b), paired=paired, n_resamples=n_resamples),
    )


def distance_interval(resampled: Floats, here: float, n: int) -> tuple[float, float]:
    """Interval of the distance between what the means of n inputs stand for.

    A distance of noisy means is too large, its square by about a constant, and resampling adds that constant again. Its
    estimate, mean of the resampled squares less the square that is there, is taken off twice.
    """
    squares = np.square(resampled)
    excess = max(0.0, float(squares.mean()) - here**2)
    low, high = bootstrap_interval(squares, n)
    ends = np.sqrt(np.maximum(np.array([low, high]) - 2 * excess, 0.0))
    return float(ends[0]), float(ends[1])


def mean_interval(rows: Floats, n_resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Interval of the mean over inputs (inputs, numbers)."""
    weights = resample_weights(len(rows), n_resamples, np.random.default_rng((seed, len(rows))))
    return bootstrap_interval(weights @ rows, len(rows))


__all__ = [
    "LEVEL",
    "PARTS",
    "Chance",
    "chance_of",
    "counted_parts",
    "distance_of",
    "features_of",
    "mean_interval",
    "parts_of",
]
