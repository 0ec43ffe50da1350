"""Best bases of Haar-Walsh packets: what a partition tree offers beside its Haar basis.

Every folder of a binary tree has as many packets as points. Packet t of a folder sees its points at "frequency" t:
from packets t of both children, packet 2t is their sum and packet 2t + 1 their difference, over sqrt(2); the two
packets t = 0, the constants, are weighted by sizes; what only one child has is handed on as packet 2t. The Haar
basis is packet 1 of all folders and packet 0 of the root, the Walsh basis all packets of the root; the points
themselves are the packets of the leaves. Since packets 2t and 2t + 1 of a folder span what packets t of its
children span, blocks of packets can be cut by frequency or by folder, again and again; the cheapest of all bases
that come of it is found from the bottom up (Thiele and Villemoes 1996; on trees Irion and Saito 2014; Saito and
Shao 2022, "extended GHWT").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyattnorg import kernels
from pyattnorg.arrays import Array, FloatArray, given
from pyattnorg.checks import whole
from pyattnorg.entropy_trees import merges_of_tree
from pyattnorg.haar import Trees, fitting_trees
from pyattnorg.trees import PartitionTree

SLAB_BYTES = 1 << 23


class Turn(NamedTuple):
    """Rows i and j become ``major i - minor j`` and ``minor i + major j``."""

    i: int
    j: int
    major: float
    minor: float


class PacketBasis:
    """An orthonormal basis of Haar-Walsh packets of one axis; `best_basis` finds it.

    Attributes
    ----------
    tree : PartitionTree
    n_points : int
    """

    def __init__(self, tree: PartitionTree, turns: Sequence[Turn], rows: Sequence[int]) -> None:
        self.tree, self.n_points = tree, tree.n_leaves
        self._turns, self._rows = tuple(turns), np.array(rows, np.int64)

    def matrix(self) -> NDArray[np.float64]:
        """The functions as columns, in the order of coefficients; shape (n, n)."""
        return np.ascontiguousarray(self.forward(np.eye(self.n_points)).T)

    def forward(self, x: FloatArray) -> FloatArray:
        """Coefficients of x along its first axis, in memory of their own."""
        work = np.array(x, order="C").reshape(self.n_points, -1)
        for slab in _slabs(work):
            for turn in self._turns:
                _turn(slab, turn)
        return work[self._rows].reshape(x.shape)

    def inverse(self, c: FloatArray) -> FloatArray:
        """What has these coefficients along its first axis."""
        work = np.empty((self.n_points, c.size // self.n_points), c.dtype)
        work[self._rows] = c.reshape(work.shape)
        for slab in _slabs(work):
            for turn in reversed(self._turns):
                _turn(slab, turn._replace(minor=-turn.minor))
        return work.reshape(c.shape)


def best_basis(x: Array, trees: Trees, *, rounds: int = 1) -> list[PacketBasis | None]:
    """For every axis the basis of Haar-Walsh packets of its tree with the least sum of magnitudes.

    Axes take turns, the last one first, each given the bases of the others, which start as Haar bases; the sum never
    rises. Best where values are sparse in themselves, as attention weights are: bases may hold single points, Haar
    functions and Walsh functions of folders side by side.

    Parameters
    ----------
    x : array
        Finite.
    trees : PartitionTree or sequence
        One for each axis; None leaves an axis alone. Folders of more than two children are taken as their Haar
        functions split them.
    rounds : int
        Times that every axis has its turn.

    Returns
    -------
    list of PacketBasis or None
        For `packet_transform` and `inverse_packet_transform`.
    """
    values = _middling(given(x, "x", min_ndim=0).values)
    found = fitting_trees(trees, values.shape)
    whole(rounds, "rounds", at_least=1)
    libraries = [None if tree is None or not tree.n_leaves else _Library(tree) for tree in found]
    bases = [None if library is None else library.haar() for library in libraries]
    order = [axis for axis in (values.ndim - 1, *range(values.ndim - 1)) if axis >= 0]
    for _ in range(rounds):
        for axis in order:
            library = libraries[axis]
            if library is not None:
                others = [None if other == axis else basis for other, basis in enumerate(bases)]
                moved = np.moveaxis(_along(values, others, inverse=False), axis, 0)
                bases[axis] = library.best(moved.reshape(len(moved), -1))
    return bases


def packet_transform(x: Array, bases: Sequence[PacketBasis | None]) -> Any:
    """Coefficients of `x` in the tensor product of bases, one for each axis (None leaves it alone). Same shape."""
    ours = given(x, "x", min_ndim=0)
    return ours.back(kernels.within_range(_along(ours.values, _fitting(bases, ours.values.shape), inverse=False)))


def inverse_packet_transform(coefficients: Array, bases: Sequence[PacketBasis | None]) -> Any:
    """The tensor that has these coefficients; undoes `packet_transform`."""
    ours = given(coefficients, "coefficients", min_ndim=0)
    out = _along(ours.values, _fitting(bases, ours.values.shape), inverse=True)
    return ours.back(kernels.within_range(out, "coefficients"))


def _fitting(bases: Sequence[PacketBasis | None], shape: tuple[int, ...]) -> list[PacketBasis | None]:
    if len(bases) != len(shape):
        raise ValueError(f"bases: got {len(bases)}, expected one (or None) for each of {len(shape)} axes")
    for axis, (basis, n) in enumerate(zip(bases, shape)):
        if basis is not None and not isinstance(basis, PacketBasis):
            raise TypeError(f"bases: got {type(basis).__name__}, expected what pyattnorg.best_basis gives")
        if basis is not None and basis.n_points != n:
            raise ValueError(f"bases: that of axis {axis} has {basis.n_points} points, expected {n}")
    return list(bases)


def _along(x: FloatArray, bases: Sequence[PacketBasis | None], *, inverse: bool) -> FloatArray:
    out = np.array(x)
    for axis, basis in enumerate(bases):
        if basis is not None and x.size:
            moved = np.moveaxis(out, axis, 0)
            with np.errstate(over="ignore", invalid="ignore"):  # said in the end
                out = np.moveaxis(basis.inverse(moved) if inverse else basis.forward(moved), 0, axis)
    return np.ascontiguousarray(out).reshape(x.shape)


def _middling(x: FloatArray) -> FloatArray:
    """`x`, scaled by a power of two where its sums could leave the range: which basis is best has no scale."""
    exponent = int(np.frexp(np.abs(x).max(initial=0))[1])
    return np.ldexp(x, -exponent) if abs(exponent) > np.finfo(x.dtype).maxexp // 2 else x


def _slabs(rows: FloatArray) -> list[FloatArray]:
    """Stretches of all rows, wide enough that NumPy computes more than it is called."""
    width = max(64, SLAB_BYTES // max(1, rows.itemsize * len(rows)))
    return [rows[:, begin : begin + width] for begin in range(0, rows.shape[1], width)]


def _turn(rows: FloatArray, turn: Turn) -> None:
    major, minor = rows.dtype.type(turn.major), rows.dtype.type(turn.minor)
    left, right = rows[turn.i], rows[turn.j]
    difference = major * left - minor * right
    right *= major
    right += minor * left
    left[...] = difference


class _Library:
    """All packets of a tree; a packet goes by the row that it is formed in and the turn that formed it."""

    def __init__(self, tree: PartitionTree) -> None:
        self.tree = tree
        n = tree.n_leaves
        node = list(range(n))
        self.turns: list[Turn] = []
        self.children: dict[int, tuple[int, int]] = {}
        self.depth = [0] * n
        size = [1] * n
        # Of every node: its packets' numbers by tag. Number p < n is a leaf; n + 2k and n + 2k + 1 are the left and the
        # right row of turn k.
        self.packets: list[dict[int, int]] = [{0: i} for i in range(n)]
        self.row = list(range(n))
        for low, high in merges_of_tree(tree).tolist():
            a, b = node[low], node[high]
            v = len(self.packets)
            self.children[v] = a, b
            self.depth.append(1 + max(self.depth[a], self.depth[b]))
            mine: dict[int, int] = {}
            for tag in sorted(self.packets[a].keys() | self.packets[b].keys()):
                p, q = self.packets[a].get(tag, -1), self.packets[b].get(tag, -1)
                if min(p, q) < 0:
                    mine[2 * tag] = max(p, q)
                    continue
                s, m = (size[a], size[b]) if tag == 0 else (1, 1)
                mine[2 * tag + 1], mine[2 * tag] = len(self.row), len(self.row) + 1
                self.turns.append(Turn(self.row[p], self.row[q], (m / (s + m)) ** 0.5, (s / (s + m)) ** 0.5))
                self.row += [self.row[p], self.row[q]]
            self.packets.append(mine)
            size.append(size[a] + size[b])
            node[low] = v

    def haar(self) -> PacketBasis:
        root = len(self.packets) - 1
        details = [self.packets[v][1] for v in self.children]
        return self._basis([self.packets[root][0], *reversed(details)])

    def best(self, rows: FloatArray) -> PacketBasis:
        return self._basis(self._cheapest(self._costs(rows)))

    def _costs(self, rows: FloatArray) -> list[float]:
        """Sums of magnitudes of all packets."""
        n = len(rows)
        total = np.zeros(len(self.row))
        for slab in _slabs(rows):
            work = np.array(slab)
            total[:n] += np.abs(work).sum(1, dtype=np.float64)
            for k, turn in enumerate(self.turns):
                _turn(work, turn)
                total[n + 2 * k] += float(np.abs(work[turn.i]).sum(dtype=np.float64))
                total[n + 2 * k + 1] += float(np.abs(work[turn.j]).sum(dtype=np.float64))
        found: list[float] = total.tolist()
        return found

    def _cheapest(self, cost: list[float]) -> list[int]:
        """Packets of the cheapest basis. A block is (node, l, m): packets l 2^m ... (l + 1) 2^m - 1 of a folder."""
        root = len(self.packets) - 1
        blocks: list[dict[int, dict[int, list[int]]]] = [{} for _ in self.packets]

        def members(v: int, part: int, m: int) -> list[int]:
            by = blocks[v]
            if m not in by:
                by[m] = {}
                for tag, p in self.packets[v].items():
                    by[m].setdefault(tag >> m, []).append(p)
            return by[m].get(part, [])

        known: dict[tuple[int, int, int], tuple[float, Any]] = {}
        first = (root, 0, self.depth[root])
        stack = [first]
        while stack:
            key = stack[-1]
            if key in known:
                stack.pop()
                continue
            v, part, m = key
            inside = members(v, part, m)
            if len(inside) < 2:
                known[key] = (cost[inside[0]] if inside else 0.0), inside
                stack.pop()
                continue
            a, b = self.children[v]
            ways = [((a, part, m - 1), (b, part, m - 1)), ((v, 2 * part, m - 1), (v, 2 * part + 1, m - 1))]
            if not (members(a, part, m - 1) and members(b, part, m - 1)):
                ways = ways[:1]  # handed on: the same packets
            missing = [block for way in ways for block in way if block not in known]
            if missing:
                stack += missing
                continue
            prices = [known[x][0] + known[y][0] for x, y in ways]
            best = len(ways) - 1 if prices[-1] <= prices[0] else 0  # of equal ones the cut by frequency
            known[key] = prices[best], ways[best]
            stack.pop()
        chosen: list[int] = []
        todo: list[Any] = [first]
        while todo:
            _, choice = known[todo.pop()]
            if isinstance(choice, tuple):
                todo += reversed(choice)
            else:
                chosen += choice
        return chosen

    def _basis(self, chosen: list[int]) -> PacketBasis:
        """The basis of these packets, with the turns that lead to them."""
        n = self.tree.n_leaves
        needed = [False] * len(self.turns)
        last = [-1] * n  # turn that forms what a row ends with
        for p in chosen:
            last[self.row[p]] = (p - n) // 2 if p >= n else -1
        for k in range(len(self.turns) - 1, -1, -1):
            turn = self.turns[k]
            needed[k] = k <= last[turn.i] or k <= last[turn.j]
        turns = [turn for turn, used in zip(self.turns, needed) if used]
        return PacketBasis(self.tree, turns, [self.row[p] for p in chosen])
