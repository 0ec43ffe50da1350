"""What least-entropy trees compute of a tensor, where it lies: in this machine's memory, or on a GPU.

Both classes do the same. Rows are points, their columns features; merges and exchanges are those of
`pyattnorg.kernels.entropy_tree` and `improve_tree`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pyattnorg import device_kernels, device_trees, devices, kernels
from pyattnorg.arrays import Array, FloatArray, require_finite, squarable
from pyattnorg.folders import IntArray
from pyattnorg.sampling import SPREAD_COLUMNS, SPREAD_ROWS, drawn_features, sampled_features
from pyattnorg.trees import PartitionTree

Merged = tuple[IntArray, NDArray[np.float64]]
LEAST_SHARE = 1e-6  # of the norm; what gains less may be rounding
ERRORS = 2.0  # standard errors, about, that an exchange has to gain
SLAB_BYTES = 1 << 17
SAMPLED = 1 << 16  # coefficients that noise is estimated from
MEDIAN_OF_NORMAL = 0.6744897501960817  # of the magnitude of a standard normal number


class Arithmetic(Protocol):
    """See `OnHost`."""

    def squarable(self, values: Any) -> tuple[Any, int]: ...

    def room(self, values: Array) -> Any: ...

    def rows_of(self, values: Array, trees: Sequence[PartitionTree | None], axis: int, room: Any) -> Any: ...

    def copied(self, rows: Any) -> Any: ...

    def sampled(self, rows: Any, count: int) -> Any: ...

    def merged(self, rows: Any, noise: float) -> tuple[IntArray, Any]: ...

    def improved(self, rows: Any, merges: IntArray, noise: float) -> Merged: ...

    def noise_level(self, coefficients: Any) -> float: ...

    def along(self, rows: Any, tree: PartitionTree) -> Any: ...

    def norm_by(self, values: Array, trees: Sequence[PartitionTree | None]) -> float: ...

    def norms(self, x: Any) -> tuple[float, float]: ...

    def distances(self, rows: Any) -> Any: ...

    def host(self, x: Any) -> FloatArray: ...


class OnHost:
    """In this machine's memory."""

    def squarable(self, values: FloatArray) -> tuple[FloatArray, int]:
        """Values over a power of two, so that their squares stay in range, and its exponent, most often 0."""
        return squarable(values)

    def room(self, values: FloatArray) -> FloatArray:
        """Memory for as many numbers as `values` has."""
        return np.empty(values.size, values.dtype)

    def rows_of(
        self, values: FloatArray, trees: Sequence[PartitionTree | None], axis: int, room: FloatArray
    ) -> FloatArray:
        """Coefficients in the bases of the other axes, a row for every point of `axis`, in `room`."""
        moved = np.moveaxis(values, axis, 0)
        rows = room.reshape(moved.shape)
        slabs = max(1, SLAB_BYTES * moved.shape[1] // values.nbytes) if values.nbytes else 1
        if axis == values.ndim - 1:  # a transposition, in pieces that stay in cache
            for begin in range(0, moved.shape[1], slabs):
                rows[:, begin : begin + slabs] = moved[:, begin : begin + slabs]
        else:
            rows[...] = moved
        return kernels.haar_into(rows, rows, _others(trees, axis)).reshape(len(rows), -1)

    def copied(self, rows: FloatArray) -> FloatArray:
        """A copy in C order."""
        return np.array(rows, order="C")

    def sampled(self, rows: FloatArray, count: int) -> FloatArray:
        """About `count` of the features, weighted."""
        return sampled_features(rows, count)

    def merged(self, rows: FloatArray, noise: float) -> tuple[IntArray, FloatArray]:
        """Merges and the distances of all rows, which are overwritten."""
        merges, _, distances = kernels.entropy_tree(rows, noise)
        return merges, distances

    def improved(self, rows: FloatArray, merges: IntArray, noise: float) -> Merged:
        """Merges after exchanges that gain more than noise would let them, and what each costs."""
        return kernels.improve_tree(
            rows, merges, least_share=LEAST_SHARE, least_gain=ERRORS * noise * float(np.sqrt(rows.shape[1]))
        )

    def noise_level(self, coefficients: FloatArray) -> float:
        """Standard deviation of the noise in coefficients of which most are nothing but noise, from their median."""
        flat = coefficients.reshape(-1)
        return kernels.median(np.abs(flat[:: _step(flat.size)])) / MEDIAN_OF_NORMAL if flat.size else 0.0

    def along(self, rows: FloatArray, tree: PartitionTree) -> FloatArray:
        """Coefficients of rows in the basis of their own tree as well; in place."""
        return kernels.haar_into(rows, rows, [tree, None])

    def norm_by(self, values: FloatArray, trees: Sequence[PartitionTree | None]) -> float:
        """Sum of magnitudes of all coefficients."""
        return kernels.norms(kernels.haar_into(np.empty(values.shape, values.dtype), values, trees))[0]

    def norms(self, x: FloatArray) -> tuple[float, float]:
        """Sums of magnitudes and of squares."""
        return kernels.norms(x)

    def distances(self, rows: FloatArray) -> FloatArray:
        """l1 distances of all rows."""
        found: FloatArray = kernels.pairwise(rows)
        return found

    def host(self, x: FloatArray) -> FloatArray:
        """Distances as NumPy."""
        return x


class OnDevice:
    """On a GPU: what is as large as the tensor stays there; see `OnHost`."""

    def __init__(self, memory: devices.Memory) -> None:
        self.memory = memory

    def squarable(self, values: Any) -> tuple[Any, int]:
        if device_kernels.number(values) != "float64" or 0 in values.shape:
            return values, 0
        peak = float(values.abs().max())
        if not 0 < peak < np.inf or 2.0**-200 < peak < 2.0**200:
            return values, 0
        exponent = int(np.frexp(peak)[1])
        half = exponent // 2  # the power itself may be out of range
        return values * 2.0**-half * 2.0 ** (half - exponent), exponent

    def room(self, values: Any) -> Any:
        return self.memory.empty((int(np.prod(values.shape, dtype=np.int64)),), device_kernels.real(values))

    def rows_of(self, values: Any, trees: Sequence[PartitionTree | None], axis: int, room: Any) -> Any:
        moved = values.movedim(axis, 0)
        rows = room.reshape(moved.shape)
        rows.copy_(moved)
        return device_kernels.haar(self.memory, rows, _others(trees, axis), False, rows).reshape(len(rows), -1)

    def copied(self, rows: Any) -> Any:
        out = self.memory.empty(tuple(rows.shape), device_kernels.real(rows))
        out.copy_(rows)
        return out

    def sampled(self, rows: Any, count: int) -> Any:
        some = rows[:: max(1, len(rows) // SPREAD_ROWS)]
        spread = np.empty(int(rows.shape[1]))
        for begin in range(0, len(spread), SPREAD_COLUMNS):
            part = some[:, begin : begin + SPREAD_COLUMNS].double()
            spread[begin : begin + SPREAD_COLUMNS] = self.memory.host((part - part.mean(0)).abs().sum(0))
        drawn, factors = drawn_features(spread, count)
        out = self.memory.empty((len(rows), len(drawn)), device_kernels.real(rows))
        out.copy_(rows[:, drawn])
        return out.mul_(self.memory.array(factors))

    def merged(self, rows: Any, noise: float) -> tuple[IntArray, Any]:
        merges, costs, distances = device_trees.entropy_tree(self.memory, rows, noise)
        if not np.isfinite(costs).all():
            require_finite(self.memory.host(rows), "features")
            raise kernels.SumOverflowError("features: sums overflow; scale the values down or pass float64")
        return merges, distances

    def improved(self, rows: Any, merges: IntArray, noise: float) -> Merged:
        least_gain = ERRORS * noise * float(np.sqrt(int(rows.shape[1])))
        return device_trees.improve_tree(self.memory, rows, merges, kernels.EXCHANGE_SWEEPS, LEAST_SHARE, least_gain)

    def noise_level(self, coefficients: Any) -> float:
        flat = coefficients.reshape(-1)
        if not len(flat):
            return 0.0
        some = flat[:: _step(len(flat))].abs()
        lower, upper = self.memory.host(device_kernels.median(self.memory, some)).tolist()
        return float(lower + (upper - lower) / 2) / MEDIAN_OF_NORMAL

    def along(self, rows: Any, tree: PartitionTree) -> Any:
        return device_kernels.haar(self.memory, rows, [tree, None], False, rows)

    def norm_by(self, values: Any, trees: Sequence[PartitionTree | None]) -> float:
        return self.norms(device_kernels.haar(self.memory, values, trees, False))[0]

    def norms(self, x: Any) -> tuple[float, float]:
        magnitudes, squares = self.memory.host(device_kernels.norms(self.memory, x)).tolist()
        return magnitudes, squares

    def distances(self, rows: Any) -> Any:
        return device_kernels.pairwise(self.memory, rows, 0, "l1", None)

    def host(self, x: Any) -> FloatArray:
        return self.memory.host(x)


def arithmetic_for(values: Array) -> Arithmetic:
    """Where a tensor lies."""
    memory = devices.memory_for(values)
    return OnHost() if memory is None else OnDevice(memory)


def _others(trees: Sequence[PartitionTree | None], axis: int) -> list[PartitionTree | None]:
    return [None, *(tree for other, tree in enumerate(trees) if other != axis)]


def _step(size: int) -> int:
    return size // SAMPLED | 1  # odd: not a period of the axes
