"""What chance does: bootstraps over inputs, and assignments of inputs to the two sides of a comparison."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVEL = 0.95
ROUNDING = 1e-9
DRAWS_LEVEL = 0.90  # of the range of draws, where there is one input


def resample_weights(n: int, n_resamples: int, rng: np.random.Generator) -> Floats:
    """Weights of n inputs in bootstrap means, (n_resamples, n); each row sums to 1."""
    drawn = rng.integers(n, size=(n_resamples, n))
    weights = np.zeros((n_resamples, n))
    np.add.at(weights, (np.arange(n_resamples)[:, None], drawn), 1 / n)
    return weights


def percentiles(n: int, level: float = LEVEL) -> tuple[float, float]:
    """Percentiles of a bootstrap over n points that make an interval of this level.

    Widened for small n, so that the interval of a mean is as wide as Student's: ``Phi(-t sqrt(n / (n - 1)))`` on each
    side, with t the quantile of n - 1 degrees of freedom (Hesterberg 2015).
    """
    from scipy.stats import norm, t

    tail = float(norm.cdf(-t.ppf((1 + level) / 2, n - 1) * np.sqrt(n / (n - 1))))
    return 100 * tail, 100 * (1 - tail)


def bootstrap_interval(statistics: Floats, n: int) -> tuple[Floats, Floats]:
    """Ends of the interval from bootstrap statistics, (n_resamples, ...), of n points."""
    low, high = np.percentile(statistics, percentiles(n), axis=0)
    return low, high


def side_weights(
    n_a: int, n_b: int, *, paired: bool, n_resamples: int, rng: np.random.Generator
) -> tuple[Floats, bool]:
    """Weights of all inputs, those of a first, in the difference of two means; one row an assignment of sides.

    The first row is what is there. All assignments are given where these are at most `n_resamples`; else so many at
    random. Also says whether they are all.
    """
    n = n_a + n_b
    if paired:
        everything = 2**n_a <= n_resamples
        if everything:
            signs = np.array(list(product((1.0, -1.0), repeat=n_a)))
        else:
            signs = np.where(rng.random((n_resamples, n_a)) < 0.5, -1.0, 1.0)
            signs[0] = 1.0
        return np.concatenate([signs, -signs], 1) / n_a, everything
    everything = comb(n, n_a) <= n_resamples
    if everything:
        chosen = np.array(list(combinations(range(n), n_a)))
    else:
        chosen = rng.random((n_resamples, n)).argsort(1)[:, :n_a]
        chosen[0] = np.arange(n_a)
    weights = np.full((len(chosen), n), -1 / n_b)
    np.put_along_axis(weights, chosen, 1 / n_a, 1)
    return weights, everything


def p_value(statistics: Floats) -> float:
    """Share of assignments with a statistic at least that of the first, which is there; rounding counts as equal."""
    return float(np.mean(statistics >= statistics[0] - ROUNDING * (1 + abs(statistics[0]))))


def least_p(n_a: int, n_b: int, *, paired: bool, n_resamples: int) -> float:
    """The smallest p that `p_value` can give for a distance.

    Where all assignments are tried and the sides can be exchanged, the largest comes out twice; of assignments that
    were drawn, the one that is there may be the largest alone.
    """
    total = 2**n_a if paired else comb(n_a + n_b, n_a)
    return (2 if n_a == n_b else 1) / total if total <= n_resamples else 1 / n_resamples
