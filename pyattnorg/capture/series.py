"""Many captures in one folder: a store an example, numbered in the order of the examples, and how many there are."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyattnorg.capture.files import META, sync_folder
from pyattnorg.capture.result import Capture
from pyattnorg.capture.stored import load_capture
from pyattnorg.checks import DamagedFileError

NAME = "examples.json"
FORMAT = "pyattnorg captures"


class Series:
    """The folder that ``capture_each(…, store=folder)`` writes."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"store: {folder} is a file, expected a folder of captures, or none")
        if not folder.parent.is_dir():
            raise FileNotFoundError(f"store: the folder {folder.parent} does not exist; make it first")
        if (folder / META).exists():
            raise FileExistsError(f"store: {folder} holds a single capture, expected a folder of many, or an empty one")
        here = [p.name for p in folder.iterdir()] if folder.exists() else []
        others = sorted(n for n in here if n not in (NAME, _new(NAME)) and not re.fullmatch(r"\d{6,}", n))
        if others or (here and NAME not in here):
            found = (others or sorted(here))[0]
            raise FileExistsError(f"store: {folder} holds {found!r}, expected a folder of captures, or an empty one")
        if here:
            _count(folder)
        self.folder, self._next = folder, 0
        folder.mkdir(exist_ok=True)
        self._say(None)

    def next(self) -> Path:
        """Where the next example goes."""
        self._next += 1
        return example_folder(self.folder, self._next - 1)

    def finish(self) -> None:
        """Say that all examples are there."""
        self._say(self._next)

    def _say(self, examples: int | None) -> None:
        beside = self.folder / _new(NAME)
        with open(beside, "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "examples": examples}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.folder / NAME)
        sync_folder(self.folder)


def example_folder(folder: Path, index: int) -> Path:
    """The store of an example."""
    return folder / f"{index:06d}"


def load_each(path: str | os.PathLike[str], *, unfinished: bool = False) -> Iterator[Capture]:
    """The captures of ``capture_each(…, store=path)``, in order, each opened when it is reached.

    Parameters
    ----------
    path : str or path
        The folder.
    unfinished : bool
        Also read what a run has left that was stopped, or was not iterated to its end: the examples that are whole.

    Yields
    ------
    Capture
        As `load_capture` gives it.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    DamagedFileError
        It is no folder of captures, it was not finished, or one of its captures is missing or damaged.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"path: {folder} is no folder")
    count = _count(folder)
    if count is None and not unfinished:
        raise DamagedFileError(
            f"{folder} was not finished; run the same capture_each(store=) to its end, or pass unfinished=True for "
            "what is there"
        )
    return _opened(folder, count)


def _opened(folder: Path, count: int | None) -> Iterator[Capture]:
    index = 0
    while count is None or index < count:
        one = example_folder(folder, index)
        if not one.exists():
            if count is None:
                return
            raise DamagedFileError(f"{one} is missing, {folder / NAME} tells of {count} examples")
        last = count is None and not example_folder(folder, index + 1).exists()
        try:
            found = load_capture(one)
        except DamagedFileError as error:
            if last and "not finished" in str(error):
                return  # the one that was being written
            raise
        yield found
        index += 1


def _count(folder: Path) -> int | None:
    """How many examples there are; None while they are not all there."""
    try:
        about: Any = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = "; pyattnorg.load_capture reads a single one" if (folder / META).exists() else ""
        raise DamagedFileError(f"{folder} is no folder of captures: it has no {NAME}{hint}") from None
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{folder / NAME} cannot be read ({error})") from None
    count = about.get("examples") if isinstance(about, dict) else None
    right = isinstance(about, dict) and about.get("format") == FORMAT and "examples" in about
    if not right or not (count is None or (type(count) is int and count >= 0)):
        raise DamagedFileError(f"{folder / NAME} is damaged, expected the number of examples")
    return count


def _new(name: str) -> str:
    return f".{name}.new"


__all__ = ["NAME", "Series", "load_each"]
