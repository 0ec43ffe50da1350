"""Cosine and Gaussian affinities beside NumPy's matrix product and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import peers
import pytest
import transcription as slow
from conftest import Compare
from data import TWINS, points
from numpy.typing import NDArray
from results import OURS, Work
from sizes import sized

import pyattnorg as pa

FloatArray = NDArray[Any]
SIZES = sized([(4096, 4096, "float32"), (256, 32_768, "float32")], [(128, 64, "float32")])
# Function, rounds, tolerance: largest error of an affinity.
WHO: dict[str, dict[str, tuple[Callable[[FloatArray], FloatArray], int, float]]] = {
    "cosine": {
        OURS: (pa.cosine_affinity, 3, 1e-5),
        "numpy": (peers.cosine_numpy, 3, 1e-4),
        "sklearn": (peers.cosine_sklearn, 3, 1e-4),
    },
    "gaussian": {
        OURS: (pa.gaussian_affinity, 3, 1e-4),
        "numpy": (peers.gaussian_numpy, 1, 1.0),  # its near-duplicates are wrong: how far is in the note
        "sklearn": (peers.gaussian_sklearn, 1, 1e-2),
    },
}


@cache
def made(n: int, features: int, dtype: str) -> tuple[FloatArray, NDArray[np.intp], dict[str, FloatArray]]:
    """Points, some of them (twins among them), and the exact affinities among those."""
    x = points(n, features, dtype)
    rows = np.r_[0 : 2 * TWINS, n - 2 * TWINS : n]
    return x, rows, {"cosine": slow.cosine_affinity(x[rows]), "gaussian": peers.gaussian_rows(x, rows)}


@pytest.mark.parametrize(("kind", "who"), [(kind, who) for kind, whose in WHO.items() for who in whose])
@pytest.mark.parametrize(("n", "features", "dtype"), SIZES)
def test_affinity(compare: Compare, n: int, features: int, dtype: str, kind: str, who: str) -> None:
    function, rounds, tolerance = WHO[kind][who]
    if who == "sklearn":
        pytest.importorskip("sklearn")
    x, rows, exact = made(n, features, dtype)

    def check(got: FloatArray) -> str:
        error = float(np.abs(got[np.ix_(rows, rows)] - exact[kind]).max())
        assert error <= tolerance
        return f"error {error:.0e}"

    compare(
        "affinity",
        f"{kind}, {n:,} x {features:,} {dtype}",
        who,
        lambda: function(x),
        check,
        work=Work(n * (n - 1.0) * features, "operations", f"fma_flops_{dtype}"),
        rounds=rounds,
        warmup=int(rounds > 1),
    )
