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
    offset, child = folders.children
    size, start = folders.size, folders.start
    slot, add = np.zeros(n, np.int32), np.zeros(n, np.uint8)
    post: list[int] = []
    stack = [0]
    while stack:  # pre-order, largest child last; read backwards it is the order wanted
        i = stack.pop()
        post.append(i)
        below = child[offset[i] : offset[i + 1]]
        if len(below):
            below = below[np.argsort(-size[below], kind="stable")]
            slot[below] = slot[i] + 1
            slot[below[0]] = slot[i]
            add[below[1:]] = 1
            stack.extend(below.tolist())
    folder = np.array(post[::-1], np.int32)
    leaf = np.where(size[folder] == 1, tree.order[start[folder]], -1).astype(np.int32)
    return SumProgram(folder, leaf, slot[folder], add[folder])


class HaarSteps(NamedTuple):
    """The n - 1 rotations of a tree's Haar transform (method of arXiv 2506.15541; csrc/kernels.hpp, HaarStep)."""

    steps: IntArray  # (n - 1, 4): left slot, right slot, leaves of the left, leaves of the right
    slot: IntArray  # (n,): where each coefficient is found, in breadth-first order, the constant first
    folder: IntArray  # (n,): the folder that each coefficient splits; the root for the constant


def haar_steps(tree: PartitionTree) -> HaarSteps:
    """Rotations from the leaves up. Children stand by size, largest first, ties in reversed order of first leaf."""
    folders = tree.folders()
    n = tree.n_leaves
    offset, child = folders.children
    size = folders.size
    n_children = np.diff(offset)
    base = 1 + np.concatenate([[0], np.cumsum(np.maximum(n_children - 1, 0))])
    at = np.where(size == 1, tree.order[folders.start], -1)  # the slot that holds a folder's sum
    slot, folder = np.zeros(n, np.int32), np.zeros(n, np.int32)
    steps: list[tuple[int, int, int, int]] = []
    for i in range(len(folders) - 1, -1, -1):
        below = child[offset[i] : offset[i + 1]]
        if not len(below):
            continue
        below = below[::-1]
        below = below[np.argsort(-size[below], kind="stable")].tolist()
        right, rest = int(at[below[-1]]), int(size[below[-1]])
        for k in range(len(below) - 2, -1, -1):
            left, left_size = int(at[below[k]]), int(size[below[k]])
            steps.append((left, right, left_size, rest))
            slot[base[i] + k], folder[base[i] + k] = left, i
            rest += left_size
        at[i] = right
    slot[0] = at[0]
    return HaarSteps(np.array(steps, np.int32).reshape(-1, 4), slot, folder)
