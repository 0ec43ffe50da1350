"""Fits of least-entropy trees, beside what they had to sum and to stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EntropyFit:
    """A questionnaire of least-entropy trees, whole."""

    size: str
    iterations: int
    terms: float
    bytes: float
    seconds: float
    least: float
    tensor_bytes: int
    rise: int | None  # of resident memory, bytes
    entropy: float


HEADS = (
    "tensor",
    "rounds",
    "C, G terms",
    "B, GB",
    "C/F + B/T",
    "fit",
    "least",
    "fit / (C/F + B/T)",
    "memory, MB",
    "tensor, MB",
    "entropy",
)
TEXT = (
    "C counts the |a - b| that were summed: of the half matrix of all points, of every merged folder against those "
    "that lived, and of one sweep of exchanges. B counts the bytes of coefficients read and written: unfolding, Haar "
    "transforms, variances and weights of features, distances, merging, one sweep of exchanges. F is the limit of "
    "maximum and multiply-add, T that of copying memory, of the threads used. A fit builds a first tree for every axis "
    "before its first round. Memory is the rise of resident memory during the fit, input excluded."
)


def rows(fits: Sequence[EntropyFit], terms: float, memory: float, seconds: Callable[[float], str]) -> list[list[str]]:
    """A line a fit; `terms` and `memory` are the limits, `seconds` writes a time."""
    out = []
    for f in fits:
        ideal = f.terms / terms + f.bytes / memory
        out.append(
            [
                f"{f.size} float32",
                f"{f.iterations}",
                f"{f.terms / 1e9:.3g}",
                f"{f.bytes / 1e9:.3g}",
                seconds(ideal),
                seconds(f.seconds),
                seconds(f.least),
                f"**{f.seconds / ideal:.2f}**",
                f"{f.rise / 1e6:.0f}" if f.rise is not None else "",
                f"{f.tensor_bytes / 1e6:.0f}",
                f"{f.entropy:.4f}",
            ]
        )
    return out
