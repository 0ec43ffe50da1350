"""The one way to the kernels: one function each, arrays in, arrays out.

A function takes any real array (NumPy, torch, DLPack; any strides), computes in float32 or float64, allocates the
result and calls the backend: the compiled extension, or plain NumPy. Arrays on a GPU stay there and are computed there.
``PYATTNORG_BACKEND=cpu|cuda|emulated|reference`` forces one, which must then be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg import _core, device_kernels, device_trees, devices, reference
from pyattnorg.arrays import Array, FloatArray, given, require_finite
from pyattnorg.folders import IntArray
from pyattnorg.plans import HaarSteps, SumProgram, haar_steps, sum_program
from pyattnorg.threads import get_num_threads
from pyattnorg.trees import PartitionTree

Term: TypeAlias = Literal["l1", "squares", "masked", "products"]
BACKENDS = ("cpu", "cuda", "emulated", "reference")
KRYLOV_VECTORS = int(_core.krylov_vectors)
KRYLOV_LIMIT = 320  # vectors of a Krylov space, at most
EXCHANGE_SWEEPS = 200  # sweeps of exchanges, at most; some ten are needed


class SumOverflowError(ValueError):
    """Sums of finite values that are too large for their dtype."""


def backend() -> str:
    """The backend in use."""
    name = devices.forced() or "cpu"
    if name not in BACKENDS:
        raise ImportError(f"PYATTNORG_BACKEND: got {name!r}, expected one of {', '.join(BACKENDS)}")
    if name == "cuda":
        devices.cuda_kernels()
    if name == "emulated":
        devices.emulated_kernels()
    return name


def pairwise(x: Array, y: Array | None = None, *, term: Term = "l1", weights: Array | None = None) -> Any:
    """``out[i, j] = sum over features of w |x_i - y_j|`` (or of another term, unweighted).

    Terms: ``l1`` |a - b|, ``squares`` (a - b)^2, ``products`` a b, ``masked`` b^2 where a is not 0 (the one that is not
    symmetric).

    Parameters
    ----------
    x : array, shape (n, features)
    y : array, shape (m, features), optional
        Without it all pairs of `x`.
    weights : array, shape (features,), optional
        Not negative; for ``term="l1"``.

    Returns
    -------
    array, shape (n, n) or (n, m)
        Of the kind of `x`.
    """
    ours = given(x, "x", min_ndim=2, finite=False)
    points = ours.values
    others = None if y is None else given(y, "y", min_ndim=2, finite=False).values
    if others is not None:
        if others.shape[1:] != points.shape[1:]:
            raise ValueError(
                f"y: got shape {others.shape}, expected (m, {points.shape[1]}) as x has shape {points.shape}"
            )
        points, others = _same_dtype(points, others)
    w = None
    if weights is not None:
        w = given(weights, "weights").values.astype(points.dtype, copy=False)
        if w.shape != points.shape[1:] or (w < 0).any():
            raise ValueError(f"weights: got shape {w.shape}, expected {points.shape[1:]} numbers that are not negative")
    if backend() == "reference":
        return ours.back(_checked(reference.pairwise(points, others, term, w), points, others))
    n, m = len(points), len(points if others is None else others)
    out = np.empty((n, m), points.dtype)
    if out.size:
        split = 0 if others is None else m
        stacked = points if others is None else np.concatenate([others, points])
        w = None if w is None else np.ascontiguousarray(w)
        if memory := devices.forced_memory():
            there = device_kernels.pairwise(memory, memory.array(_whole_strides(stacked)), split, term, w)
            return ours.back(_checked(memory.host(there), points, others))
        _core.pairwise(_whole_strides(stacked), w, term, split, out, get_num_threads())
    return ours.back(_checked(out, points, others))


def tree_emd(
    x: FloatArray,
    tree_a: PartitionTree,
    tree_b: PartitionTree,
    weights_a: NDArray[np.float64],
    weights_b: NDArray[np.float64],
) -> FloatArray:
    """``E(p, p') = sum_IJ w(I) w(J) |avg_IxJ(x_p - x_p')|``; NumPy x (n, a, b), weights per distinct folder."""
    if backend() == "reference":
        return _checked(reference.tree_emd(x, tree_a, tree_b, weights_a, weights_b), x)
    # Features are made one outer folder at a time, for all inner ones: the last axis is inner (memory runs along
    # it), unless it has many more folders. Layout has no say, so that it changes no byte.
    if tree_b.n_folders > 4 * tree_a.n_folders and tree_a.n_leaves > 1:
        x, tree_a, tree_b, weights_a, weights_b = x.swapaxes(1, 2), tree_b, tree_a, weights_b, weights_a
    if memory := devices.forced_memory():
        there = memory.array(_whole_strides(x))
        found = device_kernels.tree_emd(memory, there, (tree_a, tree_b), (weights_a, weights_b))
        return _checked(memory.host(found), x)
    out = np.empty((len(x), len(x)), x.dtype)
    if out.size:
        a, b = _program(tree_a, weights_a), _program(tree_b, weights_b)
        _core.tree_emd(_whole_strides(x), a, b, out, get_num_threads())
    return _checked(out, x)


def folder_averages(x: Array, tree: PartitionTree, axis: int = 0) -> Any:
    """Means of `x` over the tree's distinct folders, breadth-first: the axis becomes one of ``tree.n_folders``."""
    ours = given(x, "x")
    values, axis = ours.values, axis_of(ours.values, axis, tree)
    if backend() == "reference":
        return ours.back(within_range(reference.folder_averages(values, tree, axis)))
    if memory := devices.forced_memory():
        there = device_kernels.folder_averages(memory, memory.array(_whole_strides(values)), tree, axis)
        return ours.back(within_range(memory.host(there)))
    folders = tree.folders()
    leaf = np.where(folders.size == 1, tree.order[folders.start], -1).astype(np.int32)
    blocks = np.ascontiguousarray(values).reshape(_around(values.shape, axis))
    out = np.empty((*values.shape[:axis], len(folders), *values.shape[axis + 1 :]), values.dtype)
    _core.folder_averages(blocks, folders.parent, folders.size, leaf, out, get_num_threads())
    return ours.back(within_range(out))


