"""Threads never change a result, nor get in the way of forks, of one another, or of Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from inputs import random_affinity, random_tree
from tensors import attention_like
from threadpoolctl import threadpool_info, threadpool_limits

import pyattnorg as pa
from pyattnorg import _core, kernels
from pyattnorg.diffusion import leading_vectors
from pyattnorg.threads import one_blas_thread


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    yield
    pa.set_num_threads(None)


_rng = np.random.default_rng(0)
X = _rng.standard_normal((70, 40, 30))
TREES = [random_tree(n, n) for n in X.shape]
LARGE = random_affinity(300, 0)
TENSOR = attention_like(130, 30, 12).astype(np.float32)

# Everything that runs on several threads, ours or those of BLAS.
KERNELS: dict[str, Callable[[], Any]] = {
    "l1": lambda: pa.pairwise_l1(X),
    "l1, split": lambda: pa.pairwise_l1(X[:20], X[20:]),
    "squares": lambda: kernels.pairwise(X.reshape(70, -1), term="squares"),
    "products": lambda: kernels.pairwise(X.reshape(70, -1).astype(np.float32), term="products"),
    "tree_emd": lambda: pa.tree_emd(X.astype(np.float32), TREES[1:], alpha=0.5),
    "folder_averages": lambda: kernels.folder_averages(X, TREES[0]),
    "haar": lambda: pa.haar(X, TREES),
    "ihaar": lambda: pa.ihaar(X.astype(np.float32), TREES),
    "flexible_tree": lambda: pa.flexible_tree(LARGE).labels,
    "binary_tree": lambda: pa.binary_tree(LARGE).labels,
    "cosine_affinity": lambda: pa.cosine_affinity(X),
    "gaussian_affinity": lambda: pa.gaussian_affinity(X),
    "leading_vectors": lambda: leading_vectors(LARGE, 11)[1],
    "all vectors": lambda: leading_vectors(LARGE, 299)[1],
    "l1_entropy": lambda: np.array([pa.l1_entropy(X), pa.effective_number(TENSOR)]),
    "questionnaire": lambda: np.concatenate([e.ravel() for e in pa.Questionnaire(2).fit(TENSOR).affinities_]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_same_bytes_with_any_number_of_threads(name: str) -> None:
    found = []
    for threads in (1, 2, 3, 7):
        pa.set_num_threads(threads)
        found += [np.asarray(KERNELS[name]()).tobytes() for _ in range(2)]
    assert len(set(found)) == 1


@pytest.mark.parametrize("name", KERNELS)
def test_same_bytes_with_any_number_of_blas_threads(name: str) -> None:
    found = set()
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.add(np.asarray(KERNELS[name]()).tobytes())
    assert len(found) == 1


# -- how many ---------------------------------------------------------------------------------------------------------


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYATTNORG_NUM_THREADS", raising=False)
    assert pa.get_num_threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("PYATTNORG_NUM_THREADS", "3")
    assert pa.get_num_threads() == 3
    pa.set_num_threads(5)
    assert pa.get_num_threads() == 5
    pa.set_num_threads(None)
    assert pa.get_num_threads() == 3
    for text in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("PYATTNORG_NUM_THREADS", text)
        with pytest.raises(ValueError, match=rf"^PYATTNORG_NUM_THREADS: got '{text}'"):
            pa.get_num_threads()


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2", 10**6])
def test_numbers_of_threads_that_are_none(threads: Any) -> None:
    with pytest.raises(ValueError, match=r"^threads: got "):
        pa.set_num_threads(threads)


def _blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blas_threads_are_given_back_whatever_the_order_of_calls() -> None:
    with threadpool_limits(2, user_api="blas"):
        assert _blas_threads() == {2}
        first, second = one_blas_thread(), one_blas_thread()  # as two Python threads would
        first.__enter__()
        second.__enter__()
        assert _blas_threads() == {1}
        first.__exit__(None, None, None)
        assert _blas_threads() == {1}  # the second still counts on it
        second.__exit__(None, None, None)
        assert _blas_threads() == {2}
        pa.diffusion_map(LARGE)
        assert _blas_threads() == {2}


# -- several Python threads -------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_calls_from_four_python_threads_at_once() -> None:  # A67
    pa.set_num_threads(2)
    expected = {name: np.asarray(make()).tobytes() for name, make in KERNELS.items()}
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            found = {name: pool.submit(make) for name, make in KERNELS.items()}
            for name, result in found.items():
                assert np.asarray(result.result()).tobytes() == expected[name], name


def test_an_error_in_one_thread_is_its_own() -> None:
    bad = X.copy()
    bad[0, 0, 0] = np.nan
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(pa.pairwise_l1, bad if i % 2 else X) for i in range(8)]
    for i, result in enumerate(results):
        assert isinstance(result.exception(), ValueError) == bool(i % 2)


def test_other_python_threads_run_meanwhile() -> None:
    x, ticks, done = np.random.default_rng(1).random((1500, 6000), np.float32), [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.002)

    pa.set_num_threads(1)
    ticker = threading.Thread(target=tick)
    ticker.start()
    begin, start = time.perf_counter(), ticks[0]
    pa.pairwise_l1(x)
    elapsed, counted = time.perf_counter() - begin, ticks[0] - start
    done.set()
    ticker.join()
    assert counted >= 5
    assert elapsed > 0.05


# -- forks ------------------------------------------------------------------------------------------------------------

FORK = """
import os, threading, numpy as np, pyattnorg as pa
pa.set_num_threads(2)
x = np.random.default_rng(0).standard_normal((200, 300))
tree = pa.PartitionTree.dyadic(300)
expected = pa.pairwise_l1(x), pa.haar(x, [None, tree]), pa.tree_emd(x, tree)
busy = {busy}
def work():
    while busy: pa.pairwise_l1(x)
