"""The outcome of ranking: scores of every head by every measure, with their spread over inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.checks import one_of
from pyattnorg.head_table import Heads


@dataclass(frozen=True)
class HeadRanking:
    """Scores of heads, the larger the more the head is to be kept.

    Attributes
    ----------
    heads : Heads
        The model's heads; every array is in their order.
    values : mapping of str to array (inputs, heads)
        Raw scores by measure; one row where the measure does not depend on the input.
    """

    heads: Heads
    values: Mapping[str, NDArray[np.float64]] = field(repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of every head."""
        return self.heads.labels

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures."""
        return tuple(self.values)

    def mean(self, by: str, *, normalized: bool = False) -> NDArray[np.float64]:
        """Mean score over inputs, (heads,).

        `normalized` divides, in each layer and input, by the root of the sum of squares of the layer's scores (Michel
        et al. 2019): layers are then of equal weight.
        """
        out: NDArray[np.float64] = self._scores(by, normalized).mean(0)
        return out

    def spread(self, by: str, *, normalized: bool = False) -> NDArray[np.float64]:
        """Standard deviation of the score over inputs, (heads,); zero where there is one row."""
        rows = self._scores(by, normalized)
        out: NDArray[np.float64] = rows.std(0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
        return out

    def _scores(self, by: str, normalized: bool) -> NDArray[np.float64]:
        one_of(by, "by", self.measures)
        rows = self.values[by]
        if not normalized:
            return rows
        out = np.array(rows)
        layers = list(zip(self.heads.group, self.heads.layer.tolist()))
        for layer in dict.fromkeys(layers):
            mine = np.array([one == layer for one in layers])
            length = np.sqrt(np.square(rows[:, mine]).sum(1, keepdims=True))
            out[:, mine] = rows[:, mine] / np.where(length > 0, length, 1.0)
        return out

    def order(self, by: str, *, normalized: bool = False) -> list[str]:
        """Labels, those to be removed first at the front; ties go by position."""
        at = np.argsort(self.mean(by, normalized=normalized), kind="stable")
        return [self.labels[i] for i in at]

    def lowest(self, n: int | float, by: str, *, normalized: bool = False) -> list[str]:
        """The `n` heads (a share of them, if below 1) that are to be removed first, as `ablate_heads` takes them."""
        heads = len(self.labels)
        real = isinstance(n, (int, float, np.integer, np.floating)) and not isinstance(n, bool)
        if not real or not 0 <= n <= heads or (n >= 1 and n != int(n)):
            raise ValueError(f"n: got {n!r}, expected a number of heads up to {heads}, or a share below 1")
        count = round(n * heads) if n < 1 else int(n)
        return self.order(by, normalized=normalized)[:count]

    def rows_of(self, labels: list[str]) -> Heads:
        """Heads by label, with their modules: what `ablate_heads` and `prune_heads` take and need not look up."""
        at = {label: i for i, label in enumerate(self.labels)}
        lost = [label for label in labels if label not in at]
        if lost:
            raise ValueError(
                f"labels: {lost[0]!r} is no head of this ranking, which has {', '.join(self.labels[:3])}, ..."
            )
        return self.heads.take([at[label] for label in labels])

    def table(self) -> list[dict[str, Any]]:
        """One row a head: label, layer, head, then mean, spread and per-layer normalised mean of every measure."""
        columns: dict[str, NDArray[np.float64]] = {}
        for by in self.measures:
            columns[by] = self.mean(by)
            columns[f"{by} spread"] = self.spread(by)
            columns[f"{by} normalized"] = self.mean(by, normalized=True)
        return [
            {"label": label, "layer": int(layer), "head": int(head)} | {k: float(v[i]) for k, v in columns.items()}
            for i, (label, layer, head) in enumerate(zip(self.labels, self.heads.layer, self.heads.head))
        ]

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, indexed by label."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas, or use table()") from None
        return pandas.DataFrame(self.table()).set_index("label")

    def summary(self, n: int = 5) -> str:
        """The `n` first to go by every measure, one line each."""
        width = max(map(len, self.measures))
        lines = [f"{len(self.labels)} heads, least important first"]
        lines += [f"{by:{width}s}  {' '.join(self.order(by)[:n])}" for by in self.measures]
        return "\n".join(lines)

    def __repr__(self) -> str:
        inputs = max(len(v) for v in self.values.values())
        return f"HeadRanking({len(self.labels)} heads by {', '.join(self.measures)}; {inputs} input(s))"


__all__ = ["HeadRanking"]
