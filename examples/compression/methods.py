"""The ways to compress a tensor: orthonormal bases of all kinds, Tucker's, and singular vectors of every head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from coding import FLOAT, Reals, choice_bytes, coded, order_bytes, rounded, tree_bytes
from numpy.typing import NDArray
from scipy.fft import dctn, idctn

import pyattnorg as pa
from pyattnorg.compression.quantize import ZERO, largest_step

FILLS = 5  # as in pa.compress: rounds in which cells that do not count take what is easiest to keep


@dataclass(frozen=True)
class Case:
    """A tensor, the cells that count, and its trees by kind."""

    values: Reals
    seen: NDArray[np.bool_] | None
    trees: dict[str, Any] = field(default_factory=dict)

    def error(self, gap: Reals) -> float:
        """Relative error over the cells that count, of what is missing."""
        if self.seen is None:
            return float(np.linalg.norm(gap) / np.linalg.norm(self.values))
        return float(np.linalg.norm(gap[self.seen]) / np.linalg.norm(self.values[self.seen]))

    def filled(self, keep: Callable[[Reals], Reals]) -> Reals:
        """Values whose cells that do not count hold what `keep` makes of them."""
        out = self.values
        for _ in range(FILLS if self.seen is not None else 0):
            out = np.where(self.seen, self.values, keep(out))
        return out


@dataclass(frozen=True)
class Basis:
    """An orthonormal basis: the two ways, its own bytes, and trees for the contexts of its coefficients."""

    forward: Callable[[Reals], Reals]
    inverse: Callable[[Reals], Reals]
    overhead: float = 0.0
    trees: Any = None


def bases(case: Case) -> dict[str, Basis]:
    """All orthonormal bases but Tucker's."""
    shape = case.values.shape
    dyadic = [pa.PartitionTree.dyadic(n) for n in shape]
    own = case.trees["entropy"]
    at = np.ix_(*(tree.order for tree in own))
    back = np.ix_(*(np.argsort(tree.order) for tree in own))
    packets = pa.best_basis(case.values, list(own))
    found = {
        "tri-Haar, least-entropy trees": haar_basis(own),
        "tri-Haar, flexible trees": haar_basis(case.trees["flexible"]),
        "tri-Haar, the paper's schedule": haar_basis(case.trees["paper"]),
        "Haar-Walsh packets, least-entropy trees": Basis(
            lambda x: pa.packet_transform(x, packets),
            lambda c: pa.inverse_packet_transform(c, packets),
            tree_bytes(own) + sum(shape) / 4,  # two bits a point say which packets
        ),
        "dyadic Haar, organised order": Basis(
            lambda x: pa.haar(x[at], dyadic), lambda c: pa.ihaar(c, dyadic)[back], sum(map(order_bytes, shape)), dyadic
        ),
        "dyadic Haar, given order": Basis(lambda x: pa.haar(x, dyadic), lambda c: pa.ihaar(c, dyadic), 0.0, dyadic),
        "cosines (2-D DCT), given order": Basis(
            lambda x: dctn(x, axes=(0, 1), norm="ortho"), lambda c: idctn(c, axes=(0, 1), norm="ortho")
        ),
        "entries": Basis(lambda x: x, lambda c: c),
    }
    return found


def haar_basis(trees: Any) -> Basis:
    """That of trees, which are counted."""
    kept = list(trees)
    return Basis(lambda x: pa.haar(x, kept), lambda c: pa.ihaar(c, kept), tree_bytes(kept), kept)


