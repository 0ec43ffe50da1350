"""Singular values of every head and Tucker's decomposition, at as many numbers as the trees need coefficients.

python examples/entropy/equal_numbers.py
"""

from __future__ import annotations

from functools import cache

import numpy as np
from out_of_sample import in_bases, singular_bases
from page_parts_of import show, spread, table
from study import ERROR, Model, Tensor, cases, fitted, inputs_of, tensor

import pyattnorg as pa


def by_head(x: Tensor, count: int) -> float:
    """Relative error of the largest singular values of all heads that `count` numbers have room for."""
    q, k, _ = x.shape
    s = np.linalg.svd(np.moveaxis(x.astype(np.float64), 2, 0), compute_uv=False)
    energy = np.sort(np.square(s), axis=None)[::-1]
    return float(np.sqrt(max(0.0, 1 - energy[: count // (q + k)].sum() / energy.sum())))  # value put into a factor


def tucker(x: Tensor, count: int) -> float:
    """Relative error of the best truncated HOSVD of any three ranks whose core and factors are `count` numbers."""
    c = np.square(in_bases(x, singular_bases(x)))
    kept = c.cumsum(0).cumsum(1).cumsum(2)
    ranks = np.ogrid[tuple(slice(1, n + 1) for n in x.shape)]
    size = ranks[0] * ranks[1] * ranks[2] + sum(rank * n for rank, n in zip(ranks, x.shape))
    best = kept[size <= count].max(initial=0.0)
    return float(np.sqrt(max(0.0, 1 - best / c.sum())))


@cache
def errors(model: Model, name: str, kind: str) -> tuple[float, float, float, float]:
    """Share of numbers kept, and the errors of flexible trees, of singular values and of Tucker with as many."""
    x, found = tensor(model, name, kind), fitted(model, name, kind)
    count = pa.coefficients_needed(pa.haar(x, found["entropy"].trees), ERROR)
    flexible = np.sqrt(max(0.0, 1 - float(pa.energy_curve(pa.haar(x, found["flexible"].trees))[count - 1])))
    return count / x.size, flexible, by_head(x, count), tucker(x, count)


def section() -> str:
    """The section of the page."""
    rows = []
    for model, kind in cases():
        each = 100 * np.array([errors(model, name, kind) for name in inputs_of(model)])
        rows.append([model.name, kind, *(spread(column, 1) for column in each.T)])
    return "\n\n".join(
        [
            "## Equal numbers kept",
            "Error, in per cent, of as many numbers as least-entropy trees need coefficients for 5 %, in sample.",
            table(
                ["network", "tensor", "numbers kept, %", "flexible trees", "singular values of heads", "Tucker"], rows
            ),
        ]
    )


if __name__ == "__main__":
    show(section())
