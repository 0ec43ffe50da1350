"""Capture of plain PyTorch: torch.nn's attention and fast path, fused attention in user code, softmax written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
import torch.nn.functional as F
from capture_models import Attention, Fused, Written, numbers, softmax
from torch import Tensor, nn

from pyattnorg.capture import CaptureError, NoAttentionError, UnsupportedAttentionError, capture, capturing

X = numbers(3, 7, 32)


def by_hand(module: Attention, example: int) -> tuple[Any, Any]:
    """(scores, weights) of a module, (queries, keys, heads), from the formula."""
    with torch.no_grad():
        q, k, _ = (t[example].double() for t in module.split(X))
        scores = (q @ k.transpose(-2, -1) / 8**0.5).permute(1, 2, 0).numpy()
    visible = np.tri(7, dtype=bool)[:, :, None] if module.causal else None
    return scores, softmax(scores, visible)


# -- attention in user code -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cls", [Fused, Written])
def test_user_code_gives_the_formula(cls: type[Attention], causal: bool) -> None:
    # facebookresearch/xformers#1190, pytorch/pytorch#119811: fused kernels return no weights
    # Dao-AILab/flash-attention#902: never what a kernel calls its probabilities
    module = cls(causal)
    got = capture(nn.Sequential(module, nn.LayerNorm(32)), X, example=2, verify=True)
    scores, weights = by_hand(module, 2)
    np.testing.assert_allclose(got.weights.values, weights, atol=1e-6)
    seen = got.scores.visible_cells()
    assert np.array_equal(seen[:, :, 0], np.tri(7, dtype=bool) if causal else np.ones((7, 7), bool))
    np.testing.assert_allclose(got.scores.values[seen], scores[seen], atol=1e-5)
    if causal and cls is Fused:
        np.testing.assert_allclose(got.scores.filled("raw").values, scores, atol=1e-5)


@pytest.mark.parametrize("fill", [-100.0, -1e4, -1e9, -float("inf"), torch.finfo(torch.float32).min])
def test_every_sentinel_is_a_mask(fill: float) -> None:
    module = Written(causal=True)
    module.fill = fill
    got = capture(module, X, example=0)
    assert np.array_equal(got.weights.visible, np.tri(7, dtype=bool))
    assert got.report[0]["mask"] == "boolean"
    assert (got.scores.values[~got.scores.visible_cells()] == -np.inf).all()  # one mark, whatever the sentinel was


class Masked(Attention):
    """Causal attention, masked in one of the ways seen in the wild."""

    def __init__(self, way: str) -> None:
        super().__init__(causal=True)
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = q @ k.transpose(-2, -1) / 8**0.5
        low = torch.zeros(past.shape).masked_fill(~past, torch.finfo(torch.float16).min)
        match self.way:
            case "add":
                scores = scores + low
            case "add in place":
                scores += low
            case "subtract":
                scores = scores - 10000.0 * (1 - past.float())
            case "where":
                scores = torch.where(past, scores, torch.tensor(-1e4))
            case "where of a tensor":
                scores = scores.where(past, torch.finfo(torch.float32).min)
            case "fill then scale":
                scores = scores.masked_fill(~past, -1e5) * 1.0
            case "fill a flat view":
                scores = scores.view(-1, 7, 7).masked_fill_(~past, -1e4).view(scores.shape)
            case "bias and mask":
                scores = scores + (low + 0.25 * torch.arange(7.0))
            case "unseen":  # no mask is applied to the scores: they are copied into masked ones
                copy = torch.full_like(scores, -torch.inf)
                scores = scores + 0.0 * torch.where(past, copy.new_zeros(()), copy.new_ones(())) + low.double().float()
            case "twice":
                scores = scores + torch.finfo(torch.float32).min * (~past) + torch.finfo(torch.float32).min * (~past)
            case "pad":  # to a length that some kernel likes
                scores = F.pad(scores.masked_fill(~past, -1e4), (0, 1), value=-torch.inf)
                return self.join(scores.softmax(dim=-1)[..., :7] @ v)
        return self.join(F.dropout(scores.softmax(dim=-1), 0.1, self.training) @ v)


@pytest.mark.parametrize(
    "way",
    ["add", "add in place", "subtract", "where", "where of a tensor", "fill then scale", "fill a flat view",
     "bias and mask", "unseen", "twice", "pad"],
)  # fmt: skip
def test_masks_are_read_where_they_are_applied(way: str) -> None:
    got = capture(Masked(way), X, example=1, verify=True)
    assert np.array_equal(got.weights.visible, np.tri(7, dtype=bool))
    scores, weights = by_hand(Masked(way), 1)
    if way == "bias and mask":
        scores = scores + 0.25 * np.arange(7.0)[None, :, None]
        weights = softmax(scores, np.tri(7, dtype=bool)[:, :, None])
    np.testing.assert_allclose(got.weights.values, weights, atol=1e-6)
    seen = got.scores.visible_cells()
    np.testing.assert_allclose(got.scores.values[seen], scores[seen], atol=1e-5)


def test_a_fill_that_hides_nothing_is_no_mask() -> None:
    class Weak(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            scores = (q @ k.transpose(-2, -1)) * 0 - 100.0
            scores = scores.masked_fill(torch.eye(7).bool(), -100.0)
            return self.join(scores.softmax(-1) @ v)

    got = capture(Weak(), X, example=0)
    assert got.weights.visible is None
    np.testing.assert_allclose(got.weights.values, 1 / 7, atol=1e-6)


def test_a_large_shift_of_whole_rows_is_no_mask() -> None:
    class Shifted(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            scores = q @ k.transpose(-2, -1) + 500.0
            scores = scores - scores.amax(-1, keepdim=True)
            return self.join((scores - 1000.0).softmax(-1) @ v)

    assert capture(Shifted(), X, example=0).weights.visible is None


@pytest.mark.parametrize("fused", [True, False])
def test_a_query_that_sees_nothing_has_no_visible_cell(fused: bool) -> None:
    class Padded(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            mask = torch.ones(7, 7, dtype=torch.bool)
            mask[2] = False
            if fused:
                return self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).nan_to_num())
            scores = (q @ k.transpose(-2, -1)).masked_fill(~mask, torch.finfo(torch.float32).min)
            return self.join(scores.softmax(-1) @ v)  # softmax makes that row uniform

    got = capture(Padded(), X, example=0)
    assert got.weights.visible is not None
    assert got.weights.visible.sum(1).tolist() == [7, 7, 0, 7, 7, 7, 7]
    assert (got.weights.values[2] == 0).all()
    assert got.weights.filled().shape == (6, 7, 4)


def test_causal_with_fewer_queries_than_keys_is_what_torch_ran() -> None:
    # pytorch/pytorch#103082, #144858; meta-llama/llama#900: is_causal is aligned to the top left, so that a decoding
    # step sees key 0 only. The capture must say so, since that is the model's output.
    class Step(Fused):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            return F.scaled_dot_product_attention(q[:, :, -2:], k, v, is_causal=True)

    got = capture(Step(), X, example=0)
    assert got.weights.visible is not None
    assert got.weights.visible.tolist() == [[True] + [False] * 6, [True] * 2 + [False] * 5]
    assert got.report[0]["output_error"] < 1e-6


def test_scores_under_an_additive_mask_are_those_from_before_it() -> None:
    class Padded(Fused):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            mask = torch.zeros(7, 7).masked_fill(torch.ones(7, 7).triu(1).bool(), torch.finfo(torch.float32).min)
            return self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))

    got = capture(Padded(), X, example=1)
    assert np.array_equal(got.scores.visible, np.tri(7, dtype=bool))
    np.testing.assert_allclose(got.scores.filled("raw").values, by_hand(Padded(), 1)[0], atol=1e-5)


def test_what_the_model_does_in_place_afterwards_changes_nothing() -> None:
    class InPlace(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            scores = q @ k.transpose(-2, -1) / 8**0.5
            weights = scores.softmax(-1)
            scores.zero_()
            out = self.join(weights @ v)
            weights.zero_()
            return out

    got = capture(InPlace(), X, example=1)
    scores, weights = by_hand(InPlace(), 1)
    np.testing.assert_allclose(got.scores.values, scores, atol=1e-5)
    np.testing.assert_allclose(got.weights.values, weights, atol=1e-6)


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_scale_and_bias_are_taken_from_the_call(scale: float | None) -> None:
    # T5, ALiBi, relative bias (A29): q k^T / sqrt(d) is not what the model used
    bias = numbers(4, 7, 7, seed=3)

    class Scaled(Fused):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            return self.join(F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale))

    got = capture(Scaled(), X, example=1)
    want = by_hand(Scaled(), 1)[0] * 8**0.5 * (8**-0.5 if scale is None else scale) + bias.permute(1, 2, 0).numpy()
    np.testing.assert_allclose(got.scores.values, want, atol=1e-5)
    assert got.scores.visible is None


def test_grouped_queries_in_one_call() -> None:
    class Grouped(Fused):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            return self.join(F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True))

    got = capture(Grouped(), X, example=0)
    assert got.scores.heads.kv_group.tolist() == [0, 0, 1, 1]
    assert got.report[0]["output_error"] < 1e-6


# -- shapes -----------------------------------------------------------------------------------------------------------


class Single(Attention):
    """One head, no head axis."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        out: Tensor = self.out(torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v))
        return out