def of_basis(case: Case, basis: Basis, error: float) -> tuple[float, float]:
    """Bytes, coded and plain, of coefficients in a basis."""
    first = 2 * error * float(np.sqrt(np.mean(np.square(case.values))))
    c = basis.forward(case.values)
    step = _step(lambda s: case.error(basis.inverse(rounded(c, s) - c)), error, first)
    values = case.filled(lambda y: basis.inverse(_kept(basis.forward(y), ZERO * step)))
    c = basis.forward(values)
    step = _step(lambda s: case.error(basis.inverse(rounded(c, s) - c)), error, step)
    size, _ = coded(c, step, basis.trees)
    limit = _step(lambda t: case.error(basis.inverse(_kept(c, t) - c)), error, step)
    count = int((np.abs(c) > limit).sum())
    return size + basis.overhead, FLOAT * count + choice_bytes(c.size, count) + basis.overhead


def _kept(c: Reals, limit: float) -> Reals:
    return np.where(np.abs(c) > limit, c, 0.0)


def _step(error_of: Callable[[float], float], error: float, first: float) -> float:
    found = largest_step(error_of, error, first)
    if found is None:
        raise ValueError(f"{error}: cannot be met")
    return found


# -- Tucker: orthonormal bases of the tensor's own, which are counted -------------------------------------------------


def singular_bases(x: Reals, axes: tuple[int, ...], rounds: int = 2) -> list[Reals | None]:
    """Left singular vectors of the unfoldings (HOSVD), made better by higher-order orthogonal iteration."""
    found: list[Reals | None] = [None] * x.ndim
    for axis in axes:
        rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
        found[axis] = np.linalg.eigh(rows @ rows.T)[1][:, ::-1]
    if len(axes) < 2:
        return found
    ranks = [_rank(x, basis, axis) for axis, basis in enumerate(found)]
    for _ in range(rounds):  # each axis from the tensor as the leading vectors of the others see it
        for axis in axes:
            seen = x
            for other in axes:
                if other != axis:
                    seen = _times(seen, found[other][:, : ranks[other]].T, other)  # type: ignore[index]
            rows = np.moveaxis(seen, axis, 0).reshape(x.shape[axis], -1)
            found[axis] = np.linalg.eigh(rows @ rows.T)[1][:, ::-1]
    return found


def _rank(x: Reals, basis: Reals | None, axis: int, share: float = 0.9975) -> int:
    """Vectors of an axis that hold the energy of an error of 5 %."""
    if basis is None:
        return x.shape[axis]
    c = np.square(_times(x, basis.T, axis)).sum(tuple(a for a in range(x.ndim) if a != axis))
    return int(np.searchsorted(np.cumsum(c), share * c.sum())) + 1


def _times(x: Reals, matrix: Reals, axis: int) -> Reals:
    return np.moveaxis(np.tensordot(matrix, x, axes=(1, axis)), 0, axis)


def of_tucker(case: Case, axes: tuple[int, ...], error: float) -> tuple[float, float]:
    """Bytes, coded and plain, of a core and factors: those of some axes, the others as they are."""
    values = case.values

    def keep(y: Reals) -> Reals:
        found = singular_bases(y, axes, rounds=0)
        limit = error * np.linalg.norm(y) / np.sqrt(y.size)
        return _back(_kept(_core(y, found), limit), found)

    if case.seen is not None:
        values = case.filled(keep)
    found = singular_bases(values, axes)
    core = _core(values, found)
    first = 2 * error * float(np.sqrt(np.mean(np.square(values))))
    step = _step(lambda s: case.error(_rounded(core, found, s)[1] - values), error, first)
    size = _rounded(core, found, step, count=True)[0]
    # Plain: the smallest box of the core with its vectors.
    energy = np.square(core)
    left = energy.sum() - energy.cumsum(0).cumsum(1).cumsum(2)
    ranks = np.ogrid[tuple(slice(1, n + 1) for n in core.shape)]
    numbers = ranks[0] * ranks[1] * ranks[2] + sum(ranks[a] * core.shape[a] for a in axes)
    if case.seen is None:
        met = left <= (error * np.linalg.norm(values)) ** 2
        return size, FLOAT * float(numbers[met].min())
    best = np.inf
    for share in (
        0.3,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1.0,
        1.2,
        1.5,
    ):  # errors over visible cells are not those of the filled tensor
        met = left <= (share * error * np.linalg.norm(values)) ** 2
        at = np.unravel_index(np.where(met, numbers, np.inf).argmin(), core.shape)
        box = tuple(slice(0, i + 1) for i in at)
        part = np.zeros_like(core)
        part[box] = core[box]
        if case.error(_back(part, found) - values) <= error:
            best = min(best, float(numbers[at]))
    return size, FLOAT * best


