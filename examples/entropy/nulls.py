"""The same on tensors that have no organisation to find: permuted, shuffled, of random phases, of random weights.

python examples/entropy/nulls.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from out_of_sample import held_out_heads
from page_parts_of import show, spread, table
from study import Model, Tensor, cases, fits, inputs_of, numbers, tensor

import pyattnorg as pa

SEEDS = (0, 1)  # of random weights, an input each
N_NULLS = 2  # inputs of the other nulls


def entries_permuted(x: Tensor, seed: int) -> Tensor:
    """All entries at random places."""
    return np.random.default_rng(seed).permutation(x.ravel()).reshape(x.shape)


def cells_shuffled(x: Tensor, seed: int) -> Tensor:
    """Every head's entries at random places of that head."""
    rng = np.random.default_rng(seed)
    flat = x.reshape(-1, x.shape[2])
    return np.ascontiguousarray(rng.permuted(flat, axis=0).reshape(x.shape))


def phases_random(x: Tensor, seed: int) -> Tensor:
    """The power spectrum of all three axes with the phases of white noise."""
    noise = np.fft.rfftn(np.random.default_rng(seed).standard_normal(x.shape))
    spectrum = np.abs(np.fft.rfftn(x)) * noise / np.abs(noise)
    spectrum[0, 0, 0] = np.fft.rfftn(x)[0, 0, 0]  # the mean stays
    return np.ascontiguousarray(np.fft.irfftn(spectrum, x.shape, axes=(0, 1, 2)), x.dtype)


NULLS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "as it is": lambda x, seed: x,
    "entries permuted": entries_permuted,
    "cells of heads shuffled": cells_shuffled,
    "phases random": phases_random,
}


class Gain(NamedTuple):
    """ē of least-entropy trees over that of others: in sample, and for held-out heads."""

    over_flexible: float
    over_identity: float
    held_out_over_flexible: float
    held_out_over_shuffled: float
    held_out_over_permuted: float


def gain(x: Tensor) -> Gain:
    """What least-entropy trees gain on one tensor, in sample and on held-out heads."""
    found = fits(x, ("entropy", "flexible"))
    e = {tree: pa.l1_entropy(pa.haar(x, one.trees)) for tree, one in found.items()}
    other = held_out_heads(x, ("entropy", "flexible"))
    mean = {tree: float(np.mean([one.entropy for one in each])) for tree, each in other.items()}
    return Gain(
        e["entropy"] / e["flexible"],
        e["entropy"] / numbers(x).entropy,
        mean["entropy"] / mean["flexible"],
        mean["entropy"] / mean["shuffled"],
        mean["entropy"] / mean["leaves permuted"],
    )


@cache
def gains(model: Model, kind: str, null: str) -> list[Gain]:
    """For every input, or seed and input."""
    if null == "random weights":
        twins = [model.randomised(seed) for seed in SEEDS]
        return [gain(tensor(twin, name, kind)) for twin, name in zip(twins, inputs_of(model))]
    names = inputs_of(model)[: None if null == "as it is" else N_NULLS]
    return [gain(NULLS[null](tensor(model, name, kind), seed)) for seed, name in enumerate(names)]


def section() -> str:
    """The section of the page."""
    rows = []
    for model, kind in cases():
        for null in (*NULLS, "random weights"):
            each = np.array(gains(model, kind, null))
            rows.append([model.name, kind, null, *(spread(column, 3) for column in each.T)])
    return "\n\n".join(
        [
            "## Nulls",
            "ē of least-entropy trees over that of others. In sample they gain on noise, too. Held-out heads tell what "
            "is organisation, in the last column: the same trees with their leaves at random places. What is left "
            "between that column and the one before it is the gain of the trees' shape alone: lopsided trees mix few "
            "entries, so that what is sparse as it came stays sparse.",
            table(["network", "tensor", "what", "own trees / flexible", "own trees / identity",
                   "held-out heads / flexible", "… / shuffled dyadic", "… / leaves permuted"], rows),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
