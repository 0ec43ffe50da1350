"""Partition trees: what they hold, how they are made, what they refuse."""

from __future__ import annotations

import copy
import json
import pickle
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import transcription as slow
from hypothesis import given
from hypothesis import strategies as st
from inputs import caterpillar, random_tree
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from tensors import dyadic_labels

import pyattnorg as pa


@st.composite
def nested_labels(draw: st.DrawFn) -> NDArray[np.int64]:
    """Rows of folder names, any integers, each row refining the one before; root and leaf rows may be missing."""
    n = draw(st.integers(1, 16))
    names = st.lists(st.integers(-3, 3), min_size=n, max_size=n)
    row, rows = np.zeros(n, np.int64), []
    for _ in range(draw(st.integers(1, 5))):
        row = np.unique(np.stack([row, draw(names)]), axis=1, return_inverse=True)[1].reshape(n)
        rows.append(row * draw(st.sampled_from([1, -7, 2**40])) + draw(st.integers(-5, 5)))
    return np.stack(rows)


# -- what holds for every tree ----------------------------------------------------------------------------------------


@given(nested_labels())
def test_T1_levels_are_nested_partitions(labels: NDArray[np.int64]) -> None:
    tree = pa.PartitionTree.from_labels(labels)
    n = labels.shape[1]
    assert tree.labels.dtype == np.int32
    assert (tree.labels[0] == 0).all()
    assert (tree.labels[-1] == np.arange(n)).all()
    assert np.array_equal(tree.labels, slow.canonical(tree.labels))
    for above, below in pairwise(tree.labels):
        assert len(np.unique(np.stack([above, below]), axis=1).T) == below.max() + 1
    given_rows = {slow.canonical([row]).tobytes() for row in labels}
    assert given_rows <= {row.astype(np.int64).tobytes() for row in tree.labels}
    assert len(labels) <= tree.n_levels <= len(labels) + 2


@given(nested_labels())
def test_every_folder_is_one_run_of_the_order(labels: NDArray[np.int64]) -> None:
    tree = pa.PartitionTree.from_labels(labels)
    assert np.array_equal(tree.order, slow.leaf_order(tree.labels))
    assert tree.order.dtype == np.int32
    for level, row in enumerate(tree.labels):
        assert (np.diff(row[tree.order]) != 0).sum() == row.max()
        assert np.array_equal(tree.folder_sizes(level), np.bincount(row))
        assert np.array_equal(tree.folder_sizes(level - tree.n_levels), np.bincount(row))


@given(nested_labels())
def test_folders_are_those_of_the_definition(labels: NDArray[np.int64]) -> None:
    tree = pa.PartitionTree.from_labels(labels)
    folders, expected = tree.folders(), slow.folders(tree.labels)
    assert len(folders) == tree.n_folders == len(expected)
    runs = [tree.order[start : start + size] for start, size in zip(folders.start, folders.size)]
    for i, (run, folder) in enumerate(zip(runs, expected)):
        assert sorted(run) == np.flatnonzero(folder.members).tolist()
        assert (folders.first_level[i], folders.last_level[i]) == (folder.first_level, folder.last_level)
    offset, child = folders.children
    for i in range(len(folders)):
        below = child[offset[i] : offset[i + 1]]
        assert (folders.parent[below] == i).all()
        assert [run.min() for run in (runs[c] for c in below)] == sorted(runs[c].min() for c in below)
        if len(below):
            assert sorted(np.concatenate([runs[c] for c in below])) == sorted(runs[i])
            assert len(below) > 1
    assert folders.parent[0] == -1
    assert len(child) == len(folders) - 1


@given(nested_labels())
def test_T3_distance_is_the_size_of_the_smallest_common_folder_and_an_ultrametric(labels: NDArray[np.int64]) -> None:
    tree = pa.PartitionTree.from_labels(labels)
    d = tree.distance_matrix()
    assert np.array_equal(d, slow.tree_distance(tree.labels))
    assert (np.maximum(d[:, :, None], d[None]) >= d[:, None]).all()  # d(i, k) <= max(d(i, j), d(j, k))
    assert np.array_equal(d == 0, np.eye(len(d), dtype=bool))


