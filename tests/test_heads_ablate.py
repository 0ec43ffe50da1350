"""Ablating heads: exact on many families, nothing left behind, clear refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("timm")
import torch
from capture_models import Fused, numbers, tiny, token_ids
from families import FAMILIES, Family
from test_families import forward, traces
from torch import nn

import pyattnorg as pa
from pyattnorg.heads.ablate import edited
from pyattnorg.heads.tables import head_table_of

SOME = (
    "BertModel", "AlbertModel", "XLNetModel", "DebertaV2Model", "LongformerModel", "GPT2Model", "BloomModel",
    "LlamaModel", "GptOssModel", "DiffLlamaModel", "DeepseekV3Model", "JambaModel", "T5Model", "BartModel",
    "WhisperModel", "SwinModel", "CLIPModel", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224",
    "maxvit_rmlp_pico_rw_256", "cait_xxs24_224", "hiera_tiny_224", "nn.TransformerEncoder", "nn.Transformer",
    "softmax", "exp / sum", "a loop over heads", "a loop over chunks",
)  # fmt: skip
PICKED = [family for family in FAMILIES if family.name in SOME]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


class Contexts:
    """Keeps what every head gave, behind any ablation."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int, int], list[torch.Tensor]] = {}

    def wants(self, slot: Any) -> bool:
        return True

    def change(self, slot: Any, context: Any) -> torch.Tensor:
        for i, rows in enumerate(context.rows(slot.layout.heads)):
            key = (slot.scene.place.module, slot.layer, slot.first_head + i)
            self.found.setdefault(key, []).append(rows.detach().clone())
        return context.values


def watched(model: Any, given: dict[str, Any]) -> dict[tuple[str, int, int], torch.Tensor]:
    keep = Contexts()
    with edited(model, keep), torch.no_grad():
        model(**given)
    return {key: torch.cat(parts) for key, parts in keep.found.items()}


@pytest.mark.parametrize("family", PICKED, ids=lambda f: f"{f.library}-{f.name}")
def test_only_the_head_is_silenced_and_all_is_restored(family: Family) -> None:
    model, given = family.make(), family.inputs()
    before, left = forward(model, given), traces(model)
    table = head_table_of(model, given)
    whole = watched(model, given)
    keys = list(zip(table.module, table.layer.tolist(), table.head.tolist(), strict=True))
    assert set(whole) == set(keys)  # heads and layers are those of a capture
    first = keys[0]
    layer = {key for key in keys if key[:2] == first[:2]}
    inner = Contexts()
    with pa.ablate_heads(model, table.take([0])), edited(model, inner):
        forward(model, given)
    # what is entered last sees what the ablation gives on: nothing of the head, and the rest of its layer bit for bit
    seen = {key: torch.cat(parts) for key, parts in inner.found.items()}
    assert not seen[first].any()
    assert all(torch.equal(seen[key], whole[key]) for key in layer - {first})
    assert traces(model) == left
    after = forward(model, given)
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, after, strict=True))


def bert(**more: Any) -> tuple[Any, dict[str, Any]]:
    return tiny("BertModel", **more), {"input_ids": token_ids(2, 7)}


def without_columns(model: Any, path: str, heads: list[int], width: int = 8) -> Any:
    """The oracle: columns of the output projection set to zero."""
    import copy

    twin = copy.deepcopy(model)
    with torch.no_grad():
        for h in heads:
            twin.get_submodule(path).weight[:, h * width : (h + 1) * width] = 0
    return twin


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("name", "path", "output"),
    [
        ("BertModel", "encoder.layer.1.attention.output.dense", "L1H2"),
        ("LlamaModel", "layers.1.self_attn.o_proj", "L1H2"),
        ("OPTModel", "decoder.layers.1.self_attn.out_proj", "L1H2"),
        ("ViTModel", "layers.1.attention.o_proj", "L1H2"),
    ],
)
def test_equals_zeroed_columns_of_the_output_projection(name: str, path: str, output: str, implementation: str) -> None:
    model = tiny(name, attn_implementation=implementation)
    given = {"pixel_values": numbers(2, 3, 32, 32)} if name == "ViTModel" else {"input_ids": token_ids(2, 7)}
    with pa.ablate_heads(model, [output, "L1H0"]):
        got = forward(model, given)
    for a, b in zip(forward(without_columns(model, path, [0, 2]), given), got, strict=True):
        torch.testing.assert_close(a, b)


def test_multihead_attention_equals_zeroed_columns() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = numbers(2, 7, 32)
    with pa.ablate_heads(model, "L1H3"), torch.no_grad():
        got = model(x)
    with torch.no_grad():
        torch.testing.assert_close(without_columns(model, "layers.1.self_attn.out_proj", [3])(x), got)


def test_nests_and_survives_errors() -> None:
    model, given = bert()
    before, left = forward(model, given), traces(model)
    with pa.ablate_heads(model, "L0H0,L1H1"):
        both = forward(model, given)
    with pa.ablate_heads(model, "L0H0"), pa.ablate_heads(model, {1: [1]}):
        nested = forward(model, given)
    assert all(torch.equal(a, b) for a, b in zip(both, nested, strict=True))
    with pytest.raises(IndexError), pa.ablate_heads(model, "L0H0"):
        model(input_ids=torch.full((1, 3), 999))
    assert traces(model) == left
    assert all(torch.equal(a, b) for a, b in zip(before, forward(model, given), strict=True))


def test_capture_sees_the_ablated_model() -> None:
    model, given = bert()
    with pa.ablate_heads(model, ["L0H*"]):
        got = pa.capture(model, given, example=0, keep=("weights",))
    whole = pa.capture(model, given, example=0, keep=("weights",))
    for label in whole.weights:
        same = np.array_equal(whole.weights[label], got.weights[label])
        assert same == label.startswith("L0")


