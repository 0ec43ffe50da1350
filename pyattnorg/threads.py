"""How many threads are used; never a matter of results, only of time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

MOST_THREADS = 1024

_requested: int | None = None


def set_num_threads(threads: int | None) -> None:
    """Use this many threads in every kernel; None goes back to ``PYATTNORG_NUM_THREADS`` or all cores."""
    global _requested
    if threads is not None:
        if isinstance(threads, bool) or not hasattr(threads, "__index__") or not 1 <= int(threads) <= MOST_THREADS:
            raise ValueError(f"threads: got {threads!r}, expected an integer from 1 to {MOST_THREADS}, or None")
        threads = int(threads)
    _requested = threads


def get_num_threads() -> int:
    """Threads that kernels use: `set_num_threads`, else ``PYATTNORG_NUM_THREADS``, else the cores of this process."""
    if _requested is not None:
        return _requested
    text = os.environ.get("PYATTNORG_NUM_THREADS", "")
    if text:
        if not text.isdigit() or not 1 <= int(text) <= MOST_THREADS:
            raise ValueError(f"PYATTNORG_NUM_THREADS: got {text!r}, expected an integer from 1 to {MOST_THREADS}")
        return int(text)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


@cache
def _blas_libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded before the controller looks
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_blas_threads(library: Any, threads: int) -> None:
    # From 3.7 on threadpoolctl lets only one Python thread change OpenBLAS and ignores the others. Ours are counted
    # under a lock, so any of them may: where that method exists, it is the one that does not look who asks.
    getattr(library, "_real_set_num_threads", library.set_num_threads)(threads)


_lock = Lock()
_inside = 0
_before: list[int] = []


def _after_fork() -> None:
    """A child has only the thread that forked: whoever held the lock or counted is not there."""
    global _lock, _inside
    _lock, _inside = Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS and LAPACK on one thread: their results would otherwise depend on the number of threads.

    The limit is one for the whole process: it is set by whoever comes first and given back by whoever leaves last.
    """
    global _inside, _before
    libraries = _blas_libraries()
    with _lock:
        if _inside == 0:
            _before = [library.get_num_threads() for library in libraries]
            for library in libraries:
                _set_blas_threads(library, 1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                for library, threads in zip(libraries, _before):
                    _set_blas_threads(library, threads)