@given(nested_labels(), st.randoms(use_true_random=False))
def test_T2_permuted_leaves_make_the_permuted_tree(labels: NDArray[np.int64], random: Any) -> None:
    p = random.sample(range(labels.shape[1]), labels.shape[1])
    tree, permuted = pa.PartitionTree.from_labels(labels), pa.PartitionTree.from_labels(labels[:, p])
    assert np.array_equal(tree.distance_matrix()[np.ix_(p, p)], permuted.distance_matrix())
    assert permuted == pa.PartitionTree.from_labels(tree.labels[:, p])


@given(nested_labels())
def test_the_same_tree_comes_back(labels: NDArray[np.int64]) -> None:
    tree = pa.PartitionTree.from_labels(labels)
    others = [
        pa.PartitionTree.from_dict(json.loads(json.dumps(tree.to_dict()))),
        pa.PartitionTree.from_labels(tree.labels),
        pa.PartitionTree.from_labels(tree.labels * -3 + 17),
        pickle.loads(pickle.dumps(tree)),
        copy.deepcopy(tree),
    ]
    for other in others:
        assert other == tree
        assert hash(other) == hash(tree)
        assert np.array_equal(other.labels, tree.labels)


@given(nested_labels(), st.floats(-2, 3), st.floats(0, 2))
def test_weights_sum_over_the_levels_of_a_chain(labels: NDArray[np.int64], alpha: float, beta: float) -> None:
    tree = pa.PartitionTree.from_labels(labels)
    for a in (alpha, 0.0, 1e-9):
        expected = [folder.weight(a, beta) for folder in slow.folders(tree.labels)]
        assert tree.weights(a, beta) == pytest.approx(np.array(expected), rel=1e-12)


def _clades(newick: str) -> tuple[list[str], set[frozenset[str]]]:
    """Leaf names in order, and the name sets of inner nodes, of a Newick text without lengths."""
    tokens = re.findall(r"'(?:[^']|'')*'|[(),;]", newick)
    assert "".join(tokens) == newick
    names: list[str] = []
    clades: set[frozenset[str]] = set()
    open_: list[int] = []
    for token in tokens:
        if token == "(":
            open_.append(len(names))
        elif token == ")":
            clades.add(frozenset(names[open_.pop() :]))
        elif token.startswith("'"):
            names.append(token[1:-1].replace("''", "'"))
    assert tokens[-1] == ";"
    assert not open_
    return names, clades


@given(nested_labels(), st.booleans())
def test_newick_has_the_folders_and_the_names(labels: NDArray[np.int64], named: bool) -> None:
    tree = pa.PartitionTree.from_labels(labels)
    names = [f"it's ({i}), L{i}" for i in range(tree.n_leaves)] if named else [str(i) for i in range(tree.n_leaves)]
    found, clades = _clades(tree.to_newick(names if named else None))
    assert found == [names[leaf] for leaf in tree.order]
    sets = (frozenset(names[leaf] for leaf in np.flatnonzero(f.members)) for f in slow.folders(tree.labels))
    assert clades == {s for s in sets if len(s) > 1}


# -- ways to make one -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["single", "complete", "average", "ward"])
@pytest.mark.parametrize("n", [2, 3, 17, 40])
def test_linkage_keeps_the_ranks_of_cophenetic_distances(method: str, n: int) -> None:
    linkage = hierarchy.linkage(np.random.default_rng(n).standard_normal((n, 4)), method)
    tree = pa.PartitionTree.from_linkage(linkage)
    scipy = slow.squareform(hierarchy.cophenet(linkage))
    d = tree.distance_matrix()
    for i in range(n):  # seen from one leaf, folders are nested, so both distances sort the others alike
        assert np.array_equal(d[i][:, None] < d[i], scipy[i][:, None] < scipy[i])
    assert tree.n_folders == 2 * n - 1
    assert pa.PartitionTree.from_linkage(linkage.tolist()) == tree


