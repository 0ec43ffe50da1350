"""What all benchmarks share: options, threads, the machine's limits, and `compare`, which times and checks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import limits
import pytest
import sizes
from pytest_benchmark.fixture import BenchmarkFixture
from results import Record, Session, Work, report

import pyattnorg as pa

T = TypeVar("T")
RESULTS = Path(__file__).resolve().parent / "results.md"
SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pyattnorg")
    group.addoption(
        "--results",
        nargs="?",
        type=Path,
        const=RESULTS,
        default=os.environ.get("PYATTNORG_BENCH_RESULTS") or None,
        help="write the report to this file (default bench/results.md); PYATTNORG_BENCH_RESULTS does the same",
    )
    group.addoption("--small", action="store_true", help="small sizes: a rehearsal of the benchmarks themselves")


def pytest_configure(config: pytest.Config) -> None:
    sizes.small = config.getoption("--small")


@pytest.fixture(scope="session")
def session(pytestconfig: pytest.Config) -> Session:
    """The run: limits measured now, records as they come."""
    threads = pa.get_num_threads()
    seconds = 0.02 if sizes.small else 0.25
    found = Session(threads, sizes.small, limits.measure(sorted({1, threads}), seconds), os.getloadavg())
    pytestconfig.stash[SESSION] = found
    return found


@pytest.fixture(scope="session", autouse=True)
def same_threads() -> Iterator[None]:
    """Gives every peer as many threads as we use."""
    from threadpoolctl import threadpool_limits

    threads = pa.get_num_threads()
    os.environ.setdefault("NUMBA_NUM_THREADS", str(threads))
    with threadpool_limits(threads):
        yield


@pytest.fixture(autouse=True)
def _torch_and_numba_threads() -> None:
    threads = pa.get_num_threads()
    if "torch" in sys.modules and sys.modules["torch"].get_num_threads() != threads:
        sys.modules["torch"].set_num_threads(threads)
    if "numba" in sys.modules:
        sys.modules["numba"].set_num_threads(threads)


class Compare(Protocol):
    """Times `function` and keeps the time once `check` has accepted the answer."""

    def __call__(
        self,
        kernel: str,
        size: str,
        who: str,
        function: Callable[[], T],
        check: Callable[[T], str | None],
        *,
        work: Work | None = None,
        rounds: int = 3,
        warmup: int = 0,
    ) -> T: ...


@pytest.fixture
def compare(benchmark: BenchmarkFixture, session: Session) -> Compare:
    def run(
        kernel: str,
        size: str,
        who: str,
        function: Callable[[], Any],
        check: Callable[[Any], str | None],
        *,
        work: Work | None = None,
        rounds: int = 3,
        warmup: int = 0,
    ) -> Any:
        benchmark.group = f"{kernel}, {size}"
        answer = benchmark.pedantic(function, rounds=rounds, warmup_rounds=warmup)
        note = check(answer) or ""
        if benchmark.stats is not None:  # it is with --benchmark-disable
            stats = benchmark.stats.stats
            session.records.append(Record(kernel, size, who, stats.median, stats.min, stats.rounds, work, note))
        return answer

    return run


def pytest_sessionfinish(session: pytest.Session) -> None:
    found = session.config.stash.get(SESSION, None)
    path: Path | None = session.config.getoption("--results")
    if found is None or path is None or not (found.records or found.fits or found.entropy_fits):
        return
    import instructions

    seconds = 0.02 if found.small else 0.25
    found.limits = limits.higher(found.limits, limits.measure(sorted({1, found.threads}), seconds))
    counts = "Not counted in a rehearsal.\n" if found.small else instructions.table()
    Path(path).write_text(report(found, counts), encoding="utf-8")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"\nresults written to {path}")