other = threading.Thread(target=work); other.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        found = pa.pairwise_l1(x), pa.haar(x, [None, tree]), pa.tree_emd(x, tree)
        os._exit(0 if all(np.array_equal(a, b) for a, b in zip(found, expected)) else 1)
    assert os.waitpid(child, 0)[1] == 0
busy = False
other.join()
assert np.array_equal(pa.pairwise_l1(x), expected[0])
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("busy", [False, True])
def test_fork_after_and_during_a_parallel_call(busy: bool) -> None:  # A67
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK.format(busy=busy)], capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


# -- daemon threads ---------------------------------------------------------------------------------------------------

DAEMON = """
import threading, time, numpy as np
from pyattnorg import _core
x, out = np.ones(({n}, 6000), np.float32), np.empty(({n}, {n}), np.float32)
def work():
    while True: _core.pairwise(x, None, "l1", 0, out, 2)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.5)
"""


@pytest.mark.parametrize("n", [100, 3000])  # kernels that end, and that ask for signals, while Python shuts down
def test_a_daemon_thread_within_a_kernel_ends_with_the_program(n: int) -> None:
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", DAEMON.format(n=n)], capture_output=True, text=True, timeout=60)
        assert (run.returncode, run.stderr) == (0, "")


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------

LONG = """
import signal
import numpy as np, pyattnorg as pa
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
x = np.broadcast_to(np.random.default_rng(0).random((3000, 1), np.float32), (3000, 200_000))
print("ready", flush=True)
pa.{call}
"""
CALLS = {"pairwise_l1": "pairwise_l1(x)", "tree_emd": "tree_emd(x, pa.PartitionTree.dyadic(200_000))"}


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_stops_a_long_kernel_within_a_second(name: str) -> None:
    program = [sys.executable, "-c", LONG.format(call=CALLS[name])]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        time.sleep(2.0)  # past the checks, into the kernel, which takes half a minute or more
        assert run.poll() is None
        begin = time.perf_counter()
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=30)
        assert time.perf_counter() - begin < 1.0
        assert "KeyboardInterrupt" in errors


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_many_points_ask_for_signals_every_second_as_well() -> None:
    x = np.broadcast_to(np.random.default_rng(0).random((5000, 1), np.float32), (5000, 520))
    asked = []
    before = signal.signal(signal.SIGALRM, lambda *_: asked.append(time.perf_counter()))
    pa.set_num_threads(1)
    chosen = _core.instruction_set()
    _core.use_instruction_set("baseline")  # what every machine has
    try:
        asked.append(time.perf_counter())
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        pa.pairwise_l1(x)
        asked.append(time.perf_counter())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        _core.use_instruction_set(chosen)
    assert np.diff(asked).max() < 1.0
