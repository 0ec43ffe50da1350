"""The machine's own limits, measured by limits.cpp: ``python bench/limits.py`` prints them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

HERE = Path(__file__).resolve().parent
FLAGS = ("-O3", "-march=native", "-std=c++20", "-pthread", "-ffinite-math-only", "-fno-signed-zeros", "-fno-math-errno")
MEBI = 1 << 20


@dataclass(frozen=True)
class Limit:
    """The most of something in a second, and the shape of the loop that reached it."""

    rate: float
    how: str


Limits: TypeAlias = Mapping[int, Mapping[str, Limit]]  # by number of threads, then by name

# What limits.cpp measures, in the order of the report: name, text, unit.
NAMES = (
    ("max_fma_float32", "maximum and multiply-add, float32", "G terms/s"),
    ("max_fma_float64", "maximum and multiply-add, float64", "G terms/s"),
    ("max_add_float32", "maximum and add, float32", "G terms/s"),
    ("max_add_float64", "maximum and add, float64", "G terms/s"),
    ("sub_add_float32", "subtract, magnitude, add, float32", "G terms/s"),
    ("sub_add_float64", "subtract, magnitude, add, float64", "G terms/s"),
    ("fma_flops_float32", "multiply-add, float32", "GFLOP/s"),
    ("fma_flops_float64", "multiply-add, float64", "GFLOP/s"),
    ("read", "memory, read", "GB/s"),
    ("copy", "memory, copy", "GB/s"),
    ("triad", "memory, triad", "GB/s"),
    ("streaming_triad", "memory, triad with streaming stores", "GB/s"),
)


def compiler() -> str:
    """The C++ compiler: ``CXX`` or g++.

    Raises
    ------
    RuntimeError
        There is none.
    """
    found = shutil.which(os.environ.get("CXX", "") or "g++")
    if found is None:
        raise RuntimeError("the machine's limits are measured by a C++ program; install g++ or set CXX")
    return found


def build() -> Path:
    """The compiled limits.cpp, in a folder that git ignores; made when the source, the flags or the machine change."""
    source = HERE / "limits.cpp"
    key = hashlib.sha256(source.read_bytes() + " ".join(FLAGS).encode() + cpu_model().encode()).hexdigest()[:16]
    program = HERE / ".build" / f"limits-{key}"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        making = program.with_name(f"{program.name}.{os.getpid()}")
        subprocess.run([compiler(), *FLAGS, str(source), "-o", str(making)], check=True)
        making.replace(program)
    return program


def measure(threads: Iterable[int], seconds: float = 0.25) -> Limits:
    """Limits of each number of threads; about `seconds` for each of a dozen figures."""
    command = [str(build()), *map(str, threads), "--seconds", str(seconds), "--megabytes", str(array_megabytes())]
    raw = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {int(count): {name: Limit(**one) for name, one in of.items()} for count, of in raw.items()}


def higher(a: Limits, b: Limits) -> Limits:
    """The higher of two measurements, figure by figure: a limit is what was ever reached."""
    return {n: {name: max(one, b[n][name], key=lambda limit: limit.rate) for name, one in a[n].items()} for n in a}


def array_megabytes() -> int:
    """Size of an array that is well beyond the cache."""
    try:
        cache = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (ValueError, OSError):
        cache = 0
    return min(max(128, 4 * cache // MEBI), 1024)


def cpu_model() -> str:
    """Name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown"


def main() -> None:
    counts = sorted({1, len(os.sched_getaffinity(0))} if len(sys.argv) < 2 else {int(n) for n in sys.argv[1:]})
    found = measure(counts)
    print(f"{'':42s}" + "".join(f"{n:>5d} thread{'s' if n > 1 else ' '}" for n in counts))
    for name, text, unit in NAMES:
        if name in found[counts[0]]:
            rates = "".join(f"{found[n][name].rate / 1e9:13.1f}" for n in counts)
            print(f"{text:42s}{rates}  {unit:10s} {found[counts[-1]][name].how}")


if __name__ == "__main__":
    main()