def haar(x: Array, trees: list[PartitionTree | None], *, inverse: bool) -> Any:
    """Tree-Haar coefficients along every axis that has a tree, or the way back. Same shape."""
    ours = given(x, "x", min_ndim=0, finite=False)
    values = ours.values
    if len(trees) != values.ndim:
        raise ValueError(
            f"trees: got {len(trees)}, x has {values.ndim} axes; give one for each, None to leave it alone"
        )
    for axis, tree in enumerate(trees):
        if tree is not None:
            axis_of(values, axis, tree)
    return ours.back(haar_into(np.empty(values.shape, values.dtype), values, trees, inverse))


def haar_into(
    out: FloatArray, values: FloatArray, trees: Sequence[PartitionTree | None], inverse: bool = False
) -> FloatArray:
    """`haar` of NumPy values by trees that fit, into `out` of their shape and dtype, which is returned."""
    source = np.asarray(values, order="C")
    if backend() == "reference":
        for axis, tree in enumerate(trees):
            source = source if tree is None else reference.haar(source, tree, axis, inverse)
        out[...] = source
        return _haar_checked(out, values)
    if memory := devices.forced_memory():
        out[...] = memory.host(device_kernels.haar(memory, memory.array(_whole_strides(source)), trees, inverse))
        return _haar_checked(out, values)
    plans = [None if tree is None or tree.n_leaves == 1 else _haar_plan(tree) for tree in trees]
    finite = _core.haar(source, plans, inverse, out, get_num_threads())
    return out if finite else _haar_checked(out, values)


def _haar_checked(out: FloatArray, values: FloatArray) -> FloatArray:
    """`out`, if it is finite."""
    require_finite(values, "x")
    if np.isfinite(out).all():
        return out
    raise overflow(out)


def flexible_tree(phi: NDArray[np.float64], rate: NDArray[np.float64], constant: float) -> IntArray:
    """Labels of the flexible tree, root level first, from diffusion coordinates (n, m) and |eigenvalues| (m,)."""
    if backend() == "reference":
        return reference.flexible_tree(phi, rate, constant)
    return _core.flexible_tree(
        np.ascontiguousarray(phi, np.float64), np.ascontiguousarray(rate, np.float64), constant, get_num_threads()
    )


def tree_distance(a: PartitionTree, b: PartitionTree) -> int:
    """Sum over all ordered pairs of leaves of the difference in size of their smallest common folders."""
    if backend() == "reference":
        return reference.tree_distance(a, b)
    known = [(tree.order, tree.cached("common_sizes", PartitionTree.common_sizes)) for tree in (a, b)]
    return int(_core.tree_distance(*known[0], *known[1], get_num_threads()))


