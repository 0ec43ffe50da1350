"""What kernels need to know of a tree: the order in which its folder sums are formed, and its Haar rotations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyattnorg.trees import PartitionTree

IntArray = NDArray[np.int32]


class SumProgram(NamedTuple):
    """Folders in post-order, the largest child first (csrc/kernels.hpp, TreeProgram); one entry a step."""

    folder: IntArray  # index into tree.folders()
    leaf: IntArray  # the leaf, -1 for a folder of several
    slot: IntArray  # where its sum is formed; a first child shares its parent's slot
    add: NDArray[np.uint8]  # whether it is then added to the slot below


def sum_program(tree: PartitionTree) -> SumProgram:
    """The program of a tree. Visiting the largest child first keeps at most log2(leaves) + 1 sums alive."""
    folders = tree.folders()
    n = len(folders)
    size, start = folders.size, folders.start
    first, child = _children(tree, start)
    slots, adds = [0] * n, [0] * n
    post: list[int] = []
    stack = [0]
    while stack:  # pre-order, largest child last; read backwards it is the order wanted
        i = stack.pop()
        post.append(i)
        below = child[first[i] : first[i + 1]]
        if below:
            slot = slots[i]
            slots[below[0]] = slot
            for j in below[1:]:
                slots[j], adds[j] = slot + 1, 1
            stack += below
    folder = np.array(post[::-1], np.int32)
    leaf = np.where(size[folder] == 1, tree.order[start[folder]], -1).astype(np.int32)
    return SumProgram(folder, leaf, np.array(slots, np.int32)[folder], np.array(adds, np.uint8)[folder])


def _children(tree: PartitionTree, ties: IntArray) -> tuple[list[int], list[int]]:
    """Children of every folder, the largest first, ties by `ties`; those of i are ``child[first[i]:first[i + 1]]``."""
    folders = tree.folders()
    below = np.arange(1, len(folders))
    child = below[np.lexsort((ties[below], -folders.size[below], folders.parent[below]))]
    counts = np.bincount(folders.parent[below], minlength=len(folders))
    return [0, *np.cumsum(counts).tolist()], child.tolist()


class HaarSteps(NamedTuple):
    """The n - 1 rotations of a tree's Haar transform (method of arXiv 2506.15541; csrc/kernels.hpp, HaarStep)."""

    steps: IntArray  # (n - 1, 4): left slot, right slot, leaves of the left, leaves of the right
    slot: IntArray  # (n,): where each coefficient is found, in breadth-first order, the constant first
    folder: IntArray  # (n,): the folder that each coefficient splits; the root for the constant


def haar_steps(tree: PartitionTree) -> HaarSteps:
    """Rotations from the leaves up. Children stand by size, largest first, ties in reversed order of first leaf."""
    folders = tree.folders()
    n = tree.n_leaves
    first, child = _children(tree, -folders.start)
    n_children = np.diff(first)
    base = (1 + np.concatenate([[0], np.cumsum(np.maximum(n_children - 1, 0))])).tolist()
    size: list[int] = folders.size.tolist()
    at: list[int] = np.where(
        folders.size == 1, tree.order[folders.start], -1
    ).tolist()  # slot that holds a folder's sum
    slot, folder = [0] * n, [0] * n
    steps: list[tuple[int, int, int, int]] = []
    for i in range(len(folders) - 1, -1, -1):
        below = child[first[i] : first[i + 1]]
        if not below:
            continue
        right, rest = at[below[-1]], size[below[-1]]
        for k in range(len(below) - 2, -1, -1):
            j = below[k]
            steps.append((at[j], right, size[j], rest))
            slot[base[i] + k], folder[base[i] + k] = at[j], i
            rest += size[j]
        at[i] = right
    slot[0] = at[0]
    return HaarSteps(np.array(steps, np.int32).reshape(-1, 4), np.array(slot, np.int32), np.array(folder, np.int32))
