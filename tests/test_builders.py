"""Builders of trees from affinities. T1 to T5 are invariants of the method."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import transcription as slow
from inputs import blocks, random_affinity
from numpy.typing import NDArray
from tensors import attention_like

import pyattnorg as pa

BUILDERS: dict[str, Any] = {
    "flexible": pa.flexible_tree,
    "median": pa.binary_tree,
    "zero": lambda affinity: pa.binary_tree(affinity, cut="zero"),
    "random": lambda affinity: pa.binary_tree(affinity, cut="random", balance=2.0, seed=0),
}
SAME = {
    "flexible": slow.flexible_tree,
    "median": slow.binary_tree,
    "zero": lambda affinity: slow.binary_tree(affinity, "zero"),
}


def _pure(row: NDArray[Any], block: NDArray[Any]) -> NDArray[Any]:
    return np.array([len(np.unique(block[row == folder])) == 1 for folder in range(row.max() + 1)])


def _check(tree: pa.PartitionTree, n: int) -> None:  # T1, T3
    assert tree.n_leaves == n
    assert tree.labels[0].max() == 0
    assert np.array_equal(tree.labels[-1], np.arange(n))
    for above, below in pairwise(tree.labels):
        assert below.max() > above.max()  # no level repeats another
        assert len(np.unique(np.stack([above, below]), axis=1).T) == below.max() + 1
    d = tree.distance_matrix()
    assert (np.maximum(d[:, :, None], d[None]) >= d[:, None]).all()


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 11, 12, 13, 57])
def test_T1_T3_any_affinity_gives_a_tree(build: str, n: int) -> None:
    for dtype in (np.float64, np.float32):
        _check(BUILDERS[build](random_affinity(n, n).astype(dtype)), n)
    assert BUILDERS[build](np.ones((1, 1))) == pa.PartitionTree.dyadic(1)
    assert BUILDERS[build](np.ones((2, 2))) == pa.PartitionTree.dyadic(2)


@pytest.mark.parametrize("build", SAME)
@pytest.mark.parametrize("n", [2, 3, 8, 12, 13, 40, 90])
@pytest.mark.usefixtures("backend")
def test_trees_are_those_of_the_transcription(build: str, n: int) -> None:
    for seed in range(3):
        affinity = random_affinity(n, seed)
        assert np.array_equal(BUILDERS[build](affinity).labels, SAME[build](affinity))


LARGE: dict[str, Any] = {
    "random": lambda: random_affinity(160, 0),
    "30 blocks": lambda: blocks(0.05, 1, 30, 10)[0],
    "12 blocks, nearly apart": lambda: blocks(1e-4, 1, 12, 20)[0],
    "cosine": lambda: pa.cosine_affinity(attention_like(200, 30, 8)),
}


@pytest.mark.parametrize("case", LARGE)
def test_trees_of_many_points_are_those_of_the_transcription_too(case: str) -> None:  # and T2: another eigensolver
    affinity = LARGE[case]()
    tree, p = pa.flexible_tree(affinity), np.random.default_rng(0).permutation(len(affinity))
    assert np.array_equal(tree.labels, slow.flexible_tree(affinity))
    permuted = pa.flexible_tree(affinity[np.ix_(p, p)])
    assert np.array_equal(tree.distance_matrix()[np.ix_(p, p)], permuted.distance_matrix())


@pytest.mark.parametrize("constant", [0.1, 0.5, 2.0, 30.0])
def test_constant(constant: float) -> None:
    affinity = random_affinity(50, 0)
    assert np.array_equal(pa.flexible_tree(affinity, constant=constant).labels, slow.flexible_tree(affinity, constant))


@pytest.mark.parametrize("build", ["flexible", "median", "zero"])
@pytest.mark.parametrize("seed", range(4))
def test_T2_permuted_affinity_gives_the_permuted_tree(build: str, seed: int) -> None:
    affinity, p = random_affinity(37, seed), np.random.default_rng(seed).permutation(37)
    straight, permuted = BUILDERS[build](affinity), BUILDERS[build](affinity[np.ix_(p, p)])
    assert np.array_equal(straight.distance_matrix()[np.ix_(p, p)], permuted.distance_matrix())


def test_T4_larger_constant_makes_taller_trees_on_average() -> None:
    heights = [
        np.mean([pa.flexible_tree(random_affinity(60, seed), constant=c).n_levels for seed in range(8)])
        for c in (0.1, 1.0, 10.0)
    ]
    assert heights[0] < heights[1] < heights[2]


def test_T5_weakly_coupled_blocks_are_found() -> None:
    affinity, block = blocks(0.05)
    labels = pa.flexible_tree(affinity).labels
    (level,) = np.flatnonzero(labels.max(1) == 3)
    assert all(_pure(row, block).all() for row in labels[level:])
    affinity, block = blocks(0.2)
    assert _pure(pa.flexible_tree(affinity).labels[-2], block).mean() >= 0.8


@pytest.mark.parametrize(("count", "size"), [(4, 10), (11, 5), (20, 15), (30, 10), (60, 4)])
def test_T5_disconnected_parts_never_mix_at_the_first_level(count: int, size: int) -> None:
    for seed in range(3):
        affinity, block = blocks(0.0, seed, count, size)
        assert _pure(pa.flexible_tree(affinity).labels[-2], block).all()


@pytest.mark.parametrize("case", ["equal", "equal blocks", "apart", "zero", "one isolated"])
@pytest.mark.parametrize("n", [4, 30, 300])
@pytest.mark.parametrize("build", BUILDERS)
def test_degenerate_affinities_give_the_same_tree_every_time(
    build: str, n: int, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    affinity = {
        "equal": np.ones((n, n)),
        "equal blocks": np.kron(np.eye(n // 2), np.ones((2, 2))),
        "apart": np.eye(n),
        "zero": np.zeros((n, n)),
        "one isolated": np.pad(random_affinity(n - 1, 0), (0, 1)),
    }[case]
    trees = [BUILDERS[build](affinity) for _ in range(2 if n == 300 else 3)]
    assert all(tree == trees[0] for tree in trees)
    if n < 300:
        _check(trees[0], n)


@pytest.mark.parametrize("n", [2, 3, 9, 40, 300])
def test_equal_points_are_one_folder(n: int) -> None:
    star = pa.PartitionTree.from_labels(np.zeros(n, int))
    assert pa.flexible_tree(np.ones((n, n))) == star
    assert pa.flexible_tree(np.full((n, n), 0.3, np.float32)) == star


@pytest.mark.parametrize("n", [4, 7, 16])
def test_equal_points_are_cut_by_index(n: int) -> None:  # ties go to the lowest index
    tree = pa.binary_tree(np.ones((n, n)))
    assert np.array_equal(tree.labels, slow.binary_tree(np.ones((n, n))))
    assert np.array_equal(tree.order, np.arange(n))


def test_duplicates_join_first() -> None:
    x = np.random.default_rng(0).standard_normal((12, 4))
    tree = pa.flexible_tree(pa.gaussian_affinity(np.concatenate([x, x])))
    assert np.array_equal(tree.labels[-2][:12], tree.labels[-2][12:])


def test_small_differences_are_not_lost() -> None:
    difference = 1 - random_affinity(60, 0)
    faint, fainter = (pa.flexible_tree(1 - scale * difference) for scale in (1e-7, 1e-9))
    assert faint.n_levels == 7  # eigenvalues of 1e-9 and their powers do not underflow to one folder
    assert faint == fainter


# -- binary trees -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 16, 31, 100])
def test_median_cut_halves(n: int) -> None:
    tree = pa.binary_tree(random_affinity(n, n))
    assert tree.n_levels == int(np.ceil(np.log2(n))) + 1
    for level in range(tree.n_levels):
        sizes = tree.folder_sizes(level)
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("balance", [1.0, 1.5, 4.0, 1e6])
@pytest.mark.parametrize("n", [4, 7, 40])
def test_random_cuts_stay_in_balance(balance: float, n: int) -> None:
    affinity, seen = random_affinity(n, n), set()
    for seed in range(25):
        tree = pa.binary_tree(affinity, cut="random", balance=balance, seed=seed)
        assert tree == pa.binary_tree(affinity, cut="random", balance=balance, seed=seed)
        folders = tree.folders()
        offset, child = folders.children
        for i in range(len(folders)):
            if folders.size[i] > 1:
                size = folders.size[i]
                small, large = sorted(folders.size[child[offset[i] : offset[i + 1]]])
                assert small >= 1
                assert large <= max(np.floor(size * balance / (1 + balance)), np.ceil(size / 2))
        seen.add(int(tree.folder_sizes(1)[0]))
    if balance > 1 and n == 40:
        assert len(seen) > 1


def test_zero_cut_follows_the_sign() -> None:
    affinity, block = blocks(0.02, 3, count=2, size=15)
    assert _pure(pa.binary_tree(affinity, cut="zero").labels[1], block).all()


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDERS)
def test_what_is_no_affinity(build: str) -> None:
    for affinity, message in (
        (np.zeros((0, 0)), "empty"),
        (np.ones((3, 2)), r"shape \(3, 2\)"),
        (np.array([[1, 0.5], [0.2, 1]]), "not symmetric"),
        (np.array([[1, -0.5], [-0.5, 1]]), "least entry"),
        (np.array([[1, np.inf], [np.inf, 1]]), "infinite"),
    ):
        with pytest.raises(ValueError, match=rf"^affinity: .*{message}"):
            BUILDERS[build](affinity)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pa.flexible_tree(np.eye(3), constant=0), r"^constant: got 0"),
        (lambda: pa.flexible_tree(np.eye(3), constant=np.nan), r"^constant: got nan"),
        (lambda: pa.flexible_tree(np.eye(3), constant="tall"), r"^constant: got 'tall'"),
        (lambda: pa.binary_tree(np.eye(3), balance=0.9), r"^balance: got 0.9"),
        (lambda: pa.binary_tree(np.eye(3), balance=None), r"^balance: got None"),
        (lambda: pa.binary_tree(np.eye(3), cut="mean"), r"^cut: got 'mean'"),
    ],
)
def test_options_that_are_none(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
