"""Comparing networks: measures against slow references, tests that hold their level, what is found, bad input."""

from __future__ import annotations

import json
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import t, wasserstein_distance
from tensors import attention_like

import pyattnorg as pa
from pyattnorg.comparison import chance, distance, draws, joint, networks, picture, quantities, tables
from pyattnorg.head_table import Heads

FAST: dict[str, Any] = {"n_draws": 2, "n_resamples": 199}


def network(seed: int = 0, q: int = 12, k: int = 12, h: int = 8, layers: int = 2, **options: Any) -> pa.NetworkTensor:
    """Attention with four families of heads, the layers told."""
    heads = {"layer": np.arange(h) * layers // h, "head": np.arange(h), "module": [f"m{i}" for i in range(h)]}
    return pa.NetworkTensor(attention_like(q, k, h, seed), "weights", heads=heads, **options)


def noise(seed: int, q: int = 12, k: int = 12, h: int = 8) -> pa.NetworkTensor:
    """Softmax of noise: weights without any organisation."""
    e = np.exp(np.random.default_rng(seed).standard_normal((q, k, h)))
    return pa.NetworkTensor(e / e.sum(1, keepdims=True), "weights")


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_a_difference_that_is_there_is_found_and_one_that_is_not_is_not() -> None:
    ordered, others = [network(i) for i in range(5)], [network(i) for i in range(5, 10)]
    random = [noise(i) for i in range(5)]
    found = pa.compare(ordered, others, random, names=["a", "b", "noise"], n_draws=2, n_resamples=500)
    assert found.pair("a", "noise").distance > 2 * found.pair("a", "b").distance
    planted = found.pair("a", "noise").chance
    assert planted.distance_p == planted.least_p == 2 / 252
    assert found.pair("a", "b").chance.distance_p > 0.1
    entropy = quantities.NAMES.index("entropy")
    assert found.portraits[0].contrasts[entropy] < found.portraits[2].contrasts[entropy] - 0.1
    assert found.portraits[0].high[entropy] < 0  # better organised than its null
    assert abs(found.portraits[2].contrasts[entropy]) < 0.1


def test_same_bytes_every_time_and_other_ones_for_another_seed() -> None:
    a, b = [network(0, 14, 14), network(1)], [network(2, h=12)]
    first, second = (json.dumps(pa.compare(a, b, **FAST).to_dict()) for _ in range(2))
    before = pa.get_num_threads()
    pa.set_num_threads(3)
    third = json.dumps(pa.compare(a, b, **FAST).to_dict())
    pa.set_num_threads(before)
    assert first == second == third
    assert first != json.dumps(pa.compare(a, b, random_state=1, **FAST).to_dict())


@pytest.mark.parametrize("paired", [True, False])
def test_order_of_networks_changes_signs_only(paired: bool) -> None:
    a, b = [network(i, 13, 13, 9) for i in range(3)], [noise(i) for i in range(3)]
    one, two = pa.compare(a, b, paired=paired, **FAST), pa.compare(b, a, paired=paired, **FAST)
    x, y = one.pairs[0, 1], two.pairs[0, 1]
    np.testing.assert_array_equal(x.shift, -y.shift)
    np.testing.assert_array_equal(x.chance.low, -y.chance.high)
    np.testing.assert_array_equal(x.chance.p, y.chance.p)
    assert x.chance[3:] == y.chance[3:]
    assert x.distance == y.distance
    np.testing.assert_array_equal(one.portraits[0].low, two.portraits[1].low)


def test_a_network_is_at_no_distance_from_itself() -> None:
    found = pa.compare([network(0), network(1)], [network(0), network(1)], shared=True, **FAST)
    assert found.distances.tolist() == [[0, 0], [0, 0]]
    assert found.pairs[0, 1].chance.distance_p == 1
    assert found.joint_pair(0, 1).energy == 0
    assert found.joint_pair(0, 1).energy_p == 1
    assert found.pairs[0, 1].heads_correlation == pytest.approx(1)


def test_scale_does_not_matter_nor_the_order_of_points_of_a_whole_tensor() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((9, 9, 7)), rng.standard_normal((9, 9, 7)) ** 3
    plain = pa.compare(x, y, shared=True, **FAST)
    scaled = pa.compare(1024 * x, y, shared=True, **FAST)
    np.testing.assert_allclose(plain.pairs[0, 1].shift, scaled.pairs[0, 1].shift, atol=1e-9)
    assert plain.joint_pair(0, 1).energy == pytest.approx(scaled.joint_pair(0, 1).energy, abs=1e-9)
    # Of a whole tensor every quantity of the organisation itself is unchanged; nulls are drawn anew.
    order = [rng.permutation(n) for n in x.shape]
    moved = pa.compare(x[np.ix_(*order)], y, **FAST)
    kept = [i for i, name in enumerate(quantities.NAMES) if name not in ("imbalance", "alone", "fit", "smoothness")]
    np.testing.assert_allclose(plain.portraits[0].values[kept], moved.portraits[0].values[kept], rtol=1e-9)


def test_doubled_heads_look_better_organised_in_whole_but_not_head_by_head() -> None:
    x = network(h=6).values
    twice = pa.compare(x, np.concatenate([x, x], 2), size=(12, 12, 6), **FAST)
    whole = [quantities.numbers(v, {}) for v in (x, np.concatenate([x, x], 2))]
    assert whole[1].values[0] < whole[0].values[0]  # which is why there is one common size
    assert twice.pairs[0, 1].parts["heads"] < 2


def test_arrays_of_any_kind_and_layout_give_the_same() -> None:
    torch = pytest.importorskip("torch")
    x, y = attention_like(8, 8, 6, 0).astype(np.float32), attention_like(8, 8, 6, 1).astype(np.float32)
    plain = pa.compare(x, y, **FAST).pairs[0, 1].shift
    strided = np.zeros((16, 16, 12), np.float32)[::2, ::2, ::2]
    strided[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    for other in (strided, frozen, np.asfortranarray(x), torch.from_numpy(x.copy())):
        np.testing.assert_array_equal(pa.compare(other, y, **FAST).pairs[0, 1].shift, plain)
    # Trees of float32 and float64 can differ where merges cost the same to seven digits; the numbers hardly do.
    double = pa.compare(x.astype(np.float64), y.astype(np.float64), **FAST).pairs[0, 1].shift
    np.testing.assert_allclose(double[:4], plain[:4], atol=0.02)


def test_organisations_and_causal_masks() -> None:
    mask = np.tril(np.ones((12, 12), bool))
    x = np.random.default_rng(0).standard_normal((12, 12, 6))
    masked = pa.NetworkTensor(np.where(mask[:, :, None], x, -np.inf))
    one = pa.compare(pa.organize(masked), masked, size=(6, 6, 4), **FAST)
    assert one.kind == "scores"
    assert np.isfinite(one.distances).all()
    assert one.distances[0, 1] == 0  # what stands in hidden cells has no say


@pytest.mark.parametrize("null", ["row", "head", "tensor"])
@pytest.mark.parametrize("positions", ["run", "scattered"])
def test_other_draws_nulls_and_trees(null: Any, positions: Any) -> None:
    a, b = network(0, 16, 16), noise(0, 20, 20)
    found = pa.compare(a, b, size=(8, 8, 6), null=null, positions=positions, tree="flexible", **FAST)
    assert found.distances[0, 1] > 0.5
    assert (found.null, found.positions) == (null, positions)
    assert found.portraits[0].contrasts[0] < found.portraits[1].contrasts[0]


def test_progress_is_told() -> None:
    seen: list[tuple[str, int, int]] = []
    pa.compare(network(0), network(1), names=["a", "b"], progress=lambda *told: seen.append(told), **FAST)
    assert [done for _, done, _ in seen] == [0, 1, 2, 3, 4]
    assert seen[0][0] == "a, input 1 of 1"
    assert {total for _, _, total in seen} == {4}


def test_one_input_has_no_p_value_and_says_so() -> None:
    found = pa.compare(network(0, 20, 20), network(1, 20, 20), size=(10, 10, 8), **FAST)
    pair = found.pairs[0, 1]
    assert pair.chance.distance_p is pair.chance.floor is pair.chance.least_p is None
    assert {p.over for p in found.portraits} == {"draws"}
    assert "needs several inputs" in found.summary()
    assert "of one input, the middle 90 % of its draws" in found.summary()
    assert "95 %" not in found.summary()
    assert np.isnan(pair.chance.p).all()


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_tables_text_json_and_frame() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"t{i}" for i in range(12)]
    a, b = ([network(i + j, queries=names, keys=names) for i in range(3)] for j in (0, 5))
    found = pa.compare(a, b, names=["left", "<right>"], **FAST)
    assert found.shared  # by the names of tokens
    assert repr(found) == "Comparison(left, <right>; weights, 12 x 12 x 8)"
    assert "p = " in found.summary()
    assert "not decided: of so few inputs the least possible is 0.25" in found.summary()
    assert "joint: heads of both in one embedding" in found.summary()
    assert "own neighbours" in found.summary()
    assert "&lt;right&gt;" in found._repr_html_()
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["pairs"][0]["distance"] == found.distances[0, 1]
    assert len(told["joint"]["head"]) == 16
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc[("left", "entropy"), "value"] == found.portraits[0].values[0]
    assert len(found.table()) == 2 * len(quantities.QUANTITIES)
    assert tables.pair_rows(found)[0]["joint_energy"] == found.joint_pair("<right>", "left").energy


@pytest.mark.parametrize("shared", [True, False])
def test_picture(shared: bool) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = pa.compare(network(0), noise(1), names=["a $1", "b"], shared=shared, **FAST)
    axes = found.plot()
    assert len(axes) == 4
    assert [ax.get_title() for ax in axes][2] == ("heads, embedded together" if shared else "heads")
    own = pyplot.subplots(2, 2)[1]
    assert (found.plot(ax=own) == own.reshape(-1)).all()
    axes[0].figure.canvas.draw()
    with pytest.raises(ValueError, match="expected four"):
        picture.draw_comparison(found, ax=[own[0, 0]])
    pyplot.close("all")


# -- what is refused, and what is not ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("networks", "options", "message"),
    [
        ((np.ones((3, 3, 3)),), {}, "expected two or more"),
        ((np.ones((3, 3, 3)), np.full((3, 3, 3), np.nan)), {}, "b: values: .*NaN"),
        ((np.ones((3, 3)), np.ones((3, 3, 3))), {}, "a: values: got shape"),
        ((np.ones((3, 3, 3)), []), {}, "b: got an empty list"),
        ((np.ones((3, 3, 3)), network()), {}, "different kinds .*a scores, b weights"),
        ((np.ones((3, 3, 3)), [np.ones((3, 3, 3)), np.ones((3, 3, 2))]), {}, "different heads"),
        ((np.ones((3, 3, 3)),) * 2, {"names": ["x"]}, "one for each of 2"),
        ((np.ones((3, 3, 3)),) * 2, {"names": ["x", "x"]}, "expected different ones"),
        ((np.ones((3, 3, 3)),) * 2, {"size": (4, 3, 3)}, "got 4 queries, the smallest network has 3"),
        ((np.ones((3, 3, 3)),) * 2, {"size": (3, 3)}, r"expected \(queries, keys, heads\)"),
        ((np.ones((3, 3, 3)),) * 2, {"size": (0, 3, 3)}, "size: got 0"),
        ((np.ones((3, 3, 3)),) * 2, {"n_draws": 0}, "n_draws: got 0"),
        ((np.ones((3, 3, 3)),) * 2, {"n_resamples": 9}, "n_resamples: got 9"),
        ((np.ones((3, 3, 3)),) * 2, {"positions": "all"}, "positions: got 'all'"),
        ((np.ones((3, 3, 3)),) * 2, {"null": "column"}, "null: got 'column'"),
        ((np.ones((3, 3, 3)), np.ones((4, 4, 3))), {"shared": True}, "shared: got True"),
        ((np.ones((3, 3, 3)),) * 2, {"shared": "no"}, "shared: got 'no', expected True, False or None"),
        ((np.ones((3, 3, 3)),) * 2, {"paired": 1}, "paired: got 1, expected True, False or None"),
        ((np.ones((3, 3, 3)),) * 2, {"names": 5}, "names: got 5"),
        ((np.ones((3, 3, 3)),) * 2, {"names": ["a", ""]}, "none of them empty"),
        ((np.ones((3, 3, 3)),) * 2, {"size": {1, 2, 3}}, r"expected \(queries, keys, heads\)"),
        ((np.ones((3, 3, 3)),) * 2, {"tree": "given"}, "every sub-tensor gets trees of its own"),
        ((np.ones((3, 3, 3)),) * 2, {"tree": ("entropy", "entropy", "given")}, "tree: got 'given'"),
        (([network(), network().take_heads([1, 0, *range(2, 8)])], network()), {}, "input 2 has 8, from L0H1 to L1H7"),
        ((np.ones((3, 3, 3)), [np.ones((3, 3, 3)), np.zeros((3, 3, 3))]), {"paired": True}, "paired: got True"),
    ],
)
def test_bad_input_is_named(networks: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pa.compare(*networks, **options)


def test_wrong_things_are_refused() -> None:
    with pytest.raises(TypeError, match="capture a model, or load"):
        pa.compare("a.npz", "b.npz")
    with pytest.raises(TypeError, match=r"b: got a part of a capture.*\.weights"):
        pa.compare(np.ones((2, 2, 2)), SimpleNamespace(weights=None, scores=None))
    with pytest.raises(TypeError, match=r"a: got a capture.*\.weights"):
        pa.compare(SimpleNamespace(groups={}, report=[]), np.ones((2, 2, 2)))
    with pytest.raises(TypeError, match="no option of compare or of Questionnaire"):
        pa.compare(np.ones((3, 3, 3)), np.ones((3, 3, 3)), trees=1)
    for thing, what in ((None, "NoneType"), ({"a": 1}, "dict"), (iter([]), "list_iterator"), ({1}, "set"), (5, "int")):
        with pytest.raises(TypeError, match=rf"b: got {what}, expected a NetworkTensor, an Organization, an array"):
            pa.compare(np.ones((2, 2, 2)), thing)
    with pytest.raises(TypeError, match="a: got NoneType"):
        pa.compare([np.ones((2, 2, 2)), None], np.ones((2, 2, 2)))
    with pytest.raises(TypeError, match="a: values: got dtype complex128"):
        pa.compare(np.ones((2, 2, 2), complex), np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match=r"a: values: got shape \(2, 2\).*a list is one network on several inputs"):
        pa.compare(np.ones((2, 2, 2)).tolist(), np.ones((2, 2, 2)))
    found = pa.compare(np.ones((3, 3, 3)), np.ones((3, 3, 3)), **FAST)
    with pytest.raises(ValueError, match="expected one of"):
        found.pair("a", "c")
    with pytest.raises(ValueError, match="expected 0 to 1"):
        found.pair(0, 2)
    with pytest.raises(ValueError, match="the same network"):
        found.pair(0, 0)
    with pytest.raises(ValueError, match="there is none"):
        found.joint_pair(0, 1)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 4, 1), (4, 1, 2), (2, 2, 1), (5, 5, 2), (4, 4, 3)])
