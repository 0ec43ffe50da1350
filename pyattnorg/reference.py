"""Every kernel in plain NumPy: the definition that all others are tested against. Clear first, fast never.

Arguments are checked in `pyattnorg.kernels`; shapes and meanings are those of csrc/kernels.hpp.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import FloatArray
from pyattnorg.folders import IntArray
from pyattnorg.trees import PartitionTree

TERMS = {
    "l1": lambda a, b: np.abs(a - b),
    "squares": lambda a, b: (a - b) ** 2,
    "masked": lambda a, b: b**2 * (a != 0),
    "products": lambda a, b: a * b,
}


def _narrowed(out: FloatArray, x: FloatArray) -> FloatArray:
    """`out` in the dtype of `x`; what leaves its range becomes infinite, and kernels.py says so in words."""
    with np.errstate(over="ignore"):
        return out.astype(x.dtype)


def pairwise(x: FloatArray, y: FloatArray | None, term: str, weights: FloatArray | None) -> FloatArray:
    """``out[i, j] = sum_f w_f term(x_if, y_jf)``; x (n, features), y (m, features) or x itself."""
    other = x if y is None else y
    w = np.ones(x.shape[1]) if weights is None else weights.astype(float)
    rows = [(TERMS[term](row, other.astype(float)) * w).sum(-1) for row in x.astype(float)]
    return _narrowed(np.array(rows).reshape(len(x), len(other)), x)


def folder_averages(x: FloatArray, tree: PartitionTree, axis: int) -> FloatArray:
    """Means over the tree's distinct folders, breadth-first, in place of the axis."""
    folders = tree.folders()
    moved = np.moveaxis(x.astype(float), axis, 0)[tree.order]
    means = [moved[start : start + size].mean(0) for start, size in zip(folders.start, folders.size)]
    return _narrowed(np.moveaxis(np.stack(means), 0, axis), x)


def tree_emd(
    x: FloatArray,
    tree_a: PartitionTree,
    tree_b: PartitionTree,
    weights_a: NDArray[np.float64],
    weights_b: NDArray[np.float64],
) -> FloatArray:
    """``E(p, p') = sum_IJ w(I) w(J) |avg_IxJ(x_p - x_p')|`` over distinct folders; x (n, a, b)."""
    averages = folder_averages(folder_averages(x.astype(float), tree_a, 1), tree_b, 2)
    weights = np.outer(weights_a, weights_b).reshape(-1)
    return _narrowed(pairwise(averages.reshape(len(x), len(weights)), None, "l1", weights), x)


def haar_basis(tree: PartitionTree) -> NDArray[np.float64]:
    """Orthonormal columns: the constant, then each folder's ``(M on C_i, -s on the rest) / sqrt(s M (s + M))``."""
    folders, n = tree.folders(), tree.n_leaves
    offset, child = folders.children
    columns = [np.full(n, n**-0.5)]
    for i in range(len(folders)):
        below = list(child[offset[i] : offset[i + 1]])[::-1]
        below.sort(key=lambda c: -int(folders.size[c]))  # stable: ties stay in reversed order of first leaf
        leaves = [tree.order[folders.start[c] : folders.start[c] + folders.size[c]] for c in below]
        for k in range(len(below) - 1):
            s, rest = len(leaves[k]), np.concatenate(leaves[k + 1 :])
            column = np.zeros(n)
            column[leaves[k]] = len(rest)
            column[rest] = -s
            columns.append(column / np.sqrt(s * len(rest) * (s + len(rest))))
    return np.stack(columns, 1)


def haar(x: FloatArray, tree: PartitionTree, axis: int, inverse: bool) -> FloatArray:
    """Coefficients along one axis in the tree's Haar basis, or the way back."""
    basis = haar_basis(tree)
    out = np.tensordot(basis if inverse else basis.T, x.astype(float), (1, axis))
    return _narrowed(np.moveaxis(out, 0, axis), x)


