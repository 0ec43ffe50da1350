"""All that needs a GPU, in one call of less than 8 minutes: build, tests, benchmarks, compute-sanitizer.

    python bench/gpu.py [--minutes 7.5] [--out bench/results-gpu.md] [--log FILE]

Needs a CUDA GPU, nvcc, g++, and Python with torch, scipy, pytest, hypothesis, cmake, ninja, pybind11 and what
pyattnorg itself needs; nothing is fetched. Every part has a time limit; what fails or does not fit is told as that, and
what worked is kept: figures go into the part of results-gpu.md that ran on a GPU after every part, not at the end.
`--out` may name a file that is not there yet: the one beside this script is copied first. `--log` keeps what every part
printed. Benchmarks come before the sanitizers, which are slow and do not work on every machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results-gpu.md"
BEGIN, END = "<!-- ran on a GPU: begin -->", "<!-- ran on a GPU: end -->"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SANITIZERS = 90  # seconds that are kept for them
LOST = 4  # how bench/gpu_cases.py ends where the card takes no more work from it
TESTS = ("test_cuda", "test_kernels", "test_distances", "test_haar", "test_affinity", "test_entropy_trees")
# The options of pyproject.toml ask for plugins, and for no warning of any package: neither is this machine's concern.
PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-o",
    "filterwarnings=",
    "-o",
    "addopts=--import-mode=importlib",
    "--tb=short",
)
if importlib.util.find_spec("pytest_timeout"):  # a kernel that hangs is named
    PYTEST += ("--timeout=60", "--timeout-method=thread")
# Every tensor is then an allocation of its own: what lies beyond one is nobody's.
SANITIZED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


KEPT = 1_500_000  # letters of what a command printed, at most
log_file: Path | None = None


class Clock:
    """What is left of the time."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def left(self) -> float:
        """Seconds."""
        return max(0.0, self.end - time.monotonic())


def found(program: str) -> str | None:
    """A program of the CUDA toolkit or beside this Python, on the path or where it is installed."""
    places = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    parts = [f"{place}/{part}" for place in places if place for part in ("bin", "compute-sanitizer")]
    beside = os.pathsep.join([*parts, str(Path(sys.executable).parent)])
    return shutil.which(program) or shutil.which(program, path=beside)


def run_all(commands: Sequence[Sequence[str]], clock: Clock, at_most: float, **added: str) -> list[tuple[str, str]]:
    """How commands that run side by side ended, in a word, and what each printed, also where it was stopped."""
    limit = min(at_most, clock.left())
    if limit < 5:
        return [("left out: no time", "") for _ in commands]
    paths = [str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", **added}
    beside = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]  # ninja, which cmake asks for
    around["PATH"] = os.pathsep.join(beside)
    end = time.monotonic() + limit
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(i) for i in range(len(commands))]
        started = [_started(command, log, around) for command, log in zip(commands, logs)]
        words = [_ended(process, end, limit) for process in started]
        told = [log.read_text(errors="replace") for log in logs]
    for command, word, text in zip(commands, words, told):
        print(text[-3000:], word, sep="\n", flush=True)
        if log_file is not None:
            with log_file.open("a") as log:
                log.write(f"$ {' '.join(map(str, command))}\n{text[-KEPT:].rstrip()}\n{word}\n\n")
    return list(zip(words, told))


