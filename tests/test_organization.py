"""An organisation: what a fitted questionnaire says of heads and tokens by name."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import transcription as slow
from numpy.typing import NDArray
from tensors import attention_like

import pyattnorg as pa

HEADS = {"layer": np.repeat([0, 1, 2], 4), "head": np.tile(np.arange(4), 3)}


@pytest.fixture(scope="module")
def network() -> pa.NetworkTensor:
    return pa.NetworkTensor(attention_like(20, 16, 12), "weights", heads=HEADS)


@pytest.fixture(scope="module")
def organized(network: pa.NetworkTensor) -> pa.Organization:
    return pa.organize(network)


def _labels(trees: Any) -> list[NDArray[Any]]:
    return [tree.labels.astype(np.int64) for tree in trees]


def test_it_is_the_questionnaire_of_the_filled_values(network: pa.NetworkTensor, organized: pa.Organization) -> None:
    fitted = pa.Questionnaire().fit(network.values)
    assert organized.trees_ == fitted.trees_
    assert organized.history_ == fitted.history_
    assert (organized.n_iter_, organized.converged_) == (fitted.n_iter_, fitted.converged_)
    for one, other in zip(organized.distances_ + organized.affinities_, fitted.distances_ + fitted.affinities_):
        assert np.array_equal(one, other)
    assert np.array_equal(organized.organized(), fitted.organized())
    assert np.array_equal(organized.coefficients(), fitted.coefficients())
    assert np.array_equal(organized.transform(2 * network.values), fitted.transform(2 * network.values))
    c = organized.coefficients()
    assert np.array_equal(organized.inverse_transform(c), fitted.inverse_transform(c))
    assert np.array_equal(organized.order(1), fitted.order(1))
    assert np.array_equal(organized.embedding().coordinates, fitted.embedding(2).coordinates)


def test_options_are_those_of_the_questionnaire(network: pa.NetworkTensor) -> None:
    options: dict[str, Any] = {"n_iter": 1, "schedule": "paper", "alpha": 0.5, "tree": "binary"}
    assert pa.organize(network, **options).trees_ == pa.Questionnaire(**options).fit(network.values).trees_
    assert pa.organize(network).questionnaire.get_params() == pa.Questionnaire().get_params()
    with pytest.raises(TypeError, match="depth"):
        pa.organize(network, depth=3)
    own = set(inspect.signature(pa.organize).parameters) - {"options"}
    assert not own & set(pa.Questionnaire().get_params())


def test_an_array_is_scores_with_masked_cells_marked() -> None:
    x = np.random.default_rng(0).standard_normal((9, 9, 5))
    masked = np.where(np.tri(9, dtype=bool)[:, :, None], x, -np.inf)
    organized = pa.organize(masked, n_iter=1)
    assert organized.network.kind == "scores"
    assert organized.labels == tuple(f"L0H{i}" for i in range(5))
    expected = pa.NetworkTensor(x, visible=np.tri(9, dtype=bool)).filled("mean")
    assert np.array_equal(organized.network.values, expected.values)
    floor = pa.organize(masked, masked="floor", n_iter=1)
    assert np.array_equal(floor.network.values, pa.NetworkTensor(masked).filled("floor").values)


@pytest.mark.parametrize("masked", ["mean", "floor"])
def test_sentinels_under_the_mask_change_no_byte(masked: Any) -> None:
    x, visible = np.random.default_rng(1).standard_normal((12, 12, 6)).astype(np.float32), np.tri(12, dtype=bool)
    found = set()
    for sentinel in (0, -np.inf, np.finfo(np.float32).min, -1e4, -100, np.nan):
        values = np.where(visible[:, :, None], x, np.float32(sentinel))
        organized = pa.organize(pa.NetworkTensor(values, visible=visible), masked=masked, n_iter=2)
        arrays = (*organized.distances_, *organized.affinities_, *(tree.labels for tree in organized.trees_))
        found.add(b"".join(array.tobytes() for array in arrays))
        assert all(np.isfinite(array).all() for array in arrays)
        assert np.isfinite([row["entropy"] for row in organized.head_table()]).all()
    assert len(found) == 1


# -- heads by name ----------------------------------------------------------------------------------------------------


def test_folders_of_heads(organized: pa.Organization) -> None:
    tree = organized.trees_[2]
    for level in range(-tree.n_levels, tree.n_levels):
        folders = organized.head_folders(level)
        assert [organized.labels.index(label) for folder in folders for label in folder] == tree.order.tolist()
        assert sorted(len(folder) for folder in folders) == sorted(tree.folder_sizes(level))
    assert organized.head_folders(0) == [[organized.labels[i] for i in tree.order]]
    folders = organized.head_folders()
    assert [organized.labels.index(label) for folder in folders for label in folder] == tree.order.tolist()
    assert max(len(folder) for folder in folders) <= len(organized.labels) // 3
    of_levels = [set(map(tuple, organized.head_folders(level))) for level in range(tree.n_levels)]
    for folder in folders:  # each is a folder of the tree, and the one above it would be too large
        level = next(i for i, found in enumerate(of_levels) if tuple(folder) in found)
        above = next(one for one in of_levels[level - 1] if set(folder) <= set(one))
        assert len(above) > len(organized.labels) // 3
    for level in (tree.n_levels, -tree.n_levels - 1):
        with pytest.raises(ValueError, match=r"^level: got "):
            organized.head_folders(level)


def test_groups_of_heads_lie_together() -> None:  # A63
    rng = np.random.default_rng(2)
    group = np.array([0, 1, 1, 0, 1, 0, 0, 1])
    x = rng.standard_normal((15, 14, 2))[:, :, group] + 0.1 * rng.standard_normal((15, 14, 8))
    organized = pa.organize(x)
    for head, row in enumerate(organized.head_table()):
        assert all(group[int(near[3:])] == group[head] for near in row["nearest"].split())
    assert [sorted(group[int(label[3:])] for label in folder) for folder in organized.head_folders(1)] == [
        [0] * 4,
        [1] * 4,
    ]


def test_nearest_heads(organized: pa.Organization) -> None:
    e = organized.distances_[2]
    for i, label in enumerate(organized.labels):
        near = organized.nearest_heads(label, 5)
        assert len(near) == 5
        assert label not in near
        at = [organized.labels.index(name) for name in near]
        assert np.array_equal(np.sort(np.delete(e[i], i))[:5], e[i][at])
    assert len(organized.nearest_heads("L0H0", 100)) == 11
    with pytest.raises(KeyError, match="L9H9"):
        organized.nearest_heads("L9H9")


def test_table_of_heads(organized: pa.Organization) -> None:
    table = organized.head_table()
    assert [row["label"] for row in table] == list(organized.labels)
    assert [(row["layer"], row["head"]) for row in table] == [(i // 4, i % 4) for i in range(12)]
    values, trees = organized.network.values, _labels(organized.trees_)
    involvement = slow.head_entropies(values, trees[:2])
    bi_haar = slow.haar(values, [*trees[:2], None])
    coordinates = organized.embedding(2, 3).coordinates
    for i, row in enumerate(table):
        assert row["involvement"] == pytest.approx(involvement[i] / involvement.max(), rel=1e-10)
        assert row["entropy"] == pytest.approx(slow.l1_entropy(bi_haar[:, :, i]), rel=1e-10)
        assert row["effective"] == pytest.approx(slow.effective_number(bi_haar[:, :, i]), rel=1e-10)
        assert [row["x"], row["y"], row["z"]] == pytest.approx(coordinates[i].tolist())
        assert row["label"] in organized.head_folders()[row["folder"]]
        assert organized.trees_[2].order[row["position"]] == i
        assert row["nearest"] == " ".join(organized.nearest_heads(row["label"]))


def test_data_frame(organized: pa.Organization) -> None:
    pytest.importorskip("pandas")
    frame = organized.to_frame()
    assert list(frame.index) == list(organized.labels)
    assert frame.loc["L1H2", "layer"] == 1
    assert frame["involvement"].max() == 1


def test_entropies_and_decay(organized: pa.Organization) -> None:
    values = organized.network.values
    found, decay = organized.entropies(), organized.decay()
    assert set(found) == set(decay) == {"organized", "given", "shuffled", "entries"}
    dyadic = [pa.PartitionTree.dyadic(n) for n in values.shape]
    assert found["organized"] == organized.history_[-1]["entropy"]
    assert found["given"] == pytest.approx(slow.l1_entropy(slow.haar(values, _labels(dyadic))), rel=1e-10)
    assert found["entries"] == pytest.approx(slow.l1_entropy(values), rel=1e-10)
    assert found["organized"] < found["shuffled"]
    found["organized"] = 0
    assert organized.entropies()["organized"] > 0  # what was given away was a copy
    for name, magnitudes in decay.items():
        assert len(magnitudes) == values.size
        assert (np.diff(magnitudes) <= 0).all()
        assert np.square(magnitudes).sum() == pytest.approx(1)
        assert magnitudes.sum() / values.size**0.5 == pytest.approx(organized.entropies()[name], rel=1e-6)


def test_text(organized: pa.Organization) -> None:
    text = organized.summary(n=2)
    for part in (
        "20 queries x 16 keys x 12 heads",
        "normalised l1 entropy",
        "most involved heads",
        "least involved heads",
    ):
        assert part in text
    assert max(len(line) for line in text.split("\n")) <= 200
    first = max(organized.head_table(), key=lambda row: row["involvement"])["label"]
    assert f"{first} 1.00" in text
    assert repr(organized).startswith("Organization(weights, 20 x 16 x 12, ")
    assert organized._repr_html_().startswith("<pre>")


def test_a_tolerance_is_told_where_it_ended_the_fit() -> None:
    found = pa.organize(attention_like(12, 10, 6), tree="flexible", n_iter=9, tol=0.9)
    assert found.n_iter_ == 2
    assert found.history_[-1]["moved"] != (0, 0, 0)
    assert "which moved no tree by more than 0.9 at last" in found.summary()
    exact = pa.organize(attention_like(12, 10, 6), n_iter=30)
    assert exact.converged_
    assert "which changed no tree at last" in exact.summary()


def test_embeddings_take_all_options_of_the_map(organized: pa.Organization) -> None:
    for options in ({"alpha": 0.0}, {"variant": "paper"}):
        expected = pa.diffusion_map(organized.affinities_[2], n_components=2, **options)  # type: ignore[arg-type]
        found = organized.embedding(2, 2, **options)
        assert np.array_equal(found.coordinates, expected.coordinates)


def test_html_escapes_names() -> None:
    x = attention_like(6, 5, 4)
    heads = {"head": np.arange(4), "group": ["<b>", "<b>", "a", "a"]}
    assert "<b>" not in pa.organize(pa.NetworkTensor(x, heads=heads))._repr_html_().replace("<pre>", "")


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 1), (4, 4, 2), (2, 3, 3), (1, 9, 12)])
@pytest.mark.parametrize("value", ["random", "zeros", "ones"])
def test_small_and_empty_networks_have_all_of_it(shape: tuple[int, ...], value: str) -> None:
    x = {"random": np.random.default_rng(0).random(shape), "zeros": np.zeros(shape), "ones": np.ones(shape)}[value]
    organized = pa.organize(x)
    table = organized.head_table()
    assert len(table) == shape[2]
    for row in table:
        assert np.isfinite([row["involvement"], row["entropy"], row["effective"]]).all()
    assert organized.summary()
    assert sum(len(folder) for folder in organized.head_folders()) == shape[2]
    assert np.isfinite(list(organized.entropies().values())).all()
    assert all(np.isfinite(magnitudes).all() for magnitudes in organized.decay().values())


def test_nothing_given_is_written(network: pa.NetworkTensor) -> None:
    x = attention_like(9, 8, 7)
    kept = x.copy()
    organized = pa.organize(x)
    organized.head_table(), organized.decay(), organized.summary()
    assert np.array_equal(x, kept)


def test_decay_of_a_million_float32_is_that_of_float64() -> None:
    x = np.random.default_rng(0).standard_normal((128, 128, 72)).astype(np.float32)
    decay = pa.organize(x, n_iter=1).decay()
    for name, curve in decay.items():
        assert np.square(curve).sum() == pytest.approx(1, abs=1e-9), name
        assert curve.dtype == np.float64
        assert (np.diff(curve) <= 0).all()


def test_what_is_no_network_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"^network: got 'saved.npz'"):
        pa.organize("saved.npz")
    with pytest.raises(TypeError, match=r"^kind: no option of Questionnaire"):
        pa.organize(np.zeros((3, 3, 2)), kind="weights")