def krylov(
    k: FloatArray,
    f: NDArray[np.float64],
    basis: FloatArray,
    known: int,
    have: int,
    want: int,
    projected: FloatArray,
    residual: FloatArray,
) -> None:
    """Grows an orthonormal basis of a block Krylov space in place (csrc/kernels.hpp), by QR factorisations."""
    block, s = len(residual), f[:, None] * k * f
    first = have == known
    while have < want:
        new = basis[have : have + block].T
        if first:
            new = new - basis[:known].T @ (basis[:known] @ new)
        basis[have : have + block] = np.linalg.qr(new)[0].T
        first, have = False, have + block
        images = s @ basis[have - block : have].T
        taken = basis[:have] @ images
        projected[have - block : have, :have] = taken.T
        projected[:have, have - block : have] = taken
        for _ in range(2):
            images = images - basis[:have].T @ (basis[:have] @ images)
        basis[have : have + block] = images.T
    residual[:] = images.T @ images


def products(k: FloatArray, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Products of a symmetric matrix and vectors, one a row."""
    return vectors @ k.astype(np.float64)


def tree_distance(a: PartitionTree, b: PartitionTree) -> int:
    """Sum over all ordered pairs of leaves of the difference in size of their smallest common folders."""
    apart = np.rint(a.n_leaves * (a.distance_matrix() - b.distance_matrix()))
    return int(np.abs(apart).sum())


def norms(x: FloatArray) -> tuple[float, float]:
    """Sums of magnitudes and of squares of all entries."""
    return float(np.abs(x, dtype=np.float64).sum()), float(np.square(x, dtype=np.float64).sum())


def symmetry(x: FloatArray) -> tuple[float, float, float]:
    """Largest distance from the transpose, least and largest entry."""
    return float(np.abs(x.astype(float) - x.T).max()), float(x.min()), float(x.max())


def median(values: FloatArray) -> float:
    """Median of all entries."""
    return float(np.median(values))


def flexible_tree(phi: NDArray[np.float64], rate: NDArray[np.float64], constant: float) -> IntArray:
    """Labels of the flexible tree, root level first, from diffusion coordinates and |eigenvalues|, largest first."""
    n = len(phi)
    levels = [np.arange(n)]
    while (c := levels[-1].max() + 1) > 1:
        time = 2.0 ** (len(levels) - 1)
        scale = (rate / rate[0]) ** time if len(rate) and rate[0] > 0 else np.zeros(len(rate))
        distances = np.sqrt(((phi[:, None] - phi[None]) ** 2 * scale**2).sum(-1))
        member = np.eye(c)[levels[-1]]
        member /= member.sum(0)
        mean = np.triu(member.T @ distances @ member, 1)
        mean += mean.T  # symmetric to the last bit: mutual neighbours tie, and the lowest index goes first
        np.fill_diagonal(mean, np.inf)
        levels.append(_join(mean, constant)[levels[-1]])
    return np.array(levels[::-1], np.int32)


def _join(distances: NDArray[np.float64], constant: float) -> NDArray[np.int64]:
    c = len(distances)
    finite = distances[np.isfinite(distances)]
    if not (finite > 0).any():
        return np.zeros(c, np.int64)
    middle = np.median(distances)
    if middle == 0:
        middle = finite[finite > 0].min()
    penalty = middle / constant
    distances = distances.copy()
    groups: dict[int, list[int]] = {a: [a] for a in range(c)}
    slot = np.arange(c)
    open_ = np.full(c, True)
    joined = False
    while open_.any():
        key = np.where(open_, distances.min(1), np.inf)
        a = int(np.argmin(key))
        if not open_[a] or key[a] == np.inf or (joined and key[a] >= middle):
            break
        b = int(np.argmin(distances[a]))
        group = groups[int(slot[b])]
        if len(group) > 1 and not distances[a, b] < penalty * 2.0 ** (1 - len(group)):
            distances[a, b] = np.inf
            continue
        del groups[int(slot[b])]
        groups[a] = [*groups.pop(a, [a]), *group]
        slot[groups[a]] = a
        open_[[a, b]] = False
        joined = True
    labels = np.empty(c, np.int64)
    for number, at in enumerate(sorted(groups)):
        labels[groups[at]] = number
    return labels


def entropy_tree(x: FloatArray) -> tuple[IntArray, NDArray[np.float64]]:
    """Merges by first points and their costs: passes that merge all pairs that are each other's cheapest partners."""
    means, n = x.astype(float), len(x)
    size = np.ones(n)
    living = np.arange(n)
    merges: list[tuple[int, int]] = []
    costs: list[float] = []
    while len(living) > 1:
        s = size[living]
        cost = np.sqrt(np.multiply.outer(s, s) / np.add.outer(s, s)) * pairwise(means[living], None, "l1", None)
        np.fill_diagonal(cost, np.inf)
        nearest = cost.argmin(1)
        for a in np.flatnonzero((nearest[nearest] == np.arange(len(living))) & (np.arange(len(living)) < nearest)):
            i, j = int(living[a]), int(living[nearest[a]])
            merges.append((i, j))
            costs.append(float(cost[a, nearest[a]]))
            means[i] = (size[i] * means[i] + size[j] * means[j]) / (size[i] + size[j])
            size[i] += size[j]
        living = np.setdiff1d(living, [j for _, j in merges])
    return np.array(merges, np.int32).reshape(-1, 2), np.array(costs)


def shrink_features(x: FloatArray, noise: float) -> FloatArray:
    """Columns times ``sqrt(1 - noise / variance)``, those not above `noise` left out; all as they are if none stays."""
    variance = x.astype(float).var(0, ddof=min(1, len(x) - 1))
    kept = variance > noise
    return _narrowed(x[:, kept] * np.sqrt(1 - noise / variance[kept]), x) if kept.any() else x


def improve_tree(
    x: FloatArray, merges: IntArray, least_share: float, least_gain: float, most_sweeps: int
) -> tuple[IntArray, NDArray[np.float64]]:
    """Exchanges of neighbouring folders that lower the cost, the best first, none that share a folder in a sweep."""
    n = len(x)
    child: dict[int, tuple[int, int]] = {}
    at = list(range(n))
    for i, (a, b) in enumerate(merges.tolist()):
        child[n + i] = at[a], at[b]
        at[a] = n + i
    for _ in range(most_sweeps + 1):
        order, stack = [], [2 * n - 2] if n > 1 else []
        while stack:
            v = stack.pop()
            if v >= n:
                order.append(v)
                stack.extend(child[v])
        order.reverse()
        leaves = {i: [i] for i in range(n)}
        for v in order:
            leaves[v] = leaves[child[v][0]] + leaves[child[v][1]]
        values = x.astype(float)
        cost = {v: _merge_cost(values, *(leaves[c] for c in child[v])) for v in order}
        better = []
        for p in order:
            for node, y in (child[p], child[p][::-1]):
                if node < n:
                    continue
                for keep, leave in (child[node], child[node][::-1]):
                    new = _merge_cost(values, leaves[keep], leaves[y])
                    new += _merge_cost(values, leaves[keep] + leaves[y], leaves[leave])
                    gain = cost[node] + cost[p] - new
                    if gain > max(least_gain, least_share * sum(cost.values())):
                        better.append((-gain, node, p, keep, leave, y))
        taken: set[int] = set()
        for _, node, p, keep, leave, y in sorted(better):
            if not {node, p} & taken:
                taken |= {node, p}
                child[node], child[p] = (keep, y), (node, leave)
        if not better:
            break
    pairs = [sorted(min(leaves[c]) for c in child[v]) for v in order]
    return np.array(pairs, np.int32).reshape(-1, 2), np.array([cost[v] for v in order])


def _merge_cost(x: FloatArray, one: list[int], other: list[int]) -> float:
    s, m = len(one), len(other)
    return float(np.sqrt(s * m / (s + m)) * np.abs(x[one].mean(0) - x[other].mean(0)).sum())


__all__ = [
    "entropy_tree",
    "flexible_tree",
    "folder_averages",
    "haar",
    "haar_basis",
    "improve_tree",
    "krylov",
    "median",
    "norms",
    "pairwise",
    "products",
    "shrink_features",
    "symmetry",
    "tree_distance",
    "tree_emd",
]