@pytest.mark.parametrize("fill", ["zeros", "constant", "random"])
@pytest.mark.filterwarnings("ignore:[ab]. inputs 1 and 2 hold", "ignore:size. got one key")
def test_smallest_tensors_give_numbers_or_say_what_is_not_measured(shape: tuple[int, int, int], fill: str) -> None:
    rng = np.random.default_rng(0)
    make = {"zeros": np.zeros, "constant": np.ones, "random": rng.random}[fill]
    found = pa.compare([make(shape)] * 2, [rng.random(shape)] * 2, shared=True, **FAST)
    told = found.to_dict()
    json.dumps(told, allow_nan=False)
    assert np.isfinite(found.distances).all()
    bad = {row["quantity"] for row in told["quantities"] if row["contrast"] is None}
    assert bad == set(found.unmeasured)
    assert ("imbalance" in bad) == (shape[2] < 3)
    assert isinstance(found.summary(), str)


@drawn(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6))
@settings(max_examples=20)
@pytest.mark.filterwarnings("ignore:size. got one key")
def test_any_shapes_can_be_compared(q: int, k: int, h: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = pa.compare(rng.random((q, k, h)), rng.random((q + 2, k + 1, h + 3)), n_draws=1, n_resamples=100)
    assert found.size == (q, k, h)
    assert np.isfinite(found.distances).all()


@pytest.mark.parametrize("scale", [1e200, 1e-300, 1e150, 1e30, 1e-30])
def test_numbers_of_any_size_give_the_same(scale: float) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, 8, 6)), rng.standard_normal((8, 8, 6)) ** 3
    plain, scaled = (pa.compare(one, y, shared=True, **FAST) for one in (x, scale * x))
    assert scaled.distances[0, 1] == pytest.approx(plain.distances[0, 1], rel=1e-6)
    assert scaled.joint_pair(0, 1).energy == pytest.approx(plain.joint_pair(0, 1).energy, abs=1e-6)
    single = x.astype(np.float32)
    loud = single * np.float32(2.0**100)  # sums of squares leave float32
    gap = {"missing": single[0, 0, 0], "tree": "flexible", "n_resamples": 100}
    assert pa.compare(single, y, **gap).distances[0, 1] == pytest.approx(
        pa.compare(loud, y, **(gap | {"missing": loud[0, 0, 0]})).distances[0, 1], rel=1e-6
    )


