"""Capture of transformers models against what they return themselves with eager attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
from capture_models import eager_maps, numbers, softmax, tiny, token_ids

from pyattnorg.capture import Capture, CaptureError, NoAttentionError, UnsupportedAttentionError, capture

TEXT = [
    "BertModel",
    "RobertaModel",
    "ElectraModel",
    "GPT2Model",
    "LlamaModel",
    "OPTModel",
    "MistralModel",
    "Gemma2Model",
]
IMAGE = ["ViTModel", "Dinov2Model", "Dinov2WithRegistersModel", "DeiTModel"]


def inputs_of(name: str, padding: str = "") -> dict[str, Any]:
    if name in IMAGE:
        return {"pixel_values": numbers(2, 3, 32, 32)}
    given = {"input_ids": token_ids(2, 7)}
    if padding:
        mask = torch.ones(2, 7, dtype=torch.long)
        mask[1, slice(0, 2) if padding == "left" else slice(5, 7)] = 0
        given["attention_mask"] = mask
    return given


def outputs(model: Any, given: dict[str, Any]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [x for x in model(**given).values() if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize(
    ("name", "implementation"),
    # transformers has no sdpa for Gemma 2
    [(n, i) for n in TEXT + IMAGE for i in ("sdpa", "eager") if (n, i) != ("Gemma2Model", "sdpa")],
)
def test_maps_are_those_of_eager_attention(name: str, implementation: str) -> None:
    # huggingface/transformers#31990, transformerlab/transformerlab-api#547: under sdpa there is nothing, or an error
    # huggingface/transformers#32086: is the eager matrix what sdpa ran?
    given = inputs_of(name)
    model = tiny(name, attn_implementation=implementation)
    before = outputs(model, given)
    got = capture(model, given, example=1, verify=True)
    after = outputs(model, given)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    want = eager_maps(tiny(name, attn_implementation="eager"), 1, **given)
    np.testing.assert_allclose(got.weights.values, want, atol=1e-5)
    np.testing.assert_allclose(softmax(got.scores.values, got.scores.visible_cells()), want, atol=1e-5)
    n_layers = model.config.num_hidden_layers
    assert got.scores.labels == tuple(f"L{layer}H{head}" for layer in range(n_layers) for head in range(4))
    assert max(got.report.column("softmax_error")) <= 1e-6
    assert {row["backend"] for row in got.report} == {"sdpa" if implementation == "sdpa" else "softmax"}
    assert all(abs(s - 1) < 1e-5 for row in got.report for s in row["row_sums"])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("name", ["BertModel", "LlamaModel", "GPT2Model"])
def test_padding_is_removed_and_the_rest_is_the_same(name: str, padding: str, implementation: str) -> None:
    # huggingface/transformers#3021, TransformerLensOrg/TransformerLens#240: a padded example is another than alone
    given = inputs_of(name, padding)
    if name != "LlamaModel":  # learned positions have to follow the mask, as when it runs alone
        given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    model = tiny(name, attn_implementation=implementation)
    got = capture(model, given, example=1)
    real = given["attention_mask"][1].bool()
    alone = capture(model, {"input_ids": given["input_ids"][1:, real]})
    assert got.scores.shape == alone.scores.shape == (5, 5, 8)
    seen = alone.scores.visible_cells()
    assert np.array_equal(got.scores.visible_cells(), seen)
    np.testing.assert_allclose(got.weights.values, alone.weights.values, atol=1e-5)
    np.testing.assert_allclose(got.scores.values[seen], alone.scores.values[seen], atol=1e-4)
    causal = name != "BertModel"
    assert np.array_equal(
        got.weights.visible_cells()[:, :, 0], np.tri(5, dtype=bool) if causal else np.ones((5, 5), bool)
    )
    full = capture(model, given, example=0)
    assert full.scores.shape == (7, 7, 8)
    want = eager_maps(tiny(name, attn_implementation="eager"), 0, **given)
    np.testing.assert_allclose(full.weights.values, want, atol=1e-5)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_no_sentinel_reaches_a_number(implementation: str) -> None:
    # huggingface/transformers#27114: padding and causal masks added twice overflow
    # huggingface/transformers#19944: masked cells make means explode
    got = capture(tiny("LlamaModel", attn_implementation=implementation), inputs_of("LlamaModel", "left"), example=1)
    for filled in (got.scores.filled(), got.scores.filled("floor"), got.weights.filled()):
        assert np.abs(filled.values).max() < 1e3
    if implementation == "sdpa":
        raw = got.scores.filled("raw")  # what fused attention would have seen without a mask
        assert np.isfinite(raw.values).all()
        assert np.abs(raw.values).max() < 1e3
    else:
        with pytest.raises(ValueError, match=r"before masking"):
            got.scores.filled("raw")


def test_heads_that_share_keys_are_known() -> None:
    for implementation in ("sdpa", "eager"):
        got = capture(tiny("LlamaModel", num_key_value_heads=2, attn_implementation=implementation), token_ids(1, 6))
        assert got.scores.heads.kv_group.tolist() == [0, 0, 1, 1] * 2
        assert got.scores.heads.module[-1] == "layers.1.self_attn"


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_shared_module_is_as_many_layers_as_calls(implementation: str) -> None:
    given = inputs_of("AlbertModel")
    got = capture(tiny("AlbertModel", attn_implementation=implementation), given, example=0)
    assert got.scores.heads.layer.tolist() == sorted(list(range(12)) * 4)
    assert len(set(got.scores.heads.module)) == 1
    want = eager_maps(tiny("AlbertModel", attn_implementation="eager"), 0, **given)
    np.testing.assert_allclose(got.weights.values, want, atol=1e-5)


@pytest.mark.parametrize("name", ["MistralModel", "Gemma2Model"])
def test_windows_are_masks_and_differ_from_layer_to_layer(name: str) -> None:
    # huggingface/transformers#29777, #35924: the sliding window is ignored, or off by one
    got = capture(tiny(name), token_ids(1, 7))
    counts = got.weights.visible_cells().sum(1)  # (queries, heads)
    window, full = [min(i + 1, 4) for i in range(7)], list(range(1, 8))
    assert counts[:, 0].tolist() == window
    assert counts[:, -1].tolist() == (full if name == "Gemma2Model" else window)
    assert np.array_equal(got.weights.values > 0, got.weights.visible_cells())


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_encoder_decoder_gives_three_groups(implementation: str) -> None:
    # jessevig/bertviz#67, huggingface/transformers#11788: three kinds, one of them rectangular
    # T5 has no scale and adds a position bias: what the call says counts, not theory (A29)
    given = {"input_ids": token_ids(2, 7), "decoder_input_ids": token_ids(2, 4)}
    for name, heads in (("T5Model", 4), ("BartModel", 2)):
        got = capture(tiny(name, attn_implementation=implementation), given, example=1, verify=True)
        assert list(got.groups) == ["encoder", "decoder", "cross"]
        eager = tiny(name, attn_implementation="eager")
        for group, field in (
            ("encoder", "encoder_attentions"),
            ("decoder", "decoder_attentions"),
            ("cross", "cross_attentions"),
        ):
            want = eager_maps(eager, 1, field=field, **given)
            np.testing.assert_allclose(got[group].weights.values, want, atol=1e-5)
            np.testing.assert_allclose(
                softmax(got[group].scores.values, got[group].scores.visible_cells()), want, atol=1e-5
            )
        assert got["cross"].shape[:2] == (4, 7)
        assert got["decoder"].scores.heads.head.max() == heads - 1
        with pytest.raises(CaptureError, match=r"scores: .*3 groups.*'encoder' 7x7x8.*\.groups\['encoder'\]\.scores"):
            _ = got.scores


def test_two_towers_are_two_groups() -> None:
    # compling-wat/vlm-lens#97, huggingface/transformers#39440: which tower is this?
    got = capture(tiny("CLIPModel"), {"input_ids": token_ids(1, 7), "pixel_values": numbers(1, 3, 32, 32)})
    assert {name: g.shape for name, g in got.groups.items()} == {"text": (7, 7, 8), "vision": (17, 17, 12)}


@pytest.mark.parametrize(
    "name", ["BloomModel", "GPTNeoModel", "MPNetModel", "DebertaV2Model", "GPTNeoXModel", "DistilBertModel"]
)
def test_attention_written_out_in_odd_ways(name: str) -> None:
    given = inputs_of(name)
    more = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]} if name == "DebertaV2Model" else {}
    got = capture(tiny(name, **more), given, example=0, verify=True)
    want = eager_maps(tiny(name, attn_implementation="eager", **more), 0, **given)
    np.testing.assert_allclose(got.weights.values, want, atol=1e-5)
    np.testing.assert_allclose(softmax(got.scores.values, got.scores.visible_cells()), want, atol=1e-5)


def test_mass_that_goes_to_sinks_is_reported() -> None:
    given = {"input_ids": token_ids(1, 7)}
    got = capture(tiny("GptOssModel"), given)
    np.testing.assert_allclose(got.weights.values, eager_maps(tiny("GptOssModel"), 0, **given), atol=1e-5)
    for row in got.report:
        assert 0.01 < row["sink_mass"] < 0.99
        assert row["row_sums"][0] < 0.99
        assert row["softmax_error"] <= 1e-6


def test_a_sink_that_takes_nearly_all_is_no_error() -> None:
    model, given = tiny("GptOssModel"), {"input_ids": token_ids(1, 7)}
    for name, parameter in model.named_parameters():
        if "sinks" in name:
            torch.nn.init.constant_(parameter, 40.0)  # weights of tokens are about 1e-18
    got = capture(model, given, verify=True)
    for row in got.report:
        assert row["sink_mass"] == 1.0
        assert row["softmax_error"] <= 1e-6
    tokens = got.weights.values
    assert 0 < tokens[-1].max() < 1e-15
    want = softmax(got.scores.values, got.scores.visible_cells())
    np.testing.assert_allclose(tokens / tokens.sum(1, keepdims=True), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("window", [4, 16, 512])
def test_windows_wider_than_the_text(window: int) -> None:
    # LED pads a text to a multiple of its window, 512 or more in pretrained models, and attention with it
    model = tiny("LEDModel", attention_window=window, max_encoder_position_embeddings=1024)
    given = {"input_ids": token_ids(1, 7), "decoder_input_ids": token_ids(1, 3)}
    got = capture(model, given, verify=True)["encoder"].weights
    with torch.no_grad():
        bands = model(**given, output_attentions=True).encoder_attentions
    want = np.zeros(got.shape)
    for layer, band in enumerate(bands):
        heads = band.shape[1]
        for i in range(7):
            for j in range(max(0, i - window // 2), min(7, i + window // 2 + 1)):
                want[i, j, layer * heads : (layer + 1) * heads] = band[0, :, i, window // 2 + j - i].numpy()
    np.testing.assert_allclose(got.values, want, atol=1e-6)


def test_a_router_is_not_attention() -> None:
    got = capture(tiny("MixtralModel"), token_ids(1, 6))
    assert got.scores.shape == (6, 6, 8)


@pytest.mark.parametrize(
    ("name", "given", "error", "said"),
    [
        ("BigBirdModel", {"input_ids": (1, 128)}, UnsupportedAttentionError, r"several maps in one call \(8x128, 8x40"),
        ("LongT5Model", {"input_ids": (1, 16)}, UnsupportedAttentionError, r"LongT5LocalAttention.*\(1, 4, 4, 4, 12\)"),
        ("MambaModel", {"input_ids": (1, 8)}, NoAttentionError, "no attention was seen in MambaModel"),
    ],
)
def test_what_gives_no_map_of_the_tokens_is_refused_by_name(
    name: str, given: dict[str, Any], error: type[Exception], said: str
) -> None:
    # huggingface/transformers#5659, #7562: blocks of keys are not a map of all tokens
    made = {k: token_ids(*shape) if k == "input_ids" else numbers(*shape) for k, shape in given.items()}
    with pytest.raises(error, match=said):
        capture(tiny(name), made if "T5" not in name else {**made, "decoder_input_ids": token_ids(1, 4)})


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask:DeprecationWarning")
def test_flex_attention_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedAttentionError, match=r"BertSelfAttention.*flex_attention.*'sdpa'"):
        capture(tiny("BertModel", attn_implementation="flex_attention"), token_ids(1, 6))


def test_the_configuration_is_as_before() -> None:
    # huggingface/transformers#38948: output_attentions in the config stays behind
    model = tiny("BertModel")
    before = model.config.to_dict()
    capture(model, token_ids(1, 6))
    assert model.config.to_dict() == before
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", ["BertModel", "LlamaModel", "GPT2Model"])
def test_one_or_two_tokens(name: str, n: int) -> None:
    got = capture(tiny(name), token_ids(1, n), verify=True)
    assert got.weights.shape == (n, n, 8)
    assert got.weights.values[0, 0, 0] == pytest.approx(1, abs=1e-6) or name == "BertModel"


def test_size_follows_the_input_not_the_configuration() -> None:
    # TransformerLensOrg/TransformerLens#479: a mask of n_ctx x n_ctx per layer
    got = capture(tiny("LlamaModel", max_position_embeddings=131072), token_ids(1, 8))
    assert sum(got.report.column("bytes")) < 10_000


def test_generation_is_one_pass_a_step() -> None:
    from pyattnorg.capture import capturing

    model = tiny("LlamaForCausalLM")
    with capturing(model) as tape:
        model.generate(
            token_ids(1, 5), attention_mask=torch.ones(1, 5), max_new_tokens=3, min_new_tokens=3, do_sample=False
        )
    steps: list[Capture] = [tape.capture(i) for i in range(len(tape))]
    assert [c.weights.shape[:2] for c in steps] == [(5, 5), (1, 6), (1, 7)]
    assert np.allclose(steps[2].weights.values.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_half_precision_is_kept_in_float32_and_judged_by_its_own_rounding(
    dtype: torch.dtype, implementation: str
) -> None:
    # A26: rows of half precision do not sum to 1, and bfloat16 has no NumPy dtype
    model = tiny("LlamaModel", attn_implementation=implementation)
    exact = capture(model, token_ids(1, 9))
    got = capture(model.to(dtype), token_ids(1, 9), verify=True)
    assert got.weights.values.dtype == np.float32
    assert got.report[0]["dtype"] == str(dtype).removeprefix("torch.")
    assert np.abs(got.weights.values - exact.weights.values).max() < 0.1
    assert max(got.report.column("softmax_error")) < 0.01
