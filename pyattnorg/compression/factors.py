"""A network of low rank: the singular vectors of every head, in the Haar bases of queries and keys.

A head is ``sum of a_i b_i' / s_i`` with ``a_i`` its left singular vectors times the singular values and ``b_i`` its
right ones times ``s_i``, which is near them, a whole number of eighths of an octave: rounding either by a step errs in
the head by as much. The vectors of all heads, one after the other, are two tensors (vectors, queries) and (vectors,
keys), each compressed as any other, the second axis by its tree.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.compression.container import Container, Parts, written
from pyattnorg.compression.mask_code import mask_to_bytes
from pyattnorg.compression.model import Ints
from pyattnorg.compression.numbers import Reader, framed
from pyattnorg.compression.quantize import Quantised
from pyattnorg.compression.stored import FIXED, Stored, file_bytes
from pyattnorg.trees import PartitionTree

Reals = NDArray[np.float64]
EIGHTH = 8  # values of s an octave
LONGEST = 1 << 12  # coefficients of a strip: a head has few
HEADS = 2


def rounded_values(s: Reals) -> tuple[Ints, Reals]:
    """Numbers of eighths of an octave, and what they stand for."""
    codes = np.rint(EIGHTH * np.log2(s)).astype(np.int64)
    return codes, np.exp2(codes / EIGHTH)


def product(left: Reals, right: Reals, s: Reals, ranks: Ints) -> Reals:
    """Heads (queries, keys, heads) of vectors (vectors, queries) and (vectors, keys), those of a head together."""
    out = np.zeros((left.shape[1], right.shape[1], len(ranks)))
    end = 0
    for head, rank in enumerate(ranks.tolist()):
        begin, end = end, end + rank
        out[:, :, head] = (left[begin:end] / s[begin:end, None]).T @ right[begin:end]
    return out


def factor_bytes(
    found: tuple[Quantised, Quantised],
    trees: Sequence[PartitionTree | None],
    codes: Ints,
    ranks: Ints,
    about: dict[str, Any],
    mask: NDArray[np.bool_] | None,
    error: float,
    *,
    sized: bool = False,
) -> bytes:
    """The file of singular vectors in steps; `trees` are those of queries and keys; `sized` as in `file_bytes`."""
    inside = [
        file_bytes(one, [None, tree], None, {"shape": one.q.shape, "longest": LONGEST}, 0.0, sized=sized)
        for one, tree in zip(found, trees)
    ]
    inner = (found[0].q.shape[1], found[1].q.shape[1], len(ranks))
    count = sum(int(np.count_nonzero(one.q)) for one in found)
    more = {"inside": [len(one) for one in inside]} | ({"inner": inner} if tuple(about["shape"]) != inner else {})
    numbers = [np.array(ranks, "<u2"), np.concatenate([codes[:1], np.diff(codes)]).astype("<i2")]
    parts = Parts(
        about=about | more,
        fixed=FIXED.pack(found[0].step, error, count, *found[0].parts),
        mask=mask_to_bytes(mask),
        trees=[b""] * 3,
        model=framed([zlib.compress(one.view(np.uint8).reshape(-1, 2).T.tobytes(), 9) for one in numbers]),
        sizes=np.zeros(0, np.int64),
    )
    return written(parts, []) + b"".join(inside)


class StoredFactors(Stored):
    """Reads heads from their singular vectors."""

    def __init__(self, container: Container, name: str) -> None:
        super().__init__(container, name)
        with self.named():
            if len(container.inside) != 2 or len(self.inner) != 3:
                raise ValueError("it does not hold two factors")
            self._sides = [Stored(one, name) for one in container.inside]
            ranks, deltas = self._numbers(container.parts.model)
            self._ranks, self._s = ranks, np.exp2(np.cumsum(deltas) / EIGHTH)
            shapes = [(len(deltas), n) for n in self.inner[:HEADS]]
            if [one.shape for one in self._sides] != shapes or len(ranks) != self.inner[HEADS]:
                raise ValueError("its factors do not fit its shape")

    @staticmethod
    def _numbers(data: bytes) -> tuple[Ints, Ints]:
        reader = Reader(data)
        planes = [np.frombuffer(zlib.decompress(reader.framed()), np.uint8).reshape(2, -1) for _ in range(2)]
        ranks, deltas = (one.T.copy().view("<i2").ravel().astype(np.int64) for one in planes)
        if (ranks < 0).any() or ranks.sum() != len(deltas):
            raise ValueError("its ranks are damaged")
        return ranks, deltas

    @cached_property
    def trees(self) -> list[PartitionTree | None]:
        """Those of queries and keys; None for heads."""
        return [self._sides[0].trees[1], self._sides[1].trees[1], None]

    def block(self, points: Sequence[Ints | None]) -> Reals:
        """Some queries, keys and heads, None for all."""
        heads, rows = self._rows(points[HEADS])
        every = self._ranks if heads is None else self._ranks[heads]
        shape = [n if some is None else len(some) for some, n in zip(points, self.inner)]
        if rows is not None and not len(rows):
            return np.zeros(shape)
        left, right = (one.block([rows, some]) for one, some in zip(self._sides, points))
        return product(left, right, self._s if rows is None else self._s[rows], every)

    def cost(self, points: Sequence[Ints | None]) -> dict[str, int]:
        """What `block` looks at, of both factors."""
        _, rows = self._rows(points[HEADS])
        if rows is not None and not len(rows):
            return dict.fromkeys(("coefficients", "decoded", "bytes"), 0)
        both = [one.cost([rows, some]) for one, some in zip(self._sides, points)]
        return {name: both[0][name] + both[1][name] for name in both[0]}

    def _rows(self, heads: Ints | None) -> tuple[Ints | None, Ints | None]:
        """Heads, and the vectors that are theirs."""
        if heads is None:
            return None, None
        ends = np.cumsum(self._ranks)
        rows = [np.arange(ends[i] - self._ranks[i], ends[i]) for i in heads.tolist()]
        return heads, np.concatenate(rows).astype(np.int64)


def opened(source: bytes | Path) -> Stored:
    """What reads a file of either form."""
    name = "the compressed tensor" if isinstance(source, bytes) else str(source)
    if isinstance(source, Path):
        source = source.absolute()  # the working folder may be another one when heads are read
    with Stored.naming(name):
        container = Container(source)
    return (StoredFactors if container.inside else Stored)(container, name)
