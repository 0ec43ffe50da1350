"""The report: whole, self-contained, within its budget, harmless, the same every time."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
from tensors import attention_like

import pyattnorg as pa
from pyattnorg.report import report
from pyattnorg.report.blocks import by_runs, by_tree, cut
from pyattnorg.report.page import page as rendered
from pyattnorg.report.thumbnails import HIDDEN, palette, png
from pyattnorg.report.view import MOST_HEADS, MOST_POINTS, View

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(2)>',
    "<b>bold</b>",
    "<!--",
    "${title}",
    "%{x}",
    "a\u2028b",
    "]]>",
]
BUDGET = 12e6


def tokens(n: int) -> list[str]:
    return [HOSTILE[i % len(HOSTILE)] if i % 3 == 0 else f"word{i % 5}" for i in range(n)]


def network(q: int = 20, k: int = 20, h: int = 12, **more) -> pa.NetworkTensor:
    heads = {"layer": [i // 4 for i in range(h)], "head": [i % 4 for i in range(h)]}
    options = {"kind": "weights", "heads": heads, "queries": tokens(q), "keys": tokens(k)} | more
    return pa.NetworkTensor(attention_like(q, k, h).astype(np.float32), **options)


class Page(HTMLParser):
    """Elements, ids and attributes of a page, and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.data: dict = {}
        self.text = ""
        self._reading = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "script":
            self._reading = "json" if ("type", "application/json") in attrs else "code"

    def handle_endtag(self, tag):
        if tag == "script":
            self._reading = ""

    def handle_data(self, data):
        if self._reading == "json":
            self.data = json.loads(data)
        elif not self._reading:
            self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


@pytest.fixture(scope="module")
def organization() -> pa.Organization:
    return pa.organize(network(meta={"model": "<i>tiny</i>", "input": "some <u>text</u>"}))


@pytest.fixture(scope="module")
def page(organization, tmp_path_factory) -> Page:
    path = report(
        organization,
        tmp_path_factory.mktemp("report") / "report.html",
        seconds={"load": 1.5},
        layers=[{"layer": 0, "module": "<script>", "shape": (4, 20, 20), "row_sums": (0.99, 1.0), "mask": None}],
    )
    assert path.stat().st_size < BUDGET
    return Page(path.read_text(encoding="utf-8"))


def test_it_holds_every_figure(page):
    boxes = page.values("data-figure")
    assert sorted(boxes) == ["affinity", "decay", "embedding", "given", "organized", "tree"]
    assert sorted(page.data) == sorted(boxes)
    assert page.data["embedding"]["traces"][0]["type"] == "scatter3d"


def test_it_says_what_it_shows(page, organization):
    for label in organization.labels:
        assert page.text.count(label) >= 2  # in the gallery and the table
    for said in (
        "12 heads",
        "in 3 layers",
        "load 1.50",
        "4 \N{MULTIPLICATION SIGN} 20 \N{MULTIPLICATION SIGN} 20",
        "0.99 to 1",
        "What was captured",
    ):
        assert said in page.text
    folders = organization.head_folders()
    for number, folder in enumerate(folders):
        assert (f"Folder {number}: {len(folder)} heads" in page.text) == (len(folder) > 1)
    alone = sum(len(folder) == 1 for folder in folders)
    assert (f"Alone: {alone} head" in page.text) == (alone > 0)
    entropies = organization.entropies()
    for name in ("organized", "given", "shuffled", "entries"):
        assert f"{entropies[name]:.4f}" in page.text


def test_the_page_names_the_nearest_heads(page, organization):
    hover = page.data["tree"]["traces"][2]["text"]
    first = organization.labels[organization.order(2)[0]]
    assert first in hover[0]
    assert " ".join(organization.nearest_heads(first)) in hover[0]


def test_nothing_is_fetched_or_sent(page):
    for tag, name, value in page.attributes:
        if name in ("src", "href", "action", "data", "srcset", "poster"):
            assert value.startswith("data:"), (tag, name, value[:80])
    assert "link" not in page.tags
    assert "iframe" not in page.tags
    policy = page.values("content")[0]
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_plotly_offers_no_upload():
    from pyattnorg.report.page import _asset

    text = _asset("page.js")
    assert "showSendToCloud: false" in text
    assert 'plotlyServerURL: ""' in text
    assert "//" not in re.sub(
        r"(?m)(^|\s)// .*", "", text + _asset("page.css") + _asset("page.html")
    )  # no address at all


