"""The drawing of two trees face to face; the data behind it is tested in test_tree_comparison.py."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest
from inputs import random_tree

import pyattnorg as pa
from pyattnorg.pictures import tree_lines

matplotlib.use("Agg")
from matplotlib import pyplot  # after the backend is chosen


@pytest.fixture(autouse=True)
def no_figures_left() -> Iterator[None]:
    yield
    pyplot.close("all")


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
@pytest.mark.parametrize("layers", [None, np.arange(12) // 4])
def test_it_takes_an_ax_and_saves_as_vectors(layers: Any, suffix: str) -> None:
    pyplot.close("all")  # what other files' tests have left
    figure, ax = pyplot.subplots()
    names = ["$x_1$", "<b>", "a\nb", *(f"L0H{i}" for i in range(9))]
    assert pa.plot_tanglegram(random_tree(12, 0), random_tree(12, 1), names, layers=layers, ax=ax) is ax
    assert not ax.images
    file = io.BytesIO()
    figure.savefig(file, format=suffix)
    assert len(file.getvalue()) > 1000
    assert b"<image" not in file.getvalue() or layers is not None  # a colour bar is the only raster there is
    assert len(pyplot.get_fignums()) == 1


def test_lines_join_the_same_point_on_both_sides() -> None:
    a, b = random_tree(9, 0), random_tree(9, 1)
    ax = pa.plot_tanglegram(a, b, names=("scores", "weights"))
    found = pa.tanglegram(a, b)
    links = [path.vertices for path in ax.collections[2].get_paths()]
    for point, ((_, left), (_, right)) in enumerate(links):
        assert found.left[int(left)] == found.right[int(right)] == point
    written = [text.get_text() for text in ax.texts]
    assert sorted(written[:18]) == sorted([str(i) for i in range(9)] * 2)
    assert written[18:] == ["scores", "weights"]
    crossings = sum((p[0][1] - q[0][1]) * (p[1][1] - q[1][1]) < 0 for i, p in enumerate(links) for q in links[:i])
    assert crossings == found.crossings
    assert ax.get_title() == f"entanglement {found.entanglement:.2f}"


@pytest.mark.parametrize("n", [1, 2, 151])
def test_few_and_many_points(n: int) -> None:
    ax = pa.plot_tanglegram(random_tree(n, 0), random_tree(n, 1), layers=np.zeros(n, int))
    assert len(ax.texts) == 2 + (2 * n if n <= 150 else 0)
    ax.figure.savefig(io.BytesIO(), format="svg")


def test_trees_in_another_order_have_their_leaves_there() -> None:
    tree = random_tree(15, 2)
    order = pa.tanglegram(tree, random_tree(15, 3)).left
    straight, moved = tree_lines(tree), tree_lines(tree, order)
    leaves = tree.folders().size == 1
    at = tree.order[tree.folders().start[leaves]]
    assert np.array_equal(moved.x[leaves], np.argsort(order)[at])
    assert np.array_equal(moved.y, straight.y)
    same = tree_lines(tree, tree.order)
    assert np.array_equal(same.x, straight.x)
    assert np.array_equal(same.joints, straight.joints)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = random_tree(5, 0)
    with pytest.raises(ValueError, match=r"^labels: got 4, the trees have 5 leaves"):
        pa.plot_tanglegram(tree, tree, list("abcd"))
    with pytest.raises(ValueError, match=r"^layers: got shape \(4,\), expected \(5,\)"):
        pa.plot_tanglegram(tree, tree, layers=np.zeros(4))
    with pytest.raises(ValueError, match=r"^b: got a tree of 6 leaves"):
        pa.plot_tanglegram(tree, random_tree(6, 0))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'pyattnorg\[viz\]'"):
        pa.plot_tanglegram(tree, tree)
