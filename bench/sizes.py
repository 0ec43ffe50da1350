"""Sizes of the benchmarks: the ones that count, or small ones that rehearse them (``--small``)."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")
small = False


def sized(full: T, rehearsal: T) -> T:
    """One or the other, as the run was asked for."""
    return rehearsal if small else full
