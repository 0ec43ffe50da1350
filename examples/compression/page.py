"""Compression of three real networks beside every alternative, to docs/compression-study.md.

python examples/compression/page.py
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import reasons
from page_parts_of import figure, picture, table
from reasons import kb
from study import BEST, ERRORS, OURS, ROOT, cases, entropy_trees, network, sizes

import pyattnorg as pa

OWN = ("pa.compress", "tri-Haar", "Haar-Walsh")  # on trees of ours
PAGE = ROOT / "docs" / "compression-study.md"

INTRODUCTION = """# Compression of three real networks

What [`pa.compress`](compression.md) and its alternatives need for a relative error of 1, 5 and 10 %, on attention
scores and weights of MiniLM (96 × 96 × 72), SmolLM2-135M (96 × 96 × 270, causal) and DINOv2 ViT-S (every second token:
129 × 129 × 72), one input each. All of it is written by `make compression`, offline. "kB" is 1,000 bytes.

Everything is counted: trees, bases, factors, permutations, indices, values, tables of the coder. Names of heads and
tokens are in none of them. The error is measured on what comes back, over visible cells. Two accounts, the same for
every method:

- **coded**: numbers are rounded to steps of one size, those up to .6 of a step to 0, and coded by the coder of
  `pa.compress` (expected sizes by row, column and slice; the numbers above in the tree, or before where there is none).
  Factors of Tucker's and of singular vectors are scaled by what they carry, so that all rounding weighs the same.
- **plain**: 4 bytes for each number kept, and log2 of the number of ways to choose them. Dense factors need no choice.

Cells that the model cannot see are free for every method: in five rounds they take what its own largest numbers make of
them."""


def introduction() -> str:
    """What this is."""
    return INTRODUCTION


def tables() -> str:
    """Bytes of every method, in both accounts."""
    parts = []
    heads = [f"{model.name.split()[0].split('-')[0]} {kind} {e:.0%}" for model, kind in cases() for e in ERRORS]
    for account, name in ((0, "Coded"), (1, "Plain")):
        rows = []
        for method in sizes(*cases()[0]):
            if account and method in (OURS, BEST):
                continue
            rows.append([method, *(kb(one[account]) for c in cases() for one in sizes(*c)[method])])
        best = [min(float(row[i].replace(",", "")) for row in rows) for i in range(1, len(rows[0]))]
        for row in rows:
            for i, least in enumerate(best, 1):
                row[i] = f"**{row[i]}**" if float(row[i].replace(",", "")) == least else row[i]
        parts += [f"## {name}, kB", table(["method", *heads], rows)]
    return "\n\n".join(parts)


def verdict() -> str:
    """What came out, in sentences that follow the numbers."""
    won: dict[str, list[str]] = {OURS: [], BEST: []}
    lost: dict[str, list[str]] = {OURS: [], BEST: []}
    for model, kind in cases():
        found = sizes(model, kind)
        for i, e in enumerate(ERRORS):
            each = {name: one[i][0] for name, one in found.items()}
            others = {name: size for name, size in each.items() if not name.startswith(OWN)}
            second = min(others, key=lambda name: others[name])
            told = f"{model.name} {kind} {e:.0%}"
            for ours in (OURS, BEST):
                ratio = each[ours] / others[second]
                (won if ratio <= 1 else lost)[ours].append(f"{told} {ratio:.2f} ({second})")
    ratios = {
        name: float(np.median([sizes(*c)[BEST][i][0] / sizes(*c)[name][i][0] for c in cases() for i in range(3)]))
        for name in sizes(*cases()[0])
        if name != BEST
    }
    axes, seconds = [], []
    for model, kind in cases():
        trees, spent = kept_trees(model, kind)
        axes.append(f"{model.name} {kind} {trees}")
        seconds.append(f"{model.name} {kind} {spent:.1f} s")
    return "\n".join(
        [
            "## What came out",
            "",
            *(
                f"- **`{ours}` against the best alternative**, bytes over bytes: fewer in {len(won[ours])} of "
                f"{len(won[ours]) + len(lost[ours])}: {'; '.join(won[ours]) or 'none'}. More in {len(lost[ours])}: "
                f"{'; '.join(lost[ours]) or 'none'}."
                for ours in (OURS, BEST)
            ),
            f"- **Median of the bytes of `{BEST}` over theirs**: "
            + "; ".join(f"{n} {r:.2f}" for n, r in ratios.items()) + ".",
            "- **Trees that `axes=\"auto\"` keeps** at 5 %: " + "; ".join(axes) + ".",
            "- **Time** of `pa.compress` beyond the trees, at 5 %, one thread: " + ", ".join(seconds) + ".",
        ]
    )  # fmt: skip


def kept_trees(model: Any, kind: str) -> tuple[str, float]:
    """Axes whose trees are kept at 5 %, and the seconds of a compression whose trees are known."""
    found, trees = network(model, kind), entropy_trees(model, kind)
    began = time.process_time()
    made = pa.compress(found, error=reasons.ERROR, trees=trees)
    spent = time.process_time() - began
    kept = [name for name, tree in zip(("queries", "keys", "heads"), made.trees) if tree is not None]
    return ", ".join(kept) or "none", spent


def drawn() -> str:
    """Bytes against errors, a panel for each network."""
    made, axes = figure(2, 3, height=3.0)
    shown = (
        OURS,
        BEST,
        "tri-Haar, flexible trees",
        "dyadic Haar, given order",
        "entries",
        "singular vectors of every head",
        "Tucker",
    )
    for ax, (model, kind) in zip(axes.T.flat, cases()):
        for method in shown:
            ax.plot([100 * e for e in ERRORS], [one[0] / 1e3 for one in sizes(model, kind)[method]],
                    marker="o", markersize=3, linewidth=2 if method in (OURS, BEST) else 1, label=method)  # fmt: skip
        ax.set(xscale="log", yscale="log", title=f"{model.name}, {kind}", xlabel="error, %", ylabel="kB, coded")
        ax.set_xticks([1, 5, 10], ["1", "5", "10"])
        ax.minorticks_off()
    made.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, ncols=3, loc="outside lower center", fontsize=8)
    return picture(made, "bytes", "Bytes for an error, everything counted, all coded by the same coder.")


def write(path: Path = PAGE) -> None:
    """Make all sections and write the page."""
    began = time.process_time()
    parts = [introduction()]
    body = [tables(), drawn(), reasons.section(), reasons.amortised()]
    parts += [verdict(), *body]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"{path}: {time.process_time() - began:.0f} s")


if __name__ == "__main__":
    write()
