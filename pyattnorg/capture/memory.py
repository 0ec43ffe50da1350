"""How much memory there is, and whether a capture can fit in it."""

from __future__ import annotations

from pyattnorg.capture.errors import CaptureTooLargeError
from pyattnorg.checks import whole
from pyattnorg.memory import available_memory, size_text

WAYS_OUT = (
    "write to disk with store=, take fewer with layers=, heads=, queries= or keep=('weights',), keep=('qk',) to "
    "compute heads when they are asked for, or a shorter input"
)


class Budget:
    """Refuses, from the first layer on, what cannot fit in the end.

    Parameters
    ----------
    limit : int, optional
        Most bytes that the maps may take; without it, nine tenths of the memory available when the capture starts.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.given = limit = None if limit is None else whole(limit, "max_bytes", at_least=1)
        free = available_memory() if limit is None else None
        self.limit = limit if limit is not None else None if free is None else free * 9 // 10
        self.taken = 0

    def admit(self, layer: int, more_layers: int, shape: tuple[int, int, int], need: int) -> None:
        """Count the `need` bytes of one layer of `shape` (heads, queries, keys); raise if `more_layers` do not fit."""
        self.check(layer, more_layers, shape, need)
        self.taken += need

    def check(self, layer: int, more_layers: int, shape: tuple[int, int, int], need: int) -> None:
        """Raise if the `need` bytes of one layer, and `more_layers` like it, cannot fit."""
        heads, queries, keys = shape
        total = self.taken + need * (1 + more_layers)
        if self.limit is not None and total > self.limit:
            raise CaptureTooLargeError(
                f"capture: about {size_text(total)} are needed (layer {layer}: {heads} heads x {queries} queries x "
                f"{keys} keys, {more_layers} more layer(s) like it) and there are {self}; {WAYS_OUT}"
            )

    def __str__(self) -> str:
        if self.given is not None:
            return f"max_bytes={self.given}"
        return "no limits known" if self.limit is None else f"{size_text(self.limit)} that may be used"


__all__ = ["WAYS_OUT", "Budget"]