@pytest.mark.parametrize(
    "linkage",
    [
        np.zeros((0, 4)),
        np.zeros((3, 5)),
        np.zeros(4),
        [[0, 1, 1.0, 2], [0, 2, 2.0, 3]],  # 0 is merged twice
        [[0, 4, 1.0, 2], [1, 2, 2.0, 3]],  # 4 does not exist yet
        [[0, 3, 1.0, 2], [1, 2, 2.0, 3]],  # 3 is what the first merge makes
        [[-1, 1, 1.0, 2], [3, 2, 2.0, 3]],
        [[0.5, 1, 1.0, 2], [3, 2, 2.0, 3]],
        [[np.nan, 1, 1.0, 2], [3, 2, 2.0, 3]],
        [[np.inf, 1, 1.0, 2], [3, 2, 2.0, 3]],
    ],
)
def test_malformed_linkage_is_refused(linkage: Any) -> None:
    with pytest.raises(ValueError, match=r"^linkage: "):
        pa.PartitionTree.from_linkage(linkage)


@pytest.mark.parametrize("n", [*range(1, 20), 64, 100])
def test_dyadic_tree_halves_and_halves(n: int) -> None:
    tree = pa.PartitionTree.dyadic(n)
    assert tree.n_levels == int(np.ceil(np.log2(n))) + 1
    assert np.array_equal(tree.order, np.arange(n))
    folders = tree.folders()
    offset, child = folders.children
    for i in range(len(folders)):
        if folders.size[i] > 1:
            first, second = folders.size[child[offset[i] : offset[i + 1]]]
            assert 0 <= first - second <= 1
    if n & (n - 1) == 0:
        assert np.array_equal(tree.labels, dyadic_labels(n))


def test_one_row_of_labels_is_a_tree_of_groups() -> None:
    tree = pa.PartitionTree.from_labels(np.array([5, 5, -2, 5, -2]))
    assert tree.labels.tolist() == [[0] * 5, [0, 0, 1, 0, 1], [0, 1, 2, 3, 4]]
    assert repr(tree) == "PartitionTree(5 leaves, 3 levels, 8 folders)"


def test_labels_of_any_whole_numbers() -> None:
    rows = np.array([[1, 1, 2, 2], [3, 4, 5, 5]])
    expected = pa.PartitionTree.from_labels(rows)
    for other in (rows.astype(float), rows.astype(np.uint64) + 2**63, rows.astype(">i2"), rows.tolist(), -rows):
        assert pa.PartitionTree.from_labels(other) == expected
    assert pa.PartitionTree.from_labels(np.array([True, False, True])).labels[1].tolist() == [0, 1, 0]


def test_one_leaf_is_one_node() -> None:
    for tree in (
        pa.PartitionTree.dyadic(1),
        pa.PartitionTree.from_labels([7]),
        pa.PartitionTree.from_labels(np.zeros((0, 1))),
    ):
        assert (tree.n_leaves, tree.n_levels, tree.n_folders) == (1, 1, 1)
        assert tree.labels.tolist() == [[0]]
        assert tree.distance_matrix().tolist() == [[0.0]]
        assert tree.to_newick(["a"]) == "'a';"
        assert tree.weights(1.0, 0.0).tolist() == [1.0]
    repeated = pa.PartitionTree.from_labels(np.zeros((3, 1), int))
    assert repeated.n_folders == 1
    assert repeated.weights(0.0, 1.0).tolist() == [3.0]


def test_a_level_that_does_not_refine_is_named() -> None:
    with pytest.raises(ValueError, match=r"level 2 does not refine level 1: leaves [13] and [13] share a folder"):
        pa.PartitionTree.from_labels([[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 1]])