def test_trees_cut_at_random_follow_the_seed() -> None:
    a, b = network(0), noise(1)
    options: dict[str, Any] = {"tree": "binary", "balance": 1.5, "n_trees": 2, **FAST}
    first, second = (pa.compare(a, b, **options).to_dict() for _ in range(2))
    assert first == second
    assert pa.compare(a, b, random_state=1, **options).to_dict() != first


def test_what_cannot_be_measured_in_one_network_counts_in_no_distance() -> None:
    a, b, flat = network(0), network(1), pa.NetworkTensor(np.full((12, 12, 8), 1 / 12), "weights")
    two, three = (pa.compare(*some, names=list("abc")[: len(some)], **FAST) for some in ((a, b), (a, b, flat)))
    assert two.unmeasured == ()
    assert three.unmeasured == ("smoothness",)
    parts = {name: size for name, size in two.pair("a", "b").parts.items() if name not in ("smoothness", "effective")}
    assert three.pair("a", "b").distance == pytest.approx(np.sqrt(np.mean(np.square(list(parts.values())))))
    assert np.isnan(three.pair("a", "b").parts["smoothness"])
    assert np.isfinite(three.pair("a", "b").shift).all()  # its difference is still told
    # A head of zeros takes up others' numbers where the whole tensor is permuted: its own entropy has no ratio then.
    x = attention_like(8, 8, 6, 0)
    x[:, :, 0] = 0
    found = pa.compare(x, attention_like(8, 8, 6, 1), null="tensor", **FAST)
    assert found.unmeasured == ("heads",)
    assert "not measured, so in no distance: heads" in found.summary()
    assert np.isfinite(found.distances).all()


