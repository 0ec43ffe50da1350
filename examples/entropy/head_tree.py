"""What the head tree says: do its folders hold heads that do the same thing?

python examples/entropy/head_tree.py
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from page_parts_of import figure, picture, show, table
from study import NETWORKS, Model, cases, inputs_of, joint_head_tree, networks

import pyattnorg as pa

PERMUTATIONS = 199
TREES = ("entropy", "flexible", "average")
SHARES = ("previous", "same", "next", "first", "separator")
PATTERNS = (*SHARES, "uniform", "content")
SEPARATORS = {"[SEP]", ".", ",", ";", ">>"}
LEAST_SHARE, LEAST_UNIFORM = 0.3, 0.9
MOST = 5  # folders that are named


def tokens(model: Model, name: str) -> list[str]:
    """The tokens of an input; none of images."""
    if model.sees_images:
        return []
    if model.reads_reactions:
        return networks.reaction_tokens(name)
    ids = networks.prepared(model, name)["input_ids"][0].tolist()
    return [str(t).lstrip("Ġ") for t in networks.loaded(model).tokenizer.convert_ids_to_tokens(ids)]


@cache
def profiles(model: Model) -> NDArray[np.float64]:
    """Of every head the five shares and how uniform it is, (heads, 6), means over inputs."""
    found = []
    for name in inputs_of(model):
        network = networks.captured(model, name)["weights"]
        w = np.nan_to_num(network.filled("raw").values.astype(np.float64))
        n = len(w)
        at = np.array([i for i, token in enumerate(tokens(model, name)) if token in SEPARATORS and i], int)
        room = np.log(np.maximum(2, np.arange(1, n + 1) if network.visible is not None else np.full(n, n)))
        spread_out = -np.sum(w * np.log(np.maximum(w, 1e-30)), axis=1) / room[:, None]
        i = np.arange(1, n)
        found.append(
            np.stack(
                [
                    w[i, i - 1].mean(0),
                    w[np.arange(n), np.arange(n)].mean(0),
                    w[i - 1, i].mean(0),
                    w[1:, 0].mean(0),
                    w[:, at].sum(1).mean(0),
                    spread_out[1:].mean(0),
                ],
                axis=1,
            )
        )
    return np.mean(found, axis=0)


def patterns(model: Model) -> NDArray[np.int64]:
    """What every head does, as an index into PATTERNS."""
    p = profiles(model)
    shares, uniform = p[:, :-1], p[:, -1]
    otherwise = np.where(uniform >= LEAST_UNIFORM, PATTERNS.index("uniform"), PATTERNS.index("content"))
    return np.where(shares.max(1) >= LEAST_SHARE, shares.argmax(1), otherwise)


def layers(model: Model) -> NDArray[np.int64]:
    """The layer of every head."""
    return networks.captured(model, inputs_of(model)[0])["weights"].heads.layer


def smallest_folders(tree: pa.PartitionTree) -> NDArray[np.bool_]:
    """Row i: the other heads in the smallest folder around head i that holds any."""
    d = tree.distance_matrix().astype(np.float64)
    np.fill_diagonal(d, np.inf)
    return d <= d.min(1, keepdims=True)


def siblings(near: NDArray[np.bool_], labels: NDArray[np.int64]) -> float:
    """Mean share of heads of the same label in the smallest folder around a head."""
    same = labels[:, None] == labels
    return float(np.mean((near & same).sum(1) / near.sum(1)))


class Told(NamedTuple):
    """How far a tree follows labels: ARI and siblings, by chance (mean over permutations), p; Mantel's r and its p."""

    rand: float
    rand_null: float
    rand_p: float
    siblings: float
    siblings_null: float
    siblings_p: float
    mantel: float
    mantel_p: float


def told(tree: pa.PartitionTree, labels: NDArray[np.int64], apart: NDArray[np.float64]) -> Told:
    """A tree against labels of heads and distances between them."""
    near, rng = smallest_folders(tree), np.random.default_rng(0)
    drawn = [rng.permutation(labels) for _ in range(PERMUTATIONS)]
    rand, close = float(np.max(pa.adjusted_rand_index(tree, labels))), siblings(near, labels)
    rands = np.array([np.max(pa.adjusted_rand_index(tree, one)) for one in drawn])
    closes = np.array([siblings(near, one) for one in drawn])
    test = pa.mantel(tree.distance_matrix().astype(float), apart, n_permutations=PERMUTATIONS)
    return Told(
        rand, float(rands.mean()), _p(rands, rand), close, float(closes.mean()), _p(closes, close),
        test.correlation, test.p_value,
    )  # fmt: skip


def _p(null: NDArray[np.float64], value: float) -> float:
    return float((1 + (null >= value).sum()) / (1 + len(null)))


