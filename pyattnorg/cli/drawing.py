"""A picture as a file: refused before the long work what cannot be written, then whole or not at all."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

ENDINGS = (".svg", ".pdf", ".png")


def check_picture(path: Path, *, overwrite: bool) -> None:
    """Refuse what could not be drawn or written there, in words of ``--picture``."""
    if find_spec("matplotlib") is None:
        raise ImportError("matplotlib is needed to draw: pip install 'pyattnorg[viz]'")
    if path.exists() and not overwrite:
        raise FileExistsError(f"--picture: {path} is there already; pass --overwrite to replace it")
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"--picture: got {path}, expected a name that ends in .svg, .pdf or .png")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"--picture: the folder {path.absolute().parent} does not exist")


def draw(axes: Any, path: Path, *, overwrite: bool) -> None:
    """The figure of these axes, in the format that the name's ending says."""
    from pyattnorg.store import write_atomically

    ending = path.suffix[1:].lower()
    write_atomically(
        path, lambda file: axes.figure.savefig(file, format=ending, bbox_inches="tight"), overwrite=overwrite
    )


def without_a_screen() -> None:
    """Draw to files only, wherever this runs; to be called before anything is drawn."""
    import matplotlib

    matplotlib.use("Agg")


__all__ = ["ENDINGS", "check_picture", "draw", "without_a_screen"]