def test_one_draw_of_one_input_has_no_interval() -> None:
    found = pa.compare(network(0), [network(1), network(2)], names=["one", "two"], n_draws=1, n_resamples=100)
    assert np.isnan(found.portraits[0].low).all()
    assert np.isfinite(found.portraits[1].low).all()
    assert "(one draw)" in found.summary()
    json.dumps(found.to_dict(), allow_nan=False)


def test_inputs_that_are_there_twice_are_told() -> None:
    a, b = network(0), network(1)
    with pytest.warns(UserWarning, match="x: inputs 1 and 3 hold the same numbers"):
        pa.compare([a, b, network(0)], b, names=["x", "y"], **FAST)
    assert networks.repeated([a, b]) == []
    assert networks.repeated([a, a, b, network(0)]) == [(0, 1), (0, 3)]
    other = a.values.copy()
    other[0, 0, -1] += 0.5
    assert networks.repeated([a, pa.NetworkTensor(other, "weights", heads=a.heads)]) == []


@pytest.mark.parametrize("queries_too", [True, False])
@pytest.mark.parametrize("kind", ["weights", "scores"])
def test_padding_is_left_out(kind: Any, queries_too: bool) -> None:
    rng = np.random.default_rng(0)
    plain, padded = [], []
    for i in range(2):
        x = attention_like(10, 10, 6, i)
        plain.append(pa.NetworkTensor(x, kind))
        wide = rng.random((16, 16, 6))  # rows of padding look at real tokens in many models
        wide[:10, :10] = x
        seen = np.zeros((16, 16), bool)
        seen[: 10 if queries_too else 16, :10] = True
        padded.append(pa.NetworkTensor(np.where(seen[:, :, None], wide, 0), kind, visible=seen))
    other = pa.NetworkTensor(attention_like(12, 12, 6, 7), kind)
    one, two = (pa.compare(x, other, names=["x", "y"], **FAST).to_dict() for x in (plain, padded))
    assert one == two
    blind = pa.NetworkTensor(np.zeros((4, 4, 2)), visible=np.zeros((4, 4), bool))
    with pytest.raises(ValueError, match="a: visible: no cell is visible"):
        pa.compare(blind, other)


