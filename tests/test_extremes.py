"""Numbers at the ends of their dtypes: a right answer or an error that says so, never a silent infinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyattnorg as pa

SHAPE = (6, 5, 4)
LARGEST = [("float64", 1e308), ("float32", 3e38)]


def numbers(dtype: str = "float64", scale: float = 1.0) -> Any:
    return (np.random.default_rng(0).random(SHAPE) * scale).astype(dtype)


def trees() -> list[pa.PartitionTree]:
    return [pa.PartitionTree.dyadic(n) for n in SHAPE]


@pytest.mark.parametrize(("dtype", "scale"), LARGEST)
def test_what_has_no_scale_is_the_same_for_the_largest(dtype: str, scale: float) -> None:
    plain, large = numbers(), numbers(dtype, scale)
    for found in (
        pa.l1_entropy,
        pa.effective_number,
        pa.lp_entropy,
        pa.coefficients_needed,
        lambda x: pa.cosine_affinity(x, missing=0.0),
        lambda x: pa.noise_level(x, trees()) / np.float64(x.max()),
    ):
        np.testing.assert_allclose(found(large), found(plain), rtol=1e-5)  # rounding of float32
    for a, b in zip(pa.best_basis(plain, trees()), pa.best_basis(large.astype(np.float64), trees())):
        np.testing.assert_array_equal(a.matrix(), b.matrix())


def test_best_basis_of_the_largest_float32_is_that_of_small_numbers() -> None:
    small = numbers("float32")
    large = np.ldexp(small, 127)
    for a, b in zip(pa.best_basis(small, trees()), pa.best_basis(large, trees())):
        np.testing.assert_array_equal(a.matrix(), b.matrix())


@pytest.mark.parametrize(("dtype", "scale"), LARGEST)
@pytest.mark.parametrize("signs", [1, -1])
def test_what_overflows_says_so(dtype: str, scale: float, signs: int) -> None:
    x = numbers(dtype, scale)
    x[::2] *= signs
    bases = pa.best_basis(numbers(), trees())
    computations: list[tuple[str, Callable[[Any], Any]]] = [
        ("x", lambda x: pa.martingale_differences(x, trees())),
        ("x", lambda x: pa.packet_transform(x, bases)),
        ("coefficients", lambda x: pa.inverse_packet_transform(x, bases)),
    ]
    for name, compute in computations:
        try:
            said, found = "", compute(x)
        except ValueError as error:
            said, found = str(error), 0.0
        assert np.isfinite(found).all()
        assert not said or said.startswith(f"{name}: sums overflow {dtype}; scale the values down")


def test_overflow_is_told_of_the_argument_that_came() -> None:
    large = numbers(scale=1e308)
    with pytest.raises(ValueError, match=r"^x: sums overflow float64"):
        pa.martingale_differences(large, trees())
    with pytest.raises(ValueError, match=r"^x: sums overflow float64"):
        pa.packet_transform(large, pa.best_basis(large, trees()))
    with pytest.raises(ValueError, match=r"^affinity: sums overflow float64"):
        pa.diffusion_map(np.full((4, 4), 1e308))
    with pytest.raises(ValueError, match=r"^affinity: sums overflow float64"):
        pa.flexible_tree(np.full((4, 4), 1e308))
    with pytest.raises(ValueError, match=r"^f: sums overflow float64"):
        pa.paraproduct(large, trees(), "softmax")
    differences = np.full([tree.n_folders for tree in trees()], 1e308)
    with pytest.raises(ValueError, match=r"^differences: sums overflow float64"):
        pa.imartingale_differences(differences, trees())


def test_a_sum_beyond_float64_is_infinite_and_said_to_be() -> None:
    assert pa.l1_entropy(np.full(10, 1e308), normalized=False) == np.inf
    assert pa.l1_entropy(np.full(1, 1.7e308), normalized=False) == 1.7e308
    assert "Infinity" in str(pa.l1_entropy.__doc__)


@pytest.mark.parametrize("n", [3, 120, 997])
def test_entropies_keep_to_their_range(n: int) -> None:
    c = np.full(n, 0.3)
    assert pa.l1_entropy(c) <= 1
    assert pa.lp_entropy(c, 0.5) <= 1
    assert pa.effective_number(c) <= n


@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e170])
def test_residuals_have_no_scale(scale: float) -> None:
    functions = [lambda x: scale * np.exp(x)] * 2
    plain = pa.paraproduct(numbers(), trees(), [np.exp] * 2)
    found = pa.paraproduct(numbers(), trees(), functions)
    np.testing.assert_allclose(found.relative_residual(), plain.relative_residual(), rtol=1e-12)
    np.testing.assert_allclose(found.relative_residual(2), plain.relative_residual(2), rtol=1e-12)
    for name, slope in plain.regularity().slope.items():
        np.testing.assert_allclose(found.regularity().slope[name], slope, rtol=1e-9)
