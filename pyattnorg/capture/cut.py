"""Which queries and keys to keep: slices, ranges, numbers, or text such as "0:128"."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

AxisChoice: TypeAlias = "int | str | slice | range | None"
_WHOLE = slice(None)


@dataclass(frozen=True)
class Cut:
    """The part of every map that is kept; counted in the model's own tokens, padding included."""

    queries: slice = field(default_factory=lambda: _WHOLE)
    keys: slice = field(default_factory=lambda: _WHOLE)

    @classmethod
    def of(cls, queries: AxisChoice = None, keys: AxisChoice = None) -> Cut:
        """The part that these arguments of `capture` mean."""
        return cls(_slice(queries, "queries"), _slice(keys, "keys"))

    def rows(self, n: int) -> slice:
        """The kept ones of `n` queries, with start and stop within them."""
        return _within(self.queries, n, "queries")

    def columns(self, n: int) -> slice:
        """The kept ones of `n` keys."""
        return _within(self.keys, n, "keys")

    @property
    def text(self) -> str:
        """How it is told, such as ``queries 0:128``; empty where nothing is cut."""
        both = (("queries", self.queries), ("keys", self.keys))
        return ", ".join(f"{name} {_said(part)}" for name, part in both if part != _WHOLE)


def count(part: slice) -> int:
    """Tokens in a slice that `Cut.rows` or `Cut.columns` gave."""
    return len(range(part.start, part.stop, part.step))


def _slice(choice: AxisChoice, name: str) -> slice:
    if choice is None:
        return _WHOLE
    if isinstance(choice, str):
        choice = _parsed(choice, name)
    if isinstance(choice, range):
        if len(choice) == 0:
            raise ValueError(f"{name}: got {choice}, which is empty, expected at least one token")
        choice = slice(choice.start, choice.stop, choice.step)
    if isinstance(choice, (int, np.integer)) and not isinstance(choice, bool):
        return slice(int(choice), int(choice) + 1 or None, 1)
    if not isinstance(choice, slice):
        raise TypeError(
            f"{name}: got {type(choice).__name__}, expected a slice, a range, a number or text like '0:128'"
        )
    if choice.step is not None and choice.step < 1:
        raise ValueError(f"{name}: got the step {choice.step}, expected 1 or more; tokens keep their order")
    return choice


def _parsed(text: str, name: str) -> slice | int:
    compact = text.replace(" ", "")
    if re.fullmatch(r"-?\d+", compact):
        return int(compact)
    match = re.fullmatch(r"(-?\d+)?:(-?\d+)?(?::(\d+))?", compact)
    if not match:
        raise ValueError(f"{name}: got {text!r}, expected a slice such as '0:128', '5:' or '-64:', or one number")
    return slice(*(None if part is None else int(part) for part in match.groups()))


def _within(part: slice, n: int, name: str) -> slice:
    found = slice(*part.indices(n))
    if count(found) == 0:
        raise ValueError(f"{name}: {_said(part)} holds none of the {n} {name} of a layer, expected at least one")
    return found


def _said(part: slice) -> str:
    step = "" if part.step in (None, 1) else f":{part.step}"
    return f"{'' if part.start is None else part.start}:{'' if part.stop is None else part.stop}{step}"


__all__ = ["AxisChoice", "Cut", "count"]
