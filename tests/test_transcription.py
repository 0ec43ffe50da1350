"""The transcription against identities, closed forms and its own loops: no package code here."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import transcription as slow
from numpy.typing import NDArray
from scipy.optimize import linprog
from tensors import attention_like, dyadic_labels, planted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BUILDERS = {
    "flexible": slow.flexible_tree,
    "median": slow.binary_tree,
    "zero": lambda affinity: slow.binary_tree(affinity, "zero"),
}


def _affinity(n: int, seed: int, features: int = 3) -> FloatArray:
    return slow.gaussian_affinity(np.random.default_rng(seed).standard_normal((n, features)), neighbors=7)


def _tree(n: int, seed: int) -> IntArray:
    """A random tree with chains and with folders of more than two children."""
    rng = np.random.default_rng(seed)
    levels = [np.arange(n)]
    while levels[0].max() > 0:
        parts = levels[0].max() + 1
        parent = rng.integers(max(1, parts // 2), size=parts)
        levels.insert(0, np.unique(parent[levels[0]], return_inverse=True)[1])
    return slow.canonical(levels)


def _blocks(coupling: float, seed: int = 0) -> tuple[FloatArray, IntArray]:
    """Four blocks of ten points whose mutual affinity is multiplied by `coupling`."""
    block = np.arange(40) // 10
    affinity = np.random.default_rng(seed).uniform(0.5, 1.0, (40, 40))
    affinity = np.where(block[:, None] == block, 1.0, coupling) * (affinity + affinity.T) / 2
    np.fill_diagonal(affinity, 1.0)
    return affinity, block


def _pure(row: IntArray, block: IntArray) -> FloatArray:
    return np.array([len(np.unique(block[row == folder])) == 1 for folder in range(row.max() + 1)])


def _check_tree(labels: IntArray) -> None:
    n = labels.shape[1]
    assert labels[0].max() == 0
    assert (labels[-1] == np.arange(n)).all()
    assert (labels == slow.canonical(labels)).all()
    for above, below in pairwise(labels):
        assert below.max() > above.max()  # every level refines the one before, somewhere
        assert len(np.unique(np.stack([above, below]), axis=1).T) == below.max() + 1


# -- 2.1 affinities --------------------------------------------------------------------------------------------------


def test_cosine_is_mutual_floored_and_has_a_unit_diagonal() -> None:
    y = np.array([[1.0, 0.0, 2.0], [3.0, 4.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, np.nan, 5.0]])
    plain, mutual = slow.cosine_affinity(y[:4]), slow.cosine_affinity(y, missing=0.0)
    assert plain[0, 1] == pytest.approx(3 / np.sqrt(5 * 25))
    assert plain[0, 2] == 0  # negative
    assert plain[3].tolist() == [0, 0, 0, 1]
    assert mutual[0, 1] == pytest.approx(1)  # one common coordinate
    assert mutual[1, 2] == pytest.approx((-3 + 4) / np.sqrt(25 * 2))
    assert mutual[4].tolist() == pytest.approx([1, 0, 0, 0, 1])
    assert mutual[3].tolist() == [0, 0, 0, 1, 0]
    assert (mutual == mutual.T).all()


def test_causal_weights_make_the_first_row_like_every_row_when_zeros_are_missing() -> None:
    x = np.tril(np.random.default_rng(0).random((9, 9)) + 0.1)
    assert slow.cosine_affinity(x, missing=0.0)[0] == pytest.approx(np.ones(9))
    assert slow.cosine_affinity(x)[0, 1:].max() < 1


def test_gaussian_affinity_term_by_term() -> None:
    y = np.random.default_rng(1).standard_normal((8, 4))
    d = np.linalg.norm(y[:, None] - y, axis=2)
    width = [2 * sorted(row)[2] for row in d]  # the median of five, itself included
    got = slow.gaussian_affinity(y, neighbors=5, scale=2.0)
    for i, j in np.ndindex(8, 8):
        expected = (np.exp(-((d[i, j] / width[i]) ** 2)) + np.exp(-((d[i, j] / width[j]) ** 2))) / 2
        assert got[i, j] == pytest.approx(expected)
    assert (slow.gaussian_affinity(np.ones((6, 2))) == 1).all()


# -- 2.2 Markov (M1 to M4) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 30])
def test_markov_matrix_and_its_vectors(n: int) -> None:
    affinity = _affinity(n, n)
    s, v0 = slow.markov(affinity)
    assert (s == s.T).all()
    assert (v0 > 0).all()
    assert np.abs(np.linalg.eigvalsh(s)).max() == pytest.approx(1, abs=1e-10)
    assert s @ v0 == pytest.approx(v0, abs=1e-12)
    values, phi = slow.diffusion_coordinates(affinity)
    assert phi.shape == (n, min(12, n) - 1)
    assert (np.diff(np.abs(values)) <= 0).all()
    every = np.column_stack([np.ones(n), phi])
    assert every.T @ (v0[:, None] ** 2 * every) == pytest.approx(np.eye(min(12, n)), abs=1e-10)
    assert (phi[np.abs(phi).argmax(0), np.arange(phi.shape[1])] > 0).all()
    assert s @ (phi * v0[:, None]) == pytest.approx(phi * v0[:, None] * values, abs=1e-10)


def test_markov_matrix_by_hand() -> None:
    k = np.array([[1.0, 0.5, 1e-9, 0.0], [0.5, 1.0, 0.25, 0.0], [1e-9, 0.25, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])
    d = np.array([1.5, 1.75, 0.75, 1.0])
    k[0, 2] = k[2, 0] = 0.0
    p = k / d[:, None] / d + np.diag([0.0, 0.0, 0.0, 1.0])
    e = np.sqrt(p.sum(1))
    k[0, 2] = k[2, 0] = 1e-9
    assert slow.markov(k)[0] == pytest.approx(p / e[:, None] / e, rel=1e-14, abs=0)
    assert slow.markov(k)[1] == pytest.approx(e / np.sqrt((e**2).sum()))


@pytest.mark.parametrize("time", [1, 2, 4])
def test_diffusion_distance_is_the_distance_of_transition_rows(time: int) -> None:
    affinity = _affinity(15, 3)
    s, v0 = slow.markov(affinity)
    rows = np.linalg.matrix_power(s / v0[:, None] * v0, time)
    expected = ((rows[:, None] - rows) ** 2 / v0**2).sum(2)
    values, phi = slow.diffusion_coordinates(affinity, n_vectors=15)
    x = np.abs(values) ** time * phi
    got = ((x[:, None] - x) ** 2).sum(2)
    assert rows.sum(1) == pytest.approx(np.ones(15))
    assert got == pytest.approx(expected, abs=1e-10)
    assert x[:, :3] == pytest.approx(slow.diffusion_map(affinity, 3, time))
    later = np.abs(values) ** (2 * time) * phi
    assert (((later[:, None] - later) ** 2).sum(2) <= got + 1e-15).all()


# -- 2.3 trees (T1 to T5) and what must not break them ---------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 11, 12, 13, 57])
def test_tree_is_nested_partitions_and_its_distance_an_ultrametric(n: int, build) -> None:  # type: ignore[no-untyped-def]
    labels = build(_affinity(n, n))
    _check_tree(labels)
    d = slow.tree_distance(labels)
    assert (np.maximum(d[:, :, None], d[None]) >= d[:, None] - 1e-15).all()  # d(i, k) <= max(d(i, j), d(j, k))
    assert ((d == 0) == np.eye(n, dtype=bool)).all()
    order = slow.leaf_order(labels)
    for row in labels:
        assert (np.diff(row[order]) != 0).sum() == row.max()  # every folder is one run


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
@pytest.mark.parametrize("seed", range(4))
def test_permuted_affinity_gives_the_permuted_tree(seed: int, build) -> None:  # type: ignore[no-untyped-def]
    n = 37
    affinity, p = _affinity(n, seed), np.random.default_rng(seed).permutation(n)
    straight, permuted = slow.tree_distance(build(affinity)), slow.tree_distance(build(affinity[np.ix_(p, p)]))
    assert (straight[np.ix_(p, p)] == permuted).all()


def test_larger_constant_makes_taller_trees_on_average() -> None:
    heights = [np.mean([len(slow.flexible_tree(_affinity(60, s), c)) for s in range(8)]) for c in (0.1, 1.0, 10.0)]
    assert heights[0] < heights[1] < heights[2]


def test_blocks_are_found() -> None:
    affinity, block = _blocks(0.05)
    labels = slow.flexible_tree(affinity)
    (level,) = np.flatnonzero(labels.max(1) == 3)
    assert all(_pure(row, block).all() for row in labels[level:])
    affinity, block = _blocks(0.2)
    assert _pure(slow.flexible_tree(affinity)[-2], block).mean() >= 0.8
    for seed in range(5):
        affinity, block = _blocks(0.0, seed)
        assert _pure(slow.flexible_tree(affinity)[-2], block).all()


def test_greedy_step_by_hand() -> None:
    pairs = np.full((4, 4), 10.0)
    pairs[[0, 1], [1, 0]], pairs[[2, 3], [3, 2]] = 1.5, 1.0
    assert slow.join_folders(pairs) == [[0, 1], [2, 3]]
    # On a line: 1, 2 join, at 1; 0 joins the two, 1.4 < 5.4 / 2; 3 may not join the three, 3 > 5.4 / 4; 3, 4 join.
    line = np.array([0.0, 1.4, 2.4, 5.4, 9.0])
    distance = np.abs(line[:, None] - line)  # 1, 1.4, 2.4, 3, 3.6, 4, 5.4, ..., each twice, and inf: the median is 5.4
    assert slow.join_folders(distance) == [[0, 1, 2], [3, 4]]
    assert slow.join_folders(distance, constant=0.5) == [[0, 1, 2], [3, 4]]
    assert slow.join_folders(distance, constant=0.4) == [[3, 0, 1, 2], [4]]  # 3 < 5.4 / 0.4 / 4, 3.6 > 5.4 / 0.4 / 8
    assert slow.join_folders(distance, constant=4.0) == [[0], [1, 2], [3, 4]]  # 1.4 > 5.4 / 4 / 2
    # A group lies in the slot of its last initiator: here point 4, the line's 0.
    p = [1, 3, 4, 2, 0]
    assert slow.join_folders(distance[np.ix_(p, p)]) == [[1, 2], [4, 0, 3]]
    assert slow.join_folders(np.array([[0.0, 7.0], [7.0, 0.0]])) == [[0, 1]]
    assert slow.join_folders(np.zeros((5, 5))) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("constant", [1.0, 50.0])
@pytest.mark.parametrize("seed", range(4))
def test_flexible_tree_from_powers_of_the_transition_matrix(seed: int, constant: float) -> None:
    affinity = _affinity(12, seed)  # 12 points: no eigenvector is left out
    s, v0 = slow.markov(affinity)
    s = s - np.outer(v0, v0)
    s /= np.abs(np.linalg.eigvalsh(s)).max()
    folders, levels = [[i] for i in range(12)], [np.arange(12)]
    while len(folders) > 1:
        rows = np.linalg.matrix_power(s, 2 ** (len(levels) - 1)) / v0[:, None]
        d = np.sqrt(((rows[:, None] - rows) ** 2).sum(2))
        between = np.array([[np.mean([d[x, y] for x in a for y in b]) for b in folders] for a in folders])
        groups = slow.join_folders((between + between.T) / 2, constant)
        folders = [sorted(x for a in group for x in folders[a]) for group in groups]
        levels.insert(0, np.array([[x in folder for folder in folders].index(True) for x in range(12)]))
    assert np.array_equal(slow.flexible_tree(affinity, constant), slow.canonical(levels))


def test_small_eigenvalues_do_not_underflow() -> None:
    difference = 1 - _affinity(60, 0)
    faint, fainter = (slow.flexible_tree(1 - scale * difference) for scale in (1e-7, 1e-9))  # powers to 1e-9 ** 16
    assert len(faint) == 7
    assert np.array_equal(faint, fainter)


@pytest.mark.parametrize("n", [2, 3, 9, 40])
def test_equal_points_are_one_folder(n: int) -> None:
    assert (slow.flexible_tree(np.ones((n, n))) == [[0] * n, range(n)]).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_isolated_points_and_components_stay_finite(build) -> None:  # type: ignore[no-untyped-def]
    affinity = _affinity(20, 0)
    affinity[7], affinity[:, 7] = 0.0, 0.0
    for a in (affinity, np.zeros((20, 20)), np.eye(20), _blocks(0.0)[0], np.ones((20, 20))):
        assert np.isfinite(slow.diffusion_coordinates(a)[1]).all()
        _check_tree(build(a))


# -- 2.4 to 2.7 distances (E1 to E6) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (1.0, 0.0), (0.5, 1.0)])
@pytest.mark.parametrize("shape", [(5, 7), (4, 6, 5), (3, 4, 3, 4)])
def test_emd_is_its_loops(shape: tuple[int, ...], alpha: float, beta: float) -> None:
    x, trees = np.random.default_rng(0).standard_normal(shape), [_tree(n, n) for n in shape[1:]]
    merged = slow.tree_emd(x, trees, alpha, beta)
    assert merged == pytest.approx(slow.emd_loops(x, trees, alpha, beta), rel=1e-12)
    assert merged == pytest.approx(slow.tree_emd(x, trees, alpha, beta, slow.level_averages), rel=1e-12)


def test_folders_of_a_tree_with_chains() -> None:
    labels = np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 2, 0], [0, 1, 2, 3]])
    found = [(np.flatnonzero(f.members).tolist(), f.first_level, f.last_level) for f in slow.folders(labels)]
    assert found == [
        ([0, 1, 2, 3], 0, 0),
        ([0, 1, 3], 1, 1),
        ([0, 3], 2, 2),
        ([0], 3, 3),
        ([1], 2, 3),
        ([2], 1, 3),
        ([3], 3, 3),
    ]
    assert slow.folders(labels)[5].weight(1.0, 1.0) == pytest.approx((1 / 2 + 1 / 4 + 1 / 8) / 4)


def test_emd_is_a_metric_that_scales() -> None:
    x, trees = np.random.default_rng(1).standard_normal((9, 10, 8)), [_tree(10, 1), _tree(8, 2)]
    x[4] = x[2]
    e = slow.tree_emd(x, trees)
    assert (e == e.T).all()
    assert ((e == 0) == ((x[:, None] == x).all((2, 3)))).all()
    assert (e[:, None] <= e[:, :, None] + e[None] + 1e-12).all()
    assert slow.tree_emd(-3 * x, trees) == pytest.approx(3 * e, rel=1e-12)
    assert slow.tree_emd(x + 5, trees) == pytest.approx(e, rel=1e-11)
    a = slow.dual_affinity(e)
    assert a == pytest.approx(slow.dual_affinity(7 * e))
    assert (a > 0).all()
    assert (a <= 1).all()
    assert (np.diag(a) == 1).all()
    assert np.median(-np.log(a)) == pytest.approx(1)
    assert (slow.dual_affinity(np.zeros((4, 4))) == 1).all()
    assert slow.dual_affinity(e, scale=2.0) ** 2 == pytest.approx(a)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_emd_of_equal_masses_is_wasserstein_on_the_tree(alpha: float) -> None:
    n, labels = 7, _tree(7, 4)
    mass = np.random.default_rng(2).random((2, n))
    mass /= mass.sum(1, keepdims=True)
    edge = 2.0 ** (-alpha * np.arange(len(labels))) / n  # from a folder of that level to the one above
    cost = 2 * ((labels[:, :, None] != labels[:, None]) * edge[:, None, None]).sum(0)
    marginals = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    best = linprog(cost.ravel(), A_eq=marginals, b_eq=mass.ravel())
    assert slow.tree_emd(mass, [labels], alpha)[0, 1] == pytest.approx(best.fun, rel=1e-9)


def test_second_axis_of_one_point_changes_nothing() -> None:
    x, tree, one = np.random.default_rng(3).standard_normal((6, 9)), _tree(9, 5), np.zeros((1, 1), dtype=np.int64)
    assert slow.tree_emd(x[:, :, None], [tree, one]) == pytest.approx(slow.tree_emd(x, [tree]), rel=1e-14)


# -- 2.8 the questionnaire -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["refined", "paper"])
def test_order_of_work_at_order_3(schedule: str) -> None:
    x = attention_like(24, 20, 16)
    run = slow.questionnaire(x, schedule)
    assert sorted(run.initial) == [0, 1]
    queries, keys = run.initial[0].tree, run.initial[1].tree
    for stages in run.iterations:
        start = (run.initial[0].tree, run.initial[1].tree) if schedule == "paper" else (queries, keys)
        expected = {2: start, 0: (keys, stages[2].tree), 1: (stages[0].tree, stages[2].tree)}
        for axis, stage in stages.items():
            assert stage.given is not None
            assert all(a is b for a, b in zip(stage.given, expected[axis], strict=True))
            assert stage.distances is not None
            distances = slow.tree_emd(np.moveaxis(x, axis, 0), stage.given)
            assert np.array_equal(stage.distances, distances)
            assert (stage.tree == slow.flexible_tree(slow.dual_affinity(distances))).all()
        queries, keys = stages[0].tree, stages[1].tree
    assert [tree.shape[1] for tree in run.trees] == [24, 20, 16]
    assert run.trees[0] is queries
    if schedule == "paper":
        assert all((stages[2].affinity == run.affinities[2]).all() for stages in run.iterations)


@pytest.mark.parametrize("schedule", ["refined", "paper"])
def test_order_of_work_at_order_2(schedule: str) -> None:
    x = attention_like(30, 26, 1)[:, :, 0]
    run = slow.questionnaire(x, schedule, alpha=1.0, beta=0.0)
    assert sorted(run.initial) == ([0, 1] if schedule == "paper" else [0])
    rows, columns = run.initial[0].tree, run.initial.get(1, run.initial[0]).tree
    for stages in run.iterations:
        assert stages[1].given == (rows,)
        assert stages[0].given == ((columns,) if schedule == "paper" else (stages[1].tree,))
        rows, columns = stages[0].tree, stages[1].tree
    assert len(run.iterations) == 3


@pytest.mark.parametrize(("schedule", "missing"), [("refined", None), ("paper", 0.0)])
def test_initial_affinities(schedule: str, missing: float | None) -> None:
    x = attention_like(14, 14, 6) * np.tri(14)[:, :, None]
    run = slow.questionnaire(x, schedule, n_iter=1)
    for axis, stage in run.initial.items():
        affinity = slow.cosine_affinity(np.moveaxis(x, axis, 0), missing)
        assert np.array_equal(stage.affinity, affinity)
        assert np.array_equal(stage.tree, slow.flexible_tree(affinity))
    gaussian = slow.questionnaire(x, schedule, n_iter=1, initial="gaussian", tree="binary").initial[0]
    assert np.array_equal(gaussian.tree, slow.binary_tree(slow.gaussian_affinity(x)))


def test_scaling_the_tensor_changes_no_tree() -> None:
    x = attention_like(20, 18, 12, seed=2)
    one, other = slow.questionnaire(x), slow.questionnaire(4 * x)  # a power of two: exactly
    assert all((a == b).all() for a, b in zip(one.trees, other.trees, strict=True))
    assert all((4 * a == b).all() for a, b in zip(one.distances, other.distances, strict=True))


@pytest.mark.parametrize("kind", ["flexible", "binary"])
def test_order_4_and_degenerate_tensors(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5, 4, 3))
    assert [tree.shape[1] for tree in slow.questionnaire(x, tree=kind).trees] == [6, 5, 4, 3]
    for shape in ((5, 4, 1), (1, 6, 3), (2, 2, 2)):
        for flat in (np.ones(shape), np.zeros(shape)):
            for schedule in ("refined", "paper"):
                for labels in slow.questionnaire(flat, schedule, tree=kind).trees:
                    _check_tree(labels)


# -- 2.10 Haar (H1 to H10) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_haar_vectors(seed: int) -> None:
    n = (1, 2, 9, 16, 23, 40)[seed]
    labels = _tree(n, seed)
    basis = slow.haar_basis(labels)
    assert basis.shape == (n, n)
    assert basis.T @ basis == pytest.approx(np.eye(n), abs=1e-12)
    assert basis.sum(0)[1:] == pytest.approx(np.zeros(n - 1), abs=1e-12)
    supports = {f.members.tobytes(): f for f in slow.folders(labels)}
    f = np.random.default_rng(seed).standard_normal(n)
    for psi in basis.T[1:]:
        support, plus, minus = psi != 0, psi > 0, psi < 0
        inside = [s for s in supports.values() if not (support & ~s.members).any()]
        folder = min(inside, key=lambda s: s.members.sum())  # the smallest that holds the support is the one it splits
        below = labels[folder.last_level + 1]
        assert plus.tobytes() in supports
        assert all(len(np.unique(psi[folder.members & (below == child)])) == 1 for child in below[folder.members])
        s, m = plus.sum(), minus.sum()
        assert psi @ f == pytest.approx(np.sqrt(s * m / (s + m)) * (f[plus].mean() - f[minus].mean()))


def test_children_by_size_then_last_first() -> None:
    labels = np.array([[0] * 5, [0, 1, 1, 2, 3], range(5)])
    first = slow.haar_basis(labels)[:, 1:4]
    assert first[:, 0] * np.sqrt(30) == pytest.approx([-2, 3, 3, -2, -2])
    assert first[:, 1] * np.sqrt(6) == pytest.approx([-1, 0, 0, -1, 2])
    assert first[:, 2] * np.sqrt(2) == pytest.approx([-1, 0, 0, 1, 0])


def test_dyadic_tree_gives_the_classical_basis() -> None:
    basis = slow.haar_basis(dyadic_labels(8))
    expected = [np.ones(8) / np.sqrt(8)]
    for width in (8, 4, 2):
        for start in range(0, 8, width):
            psi = np.zeros(8)
            psi[start : start + width] = np.repeat([-1, 1], width // 2) / np.sqrt(width)  # equal halves: last first
            expected.append(psi)
    assert basis == pytest.approx(np.stack(expected, 1))


@pytest.mark.parametrize("shape", [(9,), (12, 7), (10, 8, 6)])
def test_transform_and_back(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y, trees = rng.standard_normal(shape), rng.standard_normal(shape), [_tree(n, n) for n in shape]
    c = slow.haar(x, trees)
    assert slow.ihaar(c, trees) == pytest.approx(x, abs=1e-12)
    assert np.linalg.norm(c) == pytest.approx(np.linalg.norm(x), rel=1e-12)
    assert slow.haar(2 * x - y, trees) == pytest.approx(2 * c - slow.haar(y, trees), abs=1e-12)
    l1, l2 = np.abs(c).sum(), np.linalg.norm(c)
    assert l2 <= l1 <= np.sqrt(c.size) * l2


def test_transform_is_its_loops() -> None:
    x, trees = np.random.default_rng(1).standard_normal((6, 7, 5)), [_tree(6, 0), _tree(7, 1), _tree(5, 2)]
    assert slow.haar(x, trees) == pytest.approx(slow.haar_loops(x, trees), abs=1e-12)


def test_products_commute_and_keep_rank_one() -> None:
    rng = np.random.default_rng(2)
    trees = [_tree(9, 0), _tree(8, 1), _tree(7, 2)]
    x = rng.standard_normal((9, 8, 7))
    heads = np.stack([slow.haar(x[:, :, h], trees[:2]) for h in range(7)], axis=2)
    assert slow.haar(x, [*trees[:2], None]) == pytest.approx(heads, abs=1e-12)
    assert slow.haar(heads, [None, None, trees[2]]) == pytest.approx(slow.haar(x, trees), abs=1e-12)
    a, b, c = (rng.standard_normal(n) for n in (9, 8, 7))
    parts = [slow.haar(v, [tree]) for v, tree in zip((a, b, c), trees, strict=True)]
    separable = slow.haar(np.einsum("i,j,k", a, b, c), trees)
    assert separable == pytest.approx(np.einsum("i,j,k", *parts), abs=1e-12)


# -- 2.11 entropies and the planted tensors --------------------------------------------------------------------------


def test_entropies() -> None:
    rng = np.random.default_rng(3)
    c = rng.standard_normal((5, 4))
    one = np.zeros((5, 4))
    one[2, 1] = -3
    assert slow.l1_entropy(c, normalized=False) == pytest.approx(np.abs(c).sum())
    assert slow.l1_entropy(one) == pytest.approx(20**-0.5)
    assert slow.l1_entropy(np.ones((5, 4))) == pytest.approx(1)
    assert slow.effective_number(one) == pytest.approx(1)
    assert slow.l1_entropy(0 * c) == slow.effective_number(0 * c) == 0
    assert slow.lp_entropy(c, 2.0) == pytest.approx(np.linalg.norm(c))
    x, trees = rng.standard_normal((12, 11, 5)), [_tree(12, 0), _tree(11, 1), _tree(5, 2)]
    bases = [slow.haar_basis(tree) for tree in trees]
    for h, got in enumerate(slow.head_entropies(x, trees)):
        assert got == pytest.approx(np.abs((bases[0].T @ x[:, :, h] @ bases[1])[:10, :10]).sum())
    assert slow.network_entropy(x, trees, x.size) == pytest.approx(slow.l1_entropy(slow.haar(x, trees), False))
    assert slow.network_entropy(x, trees, 1) == pytest.approx(abs(slow.haar(x, trees)[0, 0, 0]))


def test_planted_tensor_is_sparse_in_its_own_trees() -> None:
    x, trees = planted((32, 16, 16), seed=0)
    rng = np.random.default_rng(0)
    own = slow.l1_entropy(slow.haar(x, trees))
    shuffled = slow.l1_entropy(slow.haar(x, [tree[:, rng.permutation(tree.shape[1])] for tree in trees]))
    assert own < 0.6 * shuffled
    assert own == slow.l1_entropy(slow.haar(x, [slow.canonical(tree) for tree in trees]))


def test_attention_like_rows_are_distributions() -> None:
    x = attention_like(12, 10, 7)
    assert x.sum(1) == pytest.approx(np.ones((12, 7)))
    assert (x > 0).all()