def test_one_key_has_nothing_to_permute_and_says_so() -> None:
    with pytest.warns(UserWarning, match="got one key"):
        pa.compare(np.ones((3, 1, 3)), np.ones((3, 3, 3)), **FAST)


# -- draws -------------------------------------------------------------------------------------------------------------


@drawn(st.integers(1, 9), st.integers(1, 9), st.booleans(), st.sampled_from(["run", "scattered"]), st.integers(0, 99))
def test_positions(q: int, k: int, same: bool, how: Any, seed: int) -> None:
    n_q, n_k = (max(q, k) + 3,) * 2 if same else (q + 3, k + 4)
    rows, columns = draws.drawn_positions((n_q, n_k), (q, k), how, np.random.default_rng(seed))
    assert (len(rows), len(columns)) == (q, k)
    for at, n in ((rows, n_q), (columns, n_k)):
        assert (np.diff(at) > 0).all()
        assert set(at) <= set(range(n))
    if how == "run":
        assert rows[-1] - rows[0] == q - 1
    if n_q == n_k:
        assert rows[-1] == columns[-1]
        if q <= k:  # every query sees a key under a causal mask
            assert set(rows) <= set(columns)


@drawn(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_heads_are_spread_over_layers(layers: int, of_each: int, seed: int) -> None:
    n = layers * of_each
    heads = Heads.of({"layer": np.repeat(np.arange(layers), of_each), "head": np.arange(n)}, n)
    size = 1 + seed % n
    at = draws.drawn_heads(heads, size, np.random.default_rng(seed))
    assert len(set(at.tolist())) == size
    counts = np.bincount(heads.layer[at], minlength=layers)
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("null", ["row", "head", "tensor"])
def test_nulls_keep_what_they_should(null: Any) -> None:
    rng = np.random.default_rng(0)
    seen = np.tril(np.ones((6, 6), bool))[:, :, None] & (rng.random((6, 6, 4)) < 0.9)
    seen[0, 0] = True
    values = np.where(seen, rng.random((6, 6, 4)) + 1, 0)
    draw = draws.Draw(values, seen, np.arange(4), "weights")
    moved = draws.null_of(draw, null, rng)
    assert (moved[~seen] == 0).all()
    assert (moved != values).any()
    parts = {"row": [(i, slice(None), h) for i in range(6) for h in range(4)], "head": [(..., h) for h in range(4)]}
    for part in parts.get(null, [...]):
        np.testing.assert_array_equal(np.sort(moved[part][seen[part]]), np.sort(values[part][seen[part]]))


def test_every_place_is_as_likely_in_a_null() -> None:
    draw = draws.Draw(np.arange(4.0).reshape(1, 4, 1), np.array([True, True, False, True]).reshape(1, 4, 1), [0], "x")
    rng = np.random.default_rng(0)
    first = [draws.null_of(draw, "row", rng)[0, 0, 0] for _ in range(600)]
    counts = np.unique(first, return_counts=True)
    assert counts[0].tolist() == [0, 1, 3]
    assert counts[1].min() > 150  # of 200 expected: four standard deviations


class OnDisk:
    """A network that is read head by head, and notes what is read of it."""

    def __init__(self, network: pa.NetworkTensor) -> None:
        self.network, self.shape, self.dtype = network, network.shape, network.values.dtype
        self.read: list[int] = []

    def head(self, index: int, rows: slice = slice(None)) -> NDArray[Any]:
        found = self.network.head(index, rows)
        self.read.append(len(found))
        return found

    def visible(self, index: int) -> NDArray[np.bool_] | None:
        return self.network.visible_cells()[:, :, index]


@pytest.mark.parametrize("positions", ["run", "scattered"])
def test_of_a_network_on_disk_only_the_rows_that_were_drawn_are_read(positions: Any) -> None:
    mask = np.tril(np.ones((20, 20), bool))[:, :, None] & (np.random.default_rng(0).random((20, 20, 8)) < 0.8)
    mask[:, 0] = True
    whole = pa.NetworkTensor(np.where(mask, network(0, 20, 20).values, 0), "weights", mask, network().heads)
    disk = OnDisk(whole)
    lazy = pa.NetworkTensor(disk, "weights", heads=whole.heads)
    options: dict[str, Any] = {"size": (6, 7, 5), "positions": positions, **FAST}
    one, two = (pa.compare(x, network(1, 20, 20), names=["x", "y"], **options).to_dict() for x in (lazy, whole))
    assert one == two
    assert not lazy.in_memory
    assert len(disk.read) == 2 * 5
    assert max(disk.read) <= (20 if positions == "scattered" else 6)


def test_weights_sum_to_one_over_the_keys_that_were_drawn() -> None:
    got = draws.draw_of(network(), (5, 4, 3), "run", 0, 0, 0, None)
    np.testing.assert_allclose(got.values.sum(1), 1)
    whole = draws.draw_of(network(), (12, 12, 8), "run", 0, 0, 0, None)
    np.testing.assert_array_equal(whole.values, network().values)
    hidden = pa.NetworkTensor(np.ones((2, 2, 1)), visible=np.array([[True, False], [False, False]]))
    with pytest.raises(ValueError, match="no cell of a drawn"):
        draws.sub_tensor(hidden, np.array([1]), np.array([1]), np.array([0]))


def test_names_of_squares_do_not_say_that_images_are_the_same() -> None:
    x, names = np.ones((4, 4, 2)), ["cls", "r0c0", "r0c1", "r0c2"]
    one, other = (pa.NetworkTensor(x, queries=names, keys=names, meta={"input": i}) for i in ("cat", "dog"))
    assert not pa.compare(one, other, **FAST).shared
    assert pa.compare(one, one, **FAST).shared
    assert not pa.compare(*[pa.NetworkTensor(x, queries=names, keys=names)] * 2, **FAST).shared


def test_names_of_networks() -> None:
    x = np.ones((2, 2, 2))
    one, two = (pa.NetworkTensor(x, meta={"model": m}) for m in ("m1", "m2"))
    assert [n.name for n in networks.read_networks([one, [two]], None)] == ["m1", "m2"]
    assert [n.name for n in networks.read_networks([one, one], None)] == ["a", "b"]
    told = [pa.NetworkTensor(i * x, meta={"input": f"text {i}"}) for i in range(2)]
    assert pa.compare(told, told, **FAST).paired
    assert not pa.compare([x, 2 * x], [x, 2 * x], **FAST).paired


# -- quantities against slow references --------------------------------------------------------------------------------


def test_error_curve_is_that_of_keeping_the_largest() -> None:
    c = np.random.default_rng(0).standard_normal((4, 5, 3))
    curve = quantities.error_curve(c)
    flat = c.ravel()
    order = np.argsort(-np.abs(flat))
    for kept in (1, 7, 59, 60):
        rest = flat.copy()
        rest[order[:kept]] = 0
        assert curve[kept - 1] == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(flat), abs=1e-12)
    assert quantities.error_curve(np.zeros(3)).tolist() == [0, 0, 0]


