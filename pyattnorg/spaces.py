"""Operations on real arrays of any number of axes, here or on a GPU, for code that is written once for both.

`space_for` tells which of two classes an array belongs to; both have the same methods. `taken` checks what came in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import device_kernels, devices, kernels, on_device
from pyattnorg.arrays import Array, FloatArray, given, is_torch
from pyattnorg.trees import PartitionTree

Space: TypeAlias = "Host | Device"


class Host:
    """NumPy arrays."""

    exp: Callable[[Any], Any] = staticmethod(np.exp)
    block = 2**16  # numbers that are worked on at a time: they stay in a core's cache

    def zeros(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Zeros in float64."""
        return np.zeros(shape)

    def take(self, x: FloatArray, at: NDArray[np.integer], axis: int) -> FloatArray:
        """Entries along an axis."""
        return x.take(at, axis)

    def spread(self, x: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        """`x` repeated to a shape, without memory of its own."""
        return np.broadcast_to(x, shape)

    def mean(self, x: FloatArray, axis: int) -> FloatArray:
        """Means over an axis, which stays."""
        with np.errstate(over="ignore", invalid="ignore"):  # said by who asks
            return np.asarray(x.mean(axis, keepdims=True))

    def averages(self, x: FloatArray, tree: PartitionTree, axis: int) -> FloatArray:
        """Means over the distinct folders of a tree, in place of an axis."""
        found: FloatArray = kernels.folder_averages(x, tree, axis)
        return found

    def log_sum_exp(self, x: FloatArray, axis: int) -> FloatArray:
        """``log sum exp`` along an axis, which stays; x finite."""
        top = x.max(axis, keepdims=True)
        with np.errstate(over="ignore", under="ignore"):  # far below the largest: 0
            return np.asarray(top + np.log(np.exp(x - top).sum(axis, keepdims=True)))

    def where(self, condition: Any, x: FloatArray) -> FloatArray:
        """`x` where the condition holds, else 0."""
        return np.where(condition, x, x.dtype.type(0))

    def numbers(self, values: NDArray[Any], like: FloatArray) -> NDArray[Any]:
        """Numbers in the dtype of an array, where it lies."""
        return values.astype(like.dtype)

    def indices(self, at: NDArray[np.integer]) -> NDArray[np.integer]:
        """Indices, where they can be used."""
        return at

    def like(self, x: FloatArray, other: FloatArray) -> FloatArray:
        """`x` in the dtype of another."""
        return x.astype(other.dtype, copy=False)

    def sign(self, x: FloatArray) -> FloatArray:
        """-1, 0 or 1."""
        return np.asarray(np.sign(x))

    def median_magnitude(self, x: FloatArray) -> float:
        """Median of |x|."""
        return kernels.median(np.abs(x))

    def contiguous(self, x: FloatArray) -> FloatArray:
        """A copy in C order."""
        return np.array(x, order="C")

    def squares(self, x: FloatArray, over: Sequence[int] | None) -> NDArray[np.float64]:
        """Sums of squares in float64 over some axes, or all; here."""
        return np.asarray(np.square(x, dtype=np.float64).sum(None if over is None else tuple(over)))

    def applied(self, function: Callable[[Any], Any], x: FloatArray) -> FloatArray:
        """What a function of float64 arrays makes of one."""
        with np.errstate(all="ignore"):  # what goes wrong is said by who asks
            return np.asarray(function(x), np.float64)

    def finite(self, x: FloatArray) -> bool:
        """Whether there is no NaN and no infinity."""
        return bool(np.isfinite(x).all())


class Device:
    """Tensors on a GPU; see `Host`."""

    block = 2**26

    def __init__(self, memory: devices.Memory) -> None:
        self.memory = memory

    def exp(self, x: Any) -> Any:
        return x.exp()

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return self.memory.empty(tuple(shape), np.float64).zero_()

    def take(self, x: Any, at: NDArray[np.integer], axis: int) -> Any:
        return x.index_select(axis, self.indices(at))

    def spread(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.expand(shape)

    def mean(self, x: Any, axis: int) -> Any:
        return x.mean(axis, keepdim=True)

    def averages(self, x: Any, tree: PartitionTree, axis: int) -> Any:
        return device_kernels.folder_averages(self.memory, x, tree, axis)

    def log_sum_exp(self, x: Any, axis: int) -> Any:
        return x.logsumexp(axis, keepdim=True)

    def where(self, condition: Any, x: Any) -> Any:
        import torch

        kept = torch.from_numpy(condition).to(x.device) if isinstance(condition, np.ndarray) else condition
        return torch.where(kept, x, torch.zeros((), dtype=x.dtype, device=x.device))

    def numbers(self, values: NDArray[Any], like: Any) -> Any:
        return self.memory.array(values).to(like.dtype)

    def indices(self, at: NDArray[np.integer]) -> Any:
        return self.memory.array(np.ascontiguousarray(at, np.float64)).long()

    def like(self, x: Any, other: Any) -> Any:
        return x.to(other.dtype)

    def sign(self, x: Any) -> Any:
        return x.sign()

    def median_magnitude(self, x: Any) -> float:
        lower, upper = self.memory.host(device_kernels.median(self.memory, abs(x).reshape(-1))).tolist()
        return float(lower + (upper - lower) / 2)

    def contiguous(self, x: Any) -> Any:
        return x.contiguous()

    def squares(self, x: Any, over: Sequence[int] | None) -> NDArray[np.float64]:
        square = x.double().square()
        return self.memory.host(square.sum() if over is None else square.sum(tuple(over)) if over else square)

    def applied(self, function: Callable[[Any], Any], x: Any) -> Any:
        import torch

        return torch.as_tensor(function(x), dtype=torch.float64, device=x.device)

    def finite(self, x: Any) -> bool:
        return bool(x.isfinite().all())


def space_for(x: Array) -> Space:
    """Where an array lies; what is not on a GPU is NumPy's."""
    memory = devices.memory_for(x) if is_torch(x) else None
    return Host() if memory is None else Device(memory)


class Taken(NamedTuple):
    """What came in: values of float32 or float64 where they lie, the way back, and what computes there."""

    values: Any
    back: Callable[[Any], Any]
    space: Space


def taken(x: Array, name: str, *, min_ndim: int = 1) -> Taken:
    """As `pyattnorg.arrays.given`, but what lies on a GPU stays there; NaN is not looked for on it."""
    memory = devices.memory_for(x)
    if memory is None:
        ours = given(x, name, min_ndim=min_ndim)
        return Taken(ours.values, ours.back, Host())
    values = on_device.tensor(memory, x, name, min_ndim)
    if device_kernels.real(values) == np.float32:
        values = values.float()
    return Taken(values, lambda out: out, Device(memory))
