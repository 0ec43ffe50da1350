"""Rise of resident memory during a fit, in a process of its own: ``memory.py TENSOR.npy SCHEDULE ITERATIONS TREE``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent


def rise(x: NDArray[Any], schedule: str, iterations: int, tree: str = "flexible") -> int | None:
    """Bytes above what was resident just before the fit, tensor loaded and code warmed up; None where unknown."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, x)
        paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, str(HERE / "memory.py"), str(path), schedule, str(iterations), tree],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            check=True,
            capture_output=True,
            text=True,
        )
    return int(done.stdout)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status says nothing of {name}")


def main() -> None:
    import pyattnorg as pa

    x = np.load(sys.argv[1])
    fit = pa.Questionnaire(int(sys.argv[3]), schedule=sys.argv[2], tree=sys.argv[4])
    warm = np.random.default_rng(0).random((250, 20, *[8] * (x.ndim - 2)), dtype=np.float32)
    pa.Questionnaire(1, schedule=sys.argv[2], tree=sys.argv[4]).fit(warm)  # imports, thread pools
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = _status("VmRSS")
    fit.fit(x)
    print(_status("VmHWM") - before)


if __name__ == "__main__":
    main()
