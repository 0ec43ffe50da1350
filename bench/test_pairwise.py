"""Pairwise l1 distances beside those of torch, SciPy, faiss and two loops in numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import peers
import pytest
from conftest import Compare
from data import TWINS, points, relative_error
from numpy.typing import NDArray
from results import OURS, Work
from scipy.spatial.distance import cdist
from sizes import sized

import pyattnorg as pa

FloatArray = NDArray[Any]
SIZES = sized(
    [(512, 295_000, "float32"), (2048, 32_768, "float32"), (512, 36_875, "float32"), (512, 36_875, "float64")],
    [(64, 3000, "float32"), (64, 3000, "float64")],
)
# Function, rounds, tolerance. torch and faiss sum long float32 rows in one go.
WHO: dict[str, tuple[Callable[[FloatArray], FloatArray], int, float]] = {
    "scipy pdist": (peers.l1_scipy, 1, 1e-12),
    OURS: (pa.pairwise_l1, 5, 1e-5),
    "numba, tiled": (peers.l1_numba, 3, 1e-5),
    "numba, tiled, by indices": (peers.l1_numba_indexed, 1, 1e-5),
    "torch.pdist": (peers.l1_torch, 1, 1e-3),
    "faiss": (peers.l1_faiss, 1, 1e-2),
}
ONE_CORE = {"scipy pdist"}  # whatever the number of threads
SAID_ENOUGH = {"scipy pdist", "numba, tiled, by indices", "faiss"}
MODULES = {"numba": "numba", "torch.pdist": "torch", "faiss": "faiss"}


@cache
def made(n: int, features: int, dtype: str) -> tuple[FloatArray, NDArray[np.intp], FloatArray]:
    """Points, some of them (twins among them), and the exact distances of those from all."""
    x = points(n, features, dtype)
    rows = np.r_[0 : 2 * TWINS, n - 2 * TWINS : n]
    return x, rows, cdist(x[rows].astype(float), x.astype(float), "cityblock")


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Any:
    yield
    made.cache_clear()


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(("n", "features", "dtype"), SIZES)
def test_pairwise_l1(compare: Compare, n: int, features: int, dtype: str, who: str) -> None:
    function, rounds, tolerance = WHO[who]
    pytest.importorskip(MODULES.get(who.split(",")[0], "numpy"))
    if who == "faiss" and dtype != "float32":
        pytest.skip("faiss has float32 only")
    if who in SAID_ENOUGH and n > 1024:
        pytest.skip("takes half a minute, and says the same as at 512 rows")
    x, rows, exact = made(n, features, dtype)

    def check(got: FloatArray) -> str:
        assert got.shape == (n, n)
        error = relative_error(got[rows], exact)
        if who == OURS:
            assert (got[np.arange(TWINS, 2 * TWINS), np.arange(n - 2 * TWINS, n - TWINS)] == 0).all()
            assert (got == got.T).all()
        assert error <= tolerance
        return f"error {error:.0e}" + (", one core" if who in ONE_CORE else "")

    if "numba" in who:
        function(x[:8, :8])  # compiles
    compare(
        "pairwise_l1",
        f"{n:,} x {features:,} {dtype}",
        who,
        lambda: function(x),
        check,
        work=Work(n * (n - 1) / 2 * features, "terms", f"max_fma_{dtype}"),
        rounds=rounds,
        warmup=int(who == OURS),
    )
