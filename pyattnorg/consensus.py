"""The head tree of several inputs: which heads belong together whatever the input, and how surely.

Trees of one model's heads, one an input, are averaged as distances: the size of the smallest folder that two heads
share. Average linkage of the means gives one tree (the average consensus of Lapointe and Cucumel 1997), and every
folder of it is looked for in the trees of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.checks import whole
from pyattnorg.head_folders import counted, largest_folder, largest_of, named_folders, short
from pyattnorg.head_table import Heads
from pyattnorg.organization import HEADS, Organization
from pyattnorg.tree_comparison import correlation
from pyattnorg.trees import PartitionTree

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ONE_HEIGHT = 1e-9  # merges as close as rounding leaves them make one folder
LIKE_SIZE = 2**0.5  # folders within this factor are of like size
SETS_AT_ONCE = 256  # of folders that are looked for, so that memory stays small
SHUFFLES = 20
SHUFFLE_SEED = 0
COLUMNS = ["heads", "size", "support", "chance", "luck"]  # of `HeadConsensus.folder_table`


def head_consensus(organizations: Iterable[Organization]) -> HeadConsensus:
    """One tree of heads from those of several inputs, and how surely each of its folders is there.

    Parameters
    ----------
    organizations : iterable of Organization, two or more
        Of the same heads, one an input; inputs may differ in length. They are read one at a time, so a generator such
        as ``(pa.organize(c.weights) for c in pa.capture_each(model, texts))`` holds one network in memory.

    Returns
    -------
    HeadConsensus

    Raises
    ------
    TypeError
        Something else than organisations.
    ValueError
        Fewer than two, or of different heads; the message names the first that differ.
    """
    if isinstance(organizations, Organization):
        raise ValueError("organizations: got one Organization, expected two or more, each of another input")
    trees: list[PartitionTree] = []
    heads: Heads | None = None
    for number, one in enumerate(organizations):
        if not isinstance(one, Organization):
            raise TypeError(f"organizations: number {number} is {type(one).__name__}, expected what organize returns")
        heads = one.network.heads if heads is None else heads
        if one.labels != heads.labels:
            raise ValueError(f"organizations: number {number} {_difference(one.labels, heads.labels)}")
        trees.append(one.trees_[HEADS])
    if heads is None or len(trees) < 2:
        raise ValueError(f"organizations: got {len(trees)}, expected two or more, each of another input")
    return HeadConsensus(heads, tuple(trees))


class HeadConsensus:
    """Which heads belong together over several inputs; made by `head_consensus`.

    Attributes
    ----------
    heads : Heads
        The table of heads.
    trees : tuple of PartitionTree
        The head tree of every input.
    distances : ndarray, shape (heads, heads)
        Mean over inputs of the size of the smallest folder that two heads share, over the number of heads.
    tree : PartitionTree
        Average linkage of `distances`, merges of one height made one folder. Where all inputs have the same folders,
        these are its folders.
    """

    def __init__(self, heads: Heads, trees: tuple[PartitionTree, ...]) -> None:
        self.heads = heads
        self.trees = trees
        self.distances = mean_distances([tree.distance_matrix() for tree in trees])
        self.tree = average_linkage(self.distances)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of every head."""
        return self.heads.labels

    @cached_property
    def agreement(self) -> Floats:
        """How far each input's tree agrees with the others, shape (inputs,).

        Correlation of its tree distances with the mean of all other inputs'; 1 for the same trees, about 0 by chance.
        """
        upper = np.triu_indices(len(self.labels), 1)
        total, n = self.distances[upper] * len(self.trees), len(self.trees)
        own = (tree.distance_matrix()[upper] for tree in self.trees)
        return np.array([correlation(x, (total - x) / (n - 1)) for x in own])

    def head_folders(self, level: int | None = None) -> list[list[str]]:
        """Folders of heads, by label, in tree order; as `Organization.head_folders`."""
        return named_folders(self.tree, self.labels, level)

    @property
    def largest_folder(self) -> int:
        """Most heads that a folder of `head_folders` holds by default: a third of them."""
        return largest_folder(len(self.labels))

    @cached_property
    def _supports(self) -> list[Support]:
        """Every folder, the best supported first."""
        own = np.tile(np.arange(len(self.labels)), (len(self.trees), 1))
        found = folder_supports(self.tree, self.trees, own)
        if not found:
            return []
        apart = [tree.distance_matrix() for tree in self.trees]
        rng = np.random.default_rng(SHUFFLE_SEED)
        null: list[Support] = []
        for _ in range(SHUFFLES):
            moved = rng.permuted(own, axis=1)
            tree = average_linkage(mean_distances([x[np.ix_(at, at)] for x, at in zip(apart, moved)]))
            null += folder_supports(tree, self.trees, moved)
        if not null:  # shuffled inputs agree on no folder at all
            return [replace(one, luck=0.0) for one in found]
        sizes, supports = np.array([one.size for one in null]), np.array([one.support for one in null])
        for i, one in enumerate(found):
            far = np.abs(np.log(sizes / one.size))
            like = far <= max(np.log(LIKE_SIZE), far.min())
            found[i] = replace(one, chance=float(supports[like].mean()), luck=float(supports[like].max()))
        return sorted(found, key=lambda one: (one.chance - one.support, -one.size))

    def folder_table(self) -> list[dict[str, Any]]:
        """One row a folder of the consensus, the root and single heads left out, the best supported first.

        heads: their labels, in tree order; size; support: how far the inputs have that folder, the mean over them of
        the largest share of common heads (Jaccard index) with any of their folders, 1 where all have it; chance: what
        folders of like size (within a factor of 1.4, or the nearest size there is) have on average in consensus trees
        of the same inputs with their heads shuffled (20 times, seed 0); luck: the most that any of those had.
        """
        return [
            {"heads": [self.labels[i] for i in one.heads], "size": one.size}
            | {"support": one.support, "chance": one.chance, "luck": one.luck}
            for one in self._supports
        ]

    def support(self, folder: Sequence[str]) -> float:
        """How far the inputs have a folder of these heads, any of them by label: as in `folder_table`."""
        index = {label: i for i, label in enumerate(self.labels)}
        if isinstance(folder, str):
            raise TypeError(f"folder: got {folder!r}, expected a list of labels of heads")
        lost = [label for label in folder if label not in index]
        if lost:
            raise KeyError(f"folder: no head {lost[0]!r}; labels are as {self.labels[0]!r}")
        if not folder:
            raise ValueError("folder: got no head, expected the labels of one or more")
        mask = np.zeros((1, len(index)), bool)
        mask[0, [index[label] for label in folder]] = True
        return float(np.mean([best_match(mask, tree)[0] for tree in self.trees]))

    def summary(self, n: int = 6) -> str:
        """What was found, in one screen of text; the `n` largest folders, and the `n` surest that do not overlap."""
        n = whole(n, "n", at_least=0)
        agreement, folders = self.agreement, self.head_folders()
        lines = [
            f"{len(self.labels)} heads over {len(self.trees)} inputs; each input's head tree agrees with the others by "
            f"{agreement.mean():.2f} on average ({agreement.min():.2f} to {agreement.max():.2f}; 1 the same, 0 chance)",
            counted(folders),
        ]
        shared = [folder for folder in largest_of(folders, n) if len(folder) > 1]
        if shared:
            lines[-1] += "; the largest (share of it that an input has on average, heads):"
        lines += [f"  {self.support(folder):.2f}  {len(folder):3d}  {short(folder, 6)}" for folder in shared]
        surest = self._surest(n)
        if surest:
            lines.append("the surest that do not overlap (share, what chance gives on average and at most, heads):")
        for one in surest:
            said = short([self.labels[i] for i in one.heads], 6)
            lines.append(f"  {one.support:.2f}  {one.chance:.2f} {one.luck:.2f}  {one.size:3d}  {said}")
        if n and not surest:
            lines.append("no folder is surer than chance could make it")
        return "\n".join(lines)

    def _surest(self, n: int) -> list[Support]:
        """The folders furthest above chance and beyond all of it, none of which holds another's heads."""
        found: list[Support] = []
        taken: set[int] = set()
        for one in self._supports:
            if len(found) < n and one.support > one.luck and taken.isdisjoint(one.heads.tolist()):
                found.append(one)
                taken.update(one.heads.tolist())
        return found

    def to_dict(self) -> dict[str, Any]:
        """What was found, as plain values for JSON."""
        return {
            "heads": len(self.labels),
            "inputs": len(self.trees),
            "agreement": self.agreement.tolist(),
            "head_folders": self.head_folders(),
            "folders": self.folder_table(),
            "tree": self.tree.to_newick(self.labels),
        }

    def to_frame(self) -> Any:
        """`folder_table` as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas, or use folder_table()") from None
        return pandas.DataFrame(self.folder_table(), columns=COLUMNS)

    def plot_tree(self, *, ax: Any = None) -> Any:
        """The consensus tree by level, heads coloured by layer; draws on `ax` or makes one, and returns it."""
        from pyattnorg.pictures import draw_tree

        return draw_tree(self.tree, self.labels, layers=self.heads.layer, ax=ax)

    def __repr__(self) -> str:
        return f"HeadConsensus({len(self.labels)} heads, {len(self.trees)} inputs, {counted(self.head_folders())})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


@dataclass(frozen=True)
class Support:
    """A folder, the share of it that the inputs have, and what chance gives, on average and at most, once known."""

    heads: NDArray[np.int32]
    support: float
    chance: float = 0.0
    luck: float = 1.0

    @property
    def size(self) -> int:
        """Number of heads."""
        return len(self.heads)


def mean_distances(apart: Sequence[Floats]) -> Floats:
    """Mean of distances, one matrix an input."""
    total = np.zeros_like(apart[0])
    for x in apart:
        total += x
    return total / len(apart)


def average_linkage(distances: Floats) -> PartitionTree:
    """Tree of average linkage (Sokal and Michener 1958); merges at one height make one folder, so ties build no chain.

    Parameters
    ----------
    distances : ndarray, shape (n, n)
        Symmetric, zeros on the diagonal.
    """
    from scipy.cluster.hierarchy import linkage  # not when the package is imported, which is to be quick
    from scipy.spatial.distance import squareform

    n = len(distances)
    if n == 1:
        return PartitionTree.dyadic(1)
    merges = linkage(squareform(distances, checks=False), "average")
    parent, depth = np.full(2 * n - 1, -1), np.zeros(2 * n - 1, np.int64)
    parent[merges[:, :2].astype(np.int64)] = n + np.arange(n - 1)[:, None]
    height = np.concatenate([np.full(n, -np.inf), merges[:, 2]])
    for node in range(2 * n - 3, -1, -1):
        above = parent[node]
        if height[above] - height[node] <= ONE_HEIGHT * height[above]:  # its children are its parent's
            parent[parent == node] = above
        depth[node] = depth[above] + 1
    at, levels = np.arange(n), []
    for level in range(int(depth[:n].max()), -1, -1):
        at = np.where(depth[at] > level, parent[at], at)
        levels.append(at)
    return PartitionTree.from_labels(np.stack(levels[::-1]))


def best_match(masks: Bools, tree: PartitionTree) -> Floats:
    """Largest Jaccard index of every set of leaves (sets, leaves) with any folder of a tree; shape (sets,)."""
    folders = tree.folders()
    best = np.empty(len(masks))
    for begin in range(0, len(masks), SETS_AT_ONCE):
        some = masks[begin : begin + SETS_AT_ONCE]
        seen = np.zeros((len(some), tree.n_leaves + 1), np.int64)
        np.cumsum(some[:, tree.order], axis=1, out=seen[:, 1:])
        common = seen[:, folders.start + folders.size] - seen[:, folders.start]
        best[begin : begin + SETS_AT_ONCE] = (common / (some.sum(1)[:, None] + folders.size - common)).max(1)
    return best


def folder_supports(tree: PartitionTree, inputs: Sequence[PartitionTree], moved: NDArray[np.int64]) -> list[Support]:
    """Every folder of a tree but the root and the leaves, and the mean over inputs of its best match there.

    Leaf ``i`` of the tree is leaf ``moved[k, i]`` of input ``k``.
    """
    folders = tree.folders()
    kept = np.flatnonzero((folders.size > 1) & (folders.size < tree.n_leaves))
    heads = [tree.order[folders.start[i] : folders.start[i] + folders.size[i]] for i in kept]
    if not heads:
        return []
    masks = np.zeros((len(kept), tree.n_leaves), bool)
    for row, members in zip(masks, heads):
        row[members] = True
    support = np.mean([best_match(masks[:, np.argsort(at)], one) for one, at in zip(inputs, moved)], axis=0)
    return [Support(members, float(share)) for members, share in zip(heads, support)]


def _difference(labels: Sequence[str], expected: Sequence[str]) -> str:
    if len(labels) != len(expected):
        return f"has {len(labels)} heads, the first has {len(expected)}; expected the same heads of one model"
    at = next(i for i, (a, b) in enumerate(zip(labels, expected)) if a != b)
    return f"has {labels[at]} where the first has {expected[at]}; expected the same heads in the same order"


__all__ = ["HeadConsensus", "head_consensus"]
