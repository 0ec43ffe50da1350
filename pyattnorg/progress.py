"""Telling what a long computation is doing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]


class Stages:
    """Tells what is being done, to a callback and, if asked, to standard error."""

    def __init__(self, progress: Progress | None, verbose: bool, total: int) -> None:
        self.progress, self.verbose, self.total = progress, verbose, total
        self.done, self.start = 0, perf_counter()

    def begin(self, stage: str) -> None:
        if self.progress is not None:
            self.progress(stage, self.done, self.total)
        if self.verbose:
            print(f"{perf_counter() - self.start:8.2f} s  {stage}", file=sys.stderr)
        self.done += 1

    def end(self) -> None:
        if self.progress is not None:
            self.progress("organised", self.total, self.total)
        if self.verbose:
            print(f"{perf_counter() - self.start:8.2f} s  organised", file=sys.stderr)
