"""Least-entropy trees: a fit, whole, beside the terms that it cannot avoid and the bytes that it has to stream."""

from __future__ import annotations

from math import prod
from typing import Any
from unittest.mock import patch

import memory
import numpy as np
import pytest
from data import attention
from entropy_fits import EntropyFit
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture
from results import Session
from sizes import sized

import pyattnorg as pa
from pyattnorg import kernels

SHAPES = sized([(128, 128, 144), (256, 256, 128)], [(32, 32, 16)])


class Counter:
    """What a fit had to sum and to stream, from the calls that it made; wraps the kernels."""

    def __init__(self) -> None:
        self.terms = self.bytes = 0.0
        self.merge, self.improve, self.haar = kernels.entropy_tree, kernels.improve_tree, kernels.haar_into

    def entropy_tree(self, x: NDArray[Any], noise: float) -> Any:
        n, features = x.shape
        if noise:  # the variances; what is left is written
            kept = int((x.astype(float).var(0, ddof=1) > noise**2).sum())
            self.bytes += x.nbytes + n * (features + kept) * x.itemsize
            features = kept or features
        found = self.merge(x, noise)
        row = features * x.itemsize
        self.terms += n * (n - 1) / 2 * features
        self.bytes += n * row
        living = n
        for merged in passes(found[0]):  # two rows read, one written; the new ones against all that live
            others = living - 2 * merged
            living -= merged
            self.terms += (merged * others + merged * (merged - 1) / 2) * features
            self.bytes += 3 * merged * row + (living * row if living > 1 else 0)
        return found

    def improve_tree(self, x: NDArray[Any], merges: NDArray[np.int32], **options: Any) -> Any:
        """At least one sweep, six distances around every folder; what more there were is not counted."""
        self.terms += 6 * (len(x) - 1) * x.shape[1]
        self.bytes += x.nbytes
        return self.improve(x, merges, **options)

    def haar_into(self, out: NDArray[Any], values: NDArray[Any], trees: Any, inverse: bool = False) -> Any:
        self.bytes += 2 * values.nbytes * sum(tree is not None and tree.n_leaves > 1 for tree in trees)
        if out is values and trees[0] is None:
            self.bytes += 2 * values.nbytes  # the unfolding before
        return self.haar(out, values, trees, inverse)


def passes(merges: NDArray[np.int32]) -> list[int]:
    """Merges of every pass: within one, first points ascend and no folder is merged twice."""
    counts, last, taken = [0], -1, set[int]()
    for first, second in merges.tolist():
        if first <= last or first in taken or second in taken:
            counts.append(0)
            taken.clear()
        taken |= {first, second}
        last = first
        counts[-1] += 1
    return counts


def count(x: NDArray[Any], n_iter: int) -> Counter:
    counter = Counter()
    with (
        patch.object(kernels, "entropy_tree", counter.entropy_tree),
        patch.object(kernels, "improve_tree", counter.improve_tree),
        patch.object(kernels, "haar_into", counter.haar_into),
    ):
        pa.Questionnaire(n_iter, tree="entropy").fit(x)
    return counter


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_entropy_fit(benchmark: BenchmarkFixture, session: Session, shape: tuple[int, ...], iterations: int) -> None:
    x = attention(shape, "float32")
    benchmark.group = f"least entropy, {' x '.join(map(str, shape))} float32"
    q = benchmark.pedantic(
        lambda: pa.Questionnaire(iterations, tree="entropy").fit(x), rounds=sized(7, 1), warmup_rounds=1
    )
    entropies = [one["entropy"] for one in q.history_]
    assert entropies == sorted(entropies, reverse=True)
    assert pa.l1_entropy(q.coefficients()) == pytest.approx(entropies[-1], rel=1e-5)
    if benchmark.stats is None:
        return
    counter = count(x, iterations)
    assert x.size == prod(shape)
    session.entropy_fits.append(
        EntropyFit(
            size=" x ".join(map(str, shape)),
            iterations=q.n_iter_,
            terms=counter.terms,
            bytes=counter.bytes,
            seconds=benchmark.stats.stats.median,
            least=benchmark.stats.stats.min,
            tensor_bytes=x.nbytes,
            rise=memory.rise(x, "refined", iterations, "entropy"),
            entropy=entropies[-1],
        )
    )
