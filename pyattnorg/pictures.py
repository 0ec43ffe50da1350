"""Drawings of trees, embeddings, affinities, heads and coefficients with matplotlib, on arrays and labels alone.

Every ``draw_*`` takes an ``ax`` or makes one, and returns it; nothing is shown or saved here. What they draw is lines,
marks and text, so that ``ax.figure.savefig("x.svg")`` or ``"x.pdf"`` gives vector graphics. The geometry of a tree is
here too, for whoever draws it by other means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.trees import PartitionTree

COLOURS = "viridis"
UNSEEN = "#94969c"  # of cells that the model cannot see
MOST_TICKS = 48  # names beside a matrix; more of them cannot be read
CURVE_POINTS = 400


@dataclass(frozen=True)
class TreeLines:
    """A tree as a drawing: leaves side by side in tree order, levels from the root (0) down.

    Attributes
    ----------
    x, y : (n_folders,)
        Where each distinct folder stands: over the middle of its children, at the level where it splits.
    joints : (n_folders - 1, 3, 2)
        For every folder but the root, the bend from its parent: three points (x, y).
    """

    x: FloatArray
    y: FloatArray
    joints: FloatArray


def tree_lines(tree: PartitionTree, order: ArrayLike | None = None) -> TreeLines:
    """Where the folders of a tree stand and the lines that join them, with its leaves in tree order or another one."""
    folders = tree.folders()
    offset, child = folders.children
    # A folder's first position among the leaves; for leaves, which is all that is used, their own.
    x = (folders.start if order is None else np.argsort(order)[tree.order][folders.start]).astype(float)
    for i in range(len(folders) - 1, -1, -1):  # children come after their parents
        below = child[offset[i] : offset[i + 1]]
        if len(below):
            x[i] = (x[below].min() + x[below].max()) / 2
    y = folders.last_level.astype(float)
    up = folders.parent[1:]
    at, above = np.stack([x[1:], y[1:]], 1), np.stack([x[up], y[up]], 1)
    corner = np.stack([x[1:], y[up]], 1)
    return TreeLines(x, y, np.stack([above, corner, at], 1))


def log_spaced(n: int, most: int = CURVE_POINTS) -> NDArray[np.int64]:
    """At most `most` of the indices 0 ... n - 1, evenly spaced on a logarithmic axis; both ends are there."""
    if n <= most:
        return np.arange(n)
    return np.unique(np.rint(np.geomspace(1, n, most)).astype(np.int64)) - 1


def spread(n: int, most: int = MOST_TICKS) -> NDArray[np.int64]:
    """At most `most` evenly spaced indices of 0 ... n - 1."""
    return np.arange(0, n, max(-(-n // most), 1))


def draw_tree(
    tree: PartitionTree, labels: Sequence[str] | None = None, *, layers: ArrayLike | None = None, ax: Any = None
) -> Any:
    """A partition tree by level, the root on top, its leaves named and coloured by layer.

    Parameters
    ----------
    tree : PartitionTree
    labels : sequence of str, optional
        Name of every leaf, in the order of the points; the index without it. They are left out above 400 leaves.
    layers : array of integers, optional
        Layer of every leaf.
    ax : matplotlib Axes, optional
    """
    n = tree.n_leaves
    ax = _axes(ax, (min(max(6.0, 0.13 * n), 40.0), 4.5))
    lines = tree_lines(tree)
    from matplotlib.collections import LineCollection

    ax.add_collection(LineCollection(list(lines.joints), colors="0.55", linewidths=0.8))
    bottom = tree.n_levels - 1
    ax.scatter(
        np.arange(n), np.full(n, bottom), s=14, zorder=3, clip_on=False, **_colours(layers, np.asarray(tree.order))
    )
    _layer_bar(ax, layers)
    names = [str(i) for i in range(n)] if labels is None else readable(labels)
    ax.set_xticks(np.arange(n) if n <= 400 else [])
    if n <= 400:
        ax.set_xticklabels([_plain(names[i]) for i in tree.order], rotation=90, fontsize=7)
    ax.tick_params(axis="x", length=0)
    ax.set(xlim=(-1, n), ylim=(bottom + 0.2, -0.3), ylabel="level")
    ax.yaxis.get_major_locator().set_params(integer=True)
    _bare(ax, "top", "right", "bottom")
    return ax


def draw_embedding(
    coordinates: ArrayLike, labels: Sequence[str] | None = None, *, layers: ArrayLike | None = None, ax: Any = None
) -> Any:
    """The first two diffusion coordinates as points, named where there are at most 150, coloured by layer."""
    xy = np.asarray(coordinates, float)
    if xy.ndim != 2 or xy.shape[1] < 1:
        raise ValueError(f"coordinates: got shape {xy.shape}, expected (n, k) with k at least 1")
    flat = xy[:, 1] if xy.shape[1] > 1 else np.zeros(len(xy))
    ax = _axes(ax, (6.0, 5.0))
    ax.scatter(xy[:, 0], flat, s=22, **_colours(layers, np.arange(len(xy))))
    _layer_bar(ax, layers)
    if labels is not None and len(xy) <= 150:
        for name, x, y in zip(readable(labels), xy[:, 0], flat):
            ax.annotate(_plain(name), (x, y), (2, 2), textcoords="offset points", fontsize=6, alpha=0.8)
    ax.set(xlabel="diffusion coordinate 1", ylabel="diffusion coordinate 2" if xy.shape[1] > 1 else "")
    _bare(ax, "top", "right")
    return ax


def draw_affinity(affinity: ArrayLike, order: ArrayLike, labels: Sequence[str] | None = None, *, ax: Any = None) -> Any:
    """An affinity with its points in the order given, such as that of a tree's leaves."""
    k, at = np.asarray(affinity), np.asarray(order)
    if k.ndim != 2 or k.shape != (len(at), len(at)):
        raise ValueError(f"affinity: got shape {k.shape}, expected {(len(at), len(at))} for an order of {len(at)}")
    names = [str(i) for i in range(len(k))] if labels is None else list(labels)
    sorted_names = [names[i] for i in at]
    return draw_head(k[np.ix_(at, at)], sorted_names, sorted_names, limits=(0.0, 1.0), what=("", ""), ax=ax)


