"""The questionnaire, whole, beside its transcription in NumPy and the terms that it cannot avoid."""

from __future__ import annotations

from functools import cache
from time import perf_counter
from typing import Any

import memory
import numpy as np
import pytest
import transcription as slow
from counting import last_given, questionnaire_terms
from data import attention, relative_error, shared_folders
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture
from results import Fit, Session
from sizes import sized
from threadpoolctl import threadpool_limits

import pyattnorg as pa

FloatArray = NDArray[Any]
Shape = tuple[int, ...]
ITERATIONS = 3
SCHEDULES = ("paper", "refined")
SAMPLED = 16  # points whose distances are computed again

# Tensors that are fitted, and those of them that the transcription is given too, with its schedules.
FITTED: list[tuple[Shape, str]] = sized(
    [
        ((128, 128, 72), "float32"),
        ((128, 128, 144), "float32"),
        ((256, 256, 128), "float32"),
        ((256, 256, 128), "float64"),
        ((197, 197, 144), "float32"),
        ((512, 512, 144), "float32"),
        ((1024, 1024), "float32"),
    ],
    [((32, 32, 16), "float32"), ((32, 32, 16), "float64"), ((48, 48), "float32")],
)
SLOW: list[tuple[Shape, str]] = sized([((1024, 1024, 144), "float32")], [])
TRANSCRIBED = sized(
    [((128, 128, 72), "paper"), ((128, 128, 72), "refined"), ((256, 256, 128), "paper")]
    + [((1024, 1024), schedule) for schedule in SCHEDULES],
    [((32, 32, 16), "paper"), ((32, 32, 16), "refined"), ((48, 48), "paper"), ((48, 48), "refined")],
)


@cache
def transcribed(shape: Shape, schedule: str) -> tuple[float, slow.Organized]:
    """Seconds and result of the transcription."""
    x = attention(shape, "float64")
    with threadpool_limits(1):
        start = perf_counter()
        found = slow.questionnaire(x, schedule, ITERATIONS)
        return perf_counter() - start, found


def check_fit(q: pa.Questionnaire, x: FloatArray) -> None:
    """The distances of the axis organised last are those that its neighbours' trees give."""
    axis = x.ndim - 2
    rows = np.linspace(0, x.shape[axis] - 1, min(SAMPLED, x.shape[axis])).astype(int)
    given = [tree.labels for tree in last_given(q, axis)]
    exact = slow.tree_emd(np.moveaxis(x, axis, 0)[rows], given)
    assert relative_error(q.distances_[axis][np.ix_(rows, rows)], exact) <= 2e-5
    assert [tree.n_leaves for tree in q.trees_] == list(x.shape)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("shape", "dtype"), [*FITTED, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)])
def test_fit(benchmark: BenchmarkFixture, session: Session, shape: Shape, dtype: str, schedule: str) -> None:
    x = attention(shape, dtype)
    benchmark.group = f"questionnaire, {' x '.join(map(str, shape))} {dtype}, {schedule}"
    rounds = 1 if x.nbytes > 2**28 else 3 if x.nbytes > 2**26 else 5
    q = benchmark.pedantic(
        lambda: pa.Questionnaire(ITERATIONS, tree="flexible", schedule=schedule).fit(x),
        rounds=rounds,
        warmup_rounds=int(rounds > 1),
    )
    check_fit(q, x)
    seconds, agreement = None, "distances of the last axis"
    if (shape, schedule) in TRANSCRIBED:
        seconds, theirs = transcribed(shape, schedule)
        same = [shared_folders(a.labels, b) for a, b in zip(q.trees_, theirs.trees, strict=True)]
        assert min(same) >= 0.9
        if dtype == "float64":
            assert min(same) >= 0.99
            for a, b in zip(q.distances_, theirs.distances, strict=True):
                assert np.abs(a - b).max() <= 1e-6 * b.max()
        agreement += ", " + " / ".join(f"{100 * s:.0f}" for s in same) + " % of folders as transcribed"
    if benchmark.stats is None:
        return
    session.fits.append(
        Fit(
            size=" x ".join(map(str, shape)),
            schedule=schedule,
            iterations=q.n_iter_,
            folders=[tree.n_folders for tree in q.trees_],
            terms=questionnaire_terms(q, x),
            dtype=dtype,
            seconds=benchmark.stats.stats.median,
            tensor_bytes=x.nbytes,
            rise=memory.rise(x, schedule, ITERATIONS),
            transcription=seconds,
            agreement=agreement,
        )
    )
