"""What the public functions do with arrays that lie on a GPU: the same, there, without waiting for it.

Shapes are checked as for any array; NaN and infinities show in the result instead of being looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg import device_kernels
from pyattnorg.arrays import as_tensor
from pyattnorg.devices import Memory
from pyattnorg.trees import PartitionTree

CHUNK = 2**26  # numbers of a matrix that are widened at a time


def tensor(memory: Memory, x: Any, name: str, min_ndim: int) -> Any:
    """`x` as a tensor on its device in a format that kernels read; checked for its number of axes."""
    found = memory.array(as_tensor(x))
    if found.ndim < min_ndim:
        raise ValueError(f"{name}: got shape {tuple(found.shape)}, expected at least {min_ndim} dimension(s)")
    return found


def rows(x: Any) -> Any:
    """Points as rows, further axes flattened."""
    return x.reshape(x.shape[0], int(np.prod(x.shape[1:], dtype=np.int64)))


def pairwise_l1(memory: Memory, x: Any, y: Any | None, weights: Any | None) -> Any:
    """`pyattnorg.pairwise_l1`."""
    import torch

    points = tensor(memory, x, "x", 2)
    flat, split = rows(points), 0
    if y is not None:
        others = rows(tensor(memory, y, "y", 2))
        if others.shape[1:] != flat.shape[1:]:
            raise ValueError(f"y: got {others.shape[1]} features, expected {flat.shape[1]} as x has")
        split = len(others)
        if split == 0 or len(flat) == 0:
            return memory.empty((len(flat), split), device_kernels.real(flat))
        flat = torch.cat([others.to(torch.promote_types(others.dtype, flat.dtype)), flat])
    w = None
    if weights is not None:
        w = memory.array(weights)
        if tuple(w.shape) not in (tuple(points.shape[1:]), tuple(flat.shape[1:])):
            raise ValueError(
                f"weights: got shape {tuple(w.shape)}, expected that of one point, {tuple(points.shape[1:])}"
            )
        w = w.reshape(-1).to(torch.float64 if flat.dtype == torch.float64 else torch.float32)
    return device_kernels.pairwise(memory, flat, split, "l1", w)


def tree_distances(
    memory: Memory, x: Any, trees: Sequence[PartitionTree], weights: Sequence[NDArray[np.float64]]
) -> Any:
    """`pyattnorg.distances.tree_distances`: by trees and weights that fit; any number of axes."""
    if len(trees) == 1:
        root = PartitionTree.dyadic(1)
        return device_kernels.tree_emd(memory, x[:, :, None], (trees[0], root), (weights[0], np.ones(1)))
    if len(trees) == 2:
        if trees[1].n_folders > 4 * trees[0].n_folders and trees[0].n_leaves > 1:
            x, trees, weights = x.swapaxes(1, 2), trees[::-1], weights[::-1]
        return device_kernels.tree_emd(memory, x, (trees[0], trees[1]), (weights[0], weights[1]))
    averages = device_kernels.folder_averages(memory, x, trees[0], 1)
    out: Any = None
    for i, w in enumerate(weights[0].tolist()):
        if w:
            part = tree_distances(memory, averages[:, i], trees[1:], weights[1:])
            part *= w
            out = part if out is None else out.add_(part)
    return x.new_zeros((len(x), len(x))) if out is None else out


def cosine_affinity(memory: Memory, x: Any, missing: float | None) -> Any:
    """`pyattnorg.cosine_affinity`."""
    import torch

    flat = rows(tensor(memory, x, "x", 1))
    if missing is None:
        return device_kernels.cosines(memory, flat)
    known = ~(torch.isnan(flat) | (flat == missing))
    flat = torch.where(known, flat, torch.zeros((), dtype=flat.dtype, device=flat.device))
    out, mine = _zeros(flat), _zeros(flat)
    for begin in range(0, flat.shape[1], max(1, CHUNK // max(len(flat), 1))):
        part = slice(begin, begin + max(1, CHUNK // max(len(flat), 1)))
        wide = flat[:, part].to(out.dtype)
        out += device_kernels.full_product(wide, wide)
        mine += device_kernels.full_product(known[:, part].to(out.dtype), wide.square())
    lengths = mine.double() * mine.T.double()
    cosines = (out.double() / lengths.sqrt()).clamp(0, 1)
    out = torch.where(lengths > 0, cosines, torch.zeros_like(cosines)).to(out.dtype)
    out = torch.triu(out) + torch.triu(out, 1).T
    out.fill_diagonal_(1)
    return out


def _zeros(flat: Any) -> Any:
    import torch

    dtype = torch.float64 if flat.dtype == torch.float64 else torch.float32
    return torch.zeros((len(flat), len(flat)), dtype=dtype, device=flat.device)


def gaussian_affinity(memory: Memory, x: Any, neighbors: int, scale: float) -> Any:
    """`pyattnorg.gaussian_affinity`."""
    import torch

    flat = rows(tensor(memory, x, "x", 1))
    squares = device_kernels.pairwise(memory, flat, 0, "squares", None)
    n = len(flat)
    if n == 0:
        return squares
    nearest = torch.topk(squares.double(), min(neighbors, n), dim=1, largest=False, sorted=True).values.sqrt()
    k = nearest.shape[1]
    widths = (nearest[:, (k - 1) // 2] + nearest[:, k // 2]) / 2
    widths = torch.where(widths == 0, torch.full_like(widths, 1 / scale), widths) * scale
    return device_kernels.gaussian(memory, squares, widths)


def dual_affinity(memory: Memory, distances: Any, scale: float) -> Any:
    """`pyattnorg.dual_affinity`. The median is waited for: the affinity needs it as a number."""
    import torch

    e = tensor(memory, distances, "distances", 2)
    if e.shape[0] != e.shape[1]:
        raise ValueError(f"distances: got shape {tuple(e.shape)}, expected a square matrix (n, n)")
    out = e.to(torch.float64 if e.dtype == torch.float64 else torch.float32, copy=True).contiguous()
    if out.numel() == 0:
        return out
    lower, upper = memory.host(device_kernels.median(memory, out)).tolist()
    middle = (lower + (upper - lower) / 2) or 1.0
    return device_kernels.exponential(memory, out, middle * scale)


def haar(memory: Memory, x: Any, trees: Sequence[PartitionTree | None], inverse: bool) -> Any:
    """`pyattnorg.haar` and `pyattnorg.ihaar`."""
    values = tensor(memory, x, "x", 0)
    if len(trees) != values.ndim:
        raise ValueError(
            f"trees: got {len(trees)}, x has {values.ndim} axes; give one for each, None to leave it alone"
        )
    for axis, tree in enumerate(trees):
        if tree is not None and tree.n_leaves != values.shape[axis]:
            raise ValueError(
                f"tree: got one of {tree.n_leaves} leaves for axis {axis} of x, which has {values.shape[axis]} points"
            )
    return device_kernels.haar(memory, values, trees, inverse)


def norms(memory: Memory, x: Any) -> tuple[float, float]:
    """Sums of magnitudes and of squares; waits for them."""
    magnitudes, squares = memory.host(device_kernels.norms(memory, tensor(memory, x, "c", 0))).tolist()
    return magnitudes, squares