def draw_head(
    matrix: ArrayLike,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    limits: tuple[float, float] | None = None,
    what: tuple[str, str] = ("queries", "keys"),
    ax: Any = None,
) -> Any:
    """One head's matrix, queries down and keys across, with every so many tokens named.

    Parameters
    ----------
    matrix : array, shape (queries, keys)
        NaN where the model cannot see: those cells are grey.
    queries, keys : sequence of str, optional
        Names in the order of the matrix.
    limits : (float, float), optional
        Values of the first and last colour; without it the 1st and 99th percentile.
    what : (str, str)
        Names of the two axes.
    ax : matplotlib Axes, optional
    """
    values = np.asarray(matrix)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"matrix: got shape {values.shape}, expected (queries, keys)")
    ax = _axes(ax, (6.0, 5.4))
    low, high = limits if limits is not None else colour_limits(values)
    image = ax.imshow(values, cmap=COLOURS, vmin=low, vmax=high, interpolation="nearest", aspect="auto")
    ax.set_facecolor(UNSEEN)
    ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03)
    for axis, names, n in ((ax.yaxis, queries, values.shape[0]), (ax.xaxis, keys, values.shape[1])):
        shown = spread(n)
        said = [str(i) for i in range(n)] if names is None else readable(names)
        axis.set_ticks(shown, [_plain(said[i]) for i in shown], fontsize=6)
    ax.tick_params(axis="x", rotation=90)
    ax.set(ylabel=what[0], xlabel=what[1])
    return ax


