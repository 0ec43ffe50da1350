"""A partition tree as few bytes: one whole number whose digits say where each leaf joins the tree of those before it.

Leaf i can join at every folder of the tree of leaves 0 to i - 1, which then gets a new folder around both, or within
every folder of several, as one more child. A binary tree only needs the first, and has 2 i - 1 places for leaf i: just
as many numbers as there are binary trees of n named leaves, so that no bit is wasted. Levels follow where they are
not the depth from the root.
"""

from __future__ import annotations

import numpy as np

from pyattnorg.trees import PartitionTree

BY_DEPTH, BINARY = 1, 2
MOST = 1 << 27  # labels, leaves times levels: a forged file could ask for memory without end


def tree_to_bytes(tree: PartitionTree) -> bytes:
    """Bytes that `tree_from_bytes` makes an equal tree of, given the number of leaves.

    Raises
    ------
    ValueError
        A tree so deep that it would not be read again.
    """
    n = tree.n_leaves
    if n * max(tree.n_levels, n.bit_length()) > MOST:
        raise ValueError(
            f"trees: got one of {n:,} leaves and {tree.n_levels:,} levels, expected a product of at most {MOST:,}; "
            "compress fewer points at a time, or pass a tree of fewer levels"
        )
    parent, children, level, n_levels = _nodes(tree)
    binary = all(len(below) in (0, 2) for below in children)
    joins = _joins(parent, children, n)
    digits: list[tuple[int, int]] = []
    number = {0: 0}  # of nodes, as they are made
    inner: list[int] = []
    for leaf in range(1, n):
        near, made = joins[leaf]
        radix = len(number) + (0 if binary else len(inner))
        if made is None:
            digits.append((len(number) + inner.index(near), radix))
        else:
            digits.append((number[near], radix))
            number[made] = len(number)
            inner.append(made)
        number[leaf] = len(number)
    depth = _depths(parent, n)
    by_depth = n_levels == max(depth.values()) + 1 and all(level[i] == depth[i] for i in inner)
    if not by_depth:
        for i in sorted(inner, key=lambda i: (depth[i], number[i])):
            above = level[parent[i]] if parent[i] >= 0 else -1
            digits.append((level[i] - above - 1, n_levels - 1 - above))
    value = 0
    for digit, radix in reversed(digits):
        value = value * radix + digit
    head = bytes([BY_DEPTH * by_depth + BINARY * binary])
    head += b"" if by_depth else n_levels.to_bytes(4, "little")
    return head + value.to_bytes((value.bit_length() + 7) // 8, "little")


def tree_from_bytes(data: bytes, n: int) -> PartitionTree:
    """The tree of `n` leaves that `tree_to_bytes` wrote.

    Raises
    ------
    ValueError
        Bytes that no tree of so many leaves has.
    """
    if not data or data[0] > BY_DEPTH + BINARY or n * n.bit_length() > MOST:
        raise ValueError("a tree in it is damaged")
    by_depth, binary = bool(data[0] & BY_DEPTH), bool(data[0] & BINARY)
    at = 1 if by_depth else 5
    value = int.from_bytes(data[at:], "little")
    parent: dict[int, int] = {0: -1}
    nodes = [0]
    inner: list[int] = []
    for leaf in range(1, n):
        value, digit = divmod(value, len(nodes) + (0 if binary else len(inner)))
        if digit >= len(nodes):
            parent[leaf] = inner[digit - len(nodes)]
        else:
            near, made = nodes[digit], n + len(inner)
            parent[made] = parent[near]
            parent[near] = parent[leaf] = made
            nodes.append(made)
            inner.append(made)
        nodes.append(leaf)
    depth = _depths(parent, n)
    if by_depth:
        level, n_levels = depth, max(depth.values()) + 1
    else:
        number = {node: i for i, node in enumerate(nodes)}
        level, n_levels = {}, int.from_bytes(data[1:5], "little")
        for i in sorted(inner, key=lambda i: (depth[i], number[i])):
            above = level[parent[i]] if parent[i] >= 0 else -1
            if n_levels - 1 - above < 1:
                raise ValueError("a tree in it is damaged")
            value, digit = divmod(value, n_levels - 1 - above)
            level[i] = above + 1 + digit
    if value or n_levels > 2 * n + 1 or n_levels * n > MOST:
        raise ValueError("a tree in it is damaged")
    labels = np.empty((n_levels, n), np.int32)
    for leaf in range(n):
        chain = [leaf]
        while parent[chain[-1]] >= 0:
            chain.append(parent[chain[-1]])
        begin = 0
        for node in chain[:0:-1]:
            labels[begin : level[node] + 1, leaf] = node
            begin = level[node] + 1
        labels[begin:, leaf] = leaf
    return PartitionTree.from_labels(labels)


def _nodes(tree: PartitionTree) -> tuple[dict[int, int], list[list[int]], dict[int, int], int]:
    """Parent of every node, children and last level of folders; leaves are 0 to n - 1, folders n and on."""
    folders = tree.folders()
    n = tree.n_leaves
    name = [
        int(tree.order[start]) if size == 1 else n + i
        for i, (size, start) in enumerate(zip(folders.size, folders.start))
    ]
    parent = {name[i]: -1 if above < 0 else name[above] for i, above in enumerate(folders.parent.tolist())}
    children: list[list[int]] = [[] for _ in range(n + len(folders))]
    for node, above in parent.items():
        if above >= 0:
            children[above].append(node)
    level = {name[i]: int(last) for i, last in enumerate(folders.last_level)}
    return parent, children, level, tree.n_levels


def _joins(parent: dict[int, int], children: list[list[int]], n: int) -> dict[int, tuple[int, int | None]]:
    """Of every leaf but the first: the node that it joins and the folder made for both, None where it joins within."""
    above = dict(parent)
    below = [set(some) for some in children]
    found: dict[int, tuple[int, int | None]] = {}
    for leaf in range(n - 1, 0, -1):
        folder = above[leaf]
        below[folder].remove(leaf)
        if len(below[folder]) > 1:
            found[leaf] = folder, None
            continue
        (near,) = below[folder]
        found[leaf] = near, folder
        above[near] = above[folder]
        if above[folder] >= 0:
            below[above[folder]].remove(folder)
            below[above[folder]].add(near)
    return found


def _depths(parent: dict[int, int], n: int) -> dict[int, int]:
    """Depth of every node from the root."""
    depth: dict[int, int] = {}
    for leaf in range(n):
        chain = [leaf]
        while chain[-1] not in depth and parent[chain[-1]] >= 0:
            chain.append(parent[chain[-1]])
        for node in reversed(chain):
            depth.setdefault(node, 0 if parent[node] < 0 else depth[parent[node]] + 1)
    return depth