def slow_sackin(labels: NDArray[Any]) -> int:
    total = 0
    for leaf in range(labels.shape[1]):
        folders = [frozenset(np.flatnonzero(row == row[leaf])) for row in labels]
        total += len(dict.fromkeys(folders)) - 1
    return total


@drawn(st.integers(3, 12), st.integers(0, 999))
def test_imbalance(n: int, seed: int) -> None:
    tree = pa.entropy_tree(np.random.default_rng(seed).standard_normal((n, 3)))
    expected = slow_sackin(tree.labels) / (2 * n * sum(1 / j for j in range(2, n + 1)))
    assert quantities.imbalance(tree) == pytest.approx(expected, rel=1e-12)


def test_imbalance_of_trees_that_split_at_random_is_one_on_average() -> None:
    rng = np.random.default_rng(0)

    def yule(n: int) -> float:
        """Sackin's index of a tree whose leaves split at random."""
        depths = [0]
        while len(depths) < n:
            depth = depths.pop(int(rng.integers(len(depths))))
            depths += [depth + 1] * 2
        return sum(depths)

    mean = np.mean([yule(20) for _ in range(2000)])
    assert mean / (2 * 20 * (1 / np.arange(2, 21)).sum()) == pytest.approx(1, abs=0.02)  # its standard error is .003
    caterpillar = pa.PartitionTree.from_merges(np.array([[0, 1], [4, 2], [5, 3]]))
    assert quantities.imbalance(caterpillar) == pytest.approx(9 / (8 * (1 / 2 + 1 / 3 + 1 / 4)))


def test_ranks_and_spectra() -> None:
    assert quantities.effective_rank(quantities.eigenvalue_shares(np.eye(5))) == pytest.approx(5)
    assert quantities.effective_rank(quantities.eigenvalue_shares(np.ones((5, 5)))) == pytest.approx(1)
    shares = quantities.eigenvalue_shares(np.kron(np.eye(2), np.ones((3, 3))))
    np.testing.assert_allclose(shares, [0.5, 0.5, 0, 0, 0, 0], atol=1e-12)
    profile = quantities.folder_profile(pa.PartitionTree.dyadic(8))
    assert (profile[0], profile[-1]) == (1, 1 / 8)
    assert (quantities.folder_profile(pa.PartitionTree.dyadic(1)) == 1).all()


def test_head_entropies_are_those_of_the_package() -> None:
    x = network().values
    trees = pa.Questionnaire().fit(x).trees_
    np.testing.assert_allclose(quantities._head_entropies(x, trees), pa.head_entropies(x, trees)["entropy"], rtol=1e-12)


