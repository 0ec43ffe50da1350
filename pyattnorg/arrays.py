"""Arrays in, arrays out: NumPy, torch and any DLPack producer become NumPy, and results go back the way they came.

Everything numeric passes through `to_numpy`; nothing here imports torch, it is only recognised.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any  # a NumPy array, a torch tensor or a DLPack producer
FloatArray: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Given:
    """What came in: the values as NumPy float32 or float64, and the way back."""

    values: FloatArray
    back: Callable[[FloatArray], Any]


class MovedToHostWarning(UserWarning):
    """An array on a GPU was copied to this machine's memory, for a function that has no kernels there (docs/gpu.md).

    Told once for every function.
    """


def is_torch(x: object) -> bool:
    """Whether `x` is a torch tensor; torch is not imported to find out."""
    return any(base.__module__.split(".")[0] == "torch" and base.__name__ == "Tensor" for base in type(x).__mro__)


def _torch_to_numpy(x: Any, name: str) -> NDArray[Any]:
    import torch

    if x.layout != torch.strided or x.is_quantized:
        raise TypeError(
            f"{name}: got a {x.layout} torch tensor, expected a dense one; call .to_dense() or .dequantize()"
        )
    if x.device.type == "meta":
        raise TypeError(f"{name}: got a torch tensor on the meta device, which holds no values; load the weights first")
    x = x.detach().resolve_conj().resolve_neg().cpu()  # narrow numbers are widened here: half the way, half the bytes
    if x.dtype in (torch.float16, torch.bfloat16) or str(x.dtype).startswith("torch.float8"):
        x = x.float()
    return np.asarray(x.numpy())


def on_gpu(x: Any) -> bool:
    """Whether `x` is an array on a CUDA device: a torch tensor, or what shows itself by DLPack."""
    if is_torch(x):
        return bool(x.is_cuda)
    device: Callable[[], tuple[int, int]] | None = getattr(x, "__dlpack_device__", None)
    return device is not None and not isinstance(x, np.ndarray) and int(device()[0]) == 2  # kDLCUDA


def as_tensor(x: Any) -> Any:
    """An array on a CUDA device as a torch tensor of the same memory."""
    if is_torch(x):
        return x
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"got a {type(x).__name__} on a GPU: arrays there are torch's, which is not installed"
        ) from None
    return torch.from_dlpack(x)


_told: set[str] = set()  # functions whose moves to the host were told


def _tell_moved(x: Any, name: str) -> None:
    """Warn, once for every function, that an argument leaves the GPU; the function is that which a user called."""
    frame, called, level = sys._getframe(1), "to_numpy", 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pyattnorg"):
        called, frame, level = getattr(frame.f_code, "co_qualname", frame.f_code.co_name), frame.f_back, level + 1
    if called in _told:
        return
    _told.add(called)
    where = x.device if hasattr(x, "device") else "a GPU"
    warnings.warn(
        f"{name}: got an array on {where}; {called} works on it in this machine's memory, copied there (and the result "
        "back, if it is an array). docs/gpu.md tells what runs on a GPU; said once for every function",
        MovedToHostWarning,
        stacklevel=level,
    )


def to_numpy(x: Array, name: str, *, quietly: bool = False) -> NDArray[Any]:
    """Any array as NumPy, without copying where possible (float16 and bfloat16 torch tensors become float32).

    What lies on a GPU is copied, which is told (`MovedToHostWarning`) unless `quietly`.

    Raises
    ------
    TypeError
        Ragged sequences, objects, strings, tensors without values.
    """
    if on_gpu(x):
        if not quietly:
            _tell_moved(x, name)
        x = as_tensor(x)
    if isinstance(x, np.ndarray):
        out = x
    elif is_torch(x):
        out = _torch_to_numpy(x, name)
    elif hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        out = np.from_dlpack(x)
    else:
        try:
            out = np.asarray(x)
        except (ValueError, TypeError) as error:
            raise TypeError(f"{name}: got {type(x).__name__}, which is no rectangular array ({error})") from None
    if out.dtype.kind == "V" and out.dtype.name.startswith(("bfloat16", "float8")):  # NumPy's by way of ml_dtypes
        out = out.astype(np.float32)
    if isinstance(out, np.ma.MaskedArray) and np.ma.is_masked(out):
        raise TypeError(f"{name}: got a masked array; pass its .data and the mask as a boolean array of visible cells")
    if out.dtype.kind not in "fiub":
        raise TypeError(f"{name}: got dtype {out.dtype}, expected real numbers (float16, float32, float64, integers)")
    return np.asarray(out)


def given(x: Array, name: str, *, min_ndim: int = 1, finite: bool = True) -> Given:
    """Values of `x` in the computing dtype, checked to be finite, and how to give a result back.

    float64 and integers compute in float64, every other float in float32. A result goes back as NumPy, or as a
    torch tensor on the device of `x`. With ``finite=False`` the caller finds NaN and infinity in what it computes.
    """
    values = to_numpy(x, name)
    if values.ndim < min_ndim:
        raise ValueError(f"{name}: got shape {values.shape}, expected at least {min_ndim} dimension(s)")
    wide = values.dtype.kind in "iub" or values.dtype.itemsize >= 8
    values = values.astype(np.float64 if wide else np.float32, copy=False)
    if finite:
        require_finite(values, name)
    return Given(values, way_back(x))


def way_back(x: Array) -> Callable[[FloatArray], Any]:
    """What turns a NumPy result into the kind of array that `x` is, on its device."""
    if on_gpu(x):
        x = as_tensor(x)
    if not is_torch(x):
        return lambda out: out

    def back(out: FloatArray) -> Any:
        import torch

        return torch.from_numpy(np.ascontiguousarray(out)).to(x.device)

    return back


def plain(value: Any) -> Any:
    """NumPy numbers and arrays as JSON has them, for ``json.dumps(..., default=plain)``."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")


FLOAT32_LOWEST = float(np.finfo(np.float32).min)
BFLOAT16_LOWEST = -(2.0**128 - 2.0**120)


def mask_values(x: Array) -> tuple[float, ...]:
    """Numbers that mark masked cells in an array of this dtype: -inf and the lowest numbers of model dtypes."""
    if is_torch(x):
        import torch

        own = float(torch.finfo(x.dtype).min) if x.dtype.is_floating_point else -np.inf
    else:
        dtype = to_numpy(x, "x").dtype
        own = float(np.finfo(dtype).min) if dtype.kind == "f" else -np.inf
    return (-np.inf, own, FLOAT32_LOWEST, BFLOAT16_LOWEST)


def require_finite(values: NDArray[Any], name: str) -> None:
    """Raise a ValueError that says where the first NaN or infinity is."""
    # One sum finds any NaN or infinity at memory speed; only then is the place looked for.
    with np.errstate(all="ignore"):
        if np.isfinite(np.sum(values)):
            return
    bad = ~np.isfinite(values)
    if not bad.any():
        return  # the sum overflowed, the values are finite
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    raise ValueError(
        f"{name}: {int(bad.sum())} value(s) are NaN or infinite, the first ({values[where]}) at index {where}; "
        "expected finite numbers: mark masked cells with visible= or remove them"
    )


def squarable(values: FloatArray) -> tuple[FloatArray, int]:
    """Values over a power of two, and its exponent: 0 but for float64 numbers whose squares float64 does not hold."""
    if values.dtype != np.float64 or not values.size:
        return values, 0
    peak = max(float(values.max()), -float(values.min()))
    if not peak or 2.0**-200 < peak < 2.0**200:
        return values, 0
    exponent = int(np.frexp(peak)[1])
    return np.ldexp(values, -exponent), exponent
