"""How fast tensors on trees decay from level to level: root mean squares of Haar coefficients and their slopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array, to_numpy
from pyattnorg.checks import whole
from pyattnorg.haar import haar
from pyattnorg.haar_layout import haar_layout
from pyattnorg.holder import ROUNDING, power_law, root_mean_square
from pyattnorg.trees import PartitionTree


@dataclass(frozen=True)
class Regularity:
    """Decay of mixed differences over the diagonal of equal scales, |I|/n = |J|/m = ... = 2^-octave.

    Attributes
    ----------
    octave : ndarray of int, shape (k,)
    size : ndarray, shape (k,)
        Mean share of points that the functions of an octave see, geometric over axes.
    rms : dict of ndarray, shape (k,)
        By name of tensor: root mean square of the coefficients, each over the root of its function's support: the
        size of a mixed difference, in the units of the tensor.
    count : ndarray of int, shape (k,)
    slope : dict of float
        Exponent s of ``rms ~ size ** s``; on d axes alpha d for a mixed alpha-Hoelder tensor. NaN where fewer than two
        octaves are left.
    """

    octave: NDArray[np.int64]
    size: NDArray[np.float64]
    rms: dict[str, NDArray[np.float64]]
    count: NDArray[np.int64]
    slope: dict[str, float]


def regularity(
    tensors: Mapping[str, Array],
    trees: Sequence[PartitionTree | None],
    *,
    levels: tuple[int, int] | None = None,
    differences: Mapping[str, str] | None = None,
) -> Regularity:
    """Decay of some tensors of one shape on the same trees.

    Parameters
    ----------
    tensors : mapping of arrays
    trees : sequence of PartitionTree or None
    levels : (int, int), optional
        First and last octave of the fit; by default from 2 to the last but one, or all where those are fewer than two.
        On a dyadic tree an octave is a level.
    differences : mapping, optional
        Names of tensors that came from differences of the size of another one: theirs is the rounding.
    """
    if levels is not None:
        if not isinstance(levels, (tuple, list)) or len(levels) != 2:
            raise ValueError(f"levels: got {levels!r}, expected the first and the last octave, such as (2, 5)")
        first = whole(levels[0], "levels", at_least=0)
        levels = first, whole(levels[1], "levels", at_least=first)
    on = [axis for axis, tree in enumerate(trees) if tree is not None]
    volume = [haar_layout(tree).volume[1:] for tree in trees if tree is not None]
    octaves = [np.rint(-np.log2(each)).astype(np.int64) for each in volume]
    deepest = min((int(each.max()) for each in octaves if len(each)), default=-1)
    present = [o for o in range(deepest + 1) if all((each == o).any() for each in octaves)]
    scaled = {}
    for name, x in tensors.items():
        c = to_numpy(haar(x, trees), name)  # from a GPU as well: what follows is read level by level
        for axis, each in zip(on, volume):
            root = np.sqrt(each * (len(each) + 1)).reshape([-1 if axis == other else 1 for other in range(c.ndim)])
            c = c[(slice(None),) * axis + (slice(1, None),)] / root
        scaled[name] = c
    size, count = [], []
    rms: dict[str, list[float]] = {name: [] for name in tensors}
    for o in present:
        at = [slice(None)] * len(trees)
        places = [np.flatnonzero(each == o) for each in octaves]
        size.append(float(np.exp(np.mean([np.log(v[p]).mean() for v, p in zip(volume, places)]))))
        for name, c in scaled.items():
            block = c[tuple(at)]
            for axis, place in zip(on, places):
                block = block.take(place, axis)
            rms[name].append(root_mean_square(block))
        count.append(int(np.prod([len(place) for place in places])))
    found = {name: np.array(values) for name, values in rms.items()}
    largest = {name: float(abs(x).max()) if 0 not in x.shape else 0.0 for name, x in tensors.items()}
    for name, values in found.items():  # what is below the rounding of what it came from has no slope
        values[values <= ROUNDING * max(largest[name], largest.get((differences or {}).get(name, ""), 0.0))] = 0.0
    octave, sizes = np.array(present, np.int64), np.array(size)
    use = _fitted(octave, deepest, levels)
    slope = {name: power_law(sizes[use], values[use], np.ones(int(use.sum())))[0] for name, values in found.items()}
    return Regularity(octave, sizes, found, np.array(count, np.int64), slope)


def _fitted(octave: NDArray[np.int64], deepest: int, levels: tuple[int, int] | None) -> NDArray[np.bool_]:
    if levels is not None:
        return (octave >= levels[0]) & (octave <= levels[1])
    use = (octave >= 2) & (octave <= deepest - 1)
    return use if use.sum() >= 2 else np.full(len(octave), True)