def _started(command: Sequence[str], log: Path, around: dict[str, str]) -> subprocess.Popen[bytes] | None:
    with log.open("wb") as out:
        try:
            return subprocess.Popen(
                command, cwd=ROOT, env=around, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            out.write(str(error).encode())
            return None


def _ended(process: subprocess.Popen[bytes] | None, end: float, limit: float) -> str:
    if process is None:
        return "FAILED: cannot be started"
    try:
        code = process.wait(max(0.1, end - time.monotonic()))
        return "passed" if code == 0 else f"FAILED ({code})"
    except subprocess.TimeoutExpired:
        # All that it has started: a sanitizer's program, or compilers, would go on beside the parts that follow.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"stopped after {limit:.0f} s"


def run(command: Sequence[str], clock: Clock, at_most: float, **added: str) -> tuple[str, str]:
    """The same of one."""
    return run_all([command], clock, at_most, **added)[0]


def last_line(told: str) -> str:
    """The last line that says something, short enough for a table."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return lines[-1][:120].replace("|", "/") if lines else ""


def build(clock: Clock) -> tuple[str, str]:
    """_core and _cuda for this card, beside the sources."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    nvcc, cmake = found("nvcc"), found("cmake")
    if nvcc is None or cmake is None:
        return f"FAILED: no {'cmake' if nvcc else 'nvcc'}", ""
    configure = [
        *(cmake, "--preset", "cuda", f"-DPython_EXECUTABLE={sys.executable}", f"-DCMAKE_CUDA_COMPILER={nvcc}"),
        f"-DCMAKE_CUDA_ARCHITECTURES={major}{minor}",
    ]
    word, told = run(configure, clock, 60)
    if word == "passed":
        word, told = run([cmake, "--build", "build/cuda", "--parallel", "--target", "_core", "_cuda"], clock, 200)
    if word == "passed":
        for made in (ROOT / "build" / "cuda").glob("_c*.so"):
            shutil.copy(made, ROOT / "pyattnorg" / made.name)
    return word, last_line(told) if word.startswith("FAILED") else ""


def benchmarks(cases: Sequence[str], clock: Clock) -> tuple[str, list[str]]:
    """How they ended, and rows. An error after which a process can do nothing more on the card ends one row only."""
    rows: list[str] = []
    limit = clock.left() - SANITIZERS
    end = time.monotonic() + limit
    while True:
        left = end - time.monotonic()
        word, told = run([*cases, "rates", f"{max(left - 5, 0):.0f}", str(len(rows))], clock, left)
        more = [line for line in told.splitlines() if line.startswith("|")]
        rows += more
        if word == "passed":
            return word, rows
        if word != f"FAILED ({LOST})" or not more:
            return f"{word}, {last_line(told)}", rows


def sanitized(command: Sequence[str], clock: Clock) -> list[tuple[str, str]]:
    """How the kernels did under every tool of compute-sanitizer."""
    sanitizer = found("compute-sanitizer")
    if sanitizer is None:
        return [(f"compute-sanitizer {tool}", "left out: not installed") for tool in TOOLS]
    commands = [[sanitizer, "--tool", tool, "--error-exitcode", "9", *command] for tool in TOOLS]
    ended = run_all(commands, clock, clock.left(), **SANITIZED)
    return [
        (f"compute-sanitizer {tool}", "left out: it refuses this machine")
        if "Device not supported" in told
        else (f"compute-sanitizer {tool}", f"{word}, {last_line(told)}")
        for tool, (word, told) in zip(TOOLS, ended)
    ]


def written(path: Path, lines: Sequence[str]) -> None:
    """The file with its part that ran on a GPU replaced."""
    text = (path if path.exists() else RESULTS).read_text()
    before, rest = text.split(BEGIN)
    beside = path.with_name(path.name + ".new")
    beside.write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + rest.split(END)[1])
    beside.replace(path)


def main() -> int:
    """Do it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    global log_file
    log_file = options.log
    clock = Clock(options.minutes)
    try:
        import torch
    except ImportError as error:
        print(f"no torch here ({error}): nothing was run")
        return 2
    if not torch.cuda.is_available():
        print("no GPU here: nothing was run")
        return 2
    today = time.strftime("%Y-%m-%d", time.gmtime())
    facts = f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}, torch {torch.__version__}, {today}."
    results: list[tuple[str, str]] = []
    figures: list[str] = []

    def keep() -> None:
        lines = [facts, "", "| part | how it ended |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in results), ""]
        lines += ["| what | rate or time | of the bound |", "| --- | --- | --- |"]
        lines += figures or ["| nothing yet | | |"]
        written(options.out, lines)

    word, why = build(clock)
    results.append(("build by nvcc for this card", f"{word} {why}".strip()))
    keep()
    if word == "passed":
        python, cases = sys.executable, str(ROOT / "bench" / "gpu_cases.py")
        tests = [f"tests/{name}.py" for name in TESTS]
        word, told = run([python, *PYTEST, "-k", "cuda", *tests], clock, 110, PYATTNORG_REQUIRE="cuda")
        results.append(("tests on the card, against the CPU within 1e-5", f"{word}, {last_line(told)}"))
        keep()
        word, rows = benchmarks([python, cases], clock)
        figures += rows
        results.append(("benchmarks", word))
        keep()
        results += sanitized([python, cases, "kernels"], clock)
        keep()
    print(options.out.read_text().split(BEGIN)[1].split(END)[0])
    return int(any("FAILED" in word for _, word in results))


if __name__ == "__main__":
    sys.exit(main())
