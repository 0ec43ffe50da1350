"""Figures and tables of the pruning experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

OURS = ("involvement", "sparsity", "fine", "distance", "alone", "sink", "folders", "output", "gradient_again", "twins")
OF_TREES = (*OURS[:5], "folders")
BASELINES = ("random", "norm", "confidence", "attention_entropy", "gradient")
BOOTSTRAPS = 400
HEAD = """# Loss against heads removed: all rankings

Written by `make pruning`; what it measures, and what came out, is in [../pruning.md](../pruning.md). Names in bold are
not among the baselines. Rankings by the organisation use least-entropy trees, the default, and the paper's where they
say "flexible".

"""
Numbers = NDArray[np.float64]


def write(found: Mapping[str, Any], out: Path) -> None:
    """A figure a task, and ``tables.md``."""
    parts = []
    for name, task in found.items():
        rows = {by: summary(task, np.array(curves)) for by, curves in task["curves"].items()}
        draw(task, rows, out / f"{name}.svg")
        parts.append(table(task, rows, f"{name}.svg"))
    (out / "tables.md").write_text(HEAD + "\n".join(parts))


def summary(task: Mapping[str, Any], curves: Numbers) -> dict[str, Any]:
    """Mean curve, area under it and share removable, each with its interval; curves are (splits, shares, units)."""
    shares = np.array(task["shares"])
    rng = np.random.default_rng(0)
    splits, _, units = curves.shape
    draws = [
        curves[rng.integers(splits, size=splits)][:, :, rng.integers(units, size=units)].mean((0, 2))
        for _ in range(BOOTSTRAPS)
    ]
    mean = curves.mean((0, 2))
    losses = np.array(draws)
    areas = np.array([area(shares, one) for one in draws])
    kept = np.array([removable(shares, one, task["budget"]) for one in draws])
    return {
        "draws": splits, "mean": mean, "low": np.percentile(losses, 2.5, 0), "high": np.percentile(losses, 97.5, 0),
        "areas": areas, "area": (area(shares, mean), *np.percentile(areas, [2.5, 97.5])),
        "removable": (removable(shares, mean, task["budget"]), *np.percentile(kept, [2.5, 97.5])),
    }  # fmt: skip


def area(shares: Numbers, loss: Numbers) -> float:
    """Mean rise of the loss over the range of shares."""
    rise = loss - loss[0]
    return float(((rise[1:] + rise[:-1]) / 2 * np.diff(shares)).sum() / (shares[-1] - shares[0]))


def removable(shares: Numbers, loss: Numbers, budget: float) -> float:
    """The first share at which the loss has risen by the budget, straight lines between measured ones."""
    rise = loss - loss[0]
    over = np.flatnonzero(rise > budget)
    if not over.size:
        return float(shares[-1])
    i = int(over[0])
    step = (budget - rise[i - 1]) / (rise[i] - rise[i - 1])
    return float(shares[i - 1] + step * (shares[i] - shares[i - 1]))


def table(task: Mapping[str, Any], rows: Mapping[str, Any], picture: str) -> str:
    """Markdown, the least area first."""
    lines = [
        f"## {task['title']}", "",
        f"![loss against the share of heads removed: {task['title']}]({picture})", "",
        f"Loss: {task['metric']}. One per cent of loss: a rise of {task['budget']:.3g}.", "",
        "| ranking | area under the curve (95 % interval) | less the gradient's | removable at 1 % loss | draws |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for by, row in sorted(rows.items(), key=lambda item: item[1]["area"][0]):
        mark = "" if by in BASELINES else "**"
        a, low, high = row["area"]
        r, least, most = row["removable"]
        cells = [
            f"{mark}{by}{mark}", f"{a:.4f} ({low:.4f} to {high:.4f})", versus(row, rows["gradient"]),
            f"{r:.1%} ({least:.1%} to {most:.1%})", str(row["draws"]),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def versus(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Difference of two areas with its interval, draw by draw: the same held-out units and splits make both."""
    gap = row["area"][0] - other["area"][0]
    if row is other or row["draws"] != other["draws"]:
        return "" if row is other else f"{gap:+.4f}"
    low, high = np.percentile(row["areas"] - other["areas"], [2.5, 97.5])
    return f"{gap:+.4f} ({low:+.4f} to {high:+.4f})"


def draw(task: Mapping[str, Any], rows: Mapping[str, Any], path: Path) -> None:
    """Baselines on the left, ours beside the gradient, and those of the paper's trees on the right."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pyattnorg"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(16, 4), sharey=True, layout="constrained")
    shares = np.array(task["shares"]) * 100
    flexible = ("gradient", *(f"{by}, flexible" for by in OF_TREES))
    for ax, names in zip(axes, (BASELINES, ("gradient", *OURS), flexible), strict=True):
        for i, by in enumerate(n for n in names if n in rows):
            color = "black" if by == "gradient" else f"C{i % 10}"
            style = "--" if by in BASELINES else "-"
            ax.plot(shares, rows[by]["mean"], style, color=color, label=by, lw=2.4 if by == "twins" else 1.3)
            if by in ("gradient", "twins", "random"):
                ax.fill_between(shares, rows[by]["low"], rows[by]["high"], color=color, alpha=0.15, lw=0)
        ax.set_xlabel("heads removed, %")
        ax.legend(fontsize=7)
    gradient = rows["gradient"]["mean"]
    rise = gradient[-1] - gradient[0]
    axes[0].set_ylim(gradient[0] - 0.05 * rise, gradient[0] + 2.2 * rise)
    axes[0].set_ylabel(task["metric"])
    axes[0].set_title("baselines")
    axes[1].set_title("beside the gradient")
    axes[2].set_title("by flexible trees")
    figure.suptitle(task["title"])
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
