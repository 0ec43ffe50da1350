"""Draws docs/entropy.svg: one merge of a least-entropy tree, and what an exchange of folders does."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot  # after the backend is chosen

FONT = {"family": "sans-serif", "size": 9}


def main() -> None:
    matplotlib.rcParams["svg.hashsalt"] = "pyattnorg"  # the same file every time
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 2.9), width_ratios=(1.25, 1))
    rng = np.random.default_rng(1)
    shape = np.where(np.arange(24) % 7 == 2, 1.6, 0.15) * rng.choice([-1, 1], 24)
    a, b = shape + 0.12 * rng.standard_normal(24), shape + 0.12 * rng.standard_normal(24)
    for row, (values, name, colour) in enumerate(
        ((a, "a: mean of s points", "C0"), (b, "b: mean of M points", "C0"), (a - b, "a - b", "C3"))
    ):
        left.bar(np.arange(24), values * 0.24, bottom=2 - row, width=0.8, color=colour)
        left.text(-0.8, 2 - row + 0.06, name, ha="right", va="center", **FONT)
    left.text(
        11.5, -0.75, r"merging adds $\sqrt{sM/(s+M)}\,\Vert a-b\Vert_1$ to the sum of magnitudes", ha="center", **FONT
    )
    left.set(xlim=(-10, 24.5), ylim=(-1, 2.6), title="features: coefficients in the bases of the other axes")
    for x0, names, title in ((0, ("a", "b", "y"), "x = (a, b) beside y"), (5, ("a", "y", "b"), "x = (a, y) beside b")):
        right.plot([x0, x0, x0 + 1.4, x0 + 1.4], [0, 1, 1, 0], color="black")
        right.plot([x0 + 0.7, x0 + 0.7, x0 + 3, x0 + 3], [1, 2, 2, 0], color="black")
        right.plot([x0 + 1.85, x0 + 1.85], [2, 2.4], color="black")
        for x, name in zip((x0, x0 + 1.4, x0 + 3), names, strict=True):
            right.text(x, -0.3, name, ha="center", **FONT)
        right.text(x0 + 1.5, -0.85, title, ha="center", **FONT)
    right.annotate("", (4.6, 1), (3.4, 1), arrowprops={"arrowstyle": "->"})
    right.set(xlim=(-0.6, 8.6), ylim=(-1, 2.6), title="an exchange: kept if the sum falls")
    for axes in (left, right):
        axes.axis("off")
        axes.title.set_fontsize(10)
    figure.savefig(Path(__file__).with_name("entropy.svg"), bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
