"""l1 entropy and the effective number of coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transcription as slow
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from inputs import random_tree
from numpy.typing import NDArray

import pyattnorg as pa

VALUES = st.floats(-1e3, 1e3).map(lambda v: round(v, 3))


@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=6), elements=VALUES))
def test_both_are_the_transcription_and_in_range(c: NDArray[Any]) -> None:
    entropy, number = pa.l1_entropy(c), pa.effective_number(c)
    assert entropy == pytest.approx(slow.l1_entropy(c), rel=1e-12)
    assert number == pytest.approx(slow.effective_number(c), rel=1e-12)
    assert pa.l1_entropy(c, normalized=False) == pytest.approx(float(np.abs(c).sum()), rel=1e-12)
    if c.any():
        assert c.size**-0.5 * (1 - 1e-12) <= entropy <= 1 + 1e-12
        assert number == pytest.approx(c.size * entropy**2, rel=1e-12)
    else:
        assert entropy == number == 0


def test_of_one_and_of_equal_coefficients() -> None:
    one = np.zeros((5, 4))
    one[2, 1] = -3
    assert pa.l1_entropy(one) == pytest.approx(20**-0.5)
    assert pa.effective_number(one) == pytest.approx(1)
    assert pa.l1_entropy(np.full((5, 4), -2.0)) == pytest.approx(1)
    assert pa.effective_number(np.full((5, 4), -2.0)) == pytest.approx(20)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_neither_has_a_scale(dtype: Any) -> None:
    c = np.random.default_rng(0).integers(-9, 10, 200).astype(dtype)
    limits = np.finfo(dtype)
    for scale in (dtype(2.0 ** (limits.maxexp - 5)), limits.smallest_subnormal, limits.tiny):
        assert pa.l1_entropy(c * scale) == pytest.approx(pa.l1_entropy(c), rel=1e-6)
        assert pa.effective_number(c * scale) == pytest.approx(pa.effective_number(c), rel=1e-6)


def test_many_float32_are_summed_without_loss() -> None:
    c = np.full(3_000_000, 0.1, np.float32)
    assert pa.l1_entropy(c) == pytest.approx(1, rel=1e-7)
    assert pa.l1_entropy(c, normalized=False) == pytest.approx(3e6 * float(np.float32(0.1)), rel=1e-9)


def test_doubled_points_have_the_same_effective_number() -> None:
    x, tree, other = np.random.default_rng(1).standard_normal((12, 7)), random_tree(12, 0), random_tree(7, 1)
    twice = pa.PartitionTree.from_labels(np.repeat(tree.labels, 2, axis=1))
    one, two = pa.haar(x, [tree, other]), pa.haar(np.repeat(x, 2, axis=0), [twice, other])
    assert pa.effective_number(two) == pytest.approx(pa.effective_number(one), rel=1e-10)
    assert pa.l1_entropy(two) == pytest.approx(pa.l1_entropy(one) / 2**0.5, rel=1e-10)


def test_empty_scalar_and_wrong() -> None:
    assert pa.l1_entropy(np.zeros((0, 3))) == pa.effective_number([]) == 0
    assert pa.l1_entropy(-3.0) == pa.effective_number(7) == 1
    assert isinstance(pa.l1_entropy(np.ones(3, np.float32)), float)
    for function in (pa.l1_entropy, pa.effective_number):
        with pytest.raises(ValueError, match=r"^c: 1 value.* at index \(1,\)"):
            function([1.0, np.nan])