def test_hostile_text_stays_text(page, organization):
    assert page.tags.count("script") == 3  # the data, plotly, ours
    assert "svg" not in page.tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert all(
        value.startswith("data:image/png") for tag, name, value in page.attributes if (tag, name) == ("img", "src")
    )
    assert "<i>tiny</i>" in page.text  # shown as it was written
    assert "some <u>text</u>" in page.text
    names = page.data["given"]["traces"][0]["y"]
    assert len(set(names)) == 20  # tokens that come back are still told apart
    assert names[0].startswith("&lt;/script&gt;")
    assert not [name for name in names if "<" in name]


def test_ids_are_unique_and_pages_differ(page, organization, tmp_path):
    ids = page.values("id")
    assert len(ids) == 1
    other = Page(report(organization, tmp_path / "other.html", title="another").read_text(encoding="utf-8"))
    assert other.values("id") != ids


def test_the_same_page_is_the_same_bytes(organization, tmp_path):
    one = report(organization, tmp_path / "a.html").read_bytes()
    two = report(organization, tmp_path / "b.html").read_bytes()
    assert one == two


def test_an_organisation_that_was_saved_gives_the_same_page(organization, tmp_path):
    organization.save(tmp_path / "o.npz")
    one = report(organization, tmp_path / "a.html").read_bytes()
    assert report(pa.load(tmp_path / "o.npz"), tmp_path / "b.html").read_bytes() == one


def test_the_head_shown_is_the_most_involved_or_the_one_asked_for(page, organization, tmp_path):
    rows = organization.head_table()
    top = max(rows, key=lambda row: row["involvement"])["label"]
    assert f"Head {top}, before and after" in page.text
    chosen = Page(report(organization, tmp_path / "r.html", head="L2H3").read_text(encoding="utf-8"))
    assert "Head L2H3, before and after" in chosen.text
    matrix = organization.network["L2H3"]
    at = np.ix_(organization.order(0), organization.order(1))
    np.testing.assert_allclose(chosen.data["organized"]["traces"][0]["z"], matrix[at], rtol=6e-3)  # three digits
    np.testing.assert_allclose(chosen.data["given"]["traces"][0]["z"], matrix, rtol=6e-3)


def test_many_tokens_stay_within_the_budget(tmp_path):
    q, k = 300, 280
    o = pa.organize(network(q, k, 8), n_iter=1)
    path = report(o, tmp_path / "large.html")
    assert path.stat().st_size < BUDGET
    large = Page(path.read_text(encoding="utf-8"))
    for name in ("given", "organized"):
        trace = large.data[name]["traces"][0]
        assert np.shape(trace["z"]) == (MOST_POINTS, MOST_POINTS)
        assert len(trace["x"]) == len(trace["y"]) == MOST_POINTS
    for said in ("300 queries are drawn as 256", "280 keys are drawn as 256"):
        assert said in large.text
    # averages keep the total
    mean = np.average(large.data["organized"]["traces"][0]["z"], weights=by_tree(o.trees_[0], 256).sizes, axis=0)
    total = np.average(mean, weights=by_tree(o.trees_[1], 256).sizes)
    head = View.of(o).head
    assert total == pytest.approx(o.network[head].mean(), rel=1e-2)


def test_many_heads_stay_within_the_budget(tmp_path):
    o = pa.organize(network(16, 16, 530), n_iter=1)
    path = report(o, tmp_path / "large.html")
    assert path.stat().st_size < BUDGET
    large = Page(path.read_text(encoding="utf-8"))
    assert np.shape(large.data["affinity"]["traces"][0]["z"]) == (MOST_POINTS, MOST_POINTS)
    assert len(large.data["tree"]["traces"][2]["x"]) == MOST_HEADS
    assert len(large.data["embedding"]["traces"][0]["x"]) == MOST_HEADS
    for said in ("530 heads are drawn as 256 folders", "530 heads are drawn as 512", "the 512 most involved heads"):
        assert said in large.text
    assert large.tags.count("tr") < MOST_HEADS + 20


