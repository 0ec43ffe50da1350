"""Affinities: cosine, Gaussian and dual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transcription as slow
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from inputs import relative_error
from numpy.typing import NDArray

import pyattnorg as pa

DTYPES = [np.float32, np.float64]
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}


def _largest(x: NDArray[Any]) -> float:
    return float(np.abs(x).max(initial=0))


def _check(a: NDArray[Any]) -> None:
    assert np.array_equal(a, a.T)
    assert ((a >= 0) & (a <= 1)).all()  # and no NaN
    assert (np.diag(a) == 1).all()


def _rows(seed: int, shape: tuple[int, ...] = (17, 9, 5)) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(shape) + 0.3


# -- cosine -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("backend")
def test_cosine_is_the_transcription(dtype: type) -> None:
    x = _rows(0).astype(dtype)
    x[3] = 0
    x[4] = 2 * x[5]
    a = pa.cosine_affinity(x)
    _check(a)
    assert a.dtype == dtype
    assert _largest(a - slow.cosine_affinity(x)) <= TOLERANCE[dtype]
    assert a[4, 5] == pytest.approx(1, abs=TOLERANCE[dtype])
    assert a[3].tolist() == np.eye(17)[3].tolist()
    assert (a == 0).sum() > 32  # negatives


@pytest.mark.parametrize("missing", [0.0, -1.5, np.nan])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("backend")
def test_missing_entries_are_left_out_pair_by_pair(dtype: type, missing: float) -> None:
    x = _rows(1).astype(dtype)
    rng = np.random.default_rng(2)
    x[rng.random(x.shape) < 0.4] = missing
    x[6] = missing
    x[7, 1:] = missing
    a = pa.cosine_affinity(x, missing=missing)
    _check(a)
    expected = slow.cosine_affinity(x, missing=missing)
    assert _largest(a - expected) <= TOLERANCE[dtype]
    assert a[6].tolist() == np.eye(17)[6].tolist()


def test_nan_is_missing_as_well_when_something_else_is() -> None:
    x = _rows(3)
    x[0, 0, 0], x[1, 2, 3] = np.nan, 0.0
    assert _largest(pa.cosine_affinity(x, missing=0.0) - slow.cosine_affinity(x, missing=0.0)) <= 1e-12
    with pytest.raises(ValueError, match=r"\(0, 0, 0\)"):
        pa.cosine_affinity(x)
    x[2, 0, 0] = np.inf
    with pytest.raises(ValueError, match=r"\(2, 0, 0\)"):
        pa.cosine_affinity(x, missing=0.0)


def test_missing_keeps_the_kind_of_array() -> None:
    torch = pytest.importorskip("torch")
    x = _rows(4)
    x[0, 0, 0] = 0
    got = pa.cosine_affinity(torch.tensor(x), missing=0.0)
    assert isinstance(got, torch.Tensor)
    assert _largest(got.numpy() - slow.cosine_affinity(x, missing=0.0)) <= 1e-12
    x[1, 0, 0] = np.nan
    assert isinstance(pa.cosine_affinity(torch.tensor(x), missing=np.nan), torch.Tensor)


def test_zeros_of_causal_weights_are_values_unless_said() -> None:
    x = np.tril(np.random.default_rng(0).random((9, 9)) + 0.1)
    assert pa.cosine_affinity(x)[0, 1:].max() < 1
    assert pa.cosine_affinity(x, missing=0.0)[0] == pytest.approx(np.ones(9))


SCALES = [1e-300, 1e-150, 1e-30, 1e-12, 1e-8, 1e8, 1e12, 1e30, 1e150, 1e300]


def _scaled(make: Any, x: NDArray[Any], expected: NDArray[Any]) -> None:
    """`make` gives what it gives at any scale; only where squares overflow it may say so instead."""
    overflows = _largest(x) > np.finfo(x.dtype).max ** 0.5 / x.size
    try:
        error = _largest(make(x) - expected)
    except ValueError as refusal:
        if not overflows or "overflow" not in str(refusal):
            raise
    else:
        assert error <= {np.float32: 1e-5, np.float64: 1e-11}[x.dtype.type]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("missing", [None, 0.0])
def test_cosine_has_no_scale(scale: float, missing: float | None) -> None:
    def cosine(x: NDArray[Any]) -> NDArray[Any]:
        out: NDArray[Any] = pa.cosine_affinity(x, missing=missing)
        return out

    x = _rows(5)
    x[2, :4] = 0
    expected = slow.cosine_affinity(x, missing=missing)
    _scaled(cosine, scale * x, expected)
    if 1e-30 <= scale <= 1e30:
        _scaled(cosine, (scale * x).astype(np.float32), expected)
    _scaled(cosine, x * np.where(np.arange(17) % 2, scale, 1)[:, None, None], expected)  # long and short points


# -- Gaussian ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("neighbors", "scale"), [(5, 1.0), (1, 1.0), (2, 0.5), (4, 3.0), (17, 1.0), (100, 1.0)])
@pytest.mark.usefixtures("backend")
def test_gaussian_is_the_transcription(dtype: type, neighbors: int, scale: float) -> None:
    x = _rows(6).astype(dtype)
    x[8] = x[9]
    a = pa.gaussian_affinity(x, neighbors=neighbors, scale=scale)
    _check(a)
    assert a.dtype == dtype
    assert a[8, 9] == 1
    assert _largest(a - slow.gaussian_affinity(x, min(neighbors, 17), scale)) <= TOLERANCE[dtype]


@pytest.mark.parametrize("scale", SCALES)
def test_gaussian_follows_the_scale_of_the_data(scale: float) -> None:
    x = _rows(7)
    expected = slow.gaussian_affinity(x)
    _scaled(pa.gaussian_affinity, scale * x, expected)
    if 1e-30 <= scale <= 1e30:
        _scaled(pa.gaussian_affinity, (scale * x).astype(np.float32), expected)


@pytest.mark.parametrize("scale", [1e-200, 1e-25, 1e25, 1e200])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gaussian_of_any_width_has_no_nan(dtype: type, scale: float) -> None:
    x = _rows(8).astype(dtype)
    x[1] = x[0]
    a = pa.gaussian_affinity(x, scale=scale)
    _check(a)
    assert a[0, 1] == 1
    assert a[0, 2] == (0 if scale < 1 else 1)


def test_points_moved_far_away_keep_their_affinity() -> None:
    x = _rows(9).astype(np.float32)
    moved = x + np.float32(1000)
    assert _largest(pa.gaussian_affinity(moved) - slow.gaussian_affinity(moved)) <= 1e-5


# -- dual -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.usefixtures("backend")
def test_E6_dual_is_the_transcription(dtype: type, n: int) -> None:
    e = pa.pairwise_l1(_rows(10)[:n].astype(dtype))
    a = pa.dual_affinity(e)
    _check(a)
    assert a.dtype == dtype
    assert _largest(a - slow.dual_affinity(e.astype(float))) <= TOLERANCE[dtype]
    assert (a > 0).all()
    if np.median(e) > 0:
        assert np.median(-np.log(a.astype(float))) == pytest.approx(1, rel=1e-5)
        assert _largest(pa.dual_affinity(e, scale=2.0) ** 2 - a) <= TOLERANCE[dtype]
        assert np.array_equal(pa.dual_affinity(8 * e), a)


@given(hnp.arrays(np.float64, (6, 6), elements=st.sampled_from([0.0, 1e-300, 1e-30, 1.0, 3.0, 1e30, 1e300])))
def test_dual_is_in_0_to_1_whatever_the_distances(half: NDArray[np.float64]) -> None:
    e = np.triu(half, 1) + np.triu(half, 1).T
    for dtype in DTYPES:
        with np.errstate(under="ignore"):
            _check(pa.dual_affinity(np.minimum(e, 1e37).astype(dtype)))


def test_equal_points_are_all_alike() -> None:
    assert (pa.dual_affinity(np.zeros((4, 4))) == 1).all()


# -- empty and wrong --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("backend")
def test_empty_and_single() -> None:
    for make in (pa.cosine_affinity, pa.gaussian_affinity):
        assert make(np.zeros((0, 3))).shape == (0, 0)
        assert make(np.zeros((0, 3, 2), np.float32)).dtype == np.float32
        assert make(np.ones((1, 3))).tolist() == [[1.0]]
        assert make(np.zeros((1, 3))).tolist() == [[1.0]]
        assert np.diag(make(np.zeros((3, 0)))).tolist() == [1, 1, 1]
        assert make(np.array([1.0, 2.0, -4.0])).shape == (3, 3)
    assert pa.dual_affinity(np.zeros((0, 0))).shape == (0, 0)
    assert pa.dual_affinity(np.zeros((1, 1))).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pa.gaussian_affinity(np.ones((3, 2)), neighbors=0), r"^neighbors: got 0"),
        (lambda: pa.gaussian_affinity(np.ones((3, 2)), neighbors=1.5), r"^neighbors: got 1.5"),
        (lambda: pa.gaussian_affinity(np.ones((3, 2)), neighbors=True), r"^neighbors: got True"),
        (lambda: pa.gaussian_affinity(np.ones((3, 2)), scale=0), r"^scale: got 0"),
        (lambda: pa.gaussian_affinity(np.ones((3, 2)), scale=np.inf), r"^scale: got inf"),
        (lambda: pa.dual_affinity(np.zeros((3, 3)), scale=-1), r"^scale: got -1"),
        (lambda: pa.dual_affinity(np.zeros((3, 3)), scale="wide"), r"^scale: got 'wide'"),
        (lambda: pa.dual_affinity(np.zeros((3, 2))), r"^distances: got shape \(3, 2\)"),
        (lambda: pa.dual_affinity(np.zeros(4)), r"^distances: got shape \(4,\)"),
        (lambda: pa.dual_affinity(np.array([[0, 1], [2.0, 0]])), r"^distances: not symmetric"),
        (lambda: pa.dual_affinity(np.array([[0, -1], [-1.0, 0]])), r"^distances: got -1.0 as the least entry"),
        (lambda: pa.dual_affinity(np.array([[0, np.nan], [np.nan, 0]])), r"^distances: 2 value"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_equal_numbers_at_any_precision_agree() -> None:
    x = _rows(11).astype(np.float16)
    for make in (pa.cosine_affinity, pa.gaussian_affinity):
        assert relative_error(make(x), make(x.astype(np.float32))) == 0
