"""Instructions that small fixed workloads take, counted by callgrind: the same on a busy machine as on a quiet one.

``python bench/instructions.py`` prints a table, ``--json FILE`` also writes the counts, ``--against FILE`` ends with
status 1 where a count rose by more than 1 % over that file. Valgrind knows AVX2 but not AVX-512, so AVX2 is used.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RISE = 0.01


class Unavailable(RuntimeError):
    """Why nothing can be counted here."""


def workloads() -> dict[str, tuple[Callable[[], Any], float, str]]:
    """Function, amount of work and its unit, by name. Never change one: give it a new name."""
    import pyattnorg as pa
    from pyattnorg import kernels
    from pyattnorg.diffusion import tree_coordinates

    rng = np.random.default_rng(0)
    x = rng.random((128, 4096), dtype=np.float32)
    cube = rng.random((64, 64, 64), dtype=np.float32)
    tree = pa.PartitionTree.dyadic(64)
    cloud = rng.standard_normal((256, 3))
    rate, phi = tree_coordinates(pa.gaussian_affinity(cloud))
    coefficients = pa.haar(cube, [tree] * 3)
    pairs = 128 * 127 / 2
    emd = 64 * 63 / 2 * tree.n_folders**2
    return {
        "pairwise_l1, 128 x 4096 float32": (lambda: pa.pairwise_l1(x), pairs * 4096, "term"),
        "pairwise_l1, 128 x 4096 float64": (lambda: pa.pairwise_l1(x.astype(np.float64)), pairs * 4096, "term"),
        "tree_emd, 64 x 64 x 64 float32, dyadic": (lambda: pa.tree_emd(cube, [tree, tree]), emd, "term"),
        "haar, 64 x 64 x 64 float32, dyadic": (lambda: pa.haar(cube, [tree] * 3), 3 * cube.size, "number and axis"),
        "ihaar, 64 x 64 x 64 float32, dyadic": (
            lambda: pa.ihaar(coefficients, [tree] * 3),
            3 * cube.size,
            "number and axis",
        ),
        "flexible_tree from coordinates, 256 points": (
            lambda: kernels.flexible_tree(phi, rate, 1.0),
            256.0**2,
            "pair",
        ),
    }


def count() -> dict[str, int]:
    """Instructions by name of workload.

    Raises
    ------
    Unavailable
        No valgrind, no compiler, or a processor that valgrind does not emulate well enough.
    """
    if shutil.which("valgrind") is None:
        raise Unavailable("valgrind is not installed")
    marks = _marks()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "counts"
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet", f"--callgrind-out-file={out}"]
        command += [sys.executable, str(HERE / "instructions.py"), "--inside", str(marks)]
        paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        one = dict.fromkeys(("PYATTNORG_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment = {**os.environ, **one, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise Unavailable(f"valgrind ended with status {done.returncode}: {last}")
        found = {}
        for path in Path(folder).iterdir():
            text = path.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if name and total:
                found[name[1]] = int(total[1])
    if not found:
        raise Unavailable("valgrind counted nothing")
    return found


def _marks() -> Path:
    from limits import compiler

    library = HERE / ".build" / "marks.so"
    source = HERE / "marks.cpp"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(exist_ok=True)
        try:
            command = [compiler(), "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
            subprocess.run(command, check=True, capture_output=True)
        except (RuntimeError, subprocess.CalledProcessError):
            raise Unavailable("the headers of valgrind, or a compiler for them, are missing") from None
    return library


def _inside(marks: str) -> None:
    """What runs under valgrind."""
    from pyattnorg import _core

    if "avx2" in _core.instruction_sets():
        _core.use_instruction_set("avx2")
    library = ctypes.CDLL(marks)
    for name, (work, _, _) in workloads().items():
        work()  # allocations, tables and imports of the first call
        library.counting_starts()
        work()
        library.counting_ends(name.encode())


def rows(counts: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Workload, instructions, instructions per unit of work; as text."""
    return [
        (name, f"{counts[name]:,}", f"{counts[name] / amount:.3f} a {unit}")
        for name, (_, amount, unit) in workloads().items()
        if name in counts
    ]


def table() -> str:
    """The counts in Markdown, or the reason why there are none."""
    try:
        found = rows(count())
    except Unavailable as reason:
        return f"Not counted: {reason}.\n"
    return "\n".join("| " + " | ".join(r) + " |" for r in [("", "instructions", ""), ("---",) * 3, *found]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    parser.add_argument("--against", type=Path, help="compare with the counts in this file")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        _inside(given.inside)
        return 0
    try:
        counts = count()
    except Unavailable as reason:
        print(f"not counted: {reason}")
        return 0
    before = json.loads(given.against.read_text()) if given.against else {}
    worse = 0
    for name, total, per in rows(counts):
        change = counts[name] / before[name] - 1 if name in before else 0.0
        worse += change > RISE
        print(f"{name:45s}{total:>15s}  {per}" + (f"  {100 * change:+.2f} %" if name in before else ""))
    if given.json:
        given.json.write_text(json.dumps(counts, indent=1) + "\n")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
