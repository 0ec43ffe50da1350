"""Tree-Haar transforms beside NumPy, torch, numba and PyWavelets on dyadic trees, and basis matrices on any tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import peers
import pytest
import transcription as slow
from conftest import Compare
from inputs import random_tree
from numpy.typing import NDArray
from results import OURS, Work
from sizes import sized
from threadpoolctl import threadpool_limits

import pyattnorg as pa

FloatArray = NDArray[Any]
SIZES = sized([(256, 256, 128), (4096, 4096)], [(16, 16, 8), (32, 32)])
ERROR = 2e-5  # of unit-scale coefficients in float32
DYADIC: dict[str, Callable[[FloatArray, bool], FloatArray]] = {
    "numpy, level by level": peers.dyadic_numpy,
    "torch, level by level": peers.dyadic_torch,
    "numba, dyadic only": lambda x, inverse: peers.dyadic_numba(x),
    "PyWavelets": lambda x, inverse: peers.dyadic_pywavelets(x),
}
BASES: dict[str, Callable[[FloatArray], Any]] = {
    "scipy.sparse basis": peers.as_sparse,
    "dense products": np.ascontiguousarray,
}
MODULES = {"torch, level by level": "torch", "numba, dyadic only": "numba", "PyWavelets": "pywt"}
FORWARD_ONLY = {"numba, dyadic only", "PyWavelets"}


@cache
def made(shape: tuple[int, ...]) -> FloatArray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@cache
def trees(shape: tuple[int, ...], kind: str) -> list[pa.PartitionTree]:
    if kind == "dyadic":
        return [pa.PartitionTree.dyadic(n) for n in shape]
    return [random_tree(n, axis) for axis, n in enumerate(shape)]


@cache
def bases(shape: tuple[int, ...], kind: str) -> list[FloatArray]:
    """The transcription's basis matrices."""
    return [slow.haar_basis(tree.labels).astype(np.float32) for tree in trees(shape, kind)]


@cache
def exact(shape: tuple[int, ...], kind: str) -> FloatArray:
    return peers.by_matrices(made(shape), bases(shape, kind))


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Any:
    yield
    for kept in (made, bases, exact):
        kept.cache_clear()


def _run(
    compare: Compare, shape: tuple[int, ...], kind: str, inverse: bool, who: str, function: Callable[..., FloatArray]
) -> None:
    x = exact(shape, kind) if inverse else made(shape)
    expected = made(shape) if inverse else exact(shape, kind)

    def check(got: FloatArray) -> str:
        error = float(np.abs(got - expected).max())
        assert error <= ERROR
        return f"error {error:.0e}"

    slow_ones = who in BASES or who in ("PyWavelets", "torch, level by level")
    compare(
        "haar",
        f"{'inverse' if inverse else 'forward'}, {' x '.join(map(str, shape))} float32, {kind} trees",
        who,
        lambda: function(x),
        check,
        work=Work(2.0 * x.nbytes * x.ndim, "bytes", "triad"),
        rounds=3 if slow_ones else 7,
        warmup=0 if slow_ones else 1,
    )


@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@pytest.mark.parametrize("kind", ["dyadic", "any"])
@pytest.mark.parametrize("shape", SIZES)
def test_haar(compare: Compare, shape: tuple[int, ...], kind: str, inverse: bool) -> None:
    of = trees(shape, kind)
    transform = pa.ihaar if inverse else pa.haar
    _run(compare, shape, kind, inverse, OURS, lambda x: transform(x, of))


@pytest.mark.parametrize("who", DYADIC)
@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@pytest.mark.parametrize("shape", SIZES)
def test_dyadic(compare: Compare, shape: tuple[int, ...], inverse: bool, who: str) -> None:
    pytest.importorskip(MODULES.get(who, "numpy"))
    if who in FORWARD_ONLY and inverse:
        pytest.skip("written forward only")
    if who == "numba, dyadic only" and len(shape) != 2:
        pytest.skip("written for matrices")
    _run(compare, shape, "dyadic", inverse, who, lambda x: DYADIC[who](x, inverse))


@pytest.mark.parametrize("who", BASES)
@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@pytest.mark.parametrize("shape", SIZES)
def test_matrices(compare: Compare, shape: tuple[int, ...], inverse: bool, who: str) -> None:
    matrices = [BASES[who](b.T if inverse else b) for b in bases(shape, "any")]
    with threadpool_limits(pa.get_num_threads()):
        _run(compare, shape, "any", inverse, who, lambda x: peers.by_matrices(x, matrices))