def test_distance_by_hand() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 40))
    n = len(quantities.QUANTITIES)
    difference = np.concatenate(
        [np.arange(n) / 10.0, quantities.quantile_function(a) - quantities.quantile_function(b), [0.2, -0.2]]
    )
    expected = [i / 10 / q.unit for i, q in enumerate(quantities.QUANTITIES) if q.unit]
    got = dict(zip(distance.PARTS, distance.parts_of(difference)))
    # Mean difference of quantiles is Wasserstein's distance; 64 of them miss some of the tails of 40 points.
    assert got["heads"] == pytest.approx(wasserstein_distance(a, b) / 0.1, rel=0.05)
    assert got["spectrum"] == pytest.approx(2)
    expected += [got["heads"], 2.0]
    assert len(expected) == 10
    assert distance.distance_of(difference) == pytest.approx(np.sqrt(np.mean(np.square(expected))))
    counted = distance.counted_parts([difference[None], np.where(np.arange(len(difference)) == 0, np.nan, 0.0)[None]])
    assert counted.sum() == 9
    assert distance.distance_of(difference, counted) == pytest.approx(np.sqrt(np.mean(np.square(expected[1:]))))


# -- chance ------------------------------------------------------------------------------------------------------------


def test_all_assignments_are_tried_where_they_are_few() -> None:
    rng = np.random.default_rng(0)
    sides, everything = chance.side_weights(3, 2, paired=False, n_resamples=100, rng=rng)
    assert everything
    assert sides.shape == (10, 5)
    assert sides[0].tolist() == [1 / 3] * 3 + [-1 / 2] * 2
    assert {tuple(np.flatnonzero(row > 0)) for row in sides} == set(combinations(range(5), 3))
    signs, everything = chance.side_weights(3, 3, paired=True, n_resamples=8, rng=rng)
    assert everything
    assert len({tuple(row) for row in signs.tolist()}) == 8
    some, everything = chance.side_weights(20, 20, paired=False, n_resamples=100, rng=rng)
    assert not everything
    np.testing.assert_allclose(some.sum(1), 0, atol=1e-12)
    assert chance.least_p(6, 6, paired=True, n_resamples=1999) == 2 / 64
    assert chance.least_p(6, 6, paired=False, n_resamples=1999) == 2 / 924
    assert chance.least_p(3, 4, paired=False, n_resamples=1999) == 1 / 35
    assert chance.least_p(20, 20, paired=False, n_resamples=200) == 1 / 200
    # Of 2048 assignments 1999 are drawn: the one that is there can be the largest alone, its mirror image not drawn.
    assert chance.least_p(11, 11, paired=True, n_resamples=1999) == 1 / 1999


@pytest.mark.parametrize(("n_a", "n_b", "paired"), [(11, 11, True), (3, 3, False), (2, 5, False), (4, 4, True)])
def test_no_p_value_is_below_the_least_possible(n_a: int, n_b: int, paired: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = features(rng, n_a), features(rng, n_b, 5.0)  # far apart: no assignment comes near
    for seed in range(20):
        found = distance.chance_of(a, b, paired=paired, n_resamples=2000, seed=seed)
        assert found.distance_p is not None
        assert found.least_p is not None
        assert found.least_p <= found.distance_p
        assert n_a > 10 or found.distance_p == pytest.approx(found.least_p)  # all assignments are tried


def features(rng: np.random.Generator, n: int, shift: float = 0.0) -> NDArray[np.float64]:
    """Of n inputs, with dependent quantities, as those of real networks are."""
    size = len(quantities.QUANTITIES) + quantities.LEVELS + 12
    common = rng.standard_normal((n, 1))
    return 0.1 * (0.7 * common + 0.7 * rng.standard_normal((n, size))) + shift


@pytest.mark.parametrize("paired", [True, False])
def test_permutation_test_holds_its_level_and_finds_a_shift(paired: bool) -> None:
    rng = np.random.default_rng(1)

    def p(shift: float, seed: int) -> float:
        a, b = features(rng, 7), features(rng, 7, shift)
        if paired:
            text = features(rng, 7)  # what both share, such as a difficult text
            a, b = a + text, b + text
        found = distance.chance_of(a, b, paired=paired, n_resamples=200, seed=seed).distance_p
        assert found is not None
        return found

    null = np.array([p(0.0, i) for i in range(300)])
    # 15 rejections of 300 are expected at .05, 60 at .2; within three standard deviations.
    assert 4 <= (null <= 0.05).sum() <= 26
    assert 39 <= (null <= 0.2).sum() <= 81
    assert np.mean([p(0.2, i) <= 0.05 for i in range(40)]) > 0.8


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.2])
def test_intervals_of_distances_cover_the_distance_without_noise(shift: float) -> None:
    rng = np.random.default_rng(4)
    size = features(rng, 1).shape[1]
    true = float(distance.distance_of(np.full(size, shift)))
    hits, of = 0, 100
    for i in range(of):
        found = distance.chance_of(features(rng, 8, shift), features(rng, 8), paired=False, n_resamples=400, seed=i)
        assert found.distance_low is not None
        assert found.distance_high is not None
        hits += found.distance_low - 1e-12 <= true <= found.distance_high + 1e-12
    assert hits / of >= 0.88  # .95 is said; the standard error of this share is .022


