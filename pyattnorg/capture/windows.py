"""Attention within windows: which of the leading axes of a map are windows, and where each window lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyattnorg.capture.positions import Rows
from pyattnorg.capture.record import Tokens

Factor: TypeAlias = tuple[str, int]  # "b", "w" or "h", and how many


@dataclass(frozen=True)
class Windowed:
    """Leading axes of a map (each one or several factors merged), read as batch, windows and heads."""

    lead: tuple[int, ...]
    factors: tuple[Factor, ...]

    def count(self, role: str) -> int:
        """How many windows ("w"), heads ("h") or examples ("b") there are."""
        return prod(n for r, n in self.factors if r == role)

    def pick(self, x: Tensor, example: int) -> Tensor:
        """One example of a tensor whose leading axes match or broadcast: (windows * heads, m, n)."""
        x = x.expand(*self.lead, *x.shape[-2:]).reshape(*(n for _, n in self.factors), *x.shape[-2:])
        x = x.permute(*self._order(), x.ndim - 2, x.ndim - 1)
        x = x.reshape(self.count("b"), self.count("w") * self.count("h"), *x.shape[-2:])
        return x[example]

    def arranged(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """An array (leading axes, m) as (batch, windows, heads, m)."""
        x = x.reshape(*(n for _, n in self.factors), x.shape[-1]).transpose(*self._order(), len(self.factors))
        return x.reshape(self.count("b"), self.count("w"), self.count("h"), x.shape[-1])

    def _order(self) -> list[int]:
        return [i for role in "bwh" for i, (r, _) in enumerate(self.factors) if r == role]


def read_windows(lead: Sequence[int], batches: Sequence[int], heads: int | None, rows: Rows | None) -> Windowed | None:
    """Read leading axes that are not just batch and heads; None where they can be read in several ways, or in none.

    `batches` are the sizes that the batch may have, `heads` what the module says, `rows` where the queries lie.
    """
    lead = tuple(lead)
    found: list[Windowed] = []
    if rows is None and max(batches, default=1) > 1:
        return None  # nothing says whether windows or examples come first
    # heads have an axis of their own in most models; only then are readings with merged ones tried
    tries = [(b, merged) for b in sorted(set(batches) or {1}, reverse=True) for merged in (False, True)]
    for batch, merged in tries:
        for factors in _readings(lead, batch, heads, merged):
            one = Windowed(lead, factors)
            if rows is not None and not _agrees(one, rows):
                continue
            if not any(_alike(one, other) for other in found):
                found.append(one)
        if found:
            break
    if len(found) == 1 or (found and rows is not None):
        return found[0]
    return None


def _alike(a: Windowed, b: Windowed) -> bool:
    """Whether two readings differ in factors of one only, which mean nothing."""
    return [f for f in a.factors if f[1] > 1] == [f for f in b.factors if f[1] > 1]


def _readings(lead: tuple[int, ...], batch: int, heads: int | None, merged: bool) -> Iterator[tuple[Factor, ...]]:
    """Every way to split the axes so that the batch is there once, the heads once, and the rest are windows."""
    for split in product(*(_splits(n, batch, heads, merged) for n in lead)):
        factors = tuple(f for axis in split for f in axis)
        counts = {r: prod(n for role, n in factors if role == r) for r in "bwh"}
        told = sum(role == "h" for role, _ in factors)
        if counts["b"] != batch or sum(role == "b" for role, _ in factors) != 1 or told > 1:
            continue
        if heads is not None and counts["h"] != heads:
            continue
        if factors[0][0] == "b":  # no library puts the batch elsewhere than first
            yield factors


def _splits(n: int, batch: int, heads: int | None, merged: bool) -> Iterator[tuple[Factor, ...]]:
    yield (("w", n),)
    if heads is None or n == heads:
        yield (("h", n),)
    if n == batch:
        yield (("b", n),)
    if n % batch == 0 and n > batch:
        yield (("b", batch), ("w", n // batch))
    if merged and heads is not None and heads > 1 and n % (batch * heads) == 0 and n > heads:
        rest = n // (batch * heads)
        yield (("b", batch), ("w", rest), ("h", heads))
        yield (("b", batch), ("h", heads), ("w", rest))


def _agrees(one: Windowed, rows: Rows) -> bool:
    """Whether heads of a window look at the same tokens, and every example at its own."""
    if rows.token.size != prod(one.lead) * rows.token.shape[-1]:
        return False
    token, example = one.arranged(rows.token), one.arranged(rows.example)
    own = np.arange(len(example))[:, None, None, None]
    windows = token[0, :, 0]
    apart = len({w.tobytes() for w in windows}) == len(windows)
    return bool(apart and (token == token[:1, :, :1]).all() and ((example == own) | (example < 0)).all())


def locate(one: Windowed, queries: Rows | None, keys: Rows | None, example: int) -> Tokens | None:
    """Where the windows of one example lie; None where queries or keys could not be followed there."""
    if queries is None or keys is None or queries.grid != keys.grid:
        return None
    if not (_agrees(one, queries) and _agrees(one, keys)):
        return None
    q, k = (one.arranged(rows.token)[example, :, 0] for rows in (queries, keys))
    return Tokens(q, k, queries.grid)


__all__ = ["Windowed", "locate", "read_windows"]
