"""Sub-tensors of one size: which queries, keys and heads, and the null that permutes where attention goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.dropping import renormalized
from pyattnorg.head_table import Heads
from pyattnorg.network import NetworkTensor
from pyattnorg.visibility import BoolArray, fill_invisible

Positions: TypeAlias = Literal["run", "scattered"]
Null: TypeAlias = Literal["row", "head", "tensor"]
Indices: TypeAlias = NDArray[np.int64]
TOKENS, HEADS, NULL = range(3)  # streams of random numbers of a draw


class Draw(NamedTuple):
    """A sub-tensor with a number in every cell; `visible` says which are real, `heads` which heads they are."""

    values: FloatArray
    visible: BoolArray
    heads: Indices
    kind: str


def stream(seed: int, at: int, draw: int, what: int) -> np.random.Generator:
    """Random numbers of one purpose of one draw of an input: the same for every network."""
    return np.random.default_rng((seed, at, draw, what))


def drawn_positions(
    shape: tuple[int, int], size: tuple[int, int], how: Positions, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Queries and keys, in order.

    Where there are as many queries as keys they are the same tokens, and drawn together, the shorter of the two sets
    as the end of the longer one: of a causal mask every query then sees a key.
    """
    if shape[0] == shape[1]:
        both = _positions(shape[0], max(size), how, rng)
        return both[len(both) - size[0] :], both[len(both) - size[1] :]
    return _positions(shape[0], size[0], how, rng), _positions(shape[1], size[1], how, rng)


def _positions(n: int, size: int, how: Positions, rng: np.random.Generator) -> Indices:
    if how == "run":
        return int(rng.integers(n - size + 1)) + np.arange(size)
    return np.sort(rng.permutation(n)[:size])


def drawn_heads(heads: Heads, size: int, rng: np.random.Generator) -> Indices:
    """`size` heads, in their order: every so many of them in order of layer, at random within a layer."""
    n = len(heads)
    group = np.unique(np.array(heads.group), return_inverse=True)[1]
    by_layer = np.lexsort((rng.permutation(n), heads.layer, group))
    at = np.floor((np.arange(size) + rng.random()) * (n / size)).astype(np.int64)
    return np.sort(by_layer[np.minimum(at, n - 1)])


def sub_tensor(network: NetworkTensor, queries: Indices, keys: Indices, heads: Indices) -> Draw:
    """Some cells of a network; weights sum to 1 over the keys that are left.

    Raises
    ------
    ValueError
        None of them is visible.
    """
    values, seen = _cells(network, queries, keys, heads)
    if len(keys) < network.shape[1] and network.kind != "scores":
        values, seen = renormalized(values, seen, network.kind)
    if not seen.any():
        raise ValueError("visible: no cell of a drawn sub-tensor is visible; ask for a larger size")
    return Draw(filled(values, seen, network.kind), seen, heads, network.kind)


def _cells(network: NetworkTensor, queries: Indices, keys: Indices, heads: Indices) -> tuple[FloatArray, BoolArray]:
    """Values and what is visible of them; of a network on disk one head after the other is read, and no other rows."""
    if network.in_memory:
        at = np.ix_(queries, keys, heads)
        return network.values[at], network.visible_cells()[at]
    rows = slice(int(queries[0]), int(queries[-1]) + 1)
    values, seen = [], []
    for head in heads.tolist():
        values.append(network.head(head, rows)[np.ix_(queries - queries[0], keys)])
        seen.append(network.take_heads([head]).visible_cells()[np.ix_(queries, keys, np.zeros(1, np.int64))])
    return np.stack(values, 2), np.concatenate(seen, 2)


def filled(values: FloatArray, seen: BoolArray, kind: str) -> FloatArray:
    """Invisible cells as the questionnaire wants them: 0 in weights, the row's mean elsewhere."""
    if seen.all():
        return np.ascontiguousarray(values)
    return fill_invisible(values, seen, "zero" if kind == "weights" else "mean")


def draw_of(
    network: NetworkTensor, size: Sequence[int], how: Positions, seed: int, at: int, number: int, heads: Indices | None
) -> Draw:
    """Draw `number` of input `at`; of given heads, or of heads that are drawn too."""
    q, k, h = size
    queries, keys = drawn_positions(network.shape[:2], (q, k), how, stream(seed, at, number, TOKENS))
    if heads is None:
        heads = drawn_heads(network.heads, h, stream(seed, at, number, HEADS))
    return sub_tensor(network, queries, keys, heads)


def null_of(draw: Draw, null: Null, rng: np.random.Generator) -> FloatArray:
    """The same numbers in other visible cells: of the row of a head, of the head, or of the tensor."""
    values, seen = draw.values, draw.visible
    axes = {"row": (0, 2, 1), "head": (2, 0, 1), "tensor": (0, 1, 2)}[null]
    n = {"row": values.shape[1], "head": values.shape[0] * values.shape[1], "tensor": values.size}[null]
    x = values.transpose(axes).reshape(-1, n)
    cells = np.broadcast_to(seen, values.shape).transpose(axes).reshape(-1, n)
    # Visible cells in random order go to visible cells in their order; the others stay where they are.
    source = np.argsort(np.where(cells, rng.random(x.shape), 2.0), axis=1, kind="stable")
    target = np.argsort(~cells, axis=1, kind="stable")
    hidden = np.arange(n) >= cells.sum(1, keepdims=True)
    moved = np.where(hidden, np.take_along_axis(x, target, 1), np.take_along_axis(x, source, 1))
    out = np.empty_like(x)
    np.put_along_axis(out, target, moved, 1)
    shape = [values.shape[axis] for axis in axes]
    back = np.argsort(axes)
    return filled(np.ascontiguousarray(out.reshape(shape).transpose(back)), seen, draw.kind)