def products(k: FloatArray, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Products in float64 of a symmetric matrix (n, n) of either dtype and a few vectors (m, n), one a row."""
    if backend() == "reference":
        return reference.products(k, vectors)
    block, out = np.zeros((KRYLOV_VECTORS, len(k))), np.empty((KRYLOV_VECTORS, len(k)))
    block[: len(vectors)] = vectors
    _core.products(np.ascontiguousarray(k), block, out, get_num_threads())
    return out[: len(vectors)]


def entropy_tree(x: FloatArray, noise: float) -> tuple[IntArray, NDArray[np.float64], FloatArray]:
    """Least-entropy agglomeration of rows; NumPy x (n, features), n > 0, contiguous, is overwritten.

    With `noise`, a standard deviation, features count by ``sqrt(1 - noise^2 / variance)``, those below it not at all.

    Returns
    -------
    merges (n - 1, 2) by first points, the lower one first; what each costs, ``sqrt(s M / (s + M)) |a - b|_1``; l1
    distances (n, n) of the rows.
    """
    require_finite(x, "x")
    if backend() == "reference":
        x = reference.shrink_features(x, noise * noise) if noise else x
        return *reference.entropy_tree(x), _checked(reference.pairwise(x, None, "l1", None), x)
    if memory := devices.forced_memory():
        merges, costs, there = device_trees.entropy_tree(memory, memory.array(x), noise)
        return merges, costs, _checked(memory.host(there), x)
    n, threads = len(x), get_num_threads()
    merges, costs, distances = np.empty((n - 1, 2), np.int32), np.empty(n - 1), np.empty((n, n), x.dtype)
    features = _core.shrink_features(x, noise * noise, threads) if noise else x.shape[1]
    _core.entropy_tree(x, features, distances, merges, costs, threads)
    return merges, costs, _checked(distances, x)


def improve_tree(
    x: FloatArray, merges: IntArray, *, least_share: float, least_gain: float
) -> tuple[IntArray, NDArray[np.float64]]:
    """Merges and costs (see `entropy_tree`) after exchanges of neighbouring folders, of rows x (n, features).

    An exchange counts if it lowers the cost by more than `least_gain` and by more than `least_share` of the whole.
    """
    if backend() == "reference":
        return reference.improve_tree(x, merges, least_share, least_gain, EXCHANGE_SWEEPS)
    rows = np.ascontiguousarray(x)
    if memory := devices.forced_memory():
        return device_trees.improve_tree(memory, memory.array(rows), merges, EXCHANGE_SWEEPS, least_share, least_gain)
    better, costs = np.array(merges, np.int32), np.empty(len(merges))
    _core.improve_tree(rows, better, costs, EXCHANGE_SWEEPS, least_share, least_gain, get_num_threads())
    return better, costs


def largest_eigenpairs(
    k: FloatArray, f: NDArray[np.float64], known: NDArray[np.float64], m: int, tolerance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Eigenpairs of largest magnitude of ``S = f k f'``, symmetric, apart from known ones, by a block Krylov space.

    Parameters
    ----------
    k : ndarray, shape (n, n)
        float32 or float64; computing is in float64.
    f : ndarray, float64, shape (n,)
    known : ndarray, float64, shape (k, n)
        Orthonormal eigenvectors to be kept clear of.
    m : int
    tolerance : float
        Largest residual ``|S v - theta v|``, in units of the largest magnitude found.

    Returns
    -------
    (m,) values by falling magnitude and (m, n) orthonormal vectors, or None where the space would have to become so
    large that a full decomposition is the better way.
    """
    n, first, block = len(k), len(known), KRYLOV_VECTORS
    k = np.ascontiguousarray(k)
    limit = first + min((n - first) // (2 * block), KRYLOV_LIMIT // block) * block
    basis = np.empty((limit + block, n))
    basis[:first] = known
    # Any fixed start will do; cosines of unrelated frequencies are clear of every eigenvector in practice.
    basis[first : first + block] = np.cos(np.outer(np.sqrt([2, 3, 5, 7])[:block], np.arange(1, n + 1)) + 0.5)
    projected, rest = np.zeros((limit, limit)), np.empty((block, block))
    have, want = first, first + (4 * m + block - 1) // block * block
    while want <= limit:
        if backend() == "reference":
            reference.krylov(k, f, basis, first, have, want, projected, rest)
        else:
            _core.krylov(k, f, basis, first, have, want, projected, rest, get_num_threads())
        h = projected[first:want, first:want]
        values, vectors = np.linalg.eigh((h + h.T) / 2)
        best = np.argsort(-np.abs(values), kind="stable")[:m]
        last = vectors[-block:, best]
        residuals = np.sqrt(np.maximum(np.einsum("ij,ik,kj->j", last, rest, last), 0))
        if (residuals <= tolerance * max(np.abs(values[best[0]]), np.finfo(float).tiny)).all():
            return values[best], vectors[:, best].T @ basis[first:want]
        have, want = want, want + max(2, (want - first) // (5 * block)) * block
    return None


def norms(x: FloatArray) -> tuple[float, float]:
    """Sums of magnitudes and of squares of all entries, in float64."""
    if backend() == "reference":
        return reference.norms(x)
    if memory := devices.forced_memory():
        magnitudes, squares = memory.host(device_kernels.norms(memory, memory.array(_whole_strides(x))))
        return float(magnitudes), float(squares)
    magnitudes, squares = _core.norms(np.ascontiguousarray(x), get_num_threads())
    return float(magnitudes), float(squares)


def symmetry(x: FloatArray) -> tuple[float, float, float]:
    """Of a square matrix that is not empty: the largest ``|x_ij - x_ji|``, the least and the largest entry."""
    if backend() == "reference":
        return reference.symmetry(x)
    apart, least, largest = _core.symmetry(np.ascontiguousarray(x), get_num_threads())
    return float(apart), float(least), float(largest)


def median(values: FloatArray) -> float:
    """Median of all entries, the mean of the middle two where their number is even."""
    if backend() == "reference":
        return reference.median(values)
    if memory := devices.forced_memory():
        lower, upper = memory.host(device_kernels.median(memory, memory.array(_whole_strides(values)))).tolist()
        return float(values.dtype.type(lower + (upper - lower) / 2)) if values.size % 2 == 0 else float(lower)
    return float(_core.median(np.ascontiguousarray(values)))


def instruction_set() -> str:
    """Instruction set that the compiled kernels use."""
    return str(_core.instruction_set())


def instruction_sets() -> list[str]:
    """Instruction sets that run here, the preferred one last."""
    return list(_core.instruction_sets())


# -- what the compiled kernels are given ------------------------------------------------------------------------------


def _same_dtype(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    dtype = np.result_type(x.dtype, y.dtype)
    return x.astype(dtype, copy=False), y.astype(dtype, copy=False)


def _whole_strides(x: FloatArray) -> FloatArray:
    """`x` itself where its strides are whole elements (fields of records may have others)."""
    fits = x.flags.aligned and x.dtype.isnative and all(s % x.itemsize == 0 for s in x.strides)
    return x if fits else np.ascontiguousarray(x, x.dtype.newbyteorder("="))


def _around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    before, after = shape[:axis], shape[axis + 1 :]
    return int(np.prod(before, dtype=np.int64)), shape[axis], int(np.prod(after, dtype=np.int64))


def axis_of(x: Array, axis: int, tree: PartitionTree) -> int:
    """An axis of an array, counted from the front; ValueError unless it is there and the tree fits it."""
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis: got {axis}, x has {x.ndim} axes")
    if x.shape[axis] != tree.n_leaves:
        raise ValueError(
            f"tree: got one of {tree.n_leaves} leaves for axis {axis} of x, which has {x.shape[axis]} points"
        )
    return int(axis % x.ndim)


def _checked(out: FloatArray, x: FloatArray, y: FloatArray | None = None) -> FloatArray:
    """`out`, which NaN and infinities of `x` and `y` reach: looking for them there is quicker than in what came."""
    if x.shape[:1] != (1,) or y is not None:  # one point has no distances that NaN could reach
        try:
            require_finite(out, "out")
            return out
        except ValueError:
            pass
    require_finite(x, "x")
    if y is not None:
        require_finite(y, "y")
    return within_range(out)


def within_range(out: FloatArray, name: str = "x") -> FloatArray:
    """What was computed from finite numbers, itself; SumOverflowError where it has left the range of its dtype."""
    if np.isfinite(out).all():
        return out
    raise overflow(out, name)


def overflow(out: Any, name: str = "x") -> SumOverflowError:
    """What to say of an argument whose sums `out` is too narrow for."""
    dtype = str(out.dtype).removeprefix("torch.")
    wider = "" if dtype == "float64" else " or pass float64"
    return SumOverflowError(f"{name}: sums overflow {dtype}; scale the values down{wider}")


def _program(tree: PartitionTree, weights: NDArray[np.float64]) -> Any:
    steps: SumProgram = tree.cached("sum_program", sum_program)
    scale = weights[steps.folder] / tree.folders().size[steps.folder]
    return _core.Program(steps.leaf, steps.slot, steps.add, scale, tree.n_leaves)


def _haar_plan(tree: PartitionTree) -> Any:
    def make(tree: PartitionTree) -> Any:
        steps: HaarSteps = tree.cached("haar_steps", haar_steps)
        return _core.HaarPlan(steps.steps, steps.slot)

    return tree.cached("haar_plan", make)
