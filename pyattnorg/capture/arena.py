"""Memory in which layers lie one after the other as they arrive, so that a tensor of all of them needs no copy."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Arena:
    """Rooms for the maps of one forward; those with the same key and shape are neighbours."""

    def __init__(self) -> None:
        self._blocks: dict[Hashable, tuple[NDArray[Any], int]] = {}  # and how many of its matrices are taken

    def room(self, key: Hashable, shape: tuple[int, int, int], dtype: str, more: int) -> NDArray[Any]:
        """An array (heads, queries, keys) to be filled; room for `more` of them is set aside."""
        heads, *cells = shape
        key = (key, *cells, dtype)
        block, taken = self._blocks.get(key, (None, 0))
        if block is None or taken + heads > len(block):
            block, taken = np.empty((heads * (1 + more), *cells), dtype), 0
        self._blocks[key] = block, taken + heads
        return block[taken : taken + heads]


def neighbours(arrays: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """Arrays of one `Arena` that lie one after the other, as one array; None where they do not."""
    first = arrays[0]
    block = first.base
    if not isinstance(block, np.ndarray) or block.ndim != 3 or not first.flags.c_contiguous or not first.size:
        return None
    size = first[0].nbytes
    start, rest = divmod(_address(first) - _address(block), size)
    at = start
    for x in arrays:
        same = x.base is block and x.dtype == block.dtype and x.shape[1:] == block.shape[1:] and x.flags.c_contiguous
        if not same or rest or _address(x) != _address(block) + at * size:
            return None
        at += len(x)
    return block[start:at]


def _address(x: NDArray[Any]) -> int:
    return int(x.__array_interface__["data"][0])


__all__ = ["Arena", "neighbours"]
