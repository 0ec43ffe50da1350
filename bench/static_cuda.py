"""What nvcc says of the CUDA kernels without running them: registers, spills, shared memory, occupancy.

    python bench/static_cuda.py [--arch sm_90]     prints a table; exits with 1 where a kernel spills or has a stack

Needs nvcc, no GPU.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

CSRC = Path(__file__).resolve().parent.parent / "csrc" / "cuda"
THREADS = {  # of a block, as the launchers say
    "pair_tiles": 256, "clear_sums": 256, "add_splits": 256, "write_tiles": 256, "gather_kernel": 256,
    "walk_kernel": 128,
    "centre_kernel": 256, "mass_kernel": 256, "add_parts": 256, "clear_count": 1, "mark_kernel": 128,
    "close_kernel": 128,
    "averages_kernel": 128, "haar_kernel": 512, "norms_kernel": 256, "add_stretches": 256, "diagonal_kernel": 256,
    "cosine_kernel": 256, "gaussian_kernel": 256, "exponential_kernel": 256,
    "begin_kernel": 256, "count_kernel": 256, "choose_kernel": 2,
    "start_kernel": 256, "choose_pairs": 256, "mean_rows": 256, "measure_rows": 256, "keep_distances": 256,
    "look_around": 256, "mean_panel": 512, "around_kernel": 256, "weigh_kernel": 256, "add_counts": 256,
    "place_kernel": 256, "close_gaps_kernel": 256,
}  # fmt: skip
TERMS = ("l1", "squares", "masked", "products")
DYNAMIC = {  # shared memory asked for at a launch, at sizes that count
    "walk_kernel": (12 * 128 * 4, "12 open sums of float"),
    "averages_kernel": (12 * 128 * 8, "12 open sums of double"),
    "haar_kernel": (1024 * 17 * 4, "1,024 rows of 16 floats"),
}
REGISTERS, SHARED, WARPS, BLOCKS = 65536, 227 * 1024, 64, 32  # of a multiprocessor of compute capability 9.0


class Figures(NamedTuple):
    """One kernel."""

    name: str
    registers: int
    stack: int
    spills: int
    shared: int

    @property
    def kernel(self) -> str:
        """Its name without parameters."""
        return re.split(r"[<(]", self.name)[0].split("::")[-1]

    @property
    def dynamic(self) -> int:
        """Shared memory asked for at a launch."""
        return DYNAMIC.get(self.kernel, (0, ""))[0]

    @property
    def occupancy(self) -> float:
        """Warps that a multiprocessor holds at once, of the most that it could."""
        warps = -(-THREADS[self.kernel] // 32)
        by_registers = REGISTERS // (warps * -(-self.registers * 32 // 256) * 256)
        by_shared = SHARED // (self.shared + self.dynamic + 1024)
        return min(by_registers, by_shared, BLOCKS, WARPS // warps) * warps / WARPS


def figures(nvcc: str, arch: str) -> list[Figures]:
    """Of every kernel, as the assembler tells them."""
    told = ""
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted(CSRC.glob("*.cu")):
            command = [nvcc, "-cubin", f"-arch={arch}", "-std=c++20", "-O3", "-Xptxas", "-v", "-o", f"{folder}/out"]
            run = subprocess.run([*command, str(source)], capture_output=True, text=True)
            if run.returncode:
                raise RuntimeError(run.stderr)
            told += run.stderr
    filt = shutil.which("cu++filt") or shutil.which("c++filt")
    if filt:
        told = subprocess.run([filt], input=told, capture_output=True, text=True, check=True).stdout
    pattern = (
        r"Compiling entry function '(.+?)' for .*?\n.*?\n?\s*(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads\n.*?Used (\d+) registers(.*)"
    )
    found = []
    for name, stack, stores, loads, registers, rest in re.findall(pattern, told):
        shared = re.search(r"(\d+) bytes smem", rest)
        short = name.replace("pyattnorg::cuda::", "").replace("(anonymous namespace)::", "").replace("pyattnorg::", "")
        short = re.sub(r"\(Term\)(\d)", lambda m: TERMS[int(m[1])], short.removeprefix("void "))
        short = short.replace(", (bool)0", "").replace("(bool)1", "weighted")
        short = re.sub(r"\(.*", "", short)
        found.append(
            Figures(short, int(registers), int(stack), int(stores) + int(loads), int(shared[1]) if shared else 0)
        )
    return sorted(found)


def table(found: list[Figures]) -> str:
    """As Markdown."""
    lines = ["| kernel | registers | stack, spills | shared memory | threads | occupancy |", "| --- " * 6 + "|"]
    for f in found:
        shared = f"{f.shared + f.dynamic:,}" + (f" ({DYNAMIC[f.kernel][1]})" if f.dynamic else "")
        cells = (f"`{f.name}`", f.registers, f"{f.stack}, {f.spills}", shared, THREADS[f.kernel], f"{f.occupancy:.0%}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("no nvcc here")
        return 0
    found = figures(nvcc, options.arch)
    print(table(found))
    return int(not found or any(f.stack or f.spills for f in found))


if __name__ == "__main__":
    sys.exit(main())
