"""What device kernels need to know of a tree, copied to the device once a tree and kept with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyattnorg.devices import Memory
from pyattnorg.plans import HaarSteps, SumProgram, haar_steps, sum_program
from pyattnorg.trees import PartitionTree

# cuda::WalkStep of csrc/kernels.hpp
WALK_STEP = np.dtype(
    [(name, np.int32) for name in ("leaf", "slot", "add", "first", "size", "emitted", "folder", "unused")]
    + [("scale", np.float64)]
)


class Walk(NamedTuple):
    """A tree's program on a device: what kernels take, and the arrays that it points to."""

    program: Any
    kept: tuple[Any, ...]


class HaarRounds(NamedTuple):
    """Addresses of turns, first and slot, the number of rounds, and the arrays themselves."""

    addresses: tuple[int, int, int]
    n_rounds: int
    kept: tuple[Any, ...]


def _key(memory: Memory) -> str:
    return str(getattr(memory, "device", "emulated"))


def walk(tree: PartitionTree, weights: NDArray[np.float64], memory: Memory) -> Walk:
    """The program of a tree whose folders have these weights."""
    key = f"walk {_key(memory)}"
    found: dict[bytes, Walk] = tree.cached(key, lambda _: {})
    weights = np.ascontiguousarray(weights, np.float64)
    told = weights.tobytes()
    made = found.get(told)
    if made is None:
        made = _walk(tree, weights, memory)
        found.clear()  # one a tree is enough: a questionnaire asks for the same again and again
        found[told] = made  # another thread may have cleared it before it is read again
    memory.uses(made.kept)
    return made


def _walk(tree: PartitionTree, weights: NDArray[np.float64], memory: Memory) -> Walk:
    program: SumProgram = tree.cached("sum_program", sum_program)
    folders = tree.folders()
    scale = weights / folders.size
    steps = np.zeros(len(program.folder), WALK_STEP)
    steps["leaf"], steps["slot"], steps["add"], steps["folder"] = (
        program.leaf,
        program.slot,
        program.add,
        program.folder,
    )
    steps["size"], steps["scale"] = folders.size[program.folder], scale[program.folder]
    steps["first"] = np.cumsum(program.leaf >= 0) - steps["size"]
    steps["emitted"] = np.cumsum(steps["scale"] != 0) - (steps["scale"] != 0)
    order = np.ascontiguousarray(program.leaf[program.leaf >= 0])
    above, squares = _sums_above(folders.parent, scale), _sums_above(folders.parent, scale**2)
    single = folders.size == 1
    leaf_scale = np.empty(tree.n_leaves)
    leaf_scale[tree.order[folders.start[single]]] = above[single]
    # How unevenly weight lies on all folders, or on those that hold one leaf, whichever is worse (math/term.hpp).
    shares = [np.sqrt(np.square(weights).sum()) / (weights.sum() or 1.0)]
    shares.extend(np.sqrt(squares[single]) / np.where(above[single] > 0, above[single], 1.0))
    there = [memory.array(part) for part in (steps.view(np.float64), order.view(np.float32), leaf_scale)]
    made = memory.kernels.Walk(
        steps.view(np.uint8), *(memory.address(part) for part in there), tree.n_leaves, float(max(shares))
    )
    return Walk(made, tuple(there))


def _sums_above(parent: NDArray[np.int32], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every folder the sum over itself and all that it lies in; parents come first."""
    out = values.tolist()
    for i, above in enumerate(parent.tolist()):
        if above >= 0:
            out[i] += out[above]
    return np.array(out)


def haar_rounds(tree: PartitionTree, dtype: np.dtype[Any], memory: Memory) -> HaarRounds:
    """The rotations of a tree in rounds: those of a round turn rows that no other of them turns."""

    def make(tree: PartitionTree) -> HaarRounds:
        steps: HaarSteps = tree.cached("haar_steps", haar_steps)
        rows = steps.steps
        level = [0] * tree.n_leaves
        rounds = np.zeros(len(rows), np.int64)
        for i, (left, right) in enumerate(rows[:, :2].tolist()):
            rounds[i] = max(level[left], level[right])
            level[left] = level[right] = int(rounds[i]) + 1
        order = np.argsort(rounds, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(rounds))]).astype(np.int32)
        turns = np.zeros(len(rows), [("rows", np.int32, 2), ("factors", dtype, 2)])
        turns["rows"] = rows[order, :2]
        turns["factors"] = memory.kernels.rotations(np.ascontiguousarray(rows[order, 2:]))
        parts = (turns.view(np.float32), first.view(np.float32), np.ascontiguousarray(steps.slot).view(np.float32))
        there = tuple(memory.array(part) for part in parts)
        turn, begin, slot = (memory.address(part) for part in there)
        return HaarRounds((turn, begin, slot), len(first) - 1, there)

    found: HaarRounds = tree.cached(f"haar {_key(memory)} {dtype}", make)
    memory.uses(found.kept)
    return found
