"""What is being done and how long it took: a bar a stage on a terminal, seconds always."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import Any

AXES = {"axis 0": "queries", "axis 1": "keys", "axis 2": "heads"}


class Stages:
    """Times stages, and shows each on standard error if that is a terminal.

    Attributes
    ----------
    seconds : dict
        Of every stage that has ended.
    """

    def __init__(self, *, shown: bool = True) -> None:
        self.seconds: dict[str, float] = {}
        self._progress: Any = None
        if shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            console = Console(stderr=True)
            self._progress = Progress(
                SpinnerColumn(finished_text="[green]✓"),
                TextColumn("{task.fields[name]:9s}"),
                BarColumn(bar_width=30),
                TimeElapsedColumn(),
                TextColumn("[dim]{task.description}"),
                console=console,
                disable=not console.is_terminal,
            )

    def __enter__(self) -> Stages:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[str, int, int], None]]:
        """One stage; gives a function (what, done, total) that moves its bar on."""
        begun = perf_counter()
        task = None if self._progress is None else self._progress.add_task("", total=None, name=name)

        def advance(what: str, done: int, total: int) -> None:
            for axis, said in AXES.items():
                what = what.replace(axis, said)
            if task is not None:
                self._progress.update(task, description=what, completed=done, total=total)

        yield advance
        self.seconds[name] = perf_counter() - begun
        if task is not None:
            self._progress.update(task, description="", completed=1, total=1)


__all__ = ["Stages"]
