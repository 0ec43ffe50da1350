"""What is compressed: three networks on one input each, before and after softmax, and their trees."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import pyattnorg as pa

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "paper"))  # models, inputs, tables and pictures are those of that page
import networks  # noqa: E402
from methods import Case, bases, of_basis, of_heads, of_tucker  # noqa: E402
from networks import MODELS, SCORES_AND_WEIGHTS, Model  # noqa: E402

PICTURES = ROOT / "docs" / "compression-study"
ERRORS = (0.01, 0.05, 0.1)
OURS, BEST = "pa.compress", 'pa.compress, form="auto"'
HEADS, ROWS_OF_HEADS = (0, 1, 2), (2,)
TUCKER, UNFOLDING, SVD = "Tucker", "singular vectors of (queries keys) x heads", "singular vectors of every head"

pa.set_num_threads(1)


def cases() -> list[tuple[Model, str]]:
    """Every network before and after softmax."""
    return [(model, kind) for model in MODELS for kind in SCORES_AND_WEIGHTS]


@cache
def network(model: Model, kind: str, at: int = 0) -> pa.NetworkTensor:
    """A network on one of its inputs; of images every second token. No names: they are the same for every method."""
    found = networks.captured(model, model.inputs[at])[kind]
    values = found.values[::2, ::2] if model.sees_images else found.values
    return pa.NetworkTensor(np.ascontiguousarray(values), kind=kind, visible=found.visible)


@cache
def entropy_trees(model: Model, kind: str, at: int = 0) -> tuple[pa.PartitionTree, ...]:
    """Least-entropy trees of a network."""
    return pa.Questionnaire().fit(network(model, kind, at).filled("mean").values).trees_


@cache
def case(model: Model, kind: str) -> Case:
    """A network with a number in every cell, and three kinds of trees."""
    found = network(model, kind).filled("mean")
    seen = None if found.visible is None else found.visible_cells()
    trees = {
        "entropy": entropy_trees(model, kind),
        "flexible": pa.Questionnaire(tree="flexible").fit(found.values).trees_,
        "paper": pa.Questionnaire(schedule="paper").fit(found.values).trees_,
    }
    return Case(found.values.astype(np.float64), seen, trees)


@cache
def compressed(model: Model, kind: str, error: float, form: Any = "haar", at: int = 0) -> pa.Compressed:
    """By `pa.compress`, with least-entropy trees."""
    return pa.compress(network(model, kind, at), error=error, trees=entropy_trees(model, kind, at), form=form)


@cache
def sizes(model: Model, kind: str) -> dict[str, list[tuple[float, float]]]:
    """Of every method bytes, coded and plain, at every error."""
    one = case(model, kind)
    out: dict[str, list[tuple[float, float]]] = {
        name: [(compressed(model, kind, e, form).nbytes, float("nan")) for e in ERRORS]
        for name, form in ((OURS, "haar"), (BEST, "auto"))
    }
    for name, basis in bases(one).items():
        out[name] = [of_basis(one, basis, e) for e in ERRORS]
    out[SVD] = [of_heads(one, e) for e in ERRORS]
    out[TUCKER] = [of_tucker(one, HEADS, e) for e in ERRORS]
    out[UNFOLDING] = [of_tucker(one, ROWS_OF_HEADS, e) for e in ERRORS]
    return out
