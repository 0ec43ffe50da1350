"""The folder of results: checked before the long work, filled at its end with whole files only."""

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from pyattnorg.organization import Organization

REPORT, ORGANIZATION, HEADS = "report.html", "organization.npz", "heads.csv"
# A cell that begins with one of these is a formula to a spreadsheet.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Results:
    """Use it with ``with``: the folder is made on entry; on failure what was made is taken away again.

    Raises
    ------
    FileExistsError
        Results of an earlier run are there and `overwrite` is False.
    NotADirectoryError
        There is a file of that name.
    """

    def __init__(self, out: Path, *, overwrite: bool = False) -> None:
        self.out = out
        if out.exists() and not out.is_dir():
            raise NotADirectoryError(f"--out: {out} is a file, expected a folder")
        self.overwrite = overwrite
        self._refuse_existing()
        self._made: list[Path] = []

    def _refuse_existing(self) -> None:
        there = [name for name in (REPORT, ORGANIZATION, HEADS) if (self.out / name).exists()]
        if there and not self.overwrite:
            raise FileExistsError(
                f"--out: {self.out} holds {', '.join(there)}; pass --overwrite to replace, or another --out"
            )

    def __enter__(self) -> Results:
        missing = [folder for folder in (self.out, *self.out.parents) if not folder.exists()]
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self._made = missing
            # made in the same folder, so that moving a file is renaming it; it also shows that one may write there
            self._stage = Path(tempfile.mkdtemp(prefix=".pyattnorg-", dir=self.out))
        except OSError as error:
            self._remove_empty()
            raise OSError(f"--out: {self.out} cannot be written to ({error.strerror}); choose another folder") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._stage, ignore_errors=True)
        if kind is not None:
            self._remove_empty()

    def _remove_empty(self) -> None:
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:
                return

    @property
    def paths(self) -> dict[str, str]:
        """Where everything is."""
        names = {"report": REPORT, "organization": ORGANIZATION, "heads": HEADS}
        return {what: str(self.out / name) for what, name in names.items()}

    def write(
        self,
        organization: Organization,
        *,
        head: str | None,
        seconds: Mapping[str, float],
        layers: Sequence[Mapping[str, Any]],
    ) -> None:
        """Write all files, then put them in their places."""
        from pyattnorg.report import report

        organization.save(self._stage / ORGANIZATION)
        write_heads(organization, self._stage / HEADS)
        report(organization, self._stage / REPORT, head=head, seconds=seconds, layers=layers)
        self._refuse_existing()  # another run may have written here since this one began
        for name in (ORGANIZATION, HEADS, REPORT):
            os.replace(self._stage / name, self.out / name)


def write_heads(organization: Organization, path: Path) -> None:
    """The table of heads as CSV."""
    rows = organization.head_table()
    with path.open("wb") as file:
        write_rows(file, rows, list(rows[0]))


def write_rows(file: BinaryIO, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A table as CSV in UTF-8, safe to open in a spreadsheet."""
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _safe(value) for name, value in row.items()} for row in rows)
    text.detach()


def _safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


__all__ = ["HEADS", "ORGANIZATION", "REPORT", "Results", "write_heads", "write_rows"]