@pytest.mark.parametrize(
    ("labels", "error"),
    [
        (np.zeros((2, 0)), ValueError),
        ([], ValueError),
        (np.zeros((2, 2, 2)), ValueError),
        ([0.5, 1.0], ValueError),
        ([np.nan, 1.0], ValueError),
        (3, ValueError),
        (["a", "b"], TypeError),
        ([[0, 1], [0]], TypeError),
        ([None, 1], TypeError),
    ],
)
def test_labels_that_are_none(labels: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^labels: "):
        pa.PartitionTree.from_labels(labels)


def test_other_refusals() -> None:
    tree = pa.PartitionTree.dyadic(4)
    with pytest.raises(ValueError, match=r"^n: got 0"):
        pa.PartitionTree.dyadic(0)
    for level in (3, -4):
        with pytest.raises(ValueError, match=r"^level: got .* 0 to 2"):
            tree.folder_sizes(level)
    with pytest.raises(ValueError, match=r"^names: got 3"):
        tree.to_newick(["a", "b", "c"])
    for data in ({}, {"kind": "PartitionTree"}, {"kind": "Tree", "labels": [[0]]}):
        with pytest.raises(ValueError, match=r"^data: "):
            pa.PartitionTree.from_dict(data)
    with pytest.raises(ValueError, match="does not refine"):
        pa.PartitionTree.from_dict({"kind": "PartitionTree", "labels": [[0, 1, 1], [0, 0, 1]]})
    assert tree != "tree"
    assert tree != pa.PartitionTree.dyadic(5)


# -- nothing changes a tree, no depth is too much ----------------------------------------------------------------------


def test_arrays_of_a_tree_are_its_own_and_read_only() -> None:
    rows = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2]], np.int32)
    tree = pa.PartitionTree.from_labels(rows)
    rows[1] = 0
    assert tree.labels[1].tolist() == [0, 0, 1]
    assert rows.flags.writeable
    folders = tree.folders()
    fields = (folders.first_level, folders.last_level, folders.size, folders.start, folders.parent, *folders.children)
    assert not any(array.flags.writeable for array in (tree.labels, tree.order, *fields))


@pytest.mark.parametrize("name", ["labels", "order", "n_leaves", "n_levels", "n_folders"])
def test_attributes_of_a_tree_cannot_be_set(name: str) -> None:
    tree = pa.PartitionTree.dyadic(4)
    with pytest.raises(AttributeError):
        setattr(tree, name, None)
    with pytest.raises(AttributeError):
        tree.folders().size = None  # type: ignore[misc]


def test_chain_of_3000_folders() -> None:
    n = 3000
    tree = caterpillar(n)
    assert (tree.n_levels, tree.n_folders) == (n, 2 * n - 1)
    _, clades = _clades(tree.to_newick())
    assert len(clades) == n - 1
    common = np.maximum.outer(np.arange(n), np.arange(n)) + 1.0
    np.fill_diagonal(common, 0)
    assert np.array_equal(tree.distance_matrix(), common / n)
    x = np.random.default_rng(0).standard_normal((n, 2))
    c = pa.haar(x, [tree, None])
    assert pa.ihaar(c, [tree, None]) == pytest.approx(x, abs=1e-12)
    sums = np.cumsum(x[:, 0])  # folder k holds leaves 0 to k; leaf k > 0 stands alone at k levels, leaf 0 at one
    expected = (np.abs(sums[1:]).sum() + np.maximum(np.arange(n), 1) @ np.abs(x[:, 0])) / n
    assert pa.tree_emd(np.stack([x[:, 0], np.zeros(n)]), tree)[0, 1] == pytest.approx(expected, rel=1e-12)
    assert pa.PartitionTree.from_labels(tree.labels) == tree


def test_random_trees_of_the_tests_have_chains_and_wide_folders() -> None:
    tree = random_tree(40, 0)
    folders = tree.folders()
    assert (folders.last_level > folders.first_level).any()
    assert np.bincount(folders.parent[1:]).max() > 2


def test_parts_are_the_coarsest_folders_of_a_size() -> None:
    chain = pa.PartitionTree.from_linkage(np.array([[0, 1], [2, 4], [3, 5]]))
    assert [chain.parts(n).tolist() for n in (1, 2, 3, 4)] == [[0, 1, 2, 3], [0, 0, 1, 2], [0, 0, 0, 1], [0, 0, 0, 0]]
    assert pa.PartitionTree.dyadic(7).parts(2).tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert pa.PartitionTree.dyadic(1).parts(5).tolist() == [0]
    with pytest.raises(ValueError, match=r"^largest: got 0"):
        chain.parts(0)
