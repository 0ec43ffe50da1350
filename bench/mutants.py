"""Known bugs, put into copies of the CUDA sources one at a time: the emulated check or a sanitizer must notice each.

    python bench/mutants.py [--only NAME] [--jobs N]

Needs g++ alone. Every mutant is one replaced piece of text that must occur exactly once; it is compiled plainly, with
AddressSanitizer and UndefinedBehaviorSanitizer, and with ThreadSanitizer, in this order, until one of them notices.
Sources without a bug must pass all three. Prints a table and exits with 1 if a mutant gets through.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILDS = {
    "plain": [],
    "asan+ubsan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "tsan": ["-fsanitize=thread"],
}
FLAGS = ["-std=c++20", "-O1", "-g", "-w", "-DPYATTNORG_PANEL_NUMBERS=16384", "-DPYATTNORG_BLOCKS_WANTED=3"]
FLAGS += ["-DPYATTNORG_MULTIPROCESSORS=3"]
UNINSTRUMENTED = {"fiber.cpp", "scheduler.cpp"}
CPU = (
    "entropy_tree", "features", "flexible_tree", "folder_averages", "folder_loops", "haar", "improve_tree",
    "interchange", "isa", "krylov", "norms", "pairwise", "parallel", "shrink_features",
)  # fmt: skip
SECONDS = 600.0


class Mutant(NamedTuple):
    """A bug: the file under csrc/, what stands there, and what is put in its place."""

    file: str
    old: str
    new: str


MUTANTS = {
    "no barrier between a tile's chunks": Mutant(
        "cuda/pairs.cu",
        "if (more) store(shared.stage[(chunk + 1) % 2]);\n        __syncthreads();",
        "if (more) store(shared.stage[(chunk + 1) % 2]);",
    ),
    "no barrier before the first chunk": Mutant(
        "cuda/pairs.cu", "store(shared.stage[0]);\n    __syncthreads();", "store(shared.stage[0]);"
    ),
    "one feature too many": Mutant("cuda/pairs.cu", "begin + per_split : features;", "begin + per_split : features + 1;"),
    "wrong stride of a panel": Mutant(
        "cuda/pairs.cu", "(rows + feature * pitch + at)", "(rows + feature * (pitch - 4) + at)"
    ),
    "a sum that is never cleared": Mutant("cuda/pairs.cu", "if (i < n) sums[i] = 0;", "if (i > 0 && i < n) sums[i] = 0;"),
    "two threads write one cell": Mutant("cuda/pairs.cu", "if (triangle && place.row != place.column)", "if (triangle)"),
    "splits that overlap": Mutant("cuda/pairs.cu", "begin = split * per_split, end", "begin = split * per_split / 2, end"),
    "no barrier in the transpose": Mutant("cuda/gather.cu", "    __syncthreads();\n", ""),
    "a panel without its offset": Mutant("cuda/gather.cu", "(b0 + b) * x.stride[2]", "b * x.stride[2]"),
    "reads beyond the last feature": Mutant("cuda/gather.cu", "point < at.n) && b < n_b;", "point < at.n);"),
    "open sums are not kept": Mutant("cuda/walk.cu", "begun ? slots[k * columns + c] : T(0)", "T(0)"),
    "a slot of another thread": Mutant("cuda/walk.cu", "dynamic_shared<T>() + threadIdx.x;", "dynamic_shared<T>() + threadIdx.x / 2;"),
    "no barrier before running sums": Mutant(
        "cuda/close.cu", "if (step.scale == 0) continue;\n            __syncthreads();", "if (step.scale == 0) continue;"
    ),
    "a count that is not atomic": Mutant("cuda/close.cu", "atomicAdd(count, 1u)", "(*count)++"),
    "twins are never summed again": Mutant("cuda/close.cu", "if (i >= j ||", "if (i >= 0 ||"),
    "no barrier between rounds": Mutant(
        "cuda/haar.cu", "*at_right = right;\n        }\n        __syncthreads();", "*at_right = right;\n        }"
    ),
    "shared memory too small": Mutant("cuda/haar.cu", "(tree.n * shape.pitch) * sizeof(T)", "(tree.n * shape.pitch - 2) * sizeof(T)"),
    "a return above a barrier": Mutant(
        "cuda/haar.cu", "const int n = static_cast<int>(tree.n);", "const int n = static_cast<int>(tree.n);\n    if (threadIdx.x >= 256 + n * width) return;"
    ),
    "no barrier between two reductions": Mutant("cuda/reduce.hpp", "    __syncthreads();  // before the next call writes\n", ""),
    "half a warp's mask": Mutant("cuda/reduce.hpp", "0xffffffffu", "0x0000ffffu"),
    "numbers counted twice": Mutant("cuda/norms.cu", "end; i += threads) {\n        const auto", "end; i += threads - 1) {\n        const auto"),
    "a histogram that is not atomic": Mutant(
        "cuda/ranked.cu", "atomicAdd(counts + which * bins + (bits >> shift & 255u), 1u)", "counts[which * bins + (bits >> shift & 255u)]++"
    ),
    "no barrier between counting pairs and adding up": Mutant(
        "cuda/merging.cu", "before.others[threadIdx.x] = others;\n    __syncthreads();", "before.others[threadIdx.x] = others;"
    ),
    "no barrier before living folders are written": Mutant(
        "cuda/merging.cu", "    __syncthreads();\n    for (std::int64_t k = threadIdx.x; k < living;", "    for (std::int64_t k = threadIdx.x; k < living;"
    ),
    "merges of a pass written over those before": Mutant("cuda/merging.cu", "merges[2 * (counts.merged + p)] = i;", "merges[2 * p] = i;"),
    "a folder that does not grow": Mutant("cuda/merging.cu", "plan.size[i] = s + M;", "plan.size[i] = s;"),
    "shares exchanged": Mutant("cuda/merging.cu", "of_a * a[f] + of_b * b[f]", "of_b * a[f] + of_a * b[f]"),
    "no barrier between chunks of rows": Mutant(
        "cuda/merging.cu", "if (more) store(shared.stage[(chunk + 1) % 2]);\n            __syncthreads();", "if (more) store(shared.stage[(chunk + 1) % 2]);"
    ),
    "reads beyond the end of a split": Mutant("cuda/merging.cu", "next_rows[l] = from + k_in < end ?", "next_rows[l] = from + k_in <= end ?"),
    "tiles that were not measured are kept": Mutant("cuda/merging.cu", "if (o <= p) continue;", "if (o == p) continue;"),
    "only the first split is kept": Mutant("cuda/merging.cu", "s < cut.splits; ++s) sum +=", "s < 1; ++s) sum +="),
    "equals go to a higher index": Mutant(
        "cuda/merging.cu", "if (j < 0 || !math::cheaper(cost, j, best, known)) continue;", "if (j < 0 || (known >= 0 && !(cost < best))) continue;"
    ),
    "lanes that do not answer": Mutant("cuda/merging.cu", "__shfl_xor_sync(0xffffffffu, known, step)", "__shfl_xor_sync(0x7fffffffu, known, step)"),
    "no barrier between heights of a tree": Mutant("cuda/around.cu", "        __syncthreads();\n", ""),
    "a panel that forgets those before": Mutant("cuda/around.cu", "f0 ? to[1] + first : first", "first"),
    "columns of the next folder": Mutant("cuda/around.cu", "if (c < width)", "if (c <= width)"),
    "counts that are not added up": Mutant("cuda/shrink_features.cu", "counts[k] = sum;", "counts[k] = own;"),
    "written before all have read": Mutant(
        "cuda/shrink_features.cu", ": T(0);\n        __syncthreads();\n        if (k < kept)", ": T(0);\n        if (k < kept)"
    ),
    "a variance over all points": Mutant("cuda/shrink_features.cu", "points - 1 : 1.0", "points : 1.0"),
    "wrong exponent of bfloat16": Mutant("math/number.hpp", "std::uint32_t{x.bits} << 16", "std::uint32_t{x.bits} << 15"),
    "a root that is rounded up": Mutant("math/pair.hpp", "while (column * (column + 1) / 2 > t) --column;", ";"),
    "triangle off by one": Mutant("math/pair.hpp", "{t - column * (column + 1) / 2,", "{t - column * (column - 1) / 2,"),
}  # fmt: skip


def sources(root: Path) -> list[Path]:
    """All that check_cuda is made of."""
    cuda, emulation, cpu = root / "csrc/cuda", root / "csrc/emulation", root / "csrc/cpu"
    return [
        *sorted(cuda.glob("*.cu")),
        *sorted(emulation.glob("*.cpp")),
        *(cpu / f"{name}.cpp" for name in CPU),
        cpu / "loops_baseline.cpp",
        root / "tests/cpp/check_cuda.cpp",
    ]


def included(source: Path) -> set[Path]:
    """A source and all headers that it includes by name, and that these do."""
    found, todo = set(), [source.resolve()]
    while todo:
        path = todo.pop()
        if path not in found and path.exists():
            found.add(path)
            names = re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
            todo += [(path.parent / name).resolve() for name in names]
    return found


def compiled(source: Path, build: str, to: Path) -> Path:
    """The object of one source."""
    out = to / f"{source.stem}{source.suffix[1:]}.{build.replace('+', '')}.o"
    if not out.exists():
        flags = [] if source.name in UNINSTRUMENTED else BUILDS[build]
        subprocess.run(["g++", *FLAGS, *flags, "-x", "c++", "-c", source, "-o", out], check=True)
    return out


def runs_well(root: Path, build: str, cache: Path, changed: set[str], objects: Path) -> bool:
    """Whether the check of these sources passes; objects of files that did not change are taken from `cache`."""
    todo = [(source, objects if source.name in changed else cache) for source in sources(root)]
    made = [compiled(source if to == objects else ROOT / source.relative_to(root), build, to) for source, to in todo]
    program = objects / f"check_{build.replace('+', '')}"
    subprocess.run(["g++", *BUILDS[build], *made, "-pthread", "-o", program], check=True)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1 exitcode=66", "UBSAN_OPTIONS": "halt_on_error=1"}
    try:
        run = subprocess.run([program, "forward"], env=environment, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


def tried(name: str, cache: Path) -> str:
    """Which build notices a mutant, or nothing."""
    mutant = MUTANTS[name]
    with tempfile.TemporaryDirectory() as folder:
        root, objects = Path(folder).resolve() / "tree", Path(folder) / "objects"
        objects.mkdir()
        for part in ("csrc", "tests/cpp"):
            shutil.copytree(ROOT / part, root / part)
        path = root / "csrc" / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{name}: {mutant.old!r} occurs {text.count(mutant.old)} times in {mutant.file}, not once")
        path.write_text(text.replace(mutant.old, mutant.new))
        changed = {source.name for source in sources(root) if path in included(source)}
        return next((build for build in BUILDS if not runs_well(root, build, cache, changed, objects)), "")


def main() -> int:
    """Try all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names that contain this")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    names = [name for name in MUTANTS if options.only is None or options.only in name]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        cache = Path(folder)
        for build in BUILDS:
            if not runs_well(ROOT, build, cache, set(), cache):
                print(f"without a bug, {build} fails")
                return 1
        print(f"{'(no bug)':36s} passes all of {', '.join(BUILDS)}", flush=True)
        missed = 0
        for name, by in zip(names, pool.map(lambda name: tried(name, cache), names)):
            print(f"{name:36s} {'noticed by ' + by if by else 'MISSED'}", flush=True)
            missed += not by
    print(f"{len(names) - missed} passed, {missed} failed")
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