def _core(x: Reals, found: list[Reals | None]) -> Reals:
    for axis, basis in enumerate(found):
        x = x if basis is None else _times(x, basis.T, axis)
    return x


def _back(c: Reals, found: list[Reals | None]) -> Reals:
    for axis, basis in enumerate(found):
        c = c if basis is None else _times(c, basis, axis)
    return c


def _rounded(core: Reals, found: list[Reals | None], step: float, *, count: bool = False) -> tuple[float, Reals]:
    """Bytes (if asked for) and the tensor of a core and factors in steps; factors are as fine as what they carry."""
    size, c = coded(core, step) if count else (0, rounded(core, step))
    made: list[Reals | None] = []
    for axis, basis in enumerate(found):
        if basis is None:
            made.append(None)
            continue
        weight = np.sqrt(np.square(c).sum(tuple(a for a in range(c.ndim) if a != axis)))
        used = weight > 0
        scaled = (basis * weight)[:, used]
        if count and used.any():
            size += coded(scaled, 2 * step)[0] + FLOAT * int(used.sum())
        vectors = np.zeros_like(basis)
        vectors[:, used] = rounded(scaled, 2 * step) / weight[used]
        made.append(vectors)
    return size, _back(c, made)


# -- singular vectors of every head -----------------------------------------------------------------------------------


def of_heads(case: Case, error: float) -> tuple[float, float]:
    """Bytes, coded and plain, of the largest singular triples of all heads."""
    n_q, n_k, _ = case.values.shape

    def keep(y: Reals) -> Reals:
        u, s, v = np.linalg.svd(np.moveaxis(y, 2, 0), full_matrices=False)
        s = _kept(s, error * np.linalg.norm(y) / np.sqrt(s.size))
        return np.moveaxis((u * s[:, None]) @ v, 0, 2)

    values = case.filled(keep)
    u, s, v = np.linalg.svd(np.moveaxis(values, 2, 0), full_matrices=False)

    def made(limit: float) -> Reals:
        return np.moveaxis((u * _kept(s, limit)[:, None]) @ v, 0, 2) - values

    limit = _step(lambda t: case.error(made(t)), error, error * float(s.max()))
    plain = (n_q + n_k) * int((s > limit).sum()) * FLOAT + s.shape[0] * 2  # and ranks

    def rounded_triples(step: float, share: float) -> tuple[list[Reals], Reals]:
        kept = s > share * step * np.sqrt((n_q + n_k) / 12)
        left, right = (np.moveaxis(u, 1, 0) * s)[:, kept], (np.moveaxis(v, 2, 0) * s)[:, kept]
        a, b = np.zeros((n_q, *s.shape)), np.zeros((n_k, *s.shape))
        a[:, kept] = rounded(left, step) / np.sqrt(s[kept])
        b[:, kept] = rounded(right, step) / np.sqrt(s[kept])
        return [left, right], np.einsum("qhr,khr->qkh", a, b, optimize=True)

    best = np.inf
    for share in (1.0, 2.0):
        step = _step(lambda t, f=share: case.error(rounded_triples(t, f)[1] - values), error, 2 * error * float(
            np.sqrt(np.mean(np.square(values)))))  # fmt: skip
        parts, _ = rounded_triples(step, share)
        if parts[0].size:
            size = sum(coded(part, step)[0] for part in parts) + FLOAT * parts[0].shape[1] + s.shape[0] * 2
            best = min(best, size)
    return best, plain
