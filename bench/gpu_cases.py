"""What bench/gpu.py runs on a card, each in a process of its own.

    python bench/gpu_cases.py kernels           every kernel once, small: for compute-sanitizer
    python bench/gpu_cases.py rates SECONDS     rates beside what the card can do: rows of a table, as they come

A row that fails says so and the next one is tried.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pyattnorg as pa
from pyattnorg import device_trees, devices

INSTRUCTIONS = 2  # of |a - b|: a subtraction, and an addition of its magnitude


def tree(n: int, seed: int) -> pa.PartitionTree:
    """A random tree."""
    rng, levels = np.random.default_rng(seed), [np.arange(n)]
    while levels[0].max() > 0:
        parts = levels[0].max() + 1
        parent = rng.integers(max(1, parts // 2), size=parts)
        levels.insert(0, np.unique(parent[levels[0]], return_inverse=True)[1])
    return pa.PartitionTree.from_labels(np.stack(levels))


def kernels(device: str = "cuda", shape: tuple[int, int, int] = (70, 40, 33)) -> None:
    """Every kernel, over shapes that do and do not fill its tiles."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(shape, device=device).to(dtype)
        trees = [tree(n, n) for n in x.shape]
        pa.pairwise_l1(x)
        pa.pairwise_l1(x, x[:20] + 1)
        pa.tree_emd(x, trees[1:])
        pa.ihaar(pa.haar(x, trees), trees)
        pa.gaussian_affinity(x)
        pa.dual_affinity(pa.pairwise_l1(x))
        pa.cosine_affinity(x)
        pa.l1_entropy(x)
        pa.entropy_tree(x, noise=0.3)
        pa.martingale_differences(x, trees)
        pa.paraproduct(x[:, :, 0], trees[:2], "softmax")
    if device != "cpu":
        torch.cuda.synchronize()


def seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    """Median time of a call on the device."""
    call()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return sorted(times)[len(times) // 2]


class Rows:
    """Rows of a table, printed as they come; none is begun when its time is over."""

    def __init__(self, limit: float) -> None:
        self.end = time.monotonic() + limit
        card = torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
        try:
            megahertz = subprocess.run(query, capture_output=True, text=True).stdout.split()
        except OSError:
            megahertz = []
        lanes = 64 if torch.cuda.get_device_capability() == (8, 0) else 128
        rate = float(megahertz[0]) * 1e6 if megahertz else float("nan")
        self.terms = card.multi_processor_count * lanes * rate / INSTRUCTIONS  # |a - b| a second
        self.bytes = float("nan")

    def add(self, name: str, needed: float, make: Callable[[], str]) -> None:
        """One row, where at least `needed` seconds are left."""
        try:
            told = make() if time.monotonic() + needed < self.end else "left out: no time | "
        except Exception as error:  # whatever it is, other rows may work
            told = f"FAILED: {type(error).__name__}: {str(error)[:90]} | ".replace("\n", " ")
        print(f"| {name} | {told} |", flush=True)
        torch.cuda.empty_cache()

    def rate(self, work: float, unit: str, taken: float, bound: float) -> str:
        """What was done in a time, and how much of what can be done."""
        return f"{work / taken / 1e9:,.0f} {unit} in {taken * 1e3:.1f} ms | {work / taken / bound:.0%}"


def rates(limit: float) -> None:
    """All rows, the longest last."""
    rows = Rows(limit)

    def copy() -> str:
        x = torch.empty(2**28, device="cuda")
        rows.bytes = 2 * 4 * x.numel() / seconds(x.clone)
        return f"{rows.bytes / 1e9:,.0f} GB/s | measured, what memory allows"

    def pairwise(n: int, features: int) -> str:
        x = torch.randn(n, features, device="cuda")
        return rows.rate(n * (n - 1) / 2 * features, "G terms/s", seconds(lambda: pa.pairwise_l1(x), 3), rows.terms)

    def haar(shape: tuple[int, ...]) -> str:  # the floor: the tensor is read once and written once
        x, trees = torch.randn(shape, device="cuda"), [tree(n, i) for i, n in enumerate(shape)]
        return rows.rate(8 * x.numel(), "GB/s", seconds(lambda: pa.haar(x, trees)), rows.bytes)

    def emd(shape: tuple[int, ...]) -> str:
        x, trees = torch.randn(shape, device="cuda"), [tree(n, i) for i, n in enumerate(shape[:2])]
        terms = float(np.prod([one.n_folders for one in trees])) * shape[2] * (shape[2] - 1) / 2
        return rows.rate(terms, "G terms/s", seconds(lambda: pa.tree_emd(x.movedim(2, 0), trees), 3), rows.terms)

    def merging(n: int, features: int) -> str:
        x = torch.randn(n, features, device="cuda")
        memory = devices.Gpu("cuda")
        taken = seconds(lambda: device_trees.entropy_tree(memory, x.clone(), 0.0), 3)
        living, terms = n, n * (n - 1) / 2 * features
        merges, _, _ = device_trees.entropy_tree(memory, x.clone(), 0.0)
        for merged in passes(merges):
            terms += (merged * (living - 2 * merged) + merged * (merged - 1) / 2) * features
            living -= merged
        return rows.rate(terms, "G terms/s", taken, rows.terms)

    def exchanges(n: int, features: int) -> str:
        x, memory = torch.randn(n, features, device="cuda"), devices.Gpu("cuda")
        chain = np.array([[0, i] for i in range(1, n)], np.int32)
        taken = seconds(lambda: device_trees.improve_tree(memory, x, chain, 0, 0.0, 0.0), 3)
        return rows.rate(4 * n * features * 7, "GB/s", taken, rows.bytes)  # means read, written, read by five

    def paraproduct(shape: tuple[int, ...]) -> str:
        x = torch.randn(shape, device="cuda")
        trees = [pa.PartitionTree.dyadic(n) for n in shape[:2]] + [None]
        return f"{seconds(lambda: pa.paraproduct(x, trees, 'softmax'), 3) * 1e3:.1f} ms | "

    def fit(shape: tuple[int, ...], **options: Any) -> str:
        x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        begin = time.perf_counter()
        fitted = pa.Questionnaire(**options).fit(x)
        torch.cuda.synchronize()
        return f"{time.perf_counter() - begin:.2f} s, {fitted.n_iter_} iterations | "

    rows.add("copy of 1 GiB", 5, copy)
    for n, features in ((512, 295_000), (1024, 1_000_000), (4096, 65_536)):
        rows.add(f"pairwise l1, {n} x {features}", 5, lambda n=n, f=features: pairwise(n, f))
    for shape in ((256, 256, 128), (1024, 1024, 144)):
        rows.add(f"tri-Haar, {shape}, of one copy", 5, lambda s=shape: haar(s))
        rows.add(f"tree distances of heads, {shape}", 5, lambda s=shape: emd(s))
    for n, features in ((512, 262_144), (2048, 65_536)):
        rows.add(f"merging by least entropy, {n} x {features}", 5, lambda n=n, f=features: merging(n, f))
        rows.add(f"a sweep around all folders, {n} x {features}", 5, lambda n=n, f=features: exchanges(n, f))
    rows.add("paraproduct of softmax, 256 x 256 x 64", 5, lambda: paraproduct((256, 256, 64)))
    for shape in ((512, 512, 256), (2048, 2048, 1024)):
        slow = 60 if shape[0] > 1000 else 10
        name = f"{' x '.join(map(str, shape))} bfloat16"
        for kind, options in (("flexible", {"n_iter": 3, "tree": "flexible"}), ("least-entropy", {})):
            rows.add(f"questionnaire, {kind} trees, {name}", slow, lambda s=shape, o=options: fit(s, **o))


def passes(merges: Any) -> list[int]:
    """Merges of every pass: a folder that was merged is merged again in a later pass at the earliest."""
    counts, last, used = [0], -1, set()
    for a, b in np.asarray(merges).tolist():
        if a < last or a in used or b in used:  # those of a pass ascend
            counts.append(0)
            used = set()
        last, used = a, used | {a, b}
        counts[-1] += 1
    return counts


if __name__ == "__main__":
    if sys.argv[1] == "kernels":
        kernels()
    else:
        rates(float(sys.argv[2]))
