"""The tree earth mover's distance beside folder averages by matrix products and pairwise distances of others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import peers
import pytest
import transcription as slow
from conftest import Compare
from counting import pair_terms
from data import attention, relative_error
from numpy.typing import NDArray
from results import OURS, Work
from sizes import sized
from threadpoolctl import threadpool_limits

import pyattnorg as pa

FloatArray = NDArray[Any]
# Tensor, axis whose points are compared, dtype.
CASES = sized(
    [
        ((256, 256, 128), 0, "float32"),
        ((256, 256, 128), 2, "float32"),
        ((256, 256, 128), 0, "float64"),
        ((1024, 1024), 0, "float32"),
    ],
    [((32, 32, 16), 0, "float32"), ((32, 32, 16), 2, "float32"), ((64, 64), 0, "float64")],
)
TOLERANCE = 2e-5


@cache
def case(shape: tuple[int, ...], axis: int) -> tuple[list[pa.PartitionTree], FloatArray]:
    """Trees of the other axes, and the exact distances."""
    x = attention(shape, "float64")
    trees = [pa.flexible_tree(pa.cosine_affinity(np.moveaxis(x, other, 0))) for other in range(x.ndim) if other != axis]
    return trees, slow.tree_emd(np.moveaxis(x, axis, 0), [tree.labels for tree in trees])


def _averages(x: FloatArray, trees: list[pa.PartitionTree]) -> FloatArray:
    out = x
    for tree in trees:
        out = np.tensordot(out, slow.folder_averages(tree.labels).astype(x.dtype), (1, 1))
    return np.ascontiguousarray(out.reshape(len(out), -1))


def transcribed(x: FloatArray, trees: list[pa.PartitionTree]) -> FloatArray:
    with threadpool_limits(1):
        return slow.tree_emd(x, [tree.labels for tree in trees])


# The averages of those with an underscore are made beforehand: only distances are timed.
WHO: dict[str, tuple[Callable[..., FloatArray], int, int]] = {
    OURS: (lambda x, trees: pa.tree_emd(x, trees), 5, 1),
    "transcription": (transcribed, 1, 0),
    "numba, tiled, averages given": (peers.l1_numba, 3, 0),
    "torch.pdist, averages given": (peers.l1_torch, 1, 0),
}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize(("shape", "axis", "dtype"), CASES)
def test_tree_emd(compare: Compare, shape: tuple[int, ...], axis: int, dtype: str, who: str) -> None:
    function, rounds, warmup = WHO[who]
    trees, exact = case(shape, axis)
    x = np.moveaxis(attention(shape, dtype), axis, 0)
    given: tuple[Any, ...] = (x, trees)
    if "averages given" in who:
        pytest.importorskip(who.split(",")[0].split(".")[0])
        given = (_averages(x, trees),)

    def check(got: FloatArray) -> str:
        error = relative_error(got, exact) if who != "torch.pdist" else float(np.abs(got - exact).max() / exact.max())
        assert error <= (TOLERANCE if who == OURS else 1e-3)
        return f"error {error:.0e}" + (", one core, float64" if who == "transcription" else "")

    folders = " x ".join(str(tree.n_folders) for tree in trees)
    compare(
        "tree_emd",
        f"{' x '.join(map(str, shape))} {dtype}, axis {axis} ({folders} folders)",
        who,
        lambda: function(*given),
        check,
        work=Work(pair_terms(len(x), tuple(trees)), "terms", f"max_fma_{dtype}"),
        rounds=rounds,
        warmup=warmup,
    )
