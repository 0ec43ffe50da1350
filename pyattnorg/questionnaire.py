"""The questionnaire: an estimator that organises every axis of a tensor by trees that explain one another."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pyattnorg.arrays import Array, FloatArray, to_numpy
from pyattnorg.axis_options import (
    N_ITER,
    N_ITER_ENTROPY,
    AxisOptions,
    Forest,
    Initial,
    Schedule,
    TreeKind,
    default_tree,
    given_affinities,
    options_by_axis,
    starting_trees,
)
from pyattnorg.builders import Cut
from pyattnorg.checks import number, one_of, position, whole
from pyattnorg.diffusion import DiffusionMap, diffusion_map
from pyattnorg.distances import PerAxis
from pyattnorg.folder_weights import FolderWeights
from pyattnorg.haar import haar, ihaar
from pyattnorg.placing import placed
from pyattnorg.progress import Progress
from pyattnorg.rounds import Iteration, Rounds
from pyattnorg.trees import PartitionTree


class Questionnaire:
    """Organise every axis of a tensor by trees that explain one another (arXiv 2506.15541, after Ankenman 2014).

    An estimator in the manner of scikit-learn. In every iteration the last axis (the heads of a network) is organised
    first, then the others in order, each by the trees of all others: by default for the least entropy of the
    coefficients (`pyattnorg.entropy_tree`), or as in the paper, where those trees give a distance
    (`pyattnorg.tree_emd`), the distance an affinity, the affinity a tree.

    Options marked "per axis" are one for all axes, or a tuple of one each.

    Parameters
    ----------
    n_iter : int, optional
        Iterations at most; it stops when an iteration changes no tree, or by `tol`. By default 3, and with
        least-entropy trees until it stops by itself (50 at most; some 5 are usual).
    tree : {"entropy", "flexible", "binary", "given"}, per axis, optional
        Kind of tree. ``"entropy"`` builds trees for the coefficients themselves: an axis gets a new one only if that
        lowers their l1 norm, so entropy never rises and the last iteration is the best. Distances are then those of
        points' coefficients in the bases of the other axes; it goes with itself and "given" alone. ``"flexible"`` is
        the paper's, see `pyattnorg.flexible_tree`, and `pyattnorg.binary_tree`. ``"given"`` keeps the tree that `fit`
        is given for the axis, such as `pyattnorg.layer_tree` or `pyattnorg.quadtree`. By default "entropy", which
        carries over best to inputs that it has not seen (docs/entropy-study.md); but "flexible" where
        schedule="paper", or another option that only trees from affinities have, is set, or `fit` is given affinities,
        and "binary" where `balance`, `cut` or `n_trees` is. `tree_kinds_` tells. An option that has no say with the
        trees that are named is an error.
    initial : {"cosine", "gaussian"}, per axis
        Affinity of the data that the first trees are built from; `fit` takes arrays instead.
    alpha, beta : float, per axis
        Folder weights ``(|I| / n) ** beta * 2 ** ((1 - level) * alpha)`` in the tree distance.
    weights : {"powers", "data"} or callable, per axis
        ``"powers"``: by `alpha` and `beta`. ``"data"``: by what every folder tells, `pyattnorg.data_weights` (Mishne
        et al. 2018). A function of a PartitionTree gives any others, of shape (n_folders,).
    schedule : {"refined", "paper"}
        ``"refined"`` always uses the latest trees. ``"paper"`` does what the paper's code does: the last axis is
        organised from the first trees in every iteration (with two axes: both from the previous iteration's), and
        zeros count as missing in the initial cosine affinity.
    constant : float, per axis
        Of flexible trees; larger ones make taller trees.
    balance : float, per axis
        Of binary trees: 1 cuts every folder at its median (at random only where it is odd), more at a random rank in
        that range (`random_state`).
    cut : {"median", "zero", "random"}, per axis, optional
        Of binary trees; without it "random" where ``balance > 1`` and else "median".
    n_trees : int
        Trees an axis, where some are cut at random: tree distances are averaged over them, which smooths what a single
        cut decides (spin cycling, Coifman and Donoho 1995); give a `balance` above 1, such as 1.5. Tree i is drawn with
        seed ``random_state + i``.
    missing : float, optional
        Entries equal to this are unknown to the initial cosine affinity; see `pyattnorg.cosine_affinity`. Without it
        none, but 0 in the schedule "paper".
    tol : float
        Stop as well when no axis's trees moved farther than this in an iteration (`pyattnorg.tree_distance`); 0: only
        when no tree changes at all.
    random_state : int, optional
        Seed of random cuts; needed where they are drawn.
    device : str, optional
        Where what is as large as the tensor is computed: "cpu", "cuda" or "cuda:1", "auto" (a GPU if there is one,
        which is said); without it where the tensor lies. Matrices of one axis, and the choices that make trees of
        them, are the CPU's in any case (docs/gpu.md).
    verbose : bool
        Write a line about every stage to standard error.

    Attributes
    ----------
    trees_, affinities_, distances_ : tuple
        One for each axis: PartitionTree, (n, n) array, (n, n) array, those of the last iteration. Of several random
        trees `trees_` holds the set of least entropy.
    forests_ : tuple of tuples
        All trees of every axis: `n_trees` each.
    tree_kinds_ : tuple of str
        Kind of tree of every axis.
    history_ : list of Iteration
        After every iteration: ``trees``, normalised l1 ``entropy`` in their Haar basis, and ``moved``, how far the
        trees of every axis moved in it (None where there were none before).
    n_iter_ : int
        Iterations run.
    converged_ : bool
        Whether the last iteration changed no tree, or none by more than `tol`.
    """

    trees_: tuple[PartitionTree, ...]
    forests_: tuple[Forest, ...]
    tree_kinds_: tuple[TreeKind, ...]
    affinities_: tuple[FloatArray, ...]
    distances_: tuple[FloatArray, ...]
    history_: list[Iteration]
    n_iter_: int
    converged_: bool

    def __init__(
        self,
        n_iter: int | None = None,
        *,
        tree: TreeKind | Sequence[TreeKind] | None = None,
        initial: Initial | Sequence[Initial] = "cosine",
        alpha: PerAxis = 0.0,
        beta: PerAxis = 1.0,
        weights: FolderWeights | Sequence[FolderWeights] = "powers",
        schedule: Schedule = "refined",
        constant: PerAxis = 1.0,
        balance: PerAxis = 1.0,
        cut: Cut | Sequence[Cut] | None = None,
        n_trees: int = 1,
        missing: float | None = None,
        tol: float = 0.0,
        random_state: int | None = None,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_iter = n_iter
        self.tree = tree
        self.initial = initial
        self.alpha = alpha
        self.beta = beta
        self.weights = weights
        self.schedule = schedule
        self.constant = constant
        self.balance = balance
        self.cut = cut
        self.n_trees = n_trees
        self.missing = missing
        self.tol = tol
        self.random_state = random_state
        self.device = device
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
        affinities: Sequence[Array | None] | None = None,
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
            Trees to start from instead of those of the initial affinity, one an axis; to keep where the axis has
            ``tree="given"``.
        affinities : sequence of arrays (n, n) or None, optional
            Affinities to build the first trees from instead of those of the data, one an axis. That of the last axis
            is used in the schedule "paper" of two axes alone: it is organised from the trees of the others.
        progress : callable, optional
            Called as ``progress(stage, done, total)`` before every stage and once at the end.
        """
        values, computed = placed(x, visible, self.device)
        options = self.axis_options(
            values.ndim, asked=affinities is not None and any(a is not None for a in affinities)
        )
        first = starting_trees(trees, values.shape)
        for axis, o in enumerate(options):
            if o.tree == "given" and first[axis] is None:
                raise ValueError(f"trees: axis {axis} keeps a given tree (tree='given'), which is missing; pass it")
        rounds = Rounds(
            computed,
            options,
            paper=self.schedule == "paper",
            n_trees=self.n_trees,
            seed=self.random_state,
            tol=self.tol,
            missing=0.0 if self.missing is None and self.schedule == "paper" else self.missing,
        )
        by_entropy = any(o.tree == "entropy" for o in options)
        if by_entropy and affinities is not None and any(a is not None for a in affinities):
            raise ValueError("affinities: least-entropy trees are built from none; pass tree='flexible', or trees=")
        n_iter = (N_ITER_ENTROPY if by_entropy else N_ITER) if self.n_iter is None else self.n_iter
        rounds.run(n_iter, first, given_affinities(affinities, values.shape), progress, self.verbose)
        self.history_, self.n_iter_, self.converged_ = rounds.history, len(rounds.history), rounds.converged
        self.trees_, self.tree_kinds_ = rounds.history[-1]["trees"], tuple(o.tree for o in options)
        self.forests_ = tuple(forest for forest in rounds.forests if forest is not None)
        self.affinities_ = tuple(a for a in rounds.affinities if a is not None)
        self.distances_ = tuple(e for e in rounds.distances if e is not None)
        self._values = values
        return self

    def keep(self, values: FloatArray) -> None:
        """Keep the fitted tensor as these values of the same numbers, in this machine's memory."""
        self._fitted()._values = values

    def axis_options(self, n_axes: int, *, asked: bool = False) -> tuple[AxisOptions, ...]:
        """What is done with every axis of a tensor of so many: kind of tree, weights and so on, all options checked.

        `fit` does it by itself; before a long capture it is worth doing at once. With `asked`, trees are those from
        affinities where no kind is named, as where `fit` is given affinities.

        Raises
        ------
        ValueError
            An option is none, or they do not go together.
        """
        if self.n_iter is not None:
            whole(self.n_iter, "n_iter", at_least=1)
        whole(self.n_trees, "n_trees", at_least=1)
        one_of(self.schedule, "schedule", ("refined", "paper"))
        number(self.tol, "tol", at_least=0)
        if self.missing is not None:
            number(self.missing, "missing")
        params = self.get_params()
        if self.tree is None:
            params["tree"] = default_tree(params)
            params["tree"] = "flexible" if asked and params["tree"] == "entropy" else params["tree"]
        options = options_by_axis(params, n_axes)
        drawn = any(o.drawn for o in options)
        if drawn and self.random_state is None:
            raise ValueError("random_state: needed where binary trees are cut at random; give an integer")
        if self.random_state is not None:
            whole(self.random_state, "random_state", at_least=0)
        if self.n_trees > 1 and not drawn:
            raise ValueError(
                f"n_trees: got {self.n_trees}, but no tree is drawn at random, so that all would be equal; "
                "pass tree='binary' with cut='random', or leave it at 1"
            )
        return options

    # -- what was found -----------------------------------------------------------------------------------------

    def order(self, axis: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Points of an axis in the order of its tree's leaves."""
        return self._fitted().trees_[self._axis(axis)].order

    def embedding(
        self,
        axis: int,
        n_components: int = 3,
        time: float = 1.0,
        *,
        alpha: float = 1.0,
        variant: Literal["diffusion", "paper"] = "diffusion",
    ) -> DiffusionMap:
        """Diffusion map of an axis, from its last affinity; options are those of `pyattnorg.diffusion_map`."""
        affinity = self._fitted().affinities_[self._axis(axis)]
        return diffusion_map(affinity, n_components=n_components, time=time, alpha=alpha, variant=variant)

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
        return position(axis, "axis", len(self.trees_), "expected")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trees_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def _fitted(self) -> Questionnaire:
        if not hasattr(self, "trees_"):
            raise ValueError("this Questionnaire is not fitted yet; call fit first")
        return self