class Folded(Attention):
    """Heads folded into the batch axis, as older libraries do; products that add to something."""

    num_heads = 4

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.reshape(-1, x.shape[1], 8) for t in self.split(x))
        scores = torch.baddbmm(torch.zeros(1), q, k.transpose(1, 2), alpha=8**-0.5)
        return self.join(torch.bmm(F.softmax(scores, dim=2), v).view(-1, 4, x.shape[1], 8))


class Einsum(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 4, 8).unbind(2)
        weights = (torch.einsum("bqhd,bkhd->bhqk", q, k) / 8**0.5).softmax(-1)
        out: Tensor = self.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))
        return out


class Turned(Attention):
    """Values on the left: v^T p^T."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        weights = torch.softmax(q @ k.mT / 8**0.5, -1)
        return self.join((v.mT @ weights.transpose(-1, -2)).mT)


class WithModule(Attention):
    """A softmax module, dropout in training, and a tuple as output (meta-pytorch/captum#1215: hooks want a tensor)."""

    def __init__(self) -> None:
        super().__init__()
        self.soft, self.drop = nn.Softmax(dim=-1), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Any:
        q, k, v = self.split(x)
        weights = self.drop(self.soft(q @ k.transpose(-2, -1) * 8**-0.5))
        return {"out": (self.join(weights @ v), None), "maps": [weights]}


class OwnSoftmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)


