"""Thresholds by volume, shrinkage, noise, denoising over many trees; the decay that mixed-Hoelder functions have."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from inputs import random_tree
from numpy.typing import NDArray

import pyattnorg as pa


def holder_field(shape: tuple[int, ...], alpha: float, seed: int) -> tuple[NDArray[Any], list[pa.PartitionTree]]:
    """A function whose coefficients are Gaussian times ``sqrt(N) volume^(alpha + 1/2)``, on dyadic trees."""
    trees = [pa.PartitionTree.dyadic(n) for n in shape]
    c = np.random.default_rng(seed).standard_normal(shape) * np.sqrt(np.prod(shape))
    for axis, tree in enumerate(trees):
        rate = pa.haar_layout(tree).volume ** (alpha + 0.5)
        c = c * rate.reshape([-1 if axis == other else 1 for other in range(len(shape))])
    return pa.ihaar(c, trees), trees


# -- thresholds -------------------------------------------------------------------------------------------------------


def test_volumes_above_the_bound_are_kept() -> None:
    trees = [random_tree(9, 0), random_tree(7, 1)]
    c = np.random.default_rng(0).standard_normal((9, 7))
    share = np.multiply.outer(*[(np.abs(pa.haar_basis(tree)) > 1e-12).mean(0) for tree in trees])
    for above in (0, 0.05, 0.2, 0.5, 2 / 9 * 2 / 7, 1):
        assert np.array_equal(pa.keep_volumes(c, trees, above), np.where(share > above * (1 + 1e-9), c, 0))
    assert np.array_equal(pa.keep_volumes(c, trees, 0), c)
    assert not pa.keep_volumes(c, trees, 1).any()
    per_column = pa.keep_volumes(c, [trees[0], None], 0.5 / 7)  # one column of seven, by more than half of the rows
    row_share = (np.abs(pa.haar_basis(trees[0])) > 1e-12).mean(0)
    assert np.array_equal(per_column, np.where(row_share[:, None] > 0.5, c, 0))


def test_volume_threshold_of_a_mixed_holder_function_has_an_error_that_falls() -> None:
    f, trees = holder_field((64, 64), 0.5, 0)
    c = pa.haar(f, trees)
    bounds = [0.2, 0.05, 0.01, 0.002, 0]
    errors = [np.linalg.norm(f - pa.ihaar(pa.keep_volumes(c, trees, b), trees)) / np.linalg.norm(f) for b in bounds]
    assert all(later < 0.8 * earlier for earlier, later in pairwise(errors))
    assert errors[-1] <= 1e-12


def test_hard_and_soft() -> None:
    c = np.array([-3.0, -1, 0, 0.5, 1, 2])
    assert pa.shrink(c, 1, rule="hard").tolist() == [-3, 0, 0, 0, 0, 2]
    assert pa.shrink(c, 1).tolist() == [-2, 0, 0, 0, 0, 1]
    assert np.array_equal(pa.shrink(c, 0), c)
    for bad in (-1, np.nan, "1"):
        with pytest.raises(ValueError, match=r"^threshold: got"):
            pa.shrink(c, bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^rule: got 'firm'"):
        pa.shrink(c, 1, rule="firm")  # type: ignore[arg-type]


# -- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_measured_under_a_smooth_signal(seed: int) -> None:
    f, trees = holder_field((128, 64), 0.9, seed)
    x = f / f.std() + 0.3 * np.random.default_rng(seed).standard_normal(f.shape)
    assert pa.noise_level(pa.haar(x, trees), trees) == pytest.approx(0.3, rel=0.1)


def test_noise_of_the_last_dyadic_level_alone() -> None:
    tree = pa.PartitionTree.dyadic(16)
    c = np.zeros(16)
    c[8:] = [1, -2, 3, -4, 5, -6, 7, -8]
    c[:8] = 1000
    assert pa.noise_level(c, tree) == pytest.approx(4.5 / 0.6744897501960817)
    assert pa.noise_level(np.zeros((0, 16)), [None, tree]) == 0


@pytest.mark.parametrize("rule", ["soft", "hard"])
def test_denoising_brings_the_signal_nearer_and_more_trees_nearer_still(rule: Any) -> None:
    n = 128
    t = np.linspace(0, 1, n)
    signal = np.sin(5 * t[:, None]) * np.cos(4 * t)
    x = signal + 0.3 * np.random.default_rng(0).standard_normal((n, n))

    def error(out: NDArray[Any]) -> float:
        return float(np.linalg.norm(out - signal))

    # Intervals cut at random places: the trees of a line
    sets = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        pair = []
        for _ in range(2):
            levels, cuts = [np.zeros(n, int)], np.zeros(0, int)
            while len(cuts) < n - 1:
                edges = np.concatenate([[0], cuts, [n]])
                new = [a + (b - a) // 2 + rng.integers(-1, 2) * ((b - a) // 8) for a, b in pairwise(edges)]
                cuts = np.unique(np.concatenate([cuts, [c for c in new if 0 < c < n]]).astype(int))
                levels.append(np.searchsorted(cuts, np.arange(n), side="right"))
            pair.append(pa.PartitionTree.from_labels(np.stack(levels)))
        sets.append(pair)
    one = [error(pa.denoise(x, each, rule=rule)) for each in sets]
    assert max(one) < 0.6 * error(x)
    assert error(pa.denoise(x, sets, rule=rule)) < 0.9 * min(one)
    assert pa.denoise(x, sets) == pytest.approx(np.mean([pa.denoise(x, each) for each in sets], axis=0), abs=1e-12)


def test_denoising_by_hand() -> None:
    tree = random_tree(9, 0)
    x = np.random.default_rng(1).standard_normal(9) + 5
    c = pa.haar(x, tree)
    expected = pa.shrink(c, 0.7)
    expected[0] = c[0]
    assert pa.denoise(x, tree, threshold=0.7) == pytest.approx(pa.ihaar(expected, tree), abs=1e-12)
    assert pa.denoise(x, tree, noise=0) == pytest.approx(x, abs=1e-12)
    assert pa.denoise(x, tree, noise=1e9) == pytest.approx(np.full(9, x.mean()), abs=1e-12)
    universal = 0.2 * np.sqrt(2 * np.log(9))
    assert pa.denoise(x, tree, noise=0.2) == pytest.approx(pa.denoise(x, tree, threshold=universal), abs=1e-12)
    assert pa.denoise(np.zeros((0, 9)), [None, tree]).shape == (0, 9)
    assert pa.denoise([3.0], pa.PartitionTree.dyadic(1)) == pytest.approx([3.0])


def test_refusals() -> None:
    tree = random_tree(9, 0)
    with pytest.raises(ValueError, match=r"^trees: that of axis 0 has 9 leaves, expected 4"):
        pa.denoise(np.zeros(4), tree)
    with pytest.raises(ValueError, match=r"^noise: got -1"):
        pa.denoise(np.zeros(9), tree, noise=-1)
    with pytest.raises(TypeError, match=r"^trees: got int"):
        pa.denoise(np.zeros(9), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^above: got -1"):
        pa.keep_volumes(np.zeros(9), tree, -1)


# -- mixed-Hoelder ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("shape", [(1024,), (128, 64), (16, 32, 16)], ids=str)
def test_exponent_and_constant_are_found(shape: tuple[int, ...], alpha: float) -> None:
    found = [pa.mixed_holder(2.5 * f, trees) for f, trees in (holder_field(shape, alpha, seed) for seed in range(6))]
    assert np.median([fit.exponent for fit in found]) == pytest.approx(alpha, abs=0.06)
    assert np.median([fit.constant for fit in found]) == pytest.approx(2.5, rel=0.3)
    assert min(fit.r_squared for fit in found) > 0.85
    for fit in found:
        assert fit.bound >= 0.9 * fit.constant
        assert fit.count.sum() == np.prod([n - 1 for n in shape])
        assert (np.diff(fit.volume) < 0).all()


def test_bound_holds_for_every_coefficient_and_is_reached() -> None:
    f, trees = holder_field((32, 16), 0.5, 3)
    fit = pa.mixed_holder(f, trees)
    c = np.abs(pa.haar(f, trees))[1:, 1:]
    volume = np.multiply.outer(*[pa.haar_layout(tree).volume[1:] for tree in trees])
    ratio = c / (volume ** (fit.exponent + 0.5) * np.sqrt(32 * 16))
    assert ratio.max() == pytest.approx(fit.bound, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.4, 0.7])
def test_coefficients_at_the_rate_make_a_function_whose_holder_constant_stays_bounded(alpha: float) -> None:
    constants = []
    for n in (32, 128, 512):
        tree = pa.PartitionTree.dyadic(n)
        signs = np.random.default_rng(n).choice([-1.0, 1.0], n)
        f = pa.ihaar(signs * pa.haar_layout(tree).volume ** (alpha + 0.5) * n**0.5, tree)
        distance = tree.distance_matrix()
        apart = ~np.eye(n, dtype=bool)
        constants.append(float((np.abs(f[:, None] - f)[apart] / distance[apart] ** alpha).max()))
    # Two points that meet in I differ by at most 2 sum_j (2^-j |I|/n)^alpha, a geometric series
    assert max(constants) <= 2 / (1 - 2**-alpha) * (1 + 1e-9)
    assert constants[-1] <= 1.5 * constants[0]


def test_heads_may_be_left_out_and_constants_have_no_exponent() -> None:
    f, trees = holder_field((64, 64), 0.5, 0)
    both = np.stack([f, 3 * f], axis=2)
    fit = pa.mixed_holder(both, [*trees, None])
    alone = pa.mixed_holder(f, trees)
    assert np.array_equal(fit.volume, alone.volume)
    assert fit.rms == pytest.approx(5**0.5 * alone.rms, rel=1e-12)
    assert np.array_equal(fit.count, 2 * alone.count)
    flat = pa.mixed_holder(np.ones((8, 8)), [pa.PartitionTree.dyadic(8)] * 2)
    assert np.isnan(flat.exponent)
    assert np.isnan(flat.bound)
    assert "MixedHolder(exponent" in repr(fit)
    one = pa.PartitionTree.dyadic(1)
    for bad in (one, None):
        with pytest.raises(ValueError, match=r"^trees: got none of two leaves"):
            pa.mixed_holder(np.ones(1), [bad])
    assert np.isfinite(pa.mixed_holder(f[:1], [one, trees[1]]).exponent)


def test_a_noise_that_would_change_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^noise: got 0\.2 beside threshold=0\.1"):
        pa.denoise(np.eye(4), [pa.PartitionTree.dyadic(4)] * 2, noise=0.2, threshold=0.1)
