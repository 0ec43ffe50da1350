"""Options that are numbers: checked in one place, refused in one way."""

from __future__ import annotations

import math
import operator
from typing import Any


class DamagedFileError(ValueError):
    """A file that is not what it should be; the message names it."""


def number(value: Any, name: str, *, above: float | None = None, at_least: float | None = None) -> float:
    """`value` as a float; ValueError unless it is a finite number in range."""
    bound = f" above {above:g}" if above is not None else f" of at least {at_least:g}" if at_least is not None else ""
    try:
        found = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if (
        not math.isfinite(found)
        or (above is not None and found <= above)
        or (at_least is not None and found < at_least)
    ):
        raise ValueError(f"{name}: got {value!r}, expected a finite number{bound}")
    return found


def whole(value: Any, name: str, *, at_least: int) -> int:
    """`value` as an int; ValueError unless it is a whole number in range."""
    found = _integer(value)
    if found is None or found < at_least:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least {at_least}")
    return found


def position(value: Any, name: str, n: int, what: str) -> int:
    """`value` as one of n places, counted from the end where it is negative; ValueError in the words of `what`."""
    found = _integer(value)
    if found is None or not -n <= found < n:
        raise ValueError(f"{name}: got {value!r}, {what} 0 to {n - 1}")
    return found % n


def _integer(value: Any) -> int | None:
    """A whole number exactly, however large; None for anything else."""
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(found) if found.is_integer() else None


def one_of(value: Any, name: str, known: tuple[str, ...]) -> None:
    """ValueError unless `value` is one of the known words."""
    if value not in known:
        raise ValueError(f"{name}: got {value!r}, expected one of {list(known)}")
