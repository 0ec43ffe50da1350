"""The options of ``pyattnorg consensus``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyattnorg.cli.failures import one_line
from pyattnorg.cli.options import Debug, Json, Overwrite, Quiet


def consensus(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", show_default=False, help="Two or more organization.npz of `analyze`."),
    ],
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for tables and a picture.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Tell which heads of a model belong together whatever the input, and how surely.

    OUT, if given, will hold folders.csv and folders.svg, the folders that inputs share, and inputs.csv.
    """
    with one_line(debug):
        from pyattnorg.cli import several

        several.consensus(files, out, overwrite=overwrite, quiet=quiet, as_json=json)


__all__ = ["consensus"]
