"""What a questionnaire can be told: axis by axis, given trees and affinities, averaged random trees, when to stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import transcription as slow
from conftest import missing
from inputs import random_affinity, random_tree, relative_error
from numpy.typing import NDArray
from tensors import attention_like, planted

import pyattnorg as pa
from pyattnorg import kernels

X = attention_like(14, 12, 9)


def _initial(axis: int, initial: str = "cosine", missing: float | None = None) -> NDArray[Any]:
    points = np.moveaxis(X, axis, 0)
    found: NDArray[Any] = (
        pa.gaussian_affinity(points) if initial == "gaussian" else pa.cosine_affinity(points, missing=missing)
    )
    return found


def _others(fitted: pa.Questionnaire, axis: int) -> list[pa.PartitionTree]:
    return [tree for other, tree in enumerate(fitted.trees_) if other != axis]


# -- axis by axis -----------------------------------------------------------------------------------------------------


def test_every_axis_has_its_own_options() -> None:
    fitted = pa.Questionnaire(
        1,
        tree=("binary", "flexible", "binary"),
        initial=("gaussian", "cosine", "cosine"),
        constant=(1.0, 3.0, 1.0),
        balance=(1.0, 1.0, 2.0),
        cut=("zero", "median", "random"),
        random_state=4,
    ).fit(X)
    first = [pa.binary_tree(_initial(0, "gaussian"), cut="zero"), pa.flexible_tree(_initial(1), constant=3.0)]
    heads = pa.tree_emd(X.transpose(2, 0, 1), first)
    assert np.array_equal(fitted.distances_[2], heads)
    assert fitted.trees_[2] == pa.binary_tree(pa.dual_affinity(heads), balance=2.0, cut="random", seed=4)
    queries = pa.tree_emd(X, [first[1], fitted.trees_[2]])
    assert fitted.trees_[0] == pa.binary_tree(pa.dual_affinity(queries), cut="zero")
    keys = pa.tree_emd(X.transpose(1, 0, 2), [fitted.trees_[0], fitted.trees_[2]])
    assert fitted.trees_[1] == pa.flexible_tree(pa.dual_affinity(keys), constant=3.0)


def test_one_for_all_is_one_each() -> None:
    for name, value in {
        "tree": "binary",
        "initial": "gaussian",
        "constant": 2.0,
        "weights": "data",
        "cut": "zero",
    }.items():
        one, each = (pa.Questionnaire(2, **{name: v}).fit(X) for v in (value, (value,) * 3))
        assert one.trees_ == each.trees_
        assert all(np.array_equal(a, b) for a, b in zip(one.distances_, each.distances_))


@pytest.mark.parametrize("order", [2, 3, 4])
def test_any_order_of_tensor(order: int) -> None:
    x = np.random.default_rng(order).standard_normal((8, 7, 6, 5)[:order]).cumsum(0).cumsum(1)
    tree = ("flexible", "binary", "flexible", "binary")[:order]
    fitted = pa.Questionnaire(2, tree=tree, weights=("data", "powers", "data", "powers")[:order]).fit(x)
    assert [t.n_leaves for t in fitted.trees_] == list(x.shape)
    assert np.abs(fitted.inverse_transform(fitted.coefficients()) - x).max() <= 1e-12 * np.abs(x).max()


@pytest.mark.parametrize("missing", [0.0, float(X.min())])
def test_missing_entries_of_the_first_affinity(missing: float) -> None:
    x = X * np.tri(14, 12)[:, :, None]
    fitted = pa.Questionnaire(1, missing=missing).fit(x)
    first = [pa.flexible_tree(pa.cosine_affinity(np.moveaxis(x, axis, 0), missing=missing)) for axis in (0, 1)]
    assert np.array_equal(fitted.distances_[2], pa.tree_emd(x.transpose(2, 0, 1), first))
    assert not np.array_equal(pa.Questionnaire(1).fit(x).distances_[2], fitted.distances_[2]) or missing != 0


# -- given trees and affinities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["refined", "paper"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_given_trees_are_kept_and_used(axis: int, schedule: Any) -> None:
    kept = random_tree(X.shape[axis], 3)
    kinds = tuple("given" if a == axis else "flexible" for a in range(3))
    trees = [kept if a == axis else None for a in range(3)]
    fitted = pa.Questionnaire(3, tree=kinds, schedule=schedule).fit(X, trees=trees)
    assert all(step["trees"][axis] == kept for step in fitted.history_)
    assert all(step["moved"][axis] == 0 for step in fitted.history_)
    assert fitted.distances_[axis].shape == (X.shape[axis],) * 2
    other = 0 if axis else 1
    free = pa.Questionnaire(3, schedule=schedule).fit(X)
    assert not np.array_equal(free.distances_[other], fitted.distances_[other])
    if fitted.converged_ and schedule == "refined":
        for a in range(3):
            again = pa.tree_emd(np.moveaxis(X, a, 0), _others(fitted, a))
            assert np.array_equal(fitted.distances_[a], again)


def test_nothing_moves_where_all_trees_are_given() -> None:
    trees = [random_tree(n, n) for n in X.shape]
    fitted = pa.Questionnaire(5, tree="given").fit(X, trees=trees)
    assert fitted.trees_ == tuple(trees)
    assert (fitted.n_iter_, fitted.converged_) == (1, True)
    assert fitted.history_[0]["moved"] == (0, 0, 0)
    assert fitted.history_[0]["entropy"] == pa.l1_entropy(pa.haar(X, trees))
    for axis in range(3):
        points = np.moveaxis(X, axis, 0)
        assert np.array_equal(fitted.distances_[axis], pa.tree_emd(points, _others(fitted, axis)))


def test_affinities_to_start_from() -> None:
    affinity = random_affinity(14, 0)
    fitted = pa.Questionnaire(1).fit(X, affinities=[affinity, None, None])
    first = [pa.flexible_tree(affinity), pa.flexible_tree(_initial(1))]
    assert np.array_equal(fitted.distances_[2], pa.tree_emd(X.transpose(2, 0, 1), first))
    own = pa.Questionnaire(2).fit(X, affinities=[_initial(0), _initial(1), random_affinity(9, 1)])
    assert own.trees_ == pa.Questionnaire(2, tree="flexible").fit(X).trees_
    torch = pytest.importorskip("torch")
    same = pa.Questionnaire(1).fit(X, affinities=[torch.tensor(affinity), None, None])
    assert same.trees_ == fitted.trees_
    assert pa.organize(X, n_iter=1, affinities=[affinity, None, None]).trees_ == fitted.trees_
    tree = random_tree(14, 1)
    both = pa.Questionnaire(1).fit(X, trees=[tree, None, None], affinities=[affinity, None, None])
    assert (
        both.trees_ == pa.Questionnaire(1, tree="flexible").fit(X, trees=[tree, None, None]).trees_
    )  # a tree says more


def test_affinities_of_two_axes_in_the_papers_order() -> None:
    x = X[:, :, 0]
    rows, columns = random_affinity(14, 0), random_affinity(12, 1)
    fitted = pa.Questionnaire(1, schedule="paper").fit(x, affinities=[rows, columns])
    assert np.array_equal(fitted.distances_[0], pa.tree_emd(x, pa.flexible_tree(columns)))
    assert np.array_equal(fitted.distances_[1], pa.tree_emd(x.T, pa.flexible_tree(rows)))


# -- several random trees ---------------------------------------------------------------------------------------------

RANDOM: dict[str, Any] = {"tree": "binary", "cut": "random", "random_state": 7}


def test_distances_are_averaged_over_random_trees() -> None:
    fitted = pa.Questionnaire(1, n_trees=3, balance=1.5, **RANDOM).fit(X)
    first = [
        [pa.binary_tree(_initial(axis), balance=1.5, cut="random", seed=7 + i) for axis in (0, 1)] for i in range(3)
    ]
    heads = np.mean([pa.tree_emd(X.transpose(2, 0, 1), trees) for trees in first], 0)
    assert relative_error(fitted.distances_[2], heads) <= 1e-14
    assert fitted.affinities_[2] == pytest.approx(pa.dual_affinity(heads), rel=1e-12)
    assert [len(forest) for forest in fitted.forests_] == [3, 3, 3]
    affinity = fitted.affinities_[2]
    assert fitted.forests_[2] == tuple(
        pa.binary_tree(affinity, balance=1.5, cut="random", seed=7 + i) for i in range(3)
    )
    entropies = [pa.l1_entropy(pa.haar(X, trees)) for trees in zip(*fitted.forests_)]
    assert fitted.history_[-1]["entropy"] == min(entropies)
    assert fitted.trees_ == tuple(zip(*fitted.forests_))[int(np.argmin(entropies))]


def test_axes_without_random_trees_repeat_theirs() -> None:
    mixed = pa.Questionnaire(2, n_trees=4, **RANDOM | {"tree": ("flexible", "binary", "flexible")}).fit(X)
    assert [len(set(forest)) for forest in mixed.forests_] == [1, 4, 1]
    only = pa.tree_emd(X.transpose(1, 0, 2), [mixed.forests_[0][0], mixed.forests_[2][0]])
    assert np.array_equal(mixed.distances_[1], only)  # one set of trees: nothing to average


def test_one_tree_of_many_is_the_fit_of_one() -> None:
    one = pa.Questionnaire(2, **RANDOM).fit(X)
    assert one.forests_ == tuple((tree,) for tree in one.trees_)
    default = pa.Questionnaire(2, tree="binary", balance=2.0, random_state=7).fit(X)  # balance alone draws too
    assert default.trees_ == pa.Questionnaire(2, **RANDOM, balance=2.0).fit(X).trees_


def test_averaging_steadies_what_a_single_cut_decides() -> None:
    """Distances of different seeds differ less: by 1/4 for 16 independent sets of trees, 0.6 leaves room."""
    x, _ = planted((16, 16, 8), 0)
    apart = []
    for n_trees in (1, 16):
        options: dict[str, Any] = {"tree": "binary", "balance": 3.0, "cut": "random", "n_trees": n_trees}
        seeds = (0, 1000, 2000)
        e = [pa.Questionnaire(2, **options, random_state=seed).fit(x).distances_[2] for seed in seeds]
        apart.append(np.mean([np.abs(a - b).mean() / a.mean() for a, b in ((e[0], e[1]), (e[1], e[2]), (e[0], e[2]))]))
    assert apart[1] < 0.6 * apart[0]


@pytest.mark.parametrize("order", [2, 4])
def test_random_trees_of_other_orders(order: int) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5, 4, 3)[:order])
    for schedule in ("refined", "paper"):
        fitted = pa.Questionnaire(2, n_trees=2, schedule=schedule, **RANDOM).fit(x)  # type: ignore[arg-type]
        again = pa.Questionnaire(2, n_trees=2, schedule=schedule, **RANDOM).fit(x)  # type: ignore[arg-type]
        assert fitted.forests_ == again.forests_
        assert fitted.history_ == again.history_


# -- convergence ------------------------------------------------------------------------------------------------------


def test_history_measures_how_far_trees_moved() -> None:
    fitted = pa.Questionnaire(4, tree="flexible").fit(X)
    first = fitted.history_[0]["moved"]
    assert first[2] is None
    assert first[0] == pa.tree_distance(pa.flexible_tree(_initial(0)), fitted.history_[0]["trees"][0])
    for before, after in zip(fitted.history_, fitted.history_[1:]):
        for axis in range(3):
            assert after["moved"][axis] == pa.tree_distance(before["trees"][axis], after["trees"][axis])
    for step in fitted.history_:
        c = slow.haar(X, [t.labels.astype(np.int64) for t in step["trees"]])
        assert step["entropy"] == pytest.approx(slow.l1_entropy(c), rel=1e-12)


def test_it_stops_where_trees_move_no_farther_than_told() -> None:
    x = attention_like(30, 26, 12)
    full = pa.Questionnaire(12, tree="flexible").fit(x)
    moves = [max(m for m in step["moved"] if m is not None) for step in full.history_]
    assert len(moves) > 2
    for tol in (1e-9, sorted(moves[1:])[0], sorted(moves[1:])[-1], 1.0):
        fitted = pa.Questionnaire(12, tree="flexible", tol=tol).fit(x)
        stop = next((i for i, m in enumerate(moves) if i and m <= tol), len(moves) - 1)  # heads move first in round 2
        assert fitted.n_iter_ == stop + 1
        assert fitted.converged_ == (moves[stop] <= tol or full.converged_)
        assert fitted.history_ == full.history_[: stop + 1]
    assert pa.Questionnaire(1, tree="flexible", tol=1.0).fit(x).converged_ is False


def test_a_fixed_point_is_one() -> None:
    x, _ = planted((16, 16, 8), 0, magnitudes="constant")
    fitted = pa.Questionnaire(30).fit(x)
    assert fitted.converged_
    assert fitted.history_[-1]["moved"] == (0, 0, 0)
    once = pa.Questionnaire(1).fit(x, trees=fitted.trees_)
    assert once.trees_ == fitted.trees_
    assert once.converged_


# -- the pipeline as a whole ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"tree": "entropy"}, {"tree": "flexible"}, {"schedule": "paper"}], ids=str)
def test_pipeline_backends_agree(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backend that this build has, on float32: distances within 1e-5, the same trees."""
    x = attention_like(30, 26, 16).astype(np.float32)
    fits = []
    for backend in (name for name in kernels.BACKENDS if not missing(name)):
        monkeypatch.setenv("PYATTNORG_BACKEND", backend)
        fits.append(pa.Questionnaire(**options).fit(x))
    assert len(fits) > 1
    for other in fits[1:]:
        assert other.trees_ == fits[0].trees_
        assert all(relative_error(a, b) <= 1e-5 for a, b in zip(other.distances_, fits[0].distances_))


