"""What benchmarks found, and the report of it: one table a kernel, beside the machine's limits."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version

from entropy_fits import HEADS, TEXT, EntropyFit, rows
from limits import NAMES, Limit, Limits, compiler, cpu_model

import pyattnorg as pa
from pyattnorg import kernels

OURS = "pyattnorg"
PACKAGES = (
    "pyattnorg",
    "numpy",
    "scipy",
    "torch",
    "numba",
    "scikit-learn",
    "faiss-cpu",
    "pywavelets",
    "pytest-benchmark",
)


@dataclass(frozen=True)
class Work:
    """What a kernel does at least, and the limit that it runs against (a name of limits.NAMES, or none)."""

    amount: float
    unit: str  # such as "terms"; rates are printed in 1e9 of it a second
    limit: str | None = None


@dataclass(frozen=True)
class Record:
    """One benchmark whose answer was right."""

    kernel: str
    size: str
    who: str
    median: float
    least: float
    rounds: int
    work: Work | None = None
    note: str = ""


@dataclass(frozen=True)
class Fit:
    """A questionnaire, whole."""

    size: str
    schedule: str
    iterations: int
    folders: Sequence[int]
    terms: float
    dtype: str
    seconds: float
    tensor_bytes: int
    rise: int | None = None  # of resident memory, bytes
    transcription: float | None = None  # seconds
    agreement: str = ""


@dataclass(frozen=True)
class Kernel:
    """Heading and explanation of a table."""

    name: str
    title: str
    text: str


KERNELS = (
    Kernel(
        "pairwise_l1",
        "Pairwise l1 distances",
        "A term is one |a - b| of the half matrix. The limit is that of maximum and multiply-add. Among the rows are "
        "near-duplicates (1e-4 apart) and equal ones.",
    ),
    Kernel(
        "tree_emd",
        "Tree earth mover's distance",
        "A term is one |a - b| of the half matrix and one product of distinct folders. Making the averages is part of "
        "the time.",
    ),
    Kernel(
        "affinity",
        "Cosine and Gaussian affinities",
        "Counted as 2 operations a feature and pair of the half matrix, which a GEMM of the whole matrix does twice. "
        "Among the rows are near-duplicates.",
    ),
    Kernel(
        "flexible_tree",
        "Flexible tree",
        "eigsh is SciPy's, for 12 vectors at tol 1e-6 of the normalised matrix, which it is given ready-made. "
        "Affinities of attention weights have eigenvalues that fall fast, those of a cloud of points in space do not.",
    ),
    Kernel(
        "diffusion_map",
        "Ten diffusion coordinates",
        "Peers include the same normalisation of the affinity, in NumPy.",
    ),
    Kernel(
        "haar",
        "Tree-Haar transforms",
        "Bytes are one read and one write of the array for every axis; the limit is the memory triad.",
    ),
)


@dataclass
class Session:
    """All that is reported at the end."""

    threads: int
    small: bool
    limits: Limits
    load: tuple[float, ...]
    records: list[Record] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    entropy_fits: list[EntropyFit] = field(default_factory=list)
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    def limit(self, name: str) -> float:
        return self.limits[self.threads][name].rate


# -- the report ----------------------------------------------------------------------------------------------------


def report(session: Session, instructions: str = "") -> str:
    """The whole of results.md."""
    parts = ["# Benchmarks\n", machine(session), limits_table(session.limits)]
    if session.small:
        parts.insert(1, "**A rehearsal with small sizes: these figures mean nothing.**\n")
    for kernel in KERNELS:
        records = [r for r in session.records if r.kernel == kernel.name]
        if records:
            parts.append(f"## {kernel.title}\n\n{kernel.text}\n\n{kernel_table(records, session)}")
    if session.fits:
        parts.append(fits_table(session))
    if session.entropy_fits:
        found = rows(session.entropy_fits, session.limit("max_fma_float32"), session.limit("copy"), _seconds)
        parts.append(f"## Least-entropy trees, whole\n\n{TEXT}\n\n{_table(HEADS, found)}")
    if instructions:
        parts.append(f"## Instructions\n\nCounted by callgrind, one thread, AVX2: free of noise.\n\n{instructions}")
    return "\n".join(parts)


def machine(session: Session) -> str:
    now = datetime.now(timezone.utc)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load_before, load_after = (f"{load[0]:.1f}" for load in (session.load, os.getloadavg()))
    rows = {
        "processor": f"{cpu_model()}, {cores} cores",
        "threads": f"{session.threads}, of every peer too",
        "instruction set": f"{kernels.instruction_set()} (of {', '.join(kernels.instruction_sets())})",
        "system": f"{platform.system()} {platform.machine()}, {_compiler_version()}",
        "Python": platform.python_version(),
        "versions": ", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name))),
        "BLAS": _blas(),
        "run": f"{session.started:%Y-%m-%d %H:%M} UTC, {(now - session.started).total_seconds() / 60:.0f} minutes, "
        f"load {load_before} before and {load_after} after",
    }
    return _table(("", ""), list(rows.items()))


def limits_table(limits: Limits) -> str:
    counts = sorted(limits)
    rows = []
    for name, text, unit in NAMES:
        if name in limits[counts[0]]:
            found: list[Limit] = [limits[n][name] for n in counts]
            rows.append((text, unit, *(f"{one.rate / 1e9:.1f}" for one in found), found[-1].how))
    heads = [f"{n} thread{'s' if n > 1 else ''}" for n in counts]
    text = (
        "The higher of two measurements, before and after the benchmarks. A term is one |a - b| of a sum: in full, or "
        "as 2 max(a, b) - a - b whose last two are summed apart. Memory is counted as the program names it: 8 bytes a "
        "number read, 8 bytes a number written."
    )
    return f"## Limits of the machine\n\n{text}\n\n{_table(('', 'unit', *heads, 'reached with'), rows)}"


def kernel_table(records: Sequence[Record], session: Session) -> str:
    rows = []
    for size in dict.fromkeys(r.size for r in records):
        of = [r for r in records if r.size == size]
        ours = next((r.median for r in of if r.who == OURS), None)
        for r in sorted(of, key=lambda r: (r.who != OURS, r.median)):
            ratio = f"{r.median / ours:.2f}" if ours and r.who != OURS else ""
            rate = fraction = ""
            if r.work:
                per_second = r.work.amount / r.median
                rate = f"{per_second / 1e9:.2f} G {r.work.unit}/s"
                if r.work.limit:
                    fraction = f"{100 * per_second / session.limit(r.work.limit):.0f} %"
            who = f"**{r.who}**" if r.who == OURS else r.who
            rows.append((size, who, _seconds(r.median), _seconds(r.least), rate, fraction, ratio, r.note))
            size = ""
    heads = ("size", "", "median", "least", "rate", "of the limit", "times ours", "note")
    return _table(heads, rows)


def fits_table(session: Session) -> str:
    rows = []
    for f in session.fits:
        ideal = f.terms / session.limit(f"max_fma_{f.dtype}")
        rows.append(
            (
                f"{f.size} {f.dtype}",
                f.schedule,
                f"{f.iterations}",
                " / ".join(map(str, f.folders)),
                f"{f.terms / 1e9:.3g}",
                _seconds(ideal),
                _seconds(f.seconds),
                f"**{f.seconds / ideal:.2f}**",
                _seconds(f.transcription) if f.transcription else "",
                f"{f.transcription / f.seconds:.1f}" if f.transcription else "",
                f"{f.rise / 1e6:.0f}" if f.rise is not None else "",
                f"{f.tensor_bytes / 1e6:.0f}",
                f.agreement,
            )
        )
    heads = (
        "tensor",
        "schedule",
        "iterations",
        "folders",
        "C, G terms",
        "C/F",
        "fit",
        "fit / (C/F)",
        "transcription",
        "times ours",
        "memory, MB",
        "tensor, MB",
        "check",
    )
    text = (
        "C counts the |a - b| of all tree distances that had to be computed: half matrix, products of distinct "
        "folders; a step whose trees had not changed counts nothing. F is the limit of maximum and multiply-add of the "
        "threads used. The transcription is tests/transcription.py: NumPy and SciPy in float64, BLAS on one thread, "
        "its best. Memory is the rise of resident memory during the fit, input excluded."
    )
    return f"## The questionnaire, whole\n\n{text}\n\n{_table(heads, rows)}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _seconds(t: float) -> str:
    for scale, unit in ((1, "s"), (1e-3, "ms")):
        if t >= scale:
            return f"{t / scale:.3g} {unit}"
    return f"{t * 1e6:.3g} µs"


def _version(package: str) -> str | None:
    if package == OURS:
        return pa.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _compiler_version() -> str:
    try:
        out = subprocess.run([compiler(), "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
        return f"{os.path.basename(compiler())} {out.strip()}"
    except (OSError, RuntimeError, subprocess.CalledProcessError):
        return "no compiler"


def _blas() -> str:
    import scipy.linalg  # noqa: F401  # loads its own
    from threadpoolctl import threadpool_info

    found: list[Mapping[str, str]] = [one for one in threadpool_info() if one["user_api"] == "blas"]
    names = [f"{one['internal_api']} {one['version']} ({one.get('architecture', '?')})" for one in found]
    return ", ".join(dict.fromkeys(names))
