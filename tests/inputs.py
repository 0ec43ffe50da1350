"""Inputs that tests of the numeric core share: trees, affinities, and the same numbers in many kinds of array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import pyattnorg as pa
from pyattnorg import _core

FloatArray = NDArray[np.float64]
T = TypeVar("T")


def random_tree(n: int, seed: int) -> pa.PartitionTree:
    """A tree with chains and with folders of more than two children."""
    rng = np.random.default_rng(seed)
    levels = [np.arange(n)]
    while levels[0].max() > 0:
        parts = levels[0].max() + 1
        parent = rng.integers(max(1, parts // 2), size=parts)
        levels.insert(0, np.unique(parent[levels[0]], return_inverse=True)[1])
    return pa.PartitionTree.from_labels(np.stack(levels))


def caterpillar(n: int) -> pa.PartitionTree:
    """The deepest binary tree: n - 1 folders, one inside the other."""
    pairs = np.column_stack([np.arange(1, n), np.append(0, n + np.arange(n - 2))])
    return pa.PartitionTree.from_linkage(np.column_stack([pairs, np.arange(n - 1), np.arange(2, n + 1)]))


def random_affinity(n: int, seed: int, features: int = 3) -> FloatArray:
    """A Gaussian affinity of random points, without ties."""
    x = np.random.default_rng(seed).standard_normal((n, features))
    out: FloatArray = pa.gaussian_affinity(x, neighbors=7)
    return out


def blocks(coupling: float, seed: int = 0, count: int = 4, size: int = 10) -> tuple[FloatArray, NDArray[np.int64]]:
    """Blocks of points whose mutual affinity is multiplied by `coupling`, and the block of every point."""
    n = count * size
    block = np.arange(n) // size
    affinity = np.random.default_rng(seed).uniform(0.5, 1.0, (n, n))
    affinity = np.where(block[:, None] == block, 1.0, coupling) * (affinity + affinity.T) / 2
    np.fill_diagonal(affinity, 1.0)
    return affinity, block


def relative_error(got: NDArray[Any], exact: NDArray[Any]) -> float:
    """Largest relative error; a NaN counts as infinite, and so does anything but 0 where the exact value is 0."""
    got, exact = np.asarray(got, np.float64), np.asarray(exact, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(got == exact, 0.0, np.abs(got - exact) / np.abs(exact))
    return float(np.where(np.isnan(error), np.inf, error).max(initial=0.0))


def on_every_instruction_set(make: Callable[[], T]) -> dict[str, T]:
    """What `make` gives with each of them."""
    before, found = _core.instruction_set(), {}
    try:
        for name in _core.instruction_sets():
            _core.use_instruction_set(name)
            found[name] = make()
    finally:
        _core.use_instruction_set(before)
    return found


# -- the same numbers in other arrays: `x` holds small whole numbers, which every dtype below holds exactly ------------


class OnlyDLPack:
    """An array that shows itself by DLPack alone."""

    def __init__(self, x: NDArray[Any]) -> None:
        self.x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def _strided(x: FloatArray, dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
    wide = np.full([2 * n + 1 for n in x.shape], np.nan, dtype)  # whoever reads a wrong cell finds NaN
    view = wide[tuple(slice(1, None, 2) for _ in x.shape)]
    view[...] = x
    return view


def _read_only(x: FloatArray) -> FloatArray:
    out = x.copy()
    out.flags.writeable = False
    return out


def _unaligned(x: FloatArray) -> NDArray[Any]:
    records = np.zeros(x.shape, np.dtype([("tag", np.int8), ("value", np.float64)]))
    records["value"] = x
    return records["value"]


def _torch(dtype: str, **options: Any) -> Callable[[FloatArray], Any]:
    def make(x: FloatArray) -> Any:
        import torch

        return torch.tensor(x, dtype=getattr(torch, dtype), **options)

    return make


def _torch_transposed(x: FloatArray) -> Any:
    import torch

    axes = tuple(range(x.ndim))[::-1]
    return torch.tensor(np.ascontiguousarray(x.transpose(axes))).permute(axes)


NUMPY_FORMS: dict[str, Callable[[FloatArray], Any]] = {
    "float64": np.array,
    "float32": lambda x: x.astype(np.float32),
    "float16": lambda x: x.astype(np.float16),
    "longdouble": lambda x: x.astype(np.longdouble),
    "int8": lambda x: x.astype(np.int8),
    "int64": lambda x: x.astype(np.int64),
    "big-endian": lambda x: x.astype(">f8"),
    "big-endian float32": lambda x: x.astype(">f4"),
    "Fortran": np.asfortranarray,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "reversed": lambda x: x[tuple(slice(None, None, -1) for _ in x.shape)].copy()[
        tuple(slice(None, None, -1) for _ in x.shape)
    ],
    "strided": _strided,
    "strided float32": lambda x: _strided(x, np.float32),
    "read-only": _read_only,
    "unaligned": _unaligned,
    "list": lambda x: x.tolist(),
    "DLPack": OnlyDLPack,
}
TORCH_FORMS: dict[str, Callable[[FloatArray], Any]] = {
    "torch float64": _torch("float64"),
    "torch float32": _torch("float32"),
    "torch float16": _torch("float16"),
    "torch bfloat16": _torch("bfloat16"),
    "torch int64": _torch("int64"),
    "torch requires_grad": _torch("float32", requires_grad=True),
    "torch transposed": _torch_transposed,
}
FORMS = NUMPY_FORMS | TORCH_FORMS


def computing_dtype(form: str) -> type[np.floating[Any]]:
    """The dtype that results have: float64 for float64 and whole numbers, float32 for every other float."""
    single = ("float32", "float16", "bfloat16", "requires_grad")
    return np.float32 if form.endswith(single) else np.float64
