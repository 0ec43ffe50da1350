"""How few coefficients carry a tensor: l1 and lp entropy, the effective number of coefficients, energy curves.

Which one for what: the normalised entropies are free of scale, not of size, and compare bases, trees or heads of
tensors of one shape. The effective number of coefficients, and an entropy over that of the shuffled tensor, compare
tensors of different shape, hence networks. What is not normalised follows the units of the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyattnorg import devices, kernels, on_device
from pyattnorg.arrays import Array, given, require_finite, to_numpy
from pyattnorg.checks import number
from pyattnorg.haar import haar
from pyattnorg.spaces import taken
from pyattnorg.trees import PartitionTree

COARSEST = 10  # Haar functions a side that the paper's head entropy looks at


def l1_entropy(c: Array, *, normalized: bool = True) -> float:
    """Sum of magnitudes of coefficients: the lower, the better organised.

    Parameters
    ----------
    c : array
        Coefficients, such as `pyattnorg.haar` gives.
    normalized : bool
        Divide by ``|c|_2 sqrt(N)``: then it lies in [1 / sqrt(N), 1] and does not depend on the scale of the data.
        It does depend on the size N: compare it between tensors of equal shape only, and `effective_number` otherwise.

    Returns
    -------
    float
        0 for a tensor of zeros. Infinity, not normalised, where the sum is beyond float64.
    """
    values = c if devices.memory_for(c) else given(c, "c", min_ndim=0).values
    total, length, exponent = _norms(values)
    if not normalized:
        with np.errstate(over="ignore"):
            return float(np.ldexp(total, exponent))
    size = float(np.prod(values.shape, dtype=np.int64))
    return min(float(total / (length * size**0.5)), 1.0) if length else 0.0


def effective_number(c: Array) -> float:
    """``(|c|_1 / |c|_2) ** 2``: how many equal coefficients would have the same spread; 0 for zeros.

    It does not change when every point of an axis is doubled, so it compares networks of different size.
    """
    values = c if devices.memory_for(c) else given(c, "c", min_ndim=0).values
    total, length, _ = _norms(values)
    return min((total / length) ** 2, float(np.prod(values.shape, dtype=np.int64))) if length else 0.0


def lp_entropy(c: Array, p: float = 1.0, *, normalized: bool = True) -> float:
    """``(sum |c|^p)^(1/p)`` for 0 < p < 2: the smaller p, the more it counts coefficients rather than weighs them.

    The lp entropy of Coifman and Gavish 2011; `l1_entropy` is the case p = 1.

    Parameters
    ----------
    c : array
        Coefficients.
    p : float
    normalized : bool
        Divide by ``|c|_2 N^(1/p - 1/2)``, the largest value for this energy: then it lies in [N^(1/2 - 1/p), 1] and has
        no scale. It does depend on the size N, as `l1_entropy` does.

    Returns
    -------
    float
        0 for a tensor of zeros. Infinity, not normalised, where the number is beyond float64.
    """
    p = number(p, "p", above=0)
    if p >= 2:
        raise ValueError(f"p: got {p!r}, expected a number below 2; with p = 2 every basis has the same entropy")
    values = np.abs(given(c, "c", min_ndim=0).values.astype(np.float64, copy=False)).ravel()
    largest = float(values.max(initial=0.0))
    if not largest:
        return 0.0
    values = values / largest
    # In logarithms, since a small p takes the sum to a power that float64 does not hold.
    length = np.log(np.sum(values**p)) / p
    if normalized:
        largest_length = np.log(np.linalg.norm(values)) + (1 / p - 0.5) * np.log(values.size)
        return min(float(np.exp(length - largest_length)), 1.0)
    with np.errstate(over="ignore"):
        return float(np.exp(length) * largest)


def energy_curve(c: Array) -> NDArray[np.float64]:
    """Share of the energy ``|c|^2`` that the 1, 2, ... largest coefficients hold; shape (N,), rising to 1.

    Zeros for a tensor of zeros.
    """
    energy = _energies(c)[::-1]
    total = energy.sum()
    return np.minimum(np.cumsum(energy) / total, 1.0) if total else np.zeros(len(energy))


def coefficients_needed(c: Array, error: float = 0.05) -> int:
    """Fewest coefficients that rebuild a tensor up to a relative l2 error: the largest ones of an orthonormal basis.

    Parameters
    ----------
    c : array
        Coefficients in an orthonormal basis, such as `pyattnorg.haar` gives.
    error : float
        ``|x - x_kept| / |x|``, from 0 (all that are not 0) to 1 (none).
    """
    error = number(error, "error", at_least=0)
    energy = _energies(c)
    dropped = np.cumsum(energy)  # from the smallest up
    if not energy.size or not dropped[-1]:
        return 0
    return int(energy.size - np.searchsorted(dropped, error**2 * dropped[-1], side="right"))


def _energies(c: Array) -> NDArray[np.float64]:
    """Squares of coefficients in units of the largest one, smallest first."""
    values = np.sort(
        np.abs(given(c, "c", min_ndim=0).values), axis=None
    )  # as they are: that is quicker than in float64
    largest = float(values[-1]) if values.size else 0.0
    if largest:
        values = values.astype(np.float64) / largest
    out: NDArray[np.float64] = np.square(values, dtype=np.float64)
    return out


def head_entropies(x: Array, trees: Sequence[PartitionTree | None]) -> dict[str, NDArray[np.float64]]:
    """How sparse every head of a network is in the bi-Haar basis of the query and the key tree.

    Parameters
    ----------
    x : array, shape (queries, keys, heads)
    trees : sequence of PartitionTree
        Those of queries and keys; a third one, that of heads, is not used.

    Returns
    -------
    dict of arrays, each of shape (heads,)
        ``l1``: sum of magnitudes, in the units of `x`. ``involvement``: the paper's head entropy over the largest of
        any head (`pyattnorg.published_head_entropy`). ``entropy``: normalised l1 entropy, to compare heads of one
        network. ``effective``: effective number of coefficients, to compare heads of networks of different size.
    """
    values = taken(x, "x", min_ndim=0).values
    if values.ndim != 3:
        raise ValueError(f"x: got shape {tuple(values.shape)}, expected (queries, keys, heads)")
    if len(trees) not in (2, 3):
        raise ValueError(f"trees: got {len(trees)}, expected those of queries and keys")
    c = haar(values, [trees[0], trees[1], None])
    c = np.moveaxis(c, 2, 0) if isinstance(c, np.ndarray) else c.movedim(2, 0)
    return head_numbers(c) | {"l1": np.array([l1_entropy(head, normalized=False) for head in c])}


def head_numbers(c: Array) -> dict[str, NDArray[np.float64]]:
    """Involvement, entropy and effective number of every head, from bi-Haar coefficients (heads, queries, keys)."""
    corner = to_numpy(c[:, :COARSEST, :COARSEST], "c", quietly=True)  # a hundred numbers a head
    coarse = np.abs(corner).sum((1, 2), dtype=np.float64)
    return {
        "involvement": coarse / (coarse.max(initial=0.0) or 1.0),
        "entropy": np.array([l1_entropy(head) for head in c]),
        "effective": np.array([effective_number(head) for head in c]),
    }


def _norms(c: Array) -> tuple[float, float, int]:
    """l1 and l2 norm in units of a power of two, and its exponent: 0, unless numbers are too large or small to sum."""
    if memory := devices.memory_for(c):
        total, squares = on_device.norms(memory, c)
        if not np.isfinite(total):
            there = to_numpy(c, "c", quietly=True)
            require_finite(there, "c")
            return _norms(there)
        return total, squares**0.5, 0
    total, squares = kernels.norms(c)
    if total and not (np.finfo(float).tiny < squares < np.inf):
        exponent = int(np.frexp(np.abs(c).max())[1])
        total, squares = kernels.norms(np.ldexp(c, -exponent))
        return total, squares**0.5, exponent
    return total, squares**0.5, 0
