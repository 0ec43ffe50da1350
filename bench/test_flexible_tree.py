"""Flexible trees beside the eigenvectors that they start from, by SciPy, and beside the transcription's tree."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import peers
import pytest
import transcription as slow
from conftest import Compare
from data import affinity, shared_folders
from numpy.typing import NDArray
from results import OURS
from scipy.spatial.distance import cdist
from sizes import sized
from threadpoolctl import threadpool_limits

import pyattnorg as pa
from pyattnorg.diffusion import tree_coordinates

FloatArray = NDArray[Any]
IntArray = NDArray[np.int64]
CASES = sized([("attention", 1024), ("cloud", 1024), ("attention", 4096)], [("attention", 64), ("cloud", 300)])
VECTORS = 12
TOLERANCE = 1e-6


@cache
def markov(kind: str, n: int) -> FloatArray:
    return peers.markov(affinity(kind, n))


@cache
def numpy_tree(kind: str, n: int) -> IntArray:
    """The transcription's tree, but for its full decomposition and its products with indicator matrices."""
    k = affinity(kind, n)
    d = k.sum(1)
    v0 = np.sqrt((k / d[:, None] / d).sum(1))
    v0 /= np.linalg.norm(v0)
    values, vectors = peers.leading(markov(kind, n) - np.outer(v0, v0), min(VECTORS, n) - 1, 0.0)
    phi, decay = vectors / v0[:, None], np.abs(values) / np.abs(values[0])
    folder, levels = np.arange(n), [np.arange(n)]
    while folder.max() > 0:
        coordinates = decay**2.0 ** (len(levels) - 1) * phi
        order = np.argsort(folder, kind="stable")
        size = np.bincount(folder)
        start = np.concatenate([[0], np.cumsum(size)[:-1]])
        sums = np.add.reduceat(cdist(coordinates[order], coordinates[order]), start, axis=0)
        mean = np.add.reduceat(sums, start, axis=1) / np.outer(size, size)
        above = np.empty(len(size), np.int64)
        for number, group in enumerate(slow.join_folders((mean + mean.T) / 2)):
            above[group] = number
        folder = above[folder]
        levels.append(folder)
    return slow.canonical(levels[::-1])


@pytest.mark.parametrize(("kind", "n"), CASES)
def test_flexible_tree(compare: Compare, kind: str, n: int) -> None:
    k = affinity(kind, n)

    def check(tree: pa.PartitionTree) -> str:
        rate, phi = tree_coordinates(k)
        s = markov(kind, n)
        v0 = np.sqrt((k / k.sum(1)[:, None] / k.sum(1)).sum(1))
        ours = peers.residual(s, rate, phi * v0[:, None])
        theirs = peers.residual(s, *peers.leading(s, VECTORS, TOLERANCE))
        assert ours <= max(theirs, 1e-10)  # what diffusion.TOLERANCE promises; asked for 1e-6, eigsh may overshoot
        same = shared_folders(tree.labels, numpy_tree(kind, n))
        assert same >= 0.99
        return f"residual {ours:.0e}, {tree.n_folders} folders, {100 * same:.1f} % of them as in NumPy"

    compare("flexible_tree", f"{n:,} points, {kind}", OURS, lambda: pa.flexible_tree(k), check, rounds=3, warmup=1)


@pytest.mark.parametrize(("kind", "n"), CASES)
def test_eigsh(compare: Compare, kind: str, n: int) -> None:
    s = markov(kind, n)

    def check(found: tuple[FloatArray, FloatArray]) -> str:
        assert found[0][0] == pytest.approx(1, abs=1e-6)
        error = peers.residual(s, *found)
        assert error <= 1e-4
        return f"residual {error:.0e}"

    compare(
        "flexible_tree",
        f"{n:,} points, {kind}",
        "eigsh alone, 12 vectors, tol 1e-6",
        lambda: peers.leading(s, VECTORS, TOLERANCE),
        check,
        rounds=3,
        warmup=1,
    )


@pytest.mark.parametrize(("kind", "n"), CASES[:2])
def test_transcription(compare: Compare, kind: str, n: int) -> None:
    k = affinity(kind, n)

    def check(labels: IntArray) -> str:
        same = shared_folders(labels, numpy_tree(kind, n))
        assert same >= 0.99
        return "full decomposition, one core"

    def run() -> IntArray:
        with threadpool_limits(1):
            return slow.flexible_tree(k)

    compare("flexible_tree", f"{n:,} points, {kind}", "transcription", run, check, rounds=1)
