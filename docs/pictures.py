"""The pictures of docs/method.md, one a stage, from one small made-up network: python docs/pictures.py [folder]."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

import pyattnorg as pa
from pyattnorg.pictures import draw_affinity, draw_decay, draw_embedding, draw_tree

matplotlib.use("Agg")
from matplotlib import pyplot  # after the backend is chosen

FAMILIES = ("local", "blocks", "waves", "spread")
BLUE, ORANGE, GREY = "#1f5fa8", "#d9752b", "0.6"


def example(tokens: int = 64, heads: int = 24, seed: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Attention weights (tokens, tokens, heads) and the family of every head; tokens and heads stand in no order.

    Every token has a hidden place in [0, 1]. A head looks at near places, at its own block of places, at places that
    are whole waves away, or spreads over the text with a bias.
    """
    rng = np.random.default_rng(seed)
    place = rng.random(tokens)
    family = rng.permutation(np.arange(heads) % len(FAMILIES))
    x = np.empty((tokens, tokens, heads))
    for h in range(heads):
        strength = rng.uniform(2, 5)
        apart = place[:, None] - place
        scores = {
            0: -((apart * 2 * strength) ** 2),
            1: strength * (np.floor(4 * place)[:, None] == np.floor(4 * place)),
            2: strength * np.cos(2 * np.pi * 3 * apart),
            3: -strength * np.broadcast_to(place, apart.shape) / 2,
        }[int(family[h])] + 0.4 * rng.standard_normal((tokens, tokens))
        weights = np.exp(scores - scores.max(1, keepdims=True))
        x[:, :, h] = weights / weights.sum(1, keepdims=True)
    return x, family


X, FAMILY = example()
FITTED = pa.Questionnaire(4, tree="flexible").fit(X)


def _axes(columns: int, width: float = 8.0, height: float = 2.6, **options: Any) -> tuple[Any, Any]:
    return pyplot.subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False, **options)


def _matrix(ax: Any, values: NDArray[Any], title: str, **options: Any) -> None:
    ax.imshow(values, cmap="viridis", interpolation="nearest", aspect="auto", **options)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title, fontsize=9)


def _of_family(family: int) -> int:
    return int(np.flatnonzero(family == FAMILY)[0])


def tensor() -> Any:
    """Four heads as they come: structure is there, but no order shows it."""
    figure, axes = _axes(4)
    for family, ax in enumerate(axes[0]):
        head = _of_family(family)
        _matrix(ax, X[:, :, head], f"head {head}", vmax=np.percentile(X[:, :, head], 99))
    axes[0, 0].set_ylabel("queries")
    axes[0, 0].set_xlabel("keys")
    return figure


def affinity() -> Any:
    """Cosines of queries, as they came and in the order of the tree built from them."""
    k = pa.cosine_affinity(X)
    figure, axes = _axes(2, 6.4, 2.9)
    draw_affinity(k, np.arange(len(k)), ax=axes[0, 0])
    draw_affinity(k, pa.flexible_tree(k).order, ax=axes[0, 1])
    for ax, title in zip(axes[0], ("queries as they came", "in the order of their tree")):
        ax.set_title(title, fontsize=9)
        ax.set_xticks([])
        ax.set_yticks([])
    return figure


def diffusion() -> Any:
    """The diffusion map of heads at three times: what is still apart later is apart on a larger scale."""
    figure, axes = _axes(3)
    for ax, time in zip(axes[0], (0, 1, 2)):
        draw_embedding(FITTED.embedding(2, 2, time).coordinates, ax=ax)
        points = ax.collections[0]
        points.set_array(FAMILY)
        points.set_cmap("tab10")
        points.set(clim=(0, 9), edgecolor="face")
        ax.set_title(f"time {time}", fontsize=9)
        limit = 1.1 * np.abs(FITTED.embedding(2, 2, 0).coordinates).max()
        ax.set(xlim=(-limit, limit), ylim=(-limit, limit))
    return figure


