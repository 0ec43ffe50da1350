"""Where the rows of a map lie among the tokens: an index tensor goes the same way through the model as the tokens do.

Windowed attention rolls, pads and cuts the grid of tokens before it looks at it. What moves a tensor (a view, a roll, a
pad) is done to the index too; what works on every position by itself (a norm, a linear layer, a convolution that keeps
the grid) leaves it as it is. Anything else loses it, and the next module that gets the tensor starts anew.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyattnorg.capture.products import function_name

_MOVES = {
    "view", "reshape", "permute", "transpose", "contiguous", "flatten", "unflatten", "squeeze", "unsqueeze", "roll",
    "expand", "__getitem__", "chunk", "split", "unbind", "unfold", "movedim", "moveaxis", "swapaxes", "swapdims",
    "narrow", "select", "index_select", "flip", "clone", "tensor_split",
}  # fmt: skip
_PRODUCTS = {"matmul", "__matmul__", "bmm", "scaled_dot_product_attention"}
_POOLS = {"amax", "mean", "max_pool2d", "avg_pool2d"}


@dataclass(frozen=True)
class Rows:
    """Example and token of every row of an operand, shaped as its axes but the last; -1 where padding was put in."""

    example: NDArray[np.int64]
    token: NDArray[np.int64]
    grid: tuple[int, ...]  # sizes of the axes that tokens were counted over
    examples: int = 1  # size of the first axis, where they were counted

    def fit(self, lead: tuple[int, ...]) -> Rows | None:
        """The same rows with other leading axes: broadcast, or the same number arranged anew; None if neither fits."""
        shape = (*lead, self.token.shape[-1])
        if int(np.prod(shape)) == self.token.size:
            return Rows(self.example.reshape(shape), self.token.reshape(shape), self.grid, self.examples)
        try:
            example, token = (np.broadcast_to(x, shape) for x in (self.example, self.token))
            return Rows(example, token, self.grid, self.examples)
        except ValueError:
            return None


@dataclass(frozen=True)
class Origin:
    """A tensor whose elements were numbered, and when: the how-many-th of its forward."""

    number: int
    shape: tuple[int, ...]


class Positions:
    """Index tensors of the tensors being followed, by identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], Tensor, Origin]] = {}
        self._started = 0

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def start(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Number the elements of a module's first tensor, if nothing is known of where they come from."""
        x = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
        if x is None or x.ndim not in (3, 4) or not x.is_floating_point() or self._get(x) is not None:
            return
        if 0 < x.numel() < 2**31:
            ids = torch.arange(x.numel(), dtype=torch.int32, device=x.device).reshape(x.shape)
            self._started += 1
            self._put(x, ids, Origin(self._started, tuple(x.shape)))

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Carry the index of an argument over to the result of a function."""
        with contextlib.suppress(RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
            self._follow(func, args, kwargs, out)  # what cannot be done to an index loses it

    def _follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        name = function_name(func)
        given = (*args, *kwargs.values())
        if name == "cat" and args and isinstance(args[0], (list, tuple)):
            return self._cat(func, args, kwargs, out)
        known = [(a, *found) for a in given if isinstance(a, Tensor) and (found := self._get(a)) is not None]
        if not known:
            return None
        # a sum of what came long ago and what was numbered anew on a side way: the former says where it is
        x, ids, origin = min(known, key=lambda k: k[2].number)
        if func is torch.nn.functional.unfold:  # integers cannot; padding there is 0
            made = func((ids + 1).double(), *args[1:], **kwargs).to(torch.int32) - 1
        elif name in _MOVES:
            made = func(*[ids if a is x else a for a in args], **{k: ids if v is x else v for k, v in kwargs.items()})
        elif name == "__iter__":
            made = ids.unbind(0)
        elif name == "pad":
            values = {k: v for k, v in kwargs.items() if k not in ("mode", "value", "input")}
            widths = values.pop("pad", args[1] if len(args) > 1 else None)
            made = None if widths is None else torch.nn.functional.pad(ids, list(widths), value=-1)
        elif name in _POOLS and isinstance(out, Tensor):
            made = _pooled(name, ids, args, kwargs, out)
        elif name in _PRODUCTS:
            return self._product(args, kwargs, out)
        elif not isinstance(out, Tensor) or out.ndim != x.ndim or name == "einsum":
            return None
        elif name == "linear" and out.shape[:-1] == x.shape[:-1]:
            made = ids[..., :1].expand(out.shape)
        elif name == "conv2d" and x.ndim == 4:
            made = _strided(ids[:, :1], out.shape[2:])
            made = None if made is None else made.expand(out.shape)
        elif out.shape == x.shape:
            made = ids
        else:
            return None
        for one, index in zip(_several(out), _several(made), strict=False):
            if isinstance(one, Tensor) and isinstance(index, Tensor) and one.shape == index.shape:
                self._put(one, index, origin)
        return None

    def rows(self, x: Any, width: int = -1) -> Rows | None:
        """Where the rows of an operand lie (all axes but that of the width); None where that is not known."""
        found = self._get(x)
        if found is None:
            return None
        try:
            ids = found[0].select(width, 0).cpu().numpy().astype(np.int64)
        except RuntimeError:  # tensors that have no numbers, as in a survey of shapes
            return None
        return _rows(ids, found[1].shape)

    def _cat(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        found = [self._get(a) for a in args[0]]
        known = [f for f in found if f is not None]
        if len(known) == len(found) and len({f[1] for f in known}) == 1:
            self._put(out, func([f[0] for f in known], *args[1:], **kwargs), known[0][1])

    def _product(self, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Rows of a product are those of its first operand, if these are tokens: queries, or what they give to values.

        Where channels come first it is the columns, and those of the second operand.
        """
        given = [*args, *kwargs.values()][:2]
        if len(given) < 2 or not isinstance(out, Tensor):
            return
        left, right = (self._get(x) for x in given)
        if left is not None and out.shape[:-1] == given[0].shape[:-1] and not _varies(left[0], -1):
            self._put(out, left[0][..., :1].expand(out.shape), left[1])
        elif right is not None and out.shape[-1] == given[1].shape[-1] and not _varies(right[0], -2):
            with contextlib.suppress(RuntimeError):
                self._put(out, right[0][..., :1, :].expand(out.shape), right[1])

    def _get(self, x: Any) -> tuple[Tensor, Origin] | None:
        found = self._known.get(id(x))
        return (found[1], found[2]) if found is not None and found[0]() is x else None

    def _put(self, x: Tensor, ids: Tensor, origin: Origin) -> None:
        known, key = self._known, id(x)

        def gone(_: weakref.ref[Tensor]) -> None:  # an index is as large as its tensor, and is to live no longer
            known.pop(key, None)

        known[key] = (weakref.ref(x, gone), ids, origin)


def _varies(ids: Tensor, axis: int) -> bool:
    """Whether tokens lie along an axis."""
    return ids.ndim < -axis or bool((ids.select(axis, 0) != ids.select(axis, -1)).any())


def _pooled(name: str, ids: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> Tensor | None:
    """Pooled tokens go by the first of those that were pooled."""
    if name in ("amax", "mean"):
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        return ids.select(axis, 0) if isinstance(axis, int) and out.ndim == ids.ndim - 1 else None
    return _strided(ids, out.shape[-2:])


def _strided(ids: Tensor, size: Sequence[int]) -> Tensor | None:
    """Every so many rows and columns, as many as `size` says; what is merged goes by its first pixel."""
    steps = [n // m for n, m in zip(ids.shape[-2:], size, strict=True)]
    if not all(steps):
        return None
    taken = ids[..., :: steps[0], :: steps[1]][..., : size[0], : size[1]]
    return taken if tuple(taken.shape[-2:]) == tuple(size) else None


def _several(x: Any) -> Sequence[Any]:
    return x if isinstance(x, (list, tuple)) else [x]


def _rows(ids: NDArray[np.int64], origin: tuple[int, ...]) -> Rows:
    """Element numbers of a tensor of shape `origin` as examples and tokens: channels are all the first one."""
    coordinates = np.unravel_index(np.maximum(ids, 0), origin)
    example = np.where(ids >= 0, coordinates[0], -1)
    axes = [i for i in range(1, len(origin)) if coordinates[i].any()] or [len(origin) - 2]
    grid = tuple(origin[i] for i in axes)
    token = np.ravel_multi_index([coordinates[i] for i in axes], grid)
    return Rows(example, np.where(ids >= 0, token, -1).astype(np.int64), grid, origin[0])


__all__ = ["Positions", "Rows"]
