"""How much memory there is, and whether a capture can fit in it."""

from __future__ import annotations

from pathlib import Path

from pyattnorg.capture.errors import CaptureTooLargeError


def available_memory() -> int | None:
    """Bytes that can still be had without swapping, a container's limit included; None where it is not known."""
    free = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free.append(int(line.split()[1]) * 1024)
        root = Path("/sys/fs/cgroup")
        limit = (root / "memory.max").read_text().strip()
        if limit != "max":
            free.append(int(limit) - int((root / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return max(min(free), 0) if free else None


class Budget:
    """Refuses, from the first layer on, what cannot fit in the end.

    Parameters
    ----------
    limit : int, optional
        Most bytes that the maps may take; without it, nine tenths of the memory available when the capture starts.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.given = limit
        free = available_memory() if limit is None else None
        self.limit = limit if limit is not None else None if free is None else free * 9 // 10
        self.taken = 0

    def admit(self, layer: int, more_layers: int, shape: tuple[int, int, int], arrays: int) -> None:
        """Count one layer of `shape` (heads, queries, keys); raise if it and `more_layers` like it cannot fit."""
        self.taken += self.check(layer, more_layers, shape, arrays)

    def check(self, layer: int, more_layers: int, shape: tuple[int, int, int], arrays: int) -> int:
        """Bytes of one layer; raise if it and `more_layers` like it cannot fit."""
        heads, queries, keys = shape
        one = heads * queries * keys * 4 * arrays
        total = self.taken + one * (1 + more_layers)
        if self.limit is not None and total > self.limit:
            what = f"max_bytes={self.given}" if self.given is not None else f"{_size(self.limit)} that may be used"
            raise CaptureTooLargeError(
                f"capture: about {_size(total)} are needed (layer {layer}: {heads} heads x {queries} queries x {keys} "
                f"keys, {arrays} array(s), {more_layers} more layer(s) like it) and there are {what}; "
                "take fewer with layers= or heads=, keep=('weights',), or a shorter input"
            )
        return one


def _size(n: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1000
    raise AssertionError("unreachable")


__all__ = ["Budget", "available_memory"]