def tree() -> Any:
    """The same affinity of heads as a flexible and as a binary tree."""
    figure, axes = _axes(2, 8.0, 3.0)
    k = FITTED.affinities_[2]
    for ax, built, name in zip(axes[0], (pa.flexible_tree(k), pa.binary_tree(k)), ("flexible", "binary")):
        draw_tree(built, ax=ax)
        marks = ax.collections[-1]
        marks.set_array(FAMILY[built.order])
        marks.set_cmap("tab10")
        marks.set(clim=(0, 9), edgecolor="face")
        ax.set_title(name, fontsize=9)
    return figure


def rows_of_three() -> tuple[NDArray[np.float64], pa.PartitionTree]:
    """Rows a, b and c of the picture of distances, and the tree of their keys."""
    rng = np.random.default_rng(2)
    row = np.repeat([0.8, 0.2, 0.5, 0.3], 4)
    rows = np.stack([row + 0.1 * rng.standard_normal(16), row + 0.1 * rng.standard_normal(16), np.roll(row, 4)])
    return rows, pa.PartitionTree.dyadic(16)


def distance() -> Any:
    """Two rows that differ in every key but agree over folders, and two that do not."""
    rows, keys = rows_of_three()
    figure, axes = _axes(3, 8.0, 2.6, sharey=True)
    e, plain = pa.tree_emd(rows, keys), pa.pairwise_l1(rows) / 16
    for ax, level in zip(axes[0], (4, 2, 1)):
        for values, colour, name in zip(rows, (BLUE, "#7fb2e5", ORANGE), "abc"):
            labels = keys.labels[level]
            means = (np.bincount(labels, values) / np.bincount(labels))[labels]
            ax.step(np.arange(17), np.append(means, means[-1]), where="post", color=colour, label=name)
        ax.set_title(f"averages over folders of {16 // 2**level}", fontsize=9)
        ax.set_xticks([])
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper right")
    figure.supxlabel(
        f"keys.   l1 per key: a-b {plain[0, 1]:.2f}, a-c {plain[0, 2]:.2f};   "
        f"tree distance: a-b {e[0, 1]:.2f}, a-c {e[0, 2]:.2f}",
        fontsize=8,
    )
    return figure


def questionnaire() -> Any:
    """Entropy and movement of the trees by iteration; one head before and after."""
    figure, axes = _axes(4, 9.5, 2.6)
    history = FITTED.history_
    start = pa.l1_entropy(pa.haar(X, [pa.PartitionTree.dyadic(n) for n in X.shape]))
    axes[0, 0].plot(range(len(history) + 1), [start, *(step["entropy"] for step in history)], "o-", color=BLUE)
    axes[0, 0].set_title("l1 entropy", fontsize=9)
    for axis, (name, colour) in enumerate((("queries", BLUE), ("keys", ORANGE), ("heads", GREY))):
        moved = [np.nan if step["moved"][axis] is None else step["moved"][axis] for step in history]
        axes[0, 1].plot(range(1, len(history) + 1), moved, "o-", color=colour, label=name)
    axes[0, 1].legend(frameon=False, fontsize=7)
    axes[0, 1].set_title("how far trees moved", fontsize=9)
    for ax in axes[0, :2]:
        ax.set_xlabel("iteration", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.set_xticks(range(len(history) + 1))
    head = _of_family(2)
    top = np.percentile(X[:, :, head], 99)
    _matrix(axes[0, 2], X[:, :, head], f"head {head} as it came", vmax=top)
    _matrix(axes[0, 3], X[:, :, head][np.ix_(FITTED.order(0), FITTED.order(1))], "organised", vmax=top)
    return figure


def haar() -> Any:
    """The Haar functions of a small tree beside the tree."""
    labels = [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 2, 2, 2]]
    small = pa.PartitionTree.from_labels(np.array(labels))
    figure, axes = _axes(2, 8.0, 3.0, width_ratios=(1, 1.6))
    draw_tree(small, ax=axes[0, 0])
    axes[0, 0].set_title("a tree of eight points", fontsize=9)
    for k, column in enumerate(pa.haar_basis(small).T):
        axes[0, 1].step(np.arange(9), np.append(column, column[-1]) * 0.45 - k, where="post", color=BLUE, linewidth=1.2)
        axes[0, 1].axhline(-k, color="0.85", linewidth=0.6, zorder=0)
    axes[0, 1].set(yticks=-np.arange(8), yticklabels=[str(k) for k in range(8)], xticks=[], ylabel="function")
    axes[0, 1].set_title("its eight Haar functions, coarse to fine", fontsize=9)
    return figure


