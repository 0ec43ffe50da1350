"""Ten diffusion coordinates beside SciPy's eigsh and scikit-learn's randomized_svd."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import peers
import pytest
from conftest import Compare
from data import affinity
from numpy.typing import NDArray
from results import OURS
from sizes import sized

import pyattnorg as pa

FloatArray = NDArray[Any]
SIZES = sized([(2048, "float64"), (8192, "float32")], [(100, "float64"), (300, "float32")])
COUNT = 10
# Eigenvalues and vectors of the symmetric matrix with the constant's; largest residual.
PEERS: dict[str, tuple[Callable[[FloatArray], tuple[FloatArray, FloatArray]], float]] = {
    "eigsh, tol 1e-5": (lambda k: peers.leading(peers.markov(k), COUNT + 1, 1e-5), 1e-3),
    "eigsh, tol 0": (lambda k: peers.leading(peers.markov(k), COUNT + 1, 0.0), 1e-5),
    "sklearn randomized_svd": (lambda k: peers.leading_svd(peers.markov(k), COUNT + 1), 0.1),
}


@cache
def exact(n: int, dtype: str) -> tuple[FloatArray, FloatArray]:
    """The symmetric matrix and its leading eigenvalues, in float64."""
    s = peers.markov(affinity("attention", n, dtype).astype(float))
    return s, peers.leading(s, COUNT + 1, 1e-10)[0]


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Any:
    yield
    exact.cache_clear()
    affinity.cache_clear()


@pytest.mark.parametrize(("n", "dtype"), SIZES)
def test_diffusion_map(compare: Compare, n: int, dtype: str) -> None:
    k = affinity("attention", n, dtype)

    def check(found: pa.DiffusionMap) -> str:
        s, values = exact(n, dtype)
        assert np.abs(found.eigenvalues) == pytest.approx(np.abs(values[1:]), abs=1e-5)
        d = k.sum(1, dtype=float)
        v0 = np.sqrt((k / d[:, None] / d).sum(1))
        error = peers.residual(s, found.eigenvalues, found.coordinates / np.abs(found.eigenvalues) * v0[:, None])
        assert error <= 1e-5
        return f"residual {error:.0e}"

    compare(
        "diffusion_map",
        f"{n:,} points, {dtype}",
        OURS,
        lambda: pa.diffusion_map(k, n_components=COUNT),
        check,
        rounds=3,
        warmup=int(n < 4096),
    )


@pytest.mark.parametrize("who", PEERS)
@pytest.mark.parametrize(("n", "dtype"), SIZES)
def test_peers(compare: Compare, n: int, dtype: str, who: str) -> None:
    function, tolerance = PEERS[who]
    if "sklearn" in who:
        pytest.importorskip("sklearn")
    k = affinity("attention", n, dtype)

    def check(found: tuple[FloatArray, FloatArray]) -> str:
        error = peers.residual(exact(n, dtype)[0], *found)
        assert error <= tolerance
        return f"residual {error:.0e}"

    compare("diffusion_map", f"{n:,} points, {dtype}", who, lambda: function(k), check, rounds=3 if n < 4096 else 1)
