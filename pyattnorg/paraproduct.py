"""Paraproducts: a function of a tensor, split by the scales of trees into parts that are linear in each scale and a
smoother rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import add, mul, sub
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import devices, kernels, on_device
from pyattnorg.arrays import Array, given
from pyattnorg.checks import position
from pyattnorg.haar import Trees, fitting_trees
from pyattnorg.holder import ROUNDING
from pyattnorg.regularity import Regularity, regularity
from pyattnorg.scales import Corners, Values, coarsest, sum_over_scales
from pyattnorg.spaces import Space, space_for
from pyattnorg.trees import PartitionTree

Function: TypeAlias = "Literal['exp', 'softmax'] | Sequence[Callable[[Any], Any]]"


@dataclass(frozen=True, eq=False)
class Paraproduct:
    """``A(g) = boundary + first + second + ... + residual``, exactly.

    Attributes
    ----------
    argument : array
        The g that the function was taken of: what came in, less the log-sum-exp of its rows for ``"softmax"``.
    value : array
        A(g), the softmax for ``"softmax"``.
    boundary : array
        The part without differences along all axes: ``A(P_L0 g) + A(P_0S g) - A(P_00 g)`` for two axes.
    terms : tuple of arrays
        The sums over scales of first derivatives, second derivatives, ...: as many as axes with trees, or as
        derivatives were given.
    residual : array
        What is left, Delta.
    trees : tuple of PartitionTree or None
    """

    argument: Values
    value: Values
    boundary: Values
    terms: tuple[Values, ...]
    residual: Values
    trees: tuple[PartitionTree | None, ...]

    @property
    def first(self) -> Values:
        """``sum over scales of A'(P_l g) (difference along all axes)``."""
        return self.terms[0]

    @property
    def second(self) -> Values:
        """``sum over scales of A''(P_l g) (products of two differences that cover all axes)``; 0 for one axis."""
        return self.terms[1] if len(self.terms) > 1 else self.value * 0.0

    @property
    def approximation(self) -> Values:
        """All but the residual."""
        return self.value - self.residual

    def relative_residual(self, axis: int | None = None) -> Any:
        """``|residual| / |A(g) - boundary|``: how much the terms leave of what varies on all axes; 0 if nothing does.

        With `axis` one number for each point of it, such as a head; else one for all.
        """
        over: tuple[int, ...] | None = None
        if axis is not None:
            at = position(axis, "axis", self.value.ndim, "expected")
            over = tuple(i for i in range(self.value.ndim) if i != at)
        space = space_for(self.value)
        parts = (self.residual, self.value - self.boundary, self.value)
        largest = max(float(abs(each).max()) for each in parts)
        if largest and not 1e-100 < largest < 1e100:  # squares would leave the range
            parts = tuple(each / largest for each in parts)
        residual, varying, whole = (np.sqrt(space.squares(each, over)) for each in parts)
        there = varying > ROUNDING * whole  # what is less has come from rounding
        out = np.divide(residual, varying, out=np.zeros_like(residual), where=there)
        return out if axis is not None else float(out)

    def regularity(self, *, levels: tuple[int, int] | None = None) -> Regularity:
        """How fast the argument, the value and the residual decay from level to level; see `pyattnorg.Regularity`."""
        tensors = {"argument": self.argument, "value": self.value, "residual": self.residual}
        return regularity(tensors, self.trees, levels=levels, differences={"residual": "value"})

    def __repr__(self) -> str:
        return (
            f"Paraproduct({' x '.join(map(str, self.value.shape))}, {len(self.terms)} term(s), "
            f"relative residual {self.relative_residual():.3g})"
        )


