"""What bench/gpu.py runs on a card, each in a process of its own.

    python bench/gpu_cases.py kernels           every kernel once, small: for compute-sanitizer
    python bench/gpu_cases.py rates SECONDS [ROWS]    rates beside what the card can do: rows of a table, as they come

A row that fails says so and the next one is tried. Where the card takes no more work from this process, it ends with
status 4, to be called again with the number of ROWS that are already there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pyattnorg as pa
from pyattnorg import device_trees, devices

LOST = 4
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
    """Rows of a table, printed as they come, but for the first ones; none is begun when its time is over."""

    def __init__(self, limit: float, there: int = 0) -> None:
        self.there, self.named = there, 0
        self.end = time.monotonic() + limit
        card = torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
        try:
            megahertz = float(subprocess.run(query, capture_output=True, text=True).stdout.split()[0])
        except (OSError, IndexError, ValueError):  # not there, or it does not know
            megahertz = float("nan")
        lanes = 64 if torch.cuda.get_device_capability() == (8, 0) else 128
        self.terms = card.multi_processor_count * lanes * megahertz * 1e6 / INSTRUCTIONS  # |a - b| a second
        self.bytes = float("nan")

    def add(self, name: str, needed: float, make: Callable[[], str], *, again: bool = False) -> None:
        """One row, where at least `needed` seconds are left; with `again` also made where it is already there."""
        self.named += 1
        old = self.named <= self.there
        if old and not again:
            return
        try:
            told = make() if time.monotonic() + needed < self.end else "left out: no time | "
        except Exception as error:  # whatever it is, other rows may work
            told = f"FAILED: {type(error).__name__}: {str(error)[:90]} | ".replace("\n", " ")
        if not old:
            print(f"| {name} | {told} |", flush=True)
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:  # every later call would fail as this one did
            print(f"the card takes no more work: {error}", flush=True)
            sys.stdout.flush()
            os._exit(LOST)

    def rate(self, work: float, unit: str, taken: float, bound: float) -> str:
        """What was done in a time, and how much of what can be done."""
        return f"{work / taken / 1e9:,.0f} {unit} in {taken * 1e3:.1f} ms | {work / taken / bound:.0%}"


def attention(shape: tuple[int, int, int], device: str = "cuda") -> torch.Tensor:
    """Scores in bfloat16, some heads at a time: tokens lie on a line that no order shows, and heads look along it.

    Noise alone would be a poor example: eigenvalues of its affinities do not fall, and trees take ten times as long.
    """
    queries, keys, heads = shape
    torch.manual_seed(0)
    x = torch.empty(shape, dtype=torch.bfloat16, device=device)
    u, v = torch.rand(queries, 1, 1, device=device), torch.rand(1, keys, 1, device=device)
    waves = 1 + 5 * torch.rand(heads, device=device)
    turned = torch.rand(heads, device=device)
    some = max(1, 2**26 // (queries * keys))
    for begin in range(0, heads, some):
        part = slice(begin, begin + some)
        score = torch.cos(6.2832 * (waves[part] * (u - v) + turned[part].round() / 4))
        score += 0.3 * torch.randn(score.shape, device=device)
        x[:, :, part] = score.to(torch.bfloat16)
    return x


def rates(limit: float, there: int = 0) -> None:
    """All rows: first those that are asked for, the longest last."""
    rows = Rows(limit, there)

    def copy() -> str:
        x = torch.empty(2**28, device="cuda")
        rows.bytes = 2 * 4 * x.numel() / seconds(x.clone)
        return f"{rows.bytes / 1e9:,.0f} GB/s | measured, what memory allows"

    def pairwise(n: int, features: int) -> str:
        x = torch.randn(n, features, device="cuda")
        return rows.rate(n * (n - 1) / 2 * features, "G terms/s", seconds(lambda: pa.pairwise_l1(x), 3), rows.terms)

    def haar(shape: tuple[int, ...]) -> str:  # an axis is a pass that reads all and writes all
        x, trees = torch.randn(shape, device="cuda"), [tree(n, i) for i, n in enumerate(shape)]
        taken = seconds(lambda: pa.haar(x, trees))
        passes = rows.rate(8.0 * x.numel() * len(shape), "GB/s", taken, rows.bytes)
        return f"{passes} of a copy, for all passes; {8 * x.numel() / taken / rows.bytes:.0%} of one copy in all"

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

    def fit(shape: tuple[int, int, int], **options: Any) -> str:
        x = attention(shape)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        stages: list[tuple[str, float]] = []
        begin = time.perf_counter()
        found = pa.Questionnaire(**options).fit(
            x, progress=lambda stage, done, total: stages.append((stage, time.perf_counter()))
        )
        torch.cuda.synchronize()
        end = time.perf_counter()
        for (stage, at), (_, until) in zip(stages, [*stages[1:], ("", end)]):
            print(f"    {stage or 'the end'}: {until - at:.2f} s", flush=True)
        peak = torch.cuda.max_memory_allocated() / 1e9
        return f"{end - begin:.2f} s, {found.n_iter_} iterations, {peak:.0f} GB at most | "

    def questionnaire(kind: str, shape: tuple[int, int, int], needed: float, **options: Any) -> None:
        name = f"questionnaire, {kind} trees, {' x '.join(map(str, shape))} bfloat16"
        rows.add(name, needed, lambda: fit(shape, **options))

    rows.add("copy of 1 GiB", 5, copy, again=True)
    for n, features in ((512, 295_000), (1024, 1_000_000), (2048, 262_144), (4096, 65_536)):
        rows.add(f"pairwise l1, {n} x {features}", 5, lambda n=n, f=features: pairwise(n, f))
    for shape in ((1024, 1024, 144), (512, 2048, 256)):
        rows.add(f"tri-Haar, {shape}", 5, lambda s=shape: haar(s))
    questionnaire("flexible", (512, 512, 256), 10, n_iter=3, tree="flexible")
    questionnaire("flexible", (2048, 2048, 1024), 30, n_iter=3, tree="flexible")
    for shape in ((256, 256, 128), (1024, 1024, 144)):
        rows.add(f"tree distances of heads, {shape}", 5, lambda s=shape: emd(s))
    for n, features in ((512, 262_144), (2048, 65_536)):
        rows.add(f"merging by least entropy, {n} x {features}", 5, lambda n=n, f=features: merging(n, f))
        rows.add(f"a sweep around all folders, {n} x {features}", 5, lambda n=n, f=features: exchanges(n, f))
    rows.add("paraproduct of softmax, 256 x 256 x 64", 5, lambda: paraproduct((256, 256, 64)))
    questionnaire("least-entropy", (512, 512, 256), 10)
    questionnaire("least-entropy", (2048, 2048, 1024), 60, n_iter=3)


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
        rates(float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