@pytest.mark.parametrize("n", [4, 6, 12])
def test_intervals_cover_as_often_as_they_say(n: int) -> None:
    rng = np.random.default_rng(2)
    hits, of = 0, 500
    for i in range(of):
        low, high = distance.mean_interval(rng.standard_normal((n, 1)), 999, i)
        hits += int(low[0] <= 0 <= high[0])
    ceiling = min(0.95, 1 - 2.0 ** (1 - n))  # no bootstrap reaches beyond its inputs
    assert ceiling - 0.045 < hits / of < 0.98


def test_percentiles_are_widened_as_student_would() -> None:
    low, high = chance.percentiles(6)
    assert low + high == pytest.approx(100)
    assert chance.percentiles(10**6)[0] == pytest.approx(2.5, abs=1e-3)
    # Of normal bootstrap means the interval is Student's.
    from scipy.stats import norm

    assert -norm.ppf(low / 100) * np.sqrt(5 / 6) == pytest.approx(t.ppf(0.975, 5))


# -- the joint embedding -----------------------------------------------------------------------------------------------


def test_energy_and_neighbours_by_hand() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 2))
    d = np.abs(x[:, None] - x[None]).sum(2)
    first = np.arange(9) < 4
    got = joint.compared(d, first, np.zeros(9, int), n_resamples=99, seed=0)
    across, a, b = d[:4, 4:].mean(), d[:4, :4].mean(), d[4:, 4:].mean()
    assert got.energy == pytest.approx((2 * across - a - b) / (2 * across))
    own = [np.mean(first[np.argsort(d[i])[1:6]] == first[i]) for i in range(9)]
    assert got.own == pytest.approx(np.mean(own))
    assert got.by_chance == pytest.approx((4 * 3 + 5 * 4) / (9 * 8))


def test_labels_change_places_within_strata_only() -> None:
    first = np.array([True, True, False, False, True, False])
    strata = np.array([0, 0, 0, 1, 1, 1])
    labels = joint.shuffled_labels(first, strata, 500, np.random.default_rng(0))
    assert (labels[0] == first).all()
    assert (labels[:, :3].sum(1) == 2).all()
    assert (labels[:, 3:].sum(1) == 1).all()
    assert len(np.unique(labels, axis=0)) == 9
    tables_ = [Heads.of({"layer": layer, "head": range(len(layer))}, len(layer)) for layer in ([0, 1, 2, 3], [3, 5])]
    assert joint.depth_strata(tables_).tolist() == [0, 0, 1, 1, 0, 1]


def test_halves_of_one_network_are_told_apart_as_often_as_chance_would_and_other_heads_always() -> None:
    rng = np.random.default_rng(3)
    p_values = []
    for i in range(60):
        whole = network(i, 10, 10, 16, layers=1)
        order = rng.permutation(16)
        halves = networks.read_networks([whole.take_heads(order[:8]), whole.take_heads(order[8:])], None)
        found = joint.joint_of(halves, (10, 10, 8), "run", [1], {}, n_resamples=100, seed=i)
        p_values.append(found.pairs[0, 1].energy_p)
    # 3 of 60 are expected at .05 and 12 at .2; three standard deviations more would be 8 and 21.
    assert np.sum(np.array(p_values) <= 0.05) <= 8
    assert 3 <= np.sum(np.array(p_values) <= 0.2) <= 21
    other = pa.compare(network(0, 10, 10, 12), noise(0, 10, 10, 12), shared=True, n_draws=1, n_resamples=200)
    assert other.joint_pair(0, 1).energy_p <= 0.02
    assert other.joint_pair(0, 1).own > other.joint_pair(0, 1).by_chance


def test_a_third_network_does_not_change_what_may_change_places() -> None:
    a, b = (network(i, h=8, layers=4) for i in range(2))
    seen: list[list[int]] = []

    def told(tables_: Any) -> Any:
        seen.append(joint_strata(tables_).tolist())
        return joint_strata(tables_)

    joint_strata = joint.depth_strata
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "depth_strata", told)
        pa.compare(a, b, network(2, h=8, layers=1), names=list("abc"), shared=True, n_draws=1, n_resamples=100)
    assert seen == [[0, 0, 1, 1, 2, 2, 3, 3] * 2, [0] * 16, [0] * 16]


def test_scores_are_embedded_less_what_softmax_cannot_see() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 6, 5))
    rows = 10 * rng.standard_normal((6, 1, 5))
    found = pa.compare(x, 3 * (x + rows), shared=True, n_draws=1, n_resamples=100)
    assert found.joint_pair(0, 1).energy == pytest.approx(0, abs=1e-9)


def test_hidden_cells_of_log_weights_never_reach_an_exponential() -> None:
    seen = np.tril(np.ones((4, 4), bool))
    x = np.where(seen[:, :, None], np.log(attention_like(4, 4, 3, 0)), 777.0)
    one = pa.NetworkTensor(x, "logweights", visible=seen).without([0])
    other = pa.NetworkTensor(np.where(seen[:, :, None], x, 0), "logweights", visible=seen).without([0])
    assert one.meta["dropped"] == other.meta["dropped"]  # the suite turns warnings into errors
