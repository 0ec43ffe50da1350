"""R5, kernel, tree and embedding of the heads; whether they follow the layers; the published map and a right one.

python examples/paper/head_kernel.py
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from networks import MINILM, MODELS, NULL_SEEDS, SCORES_AND_WEIGHTS, Model, organized
from page_parts import figure, picture, show, spread, table
from scipy.stats import spearmanr

import pyattnorg as pa
from pyattnorg.pictures import draw_affinity, draw_embedding, tree_lines

HEADS = 2
PERMUTATIONS = 199


@cache
def layers_told(model: Model, name: str, kind: str) -> dict[str, float]:
    """How far the tree and the distances of heads follow the layers, with permutation p-values."""
    found = organized(model, name, kind)
    tree, layer = found.trees_[HEADS], found.network.heads.layer
    rand = np.asarray(pa.adjusted_rand_index(tree, layer))
    rng = np.random.default_rng(0)
    null = np.array([np.max(pa.adjusted_rand_index(tree, rng.permutation(layer))) for _ in range(PERMUTATIONS)])
    apart = np.abs(layer[:, None] - layer).astype(float)
    test = pa.mantel(found.distances_[HEADS].astype(float), apart, n_permutations=PERMUTATIONS)
    return {
        "rand": float(rand.max()),
        "level": float(rand.argmax()),
        "rand_p": float((1 + (null >= rand.max()).sum()) / (1 + PERMUTATIONS)),
        "mantel": test.correlation,
        "mantel_p": test.p_value,
        "levels": float(tree.n_levels),
    }


def by_layer(model: Model, name: str, kind: str, variant: Any) -> float:
    """Largest |Spearman correlation| of a coordinate with the layer, over the three coordinates."""
    found = organized(model, name, kind)
    coordinates = pa.diffusion_map(found.affinities_[HEADS], n_components=3, variant=variant).coordinates
    layer = found.network.heads.layer
    return max(abs(float(spearmanr(column, layer).statistic)) for column in coordinates.T)


def _draw(model: Model) -> str:
    found = organized(model, model.inputs[0], "weights")
    made, axes = figure(1, 3, width=11.0, height=3.4)
    layer = found.network.heads.layer
    draw_affinity(found.affinities_[HEADS], found.order(HEADS), found.labels, ax=axes[0, 0])
    axes[0, 0].set(xticks=[], yticks=[], title="kernel, tree order")
    from matplotlib.collections import LineCollection

    tree = found.trees_[HEADS]
    axes[0, 1].add_collection(LineCollection(list(tree_lines(tree).joints), colors="0.55", linewidths=0.6))
    n = tree.n_leaves
    axes[0, 1].scatter(np.arange(n), np.full(n, tree.n_levels - 1), c=layer[tree.order], s=6, cmap="viridis")
    axes[0, 1].set(xlim=(-1, n), ylim=(tree.n_levels - 0.8, -0.3), xticks=[], ylabel="level", title="tree")
    coordinates = found.embedding(HEADS, 2).coordinates
    draw_embedding(coordinates, None, layers=layer, ax=axes[0, 2])
    axes[0, 2].set_title("diffusion map, coloured by layer")
    name = "r5_" + model.name.split()[0].split("-")[0].lower()
    return picture(made, name, f"Heads of {model.name}, weights, input “{model.inputs[0]}”.")


def section() -> str:
    """The section of the page."""
    rows, maps = [], []
    for model in MODELS:
        twins = {
            (s, name): {kind: layers_told(model.randomised(s), name, kind) for kind in SCORES_AND_WEIGHTS}
            for s in NULL_SEEDS
            for name in model.inputs[:2]
        }
        for kind in SCORES_AND_WEIGHTS:
            found = [layers_told(model, name, kind) for name in model.inputs]
            null = [twins[s, name][kind] for s in NULL_SEEDS for name in model.inputs[:2]]
            rows.append(
                [
                    model.name,
                    kind,
                    spread([one["levels"] for one in found], 0),
                    spread([one["rand"] for one in found], 2),
                    f"{max(one['rand_p'] for one in found):.3f}",
                    spread([one["rand"] for one in null], 2),
                    spread([one["mantel"] for one in found], 2),
                    f"{max(one['mantel_p'] for one in found):.3f}",
                    spread([one["mantel"] for one in null], 2),
                ]
            )
            each = {v: [by_layer(model, name, kind, v) for name in model.inputs] for v in ("diffusion", "paper")}
            maps.append([model.name, kind, spread(each["diffusion"], 2), spread(each["paper"], 2)])
    found = organized(MINILM, MINILM.inputs[0], "weights")
    made, axes = figure(1, 2, width=8.0)
    for ax, variant, title in zip(axes[0], ("diffusion", "paper"), ("diffusion map", "as published")):
        coordinates = pa.diffusion_map(found.affinities_[HEADS], n_components=2, variant=variant).coordinates
        draw_embedding(coordinates, None, layers=found.network.heads.layer, ax=ax)
        ax.set_title(title, fontsize=9)
    return "\n\n".join(
        [
            "## R5. Kernel, tree and embedding of the heads",
            *(_draw(model) for model in MODELS),
            "Agreement with the layers, over six inputs: largest adjusted Rand index of any level of the head tree "
            "with the layers (*p*: the largest of six p-values, each against permuted layers), and Mantel correlation "
            f"of head distances with the distance in layers. *Null*: random weights, {len(NULL_SEEDS)} seeds, two "
            "inputs each.",
            table(
                ["network", "tensor", "levels", "ARI", "p", "ARI, null", "Mantel r", "p", "Mantel r, null"], rows
            ),
            "The published scatter of heads shows the three smallest eigenvectors of the kernel, not a diffusion map "
            "(`pa.diffusion_map(..., variant=\"paper\")`). Both, and the largest |Spearman correlation| of one of "
            "three "
            "coordinates with the layer:",
            table(["network", "tensor", "diffusion map", "as published"], maps),
            picture(made, "r5_maps", "MiniLM's heads, coloured by layer: diffusion map, and what was published."),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
