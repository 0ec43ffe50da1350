"""Fewer and smaller Haar coefficients: thresholds by folder volume, shrinkage by size, denoising over many trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from pyattnorg import kernels
from pyattnorg.arrays import Array
from pyattnorg.checks import number, one_of
from pyattnorg.haar import Trees, fitting_trees, for_axes, haar, ihaar
from pyattnorg.haar_layout import haar_layout, volumes
from pyattnorg.spaces import Space, taken
from pyattnorg.trees import PartitionTree

Rule: TypeAlias = Literal["soft", "hard"]
MAD_OF_NORMAL = 0.6744897501960817  # median of |z| for standard normal z


def keep_volumes(c: Array, trees: Trees, above: float) -> Any:
    """Coefficients whose functions see more than a share of all cells, ``|I| |J| ... / N > above``; the others are 0.

    For a mixed-Hoelder function it is the choice that needs no look at the data: the error falls as a power of `above`
    (Gavish and Coifman 2012). The function without a tree on an axis sees one point of it.

    Parameters
    ----------
    c : array
        Coefficients, as `pyattnorg.haar` gives.
    trees : PartitionTree or sequence
        Those that gave them.
    above : float
        From 0 (keep all) to 1 (keep none).
    """
    ours = taken(c, "c", min_ndim=0)
    above = number(above, "above", at_least=0)
    found = fitting_trees(trees, ours.values.shape)
    # Volumes are quotients of whole numbers: a rounding error must not decide on which side of the bound they lie.
    kept = volumes(found, ours.values.shape) > above * (1 + 1e-12)
    return ours.back(ours.space.where(kept, ours.values))


def shrink(c: Array, threshold: float, *, rule: Rule = "soft") -> Any:
    """Coefficients up to the threshold become 0; with ``"soft"`` all others come nearer to 0 by it (Donoho 1995)."""
    ours = taken(c, "c", min_ndim=0)
    return ours.back(_shrunk(ours.values, number(threshold, "threshold", at_least=0), rule, ours.space))


def noise_level(c: Array, trees: Trees) -> float:
    """Standard deviation of white noise, from the finest coefficients: their median magnitude / 0.6745.

    Finest are those whose function sees, on every axis, no more points than the median function of that axis, which on
    a dyadic tree is the last level (Donoho and Johnstone 1994). On an axis without a tree all are taken.
    """
    ours = taken(c, "c", min_ndim=0)
    finest = ours.values
    if 0 in finest.shape:
        return 0.0
    for axis, tree in enumerate(fitting_trees(trees, finest.shape)):
        if tree is not None:
            support = haar_layout(tree).support
            at = np.flatnonzero(support <= np.sort(support)[(len(support) - 1) // 2])
            finest = ours.space.take(finest, at, axis)
    found = ours.space.median_magnitude(finest) / MAD_OF_NORMAL
    if not np.isfinite(found):
        raise kernels.overflow(finest, "c")
    return found


def denoise(
    x: Array,
    trees: Trees | Sequence[Sequence[PartitionTree | None]],
    *,
    noise: float | None = None,
    threshold: float | None = None,
    rule: Rule = "soft",
) -> Any:
    """`x` with its small Haar coefficients shrunk; over several sets of trees, the average (spin cycling).

    What one tree cuts apart another keeps together, so that the average has no edges of folders that are not in the
    data (Coifman and Donoho 1995 for shifts; random trees in their place, after Ankenman 2014).

    Parameters
    ----------
    x : array
    trees : PartitionTree, sequence of one an axis, or sequence of such sequences
        Each set is used for itself and the results are averaged. Random trees come from
        ``pyattnorg.binary_tree(affinity, cut="random", balance=1.3, seed=i)``.
    noise : float, optional
        Standard deviation of the noise; without it `noise_level` of each set.
    threshold : float, optional
        Of magnitudes; without it the universal one, ``noise * sqrt(2 log N)``. The average of `x` is never shrunk.
    rule : {"soft", "hard"}

    Returns
    -------
    array of the shape and kind of `x`
    """
    ours = taken(x, "x", min_ndim=0)
    values, space = ours.values, ours.space
    sets = [fitting_trees(each, values.shape) for each in _sets(trees)]
    noise = None if noise is None else number(noise, "noise", at_least=0)
    threshold = None if threshold is None else number(threshold, "threshold", at_least=0)
    if noise is not None and threshold is not None:
        raise ValueError(f"noise: got {noise!r} beside threshold={threshold!r}, which it would set; give one of them")
    one_of(rule, "rule", ("soft", "hard"))
    total = space.zeros(tuple(values.shape))
    for each in sets:
        c = haar(values, each)
        limit = threshold
        if limit is None:
            spread = noise_level(c, each) if noise is None else noise
            limit = spread * float(np.sqrt(2 * np.log(max(int(np.prod(values.shape)), 1))))
        shrunk = _shrunk(c, limit, rule, space)
        if all(tree is not None for tree in each):
            shrunk[(slice(0, 1),) * c.ndim] = c[(slice(0, 1),) * c.ndim]
        total += ihaar(shrunk, each)
    return ours.back(space.like(total / len(sets), values))


def _shrunk(c: Any, threshold: float, rule: str, space: Space) -> Any:
    one_of(rule, "rule", ("soft", "hard"))
    if rule == "hard":
        return space.where(abs(c) > threshold, c)
    return space.sign(c) * (abs(c) - threshold).clip(min=0)


def _sets(trees: Any) -> list[Any]:
    """Sets of trees, one an axis each, from one set or many."""
    many = isinstance(trees, Sequence) and len(trees) > 0 and all(isinstance(each, Sequence) for each in trees)
    return list(trees) if many else [for_axes(trees)]
