"""`from_arrays`: every container that tools return, and clear words for those that are wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pyattnorg.capture import from_arrays

RNG = np.random.default_rng(0)
W = RNG.random((2, 3, 4, 5))  # layers, heads, queries, keys
W /= W.sum(-1, keepdims=True)
WANT = W.reshape(6, 4, 5).transpose(1, 2, 0)


def same(got: Any, want: NDArray[Any] = WANT, atol: float = 0) -> None:
    np.testing.assert_allclose(got.values, want, atol=atol)


@pytest.mark.parametrize(
    "data",
    [
        W, list(W), tuple(W), [w[None] for w in W], W[:, None], {"first": W[0], "second": W[1][None]}, W.tolist(),
        np.asfortranarray(W), W[:, :, ::-1, ::-1][:, :, ::-1, ::-1],
        SimpleNamespace(attentions=tuple(w[None] for w in W)),
    ],
)  # fmt: skip
def test_containers(data: Any) -> None:
    # jessevig/bertviz#107, #37; jerryji1993/DNABERT#89: the wrong container gives an obscure error
    got = from_arrays(data)
    same(got)
    assert got.kind == "weights"
    assert got.labels == ("L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2")


def test_one_layer_and_names() -> None:
    same(from_arrays(W[0]), W[0].transpose(1, 2, 0))
    assert from_arrays({"a.attn": W[0], "b.attn": W[1]}).heads.module == ("a.attn",) * 3 + ("b.attn",) * 3
    got = from_arrays((W[0], None, W[1]))  # transformers gives None for a layer without a map
    assert got.heads.layer.tolist() == [0, 0, 0, 2, 2, 2]
    got = from_arrays(W, queries=list("abcd"), keys=list("vwxyz"), heads={"layer": [5] * 6, "head": range(6)})
    assert got.queries == tuple("abcd")
    assert got.labels[-1] == "L5H5"


def test_layers_may_have_different_numbers_of_heads() -> None:
    assert from_arrays([W[0], W[1][:1]]).labels == ("L0H0", "L0H1", "L0H2", "L1H0")


def test_torch_of_any_kind() -> None:
    torch = pytest.importorskip("torch")
    for dtype, atol in ((torch.float64, 0), (torch.float32, 1e-7), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)):
        x = torch.tensor(W).to(dtype).requires_grad_()
        same(from_arrays(x), atol=atol)
        same(from_arrays(tuple(t[None] for t in x)), atol=atol)
    with pytest.raises(TypeError, match=r"data\[0\]: .*meta"):
        from_arrays([torch.empty(2, 3, 3, device="meta")])


def test_batches_and_layouts() -> None:
    both = np.stack([W, W[..., ::-1]], axis=1)
    same(from_arrays(both, example=0))
    same(from_arrays(both, example=-1), WANT[:, ::-1])
    same(from_arrays([b[1] for b in both]), WANT[:, ::-1])
    with pytest.raises(ValueError, match=r"data: got a batch of 2 examples, expected one; pick it with example=0 to 1"):
        from_arrays(both)
    with pytest.raises(ValueError, match=r"data\[0\]: got a batch of 2"):
        from_arrays(list(both))
    with pytest.raises(ValueError, match=r"example: got 2, data has 2"):
        from_arrays(both, example=2)


@given(st.permutations("lbhqk"))
def test_any_order_of_axes(order: list[str]) -> None:
    x = np.stack([W, W[..., ::-1]], axis=1).transpose(["lbhqk".index(c) for c in order])
    same(from_arrays(x, layout="".join(order), example=0))


def test_axes_may_be_left_out() -> None:
    same(from_arrays(WANT, layout="qkh"))
    same(from_arrays(W[0, 0], layout="qk"), W[0, 0][:, :, None])
    same(from_arrays(list(W.transpose(0, 2, 3, 1)), layout="qkh"))


def test_masked_scores() -> None:
    scores = np.log(W)
    scores[..., 3, 4] = -np.inf
    scores[..., 0, 4] = np.finfo(np.float64).min
    got = from_arrays(scores, "scores")
    assert got.visible is not None
    assert not got.visible_cells()[3, 4].any()
    assert not got.visible_cells()[0, 4].any()
    assert got.visible_cells().sum() == (20 - 2) * 6
    visible = np.tri(4, 5, dtype=bool)
    assert np.array_equal(from_arrays(W, visible=visible).visible_cells()[:, :, 0], visible)


@pytest.mark.parametrize(
    ("data", "options", "error", "said"),
    [
        ((), {}, ValueError, "data: got an empty tuple.*sdpa"),
        ([], {}, ValueError, "data: got an empty list"),
        ([None, None], {}, ValueError, "data: got an empty list"),
        (SimpleNamespace(attentions=None), {}, ValueError, "data: its attentions are None"),
        (np.float32(3), {}, ValueError, r"data: got shape \(\)"),
        (W[0, 0], {}, ValueError, r"data: got shape \(4, 5\), expected \(heads, q, k\)"),
        ([W[0, 0]], {}, ValueError, r"data\[0\]: got shape \(4, 5\)"),
        (W[None, None], {}, ValueError, r"data: got shape \(1, 1, 2, 3, 4, 5\)"),
        (W[:0], {}, ValueError, "no empty axis"),
        ([W[0], W[0][:, :3]], {}, ValueError, "layer 0: 4x5, layer 1: 3x5"),
        ({"enc": W[0], "dec": W[0][:, :3]}, {}, ValueError, "enc: 4x5, dec: 3x5"),
        (W * 3 - 1, {}, ValueError, "kind: got 'weights' and numbers from .*kind='scores'"),
        (W, {"kind": "probabilities"}, ValueError, "kind: got 'probabilities'"),
        (W, {"layout": "lhqq"}, ValueError, "layout: got 'lhqq'"),
        (W, {"layout": "hqk"}, ValueError, "layout: got 'hqk' for data of shape"),
        (list(W), {"layout": "lhqk"}, ValueError, "layout"),
        (W, {"queries": ["a"]}, ValueError, r"queries: got 1 name\(s\)"),
        ("text", {}, TypeError, "data: got"),
        (None, {}, TypeError, "data: got"),
        (np.where(np.eye(4, 5) > 0, np.nan, W), {}, ValueError, "NaN"),
    ],
)
def test_refusals(data: Any, options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        from_arrays(data, **options)
    assert "\n" not in str(raised.value)


def test_axes_in_another_order_are_noticed() -> None:
    weights = np.random.default_rng(0).random((5, 7, 3))
    weights /= weights.sum(1, keepdims=True)
    with pytest.raises(ValueError, match=r"^data: read as .* say layout='qkh'"):
        from_arrays(weights)
    network = from_arrays(weights, layout="qkh")
    assert network.shape == (5, 7, 3)
    assert np.array_equal(network.values, weights)
    assert from_arrays(weights.transpose(2, 0, 1)).shape == (5, 7, 3)