class WithOwnModule(Attention):
    """A softmax in a module of its own class: the attention is the module around it."""

    num_heads = 4

    def __init__(self) -> None:
        super().__init__()
        self.normalise = OwnSoftmax()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.join(self.normalise(q @ k.transpose(-2, -1) * 8**-0.5) @ v)


@pytest.mark.parametrize("cls", [Folded, Einsum, Turned, WithModule, WithOwnModule])
def test_heads_in_any_place(cls: type[Attention]) -> None:
    got = capture(cls(), X, example=1, verify=True)
    np.testing.assert_allclose(got.weights.values, by_hand(cls(), 1)[1], atol=1e-6)
    assert got.report[0]["module"] == ""


@pytest.mark.parametrize("cls", [Folded, Einsum, Turned, Single])
def test_a_batch_of_one(cls: type[Attention]) -> None:
    got = capture(cls(), X[:1])
    assert got.weights.shape == (7, 7, 1 if cls is Single else 4)
    np.testing.assert_allclose(got.weights.values.sum(1), 1, atol=1e-5)


def test_layers_without_numbers_are_numbered_by_call() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Fused(), Written()

        def forward(self, x: Tensor) -> Any:
            return self.second(self.first(x))

    got = capture(Net(), X, example=0)
    assert got.scores.labels == tuple(f"L{i}H{h}" for i in range(2) for h in range(4))
    assert got.scores.heads.module == ("first",) * 4 + ("second",) * 4
    assert [row["backend"] for row in got.report] == ["sdpa", "softmax"]


def test_a_model_without_modules_for_its_layers_is_numbered_by_call() -> None:
    class Net(Attention):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                q, k, v = self.split(x)
                x = self.join(F.scaled_dot_product_attention(q, k, v))
            return x

    assert capture(Net(), X, example=0).scores.heads.layer.tolist() == [0] * 4 + [1] * 4 + [2] * 4


class Block(nn.Module):
    def __init__(self, chunks: bool = False) -> None:
        super().__init__()
        self.attention, self.chunks = Fused(), chunks

    def forward(self, x: Tensor) -> Any:
        if self.chunks:
            return torch.cat([self.attention(part) for part in x.split(4, 1)], 1)
        for _ in range(3):
            x = self.attention(x)
        return x