@pytest.mark.parametrize(
    "form", [lambda x: x, np.asfortranarray, lambda x: np.repeat(x, 2, 0)[::2], lambda x: x.astype(np.float32)]
)
def test_all_options_at_once_take_any_array(form: Any) -> None:
    x = form(X)
    x.flags.writeable = False
    options: dict[str, Any] = RANDOM | {"tree": ("binary", "flexible", "given"), "weights": "data", "n_trees": 2}
    fitted = pa.Questionnaire(2, tol=0.01, **options).fit(x, trees=[None, None, random_tree(9, 0)])
    assert all(np.isfinite(e).all() for e in fitted.distances_)
    assert all(e.dtype == x.dtype for e in fitted.distances_)
    torch = pytest.importorskip("torch")
    same = pa.Questionnaire(2, tol=0.01, **options).fit(
        torch.tensor(np.array(x)), trees=[None, None, random_tree(9, 0)]
    )
    assert same.history_ == fitted.history_


# -- which trees are built where none are named -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "paper"},
        {"alpha": 0.5},
        {"beta": (1.0, 1.0, 0.0)},
        {"constant": 2.0},
        {"initial": ("cosine", "gaussian", "cosine")},
        {"weights": lambda tree: np.ones(tree.n_folders)},
        {"missing": 0.0},
    ],
    ids=lambda one: next(iter(one)),
)
def test_options_of_affinities_ask_for_flexible_trees(options: dict[str, Any]) -> None:
    fitted = pa.Questionnaire(2, **options).fit(X)
    assert fitted.tree_kinds_ == ("flexible",) * 3
    assert fitted.trees_ == pa.Questionnaire(2, tree="flexible", **options).fit(X).trees_


