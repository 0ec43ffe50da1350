"""The consensus of head trees over inputs, against sets and loops written here."""

from __future__ import annotations

import csv
import itertools
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensors import attention_like
from typer.testing import CliRunner

import pyattnorg as pa
from pyattnorg import consensus
from pyattnorg.cli import job
from pyattnorg.cli.app import app
from pyattnorg.head_table import Heads

FAMILIES = 4  # of tensors.attention_like: head h is of family h % 4


def folder_sets(tree: pa.PartitionTree) -> set[frozenset[int]]:
    """Folders of a tree as sets of leaves."""
    return {frozenset(np.flatnonzero(row == label).tolist()) for row in tree.labels for label in set(row.tolist())}


def slow_distance(tree: pa.PartitionTree, i: int, j: int) -> float:
    return min(len(folder) for folder in folder_sets(tree) if {i, j} <= folder) / tree.n_leaves


def slow_linkage(distances: np.ndarray) -> set[frozenset[int]]:
    """Folders of average linkage; all groups that are nearest at one height are merged together."""
    n = len(distances)
    groups = [frozenset([i]) for i in range(n)]
    found = set(groups)
    while len(groups) > 1:
        pairs = {(a, b): np.mean([distances[i, j] for i in a for j in b]) for a, b in itertools.combinations(groups, 2)}
        a, b = min(pairs, key=lambda pair: pairs[pair])
        groups = [group for group in groups if group not in (a, b)] + [a | b]
        found.add(a | b)
    return found


def random_tree(n: int, rng: np.random.Generator) -> pa.PartitionTree:
    """Random nested partitions with folders of many sizes."""
    rows = [np.zeros(n, int)]
    for _ in range(6):
        rows.append(rows[-1] * n + rng.integers(0, 2, n) * rng.integers(0, 2, n))
    return pa.PartitionTree.from_labels(np.stack([np.unique(row, return_inverse=True)[1] for row in rows]))


def made(trees: list[pa.PartitionTree], **columns: Any) -> pa.HeadConsensus:
    return pa.HeadConsensus(Heads.of(columns or None, trees[0].n_leaves), tuple(trees))


@pytest.fixture(scope="module")
def organizations() -> list[pa.Organization]:
    """Three inputs of a network whose heads are of four families; each input has other tokens and another length."""
    return [pa.organize(pa.NetworkTensor(attention_like(n, n, 16, seed=n), "weights")) for n in (24, 31, 40)]


# -- what it is -------------------------------------------------------------------------------------------------


