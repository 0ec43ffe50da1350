"""Bytes of numbers, counted in two ways that are the same for every method.

*Coded*: numbers are rounded to one step, the smallest to 0, and coded as `pyattnorg.compress` codes its coefficients;
the contexts of a number are its expected size by row, column and slice, and the numbers above it in the tree, or before
it where there is none. *Plain*: four bytes for a number that is kept, and log2 of the number of ways to choose which.
"""

from __future__ import annotations

from math import lgamma, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.compression.quantize import quantised, restored
from pyattnorg.compression.stored import file_bytes

Reals = NDArray[np.float64]
FLOAT = 4


def coded(c: Reals, step: float, trees: Any = None) -> tuple[int, Reals]:
    """Bytes of numbers in steps, and what they stand for; trees are not counted."""
    found = quantised(c, step)
    return len(file_bytes(found, [None] * c.ndim if trees is None else trees, None, {"shape": c.shape}, 0.0)) - (
        tree_bytes(trees) if trees is not None else 0
    ), restored(found)


def rounded(c: Reals, step: float) -> Reals:
    """What numbers in steps stand for."""
    return restored(quantised(c, step))


def tree_bytes(trees: Any) -> int:
    """Bytes of all trees."""
    from pyattnorg.compression.tree_code import tree_to_bytes

    return sum(len(tree_to_bytes(tree)) for tree in trees if tree is not None)


def choice_bytes(n: int, k: int) -> float:
    """Bytes that say which k of n are kept."""
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2) / 8


def order_bytes(n: int) -> float:
    """Bytes of an order of n points."""
    return lgamma(n + 1) / log(2) / 8