def paraproduct(
    f: Array, trees: Trees | None = None, function: Function = "exp", *, softmax_axis: int | None = None
) -> Paraproduct:
    """Split ``A(f)`` into a boundary, paraproducts over all scales of the trees, and a smoother residual.

    With averages ``a = P_l f`` at levels l = (l_1, ..., l_d) and mixed differences ``d_S`` along sets S of axes,
    ``A(f) - boundary = sum_l [alternating sum of A over the 2^d finer averages]`` telescopes. Of every summand those
    terms are kept whose product of differences uses each axis once, ``A^(k)(a) d_S1 ... d_Sk`` over all partitions of
    the axes into k sets: ``A'(a) z + A''(a) x y`` for two axes (Fasina: arXiv 2503.12629 for tensors, 2508.13322 for
    d axes, 2602.16644 for trees; arXiv 2506.15541 uses it for softmax). For mixed alpha-Hoelder f the rest decays
    faster than f: about twice as fast on one axis; on two, along the diagonal of equal scales, by about alpha more.

    Parameters
    ----------
    f : array of one axis or more
    trees : PartitionTree or sequence, optional
        One for each axis; None leaves an axis alone (heads that are treated one by one). Without any, dyadic trees on
        the order that came.
    function : "exp", "softmax" or sequence of callables
        A and its derivatives, ``(A, A', A'', ...)``; at least the first one, and as many as axes with trees for the
        full gain. They take and give float64 arrays, tensors where `f` lies on a GPU. ``"softmax"`` takes the
        exponential of ``f - logsumexp(f)``, which is the softmax exactly.
    softmax_axis : int, optional
        Axis along which ``"softmax"`` sums to 1; the second one (keys) by default, the first where there is one.

    Returns
    -------
    Paraproduct
        float64 arrays of the shape of `f`: NumPy, or tensors on the GPU that holds `f`.
    """
    memory = devices.memory_for(f)
    values = on_device.tensor(memory, f, "f", 1).double() if memory else given(f, "f").values.astype(np.float64)
    space = space_for(values)
    if 0 in values.shape:
        raise ValueError(f"f: got shape {tuple(values.shape)}, expected at least one point on every axis")
    found = [PartitionTree.dyadic(n) for n in values.shape] if trees is None else fitting_trees(trees, values.shape)
    axes = [axis for axis, tree in enumerate(found) if tree is not None]
    if not axes:
        raise ValueError("trees: got none, expected a tree for at least one axis")
    if isinstance(function, str) and function == "softmax":
        with np.errstate(over="ignore"):
            values = values - space.log_sum_exp(values, _softmax_axis(softmax_axis, values.ndim))
        if not space.finite(values):
            raise kernels.overflow(values, "f")
    elif softmax_axis is not None:
        raise ValueError(f"softmax_axis: got {softmax_axis!r} with another function than 'softmax'")
    derivatives = _derivatives(function, len(axes), space)

    boundary = space.zeros(tuple(values.shape))
    for k in range(1, len(axes) + 1):
        for coarse in combinations(axes, k):
            boundary -= (-1) ** k * _applied(derivatives[0], coarsest(values, found, coarse))
    value = _applied(derivatives[0], values)
    visit = _Terms(axes, derivatives[1:])
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            terms = sum_over_scales(values, found, visit, len(derivatives) - 1)
            residual = reduce(sub, terms, value - boundary)
    except kernels.SumOverflowError:
        raise kernels.overflow(values, "f") from None
    if not space.finite(residual):
        raise kernels.overflow(values, "f")
    return Paraproduct(values, value, boundary, tuple(terms), residual, tuple(found))


def log_sum_exp(values: Values, axis: int, visible: NDArray[np.bool_] | None = None) -> Values:
    """``log sum exp`` of the visible cells along an axis, which stays; 0 where none is visible."""
    seen = values if visible is None else np.where(visible, values, -np.inf)
    top = seen.max(axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    total = np.exp(seen - top).sum(axis, keepdims=True)
    return np.asarray(top + np.log(np.where(total > 0, total, 1.0)))


class _Terms:
    """The Taylor terms of one combination of levels, from averages one level finer along every set of axes."""

    def __init__(self, axes: Sequence[int], derivatives: Sequence[Callable[[Any], Any]]) -> None:
        self.axes = frozenset(axes)
        self.derivatives = derivatives
        self.partitions = [list(_partitions(sorted(axes), k + 1)) for k in range(len(derivatives))]

    def __call__(self, corners: Corners) -> list[Values]:
        a = corners[frozenset()]
        differences: Corners = {}
        for finer in sorted(corners, key=len)[1:]:
            below = [differences[part] for part in differences if part < finer]
            differences[finer] = corners[finer] - a
            if below:
                differences[finer] = differences[finer] - reduce(add, below)
        out: list[Values] = []
        slopes: dict[Callable[[Any], Any], Values] = {}
        for derivative, partitions in zip(self.derivatives, self.partitions):
            if derivative not in slopes:  # all those of exp are one
                slopes[derivative] = _applied(derivative, a)
            products = [reduce(mul, [differences[part] for part in parts]) for parts in partitions]
            out.append(slopes[derivative] * sum(products[1:], products[0]))
        return out


def _partitions(items: Sequence[int], k: int) -> Iterator[list[frozenset[int]]]:
    """Ways to part `items` into k sets, none of them empty."""
    if not items:
        if k == 0:
            yield []
        return
    head, rest = items[0], items[1:]
    for mates in range(len(rest) + 1):
        for chosen in combinations(rest, mates):
            left = [item for item in rest if item not in chosen]
            for others in _partitions(left, k - 1) if k > 0 else ():
                yield [frozenset((head, *chosen)), *others]


def _derivatives(function: Any, n_axes: int, space: Space) -> list[Callable[[Any], Any]]:
    if isinstance(function, str):
        if function not in ("exp", "softmax"):
            raise ValueError(f"function: got {function!r}, expected 'exp', 'softmax' or (A, A', A'', ...)")
        return [space.exp] * (n_axes + 1)
    if not isinstance(function, Sequence) or not all(callable(each) for each in function):
        raise TypeError("function: expected 'exp', 'softmax' or a sequence of callables (A, A', A'', ...)")
    if len(function) < 2:
        raise ValueError(f"function: got {len(function)} callable(s), expected A and at least its first derivative")
    return list(function)[: n_axes + 1]


def _applied(function: Callable[[Any], Any], x: Values) -> Values:
    space = space_for(x)
    out = space.applied(function, x)
    if tuple(out.shape) not in (tuple(x.shape), ()):
        raise ValueError(
            f"function: gave shape {tuple(out.shape)} for values of shape {tuple(x.shape)}, expected the same"
        )
    if not space.finite(out):
        raise ValueError(
            "function: gave NaN or infinity for averages of f; scale f, or use 'softmax' rather than 'exp'"
        )
    return space.spread(out, tuple(x.shape))


def _softmax_axis(axis: int | None, ndim: int) -> int:
    if axis is None:
        return 1 if ndim > 1 else 0
    return position(axis, "softmax_axis", ndim, "f has axes")
