"""What a questionnaire is told, checked, axis by axis: its options, and the trees and affinities to start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pyattnorg.affinity import square_matrix
from pyattnorg.arrays import Array, FloatArray, given
from pyattnorg.builders import Cut, binary_tree, flexible_tree
from pyattnorg.checks import number, one_of
from pyattnorg.folder_weights import FolderWeights
from pyattnorg.trees import PartitionTree

Schedule: TypeAlias = Literal["refined", "paper"]
TreeKind: TypeAlias = Literal["flexible", "binary", "entropy", "given"]
Initial: TypeAlias = Literal["cosine", "gaussian"]
Forest: TypeAlias = tuple[PartitionTree, ...]  # the trees of one axis: one, or several drawn at random
T = TypeVar("T")

TREES = ("flexible", "binary", "entropy", "given")
DEFAULT_TREE: TreeKind = "entropy"  # what wins on inputs and heads that the trees have not seen: docs/entropy-study.md
# Options that trees from affinities alone have, with their defaults: who sets one asks for such trees.
OF_AFFINITIES: dict[str, Any] = {
    "initial": "cosine",
    "alpha": 0.0,
    "beta": 1.0,
    "weights": "powers",
    "schedule": "refined",
    "constant": 1.0,
    "balance": 1.0,
    "cut": None,
    "n_trees": 1,
    "missing": None,
}
OF_BINARY = {"balance", "cut", "n_trees"}  # those that binary trees alone have
N_ITER = 3  # of trees from affinities; the paper's
N_ITER_ENTROPY = 50  # a bound: rounds of least-entropy trees stop by themselves, most after 3 to 8


class AxisOptions(NamedTuple):
    """What a questionnaire does with one axis; the options of `pyattnorg.Questionnaire`."""

    tree: TreeKind
    initial: Initial
    alpha: float
    beta: float
    weights: FolderWeights
    constant: float
    balance: float
    cut: Cut

    @property
    def drawn(self) -> bool:
        """Whether trees of this axis are drawn at random."""
        return self.tree == "binary" and self.cut == "random"


def default_tree(params: dict[str, Any]) -> TreeKind:
    """The kind of tree where none is named: the one that has what an option that is set asks for."""
    asked = {name for name, default in OF_AFFINITIES.items() if not _same(params[name], default)}
    return "binary" if asked & OF_BINARY else "flexible" if asked else DEFAULT_TREE


def _same(value: Any, default: Any) -> bool:
    """Whether an option, for all axes or one each, is its default."""
    each = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value]
    return all(not callable(one) and np.array_equal(one, default) for one in each)


def options_by_axis(params: dict[str, Any], n_axes: int) -> tuple[AxisOptions, ...]:
    """The options of every axis, from those of a questionnaire; ValueError for one that is none."""

    def each(name: str, check: Callable[[Any], T]) -> tuple[T, ...]:
        value = params[name]
        if not isinstance(value, (list, tuple, np.ndarray)):
            return (check(value),) * n_axes
        if len(value) != n_axes:
            raise ValueError(f"{name}: got {len(value)} of them, expected one, or one for each of {n_axes} axes")
        return tuple(check(v) for v in value)

    def word(name: str, *known: str) -> tuple[Any, ...]:
        def check(value: Any) -> Any:
            one_of(value, name, known)
            return value

        return each(name, check)

    def weights(value: Any) -> FolderWeights:
        if not callable(value):
            one_of(value, "weights", ("powers", "data", "a function of a tree"))
        found: FolderWeights = value
        return found

    cuts = (None,) * n_axes if params["cut"] is None else word("cut", "median", "zero", "random")
    balances = each("balance", lambda v: number(v, "balance", at_least=1))
    options = zip(
        word("tree", *TREES),
        word("initial", "cosine", "gaussian"),
        each("alpha", lambda v: number(v, "alpha")),
        each("beta", lambda v: number(v, "beta")),
        each("weights", weights),
        each("constant", lambda v: number(v, "constant", above=0)),
        balances,
        (cut or ("random" if balance > 1 else "median") for cut, balance in zip(cuts, balances)),
    )
    found = tuple(AxisOptions(*axis) for axis in options)
    kinds = {o.tree for o in found}
    if "entropy" in kinds and kinds - {"entropy", "given"}:
        raise ValueError(f"tree: got {[o.tree for o in found]}; 'entropy' goes with itself and 'given' alone")
    if "entropy" in kinds and params["schedule"] == "paper":
        raise ValueError("schedule: 'paper' knows no least-entropy trees; use 'refined' with tree='entropy'")
    _require_a_say(params, found)
    return found


def _require_a_say(params: dict[str, Any], axes: tuple[AxisOptions, ...]) -> None:
    """ValueError for an option that is set and would change nothing on any axis."""
    kinds = {o.tree for o in axes}
    grown, by_distance = bool(kinds & {"flexible", "binary"}), "entropy" not in kinds
    heard = {
        "initial": grown, "missing": grown, "alpha": by_distance, "beta": by_distance, "weights": by_distance,
        "constant": "flexible" in kinds, "cut": "binary" in kinds, "balance": any(o.drawn for o in axes),
    }  # fmt: skip
    for name, has_a_say in heard.items():
        if not has_a_say and not _same(params[name], OF_AFFINITIES[name]):
            needed = {"cut": "tree='binary'", "balance": "tree='binary' with cuts at random"}.get(
                name, "tree='flexible'"
            )
            raise ValueError(
                f"{name}: got {params[name]!r}, which has no say with trees {[o.tree for o in axes]}; pass {needed}, "
                "or leave it out"
            )


def grow(affinity: FloatArray, options: AxisOptions, n_trees: int, seed: int | None) -> Forest:
    """Trees of an axis from its affinity: `n_trees` of them, all the same where nothing is drawn."""
    if options.tree == "flexible":
        return (flexible_tree(affinity, constant=options.constant),) * n_trees
    if not options.drawn:
        return (binary_tree(affinity, cut=options.cut),) * n_trees
    assert seed is not None
    return tuple(binary_tree(affinity, balance=options.balance, cut="random", seed=seed + i) for i in range(n_trees))


def starting_trees(trees: Sequence[PartitionTree | None] | None, shape: tuple[int, ...]) -> list[PartitionTree | None]:
    """Trees that a fit is given, one or None for every axis; an error for those that do not fit."""
    first: list[PartitionTree | None] = [None] * len(shape) if trees is None else list(trees)
    if len(first) != len(shape):
        raise ValueError(f"trees: got {len(first)}, expected one (or None) for each of {len(shape)} axes")
    for axis, tree in enumerate(first):
        if tree is not None and not isinstance(tree, PartitionTree):
            raise TypeError(f"trees: got {type(tree).__name__} for axis {axis}, expected a PartitionTree or None")
        if tree is not None and tree.n_leaves != shape[axis]:
            raise ValueError(f"trees: that of axis {axis} has {tree.n_leaves} leaves, expected {shape[axis]}")
    return first


def given_affinities(affinities: Sequence[Array | None] | None, shape: tuple[int, ...]) -> list[FloatArray | None]:
    """Affinities that a fit is given, one or None for every axis; an error for those that do not fit."""
    told: list[Array | None] = [None] * len(shape) if affinities is None else list(affinities)
    if len(told) != len(shape):
        raise ValueError(f"affinities: got {len(told)}, expected one (or None) for each of {len(shape)} axes")
    found: list[FloatArray | None] = []
    for axis, affinity in enumerate(told):
        if affinity is None:
            found.append(None)
            continue
        values = given(affinity, f"affinities[{axis}]").values
        if values.shape != (shape[axis],) * 2:
            raise ValueError(f"affinities[{axis}]: got shape {values.shape}, expected {(shape[axis],) * 2}")
        square_matrix(values, f"affinities[{axis}]")
        found.append(values)
    return found