def test_options_of_binary_trees_ask_for_binary_trees() -> None:
    for options in (
        {"cut": "zero"},
        {"balance": 1.5, "random_state": 1},
        {"n_trees": 2, "balance": 2.0, "random_state": 1},
    ):
        fitted = pa.Questionnaire(2, **options).fit(X)
        assert fitted.tree_kinds_ == ("binary",) * 3
        assert fitted.trees_ == pa.Questionnaire(2, tree="binary", **options).fit(X).trees_


@pytest.mark.parametrize(
    ("tree", "options", "said"),
    [
        ("entropy", {"alpha": 1.0}, r"alpha: got 1\.0, which has no say .* pass tree='flexible'"),
        ("entropy", {"missing": 0.0}, r"missing: got 0\.0, which has no say"),
        ("entropy", {"initial": "gaussian"}, r"initial: .* no say"),
        ("entropy", {"weights": ("powers", "data", "powers")}, r"weights: .* no say"),
        ("entropy", {"constant": 2.0}, r"constant: .* no say"),
        ("binary", {"constant": 2.0}, r"constant: .* no say"),
        ("flexible", {"cut": "zero"}, r"cut: .* pass tree='binary'"),
        ("flexible", {"balance": 1.5}, r"balance: .* pass tree='binary' with cuts at random"),
        ("binary", {"balance": 1.5, "cut": "median"}, r"balance: .* with cuts at random"),
        ("given", {"initial": "gaussian"}, r"initial: .* no say"),
    ],
)
def test_options_that_would_change_nothing_are_refused(tree: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pa.Questionnaire(2, tree=tree, **options).fit(X, trees=[random_tree(n, n) for n in X.shape])


def test_affinities_have_no_say_in_least_entropy_trees() -> None:
    with pytest.raises(ValueError, match=r"affinities: .* pass tree='flexible'"):
        pa.Questionnaire(tree="entropy").fit(X, affinities=[_initial(0), None, None])
    fitted = pa.Questionnaire(1, cut="zero").fit(X, affinities=[_initial(0), None, None])
    assert fitted.tree_kinds_ == ("binary",) * 3


def test_least_entropy_trees_are_the_default_and_stop_by_themselves() -> None:
    fitted = pa.Questionnaire().fit(X)
    assert fitted.tree_kinds_ == ("entropy",) * 3
    assert fitted.converged_
    assert fitted.trees_ == pa.Questionnaire(50, tree="entropy").fit(X).trees_ == pa.organize(X).trees_
    told = pa.Questionnaire(n_iter=2, beta=(1.0, 1.0, 1.0), tol=0.0, schedule="refined").fit(X)
    assert told.tree_kinds_ == ("entropy",) * 3
    assert pa.Questionnaire(schedule="paper").fit(X).n_iter_ <= 3
    assert pa.Questionnaire().fit(X, affinities=[_initial(0), None, None]).tree_kinds_ == ("flexible",) * 3
    with pytest.raises(ValueError, match="schedule: 'paper'"):
        pa.Questionnaire(tree="entropy", schedule="paper").fit(X)