def test_a_module_that_is_called_again_is_another_layer_but_not_on_a_chunk() -> None:
    got = capture(nn.Sequential(Block()), X, example=0)
    assert got.scores.heads.layer.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    # tokens in three pieces that do not see each other: no map of all tokens, and pieces are not heads
    with pytest.raises(
        UnsupportedAttentionError, match=r"'0\.attention': gives several maps in one call \(4x4, 4x4, 4x4\)"
    ):
        capture(nn.Sequential(Block(chunks=True)), numbers(1, 12, 32))


def test_outputs_may_be_dataclasses() -> None:
    @dataclass
    class Out:
        x: Tensor

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Fused()

        def forward(self, x: Tensor) -> Out:
            return Out(self.attention(x))

    got = capture(Net(), X, example=0, keep=("weights", "output"), verify=True)
    assert torch.equal(got.output.x, Net().attention(X)) or isinstance(got.output, Out)


def test_stages_of_several_sizes_are_several_groups() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Fused() for _ in range(4)])

        def forward(self, x: Tensor) -> Tensor:
            for i, layer in enumerate(self.layers):
                x = layer(x if i < 2 else x[:, :4])
            return x

    got = capture(Net(), X, example=0)
    assert {g.shape: g.layers for g in got.groups.values()} == {(7, 7, 8): (0, 1), (4, 4, 8): (2, 3)}
    with pytest.raises(CaptureError, match=r"2 groups"):
        _ = got.weights


# -- what is not attention, or not supported --------------------------------------------------------------------------


