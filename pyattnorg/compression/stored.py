"""What a file holds, and coefficients of it: all, or those whose functions do not vanish on a block."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.checks import DamagedFileError
from pyattnorg.compression import coder
from pyattnorg.compression.container import Container, Parts, written
from pyattnorg.compression.mask_code import mask_from_bytes, mask_to_bytes
from pyattnorg.compression.model import Model, model_from_bytes, model_to_bytes
from pyattnorg.compression.order import AxisOrder, functions_at
from pyattnorg.compression.quantize import OWN, Quantised, restored
from pyattnorg.compression.tree_code import tree_from_bytes, tree_to_bytes
from pyattnorg.haar import ihaar
from pyattnorg.head_table import Heads
from pyattnorg.network import KINDS
from pyattnorg.trees import PartitionTree

Ints = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
CELLS = 1 << 44  # of a tensor, at most
FARTHEST = 1100  # exponents of float64, denormal ones as well
FIXED = struct.Struct(f"<ddQ{OWN}B")  # step, error, coefficients that are not 0, parts


def _check_told(about: dict[str, Any], shape: tuple[int, ...]) -> None:
    """ValueError where what a header tells of a tensor does not go together."""
    if not shape or min(shape) < 1 or float(np.prod(shape, dtype=np.float64)) > CELLS:
        raise ValueError(f"it has shape {shape}")
    if about.get("dtype", "f8") not in ("f4", "f8") or abs(int(about.get("exponent", 0))) > FARTHEST:
        raise ValueError("its numbers are of no known kind")
    float(about.get("hidden", 0.0))
    if about.get("kind") is None:
        return
    if about["kind"] not in KINDS or len(shape) != 3 or not isinstance(about["meta"], dict):
        raise ValueError("it is of no known kind")
    Heads.of(about.get("heads"), shape[2])
    for axis, n in zip(("queries", "keys"), shape):
        names = about[axis]
        if names is not None and (len(names) != n or not all(isinstance(name, str) for name in names)):
            raise ValueError(f"its {axis} do not fit its shape")


def layout_of(
    trees: Sequence[PartitionTree | None], shape: Sequence[int], longest: int = coder.LONGEST
) -> tuple[list[AxisOrder], coder.Layout]:
    """The order of every axis, and the 3-tensor of coefficients that is coded: the inner axes are taken as one."""
    orders = [AxisOrder.of(tree, n) for tree, n in zip(trees, shape)]
    ends = orders if len(orders) > 2 else [*orders, *[AxisOrder.of(None, 1)] * (3 - len(orders))]
    beside = ends[1].above
    for order in ends[2:-1]:  # what lies above along the innermost of them
        n = len(order.above)
        beside = np.where(order.above >= 0, np.arange(len(beside))[:, None] * n + order.above, -1).ravel()
    shape3 = len(ends[0].above), len(beside), len(ends[-1].above)
    return orders, coder.Layout(shape3, ends[0].above, beside, longest)


def as_coded(q: Ints, orders: Sequence[AxisOrder], layout: coder.Layout) -> Ints:
    """Whole numbers in the order that they are stored in, (heads, rows, middle)."""
    moved = q[np.ix_(*(order.functions for order in orders))].reshape(layout.shape)
    return np.ascontiguousarray(np.moveaxis(moved, 2, 0))


def file_bytes(
    found: Quantised,
    trees: Sequence[PartitionTree | None],
    mask: BoolArray | None,
    about: dict[str, Any],
    error: float,
    *,
    sized: bool = False,
) -> bytes:
    """The file of a tensor of whole numbers; `sized`: one about as long, which takes less time."""
    shape = found.q.shape
    orders, layout = layout_of(trees, shape, about.get("longest", coder.LONGEST))
    model, strips = coder.encode(as_coded(found.q, orders, layout), layout, sized=sized)
    if mask is not None and mask.ndim != 2:
        mask = mask.reshape(mask.shape[0], -1, mask.shape[-1] if mask.ndim > 2 else 1)
    parts = Parts(
        about=about | {"inner": shape} if tuple(about["shape"]) != shape else about,
        fixed=FIXED.pack(found.step, error, np.count_nonzero(found.q), *found.parts),
        mask=mask_to_bytes(mask),
        trees=[b"" if tree is None else tree_to_bytes(tree) for tree in trees],
        model=model_to_bytes(model),
        sizes=np.array([len(strip) for strip in strips], np.int64),
    )
    return written(parts, strips)


class Stored:
    """Reads coefficients, trees and cells; what does not read is a DamagedFileError that names the file."""

    def __init__(self, container: Container, name: str) -> None:
        self.name, self.container = name, container
        with self.named():
            about = self.container.parts.about
            self.shape = tuple(int(n) for n in about["shape"])
            self.inner = tuple(int(n) for n in about.get("inner", self.shape))
            self.step, self.error, self.count, *parts = FIXED.unpack(self.container.parts.fixed)
            self.offsets = tuple(parts)
            if len(self.container.parts.trees) != len(self.inner) or min(self.inner) < 1:
                raise ValueError("its trees do not fit its shape")
            _check_told(about, self.shape)
            if not np.isfinite([self.step, self.error, *self.offsets]).all() or self.step < 0 or self.error < 0:
                raise ValueError("its numbers are damaged")

    def named(self) -> AbstractContextManager[None]:
        """Whatever does not read within it is the file's fault."""
        return self.naming(self.name)

    @staticmethod
    @contextmanager
    def naming(name: str) -> Iterator[None]:
        """Turns what zlib, json and NumPy stumble over into a DamagedFileError."""
        try:
            yield
        except (OSError, MemoryError, DamagedFileError):
            raise
        except Exception as error:
            raise DamagedFileError(f"{name} is no readable compressed tensor: {error}") from None

    @cached_property
    def trees(self) -> list[PartitionTree | None]:
        """The tree of every axis, None where entries are kept as they are."""
        with self.named():
            return [
                tree_from_bytes(data, n) if data else None for data, n in zip(self.container.parts.trees, self.inner)
            ]

    @cached_property
    def cells(self) -> BoolArray | None:
        """Visible cells: of `shape`, or of its first two axes; None where all are."""
        with self.named():
            n, *rest = self.shape
            if len(rest) < 2 or (self.container.parts.mask and self.container.parts.mask[0] == 2):
                found = mask_from_bytes(self.container.parts.mask, (n, rest[0] if rest else 1, 1))
                return found.reshape(self.shape) if found is not None and len(rest) < 2 else found
            found = mask_from_bytes(self.container.parts.mask, (n, int(np.prod(rest[:-1])), rest[-1]))
            return None if found is None else found.reshape(self.shape)

    def inner_points(self, points: Sequence[Ints | None]) -> list[Ints | None]:
        """Points among the queries and keys that are kept; any for the others, whose cells are all invisible."""
        out = list(points)
        if self.inner == self.shape:
            return out
        cells = self.cells
        assert cells is not None
        deep = cells[:, :, None] if cells.ndim == 2 else cells
        for axis, others in enumerate(((1, 2), (0, 2))):
            kept: BoolArray = np.asarray(deep.any(others))
            wanted = np.arange(len(kept)) if out[axis] is None else out[axis]
            out[axis] = np.clip(np.cumsum(kept) - 1, 0, None)[wanted]
        return out

    @cached_property
    def _coding(self) -> tuple[list[AxisOrder], coder.Layout, Model]:
        trees = self.trees
        with self.named():
            longest = int(self.container.parts.about.get("longest", coder.LONGEST))
            orders, layout = layout_of(trees, self.inner, max(1, longest))
            if len(self.container.parts.sizes) != layout.shape[2] * layout.stretches:
                raise ValueError("its coefficients do not fit its shape")
            return orders, layout, model_from_bytes(self.container.parts.model, layout.shape)

    def coefficients(self, needed: Sequence[Ints | None] | None = None) -> NDArray[np.float64]:
        """Coefficients in the numbering of `pyattnorg.haar`: all, or those of some functions of every axis.

        `needed` has rising numbers of functions of every axis, None for all.
        """
        orders, layout, model = self._coding
        wanted = [None] * len(orders) if needed is None else list(needed)
        places = [self._place(axis) if some is None else self._place(axis)[some] for axis, some in enumerate(wanted)]
        heads, stretches = self._strips(wanted)
        with self.named():
            data, sizes = self.container.strips((heads[:, None] * layout.stretches + stretches).ravel())
            q, rows = coder.decode(data, sizes, model, layout, heads, stretches)
        row = np.searchsorted(rows, places[0])
        head = np.searchsorted(heads, places[-1]) if len(places) > 2 else np.zeros(1, np.int64)
        middle = np.zeros(1, np.int64)
        for axis, place in enumerate(places[1:-1] if len(places) > 2 else places[1:], 1):
            middle = (middle[:, None] * self.inner[axis] + place).ravel()
        q = q[np.ix_(head, row, middle)]
        shape = [len(place) for place in places]
        some = np.moveaxis(q, 0, 2).reshape(shape)
        return restored(Quantised(some, self.step, self.offsets))

    def block(self, points: Sequence[Ints | None]) -> NDArray[np.float64]:
        """Some points of every axis, None for all; only coefficients whose functions see them are used."""
        parts = [
            None if some is None else functions_at(tree, some, n)
            for tree, some, n in zip(self.trees, points, self.inner)
        ]
        c = self.coefficients([None if part is None else part[0] for part in parts])
        for axis, part in enumerate(parts):
            if part is not None:
                c = np.moveaxis(np.tensordot(part[1], c, axes=(1, axis)), 0, axis)
        whole = [None if part is not None else tree for tree, part in zip(self.trees, parts)]
        out: NDArray[np.float64] = ihaar(np.ascontiguousarray(c), whole)
        return out

    def cost(self, points: Sequence[Ints | None]) -> dict[str, int]:
        """What `block` looks at: coefficients needed, those decoded with them, bytes of the strips that hold them."""
        needed = [
            None if some is None else functions_at(tree, some, n)[0]
            for tree, some, n in zip(self.trees, points, self.inner)
        ]
        count = int(np.prod([n if some is None else len(some) for some, n in zip(needed, self.inner)]))
        _, layout, _ = self._coding
        heads, stretches = self._strips(needed)
        which = (heads[:, None] * layout.stretches + stretches).ravel()
        rows = np.minimum(layout.stretch, layout.shape[0] - stretches * layout.stretch).sum()
        return {
            "coefficients": count,
            "decoded": int(rows * layout.shape[1] * len(heads)),
            "bytes": int(self.container.parts.sizes[which].sum()),
        }

    def _place(self, axis: int) -> Ints:
        order = self._coding[0][axis].functions
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return place

    def _strips(self, needed: Sequence[Ints | None]) -> tuple[Ints, Ints]:
        """Functions of the last axis and stretches of the first whose strips hold what is needed."""
        _, layout, _ = self._coding
        last = needed[-1] if len(self.inner) > 2 else None
        heads = np.arange(layout.shape[2]) if last is None else np.sort(self._place(len(self.inner) - 1)[last])
        first = needed[0]
        rows = np.arange(layout.shape[0]) if first is None else self._place(0)[first]
        return heads, np.unique(rows // layout.stretch)
