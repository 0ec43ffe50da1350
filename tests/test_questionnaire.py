"""The questionnaire against its transcription, the recovery of planted trees, and all that can go wrong on the way."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import transcription as slow
from inputs import random_tree, relative_error
from numpy.typing import NDArray
from tensors import attention_like, planted

import pyattnorg as pa

SENTINELS = (-np.inf, float(np.finfo(np.float32).min), -1e4, -100.0, np.nan)


def _labels(trees: Any) -> list[NDArray]:
    return [tree.labels.astype(np.int64) for tree in trees]


def _cophenetic(tree: pa.PartitionTree, other: pa.PartitionTree) -> float:
    upper = np.triu_indices(tree.n_leaves, 1)
    return float(np.corrcoef(tree.distance_matrix()[upper], other.distance_matrix()[upper])[0, 1])


def _same(one: pa.Questionnaire, other: pa.Questionnaire) -> bool:
    """Whether two fits are the same to the last bit."""
    arrays = zip(one.distances_ + one.affinities_, other.distances_ + other.affinities_)
    return (
        one.trees_ == other.trees_
        and all(a.tobytes() == b.tobytes() for a, b in arrays)
        and [h["entropy"] for h in one.history_] == [h["entropy"] for h in other.history_]
    )


# -- stage by stage ---------------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"schedule": "paper"},
    {"initial": "gaussian", "alpha": 0.5},
    {"schedule": "paper", "alpha": 1.0, "beta": 0.0},
    {"tree": "binary"},
    {"schedule": "paper", "tree": "binary", "initial": "gaussian"},
    {"constant": 3.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(30, 26), (24, 20, 16), (40, 30, 9)], ids=str)
def test_every_stage_is_the_transcription(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    x = attention_like(*shape) if len(shape) == 3 else attention_like(*shape, 1)[:, :, 0]
    run = slow.questionnaire(x, n_iter=3, **options)
    for n_iter in (1, 2, 3):
        fitted = pa.Questionnaire(n_iter, **{"tree": "flexible"} | options).fit(x)
        stages = run.iterations[fitted.n_iter_ - 1]
        for axis in range(x.ndim):
            assert np.array_equal(fitted.trees_[axis].labels, stages[axis].tree)
            assert relative_error(fitted.distances_[axis], stages[axis].distances) <= 1e-11
            assert relative_error(fitted.affinities_[axis], stages[axis].affinity) <= 1e-11
        for found, expected in zip(fitted.history_, run.iterations):
            trees = [expected[axis].tree for axis in range(x.ndim)]
            assert all(np.array_equal(a, b) for a, b in zip(_labels(found["trees"]), trees))
            assert found["entropy"] == pytest.approx(slow.l1_entropy(slow.haar(x, trees)), rel=1e-10)
        assert fitted.n_iter_ == len(fitted.history_) <= n_iter
        if fitted.n_iter_ < n_iter:
            assert fitted.converged_


@pytest.mark.parametrize("schedule", ["refined", "paper"])
def test_zeros_are_missing_in_the_paper_schedule_alone(schedule: Any) -> None:
    x = attention_like(20, 20, 9) * np.tri(20)[:, :, None]
    run = slow.questionnaire(x, schedule, n_iter=2)
    fitted = pa.Questionnaire(2, tree="flexible", schedule=schedule).fit(x)
    assert all(np.array_equal(a, b) for a, b in zip(_labels(fitted.trees_), run.trees))
    assert all(relative_error(a, b) <= 1e-11 for a, b in zip(fitted.distances_, run.distances))


@pytest.mark.parametrize("schedule", ["refined", "paper"])
def test_order_4(schedule: str) -> None:
    x = np.random.default_rng(0).standard_normal((7, 6, 5, 4)).cumsum(0).cumsum(1)
    run = slow.questionnaire(x, schedule, n_iter=2)
    fitted = pa.Questionnaire(2, tree="flexible", schedule=schedule).fit(x)  # type: ignore[arg-type]
    assert all(np.array_equal(a, b) for a, b in zip(_labels(fitted.trees_), run.trees))
    assert all(relative_error(a, b) <= 1e-11 for a, b in zip(fitted.distances_, run.distances))


def test_larger_axis_uses_the_iterative_eigensolver_and_finds_the_same() -> None:
    x = attention_like(210, 12, 5)  # above DENSE points
    run = slow.questionnaire(x, n_iter=1)
    fitted = pa.Questionnaire(1, tree="flexible").fit(x)
    assert all(np.array_equal(a, b) for a, b in zip(_labels(fitted.trees_), run.trees))


@pytest.mark.parametrize("tree", ["entropy", "flexible"])
def test_reference_backend_organises_the_same(monkeypatch: pytest.MonkeyPatch, tree: Any) -> None:
    x = attention_like(18, 14, 12)
    fitted = pa.Questionnaire(3, tree=tree).fit(x)
    monkeypatch.setenv("PYATTNORG_BACKEND", "reference")
    reference = pa.Questionnaire(3, tree=tree).fit(x)
    assert reference.trees_ == fitted.trees_
    assert all(relative_error(a, b) <= 1e-11 for a, b in zip(fitted.distances_, reference.distances_))


def test_exponents_for_each_axis() -> None:
    x = attention_like(14, 12, 9)
    alpha, beta = (0.0, 1.0, 0.5), (1.0, 0.0, 1.0)
    fitted = pa.Questionnaire(1, alpha=alpha, beta=beta).fit(x)
    last = pa.tree_emd(x.transpose(2, 0, 1), _starting(x), alpha=alpha[:2], beta=beta[:2])
    assert np.array_equal(fitted.distances_[2], last)
    queries = pa.tree_emd(x, [_starting(x)[1], fitted.trees_[2]], alpha=alpha[1:], beta=beta[1:])
    assert np.array_equal(fitted.distances_[0], queries)
    trees = [fitted.trees_[0], fitted.trees_[2]]
    keys = pa.tree_emd(x.transpose(1, 0, 2), trees, alpha=alpha[::2], beta=beta[::2])
    assert np.array_equal(fitted.distances_[1], keys)


def _starting(x: NDArray) -> list[pa.PartitionTree]:
    return [pa.flexible_tree(pa.cosine_affinity(np.moveaxis(x, axis, 0))) for axis in (0, 1)]


def test_trees_to_start_from() -> None:
    x = attention_like(14, 12, 9)
    given = [random_tree(14, 0), None, None]
    fitted = pa.Questionnaire(1, tree="flexible").fit(x, trees=given)
    expected = pa.tree_emd(x.transpose(2, 0, 1), [given[0], _starting(x)[1]])
    assert np.array_equal(fitted.distances_[2], expected)
    again = pa.Questionnaire(3, tree="flexible").fit(x, trees=pa.Questionnaire(20, tree="flexible").fit(x).trees_)
    assert again.converged_ or again.n_iter_ == 3


# -- what it finds ----------------------------------------------------------------------------------------------------


def test_recovery_of_planted_trees_by_flexible_trees() -> (
    None
):  # method, section 5: flexible trees, constant magnitudes
    cophenetic, ratio, shuffled = [], [], []
    for seed in range(10):
        x, labels = planted((64, 64, 32), seed, alpha=0.5, noise=0.05, magnitudes="constant")
        true = [pa.PartitionTree.from_labels(rows) for rows in labels]
        fitted = pa.Questionnaire(tree="flexible").fit(x)
        cophenetic += [_cophenetic(a, b) for a, b in zip(fitted.trees_, true)]
        entropy = fitted.history_[-1]["entropy"]
        ratio.append(entropy / pa.l1_entropy(pa.haar(x, true)))
        rng = np.random.default_rng(seed)
        mixed = x[np.ix_(*(rng.permutation(n) for n in x.shape))]
        shuffled.append(entropy / pa.l1_entropy(fitted.transform(mixed)))
    assert np.median(cophenetic) >= 0.9
    assert np.median(ratio) <= 1.02
    assert max(shuffled) <= 0.5


@pytest.mark.parametrize("options", [{}, {"tree": "flexible"}, {"schedule": "paper"}], ids=str)
def test_pipeline_permuted_axes_permute_what_is_found(options: dict[str, Any]) -> None:
    x, _ = planted((32, 32, 16), 1, magnitudes="random")
    p = [np.random.default_rng(axis).permutation(n) for axis, n in enumerate(x.shape)]
    fitted, permuted = (pa.Questionnaire(**options).fit(y) for y in (x, x[np.ix_(*p)]))
    for axis in range(3):
        at = np.ix_(p[axis], p[axis])
        assert np.array_equal(fitted.trees_[axis].distance_matrix()[at], permuted.trees_[axis].distance_matrix())
        assert relative_error(permuted.distances_[axis], fitted.distances_[axis][at]) <= 1e-11


@pytest.mark.parametrize("scale", [4.0, 1e-30, 1e30, 1e-120, 1e120])
@pytest.mark.parametrize("tree", ["entropy", "flexible"])
def test_E2_scaling_changes_no_tree(scale: float, tree: Any) -> None:
    x = attention_like(20, 18, 12, seed=2)
    fitted, scaled = pa.Questionnaire(3, tree=tree).fit(x), pa.Questionnaire(3, tree=tree).fit(scale * x)
    assert [step["trees"] for step in scaled.history_] == [step["trees"] for step in fitted.history_]
    assert all(relative_error(a, scale * b) <= 1e-11 for a, b in zip(scaled.distances_, fitted.distances_))
    assert scaled.history_[-1]["entropy"] == pytest.approx(fitted.history_[-1]["entropy"], rel=1e-11)


@pytest.mark.parametrize("power", [-60, -40, -20, 20, 40, 60])
@pytest.mark.parametrize("tree", ["entropy", "flexible"])
def test_scaling_float32_changes_no_tree(power: int, tree: Any) -> None:
    x = attention_like(20, 18, 12, seed=2).astype(np.float32)
    fitted, scaled = (
        pa.Questionnaire(3, tree=tree).fit(x),
        pa.Questionnaire(3, tree=tree).fit(np.float32(2.0**power) * x),
    )
    assert [step["trees"] for step in scaled.history_] == [step["trees"] for step in fitted.history_]


@pytest.mark.parametrize("tree", ["entropy", "flexible"])
def test_pipeline_twin_heads_are_at_0_and_siblings(tree: Any) -> None:
    x = attention_like(20, 18, 12)
    x[:, :, 7] = x[:, :, 2]
    for values in (x, x.astype(np.float32)):
        fitted = pa.Questionnaire(tree=tree).fit(values)
        assert fitted.distances_[2][2, 7] == 0
        sizes = fitted.trees_[2].distance_matrix()[2]  # of the smallest folder with each other head
        assert sizes[7] == np.delete(sizes, 2).min()


def test_pipeline_paper_schedule_never_changes_the_last_axis() -> None:
    x = attention_like(24, 20, 16)
    fits = [pa.Questionnaire(n, schedule="paper").fit(x) for n in (1, 2, 3)]
    assert len({fit.affinities_[2].tobytes() for fit in fits}) == 1
    assert all(step["trees"][2] == fits[0].trees_[2] for step in fits[2].history_)


def test_same_input_same_bytes() -> None:
    x = attention_like(30, 26, 12).astype(np.float32)
    fits = [pa.Questionnaire().fit(y) for y in (x, x.copy(), x)]
    assert all(_same(fits[0], fit) for fit in fits[1:])


@pytest.mark.parametrize("layout", ["Fortran", "reversed", "transposed"])
def test_layout_of_the_input_changes_no_byte(layout: str) -> None:
    x = attention_like(30, 26, 12).astype(np.float32)
    other = {
        "Fortran": np.asfortranarray(x),
        "reversed": x[::-1].copy()[::-1],
        "transposed": np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2),
    }[layout]
    assert _same(pa.Questionnaire().fit(x), pa.Questionnaire().fit(other))


# -- masked cells -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["queries x keys", "every cell"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_what_stands_under_the_mask_does_not_matter(dtype: Any, kind: str) -> None:
    x = np.random.default_rng(1).standard_normal((16, 16, 6)).astype(dtype)
    visible = np.tri(16, dtype=bool)
    if kind == "every cell":
        visible = visible[:, :, None] & (np.random.default_rng(2).random(x.shape) < 0.9)
        visible[5] = False  # a query that sees nothing
    seen = np.broadcast_to(visible.reshape(*visible.shape, *[1] * (3 - visible.ndim)), x.shape)
    fits = []
    for sentinel in (0.0, *SENTINELS):
        with np.errstate(over="ignore"):
            y = np.where(seen, x, dtype(sentinel))
        kept = y.copy()
        fits.append(pa.Questionnaire(2).fit(y, visible=visible))
        assert np.array_equal(y, kept, equal_nan=True)
    assert all(_same(fits[0], fit) for fit in fits[1:])
    assert all(np.isfinite(a).all() for a in fits[0].distances_ + fits[0].affinities_)


def test_masked_cells_are_the_mean_of_their_row_and_head() -> None:
    x = np.random.default_rng(3).standard_normal((5, 7, 4))
    visible = np.random.default_rng(4).random((5, 7, 4)) < 0.7
    visible[2, :, 1] = False  # that row of that head: the mean of the head
    fitted = pa.Questionnaire(1).fit(np.where(visible, x, np.nan), visible=visible)
    filled = fitted.inverse_transform(fitted.coefficients())
    for q in range(5):
        for h in range(4):
            rows = visible[q, :, h]
            mean = x[q, rows, h].mean() if rows.any() else x[:, :, h][visible[:, :, h]].mean()
            assert filled[q, ~rows, h] == pytest.approx(np.full((~rows).sum(), mean), abs=1e-12)
            assert filled[q, rows, h] == pytest.approx(x[q, rows, h], abs=1e-12)


def test_a_mask_that_hides_nothing_is_none() -> None:
    x = attention_like(12, 10, 6)
    assert _same(pa.Questionnaire(2).fit(x), pa.Questionnaire(2).fit(x, visible=np.ones((12, 10), bool)))


@pytest.mark.parametrize("visible", [np.ones((10, 12), bool), np.ones((12, 10, 1), bool), np.zeros((12, 10), bool)])
def test_masks_that_do_not_fit(visible: NDArray) -> None:
    with pytest.raises(ValueError, match=r"^visible: "):
        pa.Questionnaire().fit(attention_like(12, 10, 6), visible=visible)


def test_nan_and_infinity_are_errors_that_say_where() -> None:
    for bad in (np.nan, np.inf):
        x = attention_like(6, 5, 4)
        x[3, 2, 1] = bad
        visible = np.ones((6, 5), bool)
        visible[0, 0] = False
        for mask in (None, visible):
            with pytest.raises(ValueError, match=r"^x: 1 value.*\(3, 2, 1\)"):
                pa.Questionnaire().fit(x, visible=mask)


# -- degenerate tensors -----------------------------------------------------------------------------------------------

CASES: dict[str, Any] = {
    "zeros": lambda rng, shape: np.zeros(shape),
    "constant": lambda rng, shape: np.full(shape, -3.7),
    "constant slices": lambda rng, shape: np.broadcast_to(rng.standard_normal(shape[-1]), shape).copy(),
    "equal heads": lambda rng, shape: np.broadcast_to(rng.standard_normal((*shape[:-1], 1)), shape).copy(),
    "one cell": lambda rng, shape: np.eye(1, int(np.prod(shape))).reshape(shape),
    "zero rows": lambda rng, shape: rng.random(shape) * (np.arange(shape[0]) % 2).reshape(-1, *[1] * (len(shape) - 1)),
    "two values": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
    "huge": lambda rng, shape: 1e100 * rng.standard_normal(shape),
    "tiny": lambda rng, shape: 1e-200 * rng.standard_normal(shape),
    "random": lambda rng, shape: rng.standard_normal(shape),
    "causal": lambda rng, shape: np.where(
        np.tri(*shape[:2], dtype=bool)[..., None] if len(shape) > 2 else 1, rng.random(shape), 0
    ),
}
DEGENERATE_SHAPES = [(1, 1), (1, 1, 1), (2, 2, 2), (3, 1, 2), (1, 8, 3), (8, 12, 1), (12, 3), (12, 8, 12)]


@pytest.mark.parametrize("options", [{}, {"schedule": "paper"}, {"tree": "binary"}, {"initial": "gaussian"}], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_degenerate_tensors(case: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    for shape in DEGENERATE_SHAPES:
        for dtype in (np.float64, np.float32):
            x = CASES[case](np.random.default_rng(0), shape)
            if dtype == np.float32:
                x = (x / max(np.abs(x).max(), 1e-300) * {"huge": 1e15, "tiny": 1e-25}.get(case, 1)).astype(dtype)
            fitted, again = (pa.Questionnaire(2, **options).fit(x) for _ in range(2))
            assert _same(fitted, again)
            assert [tree.n_leaves for tree in fitted.trees_] == list(shape)
            for e, a in zip(fitted.distances_, fitted.affinities_):
                assert e.dtype == a.dtype == dtype
                assert np.isfinite(e).all()
                assert ((a >= 0) & (a <= 1)).all()
                assert (np.diag(a) == 1).all()
            assert 0 <= fitted.history_[-1]["entropy"] <= 1 + 1e-6
            c = fitted.coefficients()
            assert np.abs(fitted.inverse_transform(c) - x).max() <= 1e-5 * np.abs(x).max()


@pytest.mark.parametrize("n", [2, 3, 8, 12, 40])
def test_equal_points_are_one_folder(n: int) -> None:
    fitted = pa.Questionnaire(tree="flexible").fit(np.ones((n, n, n)) * 0.3)
    for tree in fitted.trees_:
        assert tree == pa.PartitionTree.from_labels(np.zeros(n, int))


# -- as an estimator --------------------------------------------------------------------------------------------------


def test_scikit_learn_clones_it() -> None:
    sklearn = pytest.importorskip("sklearn.base")
    made = pa.Questionnaire(5, alpha=(0.0, 1.0, 0.5), tree="binary", balance=1.3, random_state=3)
    made.fit(attention_like(6, 5, 4))
    cloned = sklearn.clone(made)
    assert cloned.get_params() == made.get_params()
    assert not hasattr(cloned, "trees_")
    assert cloned.fit(attention_like(6, 5, 4)).trees_ == made.trees_


def test_options_by_name() -> None:
    made = pa.Questionnaire()
    assert made.get_params()["n_iter"] is None
    assert made.set_params(n_iter=1, schedule="paper") is made
    assert made.get_params(deep=True)["schedule"] == "paper"
    assert repr(made) == "Questionnaire(n_iter=1, schedule='paper')"
    assert repr(pa.Questionnaire()) == "Questionnaire()"
    assert "alpha=" in repr(pa.Questionnaire(alpha=np.array([0.0, 1.0, 0.0])))
    with pytest.raises(ValueError, match=r"^depth: no such option"):
        made.set_params(depth=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_iter", 0),
        ("n_iter", 1.5),
        ("n_iter", True),
        ("n_iter", "three"),
        ("tree", "ternary"),
        ("initial", "euclid"),
        ("schedule", "Paper"),
        ("alpha", np.nan),
        ("alpha", (0.0, 1.0)),
        ("beta", (1.0,) * 4),
        ("constant", 0.0),
        ("constant", "big"),
        ("balance", 0.5),
        ("tree", ("binary", "ternary", "binary")),
        ("tree", ("binary", "binary")),
        ("initial", ("cosine", 3, "gaussian")),
        ("constant", (1.0, 2.0, -1.0)),
        ("balance", (1.0, 0.9, 1.0)),
        ("cut", "middle"),
        ("weights", "size"),
        ("weights", ("data", "powers")),
        ("n_trees", 0),
        ("n_trees", 3),
        ("missing", np.inf),
        ("tol", -0.1),
    ],
)
def test_options_that_are_none(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: got "):
        pa.Questionnaire(**{"tree": "binary", name: value}).fit(attention_like(6, 5, 4))


def test_what_it_refuses_to_fit() -> None:
    for shape in ((5,), (), (0, 3), (3, 0, 2)):
        with pytest.raises(ValueError, match=r"^x: got shape"):
            pa.Questionnaire().fit(np.zeros(shape))
    x = attention_like(6, 5, 4)
    for trees in ([None, None], [random_tree(5, 0), None, None]):
        with pytest.raises(ValueError, match=r"^trees: "):
            pa.Questionnaire().fit(x, trees=trees)
    with pytest.raises(ValueError, match=r"^trees: axis 1 keeps a given tree"):
        pa.Questionnaire(tree=("flexible", "given", "flexible")).fit(x, trees=[random_tree(6, 0), None, None])
    for affinities, message in [
        ([np.eye(6)], r"^affinities: got 1, expected"),
        ([np.eye(5), None, None], r"^affinities\[0\]: got shape \(5, 5\)"),
        ([None, np.triu(np.ones((5, 5))), None], r"^affinities\[1\]: not symmetric"),
        ([None, None, -np.eye(4)], r"^affinities\[2\]: got -1.0"),
        ([np.full((6, 6), np.nan), None, None], r"^affinities\[0\]: 36 value"),
    ]:
        with pytest.raises(ValueError, match=message):
            pa.Questionnaire().fit(x, affinities=affinities)
    with pytest.raises(TypeError, match=r"^trees: "):
        pa.Questionnaire().fit(x, trees=[np.zeros((2, 6), int), None, None])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"^random_state: needed"):
        pa.Questionnaire(tree="binary", balance=1.5).fit(x)
    with pytest.raises(ValueError, match=r"^random_state: got 'one'"):
        pa.Questionnaire(tree="binary", cut="random", random_state="one").fit(x)  # type: ignore[arg-type]
    unfitted = pa.Questionnaire()
    for call in (lambda: unfitted.order(0), lambda: unfitted.coefficients(), lambda: unfitted.transform(x)):
        with pytest.raises(ValueError, match=r"not fitted yet; call fit"):
            call()


def test_random_cuts_follow_the_seed() -> None:
    x = attention_like(20, 18, 12)
    fits = [pa.Questionnaire(2, tree="binary", balance=2.0, random_state=seed).fit(x) for seed in (0, 0, 1)]
    assert _same(fits[0], fits[1])
    assert fits[0].trees_ != fits[2].trees_


def test_what_is_found_by_axis() -> None:
    x = attention_like(14, 12, 9)
    kept = x.copy()
    fitted = pa.Questionnaire(2).fit(x)
    assert np.array_equal(x, kept)
    orders = [fitted.order(axis) for axis in range(3)]
    assert all(np.array_equal(order, tree.order) for order, tree in zip(orders, fitted.trees_))
    assert np.array_equal(fitted.organized(), x[np.ix_(*orders)])
    assert np.array_equal(fitted.organized(2 * x), 2 * x[np.ix_(*orders)])
    assert np.abs(fitted.coefficients() - slow.haar(x, _labels(fitted.trees_))).max() <= 1e-12
    assert np.abs(fitted.inverse_transform(fitted.transform(2 * x)) - 2 * x).max() <= 1e-12
    found = fitted.embedding(2, n_components=2, time=2.0)
    expected = pa.diffusion_map(fitted.affinities_[2], n_components=2, time=2.0)
    assert np.array_equal(found.coordinates, expected.coordinates)
    with pytest.raises(ValueError, match=r"^x: got shape \(14, 12\)"):
        fitted.organized(x[:, :, 0])
    with pytest.raises(ValueError, match=r"3 axes|2 axes"):
        fitted.transform(x[:, :, 0])


def test_progress_counts_up_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, int, int]] = []
    fitted = pa.Questionnaire(2, tree="flexible", verbose=True).fit(
        attention_like(12, 10, 6), progress=lambda stage, done, total: told.append((stage, done, total))
    )
    total = 2 + 2 * 3
    assert told[-1][1:] == (total, total)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert {t for _, _, t in told} == {total}
    assert len({stage for stage, _, _ in told}) == len(told)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == len(told)
    assert fitted.n_iter_ == 2


def test_a_fit_that_is_stopped_leaves_the_last_one_whole() -> None:
    fitted = pa.Questionnaire(2).fit(attention_like(12, 10, 6))
    trees, history = fitted.trees_, list(fitted.history_)

    def stop(stage: str, done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted.fit(attention_like(9, 8, 7), progress=stop)
    assert fitted.trees_ == trees
    assert fitted.history_ == history
    assert fitted.coefficients().shape == (12, 10, 6)
