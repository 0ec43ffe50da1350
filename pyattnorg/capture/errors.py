"""What can go wrong in a capture. Every message is one line: what came, what was expected, what to do."""

from __future__ import annotations


class CaptureError(ValueError):
    """Attention could not be captured; the message names the module and the way out."""


class NoAttentionError(CaptureError):
    """The model ran, and no attention was seen in it."""


class UnsupportedAttentionError(CaptureError):
    """Attention was seen whose maps are not queries x keys of the model's tokens, or whose scores stay hidden."""


class ChannelsError(UnsupportedAttentionError):
    """Attention over channels, which is no attention between tokens: left out where the model has other attention."""


class UnsureError(UnsupportedAttentionError):
    """A map that could be read in two ways unless its tokens are followed."""


class PositionsWanted(CaptureError):
    """A map whose windows or examples are only known if tokens are followed from the start."""


class CaptureTooLargeError(CaptureError, MemoryError):
    """The maps would not fit in memory."""


def named(module: str, kind: str) -> str:
    """A module as errors name it: its path and class, or "the model itself" for the root."""
    return f"{module!r} ({kind})" if module else f"the model itself ({kind})"


__all__ = [
    "CaptureError",
    "CaptureTooLargeError",
    "ChannelsError",
    "NoAttentionError",
    "PositionsWanted",
    "UnsupportedAttentionError",
    "UnsureError",
    "named",
]
