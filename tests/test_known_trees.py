"""Trees known beforehand: layers of a network, squares of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensors import attention_like

import pyattnorg as pa


def _heads(**columns: Any) -> pa.Heads:
    return pa.Heads.of(columns, len(columns["layer"]))


def _distinct(tree: pa.PartitionTree) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(row == f).tolist()) for row in tree.labels for f in np.unique(row)}


# -- layers -----------------------------------------------------------------------------------------------------------


def test_layers_are_folders() -> None:
    heads = _heads(layer=[0, 0, 1, 1, 2, 2], head=[0, 1] * 3)
    tree = pa.layer_tree(heads)
    assert tree == pa.PartitionTree.from_labels([0, 0, 1, 1, 2, 2])
    network = pa.NetworkTensor(attention_like(5, 4, 6), heads=heads)
    assert pa.layer_tree(network) == tree
    assert pa.layer_tree(network.take_heads([5, 0, 1])) == pa.PartitionTree.from_labels([0, 1, 1])


def test_heads_that_share_keys_and_parts_of_a_model_are_levels() -> None:
    heads = _heads(
        layer=[0, 0, 0, 0, 1, 1, 0, 0],
        head=[0, 1, 2, 3, 0, 1, 0, 1],
        kv_group=[0, 0, 1, 1, 0, 0, 0, 0],
        group=["encoder"] * 6 + ["decoder"] * 2,
    )
    tree = pa.layer_tree(heads)
    parts = [0, 0, 0, 0, 0, 0, 1, 1]
    layers = [0, 0, 0, 0, 1, 1, 2, 2]
    keys = [0, 0, 1, 1, 2, 2, 3, 3]
    assert tree == pa.PartitionTree.from_labels(np.array([parts, layers, keys]))


def test_one_layer_one_head_and_layers_of_one_head() -> None:
    assert pa.layer_tree(_heads(layer=[0, 0, 0], head=[0, 1, 2])) == pa.PartitionTree.from_labels([0, 0, 0])
    assert pa.layer_tree(_heads(layer=[4], head=[2])) == pa.PartitionTree.dyadic(1)
    assert pa.layer_tree(_heads(layer=[0, 1, 2], head=[0, 0, 0])) == pa.PartitionTree.from_labels([0, 0, 0])
    with pytest.raises(TypeError, match=r"^network: got ndarray"):
        pa.layer_tree(np.zeros((2, 2, 2)))  # type: ignore[arg-type]


# -- squares ----------------------------------------------------------------------------------------------------------


def _squares(r0: int, r1: int, c0: int, c1: int, cols: int, size: int) -> set[frozenset[int]]:
    """All folders of a piece of the image, cut as the docstring says; `size` is what the next cut applies to."""
    found = {frozenset(r * cols + c for r in range(r0, r1) for c in range(c0, c1))}
    rows = [(r0, r1)] if r1 - r0 <= size else [(r0, (r0 + r1 + 1) // 2), ((r0 + r1 + 1) // 2, r1)]
    columns = [(c0, c1)] if c1 - c0 <= size else [(c0, (c0 + c1 + 1) // 2), ((c0 + c1 + 1) // 2, c1)]
    if size:
        for a, b in rows:
            for c, d in columns:
                found |= _squares(a, b, c, d, cols, size // 2)
    return found


@pytest.mark.parametrize("side", [1, 2, 4, 8, 16])
def test_square_images_are_cut_in_four(side: int) -> None:
    tree = pa.quadtree(side, side)
    assert tree.n_levels == int(np.log2(side)) + 1
    for level in range(tree.n_levels):
        assert tree.folder_sizes(level).tolist() == [(side // 2**level) ** 2] * 4**level
    assert _distinct(tree) == _squares(0, side, 0, side, side, side // 2)


@pytest.mark.parametrize(("rows", "cols"), [(14, 14), (3, 5), (1, 7), (16, 4), (5, 1), (2, 9)])
def test_folders_are_rectangles_about_square(rows: int, cols: int) -> None:
    tree = pa.quadtree(rows, cols)
    r, c = np.divmod(np.arange(rows * cols), cols)
    for row in tree.labels:
        for folder in range(row.max() + 1):
            inside = row == folder
            height, width = np.ptp(r[inside]) + 1, np.ptp(c[inside]) + 1
            assert inside.sum() == height * width
    # Below the levels that only bring it into shape, no folder is more than about twice as long as wide.
    shape = tree.labels[1:]
    square = [
        row for row in shape if row.max() and max(np.ptp(r[row == 0]), np.ptp(c[row == 0])) + 1 <= min(rows, cols)
    ]
    for row in square:
        height, width = np.ptp(r[row == 0]) + 1, np.ptp(c[row == 0]) + 1
        assert max(height, width) <= 2 * min(height, width)


def test_tall_images_are_cut_across_first() -> None:
    tree = pa.quadtree(16, 4)
    r, c = np.divmod(np.arange(64), 4)
    assert np.array_equal(tree.labels[1], r // 8)
    assert np.array_equal(tree.labels[2], r // 4)
    assert pa.PartitionTree.from_labels(tree.labels[:4]) == pa.PartitionTree.from_labels(
        np.stack([r // 8, r // 4, (r // 2) * 2 + c // 2])
    )


@pytest.mark.parametrize("prefix", [1, 5])
def test_tokens_before_the_patches_are_a_folder(prefix: int) -> None:
    tree, image = pa.quadtree(4, 6, prefix=prefix), pa.quadtree(4, 6)
    assert tree.n_leaves == 24 + prefix
    assert tree.n_levels == image.n_levels + 1
    assert sorted(tree.folder_sizes(1).tolist()) == sorted([prefix, 24])
    assert pa.PartitionTree.from_labels(tree.labels[1:, prefix:]) == image
    assert len(np.unique(tree.labels[-2, :prefix])) == 1
    assert pa.quadtree(1, 1, prefix=prefix).n_leaves == 1 + prefix


@pytest.mark.parametrize(
    "call", [lambda: pa.quadtree(0, 3), lambda: pa.quadtree(3, 2.5), lambda: pa.quadtree(2, 2, prefix=-1)]
)
def test_what_is_no_image(call: Any) -> None:
    with pytest.raises(ValueError, match=r"^(rows|cols|prefix): got "):
        call()


def test_both_are_kept_by_a_questionnaire() -> None:
    heads = {"layer": np.arange(12) // 4, "head": np.arange(12) % 4}
    network = pa.NetworkTensor(attention_like(17, 17, 12), "weights", heads=heads)
    patches, layers = pa.quadtree(4, 4, prefix=1), pa.layer_tree(network)
    found = pa.organize(network, tree=("given", "flexible", "given"), trees=(patches, None, layers))
    assert found.trees_[0] == patches
    assert found.trees_[2] == layers
    assert found.affinities_[2].shape == (12, 12)