def draw_decay(curves: Mapping[str, ArrayLike], *, ax: Any = None) -> Any:
    """Coefficient magnitudes, largest first, one curve a basis, both axes logarithmic."""
    ax = _axes(ax, (6.0, 4.5))
    lowest, top = np.inf, 0.0
    for name, curve in curves.items():
        values = np.asarray(curve, float)
        at = log_spaced(len(values))
        at = at[values[at] > 0]
        ax.plot(at + 1, values[at], label=name, linewidth=1.6)
        lowest, top = min(lowest, decay_floor(values)), max(top, float(values.max(initial=0)))
    ax.set(xscale="log", yscale="log", xlabel="coefficient, largest first", ylabel="magnitude / norm")
    if top > 0:
        ax.set_ylim(lowest / 1.6, top * 1.6)
    ax.legend(frameon=False)
    _bare(ax, "top", "right")
    return ax


def decay_floor(curve: FloatArray) -> float:
    """Where a plot of a decay ends: the very last coefficients fall to nothing and would press the rest together."""
    return float(max(curve[int(0.9 * (len(curve) - 1))], 1e-6 * curve[0])) if len(curve) else 0.0


def colour_limits(values: NDArray[Any], percentiles: tuple[float, float] = (1, 99)) -> tuple[float, float]:
    """Two percentiles, so that a few large cells do not make all others look alike."""
    values = values[~np.isnan(values)]  # cells that the model cannot see
    if not len(values):
        return 0.0, 1.0
    low, high = (float(p) for p in np.percentile(values, percentiles))
    if high <= low:
        low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low, low + 1.0)


def _axes(ax: Any, size: tuple[float, float]) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("matplotlib is needed to draw: pip install 'pyattnorg[viz]'") from None
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _colours(layers: ArrayLike | None, order: NDArray[Any]) -> dict[str, Any]:
    if layers is None:
        return {"color": "C0"}
    numbers = np.asarray(layers)
    return {"c": numbers[order], "cmap": COLOURS, "vmin": numbers.min(), "vmax": max(numbers.max(), numbers.min() + 1)}


def _layer_bar(ax: Any, layers: ArrayLike | None) -> None:
    """A colour bar for the marks just drawn, where there is more than one layer to tell apart."""
    if layers is not None and len(np.unique(np.asarray(layers))) > 1:
        bar = ax.figure.colorbar(ax.collections[-1], ax=ax, fraction=0.046, pad=0.02, label="layer")
        bar.locator.set_params(integer=True)
        bar.update_ticks()


def _bare(ax: Any, *sides: str) -> None:
    for side in sides:
        ax.spines[side].set_visible(False)


def readable(names: Sequence[str]) -> list[str]:
    """Token names as text: those of byte-level vocabularies (``Ġthe``, ``âĢľ``) are spelled out, a blank as ``▁``."""
    if not any("Ġ" in name or "Ċ" in name for name in names):
        return list(names)
    letters = _letters()
    out = []
    for name in names:
        try:
            out.append(bytes(letters[c] for c in name).decode().replace(" ", "▁"))
        except (KeyError, UnicodeDecodeError):  # a special token, or part of a letter: left as it is
            out.append(name)
    return out


@cache
def _letters() -> dict[str, int]:
    """Byte of every letter of a byte-level vocabulary: printable ones stand for themselves, others from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _plain(name: str, most: int = 16) -> str:
    """A name as matplotlib shows it letter by letter: no mathematics between dollars, not too long."""
    short = name if len(name) <= most else name[: most - 1] + "…"
    return "".join(c if c.isprintable() else "·" for c in short).replace("$", r"\$")


__all__ = [
    "TreeLines", "colour_limits", "decay_floor", "draw_affinity", "draw_decay", "draw_embedding", "draw_head",
    "draw_tree", "log_spaced", "readable", "spread", "tree_lines",
]  # fmt: skip
