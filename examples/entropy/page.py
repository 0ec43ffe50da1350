"""The whole study, to docs/entropy-study.md.

python examples/entropy/page.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import equal_numbers
import head_tree
import nulls
import numpy as np
import out_of_sample
import stability
from study import CANDIDATES, ERROR, ROOT, Model, cases, inputs_of

SECTIONS = (out_of_sample, nulls, stability, equal_numbers, head_tree)
PAGE = ROOT / "docs" / "entropy-study.md"
METRICS = Path(__file__).with_name("metrics.md")
ADDED = """Added after first runs, which showed that they were needed; nothing above was changed. *Leaves permuted* for
held-out heads, too (the trees of the fitted half with their leaves at random places), since the shape of a tree has a
gain of its own; the identity and the given order beside carried trees and held-out heads; and of two trees' levels
only those of 2 folders to a third of the heads, since roots always agree. Nulls are two inputs each."""


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
    lines += [
        _others(title, make) for title, make in (("in sample", out_of_sample.in_sample), *out_of_sample.MADE.items())
    ]
    less = []
    for model, kind in cases():
        each = np.median([equal_numbers.errors(model, name, kind) for name in inputs_of(model)], axis=0)
        less += [
            f"{model.name} {kind} {what} {100 * error:.1f} %"
            for what, error in (("singular values of heads", each[2]), ("Tucker", each[3]))
            if error < ERROR
        ]
    lines.append(
        "- **At equal numbers kept**, factors counted, an error below the 5 % of least-entropy trees: "
        + ("; ".join(less) if less else "none")
        + "."
    )
    lines.append(_nulls())
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


def _others(title: str, make: Callable[[Model, str], out_of_sample.Table]) -> str:
    """Bases that need fewer coefficients than least-entropy trees."""
    told = []
    for model, kind in cases():
        found = make(model, kind)
        median = {basis: 100 * np.median([one.share for one in each]) for basis, each in found.items()}
        better = [f"{basis} {share:.2f}" for basis, share in median.items() if share < median["entropy"]]
        if better:
            told.append(f"{model.name} {kind} ({median['entropy']:.2f}): {', '.join(better)}")
    return f"- **Bases that need fewer coefficients**, {title}, in per cent: " + ("; ".join(told) or "none") + "."


def _nulls() -> str:
    """What the nulls say, the gain of a tree's shape among it."""
    told, held_out, permuted = [], {}, {}
    for null in (*nulls.NULLS, "random weights"):
        each = np.array([one for model, kind in cases() for one in nulls.gains(model, kind, null)])
        in_sample, _, held_out[null], _, permuted[null] = np.median(each, axis=0)
        flexible = np.median(each[:, 3] / each[:, 2])
        told.append(f"{null} {in_sample:.2f}, {held_out[null]:.2f}, {permuted[null]:.2f} and {flexible:.2f}")
    null = "entries permuted"
    shape = ""
    if held_out[null] < 0.98:
        shape = (
            " **Part of the gain over flexible trees is no organisation** but the shape of the trees, which are "
            "lopsided where entries are sparse and mix few of them: held-out heads with permuted entries show it, too "
            f"({held_out[null]:.2f}, and {permuted[null]:.2f} over permuted leaves). What is found beyond the shape is "
            "the third number of the tensors as they are, to be set against the fourth, which is what flexible trees "
            "find."
        )
    untrained = permuted["random weights"]
    training = f" Random weights are organised, too ({untrained:.2f}): sparsity as such is no sign of training."
    return (
        "- **Nulls**, median ē: over flexible trees in sample, the same for held-out heads, held-out heads over the "
        "same trees with leaves permuted, and that of flexible trees over shuffled dyadic ones: "
        + "; ".join(told)
        + "."
        + shape
        + (training if untrained < 0.98 else "")
    )


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
