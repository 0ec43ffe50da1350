"""Drawings: geometry of trees, what is returned, vector output, refusals."""

from __future__ import annotations

import io
import sys

import matplotlib
import numpy as np
import pytest
from tensors import attention_like

import pyattnorg as pa
from pyattnorg import pictures

matplotlib.use("Agg")
from matplotlib import pyplot  # after the backend is chosen


@pytest.fixture(scope="module")
def organization() -> pa.Organization:
    tokens = ["$x_1$", "<b>", "a\nb", "Ġthe", *(f"t{i}" for i in range(16))]
    heads = {"layer": [i // 4 for i in range(12)], "head": [i % 4 for i in range(12)]}
    network = pa.NetworkTensor(attention_like(20, 20, 12), "weights", heads=heads, queries=tokens, keys=tokens)
    return pa.organize(network)


@pytest.fixture(autouse=True)
def quiet_pyplot(monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a picture was shown")

    monkeypatch.setattr(pyplot, "show", refuse)
    pyplot.close("all")  # what other files' tests have left
    yield
    pyplot.close("all")


PLOTS = [
    ("plot_tree", ()),
    ("plot_tree", (0,)),
    ("plot_embedding", ()),
    ("plot_embedding", (1,)),
    ("plot_affinity", ()),
    ("plot_affinity", (0,)),
    ("plot_head", ("L1H2",)),
    ("plot_decay", ()),
]


@pytest.mark.parametrize(("name", "arguments"), PLOTS)
@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_every_plot_takes_an_ax_and_saves_as_vectors(organization, name, arguments, suffix):
    figure, ax = pyplot.subplots()
    assert getattr(organization, name)(*arguments, ax=ax) is ax
    file = io.BytesIO()
    figure.savefig(file, format=suffix)
    assert len(file.getvalue()) > 1000
    assert len(pyplot.get_fignums()) == 1  # none but the one given


@pytest.mark.parametrize(("name", "arguments"), PLOTS)
def test_without_an_ax_one_is_made(organization, name, arguments):
    ax = getattr(organization, name)(*arguments)
    assert ax.figure.axes[0] is ax
    ax.figure.savefig(io.BytesIO(), format="png", dpi=40)


def test_text_is_drawn_letter_by_letter(organization):
    ax = organization.plot_head("L0H0", organized=False)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[:4] == [r"\$x_1\$", "<b>", "a·b", "▁the"]


def test_head_is_drawn_in_the_order_of_the_trees(organization):
    drawn = organization.plot_head("L1H2").images[0].get_array()
    matrix = organization.network["L1H2"]
    np.testing.assert_array_equal(drawn, matrix[np.ix_(organization.order(0), organization.order(1))])
    given = organization.plot_head("L1H2", organized=False).images[0].get_array()
    np.testing.assert_array_equal(given, matrix)
    with pytest.raises(KeyError, match="no head 'L9H9'"):
        organization.plot_head("L9H9")


def test_tree_lines_of_a_known_tree():
    # ((0 1) 2) with 2 carried down as a chain
    lines = pictures.tree_lines(pa.PartitionTree.from_labels([[0, 0, 0], [0, 0, 1], [0, 1, 2]]))
    # root, folder (0 1), leaf 2, leaf 0, leaf 1 in some breadth-first order
    assert sorted(zip(lines.x.tolist(), lines.y.tolist())) == [(0, 2), (0.5, 1), (1, 2), (1.25, 0), (2, 2)]
    assert lines.joints.shape == (4, 3, 2)
    for above, corner, at in lines.joints:
        assert corner[0] == at[0]
        assert corner[1] == above[1]
        assert at[1] > above[1]


@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_tree_lines_stand_over_their_leaves(n):
    tree = pa.PartitionTree.dyadic(n)
    lines, folders = pictures.tree_lines(tree), tree.folders()
    assert len(lines.joints) == len(folders) - 1
    assert (lines.x >= folders.start).all()
    assert (lines.x <= folders.start + folders.size - 1).all()
    leaves = folders.size == 1
    np.testing.assert_array_equal(np.sort(lines.x[leaves]), np.arange(n))


def test_a_deep_chain_is_drawn():
    n = 300
    labels = [np.minimum(np.arange(n), level) for level in range(n)]  # one leaf parts at every level
    ax = pictures.draw_tree(pa.PartitionTree.from_labels(labels))
    assert ax.get_ylim()[0] > n - 2


def test_log_spaced_keeps_both_ends():
    assert pictures.log_spaced(5).tolist() == [0, 1, 2, 3, 4]
    at = pictures.log_spaced(1_000_000, 100)
    assert at[0] == 0
    assert at[-1] == 999_999
    assert len(at) <= 100
    assert (np.diff(at) > 0).all()


def test_readable_spells_byte_level_tokens_out():
    assert pictures.readable(["the", "##ing"]) == ["the", "##ing"]
    assert pictures.readable(["Ġthe", "âĢľ", "é", "<|endoftext|>", "Ċ", "日本"]) == [
        "▁the", "“", "é", "<|endoftext|>", "\n", "日本",
    ]  # fmt: skip


def test_degenerate_pictures():
    network = pa.NetworkTensor(np.ones((3, 2, 1)), "weights")
    o = pa.organize(network)
    for name in ("plot_tree", "plot_embedding", "plot_affinity", "plot_decay"):
        getattr(o, name)().figure.savefig(io.BytesIO(), format="svg")
    o.plot_head("L0H0")


def test_refusals():
    with pytest.raises(ValueError, match="matrix: got shape"):
        pictures.draw_head(np.ones(3))
    with pytest.raises(ValueError, match="affinity: got shape"):
        pictures.draw_affinity(np.ones((3, 3)), [0, 1])
    with pytest.raises(ValueError, match="coordinates: got shape"):
        pictures.draw_embedding(np.ones(3))


def test_missing_matplotlib_says_what_to_install(organization, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'pyattnorg\[viz\]'"):
        organization.plot_decay()
