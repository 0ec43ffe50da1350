"""R3, the entropy of every head over the largest, for six inputs.

python examples/paper/head_curves.py
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from least_involved import all_inputs
from networks import MODELS, SCORES_AND_WEIGHTS, organized
from page_parts import figure, picture, show, spread, table


def section() -> str:
    """The section of the page."""
    rows = []
    made, axes = figure(2, 3, height=2.6)
    for column, model in enumerate(MODELS):
        for row, kind in enumerate(SCORES_AND_WEIGHTS):
            e = all_inputs(model, kind)
            curves = e / e.max(1, keepdims=True)
            labels = organized(model, model.inputs[0], kind).labels
            peaks = Counter(labels[i] for i in curves.argmax(1))
            rows.append(
                [
                    model.name,
                    kind,
                    ", ".join(f"{label} {n}×" for label, n in peaks.most_common()),
                    spread(curves.min(1), 2),
                    spread(np.median(curves, axis=1), 2),
                    spread((curves > 0.5).sum(1), 0) + f" of {e.shape[1]}",
                ]
            )
            ax = axes[row, column]
            for name, curve in zip(model.inputs, curves):
                ax.plot(curve, linewidth=0.8, label=name)
            ax.set_title(f"{model.name}, {kind}", fontsize=9)
            ax.set(xlabel="head", ylabel="entropy / largest", ylim=(0, 1.02))
    axes[0, 0].legend(frameon=False, fontsize=6, ncols=2)
    return "\n\n".join(
        [
            "## R3. Entropy of every head",
            "The published entropy of a head (10 × 10 coarsest bi-Haar functions, mean included) over the largest of "
            "its network, six inputs, each divided by its own maximum. (The published language curves are divided by "
            "that of another batch, hence their peaks above 1.)",
            table(["network", "tensor", "head of the peak", "floor", "median head", "heads above half"], rows),
            picture(made, "r3", "Head entropies over the largest, one curve an input."),
        ]
    )


if __name__ == "__main__":
    show(section())
