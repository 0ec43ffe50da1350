"""How many threads are used; never a matter of results, only of time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_requested: int | None = None


def set_num_threads(threads: int | None) -> None:
    """Use this many threads in every kernel; None goes back to ``PYATTNORG_NUM_THREADS`` or all cores."""
    global _requested
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads: got {threads!r}, expected a positive integer or None")
    _requested = threads


def get_num_threads() -> int:
    """Threads that kernels use: `set_num_threads`, else ``PYATTNORG_NUM_THREADS``, else the cores of this process."""
    if _requested is not None:
        return _requested
    text = os.environ.get("PYATTNORG_NUM_THREADS", "")
    if text:
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"PYATTNORG_NUM_THREADS: got {text!r}, expected a positive integer")
        return int(text)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


@cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded before the controller looks
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS and LAPACK on one thread: their results would otherwise depend on the number of threads."""
    with _blas().limit(limits=1, user_api="blas"):
        yield
