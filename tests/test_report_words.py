"""What the report says and shows of small, constant and masked networks."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from test_report import Page, network

import pyattnorg as pa
from pyattnorg.pictures import UNSEEN
from pyattnorg.report import report
from pyattnorg.report.view import layer_span

matplotlib.use("Agg")
from matplotlib import pyplot  # after the backend is chosen


def written(tmp_path, shown, **options):
    return Page(report(pa.organize(shown), tmp_path / "r.html", overwrite=True, **options).read_text("utf-8"))


def test_heads_that_are_all_alike_are_bright(tmp_path):
    page = written(tmp_path, pa.NetworkTensor(np.full((4, 5, 3), 0.2, np.float32), kind="weights"))
    (trace,) = page.data["affinity"]["traces"]
    assert (trace["zmin"], trace["zmax"]) == (0, 1)
    assert np.min(trace["z"]) == 1


def test_zeros_need_no_coefficients(tmp_path):
    page = written(tmp_path, pa.NetworkTensor(np.zeros((4, 5, 3), np.float32)))
    assert "Organised, 0.0 % of the coefficients" in page.text


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([3, 3], "layer 3"),
        ([0, 1, 2], "layers 0-2"),
        ([4, 1], "layers 1, 4"),
        ([0, 1, 2, 3, 9], "layers 0-3, 9"),
        ([0, 2, 4, 6, 8], "layers 0, 2, 4, 6, 8"),
    ],
)
def test_layers_in_words_are_those_there(layers, said):
    assert layer_span(np.array(layers)) == said


@pytest.mark.parametrize(
    ("heads", "said", "never"),
    [
        (1, "A single head has no others", "Drag to turn"),
        (2, "One diffusion coordinate:", "Drag to turn"),
        (3, "Two diffusion coordinates:", "Drag to turn"),
        (4, "Three diffusion coordinates:", "A single head"),
    ],
)
def test_coordinates_are_counted(tmp_path, heads, said, never):
    page = written(tmp_path, network(6, 6, heads))
    assert said in page.text
    assert never not in page.text


def test_what_cannot_be_seen_is_grey_and_said(tmp_path):
    seen = np.tril(np.ones((20, 20), bool))
    masked = written(tmp_path, network(kind="scores", visible=seen))
    assert "Grey: what the model cannot see" in masked.text
    for name in ("given", "organized"):
        assert masked.data[name]["layout"]["plot_bgcolor"] == UNSEEN
    whole = written(tmp_path, network())
    assert "Grey" not in whole.text
    assert "plot_bgcolor" not in whole.data["given"]["layout"]
    ax = pa.organize(network(kind="scores", visible=seen)).plot_head("L0H0")
    assert matplotlib.colors.to_hex(ax.get_facecolor()) == UNSEEN
    pyplot.close(ax.figure)


def test_heads_that_stand_alone_may_be_like_others(tmp_path):
    """Eight twins of fifteen heads: no folder of a third holds them all, but none of them is like no other."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(12, 12, 15))
    x[:, :, :8] = x[:, :, :1] + 0.3 * rng.normal(size=(12, 12, 8))
    found = pa.NetworkTensor(x)
    assert ["L0H0"] in pa.organize(found).head_folders()  # the very head that seven others are like
    text = written(tmp_path, found).text
    assert "the next larger one that it is in holds more than 5 heads" in text
    assert "like no other" not in text
    assert "the only head" in written(tmp_path, network(6, 6, 1)).text


def test_a_head_that_stands_alone_is_said_to(tmp_path):
    alone = next(f[0] for f in pa.organize(network()).head_folders() if len(f) == 1)
    together = next(f[0] for f in pa.organize(network()).head_folders() if len(f) > 1)
    assert "alone, in a folder of its own" in written(tmp_path, network(), head=alone).text
    assert "alone, in a folder" not in written(tmp_path, network(), head=together).text
