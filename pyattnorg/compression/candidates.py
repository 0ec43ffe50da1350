"""Which axes are better off without their trees, and what to put into cells that do not count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg.compression.model import fit, model_to_bytes
from pyattnorg.compression.quantize import ZERO, Quantised, blocks, quantised, restored, squared_gap
from pyattnorg.compression.stored import as_coded, layout_of
from pyattnorg.haar import haar, ihaar
from pyattnorg.trees import PartitionTree

Reals = NDArray[np.float64]
Trees: TypeAlias = "tuple[PartitionTree | None, ...]"
FILLS = 5  # rounds in which invisible cells take what the coefficients that are kept make of them
# What a bit is worth in squared error, in squared steps: the slope of the high-rate law D ~ step^2 / 12 ~ 4^-bits.
BIT = np.log(4) / 12


@dataclass(frozen=True)
class Candidate:
    """A tensor and trees for it.

    Attributes
    ----------
    values : float64
    seen : bool array, optional
        Cells that count.
    trees : tuple
    """

    values: Reals
    seen: NDArray[np.bool_] | None
    trees: Trees

    @cached_property
    def coefficients(self) -> Reals:
        """In the basis of the trees."""
        found: Reals = haar(self.values, list(self.trees))
        return found

    @cached_property
    def length(self) -> float:
        """Norm of the cells that count."""
        return float(np.linalg.norm(self.values if self.seen is None else self.values[self.seen]))

    def forget(self) -> None:
        """Give the memory of the coefficients back; they are made again where they are needed."""
        self.__dict__.pop("coefficients", None)

    def error(self, found: Quantised) -> float:
        """Relative error in the cells that count; 0 for a tensor of zeros."""
        if self.seen is None:
            return float(np.sqrt(squared_gap(found, self.coefficients))) / (self.length or 1.0)
        gap = restored(found)
        gap -= self.coefficients
        return float(np.linalg.norm(ihaar(gap, list(self.trees))[self.seen])) / (self.length or 1.0)

    def bits(self, step: float) -> float:
        """Bits in steps of this size, the error that they leave counted as bits."""
        c = haar(self.values, list(self.trees))  # not kept: there are several candidates
        found = quantised(c, step)
        squares = squared_gap(found, c)
        del c
        orders, layout = layout_of(self.trees, self.values.shape)
        magnitude = np.abs(as_coded(found.q, orders, layout))
        model, bits = fit(magnitude, layout.within(), layout.beside)
        return bits + 8 * len(model_to_bytes(model)) + squares / (float(BIT) * step * step)

    def filled(self, step: float) -> Candidate:
        """Cells that do not count hold what makes coefficients few: alternating projections (Papoulis 1975)."""
        if self.seen is None or not any(tree is not None for tree in self.trees):
            return self
        values = self.values
        for _ in range(FILLS):
            c: Reals = haar(values, list(self.trees))
            for block in blocks(c.size):
                part = c.reshape(-1)[block]
                part[np.abs(part) <= ZERO * step] = 0.0
            values = ihaar(c, list(self.trees))
            np.copyto(values, self.values, where=self.seen)
        return Candidate(values, self.seen, self.trees)


def best_axes(whole: Candidate, step: float) -> Candidate:
    """The candidate without the trees whose axes are sparser as they are: one is left out after the other.

    `whole` is not filled; what is found is.
    """
    best = whole.filled(step)
    bits = best.bits(step)
    while True:
        better = None
        for axis, tree in enumerate(best.trees):
            if tree is not None:
                one = Candidate(whole.values, whole.seen, _without(best.trees, axis)).filled(step)
                now = one.bits(step)
                if now < bits:
                    better, bits = one, now
        if better is None:
            return best
        best = better


def _without(trees: Sequence[PartitionTree | None], axis: int) -> Trees:
    return tuple(None if other == axis else tree for other, tree in enumerate(trees))
