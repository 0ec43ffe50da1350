"""What the maps of one input say of every head: numbers from the organisation, and the usual ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.haar import haar
from pyattnorg.network import NetworkTensor
from pyattnorg.organization import HEADS, KEYS, QUERIES, organize
from pyattnorg.sparsity import head_numbers
from pyattnorg.trees import PartitionTree

Numbers = dict[str, NDArray[np.float64]]
COARSE = 0.25  # folders of at least this share of an axis are coarse


def map_numbers(network: NetworkTensor) -> Numbers:
    """Of a network of weights, for every head: the larger, the more important the head should be.

    ``confidence``: mean over queries of the largest weight (Voita et al. 2019, arXiv 1905.09418);
    ``attention_entropy``: minus the mean entropy of a row, in nats; ``sink``: mass that does not go to the
    first key that a row sees.
    """
    weights = network.values.astype(np.float64)
    seen = network.visible_cells()
    rows = seen.any(1)
    count = np.maximum(rows.sum(0), 1)
    safe = np.where(weights > 0, weights, 1.0)
    entropy = -(weights * np.log(safe)).sum(1)
    first = np.take_along_axis(weights, seen.argmax(1)[:, None, :], 1)[:, 0]

    def mean(x: NDArray[np.float64]) -> NDArray[np.float64]:
        out: NDArray[np.float64] = np.where(rows, x, 0.0).sum(0) / count
        return out

    return {"confidence": mean(weights.max(1)), "attention_entropy": -mean(entropy), "sink": 1.0 - mean(first)}


def organised_numbers(network: NetworkTensor, worth: NDArray[np.float64], **options: Any) -> Numbers:
    """Of a network, for every head: the larger, the more important the head should be.

    ``involvement``: the paper's bi-Haar l1 entropy of the coarsest functions (arXiv 2506.15541: heads with little
    of it are least involved); ``sparsity``: minus the normalised l1 entropy of all its bi-Haar coefficients;
    ``fine``: share of their energy in folders smaller than a quarter of an axis; ``distance``: tree distance to the
    nearest head, over the median distance; ``alone``: at how coarse a level of the head tree the head first has
    company; ``folders``: the share of levels at which the head has the largest `worth` (heads,) of its folder.
    """
    found = organize(network, **options)
    values = found.network.values
    trees = found.trees_
    coefficients = np.moveaxis(haar(values, [trees[QUERIES], trees[KEYS], None]), 2, 0)
    of = head_numbers(coefficients)
    distances = np.array(found.distances_[HEADS], np.float64)
    np.fill_diagonal(distances, np.inf)
    others = distances[np.isfinite(distances)]
    median = float(np.median(others)) if others.size else 0.0
    nearest = distances.min(1) if others.size else np.ones(len(distances))
    return {
        "involvement": of["involvement"],
        "sparsity": -of["entropy"],
        "fine": _fine(coefficients, trees[QUERIES], trees[KEYS]),
        "distance": nearest / (median or 1.0),
        "alone": _alone(trees[HEADS]),
        "folders": _leads(trees[HEADS], worth),
    }


def _fine(coefficients: FloatArray, queries: PartitionTree, keys: PartitionTree) -> NDArray[np.float64]:
    energy = coefficients.astype(np.float64) ** 2
    coarse = _coarse(queries)[:, None] | _coarse(keys)[None, :]
    total = energy.sum((1, 2))
    out: NDArray[np.float64] = (energy * ~coarse).sum((1, 2)) / np.where(total > 0, total, 1.0)
    return out


def _coarse(tree: PartitionTree) -> NDArray[np.bool_]:
    """Which Haar functions live on large folders: the first (constant) one, and those of folders large enough."""
    from pyattnorg.haar import haar_basis

    support = (np.abs(haar_basis(tree)) > 1e-12).sum(0)
    return np.asarray(support >= COARSE * tree.n_leaves)


def _alone(tree: PartitionTree) -> NDArray[np.float64]:
    """Share of levels, counted from the leaves, at which a head is in a folder of its own."""
    labels = tree.labels
    levels = len(labels)
    out = np.zeros(tree.n_leaves)
    for level in labels:
        sizes = np.bincount(level)
        out += sizes[level] == 1
    return out / levels


def _leads(tree: PartitionTree, worth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of levels at which a head is its folder's most worthy one, and its rank by worth for those that tie."""
    order = np.argsort(-worth, kind="stable")
    out = np.zeros(tree.n_leaves)
    for level in tree.labels:
        _, first = np.unique(level[order], return_index=True)
        out[order[first]] += 1
    rank = np.empty(tree.n_leaves)
    rank[order[::-1]] = np.arange(tree.n_leaves)
    return (out + rank / tree.n_leaves) / len(tree.labels)


__all__ = ["Numbers", "map_numbers", "organised_numbers"]
