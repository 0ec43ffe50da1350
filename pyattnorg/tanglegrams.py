"""Two trees of the same points face to face: an order of their leaves with few crossings, and its drawing."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyattnorg.folders import IntArray, fixed
from pyattnorg.pictures import _axes, _colours, _layer_bar, _plain, readable, tree_lines
from pyattnorg.trees import PartitionTree

SWEEPS = 20
MOST_NAMES = 150  # more of them cannot be read


@dataclass(frozen=True)
class Tanglegram:
    """Two trees of the same points with their leaves in orders that agree as far as the folders let them.

    Attributes
    ----------
    left, right : ndarray of int32, shape (n,)
        Leaves of the two trees from top to bottom; every folder is a contiguous run.
    crossings : int
        Pairs of points that stand in opposite order on the two sides, which is how often their lines cross.
    entanglement : float
        `crossings` over the number of pairs: 0 where the trees can be drawn in one order, about 1/2 at random.
    """

    left: IntArray
    right: IntArray
    crossings: int

    @property
    def entanglement(self) -> float:
        n = len(self.left)
        return self.crossings / (n * (n - 1) / 2) if n > 1 else 0.0


def tanglegram(a: PartitionTree, b: PartitionTree) -> Tanglegram:
    """Orders of the leaves of two trees for a tanglegram.

    Beginning with the order of `a`, folders of one tree are sorted by the mean position of their leaves in the other
    (the barycentre rule of layered drawings, Sugiyama, Tagawa and Toda 1981), in turns, and the orders with the fewest
    crossings are kept. The same is tried beginning with `b`. The least number possible is NP-hard to find.
    """
    for name, tree in (("a", a), ("b", b)):
        if not isinstance(tree, PartitionTree):
            raise TypeError(f"{name}: got {type(tree).__name__}, expected a PartitionTree")
    if a.n_leaves != b.n_leaves:
        raise ValueError(f"b: got a tree of {b.n_leaves} leaves, a has {a.n_leaves}; draw trees of the same points")
    starts = [(a.order, _towards(b, a.order)), (_towards(a, b.order), b.order)]
    found = [_swept(a, b, left, right) for left, right in starts]
    return min(found, key=lambda t: t.crossings)


def _swept(a: PartitionTree, b: PartitionTree, left: IntArray, right: IntArray) -> Tanglegram:
    best = Tanglegram(fixed(left), fixed(right), _crossings(left, right))
    for _ in range(SWEEPS):
        left = _towards(a, right)
        right = _towards(b, left)
        now = _crossings(left, right)
        if now >= best.crossings:
            break
        best = Tanglegram(fixed(left), fixed(right), now)
    return best


def _towards(tree: PartitionTree, order: IntArray) -> IntArray:
    """The tree's leaves with the children of every folder sorted by their mean position in `order`."""
    position = np.argsort(order)
    keys: list[NDArray[Any]] = []
    for labels in tree.labels[1:]:
        mean = np.bincount(labels, position) / np.bincount(labels)
        keys += [mean[labels], labels]  # folders whose means are equal stand by first leaf
    # lexsort looks at the last key first: coarse levels before fine ones.
    return np.lexsort(keys[::-1]).astype(np.int32) if keys else tree.order


def _crossings(left: IntArray, right: IntArray) -> int:
    """Inversions of one order against the other."""
    rank = np.argsort(right)[left].tolist()
    seen: list[int] = []
    count = 0
    for i, r in enumerate(rank):
        count += i - bisect_left(seen, r)
        insort(seen, r)
    return count


def plot_tanglegram(
    a: PartitionTree,
    b: PartitionTree,
    labels: Sequence[str] | None = None,
    *,
    layers: ArrayLike | None = None,
    names: tuple[str, str] = ("", ""),
    ax: Any = None,
) -> Any:
    """Two trees face to face, a line from every point on the left to the same point on the right.

    Parameters
    ----------
    a, b : PartitionTree
        Of the same points; their leaves stand as `tanglegram` orders them.
    labels : sequence of str, optional
        Name of every point; the index without it. They are left out above 150 points.
    layers : array of integers, optional
        Colours the points and their lines, such as the layer of every head.
    names : (str, str)
        Written over the two trees.
    ax : matplotlib Axes, optional
        Where to draw; a new one without it. Lines and text only, so that it saves as vector graphics.

    Returns
    -------
    matplotlib Axes
    """
    found = tanglegram(a, b)
    n = a.n_leaves
    if labels is not None and len(labels) != n:
        raise ValueError(f"labels: got {len(labels)}, the trees have {n} leaves")
    if layers is not None and np.shape(layers) != (n,):
        raise ValueError(f"layers: got shape {np.shape(layers)}, expected ({n},)")
    ax = _axes(ax, (7.0, min(max(3.0, 0.12 * n), 30.0)))
    from matplotlib.collections import LineCollection

    # Trees lie on their sides in [-1.6, -0.6] and [0.6, 1.6]; lines join their leaves between.
    for tree, order, side in ((a, found.left, -1.0), (b, found.right, 1.0)):
        joints = tree_lines(tree, order).joints
        depth = max(tree.n_levels - 1, 1)
        lines = np.stack([side * (1.6 - joints[:, :, 1] / depth), joints[:, :, 0]], 2)
        ax.add_collection(LineCollection(list(lines), colors="0.55", linewidths=0.8))
    at = np.stack([np.argsort(found.left), np.argsort(found.right)], 1)
    named = n <= MOST_NAMES
    ends = (-0.42, 0.42) if named else (-0.58, 0.58)
    style = _colours(layers, np.arange(n))
    line_style = {"colors": "C0"} if layers is None else {"array": style["c"], "cmap": style["cmap"]}
    links = LineCollection([[(ends[0], y0), (ends[1], y1)] for y0, y1 in at], linewidths=0.9, **line_style)
    if layers is not None:
        links.set_clim(style["vmin"], style["vmax"])
    ax.add_collection(links)
    if named:
        said = [str(i) for i in range(n)] if labels is None else [_plain(name) for name in readable(labels)]
        for i in range(n):
            ax.text(-0.58, at[i, 0], said[i], fontsize=6, ha="left", va="center")
            ax.text(0.58, at[i, 1], said[i], fontsize=6, ha="right", va="center")
    ax.scatter(np.repeat([[-0.6, 0.6]], n, 0), at, s=8, zorder=3, **_colours(layers, np.repeat(np.arange(n), 2)))
    _layer_bar(ax, layers)
    for x, name in zip((-1.1, 1.1), names):
        ax.text(x, -0.8, _plain(name), ha="center", va="bottom")
    ax.set(xlim=(-1.65, 1.65), ylim=(n - 0.4, -1.2))
    ax.set_title(f"entanglement {found.entanglement:.2f}", fontsize=9)
    ax.axis("off")
    return ax