@cache
def found(model: Model, kind: str, tree: str) -> dict[str, Told]:
    """The joint head tree of all inputs against pattern and layer."""
    heads = joint_head_tree(model, inputs_of(model), kind, tree)
    p, layer = profiles(model), layers(model)
    return {
        "pattern": told(heads, patterns(model), np.abs(p[:, None] - p).sum(2)),
        "layer": told(heads, layer, np.abs(layer[:, None] - layer).astype(float)),
    }


def folders(model: Model, kind: str, least: int = 3) -> list[str]:
    """Folders of `least` heads or more, of one pattern that is not content, the largest of each branch."""
    tree = joint_head_tree(model, inputs_of(model), kind, "entropy")
    found: list[tuple[int, str]] = []
    labels = networks.captured(model, inputs_of(model)[0])["weights"].labels
    pattern, taken = patterns(model), np.zeros(tree.n_leaves, bool)
    for level in tree.labels:
        for folder in range(int(level.max()) + 1):
            heads = np.flatnonzero(level == folder)
            kinds = set(pattern[heads].tolist())
            if len(heads) >= least and len(kinds) == 1 and not taken[heads].any():
                taken[heads] = True
                name = PATTERNS[kinds.pop()]
                if name != "content":
                    found.append((len(heads), f"{name}: " + " ".join(labels[i] for i in heads)))
    found.sort(key=lambda one: -one[0])
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return [text for _, text in found[:MOST]] + more


def _draw(model: Model, ax: Any, kind: str) -> None:
    import matplotlib.pyplot as plt

    colours = plt.get_cmap("tab10")
    for row, tree in enumerate(TREES[:2]):
        order = joint_head_tree(model, inputs_of(model), kind, tree).order
        image = np.stack([colours(patterns(model)[order])[:, :3], plt.get_cmap("viridis")(
            layers(model)[order] / max(1, layers(model).max()))[:, :3]])  # fmt: skip
        ax.imshow(image, extent=(0, 1, 2.4 * (1 - row), 2.4 * (1 - row) + 2), aspect="auto", interpolation="nearest")
    ax.set(xlim=(0, 1), ylim=(0, 4.4), xticks=[], title=f"{model.name}, {kind}")
    ax.set_yticks([0.5, 1.5, 2.9, 3.9], ["layer", "flexible: pattern", "layer", "entropy: pattern"], fontsize=7)


def section() -> str:
    """The section of the page."""
    rows, counts = [], []
    for model in NETWORKS:
        n = Counter(PATTERNS[i] for i in patterns(model))
        counts.append([model.name, *(n[name] for name in PATTERNS)])
    for model, kind in cases():
        for tree in TREES:
            for what, t in found(model, kind, tree).items():
                rows.append([model.name, kind, tree, what,
                             f"{t.rand:.2f}", f"{t.rand_null:.2f}", f"{t.rand_p:.3f}",
                             f"{t.siblings:.2f}", f"{t.siblings_null:.2f}", f"{t.siblings_p:.3f}",
                             f"{t.mantel:.2f}", f"{t.mantel_p:.3f}"])  # fmt: skip
    made, axes = figure(len(NETWORKS), 1, height=1.3)
    for ax, model in zip(axes[:, 0], NETWORKS):
        _draw(model, ax, "weights")
    from matplotlib.patches import Patch

    patches = [Patch(color=f"C{i}", label=name) for i, name in enumerate(PATTERNS)]
    made.legend(handles=patches, frameon=False, fontsize=7, ncols=len(PATTERNS), loc="outside lower center")
    same = [f"- {model.name}, {kind}: " + ("; ".join(folders(model, kind)) or "none") for model, kind in cases()]
    better = {
        what: sum(found(m, k, "entropy")[what].siblings > found(m, k, "flexible")[what].siblings for m, k in cases())
        for what in ("pattern", "layer")
    }
    sure = {
        what: sum(found(m, k, "entropy")[what].siblings_p <= 0.01 for m, k in cases()) for what in ("pattern", "layer")
    }
    return "\n\n".join(
        [
            "## What the head tree says",
            "Heads by pattern:",
            table(["network", *PATTERNS], counts),
            f"Beyond chance (p ≤ .01) siblings in the least-entropy tree share a pattern in {sure['pattern']} of "
            f"{len(cases())} tensors and a layer in {sure['layer']}; more than in flexible trees in "
            f"{better['pattern']} and {better['layer']}. Flexible trees hold a pattern better together in: "
            + (", ".join(f"{m.name} {k}" for m, k in cases()
                         if found(m, k, "flexible")["pattern"].siblings > found(m, k, "entropy")["pattern"].siblings)
               or "none") + ".",
            table(["network", "tensor", "tree", "against", "ARI", "by chance", "p", "siblings", "by chance", "p",
                   "Mantel r", "p"], rows),
            "Folders of three heads or more of the least-entropy tree that hold one pattern, the largest ones:",
            "\n".join(same),
            picture(made, "head_tree", "Heads in the order of their trees: pattern above, layer below."),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
