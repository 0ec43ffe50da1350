"""One attention layer as it arrived: NumPy arrays and what was noticed about them. No torch here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.capture.qk import QueriesKeys

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Place:
    """Where in the model a record comes from.

    `prefix` is the path before the stack of layers (None where there is no stack), `suffix` the path after it,
    `number` the layer as the path counts it (None where only the order of calls counts).
    """

    module: str
    prefix: str | None
    suffix: str
    number: int | None
    cross: bool

    @property
    def series(self) -> tuple[str | None, str, bool]:
        """Records of one series are numbered together."""
        return self.prefix, "" if self.prefix is None else self.suffix, self.cross


@dataclass
class Record:
    """Maps of one call, (heads, queries, keys), and its row of the report.

    Each map is an array, None where it was not kept, or something with `shape`, `dtype` and ``head(i, rows)`` that
    reads one head: see `layered`. `shape` is what the model computed, `rows` and `columns` what was kept of it.
    """

    place: Place
    layer: int
    heads: NDArray[np.int64]
    kv_group: NDArray[np.int64]
    scores: Any
    weights: Any
    visible: Any  # bools (queries, keys) or (heads, queries, keys), or Spans; None: everything
    raw: bool  # invisible cells of the scores hold what was computed before masking
    padding: BoolArray | None  # (keys,) True where the call itself said "padding", and queries are the same tokens
    shape: tuple[int, int, int]
    row: dict[str, Any]
    rows: tuple[int, int, int] | None = None  # start, stop, step of the queries that were kept; None: all
    columns: tuple[int, int, int] | None = None  # of the keys
    qk: QueriesKeys | None = None


class Report(list[dict[str, Any]]):
    """What was noticed per layer: a list of dicts, one a layer, printed as a table."""

    COLUMNS = (
        "group", "layer", "module", "backend", "dtype", "shape", "mask", "visible", "nonfinite", "row_sums",
        "sink_mass", "softmax_error", "output_error", "dropout", "seconds", "bytes",
    )  # fmt: skip

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(rows)

    def column(self, name: str) -> list[Any]:
        """One column, such as ``report.column("softmax_error")``."""
        return [row[name] for row in self]

    def __repr__(self) -> str:
        if not self:
            return "Report(no layers)"
        # a column that says nothing in any layer is left out of the print, not of the rows
        dull = {"group": "", "sink_mass": None, "output_error": None, "softmax_error": None, "dropout": 0.0}
        names = [
            name for name in self.COLUMNS if any(name in row and row[name] != dull.get(name, object()) for row in self)
        ]
        table = [names, *([_cell(row.get(name)) for name in names] for row in self)]
        widths = [max(len(line[i]) for line in table) for i in range(len(names))]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in table
        )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return (
            " x ".join(str(v) for v in value)
            if all(isinstance(v, int) for v in value)
            else (" to ".join(f"{v:.4f}" for v in value))
        )
    return str(value)


__all__ = ["BoolArray", "Place", "Record", "Report"]