class Router(nn.Module):
    """Softmaxes that are none: of a linear layer, of a product with a parameter, of a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts, self.slots = (
            nn.Linear(32, 7),
            nn.Parameter(torch.ones(7, 32)),
            nn.Parameter(torch.ones(32, 7)),
        )

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.softmax(self.gate(x), -1) @ self.experts
        mixed = mixed + torch.softmax(x @ self.slots, -1) @ self.experts
        mixed = mixed + torch.softmax(x @ self.experts.t(), -1) @ self.experts
        return torch.softmax(mixed, -1)


def test_a_softmax_is_not_taken_for_attention() -> None:
    with pytest.raises(NoAttentionError, match=r"no attention was seen in Router.*no product of queries and keys"):
        capture(Router(), X, example=0)
    got = capture(nn.Sequential(Fused(), Router()), X, example=0)
    assert len(got.report) == 1


def test_a_map_that_weighs_nothing_is_not_attention() -> None:
    class Similarity(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, _ = self.split(x)
            return torch.softmax(q @ k.transpose(-2, -1), -1).amax(-1)

    with pytest.raises(NoAttentionError, match=r"weighs no values"):
        capture(Similarity(), X, example=0)


def test_a_map_that_pools_over_queries_is_not_attention() -> None:
    class Slots(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            return self.join(torch.softmax(q @ k.transpose(-2, -1), -1).transpose(-2, -1) @ v)

    with pytest.raises(NoAttentionError, match=r"weighs no values"):
        capture(nn.Sequential(Slots()), X, example=0)


class Channels(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.transpose(-2, -1) for t in self.split(x))
        return self.join((torch.softmax(q @ k.transpose(-2, -1), -1) @ v).transpose(-2, -1))


class OverQueries(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.join(torch.softmax(k @ q.transpose(-2, -1), -2).transpose(-2, -1) @ v)


class Kernel(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.join(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0])


class WrongHeads(Fused):
    num_heads = 7


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (Channels, "Channels.*8 x 8, and cannot tell tokens from channels"),
        (OverQueries, "OverQueries.*another axis"),
        (Kernel, "Kernel.*_scaled_dot_product_flash_attention_for_cpu"),
        (WrongHeads, r"WrongHeads.*7 heads"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(cls: type[Attention], said: str) -> None:
    x = numbers(3, 8, 32)
    model = nn.Sequential(cls(), nn.Linear(32, 2))
    with torch.no_grad():
        before = model(x)
    with pytest.raises(UnsupportedAttentionError, match=said) as error:
        capture(model, x, example=0)
    assert "\n" not in str(error.value)
    with torch.no_grad(), capturing(model, example=0) as tape:
        assert torch.equal(model(x), before)  # the model never notices
    with pytest.raises(UnsupportedAttentionError, match=said):
        tape.capture()


def test_channels_are_no_tokens() -> None:
    with pytest.raises(UnsupportedAttentionError, match=r"Channels.*8 x 8 channels"):
        capture(Channels(), numbers(1, 11, 32))


# -- torch.nn ---------------------------------------------------------------------------------------------------------


def mha_maps(module: nn.MultiheadAttention, *args: Tensor, example: int, **options: Any) -> Any:
    with torch.no_grad():
        maps = module(*args, need_weights=True, average_attn_weights=False, **options)[1]
    return maps[example].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention_per_head(batch_first: bool, need_weights: bool) -> None:
    # pytorch/pytorch#82919, #128413, #132700: weights are averaged over heads, or not there
    torch.manual_seed(0)
    module = nn.MultiheadAttention(32, 4, batch_first=batch_first).eval()
    x = X if batch_first else X.transpose(0, 1)
    got = capture(module, {"query": x, "key": x, "value": x, "need_weights": need_weights}, example=2, verify=True)
    np.testing.assert_allclose(got.weights.values, mha_maps(module, x, x, x, example=2), atol=1e-6)
    assert got.report[0]["backend"] == "mha"
    assert got.report[0]["output_error"] < 1e-5


@pytest.mark.parametrize("padding", [None, "bool", "float"])
@pytest.mark.parametrize("mask", [None, "2d bool", "2d float", "3d bool", "causal hint"])
def test_multihead_attention_masks(mask: str | None, padding: str | None) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    future = torch.ones(7, 7).triu(1).bool()
    options: dict[str, Any] = {}
    if mask is not None:
        per_head = future.expand(12, 7, 7).clone()
        per_head[8:, 6, 0] = True  # example 2 only
        options["attn_mask"] = {
            "2d bool": future, "causal hint": future, "3d bool": per_head,
            "2d float": torch.zeros(7, 7).masked_fill(future, -torch.inf),
        }[mask]  # fmt: skip
    if padding is not None:
        pads = torch.zeros(3, 7, dtype=torch.bool)
        pads[2, 5:] = True
        options["key_padding_mask"] = pads if padding == "bool" else torch.zeros(3, 7).masked_fill(pads, -torch.inf)
    if mask == "causal hint":
        options.update(is_causal=True, need_weights=False)
    given = {"query": X, "key": X, "value": X, **options}
    with pytest.warns(UserWarning, match=r"mismatched") if _mixed(options) else _nothing():
        got = capture(module, given, example=2)
    options.pop("is_causal", None), options.pop("need_weights", None)
    with pytest.warns(UserWarning, match=r"mismatched") if _mixed(options) else _nothing():
        want = mha_maps(module, X, X, X, example=2, **options)
    n = got.weights.shape[0]
    assert n == (5 if padding else 7)
    np.testing.assert_allclose(got.weights.values, want[:n, :n], atol=1e-6)
    seen = got.weights.visible_cells()
    assert np.array_equal(seen, np.broadcast_to(want[:n, :n] > 0, seen.shape))


def _mixed(options: dict[str, Any]) -> bool:
    kinds = {options[k].dtype == torch.bool for k in ("attn_mask", "key_padding_mask") if k in options}
    return len(kinds) == 2


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


@pytest.mark.parametrize(
    "options", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 16, "vdim": 8}, {"bias": False}]
)
def test_multihead_attention_options(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(32, 4, batch_first=True, **options).eval()
    key, value = numbers(3, 5, options.get("kdim", 32)), numbers(3, 5, options.get("vdim", 32))
    got = capture(module, (X, key, value), example=1, verify=True)
    want = mha_maps(module, X, key, value, example=1)
    np.testing.assert_allclose(got.weights.values, want[:, :5], atol=1e-6)
    extra = want[:, 5:].sum(1)
    if extra.size and want.shape[1] > 5:
        assert got.report[0]["sink_mass"] == pytest.approx(extra.mean(), abs=1e-6)


def test_a_wrong_causal_hint_is_what_torch_makes_of_it() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(32, 4, batch_first=True).train()
    options = {"attn_mask": torch.eye(7).bool(), "is_causal": True, "need_weights": False}
    got = capture(module, {"query": X, "key": X, "value": X, **options}, example=0, evaluate=False)
    assert np.array_equal(got.weights.visible, np.tri(7, dtype=bool))  # the mask is not looked at
    assert got.report[0]["output_error"] < 1e-5
    with pytest.raises(UnsupportedAttentionError, match=r"MultiheadAttention.*fast path and its slow path differ"):
        capture(module, {"query": X, "key": X, "value": X, **options}, example=0)


def test_multihead_attention_without_a_batch() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(32, 4).eval()
    got = capture(module, (X[0], X[0], X[0]), verify=True)
    assert got.weights.shape == (7, 7, 4)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("grad", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_the_fast_path_keeps_its_output(grad: Any, padded: bool) -> None:
    # pytorch/pytorch#88810, #99304: the fast path skips hooks and returns no weights
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    model = nn.Sequential(encoder) if not padded else encoder
    options = (
        {"src_key_padding_mask": torch.tensor([[False] * 7, [False] * 5 + [True] * 2, [False] * 7])} if padded else {}
    )
    with grad():
        before = model(X, **options)
        with capturing(model, example=1) as tape:
            during = model(X, **options)
        after = model(X, **options)
    assert torch.equal(before, during)
    assert torch.equal(before, after)
    got = tape.capture()
    n = 5 if padded else 7
    assert got.weights.shape == (n, n, 8)
    assert got.scores.heads.layer.tolist() == [0] * 4 + [1] * 4
    first = encoder.layers[0]
    assert isinstance(first, nn.TransformerEncoderLayer)
    real = X[:, :n]
    np.testing.assert_allclose(
        got.weights.values[:, :, :4], mha_maps(first.self_attn, real, real, real, example=1), atol=1e-6
    )


def test_transformer_with_encoder_and_decoder() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 2, 2, 48, batch_first=True)
    got = capture(model, (X, numbers(3, 5, 32)), example=0, verify=True)
    assert {name: g.shape for name, g in got.groups.items()} == {
        "encoder": (7, 7, 8),
        "decoder": (5, 5, 8),
        "cross": (5, 7, 8),
    }


# -- precision --------------------------------------------------------------------------------------------------------


class Huge(Attention):
    """Scores beyond half precision."""

    fused = True

    def forward(self, x: Tensor) -> Tensor:
        q = k = torch.full((1, 1, 3, 64), 200.0, dtype=torch.float16) + x.half().mean() * 0
        if self.fused:
            return F.scaled_dot_product_attention(q, k, k)
        return torch.softmax(q @ k.transpose(-2, -1), -1) @ k


def test_half_precision_that_overflows_is_noticed() -> None:
    # huggingface/transformers#17437, Dao-AILab/flash-attention#49, facebookresearch/xformers#98
    got = capture(Huge(), X[:1])
    np.testing.assert_allclose(got.scores.values, 200.0 * 200 * 64 / 8, rtol=1e-3)
    np.testing.assert_allclose(got.weights.values, 1 / 3, rtol=1e-5)
    assert got.report[0]["nonfinite"] == 0
    written = Huge()
    written.fused = False
    got = capture(written, X[:1])
    assert got.report[0]["nonfinite"] == 9
    assert got.report[0]["nonfinite_heads"] == [0]
    with pytest.raises(CaptureError, match=r"9 score\(s\) or weight\(s\).*float16.*float32"):
        _ = got.weights


def test_tensors_of_another_kind_are_refused_and_the_model_runs() -> None:
    model = Written()
    with capturing(model) as tape:
        out = torch.func.vmap(model)(numbers(4, 1, 5, 32))
    assert out.shape == (4, 1, 5, 32)
    with pytest.raises(CaptureError, match=r"recording failed .*torch\.func"):
        tape.capture()
    with capturing(model) as tape:
        model(X[:1, :0])
    with pytest.raises(CaptureError, match=r"Written.*\(1, 4, 0, 0\), expected at least one query and key"):
        tape.capture()
    with pytest.raises(CaptureError, match=r"inputs: .*\(1, 0, 32\).*expected at least one token"):
        capture(model, X[:1, :0])


def test_double_precision_stays() -> None:
    got = capture(Fused().double(), X.double(), example=0)
    assert got.scores.values.dtype == np.float64
    assert got.report[0]["output_error"] < 1e-14


@pytest.mark.parametrize("cls", [Fused, Written])
def test_autocast(cls: type[Attention]) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = capture(cls(), X, example=0, verify=True)
    assert got.report[0]["dtype"] == "bfloat16"
    np.testing.assert_allclose(got.weights.values, by_hand(cls(), 0)[1], atol=0.05)