def test_mean_ablation_puts_the_mean_there() -> None:
    model, given = bert()
    whole = watched(model, given)
    means = pa.head_means(model, given)
    key = ("encoder.layer.0.attention.self", 0, 1)
    torch.testing.assert_close(means.at(*key[:2])[1].float(), whole[key].mean(0))
    path = "encoder.layer.0.attention.output.dense"
    twin = without_columns(model, path, [1])
    dense = model.get_submodule(path)
    with torch.no_grad():
        twin.get_submodule(path).bias += dense.weight[:, 8:16] @ whole[key].mean(0)
    with pa.ablate_heads(model, "L0H1", mode="mean", means=means):
        got = forward(model, given)
    for a, b in zip(forward(twin, given), got, strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_flow_to_what_is_left() -> None:
    model, given = bert()
    with pa.ablate_heads(model, "L0H1"):
        model(**given).last_hidden_state.square().sum().backward()
    value = model.encoder.layer[0].attention.self.value.weight.grad
    assert bool((value[8:16] == 0).all())
    assert bool((value[:8] != 0).any())


def test_generation_with_a_cache_equals_without() -> None:
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**sizes, intermediate_size=48, vocab_size=50, bos_token_id=0, eos_token_id=None)
    model = transformers.LlamaForCausalLM(config).eval()
    ids = token_ids(1, 5)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 2}
    whole = model.generate(ids, **options)
    with pa.ablate_heads(model, ["L0H0", "L0H1", "L1H3"]):
        cached = model.generate(ids, **options)
        plain = model.generate(ids, use_cache=False, **options)
    assert torch.equal(cached, plain)
    assert torch.equal(model.generate(ids, **options), whole)


def test_parts_are_named_as_captures_name_them() -> None:
    model = tiny("BartModel")
    given = {"input_ids": token_ids(2, 7), "decoder_input_ids": token_ids(2, 4)}
    outputs = []
    for label in ("encoder.L1H0", "decoder.L1H0", "cross.L1H0"):
        with pa.ablate_heads(model, label):
            outputs.append(forward(model, given)[0])
        with pa.ablate_heads(model, label, inputs=given):
            assert torch.equal(outputs[-1], forward(model, given)[0])
    assert not torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[1], outputs[2])
    with pytest.raises(ValueError, match=r"several parts .* say the part"), pa.ablate_heads(model, "L1H0"):
        forward(model, given)
    with pytest.raises(ValueError, match="say the part"), pa.ablate_heads(model, "L1H0", inputs=given):
        pass


def test_only_this_thread_is_changed() -> None:
    import threading

    model, given = bert()
    whole, found = forward(model, given), []
    with pa.ablate_heads(model, "L0H0"):
        thread = threading.Thread(target=lambda: found.extend(forward(model, given)))
        thread.start()
        thread.join()
        assert not torch.equal(forward(model, given)[0], whole[0])
    assert all(torch.equal(a, b) for a, b in zip(whole, found, strict=True))


@pytest.mark.parametrize(
    ("heads", "error", "match"),
    [
        ("H3", ValueError, "expected a label such as 'L3H5'"),
        ([], ValueError, "got none"),
        ([3], TypeError, "numbers go by layer"),
        (3, TypeError, "expected labels"),
        ({"a": [1]}, TypeError, "whole number"),
        ("L0W2H1", ValueError, "a head in one window"),
        ("L9H0", ValueError, r"'L9H0' did not occur .* layers 0 to 1 of up to 4 heads"),
        ("L0H4", ValueError, "did not occur"),
    ],
)
def test_what_is_wrong_with_heads_is_said(heads: Any, error: type[Exception], match: str) -> None:
    model, given = bert()
    with pytest.raises(error, match=match), pa.ablate_heads(model, heads):
        forward(model, given)


def test_what_is_wrong_with_the_rest_is_said() -> None:
    model, given = bert()
    with pytest.raises(ValueError, match="head_means"), pa.ablate_heads(model, "L0H0", mode="mean"):
        pass
    with pytest.raises(ValueError, match="mode: got 'half'"), pa.ablate_heads(model, "L0H0", mode="half"):  # type: ignore[arg-type]
        pass
    with pytest.raises(TypeError, match="got the name"), pa.ablate_heads("bert", "L0H0"):
        pass
    with pytest.raises(TypeError, match="got int"), pa.ablate_heads(3, "L0H0"):
        pass
    with pytest.raises(ValueError, match="padding"):
        pa.head_means(model, {**given, "attention_mask": torch.tensor([[1] * 7, [1] * 5 + [0] * 2])})
    with pytest.raises(ValueError, match="got none"):
        pa.head_means(model, [])


def test_axes_as_long_as_heads_are_told_by_memory() -> None:
    from pyattnorg.capture.contexts import of_heads

    values = torch.zeros(2, 9, 4, 4, 8).permute(0, 3, 2, 1, 4)  # (batch, heads, windows, tokens, width)
    assert of_heads((2, 4, 4), 4, "m", values).shape == (1, 4, 1)
    with pytest.raises(ValueError, match="cannot be told"):
        of_heads((2, 4, 4), 4, "m", torch.zeros(3))


def test_user_code_without_numbers_of_heads() -> None:
    model = nn.Sequential(Fused(), Fused()).eval()
    x = numbers(2, 7, 32)
    with torch.no_grad(), pa.ablate_heads(model, "L1H0,L1H1,L1H2,L1H3"):
        got = model(x)
    torch.testing.assert_close(got, model[1].out.bias.expand_as(got).detach())