@given(st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_one_tree_in_all_inputs_is_its_own_consensus(n: int, seed: int) -> None:
    tree = random_tree(n, np.random.default_rng(seed))
    found = made([tree, tree, tree])
    assert folder_sets(found.tree) == folder_sets(tree)
    assert all(row["support"] == 1 for row in found.folder_table())
    # A tree without folders between root and leaves has all pairs equally far, and agrees with itself all the same.
    np.testing.assert_allclose(found.agreement, 1 if len(set(np.unique(tree.distance_matrix()))) > 2 else 0, atol=1e-12)


@given(st.integers(3, 8), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_distances_and_supports_are_those_of_sets(n: int, inputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    trees = [random_tree(n, rng) for _ in range(inputs + 1)]
    found = made(trees)
    for i, j in itertools.combinations(range(n), 2):
        expected = np.mean([slow_distance(tree, i, j) for tree in trees])
        assert found.distances[i, j] == found.distances[j, i] == pytest.approx(expected, rel=1e-14)
    assert not found.distances.diagonal().any()
    for row in found.folder_table():
        folder = {found.labels.index(label) for label in row["heads"]}
        best = [max(len(folder & other) / len(folder | other) for other in folder_sets(tree)) for tree in trees]
        assert row["size"] == len(folder)
        assert row["support"] == pytest.approx(np.mean(best), rel=1e-14)
        assert found.support(row["heads"]) == pytest.approx(row["support"], rel=1e-14)
    assert len(found.folder_table()) == len([f for f in folder_sets(found.tree) if 1 < len(f) < n])


@given(st.integers(3, 9), st.integers(0, 2**32 - 1))
def test_average_linkage_is_that_of_loops(n: int, seed: int) -> None:
    x = np.random.default_rng(seed).random((n, n))
    distances = np.triu(x, 1) + np.triu(x, 1).T  # no ties
    assert folder_sets(consensus.average_linkage(distances)) == slow_linkage(distances)


def test_merges_of_one_height_make_one_folder() -> None:
    near, far = 0.1, 0.4
    distances = np.full((7, 7), far)
    distances[:3, :3] = distances[3:5, 3:5] = near
    np.fill_diagonal(distances, 0)
    tree = consensus.average_linkage(distances)
    assert sorted(map(sorted, (f for f in folder_sets(tree) if 1 < len(f) < 7))) == [[0, 1, 2], [3, 4]]
    assert tree.n_levels == 3


def test_agreement_leaves_the_input_out() -> None:
    rng = np.random.default_rng(0)
    same, other = pa.PartitionTree.dyadic(16), random_tree(16, rng)
    found = made([same, same, same, other])
    upper = np.triu_indices(16, 1)
    expected = np.corrcoef(other.distance_matrix()[upper], same.distance_matrix()[upper])[0, 1]
    assert found.agreement[3] == pytest.approx(expected, abs=1e-12)
    rest = (2 * same.distance_matrix() + other.distance_matrix())[upper] / 3
    assert found.agreement[0] == pytest.approx(np.corrcoef(same.distance_matrix()[upper], rest)[0, 1], abs=1e-12)


def test_unrelated_trees_share_what_chance_gives() -> None:
    rng = np.random.default_rng(1)
    trees = [pa.PartitionTree.from_labels(pa.PartitionTree.dyadic(32).labels[:, rng.permutation(32)]) for _ in range(4)]
    found = made(trees)
    assert abs(found.agreement.mean()) < 0.15
    excess = [row["support"] - row["chance"] for row in found.folder_table()]
    # 20 shuffles of the same kind of trees: what is left is the spread of a single one, about .05 a folder.
    assert abs(np.mean(excess)) < 0.05
    assert max(excess) < 0.3
    assert all(row["chance"] <= row["luck"] for row in found.folder_table())
    assert "surest" not in found.summary() or sum(row["support"] > row["luck"] for row in found.folder_table()) <= 2


def test_families_of_heads_are_found_whatever_the_input(organizations: list[pa.Organization]) -> None:
    found = pa.head_consensus(organizations)
    assert found.agreement.min() > 0.5
    surest = found.folder_table()[0]
    families = {found.labels.index(label) % FAMILIES for label in surest["heads"]}
    assert len(families) == 1
    assert surest["support"] > surest["chance"] + 0.3
    together = pa.adjusted_rand_index(found.tree, np.arange(16) % FAMILIES).max()
    assert together > 0.6


def test_neither_the_order_of_inputs_nor_a_generator_matters(organizations: list[pa.Organization]) -> None:
    found = pa.head_consensus(organizations)
    again = pa.head_consensus(one for one in reversed(organizations))
    assert folder_sets(again.tree) == folder_sets(found.tree)
    np.testing.assert_allclose(again.agreement, found.agreement[::-1], rtol=1e-12)
    assert pa.head_consensus(organizations).to_dict() == found.to_dict()


def test_many_heads_take_little_memory() -> None:
    n = 600
    chain = pa.PartitionTree.from_linkage(
        np.stack([np.r_[0, n + np.arange(n - 2)], np.arange(1, n), np.arange(n - 1), np.arange(2, n + 1)], 1)
    )
    found = made([chain, chain])
    assert folder_sets(found.tree) == folder_sets(chain)
    masks = np.ones((1000, n), bool)
    np.testing.assert_array_equal(consensus.best_match(masks, chain), 1)


# -- how it is given --------------------------------------------------------------------------------------------


def test_one_screen_of_text(organizations: list[pa.Organization]) -> None:
    found = pa.head_consensus(organizations)
    said = found.summary()
    assert said.startswith("16 heads over 3 inputs; each input's head tree agrees with the others by 0.")
    assert "the surest that do not overlap" in said
    assert max(map(len, said.splitlines())) < 160
    assert len(found.summary(0).splitlines()) == 2
    alone = made([pa.PartitionTree.from_labels(np.zeros(6, int))] * 2)
    assert alone.summary().splitlines()[1:] == [
        "0 folders of heads and 6 heads alone",
        "no folder is surer than chance could make it",
    ]
    shown = found._repr_html_()
    assert shown.startswith("<pre>16 heads")
    assert repr(found).startswith("HeadConsensus(16 heads, 3 inputs, ")


def test_tables(organizations: list[pa.Organization]) -> None:
    pytest.importorskip("pandas")
    found = pa.head_consensus(organizations)
    frame = found.to_frame()
    assert list(frame.columns) == ["heads", "size", "support", "chance", "luck"]
    assert frame.to_dict("records") == found.folder_table()
    told = json.loads(json.dumps(found.to_dict()))
    assert told["inputs"] == 3
    assert [folder["size"] for folder in told["folders"]] == frame["size"].tolist()
    assert told["head_folders"] == found.head_folders()
    assert found.head_folders(0) == [[found.labels[i] for i in found.tree.order]]
    assert max(map(len, found.head_folders())) <= found.largest_folder == 5


def test_it_is_drawn(organizations: list[pa.Organization]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    ax = pa.head_consensus(organizations).plot_tree()
    assert len(ax.get_xticklabels()) == 16
    matplotlib.pyplot.close("all")


def test_folders_are_chosen_from_it(organizations: list[pa.Organization]) -> None:
    pytest.importorskip("torch")
    found = pa.head_consensus(organizations)
    choice = pa.choose_folders(found)
    assert sorted(head for folder in choice.kept.values() for head in folder) == sorted(found.labels)
    assert [sorted(folder) for folder in choice.kept.values()] == [sorted(folder) for folder in found.head_folders()]
    for one, folder in choice.kept.items():
        at = [found.labels.index(head) for head in folder]
        costs = found.distances[np.ix_(at, at)].sum(1)
        assert costs[list(folder).index(one)] == costs.min()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_heads(n: int) -> None:
    found = made([pa.PartitionTree.dyadic(n)] * 2)
    assert found.tree.n_leaves == n
    assert len(found.head_folders()) == n if n < 3 else True
    assert found.summary()
    assert len(found.to_dict()["folders"]) == (1 if n == 3 else 0)


def test_shuffles_that_agree_on_nothing_leave_nothing_to_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consensus, "SHUFFLES", 0)
    rows = made([pa.PartitionTree.dyadic(4)] * 2).folder_table()
    assert [(row["support"], row["chance"], row["luck"]) for row in rows] == [(1, 0, 0)] * 2


# -- what is refused --------------------------------------------------------------------------------------------


def test_wrong_input_is_named(organizations: list[pa.Organization]) -> None:
    first = organizations[0]
    with pytest.raises(ValueError, match=r"organizations: got 0, expected two or more"):
        pa.head_consensus([])
    with pytest.raises(ValueError, match=r"organizations: got 1, expected two or more"):
        pa.head_consensus([first])
    with pytest.raises(ValueError, match=r"organizations: got one Organization, expected two or more"):
        pa.head_consensus(first)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"organizations: number 1 is NetworkTensor, expected what organize returns"):
        pa.head_consensus([first, first.network])  # type: ignore[list-item]
    fewer = pa.organize(pa.NetworkTensor(attention_like(9, 9, 5), "weights"))
    with pytest.raises(ValueError, match=r"organizations: number 1 has 5 heads, the first has 16"):
        pa.head_consensus([first, fewer])
    other = pa.NetworkTensor(attention_like(9, 9, 16), "weights", heads={"layer": [1] * 16, "head": list(range(16))})
    with pytest.raises(ValueError, match=r"organizations: number 1 has L1H0 where the first has L0H0"):
        pa.head_consensus([first, pa.organize(other)])
    found = pa.head_consensus([first, first])
    with pytest.raises(KeyError, match=r"folder: no head 'L9H9'; labels are as 'L0H0'"):
        found.support(["L0H0", "L9H9"])
    with pytest.raises(ValueError, match=r"folder: got no head"):
        found.support([])
    with pytest.raises(TypeError, match=r"folder: got 'L0H0', expected a list"):
        found.support("L0H0")


# -- on the command line ----------------------------------------------------------------------------------------


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A model whose attention is made up from the length of the text."""
    model = SimpleNamespace(takes_images=False, takes_sound=False, loads=0)

    def load(task: job.Job) -> SimpleNamespace:
        model.loads += 1
        return model

    def take(task: job.Job, given: Any) -> Any:
        n = 10 + len(str(task.source))
        network = pa.NetworkTensor(attention_like(n, n, 8, seed=n), task.kind)
        network.meta.update(model=task.name, input=str(task.source))
        return network, [{"layer": 0, "group": ""}]

    monkeypatch.setattr(job, "load", load)
    monkeypatch.setattr(job, "take", take)
    return model


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_several_inputs_of_analyze(loaded: SimpleNamespace, tmp_path: Any) -> None:
    out = tmp_path / "o"
    result = run("analyze", "m", "--text", "=a", "--text", "b c d", "--text", "e f g h i", "--out", out)
    assert result.exit_code == 0, result.output
    assert loaded.loads == 1
    assert {path.name for path in out.iterdir()} == {"1", "2", "3", "folders.csv", "folders.svg", "inputs.csv"}
    assert {path.name for path in (out / "2").iterdir()} == {"report.html", "organization.npz", "heads.csv"}
    files = [out / str(i) / "organization.npz" for i in (1, 2, 3)]
    expected = pa.head_consensus(map(pa.load, files))
    assert result.stdout.startswith(expected.summary())
    with (out / "inputs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["folder"], row["input"]) for row in rows] == [("1", "'=a"), ("2", "b c d"), ("3", "e f g h i")]
    assert [float(row["agreement"]) for row in rows] == expected.agreement.tolist()
    with (out / "folders.csv").open(newline="") as file:
        assert [row["heads"].split(", ") for row in csv.DictReader(file)] == [
            row["heads"] for row in expected.folder_table()
        ]
    assert (out / "folders.svg").read_text().lstrip().startswith("<?xml")

    told = run("consensus", *files, "--json", "--out", tmp_path / "again")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["folders"] == expected.to_dict()["folders"]
    assert (tmp_path / "again" / "folders.csv").read_bytes() == (out / "folders.csv").read_bytes()
    assert run("consensus", *files, "--quiet").stdout == ""


def test_results_of_several_inputs_are_not_overwritten(loaded: SimpleNamespace, tmp_path: Any) -> None:
    arguments = ("analyze", "m", "--text", "a", "--text", "b c", "--out", tmp_path)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "heads.csv").write_text("mine")
    refused = run(*arguments)
    assert refused.exit_code == 1
    assert "--out:" in refused.stderr
    assert "2 holds heads.csv; pass --overwrite" in refused.stderr
    assert loaded.loads == 0
    assert [path.name for path in tmp_path.iterdir()] == ["2"]
    (tmp_path / "2" / "heads.csv").unlink()
    (tmp_path / "folders.csv").write_text("mine")
    assert f"{tmp_path} holds folders.csv; pass --overwrite" in run(*arguments).stderr
    assert run(*arguments, "--overwrite", "--quiet").exit_code == 0
    assert (tmp_path / "folders.csv").read_text().startswith("heads,size,support,chance,luck\n")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.npz"], "FILE: got 1, expected two or more, each of another input"),
        (["a.npz", "none.npz"], "none.npz does not exist, or is no file"),
        (["a.npz", "broken.npz"], "broken.npz"),
        (["a.npz", "small.pyatn"], "small.pyatn holds a compressed tensor, expected organization.npz"),
    ],
)
def test_consensus_says_what_is_wrong(files: list[str], expected: str, tmp_path: Any) -> None:
    network = pa.NetworkTensor(attention_like(9, 9, 4), "weights")
    pa.organize(network).save(tmp_path / "a.npz")
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    pa.compress(network, error=0.1).save(tmp_path / "small.pyatn")
    result = run("consensus", *(tmp_path / file for file in files), "--out", tmp_path / "o")
    assert result.exit_code == 1
    assert expected in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "o").exists()
