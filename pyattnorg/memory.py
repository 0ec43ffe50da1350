"""How much memory there is, and numbers of bytes as people read them."""

from __future__ import annotations

from pathlib import Path


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


def size_text(n: float) -> str:
    """``1.2 GB`` and the like."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1000
    raise AssertionError("unreachable")


__all__ = ["available_memory", "size_text"]