def sparsity() -> Any:
    """Sorted coefficients in the organised basis and in others."""
    given = [pa.PartitionTree.dyadic(n) for n in X.shape]
    curves = {}
    for name, c in {"organised": FITTED.coefficients(), "as it came": pa.haar(X, given), "entries": X}.items():
        curves[f"{name}: {pa.l1_entropy(c):.2f}"] = np.sort(np.abs(c), axis=None)[::-1] / np.linalg.norm(c)
    figure, axes = _axes(1, 5.4, 3.2)
    draw_decay(curves, ax=axes[0, 0])
    axes[0, 0].legend(frameon=False, title="basis: l1 entropy", fontsize=8, title_fontsize=8)
    return figure


def paraproduct() -> Any:
    """Exp of a rough function: what the paraproduct takes, and the residual it leaves, beside the function."""
    n = 256
    dyadic = pa.PartitionTree.dyadic(n)
    rng = np.random.default_rng(3)
    folders = dyadic.folders()
    splits = folders.size[folders.size > 1]  # coefficients of a function of Hoelder exponent 0.5
    c = np.concatenate([[0], rng.standard_normal(n - 1) * (splits / n) ** 1.0])
    f = pa.ihaar(c, dyadic)
    f *= 0.4 / f.std()
    means = [(np.bincount(row, f) / np.bincount(row))[row] for row in dyadic.labels]
    first = sum(np.exp(a) * (b - a) for a, b in pairwise(means))
    residual = np.exp(f) - np.exp(means[0]) - first
    figure, axes = _axes(3, 8.5, 2.5)
    for ax, values, title in zip(
        axes[0],
        (np.exp(f), np.exp(means[0]) + first, residual),
        ("exp(f)", "boundary + paraproduct", "residual"),
    ):
        ax.step(np.arange(n), values, color=BLUE, linewidth=0.8, where="post")
        ax.set_title(title, fontsize=9)
        ax.set_xticks([])
        ax.tick_params(labelsize=7)
    return figure


def comparison() -> Any:
    """Head trees of two halves of the queries, face to face."""
    halves = [pa.Questionnaire(3, tree="flexible").fit(half).trees_[2] for half in (X[::2], X[1::2])]
    figure, axes = _axes(1, 6.5, 3.6)
    pa.plot_tanglegram(*halves, layers=FAMILY, names=("even queries", "odd queries"), ax=axes[0, 0])
    figure.axes[1].set_ylabel("family")
    return figure


def known() -> Any:
    """The levels of a quadtree of 6 x 6 patches."""
    squares = pa.quadtree(6, 6)
    figure, axes = _axes(squares.n_levels, 7.0, 1.9)
    rng = np.random.default_rng(0)
    for level, ax in enumerate(axes[0]):
        labels = squares.labels[level].reshape(6, 6)
        ax.imshow(rng.permutation(labels.max() + 1)[labels], cmap="tab20", interpolation="nearest")
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"level {level}", fontsize=9)
    return figure


STAGES: tuple[Callable[[], Any], ...] = (
    tensor, affinity, diffusion, tree, known, distance, questionnaire, haar, sparsity, paraproduct, comparison
)  # fmt: skip


def main(folder: Path) -> None:
    """Write one PNG a stage."""
    folder.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        figure = stage()
        figure.savefig(folder / f"{stage.__name__}.png", dpi=110, metadata={"Software": None})
        pyplot.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "method")
