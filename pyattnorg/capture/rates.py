"""How fast this machine is at what a capture does, measured in some tenths of a second."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyattnorg.capture.files import create_array
from pyattnorg.capture.maths import attend, unseen


def _seconds(do: Callable[[], Any], device: torch.device, most: float = 0.2) -> float:
    """The shortest of at least two runs, of as many as there is time for: others use the machine too."""
    best = float("inf")
    do()
    begun, runs = time.perf_counter(), 0
    while runs < 2 or time.perf_counter() - begun < most:
        runs += 1
        start = time.perf_counter()
        do()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return max(best, 1e-9)


@lru_cache
def flops_per_second(device: torch.device, dtype: torch.dtype, threads: int) -> float:
    """Of products of matrices, as a model's layers are."""
    n, width = 512, 1024
    with unseen(device):
        a = torch.ones(n, width, device=device, dtype=dtype)
        b = torch.ones(width, width, device=device, dtype=dtype)
        return 2.0 * n * width * width / _seconds(lambda: a @ b, device)


@lru_cache
def cells_per_second(device: torch.device, threads: int, *, large: bool) -> float:
    """Of maps that are computed, checked and copied; threads that wait for one another make small ones slow."""
    heads, n, width = (2, 1024, 64) if large else (4, 128, 64)
    with unseen(device):
        q = torch.ones(heads, n, width, device=device)
        hidden = torch.zeros(1, n, n, dtype=torch.bool, device=device)

        def look() -> None:
            maps = attend(q, q, 0.1, hidden)
            maps.context(q)
            again = torch.softmax(maps.scores.masked_fill(hidden, -torch.inf), -1)
            again.sub_(maps.weights).abs_().amax(-1)
            maps.weights.sum(-1)
            maps.scores.cpu().clone(), maps.weights.cpu().clone()

        return heads * n * n / (2 * _seconds(look, device))  # copies and sums beside these cost as much again


@lru_cache
def stored_bytes_per_second() -> float:
    """Of float32 that are compressed and written to the disk."""
    values = np.random.default_rng(0).random((1, 512, 512), dtype=np.float32)
    with tempfile.TemporaryDirectory(prefix="pyattnorg-") as folder:
        count = itertools.count()

        def write() -> None:
            create_array(Path(folder) / str(next(count)), values.shape, "float32", values.shape)[...] = values

        return values.nbytes / _seconds(write, torch.device("cpu"))


__all__ = ["cells_per_second", "flops_per_second", "stored_bytes_per_second"]
