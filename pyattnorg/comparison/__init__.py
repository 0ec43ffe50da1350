"""Comparing networks of any size: quantities against nulls, one distance, one joint embedding (docs/compare.md)."""

from pyattnorg.comparison.api import compare
from pyattnorg.comparison.result import Comparison, Pair, Portrait

__all__ = ["Comparison", "Pair", "Portrait", "compare"]
