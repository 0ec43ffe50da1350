"""The network tensor: what it keeps, what it hides, how its heads are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pyattnorg as pa
from pyattnorg.head_table import Heads
from pyattnorg.visibility import fill_invisible

X = np.random.default_rng(0).standard_normal((5, 6, 4))
CAUSAL = np.tri(5, 6, dtype=bool)
SENTINELS = [-np.inf, float(np.finfo(np.float32).min), -1e4, -100.0, np.nan, np.inf]


def _heads(n: int = 4) -> dict[str, Any]:
    return {"layer": np.arange(n) // 2, "head": np.arange(n) % 2}


# -- what it keeps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["scores", "weights", "logweights"])
def test_values_and_names(kind: Any) -> None:
    network = pa.NetworkTensor(X, kind, heads=_heads(), queries=list("abcde"), keys=list("uvwxyz"), meta={"m": 1})
    assert network.shape == (5, 6, 4)
    assert len(network) == 4
    assert np.array_equal(network.values, X)
    assert network.labels == tuple(network) == ("L0H0", "L0H1", "L1H0", "L1H1")
    assert network.queries == tuple("abcde")
    assert network.keys == tuple("uvwxyz")
    assert network.meta == {"m": 1}
    assert network.visible is None
    assert network.visible_cells().shape == X.shape
    assert network.visible_cells().all()
    assert network.index("L1H0") == 2
    assert np.array_equal(network["L1H1"], X[:, :, 3])
    assert repr(network) == f"NetworkTensor({kind}, 5 queries x 6 keys x 4 heads of 2 layer(s))"
    assert network.filled() is network


@pytest.mark.parametrize(
    ("dtype", "kept"), [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), (">f4", "f4"), ("i4", "f8"), ("?", "f8")]
)
def test_dtypes(dtype: str, kept: str) -> None:
    network = pa.NetworkTensor(np.rint(X).astype(dtype))
    assert network.values.dtype == kept
    assert np.array_equal(network.values, np.rint(X).astype(dtype))


def test_nothing_in_it_can_be_written() -> None:
    visible = CAUSAL.copy()
    network = pa.NetworkTensor(X.copy(), visible=visible)
    visible[0] = True
    assert not network.visible_cells()[0, 1].any()
    for array in (network.values, network.visible, network["L0H0"]):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
    with pytest.raises(AttributeError):
        network.kind = "weights"  # type: ignore[misc]


def test_it_does_not_change_with_the_array_it_was_made_of() -> None:
    values = X.copy()
    network = pa.NetworkTensor(values)
    values[...] = np.nan
    assert np.array_equal(network.values, X)


def test_it_does_not_change_with_the_tables_it_was_made_of() -> None:
    meta, heads, queries = {"a": 1}, {"head": np.arange(4)}, list("abcde")
    network = pa.NetworkTensor(X, meta=meta, heads=heads, queries=queries)
    meta["a"], heads["head"][0], queries[0] = 2, 7, "z"
    assert network.meta == {"a": 1}
    assert network.labels[0] == "L0H0"
    assert network.queries == tuple("abcde")


def test_heads_by_label_or_index() -> None:
    network = pa.NetworkTensor(X, visible=np.random.default_rng(1).random(X.shape) < 0.5, heads=_heads())
    some = network.take_heads(["L1H1", "L0H0"])
    assert some.labels == ("L1H1", "L0H0")
    assert np.array_equal(some.values, X[:, :, [3, 0]])
    assert np.array_equal(some.visible_cells(), network.visible_cells()[:, :, [3, 0]])
    assert network.take_heads([3, 0]).labels == some.labels
    assert pa.NetworkTensor(X, visible=CAUSAL).take_heads([1]).visible_cells().shape == (5, 6, 1)
    with pytest.raises(KeyError, match="no head 'L7H0'; this network has 4"):
        network.index("L7H0")
    with pytest.raises(ValueError, match=r"^which: got no heads"):
        network.take_heads([])


def test_table_of_heads() -> None:
    heads = Heads.of({"layer": [0, 0, 1], "head": [0, 1, 0], "group": ["text", "text", "vision"]}, 3)
    assert heads.labels == ("text.L0H0", "text.L0H1", "vision.L1H0")
    assert heads.kv_group.tolist() == [0, 1, 0]
    assert heads.take([2]).labels == ("L1H0",)  # one group alone needs no name
    assert Heads.of(heads, 3) == heads == Heads.of(heads.to_dict(), 3)
    assert Heads.of(None, 2).labels == ("L0H0", "L0H1")
    assert len(Heads.of(None, 0)) == 0
    with pytest.raises(ValueError, match=r"^heads: unknown column\(s\) \['depth'\]"):
        Heads.of({"depth": [1]}, 1)
    with pytest.raises(ValueError, match=r"^heads: column 'layer' has 2 entries, the tensor has 3 heads"):
        Heads.of({"layer": [0, 1]}, 3)


# -- what it hides ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", ["mean", "floor"])
@pytest.mark.parametrize("kind", ["scores", "weights", "logweights"])
@pytest.mark.parametrize("per_head", [False, True])
def test_what_stands_in_invisible_cells_is_never_used(kind: Any, masked: Any, per_head: bool) -> None:
    visible = np.random.default_rng(2).random(X.shape) < 0.6 if per_head else CAUSAL
    seen = np.broadcast_to(visible if per_head else visible[:, :, None], X.shape)
    filled = [
        pa.NetworkTensor(np.where(seen, X, s), kind, visible=visible).filled(masked).values.tobytes()
        for s in (0.0, *SENTINELS)
    ]
    assert len(set(filled)) == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("sentinel", ["-inf", "lowest"])
@pytest.mark.parametrize("kind", ["scores", "logweights"])
def test_the_lowest_number_marks_masked_cells_where_no_mask_is_given(kind: Any, sentinel: str, dtype: Any) -> None:
    low = dtype(-np.inf) if sentinel == "-inf" else np.finfo(dtype).min
    network = pa.NetworkTensor(np.where(CAUSAL[:, :, None], X.astype(dtype), low), kind)
    assert np.array_equal(network.visible_cells(), np.broadcast_to(CAUSAL[:, :, None], X.shape))
    assert np.isfinite(network.filled().values).all()
    assert np.abs(network.filled().values).max() <= np.abs(X.astype(dtype)).max()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("sentinel", ["-inf", "lowest"])
def test_the_lowest_number_of_torch_dtypes_marks_masked_cells(dtype: str, sentinel: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X).to(getattr(torch, dtype))
    x[~torch.tensor(CAUSAL)] = -torch.inf if sentinel == "-inf" else torch.finfo(x.dtype).min
    network = pa.NetworkTensor(x)
    assert np.array_equal(network.visible_cells(), np.broadcast_to(CAUSAL[:, :, None], X.shape))


def test_ordinary_numbers_are_no_masks() -> None:
    for kind in ("weights", "logweights"):
        assert pa.NetworkTensor(np.where(X > 1, -1e4, X), kind).visible is None  # type: ignore[arg-type]
    with pytest.warns(RuntimeWarning, match="looks like a mask"):
        assert pa.NetworkTensor(np.where(X > 1, -1e4, X)).visible is None
    with pytest.raises(ValueError, match=r"^values: "):
        pa.NetworkTensor(np.where(X > 1, -np.inf, X), "weights")


def test_mean_and_floor_are_those_of_the_row_and_head() -> None:
    visible = np.random.default_rng(3).random(X.shape) < 0.6
    visible[2, :, 1] = False  # a head in which query 2 sees nothing
    visible[1, :, :] = visible[:, 0, :] = True
    visible[2, :, 1] = False
    mean, floor = (pa.NetworkTensor(X, visible=visible).filled(m).values for m in ("mean", "floor"))  # type: ignore[arg-type]
    for q, h in np.ndindex(5, 4):
        row = visible[q, :, h]
        source = X[q, row, h] if row.any() else X[:, :, h][visible[:, :, h]]
        assert mean[q, ~row, h] == pytest.approx(np.full((~row).sum(), source.mean()), abs=1e-14)
        assert floor[q, ~row, h].tolist() == [source.min()] * (~row).sum()
        assert np.array_equal(mean[q, row, h], X[q, row, h])
    weights = pa.NetworkTensor(X, "weights", visible=visible).filled().values
    assert np.array_equal(weights, np.where(visible, X, 0))


def test_raw_is_what_the_model_computed() -> None:
    network = pa.NetworkTensor(X, visible=CAUSAL, meta={"raw": True})
    assert np.array_equal(network.filled("raw").values, X[:, :5])
    with pytest.raises(ValueError, match=r"^masked: 'raw' needs the scores from before masking"):
        pa.NetworkTensor(X, visible=CAUSAL).filled("raw")
    with pytest.raises(ValueError, match=r"^values: "):
        pa.NetworkTensor(np.where(CAUSAL[:, :, None], X, np.nan), visible=CAUSAL, meta={"raw": True}).filled("raw")
    with pytest.raises(ValueError, match=r"^masked: got 'zero'"):
        network.filled("zero")  # type: ignore[arg-type]


def test_raw_logweights_do_not_exist() -> None:
    with pytest.raises(ValueError, match=r"^masked: 'raw'"):
        pa.NetworkTensor(X, "logweights", visible=CAUSAL).filled("raw")


def test_what_nothing_can_see_is_left_out_and_said() -> None:
    visible = CAUSAL.copy()
    visible[3] = False
    visible[:, 1] = False
    network = pa.NetworkTensor(X, visible=visible, queries=list("abcde"), keys=list("uvwxyz"), heads=_heads())
    filled = network.filled()
    assert filled.shape == (4, 4, 4)
    assert filled.queries == tuple("abce")
    assert filled.keys == tuple("uwxy")
    assert filled.meta["left_out"] == {"queries": [3], "keys": [1, 5]}
    assert filled.labels == network.labels
    rows, columns = [0, 1, 2, 4], [0, 2, 3, 4]
    assert np.array_equal(filled.visible_cells()[:, :, 0], visible[np.ix_(rows, columns)])
    assert filled.meta["masked"] == "mean"
    assert filled.filled("floor") is filled  # what was filled once is not filled again
    assert np.array_equal(np.isnan(filled.shown(0)), ~visible[np.ix_(rows, columns)])
    organized = pa.organize(network)
    assert organized.network.meta["left_out"] == {"queries": [3], "keys": [1, 5]}
    assert "left out" in organized.summary()


def test_masks_in_other_forms() -> None:
    for mask in (CAUSAL, CAUSAL.astype(int), CAUSAL.astype(float), CAUSAL.tolist()):
        assert np.array_equal(
            pa.NetworkTensor(X, visible=mask).visible_cells(), np.broadcast_to(CAUSAL[:, :, None], X.shape)
        )
    assert pa.NetworkTensor(X, visible=np.ones((5, 6), bool)).visible is None
    assert "visible" in repr(pa.NetworkTensor(X, visible=CAUSAL))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": X[0]}, r"^values: got shape \(6, 4\)"),
        ({"values": X[:0]}, r"^values: got shape \(0, 6, 4\)"),
        ({"kind": "attention"}, r"^kind: got 'attention'"),
        ({"visible": np.ones((6, 5), bool)}, r"^visible: got shape \(6, 5\)"),
        ({"visible": CAUSAL * 2}, r"^visible: expected booleans"),
        ({"visible": np.where(CAUSAL, 0, -np.inf)}, r"^visible: expected booleans"),
        ({"queries": ["a"]}, r"^queries: got 1 name\(s\), the tensor has 5"),
        ({"keys": "abcdef"}, r"^keys: "),
        ({"heads": {"layer": [0]}}, r"^heads: column 'layer' has 1 entries"),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pa.NetworkTensor(**({"values": X} | arguments))


@pytest.mark.parametrize("kind", ["scores", "weights", "logweights"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_in_visible_cells_are_found(kind: Any, bad: float) -> None:
    x = X.copy()
    x[4, 2, 3] = bad
    for visible in (None, CAUSAL):
        with pytest.raises(ValueError, match=rf"^values: 1 value.*\({bad}\) at index \(4, 2, 3\)"):
            pa.NetworkTensor(x, kind, visible=visible)
    x = X.copy()
    x[0, 4, 3] = bad  # invisible
    assert pa.NetworkTensor(x, kind, visible=CAUSAL).visible is not None


def test_a_network_that_sees_nothing() -> None:
    with pytest.raises(ValueError, match=r"^visible: no cell is visible"):
        pa.NetworkTensor(X, visible=np.zeros((5, 6), bool)).filled()
    with pytest.raises(ValueError, match=r"^visible: no cell is visible"):
        pa.organize(np.full((3, 3, 2), -np.inf))


# -- filling ----------------------------------------------------------------------------------------------------------


def test_fill_falls_back_to_the_slice_and_then_to_everything() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    seen = np.zeros(x.shape, bool)
    seen[0, 0, 0], seen[1, 1, 1], seen[1, 2, 1] = True, True, True
    filled: NDArray[Any] = fill_invisible(x, seen, "mean")
    assert filled[0, 1, 0] == 0  # its row
    assert filled[1, 2, 0] == 0  # its head
    assert filled[0, 0, 1] == (17 + 21) / 2
    assert filled[0, 0, 2] == (0 + 17 + 21) / 3  # a head of which nothing is seen
    assert fill_invisible(x, seen, "floor")[0, 0, 3] == 0
    assert np.array_equal(fill_invisible(x, seen, "zero"), np.where(seen, x, 0))
    assert filled.dtype == x.dtype
    assert fill_invisible(x.astype(np.float32), seen, "mean").dtype == np.float32


@pytest.mark.parametrize("added", [-1e9, -1e4, -65504.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masks_of_old_models_are_warned_of(added: float, dtype: Any) -> None:
    scores = np.random.default_rng(0).normal(size=(6, 6, 3))
    scores[np.triu_indices(6, 1)] += added
    with pytest.warns(RuntimeWarning, match="^values: 45 scores are up to .* looks like a mask; pass visible="):
        pa.NetworkTensor(scores.astype(dtype))


def test_what_is_no_mask_does_not_warn() -> None:
    scores = np.random.default_rng(0).normal(size=(6, 6, 3))
    lower = np.tril(np.ones((6, 6), bool))
    pa.NetworkTensor(scores - 1e6)  # all of them
    pa.NetworkTensor(scores * 1e4)  # no gap
    pa.NetworkTensor(scores * 1e30)  # as large on either side
    pa.NetworkTensor(np.where(lower[:, :, None], scores, -np.inf))
    pa.NetworkTensor(np.where(lower[:, :, None], scores, -1e9), visible=lower)
    pa.NetworkTensor(np.where(lower[:, :, None], scores, -1e9), kind="logweights")
