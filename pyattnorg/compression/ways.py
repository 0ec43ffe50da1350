"""The two forms of a compressed tensor, as functions of the step: the error that is left and the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pyattnorg.compression.candidates import FILLS, Candidate
from pyattnorg.compression.factors import factor_bytes, product, rounded_values
from pyattnorg.compression.intake import Intake
from pyattnorg.compression.model import Ints
from pyattnorg.compression.quantize import Quantised, blocks, in_dtype, quantised, restored
from pyattnorg.compression.stored import file_bytes
from pyattnorg.haar import haar, ihaar
from pyattnorg.trees import PartitionTree

Reals = NDArray[np.float64]
LOW = 0.05  # of a head's largest singular value; what is less does not fill cells that do not count
WORTH = 1.5  # a singular value is kept above so many times the error of rounding its vectors


class Way(Protocol):
    """What a search for a step needs."""

    def error(self, step: float) -> float:
        """Relative error over the cells that count."""
        ...

    def measured(self, found: Intake, step: float) -> float:
        """The same of what will come back, in the dtype that it has then."""
        ...

    def file(self, found: Intake, step: float, error: float, *, sized: bool = False) -> bytes:
        """The file; `sized`: one that is about as long, in less time."""
        ...


@dataclass(frozen=True)
class HaarWay:
    """Coefficients in the basis of all trees, those up to `threshold` 0."""

    one: Candidate
    threshold: float = 0.0

    def _quantised(self, step: float) -> Quantised:
        return quantised(self.one.coefficients, step, self.threshold)

    def error(self, step: float) -> float:
        """Of the coefficients, where all cells count."""
        return self.one.error(self._quantised(step))

    def measured(self, found: Intake, step: float) -> float:
        """Of the tensor."""
        return _gap(found, ihaar(restored(self._quantised(step)), list(self.one.trees)))

    def file(self, found: Intake, step: float, error: float, *, sized: bool = False) -> bytes:
        """Everything there is to keep."""
        return file_bytes(self._quantised(step), self.one.trees, found.mask, found.about, error, sized=sized)


@dataclass(frozen=True)
class FactorWay:
    """Singular vectors of every head, in the Haar bases of the trees of queries and keys."""

    found: Intake
    trees: Sequence[PartitionTree | None]

    @cached_property
    def _vectors(self) -> tuple[Reals, Reals, Reals]:
        """Singular values (heads, ranks), and vectors (heads, ranks, queries) and (heads, ranks, keys)."""
        values, seen = np.moveaxis(self.found.values, 2, 0), self.found.seen
        u, s, v = _svd(values)
        if seen is not None:  # cells that do not count are what low rank makes of them
            counts = np.moveaxis(seen, 2, 0)
            for _ in range(FILLS):
                low = (u * np.where(s > LOW * s[:, :1], s, 0.0)[:, None]) @ v
                values = np.where(counts, values, low)
                u, s, v = _svd(values)
        sides = [np.ascontiguousarray(u.transpose(0, 2, 1)), v]
        left, right = (haar(side, [None, None, tree]) for side, tree in zip(sides, self.trees))
        return s, left, right

    def _quantised(self, step: float) -> tuple[Quantised, Quantised, Ints, Reals, Ints]:
        s, left, right = self._vectors
        kept = s > WORTH * step * float(np.sqrt((left.shape[2] + right.shape[2]) / 12))
        kept.flat[int(s.argmax())] = True
        codes, near = rounded_values(s[kept])
        a, b = (quantised(side[kept] * by[:, None], step) for side, by in ((left, s[kept]), (right, near)))
        return a, b, codes, near, kept.sum(1)

    def _made(self, step: float) -> Reals:
        a, b, _, near, ranks = self._quantised(step)
        left, right = (ihaar(restored(one), [None, tree]) for one, tree in zip((a, b), self.trees))
        return product(left, right, near, ranks)

    def error(self, step: float) -> float:
        """Of the tensor."""
        return _gap(self.found, self._made(step), round_it=False)

    def measured(self, found: Intake, step: float) -> float:
        """Of the tensor, in its dtype."""
        return _gap(found, self._made(step))

    def file(self, found: Intake, step: float, error: float, *, sized: bool = False) -> bytes:
        """Everything there is to keep."""
        a, b, codes, _, ranks = self._quantised(step)
        return factor_bytes((a, b), self.trees, codes, ranks, found.about, found.mask, error, sized=sized)


def _svd(heads: Reals) -> tuple[Reals, Reals, Reals]:
    u, s, v = np.linalg.svd(heads, full_matrices=False)
    return u, s, v


def _gap(found: Intake, back: Reals, *, round_it: bool = True) -> float:
    """Relative error over the cells that count."""
    x, y, seen = found.values.reshape(-1), back.reshape(-1), None if found.seen is None else found.seen.reshape(-1)
    exponent = int(found.about.get("exponent", 0))
    gap = length = 0.0
    for block in blocks(x.size):
        one, other = x[block], y[block]
        if seen is not None:
            one, other = one[seen[block]], other[seen[block]]
        if round_it:
            other = in_dtype(other, found.about).astype(np.float64)
            other = np.ldexp(other, -exponent) if exponent else other
        off = other - one
        gap, length = gap + float(off @ off), length + float(one @ one)
    return float(np.sqrt(gap / (length or 1.0)))
