"""All that needs a GPU, in one call of less than 8 minutes: build, tests, compute-sanitizer, benchmarks.

    python bench/gpu.py [--minutes 8] [--out bench/results-gpu.md]

Needs a CUDA GPU, nvcc, g++, and Python with torch, pytest, hypothesis, cmake, ninja and pybind11. Every part has a time
limit; what does not fit is told as left out. Figures go into the part of results-gpu.md that ran on a GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- ran on a GPU: begin -->", "<!-- ran on a GPU: end -->"


class Clock:
    """What is left of the time."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.end - time.monotonic())


def run(command: list[str], clock: Clock, at_most: float, **environment: str) -> tuple[str, str]:
    """How a command ended, in a word, and the end of what it printed."""
    limit = min(at_most, clock.left())
    if limit < 5:
        return "left out: no time", ""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, timeout=limit,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"stopped after {limit:.0f} s", ""
    print(done.stdout[-3000:], flush=True)
    return "passed" if done.returncode == 0 else f"FAILED ({done.returncode})", done.stdout[-3000:]


def build(clock: Clock) -> tuple[str, str]:
    """_cuda for this card, beside the sources."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    word, told = run(
        [
            *("cmake", "--preset", "cuda", f"-DPython_EXECUTABLE={sys.executable}"),
            f"-DCMAKE_CUDA_ARCHITECTURES={major}{minor}",
        ],
        clock, 60,
    )  # fmt: skip
    if word == "passed":
        word, told = run(["cmake", "--build", "build/cuda", "--parallel"], clock, 180)
    if word == "passed":
        for made in (ROOT / "build" / "cuda").glob("_c*.so"):
            shutil.copy(made, ROOT / "pyattnorg" / made.name)
    return word, told


def seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    """Median time of a call on the device."""
    import torch

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


def bench(out: list[str], clock: Clock) -> None:
    """Rates beside what the card can do: lines of a table."""
    import numpy as np
    import torch

    import pyattnorg as pa

    properties = torch.cuda.get_device_properties(0)
    megahertz = subprocess.run(
        ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"], capture_output=True, text=True
    ).stdout.split()
    clock_rate = float(megahertz[0]) * 1e6 if megahertz else float("nan")
    lanes = 128 if torch.cuda.get_device_capability() != (8, 0) else 64
    bound = properties.multi_processor_count * lanes * clock_rate / 2  # |a - b| a second: two instructions each
    array = torch.empty(2**28, device="cuda")
    copy = 2 * 4 * array.numel() / seconds(array.clone)
    out.append(f"| copy of 1 GiB | {copy / 1e9:,.0f} GB/s | measured, what memory allows |")

    def row(name: str, work: float, unit: str, time_taken: float, limit: float) -> None:
        rate = work / time_taken
        out.append(f"| {name} | {rate / 1e9:,.0f} {unit} in {time_taken * 1e3:.1f} ms | {rate / limit:.0%} |")

    for n, features in ((512, 295_000), (1024, 1_000_000), (4096, 65_536)):
        x = torch.randn(n, features, device="cuda")
        row(
            f"pairwise l1, {n} x {features}",
            n * (n - 1) / 2 * features,
            "G terms/s",
            seconds(lambda x=x: pa.pairwise_l1(x), 3),
            bound,
        )
    del x, array
    for shape in ((256, 256, 128), (1024, 1024, 144)):
        x = torch.randn(shape, device="cuda")
        trees = [pa.PartitionTree.from_labels(_labels(size, seed)) for seed, size in enumerate(shape)]
        # The floor: the tensor is read once and written once.
        row(
            f"tri-Haar, {shape}, against one copy",
            8 * x.numel(),
            "GB/s",
            seconds(lambda x=x, t=trees: pa.haar(x, t)),
            copy,
        )
        row(
            f"tri-Haar, {shape}, an axis against a copy",
            24 * x.numel(),
            "GB/s",
            seconds(lambda x=x, t=trees: pa.haar(x, t)),
            copy,
        )
        terms = float(np.prod([tree.n_folders for tree in trees[:2]])) * shape[2] * (shape[2] - 1) / 2
        emd = seconds(lambda x=x, t=trees: pa.tree_emd(x.movedim(2, 0), t[:2]), 3)
        row(f"tree distances of heads, {shape}", terms, "G terms/s", emd, bound)
    for shape in ((512, 512, 256), (2048, 2048, 1024)):
        if clock.left() < 60:
            out.append(f"| questionnaire, {shape} bfloat16 | left out: no time | |")
            continue
        x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        begin = time.perf_counter()
        fitted = pa.Questionnaire(3, tree="flexible").fit(x)
        torch.cuda.synchronize()
        taken = time.perf_counter() - begin
        out.append(f"| questionnaire, {shape} bfloat16, {fitted.n_iter_} iterations | {taken:.2f} s | |")


def _labels(n: int, seed: int) -> Any:
    import numpy as np

    rng, levels = np.random.default_rng(seed), [np.arange(n)]
    while levels[0].max() > 0:
        parts = levels[0].max() + 1
        parent = rng.integers(max(1, parts // 2), size=parts)
        levels.insert(0, np.unique(parent[levels[0]], return_inverse=True)[1])
    return np.stack(levels)


def written(path: Path, lines: list[str]) -> None:
    """The file with its part that ran on a GPU replaced."""
    text = path.read_text()
    before, rest = text.split(BEGIN)
    path.write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + rest.split(END)[1])


def main() -> int:
    """Do it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results-gpu.md")
    parser.add_argument(
        "--bench", action="store_true", help=argparse.SUPPRESS
    )  # the benchmarks alone, to standard output
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("no GPU here: nothing was run")
        return 2
    clock = Clock(options.minutes)
    if options.bench:
        rows: list[str] = []
        try:
            bench(rows, clock)
        finally:
            print("\n".join(rows))
        return 0
    python, results = sys.executable, []
    results.append(("build by nvcc", build(clock)[0]))
    tests = ["tests/test_cuda.py", "tests/test_kernels.py", "tests/test_distances.py", "tests/test_haar.py"]
    word, told = run([python, "-m", "pytest", "-q", "-x", "-k", "cuda", *tests], clock, 120, PYATTNORG_REQUIRE="cuda")
    results.append(("tests on the card, against the CPU within 1e-5", f"{word}, {told.strip().splitlines()[-1:]}"))
    sanitizer = shutil.which("compute-sanitizer")
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        if sanitizer is None:
            results.append((f"compute-sanitizer {tool}", "left out: not installed"))
            continue
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", python, "-m", "pytest", "-q", "-x"]
        word, _ = run([*command, "tests/test_cuda.py", "-k", "equals_the_cpu and float32"], clock, 60)
        results.append((f"compute-sanitizer {tool}", word))
    remaining = f"{clock.left() / 60:.2f}"
    word, told = run([python, __file__, "--bench", "--minutes", remaining], clock, clock.left())
    driver = torch.cuda.get_device_name(0), torch.version.cuda
    lines = [
        f"{driver[0]}, CUDA {driver[1]}, torch {torch.__version__}, {time.strftime('%Y-%m-%d', time.gmtime())}.",
        "",
    ]
    lines += ["| part | how it ended |", "| --- | --- |", *(f"| {name} | {word} |" for name, word in results), ""]
    lines += ["| what | rate or time | of the bound |", "| --- | --- | --- |"]
    lines += [line for line in told.splitlines() if line.startswith("|")] or [f"| benchmarks | {word} | |"]
    written(options.out, lines)
    print("\n".join(lines))
    return int(any("FAILED" in word for _, word in results))


if __name__ == "__main__":
    sys.exit(main())
