"""Least-entropy trees on a device: rows there in, merges out.

A tree is an object of this machine, so these wait for the device: once for the features that noise leaves, once in 16,
32, 64 ... passes of merging (some twenty are usual), once in a sweep of exchanges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.device_kernels import number, pairwise, real, workspace
from pyattnorg.devices import Memory
from pyattnorg.folders import IntArray

PASSES = 16  # of merging before anybody looks whether folders are left


def entropy_tree(memory: Memory, x: Any, noise: float) -> tuple[IntArray, NDArray[np.float64], Any]:
    """As `pyattnorg.kernels.entropy_tree`, of rows x (n, features) in C order, overwritten; distances stay there."""
    n, stride = (int(size) for size in x.shape)
    features = _shrunk(memory, x, noise * noise) if noise else stride
    distances = pairwise(memory, x[:, :features], 0, "l1", None)
    merges, costs = memory.empty((n - 1, 2), np.int32), memory.empty((n - 1,), np.float64)
    left = memory.empty((1,), np.int64)
    room, work = workspace(memory, memory.kernels.merge_work(n, real(x) == np.float64))
    memory.kernels.merge_start(number(x), memory.address(distances), n, work, memory.place())
    passes, folders = PASSES, n
    while folders > 1:
        memory.kernels.merge_passes(
            number(x), memory.address(x), (n, features, stride), passes, memory.address(merges), memory.address(costs),
            memory.address(left), work, memory.place(),
        )  # fmt: skip
        folders, passes = int(memory.host(left)[0]), 2 * passes
    del room
    return memory.host(merges), memory.host(costs), distances


def _shrunk(memory: Memory, x: Any, noise: float) -> int:
    """Weighs the columns of x by what noise leaves of them, in place: how many are left, at the left of every row."""
    n, features = (int(size) for size in x.shape)
    if not features:
        return 0
    columns, factors = memory.empty((features,), np.int32), memory.empty((features,), real(x))
    count = memory.empty((1,), np.int64)
    room, work = workspace(memory, memory.kernels.weigh_features_work(features, real(x) == np.float64))
    memory.kernels.weigh_features(
        number(x), memory.address(x), (n, features), noise, memory.address(columns), memory.address(factors),
        memory.address(count), work, memory.place(),
    )  # fmt: skip
    del room
    kept = int(memory.host(count)[0])
    if kept:
        memory.kernels.close_gaps(
            number(x), memory.address(x), (n, features), memory.address(columns), memory.address(factors), kept,
            memory.place(),
        )  # fmt: skip
    return kept or features


def improve_tree(
    memory: Memory, x: Any, merges: IntArray, sweeps: int, least_share: float, least_gain: float
) -> tuple[IntArray, NDArray[np.float64]]:
    """As `pyattnorg.kernels.improve_tree`, of rows x (n, features) in C order: measured there, exchanged here."""
    n, features = (int(size) for size in x.shape)
    if n < 2:
        return np.array(merges, np.int32), np.zeros(0)
    tree = memory.kernels.Interchange(np.ascontiguousarray(merges, np.int32))
    room, work = workspace(memory, memory.kernels.around_work(n, features, real(x) == np.float64))
    for sweep in range(sweeps + 1):
        steps, first, near = tree.plan()
        parts = (steps.view(np.float64), first.view(np.float32), near.view(np.float64))
        there = [memory.array(part) for part in parts]
        count = near.nbytes // NEAR_BYTES
        found = memory.empty((count, 3), np.float64)
        if features:
            memory.kernels.around(
                number(x), memory.address(x), (n, features), *(memory.address(part) for part in there),
                (len(first) - 1, count), memory.address(found), work, memory.place(),
            )  # fmt: skip
        tree.learn(memory.host(found) if features else np.zeros((count, 3)))
        if sweep == sweeps or not tree.exchange(least_share, least_gain):
            break
    del room
    better: tuple[IntArray, NDArray[np.float64]] = tree.give()
    return better


NEAR_BYTES = 64  # of cuda::Near (csrc/kernels.hpp)
