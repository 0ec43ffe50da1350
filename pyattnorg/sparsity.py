"""How few coefficients carry a tensor: l1 entropy and the effective number of coefficients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array, FloatArray, given
from pyattnorg.haar import haar
from pyattnorg.trees import PartitionTree


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
        0 for a tensor of zeros.
    """
    values = given(c, "c", min_ndim=0).values
    total, length, scale = _norms(values)
    if not normalized:
        return total * scale
    return total / (length * values.size**0.5) if length else 0.0


def effective_number(c: Array) -> float:
    """``(|c|_1 / |c|_2) ** 2``: how many equal coefficients would have the same spread; 0 for zeros.

    It does not change when every point of an axis is doubled, so it compares networks of different size.
    """
    total, length, _ = _norms(given(c, "c", min_ndim=0).values)
    return (total / length) ** 2 if length else 0.0


COARSEST = 10  # Haar functions a side that the paper's head entropy looks at


def head_numbers(values: FloatArray, queries: PartitionTree, keys: PartitionTree) -> dict[str, NDArray[np.float64]]:
    """Numbers of every head, from its coefficients in the bi-Haar basis of the query and key trees.

    ``involvement``: the paper's head entropy ``sum |c_ab|`` over the 10 x 10 coarsest functions, over the largest of
    any head; ``entropy``: normalised l1 entropy; ``effective``: effective number of coefficients. Each of (heads,).
    """
    c = np.moveaxis(haar(values, [queries, keys, None]), 2, 0)
    coarse = np.abs(c[:, :COARSEST, :COARSEST]).sum((1, 2), dtype=np.float64)
    return {
        "involvement": coarse / (coarse.max() or 1.0),
        "entropy": np.array([l1_entropy(head) for head in c]),
        "effective": np.array([effective_number(head) for head in c]),
    }


def _norms(c: FloatArray) -> tuple[float, float, float]:
    """l1 and l2 norm in units of a scale, and the scale: 1, unless the numbers are so large or small that sums fail."""
    total, squares = kernels.norms(c)
    if total and not (np.finfo(float).tiny < squares < np.inf):
        exponent = int(np.frexp(np.abs(c).max())[1])
        total, squares = kernels.norms(np.ldexp(c, -exponent))
        return total, squares**0.5, 2.0**exponent
    return total, squares**0.5, 1.0
