"""The whole study, to docs/entropy-study.md.

python examples/entropy/page.py
"""

from __future__ import annotations

import time
from pathlib import Path

import equal_numbers
import head_tree
import nulls
import numpy as np
import out_of_sample
import stability
from study import CANDIDATES, ROOT, cases

SECTIONS = (out_of_sample, nulls, stability, equal_numbers, head_tree)
PAGE = ROOT / "docs" / "entropy-study.md"
METRICS = Path(__file__).with_name("metrics.md")
ADDED = """Added after a first run on one network, which showed that they were needed: *leaves permuted* for held-out
heads, too (the trees of the fitted half with their leaves at random places), since the shape of a tree has a gain of
its own; and of two trees' levels only those of 2 folders to a third of the heads, since roots always agree."""


def introduction() -> str:
    """What this is."""
    return "\n\n".join(
        [
            "# Least-entropy trees, out of sample",
            "[Least-entropy trees](entropy.md) are built to lower the number by which trees are judged, so that a "
            "lower number on the tensor that they were built for proves little. This page is about what is left of the "
            "gain for inputs and heads that they have not seen, on tensors with nothing to find, and beside everything "
            "else that compresses a tensor. All of it, verdicts included, is written by `make entropy`, offline; every "
            "section has a script of its own in `examples/entropy/`.",
        ]
    )


def verdict() -> str:
    """What came out, in sentences that follow the numbers."""
    tree, medians = out_of_sample.decision()
    cells = out_of_sample.scores()
    lines = [
        f"- **Default.** Median over {len(cells)} cells of the ratio to flexible trees, ē and share: "
        + "; ".join(f"{name} {medians[name][0]:.3f} and {medians[name][1]:.3f}" for name in CANDIDATES)
        + f". The default is *{tree}*."
    ]
    for what, place in (("ē", 0), ("share", 1)):
        lost = [" ".join(cell) for cell, each in cells.items() if each["entropy"][place] >= 1]
        best = min(cells, key=lambda cell: cells[cell]["entropy"][place])
        lines.append(
            f"- **Against flexible trees by {what}**, least-entropy trees win in {len(cells) - len(lost)} of "
            f"{len(cells)} cells, at best {cells[best]['entropy'][place]:.3f} ({' '.join(best)}). "
            + (f"**The gain does not survive** in: {'; '.join(lost)}." if lost else "The gain survives in all of them.")
        )
    kept = []
    for model, kind in cases():
        own, other = out_of_sample.in_sample(model, kind), out_of_sample.carried(model, kind)
        permuted = np.median([one.entropy for one in other["leaves permuted"]])
        inside, outside = (np.median([one.entropy for one in found["entropy"]]) for found in (own, other))
        kept.append(f"{model.name} {kind} {(permuted - outside) / (permuted - inside):.0%}")
    lines.append(
        "- **What a head tree keeps** on another input of its advantage over the same tree with heads permuted (ē): "
        + ", ".join(kept)
        + "."
    )
    for title, make in out_of_sample.MADE.items():
        told = []
        for model, kind in cases():
            found = make(model, kind)
            if not found:
                continue
            median = {basis: np.median([one.share for one in each]) for basis, each in found.items()}
            best = min(median, key=median.__getitem__)
            if best != "entropy":
                told.append(
                    f"{model.name} {kind}: {best} ({100 * median[best]:.2f} %, entropy {100 * median['entropy']:.2f} %)"
                )
        lines.append(
            f"- **Another basis needs fewer coefficients**, test *{title}*: "
            + ("; ".join(told) if told else "in no tensor")
            + "."
        )
    shape = []
    for null in ("as it is", "entries permuted", "cells of heads shuffled", "phases random", "random weights"):
        each = [one for model, kind in cases() for one in nulls.gains(model, kind, null)]
        shape.append(
            f"{null} {np.median([g.over_flexible for g in each]):.2f} in sample, "
            f"{np.median([g.held_out_over_flexible for g in each]):.2f} held out, "
            f"{np.median([g.held_out_over_permuted for g in each]):.2f} over permuted leaves"
        )
    lines.append(
        "- **Nulls**, median ē over flexible trees, and over the same trees with leaves permuted: "
        + "; ".join(shape)
        + "."
    )
    agree = {
        name: np.median([a.cophenetic for model, kind in cases() for a in stability.between_inputs(model, kind, name)])
        for name in stability.TREES
    }
    lines.append(
        "- **Stability** of head trees between inputs, median cophenetic correlation: "
        + ", ".join(f"{name} {value:.2f}" for name, value in agree.items())
        + "."
    )
    return "\n".join(["## What came out", "", *lines])


def write(path: Path = PAGE) -> None:
    """Make all sections and write the page."""
    made = []
    for section in SECTIONS:
        started = time.process_time()
        made.append(section.section())
        print(f"{section.__name__}: {time.process_time() - started:.0f} s", flush=True)
    parts = [introduction(), METRICS.read_text(encoding="utf-8").strip(), ADDED, verdict(), *made]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    write()
