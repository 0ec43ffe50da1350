"""What is studied: four networks, five inputs each, kinds of trees, and the numbers that decide."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

import pyattnorg as pa

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "paper"))  # models, inputs, tables and pictures are those of that page
import networks  # noqa: E402
from networks import DINO, MINILM, RXNMAPPER, SCORES_AND_WEIGHTS, SMOLLM, Model  # noqa: E402

Tensor = NDArray[np.floating]
Trees = tuple[pa.PartitionTree, ...]

NETWORKS = (MINILM, SMOLLM, DINO, RXNMAPPER)
N_INPUTS = 5
HEADS = 2
ERROR = 0.05
LINKAGES = ("average", "complete", "ward")
KINDS = ("entropy", "flexible", "binary", *LINKAGES)  # trees that are fitted
FIXED = ("given order", "shuffled", "identity")  # bases that no data has a say in
CANDIDATES = ("entropy", "flexible", "binary")  # kinds that a questionnaire builds, one of which is the default
PICTURES = ROOT / "docs" / "entropy-study"

pa.set_num_threads(1)  # results are the same for any number; tensors are too small for more to pay


class Numbers(NamedTuple):
    """How sparse coefficients are: normalised l1 entropy, effective number, share of them for an error of 5 %."""

    entropy: float
    effective: float
    share: float


def numbers(c: Tensor) -> Numbers:
    """The three numbers of the study."""
    return Numbers(pa.l1_entropy(c), pa.effective_number(c), pa.coefficients_needed(c, ERROR) / c.size)


def inputs_of(model: Model) -> tuple[str, ...]:
    """The first five inputs of a model."""
    return model.inputs[:N_INPUTS]


def cases() -> list[tuple[Model, str]]:
    """Every network before and after softmax."""
    return [(model, kind) for model in NETWORKS for kind in SCORES_AND_WEIGHTS]


@cache
def tensor(model: Model, name: str, kind: str) -> Tensor:
    """A network on an input, every cell filled; of images every second token, the class token among them."""
    values = networks.captured(model, name)[kind].filled("mean").values
    return np.ascontiguousarray(values[::2, ::2] if model.sees_images else values)


class Fit(NamedTuple):
    """Trees of a tensor, and the distances that they, or their like, were built from."""

    trees: Trees
    distances: tuple[Tensor, ...]


def fit(x: Tensor, kind: str) -> Fit:
    """Trees of one kind; linkages are those of the distances behind the flexible trees."""
    if kind in LINKAGES:
        return linked(fit(x, "flexible"), kind)
    found = pa.Questionnaire(20 if kind == "entropy" else 3, tree=kind).fit(x)
    return Fit(found.trees_, found.distances_)


def linked(flexible: Fit, method: str) -> Fit:
    """Trees by linkage of the distances of another fit."""
    return Fit(tuple(linkage_tree(e, method) for e in flexible.distances), flexible.distances)


def linkage_tree(distances: Tensor, method: str) -> pa.PartitionTree:
    """SciPy's hierarchical clustering as a partition tree."""
    pairs = squareform(np.asarray(distances, np.float64), checks=False)
    return pa.PartitionTree.from_linkage(linkage(pairs, method))


def fits(x: Tensor, kinds: Sequence[str] = KINDS) -> dict[str, Fit]:
    """Trees of several kinds, what they share made once."""
    made = {kind: fit(x, kind) for kind in kinds if kind not in LINKAGES}
    base = made.get("flexible") if any(kind in LINKAGES for kind in kinds) else None
    return made | {kind: linked(base or fit(x, "flexible"), kind) for kind in kinds if kind in LINKAGES}


@cache
def fitted(model: Model, name: str, kind: str) -> dict[str, Fit]:
    """All kinds of trees of one network on one input."""
    return fits(tensor(model, name, kind))


def joint_head_tree(model: Model, names: Sequence[str], kind: str, tree: str) -> pa.PartitionTree:
    """One head tree of several inputs: from the features of all side by side, or from the mean of their distances."""
    found = [fitted(model, name, kind)[tree] for name in names]
    if tree == "entropy":
        rows = []
        for name, one in zip(names, found):
            c = pa.haar(tensor(model, name, kind), [*one.trees[:HEADS], None])
            rows.append(np.moveaxis(c, HEADS, 0).reshape(c.shape[HEADS], -1) / np.linalg.norm(c))
        return pa.entropy_tree(np.concatenate(rows, 1))
    distances = np.mean([one.distances[HEADS] / np.median(one.distances[HEADS]) for one in found], axis=0)
    if tree in LINKAGES:
        return linkage_tree(distances, tree)
    build: Callable[..., pa.PartitionTree] = pa.flexible_tree if tree == "flexible" else pa.binary_tree
    return build(pa.dual_affinity(distances))


def fixed(x: Tensor, kind: str) -> Tensor:
    """Coefficients in a basis that no data has a say in."""
    if kind == "identity":
        return x
    if kind == "shuffled":
        rng = np.random.default_rng(0)
        x = x[np.ix_(*(rng.permutation(n) for n in x.shape))]
    return pa.haar(x, [pa.PartitionTree.dyadic(n) for n in x.shape])


def permuted(tree: pa.PartitionTree, seed: int) -> pa.PartitionTree:
    """A tree of the same shape whose leaves stand at random places."""
    order = np.random.default_rng(seed).permutation(tree.n_leaves)
    return pa.PartitionTree.from_labels(tree.labels[:, order])


@lru_cache(maxsize=1)
def halves(n_heads: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Heads in two halves at random."""
    order = np.random.default_rng(0).permutation(n_heads)
    return np.sort(order[: n_heads // 2]), np.sort(order[n_heads // 2 :])
