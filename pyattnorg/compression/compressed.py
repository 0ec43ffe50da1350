"""A compressed tensor: its bytes, what they say, and any part of the tensor without the rest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.compression.factors import opened
from pyattnorg.compression.quantize import in_dtype
from pyattnorg.head_table import Heads
from pyattnorg.memory import size_text
from pyattnorg.network import NetworkTensor
from pyattnorg.threads import one_blas_thread
from pyattnorg.trees import PartitionTree

Points: TypeAlias = "slice | int | Sequence[int] | NDArray[Any] | None"
ORIGINAL = 4  # bytes of an entry that ratios are of: float32


class Compressed:
    """A tensor as few bytes, made by `pyattnorg.compress` or read by `pyattnorg.load`.

    Of a file only the header is read at first, and then what is asked for.
    """

    def __init__(self, source: bytes | Path) -> None:
        self._stored = opened(source)
        self._about = self._stored.container.parts.about

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the tensor."""
        return self._stored.shape

    @property
    def kind(self) -> str | None:
        """Of a network: "scores", "weights" or "logweights"; None of an array."""
        kind: str | None = self._about.get("kind")
        return kind

    @property
    def nbytes(self) -> int:
        """Bytes of the file, everything in it counted."""
        return self._stored.container.nbytes

    @property
    def ratio(self) -> float:
        """Bytes of the tensor as float32 over `nbytes`."""
        return ORIGINAL * float(np.prod(self.shape)) / self.nbytes

    @property
    def error(self) -> float:
        """``|x - y| / |x|`` over visible cells, of what came and what `reconstruct` gives; measured, not estimated."""
        return float(self._stored.error)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of every part: names ("about"), mask, trees, model (of the coefficients), index, coefficients, rest."""
        return dict(self._stored.container.section_bytes)

    @property
    def form(self) -> str:
        """What is kept: "haar", coefficients of the tensor; "factors", those of every head's singular vectors."""
        return "factors" if self._stored.container.inside else "haar"

    @property
    def n_coefficients(self) -> int:
        """Coefficients that are not 0."""
        return int(self._stored.count)

    @property
    def trees(self) -> tuple[PartitionTree | None, ...]:
        """Tree of every axis; None where its entries are kept as they are."""
        return tuple(self._stored.trees)

    @property
    def bytes_read(self) -> int:
        """Bytes that have been read of the file so far."""
        return self._stored.container.bytes_read

    @cached_property
    def heads(self) -> Heads:
        """The table of heads."""
        return Heads.of(self._about.get("heads"), self.shape[-1])

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of every head."""
        return self.heads.labels

    @property
    def names(self) -> dict[str, tuple[str, ...] | None]:
        """Tokens of "queries" and "keys"; None where they are not known."""
        found = {axis: self._about.get(axis) for axis in ("queries", "keys")}
        return {axis: None if told is None else tuple(told) for axis, told in found.items()}

    @property
    def visible(self) -> NDArray[np.bool_] | None:
        """Cells that the model can see: of `shape`, or of queries and keys for all heads; None where all are."""
        cells = self._stored.cells
        return None if cells is None else cells.copy()

    # -- getting it back ----------------------------------------------------------------------------------------

    def reconstruct(self) -> Any:
        """The tensor as it came: a NetworkTensor with its names and visible cells, a NumPy array or a torch tensor.

        Cells that the model cannot see hold 0 (in arrays the number that marked them), and are marked as invisible.
        """
        values = self.block(*[None] * len(self.shape))
        if self.kind is not None:
            names = {name: self._about[name] for name in ("queries", "keys", "meta")}
            cells = self._stored.cells
            return NetworkTensor(values, kind=self.kind, visible=cells, heads=self.heads, **names)  # type: ignore[arg-type]
        if self._about.get("array") == "torch":
            import torch

            return torch.from_numpy(values)
        return values

    def head(self, label: str | int) -> FloatArray:
        """One head's matrix by label or position (of other tensors: one point of the last axis), without the rest.

        Raises
        ------
        KeyError
            No such head.
        TypeError
            Neither a label nor a whole number.
        """
        if self.kind is None and isinstance(label, str):
            raise KeyError(f"no head {label!r}: this is an array, whose last axis has no names; give a position")
        at = self._position(label)
        found: FloatArray = self.block(*[None] * (len(self.shape) - 1), [at])[..., 0]
        return found

    __getitem__ = head

    def block(self, *points: Points) -> FloatArray:
        """Some points of every axis, such as ``block(slice(0, 16), None, ["L3H5"])``; shape (points, points, ...).

        Only coefficients whose functions do not vanish on all of them are read and used.

        Parameters
        ----------
        *points : slice, int, sequence of ints, bool array, or None
            One an axis (queries, keys, heads), None for all; what is left out is None. Heads may be labels. They come
            back in the order asked for, a point as often as it is named; the axis of a single one stays.

        Raises
        ------
        ValueError, KeyError, TypeError
            No points, points that are not there, and what is no point.
        """
        some = self._points(points)
        with one_blas_thread(), self._stored.named():
            return self._finished(self._stored.block(self._stored.inner_points(some)), some)

    def cost(self, *points: Points) -> dict[str, int]:
        """What `block` has to look at: ``coefficients`` needed, those ``decoded`` with them, and ``bytes`` of these."""
        return self._stored.cost(self._stored.inner_points(self._points(points)))

    def _position(self, label: Any) -> int:
        n = self.shape[-1]
        if not isinstance(label, str):
            if isinstance(label, (bool, np.bool_)) or not hasattr(label, "__index__"):
                raise TypeError(f"head: got {label!r}, expected a label or a position from 0 to {n - 1}")
            at = int(label)
            if not -n <= at < n:
                raise KeyError(f"no head {at}; there are {n}, counted from 0")
            return at % n
        if label not in self.labels:
            raise KeyError(f"no head {label!r}; there are {n}, such as {', '.join(self.labels[:3])}")
        return self.labels.index(label)

    def _points(self, points: Sequence[Any]) -> list[NDArray[np.int64] | None]:
        """Points of every axis as positions, None for all."""
        if len(points) > len(self.shape):
            raise ValueError(f"points: got those of {len(points)} axes, the tensor has {len(self.shape)}")
        found: list[NDArray[np.int64] | None] = []
        for axis, (some, n) in enumerate(zip([*points, *[None] * (len(self.shape) - len(points))], self.shape)):
            if some is None or (isinstance(some, slice) and some == slice(None)):
                found.append(None)
                continue
            at: NDArray[Any]
            if isinstance(some, slice):
                at = np.arange(n)[some]
            elif (mask := _mask(some)) is not None:
                at = np.flatnonzero(mask) if len(mask) == n else np.empty(0)
            elif axis == len(self.shape) - 1 and self.kind is not None:
                several = [some] if isinstance(some, (str, int, np.integer)) else list(some)
                at = np.array([self._position(one) for one in several], np.int64)
            else:
                at = np.atleast_1d(np.asarray(some))
            if at.dtype.kind not in "iu" or at.ndim != 1 or not len(at) or (at < -n).any() or (at >= n).any():
                raise ValueError(
                    f"points: got {some!r} for axis {axis}, expected some of its {n} points: a slice, positions, "
                    f"or {n} booleans"
                )
            found.append(at.astype(np.int64) % n)
        return found

    def _finished(self, values: NDArray[np.float64], points: Sequence[NDArray[np.int64] | None]) -> FloatArray:
        """In the dtype that came, with nothing in invisible cells."""
        out: FloatArray = in_dtype(values, self._about)
        if not np.isfinite(out).all():
            raise ValueError("its numbers are damaged")
        cells = self._stored.cells
        if cells is not None:
            for axis, some in enumerate(points[: cells.ndim]):
                cells = cells if some is None else np.take(cells, some, axis=axis)
            deep = cells.reshape(cells.shape + (1,) * (out.ndim - cells.ndim))
            out = np.where(deep, out, out.dtype.type(float(self._about.get("hidden", 0.0))))
        return out

    # -- keeping and showing it ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the file, `nbytes` long; `pyattnorg.load` reads it."""
        from pyattnorg.store import write_atomically

        data = self.to_bytes()

        def write(file: BinaryIO) -> None:
            file.write(data)

        write_atomically(path, write, overwrite=overwrite)

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        with self._stored.named():
            return self._stored.container.whole()

    def to_dict(self) -> dict[str, Any]:
        """The figures, JSON-ready."""
        return {
            "kind": self.kind,
            "form": self.form,
            "shape": list(self.shape),
            "bytes": self.nbytes,
            "ratio": self.ratio,
            "error": self.error,
            "coefficients": self.n_coefficients,
            "trees": [tree is not None for tree in self.trees],
            "sizes": self.sizes,
        }

    def summary(self) -> str:
        """What it takes, in a few lines."""
        shape = " x ".join(map(str, self.shape))
        axes = ("queries", "keys", "heads") if self.kind else tuple(f"axis {i}" for i in range(len(self.shape)))
        kept = [name for name, tree in zip(axes, self.trees) if tree is not None]
        total = f"{int(np.prod(self.shape)):,} coefficients"
        if self.form == "factors":
            total = "those of singular vectors"
        return "\n".join(
            [
                f"{self.kind or 'array'} {shape}: {size_text(self.nbytes)}, 1/{self.ratio:.1f} of float32",
                f"relative error {self.error:.2%}, {self.n_coefficients:,} of {total}",
                f"trees of: {', '.join(kept) or 'no axis'}",
                "bytes: " + ", ".join(f"{name} {size:,}" for name, size in self.sizes.items()),
            ]
        )

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return (
            f"Compressed({self.kind or 'array'}, {shape}, {size_text(self.nbytes)}, "
            f"ratio {self.ratio:.1f}, error {self.error:.2%})"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def _mask(points: Any) -> NDArray[np.bool_] | None:
    """Points as an array, if they are booleans in a row."""
    if isinstance(points, (str, bytes)) or not hasattr(points, "__len__"):
        return None
    if not isinstance(points, np.ndarray) and not all(isinstance(one, (bool, np.bool_)) for one in points):
        return None
    found = np.asarray(points)
    return found if found.dtype == np.bool_ and found.ndim == 1 else None
