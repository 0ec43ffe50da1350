"""What a capture is to keep, where, and as what numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyattnorg.capture.cut import Cut

KINDS = ("scores", "weights", "qk", "output")
MAPS: tuple[Literal["scores"], Literal["weights"]] = ("scores", "weights")
DTYPES = {"float16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Keeping:
    """`kinds` of what is kept; `cut` of the maps; `dtype` of the numbers (None: float64 of float64, else float32)."""

    kinds: frozenset[str] = frozenset(MAPS)
    cut: Cut = field(default_factory=Cut)
    dtype: str | None = None

    @classmethod
    def of(cls, keep: str | Sequence[str], cut: Cut | None = None, dtype: object = None) -> Keeping:
        """What these arguments of `capture` mean."""
        kinds = frozenset([keep] if isinstance(keep, str) else keep)
        if not kinds or not kinds <= set(KINDS):
            raise ValueError(f"keep: got {sorted(kinds)}, expected some of {list(KINDS)}")
        name = None if dtype is None else str(getattr(dtype, "name", dtype)).removeprefix("torch.")
        if isinstance(dtype, type):  # numpy.float16 and the like
            name = dtype.__name__
        if name is not None and name not in DTYPES:
            hint = "; torch_dtype= is that of the model's weights" if name == "bfloat16" else ""
            raise ValueError(f"dtype: got {name!r}, expected one of {list(DTYPES)} for what is kept{hint}")
        return cls(kinds, Cut() if cut is None else cut, name)

    def __contains__(self, kind: str) -> bool:
        return kind in self.kinds

    @property
    def maps(self) -> tuple[str, ...]:
        """The maps that are kept as maps, in a fixed order."""
        return tuple(kind for kind in MAPS if kind in self.kinds)

    def itemsize(self, computed: str = "float32") -> int:
        """Bytes of one number, where they are computed in this dtype."""
        return DTYPES[self.dtype or ("float64" if computed.endswith("float64") else "float32")]


__all__ = ["DTYPES", "KINDS", "MAPS", "Keeping"]
