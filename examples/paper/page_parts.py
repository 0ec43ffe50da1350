"""What the sections of the page are made of: text, tables, pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "paper"
MOST_BYTES = 150_000


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def spread(values: Any, digits: int = 3) -> str:
    """Median and range of some numbers: ``0.20 (0.18 to 0.23)``."""
    x = np.asarray(values, float)
    return f"{_number(np.median(x), digits)} ({_number(x.min(), digits)} to {_number(x.max(), digits)})"


def _number(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text  # no minus before a zero


def picture(figure: Any, name: str, caption: str, folder: Path | None = None) -> str:
    """Write a figure as a PNG of less than 150 kB, for the paper's page or in a folder of docs/; its Markdown."""
    import matplotlib.pyplot as plt

    shown = "paper" if folder is None else folder.name
    folder = PICTURES if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    for dpi, colours in ((110, 0), (110, 64), (90, 64), (75, 64), (60, 32)):
        figure.savefig(path, dpi=dpi, bbox_inches="tight", metadata={"Software": None})
        if colours:
            from PIL import Image

            Image.open(path).convert("RGB").quantize(colours).save(path, optimize=True)
        if path.stat().st_size < MOST_BYTES:
            break
    else:
        raise ValueError(f"{path}: {path.stat().st_size} bytes at the lowest resolution, draw less")
    plt.close(figure)
    return f"![{caption}]({shown}/{name}.png)\n\n*{caption}*"


def figure(rows: int, columns: int, width: float = 10.0, height: float = 3.0) -> tuple[Any, Any]:
    """A figure and its axes, always as a 2-D array."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made, axes = plt.subplots(rows, columns, figsize=(width, height * rows), squeeze=False, layout="constrained")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return made, axes


def show(section: str) -> None:
    """Print a section, as each of these scripts does when it is run by itself."""
    sys.stdout.write(section + "\n")