def test_very_many_heads_of_a_folder_are_folded_away(tmp_path):
    o = pa.organize(network(8, 8, 512), n_iter=1)
    text = report(o, tmp_path / "r.html").read_text(encoding="utf-8")
    sizes = [len(folder) for folder in o.head_folders()]
    assert text.count("<details>") == sum(size > 51 for size in sizes) > 0
    assert Page(text).tags.count("figcaption") == 512


def test_the_worst_case_stays_within_the_budget(tmp_path):
    """As many heads, points and long names as are drawn without being put together."""
    rng = np.random.default_rng(0)
    h = MOST_HEADS
    heads = {"layer": np.arange(h) // 16, "head": np.arange(h) % 16, "group": ["encoder" * 3, "decoder"] * (h // 2)}
    values = rng.random((MOST_POINTS, MOST_POINTS, 1), np.float32) * rng.random((1, 1, h), np.float32)
    values[:32, :32] = rng.random((32, 32, h), np.float32)  # noise: pictures that do not compress
    names = [f"{i} a very long name of a token" for i in range(MOST_POINTS)]
    fitted = pa.Questionnaire(n_iter=1).fit(values[::16, ::16])
    fitted.trees_ = (pa.PartitionTree.dyadic(MOST_POINTS),) * 2 + fitted.trees_[2:]
    fitted._values = values
    o = pa.Organization(pa.NetworkTensor(values, "weights", heads=heads, queries=names, keys=names), fitted)
    o.__dict__["_entropies"] = dict.fromkeys(("organized", "given", "shuffled", "entries"), 0.5)
    view = View.of(o)
    view.__dict__["decay"] = {name: np.geomspace(1, 1e-6, 1000) for name in o.entropies()}
    assert len(rendered(view, "worst", {}, []).encode()) < BUDGET


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 1), (3, 2, 2), (5, 4, 3), (4, 6, 4)])
@pytest.mark.parametrize("kind", ["weights", "scores"])
def test_small_networks(shape, kind, tmp_path):
    o = pa.organize(pa.NetworkTensor(attention_like(*shape), kind))
    small = Page(report(o, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert ("embedding" in small.data) == (shape[2] > 1)
    assert len(small.data["decay"]["traces"]) == 3


def test_constant_network(tmp_path):
    o = pa.organize(pa.NetworkTensor(np.zeros((4, 4, 4)), "weights"))
    report(o, tmp_path / "r.html")


def test_left_out_points_are_named(tmp_path):
    visible = np.tril(np.ones((6, 6), bool))
    visible[:, 5] = False
    visible[0] = False
    o = pa.organize(network(6, 6, 4, visible=visible))
    assert "1 queries and 1 keys that nothing can see" in Page(report(o, tmp_path / "r.html").read_text("utf-8")).text


def test_refusals(organization, tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    with pytest.raises(KeyError, match="no head 'L7H7'"):
        report(organization, path, head="L7H7")
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        report(organization, path)
    assert path.read_text() == "mine"
    report(organization, path, overwrite=True)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        report(organization, tmp_path / "nowhere" / "r.html")
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"pip install 'pyattnorg\[viz\]'"):
        report(organization, tmp_path / "s.html")


def test_habits_find_where_attention_goes():
    n, rng = 16, np.random.default_rng(0)
    noise = 0.01 * rng.random((n, n, 6))
    noise[1:, 0, :3] += 1  # three heads look at the first token
    noise[np.arange(1, n), np.arange(n - 1), 3:] += 1  # three at the one before
    o = pa.organize(pa.NetworkTensor(noise / noise.sum(1, keepdims=True), "weights"))
    view = View.of(o)
    assert view.habits([0, 1, 2])[0][0] == "the first token (0)"
    place, share = view.habits([3, 4, 5])[0]
    assert place == "the token before"
    assert 0.8 < share <= 1
    assert View.of(pa.organize(network(kind="scores"))).habits([0]) == []


# -- showing less than there is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3, 7, 16, 40, 100])
def test_blocks_of_a_tree_cover_it(most, organization):
    trees = [
        organization.trees_[0],
        pa.PartitionTree.dyadic(37),
        pa.PartitionTree.from_labels(np.zeros(50, int)),  # one root over all
        pa.PartitionTree.from_labels(np.arange(30) % 4),
    ]
    for tree in trees:
        blocks = by_tree(tree, most)
        assert len(blocks) == min(most, tree.n_leaves)
        assert blocks.starts[0] == 0
        assert (blocks.sizes >= 1).all()
        np.testing.assert_array_equal(np.concatenate([blocks.members(b) for b in range(len(blocks))]), tree.order)
        x = np.random.default_rng(0).random((tree.n_leaves, 3))
        means = [x[blocks.members(b)].mean(0) for b in range(len(blocks))]
        np.testing.assert_allclose(blocks.mean(x), means, rtol=1e-12)
        np.testing.assert_allclose(blocks.mean(x.T, 1), np.transpose(means), rtol=1e-12)
        assert cut(tree, blocks).n_leaves == len(blocks)
        np.testing.assert_array_equal(cut(tree, blocks).order, np.arange(len(blocks)))


def test_blocks_are_folders_where_folders_fit():
    blocks = by_tree(pa.PartitionTree.dyadic(64), 8)
    assert blocks.sizes.tolist() == [8] * 8
    assert blocks.names([str(i) for i in range(64)])[1] == "8 +7"


@pytest.mark.parametrize(("n", "most"), [(1, 5), (5, 5), (257, 256), (1000, 256)])
def test_runs_are_even(n, most):
    blocks = by_runs(n, most)
    assert len(blocks) == min(n, most)
    assert blocks.sizes.sum() == n
    assert np.ptp(blocks.sizes) <= 1


def test_thumbnails_are_what_they_show():
    image = pytest.importorskip("PIL.Image")
    matrix = np.linspace(0, 1, 12).reshape(3, 4)
    picture = image.open(io.BytesIO(png(matrix)))
    assert picture.size == (4, 3)
    pixels = np.asarray(picture.convert("RGB"))
    assert tuple(pixels[0, 0]) == tuple(palette()[0])
    assert tuple(pixels[-1, -1]) == tuple(palette()[-1])
    image.open(io.BytesIO(png(np.zeros((1, 1))))).load()


# -- in a browser, where there is one ---------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium to draw the page in")
def test_two_reports_in_one_document_draw_in_a_browser(organization, tmp_path):
    pages = [
        report(organization, tmp_path / f"{i}.html", title=title).read_text(encoding="utf-8")
        for i, title in enumerate(("one", "two"))
    ]
    bodies = [re.search(r"<body>(.*)</body>", text, re.DOTALL).group(1) for text in pages]
    path = tmp_path / "both.html"
    # as in a notebook with requirejs: a `define` that nobody should answer to
    define = "<script>window.define = function () { throw new Error('define'); }; define.amd = {};</script>"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{define}{bodies[0]}{bodies[1]}</body>", encoding="utf-8")
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--enable-unsafe-swiftshader", "--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=15000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.count("main-svg") >= 12
    assert done.stdout.count("js-plotly-plot") >= 12
    complaints = [
        line for line in done.stderr.splitlines() if ":CONSOLE" in line and ("ERROR" in line or "rror:" in line)
    ]
    assert not complaints, complaints


def test_cells_that_the_model_cannot_see_are_grey_and_said(tmp_path):
    x = np.random.default_rng(0).standard_normal((12, 12, 6))
    network = pa.NetworkTensor(x, visible=np.tril(np.ones((12, 12), bool)))
    text = report(pa.organize(network, masked="floor", n_iter=1), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "the cells shown grey; to organise, they hold the least of what their row sees" in text
    assert "not seen by the model" not in report(pa.organize(x, n_iter=1), tmp_path / "s.html").read_text("utf-8")
    causal = np.where(np.tril(np.ones((4, 4), bool)), 1.0, np.nan)
    pixels = np.frombuffer(zlib.decompress(png(causal).split(b"IDAT")[1].split(b"IEND")[0][:-8]), np.uint8)
    assert (pixels.reshape(4, 5)[:, 1:] == HIDDEN).sum() == 6
