"""Which layers and heads to keep: numbers, ranges, "0-3,7", globs such as "L3H*", callables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg.capture.errors import CaptureError

LayerChoice: TypeAlias = "int | str | slice | range | Iterable[int] | None"
HeadChoice: TypeAlias = "int | str | Iterable[int | str] | Callable[[int, int], bool] | None"


@dataclass(frozen=True)
class Selection:
    """A filter over (layer, head), applied to records as they arrive so that memory stays bounded."""

    layers: frozenset[int] | slice | None = None
    heads: Callable[[int, int], bool] | None = None
    text: str = ""

    @classmethod
    def of(cls, layers: LayerChoice = None, heads: HeadChoice = None) -> Selection:
        """The filter that these arguments of `capture` mean."""
        given = ", ".join(f"{k}={v!r}" for k, v in (("layers", layers), ("heads", heads)) if v is not None)
        return cls(_layers(layers), _heads(heads), given)

    def layer(self, number: int) -> bool:
        """Whether this layer is wanted."""
        if self.layers is None:
            return True
        if isinstance(self.layers, slice):
            start, stop, step = self.layers.start or 0, self.layers.stop, self.layers.step or 1
            return number >= start and (stop is None or number < stop) and (number - start) % step == 0
        return number in self.layers

    def among(self, layer: int, n_heads: int) -> NDArray[np.int64]:
        """The wanted heads of a layer with `n_heads`."""
        if not self.layer(layer):
            return np.empty(0, np.int64)
        keep = self.heads
        wanted = range(n_heads) if keep is None else [h for h in range(n_heads) if keep(layer, h)]
        return np.asarray(wanted, np.int64)

    def head(self, layer: int, head: int) -> bool:
        """Whether this head is wanted."""
        return self.layer(layer) and (self.heads is None or self.heads(layer, head))

    def missing(self, seen: set[int]) -> list[int]:
        """Layers asked for by number that the model does not have."""
        return sorted(self.layers - seen) if isinstance(self.layers, frozenset) else []


def _layers(layers: LayerChoice) -> frozenset[int] | slice | None:
    if layers is None:
        return None
    if isinstance(layers, slice):
        if any(part is not None and part < 0 for part in (layers.start, layers.stop, layers.step)):
            raise ValueError(f"layers: got {layers}, expected no negative numbers; count from 0")
        return layers
    if isinstance(layers, str):
        numbers = _ranges(layers)
    elif isinstance(layers, (int, np.integer)) and not isinstance(layers, bool):
        numbers = [int(layers)]
    elif isinstance(layers, Iterable):
        numbers = list(layers)
    else:
        raise TypeError(f"layers: got {type(layers).__name__}, expected numbers, a range, a slice or text like '0-3,7'")
    for n in numbers:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
            raise TypeError(f"layers: got {n!r}, expected whole numbers")
        if n < 0:
            raise ValueError(f"layers: got {n}, expected no negative numbers; count from 0")
    if not numbers:
        raise ValueError("layers: got none, expected at least one layer; leave it out for all")
    return frozenset(int(n) for n in numbers)


def _ranges(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match:
            raise ValueError(f"layers: got {text!r}, expected numbers and ranges such as '0-3,7'")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"layers: got the range {part!r}, which ends before it starts")
        numbers.extend(range(first, last + 1))
    return numbers


def _heads(heads: HeadChoice) -> Callable[[int, int], bool] | None:
    if heads is None:
        return None
    if callable(heads):
        return partial(_asked, heads)
    if isinstance(heads, str):
        items: list[int | str] = [part for part in re.split(r"[,\s]+", heads) if part]
    elif isinstance(heads, (int, np.integer)) and not isinstance(heads, bool):
        items = [int(heads)]
    elif isinstance(heads, Iterable):
        items = list(heads)
    else:
        raise TypeError(f"heads: got {type(heads).__name__}, expected numbers, labels such as 'L3H*', or a callable")
    numbers, globs = set(), []
    for item in items:
        if isinstance(item, str):
            globs.append(item)
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool) and item >= 0:
            numbers.add(int(item))
        else:
            raise ValueError(f"heads: got {item!r}, expected numbers from 0 or labels such as 'L3H*'")
    if not numbers and not globs:
        raise ValueError("heads: got none, expected at least one head; leave it out for all")
    return lambda layer, head: head in numbers or any(fnmatchcase(f"L{layer}H{head}", glob) for glob in globs)


def _asked(keep: Callable[[int, int], bool], layer: int, head: int) -> bool:
    try:
        return bool(keep(layer, head))
    except Exception as error:
        raise CaptureError(
            f"heads: the function raised {type(error).__name__} ({error}) for layer {layer}, head {head}; expected "
            "one that takes (layer, head) and says whether to keep it"
        ) from error


__all__ = ["HeadChoice", "LayerChoice", "Selection"]
