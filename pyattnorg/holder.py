"""Mixed-Hoelder regularity on trees, estimated from the decay of Haar coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array, FloatArray, given
from pyattnorg.haar import Trees, fitting_trees, haar
from pyattnorg.haar_layout import haar_layout
from pyattnorg.trees import PartitionTree

ROUNDING = 4 * float(np.finfo(np.float64).eps)  # what differences of numbers of size 1 may be by rounding alone


@dataclass(frozen=True)
class MixedHolder:
    """A power law of Haar coefficients, ``|c| ~ constant sqrt(N) volume^(exponent + 1/2)``.

    Attributes
    ----------
    exponent : float
        The mixed-Hoelder exponent; NaN where fewer than two volumes have coefficients that are not 0.
    constant : float
        Of the root mean squares that were fitted.
    bound : float
        The least constant that holds for every coefficient with this exponent.
    r_squared : float
        Share of the variance of the logarithms that the power law explains, between volumes.
    volume, rms, count : ndarray, shape (octaves,)
        What was fitted, by octave of volume, the largest first: mean volume, root mean square and number.
    """

    exponent: float
    constant: float
    bound: float
    r_squared: float
    volume: NDArray[np.float64]
    rms: NDArray[np.float64]
    count: NDArray[np.int64]

    def __repr__(self) -> str:
        return (
            f"MixedHolder(exponent {self.exponent:.3f}, constant {self.constant:.3g}, bound {self.bound:.3g}, "
            f"R^2 {self.r_squared:.3f} over {len(self.volume)} octaves)"
        )


def mixed_holder(x: Array, trees: Trees) -> MixedHolder:
    """Exponent and constant of the mixed-Hoelder condition that the Haar coefficients of `x` speak for.

    `x` is mixed alpha-Hoelder in the tree distances, ``|mixed difference of x| <= C (|I| / n)^alpha (|J| / m)^alpha``
    for points that meet in folders I and J, exactly when ``|c_IJ| <= C' sqrt(N) (|I| |J| / (n m))^(alpha + 1/2)``
    (Gavish, Nadler and Coifman 2010; Gavish and Coifman 2012). The exponent is fitted by least squares to logarithms
    of root mean squares, by octave of volume and weighted by the number of coefficients, up to 64 an octave.

    Parameters
    ----------
    x : array
    trees : PartitionTree or sequence
        One for each axis; None leaves an axis out of the condition (heads that are looked at together, say), and so
        does a tree of one leaf.
    """
    values = given(x, "x", min_ndim=0).values.astype(np.float64, copy=False)
    found = fitting_trees(trees, values.shape)
    if all(tree is None or tree.n_leaves == 1 for tree in found):
        raise ValueError("trees: got none of two leaves or more, expected one for at least one axis")
    c, volume = differences_and_volumes(values, found)
    n = int(np.prod([tree.n_leaves for tree in found if tree is not None]))
    octave = np.rint(-np.log2(volume)).astype(np.int64)
    octaves = np.unique(octave)
    mean = np.array([volume[octave == o].mean() for o in octaves])
    rms = np.array([root_mean_square(c[octave == o]) for o in octaves])
    rms[rms <= ROUNDING * np.sqrt(values.size) * np.abs(values).max(initial=0.0)] = 0.0
    count = np.array([(octave == o).sum() for o in octaves], np.int64)
    slope, intercept, r_squared = power_law(mean, rms, np.minimum(count, 64))
    exponent = slope - 0.5
    bound = float("nan")
    if np.isfinite(slope):
        bound = float((np.abs(c) / volume**slope).max() / n**0.5)
    return MixedHolder(exponent, float(np.exp(intercept)) / n**0.5, bound, r_squared, mean, rms, count)


def differences_and_volumes(
    values: FloatArray, trees: Sequence[PartitionTree | None]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Haar coefficients that are differences along every axis with a tree, flat, and the share of cells each sees."""
    split = [tree is not None and tree.n_leaves > 1 for tree in trees]
    c = haar(values, trees)[tuple(slice(1, None) if on else slice(None) for on in split)]
    volume = np.ones(())
    for tree, on, n in zip(trees, split, c.shape):
        volume = np.multiply.outer(volume, haar_layout(tree).volume[1:] if on and tree is not None else np.ones(n))
    return c.ravel(), volume.ravel()


def power_law(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.floating] | NDArray[np.integer]
) -> tuple[float, float, float]:
    """Slope, intercept and R^2 of log y over log x by weighted least squares, where y > 0; NaN with fewer than two."""
    use = (y > 0) & (x > 0)
    if len(np.unique(x[use])) < 2:
        return float("nan"), float("nan"), float("nan")
    u, v, w = np.log(x[use]), np.log(y[use]), weights[use] / weights[use].sum()
    du, dv = u - w @ u, v - w @ v
    slope = float((w * du) @ dv / ((w * du) @ du))
    left = dv - slope * du
    total = float((w * dv) @ dv)
    return slope, float(w @ v - slope * (w @ u)), 1.0 - float((w * left) @ left) / total if total > 0 else 1.0


def root_mean_square(c: NDArray[np.float64]) -> float:
    """Root mean square, whatever the scale; 0 of nothing but zeros."""
    scale = float(np.abs(c).max(initial=0.0))
    return scale * float(np.sqrt(np.mean((c / scale) ** 2))) if scale else 0.0
