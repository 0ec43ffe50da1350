"""Kernels on a device: arrays there in, arrays there out, on the caller's stream, with memory from torch's allocator.

Shapes and meanings are those of `pyattnorg.kernels`, which checks arguments; NaN and infinities are not looked for, as
that would wait for the device: they show in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import is_torch
from pyattnorg.device_plans import haar_rounds, walk
from pyattnorg.devices import Memory
from pyattnorg.trees import PartitionTree


def number(x: Any) -> str:
    """Name of the format of an array's numbers."""
    return str(x.dtype).removeprefix("torch.")


def real(x: Any) -> np.dtype[Any]:
    """What is computed in for an array: float64 for float64, float32 for every other format."""
    return np.dtype(np.float64 if number(x) == "float64" else np.float32)


def strides(x: Any) -> tuple[int, ...]:
    """Strides in elements; 0 along axes of one point."""
    steps = x.stride() if is_torch(x) else tuple(s // x.itemsize for s in x.strides)
    return tuple(0 if n <= 1 else int(s) for n, s in zip(x.shape, steps))


def contiguous(x: Any) -> Any:
    """`x` in C order."""
    return x.contiguous() if is_torch(x) else np.ascontiguousarray(x)


def workspace(memory: Memory, n_bytes: int) -> tuple[Any, int]:
    """Memory of so many bytes, and the address in it that is a multiple of 256."""
    room = memory.empty((n_bytes + 256,), np.uint8)
    return room, -(-memory.address(room) // 256) * 256


def pairwise(memory: Memory, x: Any, split: int, term: str, weights: Any | None) -> Any:
    """Sums over features of all pairs, or of points split... against those before; x (n, features)."""
    n, features = (int(size) for size in x.shape)
    dtype, wide = real(x), number(x) == "float64"
    out = memory.empty((n - split, split) if split else (n, n), dtype)
    if 0 in out.shape:
        return out
    room, work = workspace(memory, memory.kernels.pairwise_work(n, features, term, split, wide))
    w = None if weights is None else contiguous(memory.array(weights))
    memory.kernels.pairwise(
        number(x), memory.address(x), (n, features), strides(x), 0 if w is None else memory.address(w), term, split,
        memory.address(out), work, memory.place(),
    )  # fmt: skip
    del room, w  # torch hands memory on in the order of the stream
    return out


def tree_emd(
    memory: Memory,
    x: Any,
    trees: tuple[PartitionTree, PartitionTree],
    weights: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> Any:
    """Tree earth mover's distances; x (n, a, b)."""
    n, wide = int(x.shape[0]), number(x) == "float64"
    out = memory.empty((n, n), real(x))
    if n == 0:
        return out
    a, b = (walk(tree, w, memory) for tree, w in zip(trees, weights))
    room, work = workspace(memory, memory.kernels.tree_emd_work(n, a.program, b.program, wide))
    memory.kernels.tree_emd(
        number(x), memory.address(x), tuple(int(size) for size in x.shape), strides(x), a.program, b.program,
        memory.address(out), work, memory.place(),
    )  # fmt: skip
    del room
    return out


def folder_averages(memory: Memory, x: Any, tree: PartitionTree, axis: int) -> Any:
    """Means over distinct folders in place of an axis."""
    x = contiguous(x)
    shape = tuple(int(size) for size in x.shape)
    out = memory.empty((*shape[:axis], tree.n_folders, *shape[axis + 1 :]), real(x))
    outer, inner = (int(np.prod(part, dtype=np.int64)) for part in (shape[:axis], shape[axis + 1 :]))
    if outer * inner:
        program = walk(tree, np.ones(tree.n_folders), memory).program
        memory.kernels.folder_averages(
            number(x), memory.address(x), outer, inner, program, memory.address(out), memory.place()
        )
    return out


def haar(memory: Memory, x: Any, trees: Sequence[PartitionTree | None], inverse: bool, out: Any | None = None) -> Any:
    """Tree-Haar coefficients along every axis that has a tree, or the way back; into `out` where it is given."""
    x = contiguous(x)
    shape, dtype = tuple(int(size) for size in x.shape), real(x)
    out = memory.empty(shape, dtype) if out is None else out
    source = x
    for axis, tree in enumerate(trees):
        if tree is None or tree.n_leaves == 1 or 0 in shape:
            continue
        outer, inner = (int(np.prod(part, dtype=np.int64)) for part in (shape[:axis], shape[axis + 1 :]))
        rounds = haar_rounds(tree, dtype, memory)
        room, work = workspace(memory, memory.kernels.haar_work(outer, shape[axis], inner, dtype == np.float64))
        memory.kernels.haar(
            number(source), memory.address(source), (outer, shape[axis], inner), rounds.addresses, rounds.n_rounds,
            inverse, memory.address(out), work, memory.place(),
        )  # fmt: skip
        del room
        source = out
    if source is not out:
        out[...] = source
    return out


def norms(memory: Memory, x: Any) -> Any:
    """Sums of magnitudes and of squares, float64 (2,) on the device."""
    x = contiguous(x)
    out = memory.empty((2,), np.float64)
    n = int(np.prod(x.shape, dtype=np.int64))
    room, work = workspace(memory, memory.kernels.norms_work(n))
    memory.kernels.norms(number(x), memory.address(x), n, memory.address(out), work, memory.place())
    del room
    return out


def median(memory: Memory, values: Any) -> Any:
    """The middle two of all entries, the same one twice where their number is odd; (2,) on the device."""
    values = contiguous(values)
    n = int(np.prod(values.shape, dtype=np.int64))
    out = memory.empty((2,), real(values))
    room, work = workspace(memory, memory.kernels.ranked_work())
    memory.kernels.ranked(
        number(values), memory.address(values), n, (n - 1) // 2, memory.address(out), work, memory.place()
    )
    del room
    if n % 2:
        out[1:] = out[:1]
    return out


def cosines(memory: Memory, x: Any) -> Any:
    """Cosines of rows, negative ones 0, ones on the diagonal; x (n, features) of numbers whose squares do not overflow.

    The products are torch's where they are on a GPU, as nothing is quicker at products of matrices.
    """
    n = int(x.shape[0])
    products = _matrix_product(x) if is_torch(x) and x.is_cuda else pairwise(memory, x, 0, "products", None)
    if n:
        room, work = workspace(memory, 8 * n)
        memory.kernels.cosines(number(products), memory.address(products), n, work, memory.place())
        del room
    return products


def _matrix_product(x: Any) -> Any:
    """``x x'`` in full float32, symmetric to the last bit; widened some features at a time."""
    import torch

    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    out = torch.zeros((len(x), len(x)), dtype=dtype, device=x.device)
    step = max(1, 2**26 // max(len(x), 1))
    for begin in range(0, x.shape[1], step):
        some = x[:, begin : begin + step].to(dtype)
        out += full_product(some, some)
    return torch.triu(out) + torch.triu(out, 1).T


def full_product(a: Any, b: Any) -> Any:
    """``a b'`` by torch with all digits of float32: the 10 bits of TF32 are too few for cosines."""
    import torch

    # torch 2.9 has a name of its own for it, and refuses to be asked by the old one where someone has used the new.
    asked, name = torch.backends.cuda.matmul, "fp32_precision"
    full: Any = "ieee"
    if not hasattr(asked, name):
        name, full = "allow_tf32", False
    before = getattr(asked, name)
    setattr(asked, name, full)
    try:
        return a @ b.T
    finally:
        setattr(asked, name, before)


def gaussian(memory: Memory, squares: Any, widths: Any) -> Any:
    """In place: squared distances (n, n) become Gaussian affinities of widths (n,), float64 on the device."""
    n = int(squares.shape[0])
    if n:
        memory.kernels.gaussian(
            number(squares), memory.address(squares), n, memory.address(contiguous(widths)), memory.place()
        )
    return squares


def exponential(memory: Memory, distances: Any, width: float) -> Any:
    """In place: distances d (n, n) become ``exp(-d / width)``."""
    n = int(distances.shape[0])
    if n:
        memory.kernels.exponential(number(distances), memory.address(distances), n, width, memory.place())
    return distances
