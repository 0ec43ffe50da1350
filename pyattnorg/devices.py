"""Where device kernels find their arrays: a GPU's memory through torch, or, emulated, this machine's own."""

from __future__ import annotations

import ctypes
import logging
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pyattnorg import arrays
from pyattnorg.arrays import as_tensor, is_torch

logger = logging.getLogger("pyattnorg")

OLDEST = (8, 0)  # compute capability that kernels are compiled for
NUMBERS = ("float64", "float32", "float16", "bfloat16")  # formats that kernels read


class Memory(Protocol):
    """A device: its kernels, and arrays on it."""

    kernels: Any

    def place(self) -> Any:
        """The device and the caller's current stream, as kernels take them."""

    def array(self, x: Any) -> Any:
        """`x` on the device, in one of NUMBERS."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """New memory; `dtype` is NumPy's."""

    def address(self, x: Any) -> int:
        """Where an array begins."""

    def host(self, x: Any) -> NDArray[Any]:
        """An array as NumPy; waits for the stream."""

    def uses(self, arrays: Sequence[Any]) -> None:
        """Keep memory that several streams may read from being handed on before the current one has."""


def borrowed(x: NDArray[Any]) -> NDArray[Any]:
    """An array in C order as torch takes it: read-only memory without a warning. It must only be read."""
    x = np.ascontiguousarray(x)
    if x.flags.writeable or not x.nbytes:
        return x if x.flags.writeable else x.copy()
    memory = memoryview((ctypes.c_byte * x.nbytes).from_address(x.ctypes.data))
    lent: NDArray[Any] = np.ndarray(x.shape, x.dtype, memory)
    return lent


class Gpu:
    """A CUDA device. All memory is torch's, and work goes onto torch's current stream; nothing waits for it."""

    def __init__(self, device: Any) -> None:
        import torch

        self.kernels = cuda_kernels()
        self.device = torch.device(device)
        if self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        too_old = _too_old(self.device.index)
        if too_old:
            raise ImportError(f"device: {self.device} cannot be used ({too_old}); use device='cpu'")

    def place(self) -> Any:
        import torch

        return self.kernels.Place(self.device.index, torch.cuda.current_stream(self.device).cuda_stream)

    def array(self, x: Any) -> Any:
        import torch

        tensor = x.detach() if is_torch(x) else torch.from_numpy(borrowed(x))
        known = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
        if tensor.dtype not in known:
            tensor = tensor.to(torch.float32 if tensor.dtype.is_floating_point else torch.float64)
        return tensor.to(self.device)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        import torch

        return torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name), device=self.device)

    def address(self, x: Any) -> int:
        return int(x.data_ptr())

    def host(self, x: Any) -> NDArray[Any]:
        return np.asarray(x.cpu().numpy())

    def uses(self, arrays: Sequence[Any]) -> None:
        import torch

        stream = torch.cuda.current_stream(self.device)
        for x in arrays:
            x.record_stream(stream)


class Emulated:
    """The memory of this machine, for kernels that were compiled to run on it."""

    def __init__(self) -> None:
        self.kernels = emulated_kernels()

    def place(self) -> Any:
        return self.kernels.Place(0, 0)

    def array(self, x: Any) -> Any:
        return x

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.empty(shape, dtype)

    def address(self, x: Any) -> int:
        return int(x.data_ptr() if is_torch(x) else x.ctypes.data)

    def host(self, x: Any) -> NDArray[Any]:
        return np.asarray(x)

    def uses(self, arrays: Sequence[Any]) -> None:
        pass  # there are no streams


@cache
def cuda_kernels() -> Any:
    """The extension, where it was built and a GPU can be used; else an error that says what is missing."""
    try:
        from pyattnorg import _cuda  # type: ignore[attr-defined, unused-ignore]
    except ImportError as error:
        raise ImportError(
            f"device: this build has no CUDA kernels ({error}); install with nvcc at hand, or with "
            "-C cmake.define.PYATTNORG_CUDA=ON to be told what is missing"
        ) from None
    why = _no_gpu()
    if why or not _cuda.device_count():
        raise ImportError(f"device: no CUDA GPU can be used ({why or 'the driver shows none'}); use device='cpu'")
    return _cuda


def _no_gpu() -> str:
    try:
        import torch
    except ImportError:
        return "arrays on a GPU are torch's, which is not installed"
    if not torch.cuda.is_available():
        return "torch.cuda.is_available() is False"
    return _too_old(torch.cuda.current_device())


@cache
def _too_old(index: int) -> str:
    """Why a GPU that torch can use has no kernels here, which would else be known only when the first one starts."""
    import torch

    found = torch.cuda.get_device_capability(index)
    if found >= OLDEST:
        return ""
    name, has, needed = torch.cuda.get_device_name(index), *(".".join(map(str, one)) for one in (found, OLDEST))
    return f"{name} has compute capability {has}, the kernels need {needed}"


@cache
def emulated_kernels() -> Any:
    """The kernels as g++ compiled them, for tests."""
    try:
        from pyattnorg import _emulated  # type: ignore[attr-defined, unused-ignore]
    except ImportError as error:
        raise ImportError(
            f"PYATTNORG_BACKEND: 'emulated' is not built here ({error}); make emulated builds it from a checkout"
        ) from None
    return _emulated


def has_gpu() -> bool:
    """Whether CUDA kernels are built and a GPU is there for them."""
    try:
        cuda_kernels()
    except ImportError:
        return False
    return True


def forced() -> str:
    """The backend that ``PYATTNORG_BACKEND`` asks for, or nothing."""
    return os.environ.get("PYATTNORG_BACKEND", "")


def memory_for(x: Any) -> Memory | None:
    """The device that holds `x`; None: the CPU, or a backend is forced that has arrays come to it.

    Raises
    ------
    ImportError
        `x` lies on a GPU, and this build has no kernels for it.
    """
    if not arrays.on_gpu(x) or forced() in ("cpu", "reference"):
        return None
    return Gpu(as_tensor(x).device)


def forced_memory() -> Memory | None:
    """The device that NumPy arrays are taken to, where ``PYATTNORG_BACKEND`` forces a backend that has one."""
    name = forced()
    return Emulated() if name == "emulated" else Gpu("cuda") if name == "cuda" else None


def chosen_device(device: str | None) -> str | None:
    """The device that is meant: "auto" becomes "cuda" or "cpu", aloud.

    Raises
    ------
    ValueError
        No device of that name.
    ImportError
        A GPU is asked for, and there is none or no kernels for it.
    """
    if device is None or device == "cpu":
        return device
    if device == "auto":
        found = "cuda" if has_gpu() else "cpu"
        logger.warning(
            "device='auto': organising on %s", "the GPU (cuda)" if found == "cuda" else "the CPU, no GPU here"
        )
        return found
    if not isinstance(device, str) or not re.fullmatch(r"cuda(:\d+)?", device):
        raise ValueError(f"device: got {device!r}, expected 'cpu', 'cuda', 'cuda:1' or 'auto'")
    cuda_kernels()
    return device
