"""Some of many features, so that l1 distances of points are right on average."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray

SPREAD_ROWS, SPREAD_COLUMNS = 256, 1 << 16  # points that spread is taken from, features at a time


def sampled_features(rows: FloatArray, count: int) -> FloatArray:
    """About `count` columns of rows (n, features), drawn by their spread and divided by the chance to be drawn.

    The l1 distance of two rows of the sample estimates theirs without bias.
    """
    some = rows[:: max(1, len(rows) // SPREAD_ROWS)]
    spread = np.empty(rows.shape[1])
    for begin in range(0, len(spread), SPREAD_COLUMNS):
        part = some[:, begin : begin + SPREAD_COLUMNS].astype(np.float64)
        spread[begin : begin + SPREAD_COLUMNS] = np.abs(part - part.mean(0)).sum(0)
    drawn, factors = drawn_features(spread, count)
    out, factor = np.empty((len(rows), len(drawn)), rows.dtype), factors.astype(rows.dtype)
    for i, row in enumerate(rows):
        np.multiply(row[drawn], factor, out=out[i])
    return out


def drawn_features(spread: NDArray[np.float64], count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Which features are drawn by their spread, about `count` of them, and the inverse of each one's chance.

    The draw is systematic (every so much of the summed spread), with no random numbers: the same every time. The first
    feature alone where nothing has any spread.
    """
    chance = np.minimum(1.0, spread * (count / (spread.sum() or 1.0)))
    for _ in range(10):  # what is sure to be drawn leaves its share to the others
        sure = chance >= 1
        rest = chance[~sure].sum()
        if not rest or abs(rest + sure.sum() - count) < 0.5:
            break
        chance[~sure] = np.minimum(1.0, chance[~sure] * ((count - sure.sum()) / rest))
    drawn = np.flatnonzero(np.diff(np.floor(np.cumsum(chance) + 0.5), prepend=0.0))
    return (drawn, 1 / chance[drawn]) if len(drawn) else (np.zeros(1, np.int64), np.ones(1))
