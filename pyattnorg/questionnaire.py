"""The questionnaire: affinity, tree, tree distance, affinity, tree ... on every axis of a tensor in turn."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from pyattnorg.affinity import cosine_affinity, dual_affinity, gaussian_affinity
from pyattnorg.arrays import Array, FloatArray, given, mask_values, to_numpy
from pyattnorg.builders import binary_tree, flexible_tree
from pyattnorg.checks import number, one_of, whole
from pyattnorg.diffusion import DiffusionMap, diffusion_map
from pyattnorg.distances import PerAxis, per_axis, tree_distances
from pyattnorg.haar import haar, ihaar
from pyattnorg.kernels import haar_into
from pyattnorg.progress import Progress, Stages
from pyattnorg.sparsity import l1_entropy
from pyattnorg.trees import PartitionTree
from pyattnorg.visibility import fill_invisible, visible_cells

Schedule: TypeAlias = Literal["refined", "paper"]
TreeKind: TypeAlias = Literal["flexible", "binary"]
Initial: TypeAlias = Literal["cosine", "gaussian"]


class Iteration(TypedDict):
    """One round of the questionnaire: the trees it ended with, and the normalised l1 entropy in their Haar basis."""

    trees: tuple[PartitionTree, ...]
    entropy: float


class Questionnaire:
    """Organise every axis of a tensor by trees that explain one another (arXiv 2506.15541, after Ankenman 2014).

    An estimator in the manner of scikit-learn. In every iteration the last axis (the heads of a network) is organised
    first, then the others in order: the trees of the other axes give a distance (`pyattnorg.tree_emd`), the distance an
    affinity, the affinity a tree.

    Parameters
    ----------
    n_iter : int
        Iterations at most; it stops when an iteration changes no tree.
    tree : {"flexible", "binary"}
        Kind of tree; see `pyattnorg.flexible_tree` and `pyattnorg.binary_tree`.
    initial : {"cosine", "gaussian"}
        Affinity of the data that the first trees are built from.
    alpha, beta : float or one an axis
        Folder weights ``(|I| / n) ** beta * 2 ** ((1 - level) * alpha)`` in the tree distance.
    schedule : {"refined", "paper"}
        ``"refined"`` always uses the latest trees. ``"paper"`` does what the paper's code does: the last axis is
        organised from the first trees in every iteration (with two axes: both from the previous iteration's), and
        zeros count as missing in the initial cosine affinity.
    constant : float
        Of flexible trees; larger ones make taller trees.
    balance : float
        Of binary trees: 1 cuts every folder at its median, more at a random rank in that range (`random_state`).
    random_state : int, optional
        Seed of random cuts; needed where they are drawn.
    verbose : bool
        Write a line about every stage to standard error.

    Attributes
    ----------
    trees_, affinities_, distances_ : tuple
        One for each axis: PartitionTree, (n, n) array, (n, n) array, those of the last iteration.
    history_ : list of Iteration
        Trees and normalised l1 entropy after every iteration.
    n_iter_ : int
        Iterations run.
    converged_ : bool
        Whether the last iteration changed no tree.
    """

    trees_: tuple[PartitionTree, ...]
    affinities_: tuple[FloatArray, ...]
    distances_: tuple[FloatArray, ...]
    history_: list[Iteration]
    n_iter_: int
    converged_: bool

    def __init__(
        self,
        n_iter: int = 3,
        *,
        tree: TreeKind = "flexible",
        initial: Initial = "cosine",
        alpha: PerAxis = 0.0,
        beta: PerAxis = 1.0,
        schedule: Schedule = "refined",
        constant: float = 1.0,
        balance: float = 1.0,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_iter = n_iter
        self.tree = tree
        self.initial = initial
        self.alpha = alpha
        self.beta = beta
        self.schedule = schedule
        self.constant = constant
        self.balance = balance
        self.random_state = random_state
        self.verbose = verbose

    # -- scikit-learn habits ------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options by name."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Questionnaire:
        """Change options by name."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name}: no such option, expected one of {sorted(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if not np.array_equal(v, defaults[k].default)]
        return f"Questionnaire({', '.join(changed)})"

    # -- fitting ------------------------------------------------------------------------------------------------

    def fit(
        self,
        x: Array,
        visible: Array | None = None,
        trees: Sequence[PartitionTree | None] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Questionnaire:
        """Organise `x`.

        Parameters
        ----------
        x : array of two axes or more, none of them empty
            Such as queries x keys x heads.
        visible : bool array of the shape of `x` or of its first two axes, optional
            Cells to be used; the others are filled with the mean of the visible ones along the second axis. Without
            it, -inf and the lowest numbers of model dtypes mark cells that are not.
        trees : sequence of PartitionTree or None, optional
            Trees to start from instead of those of the initial affinity, one an axis.
        progress : callable, optional
            Called as ``progress(stage, done, total)`` before every stage and once at the end.
        """
        self._check_options()
        values = _filled(x, visible)
        n_axes = values.ndim
        alpha, beta = per_axis(self.alpha, n_axes, "alpha"), per_axis(self.beta, n_axes, "beta")
        first = self._starting_trees(trees, values.shape)
        todo = [n_axes - 1, *range(n_axes - 1)]
        paper = self.schedule == "paper"
        # Axes whose first trees somebody asks for: not the last one's, but in the paper's two-axis order.
        initial = [axis for axis in todo if first[axis] is None and (axis != todo[0] or (paper and n_axes == 2))]
        total = len(initial) + self.n_iter * n_axes
        stage = Stages(progress, self.verbose, total)
        for axis in initial:
            stage.begin(f"initial tree of axis {axis}")
            first[axis] = self._build(self._initial_affinity(np.moveaxis(values, axis, 0)))

        current = list(first)
        distances: list[FloatArray | None] = [None] * n_axes
        affinities: list[FloatArray | None] = [None] * n_axes
        used: list[tuple[PartitionTree, ...] | None] = [None] * n_axes
        history: list[Iteration] = []
        coefficients = np.empty(values.shape, values.dtype)
        converged = False
        for iteration in range(self.n_iter):
            previous = list(current)
            for axis in todo:
                stage.begin(f"iteration {iteration + 1}, axis {axis}")
                source = current
                if paper:
                    source = previous if n_axes == 2 else first if axis == todo[0] else current
                others = tuple(t for other, t in enumerate(source) if other != axis and t is not None)
                if used[axis] == others:
                    continue  # the same trees give the same distances
                pick = [other for other in range(n_axes) if other != axis]
                weights = [tree.weights(alpha[i], beta[i]) for tree, i in zip(others, pick)]
                e = tree_distances(np.moveaxis(values, axis, 0), list(others), weights)
                a = dual_affinity(e)
                distances[axis], affinities[axis], used[axis] = e, a, others
                current[axis] = self._build(a)
            found = tuple(t for t in current if t is not None)
            coefficients = haar_into(coefficients, values, found)
            history.append({"trees": found, "entropy": l1_entropy(coefficients)})
            if current == previous:
                converged = True
                break
        stage.end()
        self.history_, self.n_iter_, self.converged_ = history, len(history), converged
        self.trees_ = history[-1]["trees"]
        self.affinities_ = tuple(a for a in affinities if a is not None)
        self.distances_ = tuple(e for e in distances if e is not None)
        self._values = values
        return self

    def _check_options(self) -> None:
        whole(self.n_iter, "n_iter", at_least=1)
        one_of(self.tree, "tree", ("flexible", "binary"))
        one_of(self.initial, "initial", ("cosine", "gaussian"))
        one_of(self.schedule, "schedule", ("refined", "paper"))
        number(self.constant, "constant", above=0)
        number(self.balance, "balance", at_least=1)
        if self.tree == "binary" and self.balance > 1 and self.random_state is None:
            raise ValueError("random_state: needed where balance > 1 draws cuts at random; give an integer")

    def _starting_trees(
        self, trees: Sequence[PartitionTree | None] | None, shape: tuple[int, ...]
    ) -> list[PartitionTree | None]:
        first: list[PartitionTree | None] = [None] * len(shape) if trees is None else list(trees)
        if len(first) != len(shape):
            raise ValueError(f"trees: got {len(first)}, expected one (or None) for each of {len(shape)} axes")
        for axis, tree in enumerate(first):
            if tree is not None and not isinstance(tree, PartitionTree):
                raise TypeError(f"trees: got {type(tree).__name__} for axis {axis}, expected a PartitionTree or None")
            if tree is not None and tree.n_leaves != shape[axis]:
                raise ValueError(f"trees: that of axis {axis} has {tree.n_leaves} leaves, expected {shape[axis]}")
        return first

    def _initial_affinity(self, points: FloatArray) -> FloatArray:
        flat = np.ascontiguousarray(points).reshape(len(points), -1)
        if self.initial == "gaussian":
            found: FloatArray = gaussian_affinity(flat)
        else:
            found = cosine_affinity(flat, missing=0.0 if self.schedule == "paper" else None)
        return found

    def _build(self, affinity: FloatArray) -> PartitionTree:
        if self.tree == "flexible":
            return flexible_tree(affinity, constant=self.constant)
        cut: Literal["median", "random"] = "random" if self.balance > 1 else "median"
        return binary_tree(affinity, balance=self.balance, cut=cut, seed=self.random_state)

    # -- what was found -----------------------------------------------------------------------------------------

    def order(self, axis: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Points of an axis in the order of its tree's leaves."""
        return self._fitted().trees_[self._axis(axis)].order

    def embedding(self, axis: int, n_components: int = 3, time: float = 1.0) -> DiffusionMap:
        """Diffusion map of an axis, from its last affinity."""
        return diffusion_map(self._fitted().affinities_[self._axis(axis)], n_components=n_components, time=time)

    def coefficients(self) -> FloatArray:
        """Haar coefficients of the fitted tensor in the basis of all its trees."""
        found: FloatArray = haar(self._fitted()._values, self.trees_)
        return found

    def transform(self, x: Array) -> Any:
        """Haar coefficients of a tensor of the same shape."""
        return haar(x, self._fitted().trees_)

    def inverse_transform(self, c: Array) -> Any:
        """The tensor that has these coefficients."""
        return ihaar(c, self._fitted().trees_)

    def organized(self, x: Array | None = None) -> Any:
        """`x` (the fitted tensor) with every axis in the order of its tree."""
        self._fitted()
        values = self._values if x is None else x if hasattr(x, "shape") else to_numpy(x, "x")
        shape = tuple(tree.n_leaves for tree in self.trees_)
        if np.shape(values) != shape:
            raise ValueError(f"x: got shape {np.shape(values)}, expected {shape}")
        for axis, tree in enumerate(self.trees_):
            values = values[(slice(None),) * axis + (np.array(tree.order, np.int64),)]
        return values

    def _axis(self, axis: int) -> int:
        if not -len(self.trees_) <= axis < len(self.trees_):
            raise ValueError(f"axis: got {axis}, expected 0 to {len(self.trees_) - 1}")
        return axis

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trees_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def _fitted(self) -> Questionnaire:
        if not hasattr(self, "trees_"):
            raise ValueError("this Questionnaire is not fitted yet; call fit first")
        return self


def _filled(x: Array, visible: Array | None) -> FloatArray:
    """Values with a number in every cell, that no one else can change."""
    raw = to_numpy(x, "x")
    if raw.ndim < 2 or 0 in raw.shape:
        raise ValueError(f"x: got shape {raw.shape}, expected two axes or more with at least one point on each")
    wide: FloatArray = raw.astype(
        np.float64 if raw.dtype.kind != "f" or raw.dtype.itemsize >= 8 else np.float32, copy=False
    )
    if visible is not None and np.shape(visible) == raw.shape[:2]:
        visible = np.reshape(to_numpy(visible, "visible"), raw.shape[:2] + (1,) * (raw.ndim - 2))
        visible = np.broadcast_to(visible, raw.shape)
    seen = visible_cells(wide, visible, mask_values(x))
    if seen is not None:
        if not seen.any():
            raise ValueError("visible: no cell is visible, so there is nothing to organise; check the mask")
        return given(fill_invisible(wide, seen, "mean"), "x").values
    values = given(wide, "x").values
    return values.copy() if values.flags.writeable and np.may_share_memory(values, raw) else values
