"""R6, one head reordered: the two-axis questionnaire with Hoelder weights.

python examples/paper/one_head.py
"""

from __future__ import annotations

from functools import cache

import numpy as np
from least_involved import involvement
from networks import MODELS, SCORES_AND_WEIGHTS, Model, captured
from numpy.typing import NDArray
from page_parts import figure, picture, show, spread, table

import pyattnorg as pa

HEADS_A_NETWORK = 24  # evenly spaced over all heads


def smooth_order(tree: pa.PartitionTree, coordinate: NDArray[np.float64]) -> NDArray[np.int64]:
    """Leaves of a tree, folders of every level by falling mean of a coordinate."""
    means = [np.bincount(row, coordinate)[row] / np.bincount(row)[row] for row in tree.labels]
    return np.lexsort([-m for m in means[::-1]])


def variation(x: NDArray[np.float64]) -> float:
    """Mean absolute difference of neighbouring cells."""
    return float(np.abs(np.diff(x, axis=0)).mean() + np.abs(np.diff(x, axis=1)).mean())


@cache
def reordered(model: Model, name: str, kind: str, head: int) -> tuple[NDArray[np.float64], ...]:
    """A head as it came, organised, and shuffled; then its entropies given, organised, shuffled."""
    network = captured(model, name)[kind].filled()
    x = network[head].astype(np.float64)
    found = pa.Questionnaire(10, tree="flexible", alpha=1.0, beta=0.0).fit(x)
    first = [found.embedding(axis, 1).coordinates[:, 0] for axis in range(2)]
    order = [smooth_order(tree, phi) for tree, phi in zip(found.trees_, first)]
    rng = np.random.default_rng(0)
    shuffled = x[np.ix_(*(rng.permutation(n) for n in x.shape))]
    dyadic = [pa.PartitionTree.dyadic(n) for n in x.shape]
    entropies = [pa.l1_entropy(c) for c in (pa.haar(x, dyadic), found.coefficients(), pa.haar(shuffled, dyadic))]
    return x, x[np.ix_(*order)], shuffled, np.array(entropies)


def ratios(model: Model, name: str, kind: str) -> NDArray[np.float64]:
    """By head: variation organised / given and organised / shuffled, entropy organised / given and / shuffled."""
    n = captured(model, name)[kind].shape[2]
    out = []
    for head in np.unique(np.linspace(0, n - 1, HEADS_A_NETWORK).astype(int)):
        given, organised, shuffled, e = reordered(model, name, kind, int(head))
        v = variation(organised)
        out.append([v / variation(given), v / variation(shuffled), e[1] / e[0], e[1] / e[2]])
    return np.array(out)


def section() -> str:
    """The section of the page."""
    rows = []
    made, axes = figure(3, 3, width=9.0, height=2.9)
    for row, model in enumerate(MODELS):
        for kind in SCORES_AND_WEIGHTS:
            r = ratios(model, model.inputs[0], kind)
            rows.append([model.name, kind, *(spread(r[:, i], 2) for i in range(4)), f"{(r[:, 0] < 1).mean():.0%}"])
        head = int(np.argmax(involvement(model, model.inputs[0], "scores")))
        label = captured(model, model.inputs[0])["scores"].labels[head]
        for ax, x, title in zip(
            axes[row], reordered(model, model.inputs[0], "scores", head), ("given", "organised", "shuffled")
        ):
            low, high = np.quantile(x, [0.01, 0.99])
            ax.imshow(x, vmin=low, vmax=high, cmap="viridis", interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.set_title(f"{model.name} {label}, {title}", fontsize=8)
    return "\n\n".join(
        [
            "## R6. One head, reordered",
            "The two-axis questionnaire as published for single heads (weights of folders α = 1, β = 0, up to ten "
            "iterations, folders side by side in the order of the first diffusion coordinate). Mean variation of "
            "neighbouring "
            f"cells and normalised entropy, organised over given and over shuffled, median (range) over "
            f"{HEADS_A_NETWORK} heads "
            "of one input each.",
            table(
                ["network", "tensor", "variation / given", "variation / shuffled", "entropy / given",
                 "entropy / shuffled", "heads smoother than given"],
                rows,
            ),
            picture(made, "r6", "The most involved head of each network, scores: given, organised, shuffled."),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
