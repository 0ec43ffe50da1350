"""Many examples, padding, generations, special tokens."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
from capture_models import Fused, numbers, tiny, token_ids
from torch import nn

import pyattnorg as pa
from pyattnorg.capture import CaptureError, capture, capture_each, capturing


class Words:
    """A tokenizer as far as a capture needs one."""

    all_special_ids = (0, 1, 2)
    unk_token_id = None
    model_max_length = 10**30

    def __call__(self, text: str, **_: Any) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[0, *(3 + len(word) for word in text.split()), 1]])}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [{0: "<s>", 1: "</s>", 2: "<pad>"}.get(i, f"w{i}") for i in ids]


def padded(side: str, n: int = 7, real: int = 5) -> dict[str, torch.Tensor]:
    mask = torch.ones(3, n, dtype=torch.long)
    mask[1, slice(0, n - real) if side == "left" else slice(real, n)] = 0
    return {"input_ids": token_ids(3, n), "attention_mask": mask}


# -- one after the other ----------------------------------------------------------------------------------------------


def test_texts_of_any_length_run_alone() -> None:
    # huggingface/transformers#35599, #8336, #8485: lengths 5 and 7 cannot be stacked
    model, texts = tiny("BertModel"), ["a bb ccc", "a bb ccc dddd eeeee", "a"]
    stream = capture_each(model, (t for t in texts), tokenizer=Words())
    got = list(stream)
    assert [c.weights.shape for c in got] == [(5, 5, 8), (7, 7, 8), (3, 3, 8)]
    assert got[1].weights.keys == ("<s>", "w4", "w5", "w6", "w7", "w8", "</s>")
    for text, one in zip(texts, got, strict=True):
        alone = capture(model, text, tokenizer=Words())
        np.testing.assert_array_equal(one.weights.values, alone.weights.values)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_batch_runs_once_and_gives_every_example(implementation: str) -> None:
    model, batch = tiny("BertModel", attn_implementation=implementation), padded("right")
    calls: list[int] = []
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    got = list(capture_each(model, [batch, {"input_ids": token_ids(1, 4)}], check_padding=False))
    hook.remove()
    assert len(calls) == 2
    assert [c.weights.shape[:2] for c in got] == [(7, 7), (5, 5), (7, 7), (4, 4)]
    for i in range(3):
        one = capture(model, batch, example=i)
        np.testing.assert_array_equal(got[i].weights.values, one.weights.values)
        np.testing.assert_array_equal(got[i].scores.values, one.scores.values)


def test_batches_of_windows() -> None:
    timm = pytest.importorskip("timm")
    sizes = {"window_size": 4, "depths": (1, 1), "embed_dim": 16, "num_heads": (2, 4)}
    model = timm.create_model("swin_tiny_patch4_window7_224", img_size=32, **sizes).eval()
    x = numbers(2, 3, 32, 32)
    for got, image in zip(capture_each(model, x), x, strict=True):
        alone = capture(model, image[None])
        for name, group in alone.groups.items():
            np.testing.assert_allclose(got[name].weights.values, group.weights.values, atol=1e-5)


def test_streams_hold_nothing() -> None:
    # ndif-team/nnsight#396, #389, #538: what was saved keeps earlier ones alive
    import weakref

    model, alive = tiny("BertModel"), []
    for got in capture_each(model, (token_ids(2, 6) for _ in range(3))):
        assert sum(ref() is not None for ref in alive) <= 1
        alive.append(weakref.ref(got))
    assert len(alive) == 6


@pytest.mark.parametrize(
    ("examples", "error", "said"),
    [
        (3, TypeError, r"examples: got int"),
        ([{"input_ids": token_ids(2, 4), "token_type_ids": token_ids(3, 4)}], CaptureError, r"\[2, 3\] examples"),
        (["text"], ValueError, r"without a tokenizer"),
    ],
)
def test_streams_are_checked(examples: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        list(capture_each(tiny("BertModel"), examples))
    with pytest.raises(TypeError, match=r"unexpected argument"):
        capture_each(tiny("BertModel"), [], revision="main")


# -- padding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_padding_that_changes_the_result_is_noticed(implementation: str, caplog: pytest.LogCaptureFixture) -> None:
    # huggingface/transformers#3021, #3167, #18478; TransformerLensOrg/TransformerLens#240, #1005: positions are counted
    # from the first column, padding or not, unless the model is told
    model, given = tiny("GPT2Model", attn_implementation=implementation), padded("left")
    with caplog.at_level(logging.WARNING, "pyattnorg"):
        got = capture(model, given, example=1)
    assert max(got.report.column("padding_error")) > 0.01
    assert "padding changes it by up to" in got.report[0]["note"]
    assert "position_ids that follow the mask" in caplog.text
    caplog.clear()
    given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    with caplog.at_level(logging.WARNING, "pyattnorg"):
        told = capture(model, given, example=1)
    assert max(told.report.column("padding_error")) < 1e-5
    assert not caplog.text
    assert all(not row["note"] for row in told.report)
    assert capture(model, given, example=0).report.column("padding_error") == [None, None]
    unchecked = capture(model, padded("left"), example=1, check_padding=False)
    assert unchecked.report.column("padding_error") == [None, None]


def test_padding_that_changes_nothing() -> None:
    for name, side in (("BertModel", "right"), ("LlamaModel", "left"), ("T5Model", "right")):
        given = padded(side)
        if name == "T5Model":
            given["decoder_input_ids"] = token_ids(3, 4)
        got = capture(tiny(name), given, example=1)
        assert max(got.report.column("padding_error")) < 1e-4
        assert all(not row["note"] for row in got.report)


def test_a_model_that_fails_alone_is_said() -> None:
    class Stubborn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.attention = nn.Embedding(50, 32), Fused()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            if len(input_ids) < 3:
                raise RuntimeError("three or nothing")
            out: torch.Tensor = self.attention(self.embed(input_ids))
            return out

    got = capture(Stubborn(), padded("right"), example=1)
    assert "alone the model fails (three or nothing)" in got.report[0]["note"]


# -- generations ------------------------------------------------------------------------------------------------------


def generate(model: Any, given: dict[str, torch.Tensor], steps: int, **options: Any) -> Any:
    with torch.no_grad():
        return model.generate(**given, max_new_tokens=steps, min_new_tokens=steps, do_sample=False, **options)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM", "GPT2LMHeadModel"])
def test_a_generation_is_one_tensor(name: str, implementation: str) -> None:
    sizes: dict[str, Any] = {"sliding_window": 4, "num_key_value_heads": 2} if name.startswith("Mistral") else {}
    sizes |= {"n_embd": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 2} if name.startswith("GPT2") else {}
    model = tiny(name, attn_implementation=implementation, **sizes)
    given = {"input_ids": token_ids(1, 5), "attention_mask": torch.ones(1, 5, dtype=torch.long)}
    with capturing(model) as tape:
        ids = generate(model, given, 4)
    got = tape.generated()
    whole = capture(model, {"input_ids": ids[:, :-1]})  # the last token was never put in
    assert got.weights.shape == whole.weights.shape == (8, 8, 8)
    assert got.weights.labels == whole.weights.labels
    seen = whole.weights.visible_cells()
    assert np.array_equal(got.weights.visible_cells(), seen)
    np.testing.assert_allclose(got.weights.values, whole.weights.values, atol=1e-5)
    np.testing.assert_allclose(got.scores.values[seen], whole.scores.values[seen], atol=1e-4)
    assert got.report[0]["note"] == "4 steps"
    assert tape.generated() is got


def test_a_padded_prompt_is_generated_without_its_padding() -> None:
    model = tiny("LlamaForCausalLM")
    given = {"input_ids": token_ids(2, 6), "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    given["attention_mask"][1, :2] = 0
    with capturing(model, example=1, tokenizer=Words()) as tape:
        ids = generate(model, given, 3)
    got = tape.generated()
    alone = capture(model, {"input_ids": ids[1:, 2:-1]}, tokenizer=Words())
    assert got.weights.shape == (6, 6, 8)
    np.testing.assert_allclose(got.weights.values, alone.weights.values, atol=1e-5)
    assert got.weights.keys == alone.weights.keys is not None


def test_a_generation_of_an_encoder_and_decoder() -> None:
    sizes = {"decoder_start_token_id": 2, "pad_token_id": 2, "bos_token_id": 0, "eos_token_id": 1}
    shape = {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 50,
    }  # fmt: skip
    model = tiny("BartForConditionalGeneration", **shape, **sizes, forced_eos_token_id=None)
    with capturing(model) as tape:
        ids = generate(model, {"input_ids": token_ids(1, 6)}, 4)
    got = tape.generated()
    n = ids.shape[1] - 1
    assert {name: g.shape for name, g in got.groups.items()} == {
        "encoder": (6, 6, 8), "decoder": (n, n, 8), "cross": (n, 6, 8)
    }  # fmt: skip
    whole = capture(model, {"input_ids": token_ids(1, 6), "decoder_input_ids": ids[:, :-1]})
    for name in got:
        np.testing.assert_allclose(got[name].weights.values, whole[name].weights.values, atol=1e-5)


def test_generations_are_put_together_before_they_are_taken_apart() -> None:
    model = tiny("LlamaForCausalLM")
    with capturing(model) as tape:
        pass
    with pytest.raises(CaptureError, match=r"not run inside"):
        tape.generated()
    given = {"input_ids": token_ids(1, 5), "attention_mask": torch.ones(1, 5, dtype=torch.long)}
    with capturing(model) as tape:
        generate(model, given, 3)
    tape.capture(0)
    with pytest.raises(CaptureError, match=r"generated: passes were taken"):
        tape.generated()


@pytest.mark.parametrize("twice", [False, True])
def test_forwards_that_do_not_go_on_are_no_generation(twice: bool) -> None:
    # without a cache every forward sees all tokens anew; put together they would be a map of 5 + 6 + 7 queries
    model = tiny("LlamaForCausalLM")
    given = {"input_ids": token_ids(1, 5), "attention_mask": torch.ones(1, 5, dtype=torch.long)}
    with capturing(model) as tape:
        ids = generate(model, given, 3, use_cache=twice)
        if twice:
            generate(model, given, 3)
    with pytest.raises(CaptureError, match=rf"forward {3 if twice else 1} .* does not go on .*\.capture\(-1\)"):
        tape.generated()
    if not twice:
        whole = capture(model, {"input_ids": ids[:, :-1]}).weights.values
        np.testing.assert_allclose(tape.capture(-1).weights.values, whole, atol=1e-6)


# -- special tokens ---------------------------------------------------------------------------------------------------


def test_special_tokens_are_flagged_and_can_be_left_out() -> None:
    got = capture(tiny("BertModel"), "a bb ccc", tokenizer=Words())
    assert got.weights.meta["special"] == {"queries": [0, 4], "keys": [0, 4]}
    plain = got.weights.without("special")
    assert plain.shape == (3, 3, 8)
    assert plain.queries == ("w4", "w5", "w6")
    np.testing.assert_array_equal(plain.values, got.weights.values[1:4, 1:4])
    lost = got.weights.values[1:4][:, [0, 4]].sum(1).mean()
    assert plain.meta["dropped"]["mass"] == pytest.approx(lost, rel=1e-6)
    assert plain.meta["dropped"]["renormalized"] is False
    whole = got.weights.without("special", renormalize=True)
    np.testing.assert_allclose(whole.values.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(whole.values, plain.values / plain.values.sum(1, keepdims=True), rtol=1e-6)
    assert "2 key(s) left out, rows renormalised" in repr(whole)
    assert "renormalised" not in repr(plain)
    scores = got.scores.without("special", renormalize=True)
    assert scores.meta["dropped"]["mass"] is None
    np.testing.assert_array_equal(scores.values, got.scores.values[1:4, 1:4])


def test_prefix_tokens_of_images_are_special() -> None:
    got = capture(tiny("Dinov2WithRegistersModel"), numbers(1, 3, 32, 32))
    assert got.weights.meta["special"]["keys"] == [0, 1, 2, 3, 4]
    assert got.weights.without().queries == tuple(f"r{r}c{c}" for r in range(4) for c in range(4))


def test_special_tokens_keep_their_places_when_padding_goes() -> None:
    given = padded("left")
    given["input_ids"][1] = torch.tensor([2, 2, 0, 9, 9, 9, 1])
    got = capture(tiny("BertModel"), given, example=1, tokenizer=Words())
    assert got.weights.meta["special"] == {"queries": [0, 4], "keys": [0, 4]}


def test_any_tokens_can_be_left_out() -> None:
    x = np.random.default_rng(0).random((4, 5, 2))
    network = pa.NetworkTensor(x / x.sum(1, keepdims=True), "weights", queries=list("abca"), keys=list("abcad"))
    part = network.without(["a", -1])
    assert part.queries == ("b", "c")
    assert part.keys == ("b", "c")
    np.testing.assert_array_equal(part.values, network.values[1:3, 1:3])
    logs = pa.NetworkTensor(np.log(network.values), "logweights")
    np.testing.assert_allclose(
        np.exp(logs.without([0], renormalize=True).values), network.without([0], renormalize=True).values, rtol=1e-6
    )
    empty = pa.NetworkTensor(np.eye(3)[:, :, None], "weights").without([0], renormalize=True)
    np.testing.assert_array_equal(empty.values.sum(1), 1)
    alone = pa.NetworkTensor(np.eye(3)[[1, 0, 2]][:, :, None], "weights").without([0], renormalize=True)
    assert alone.visible_cells().any(1).ravel().tolist() == [False, True]  # what looked at the dropped key only


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ("special", "does not say which tokens are special"),
        ("[CLS]", "does not say"),
        ([5], "got 5, there are 3 queries"),
        (["a"], "no names here"),
        ([0, 1, 2], "expected some to be left"),
    ],
)
def test_leaving_out_is_checked(tokens: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pa.NetworkTensor(np.ones((3, 3, 1)) / 3, "weights").without(tokens)


def test_special_tokens_follow_what_is_filled() -> None:
    visible = np.ones((4, 4), bool)
    visible[0] = visible[:, 0] = False
    network = pa.NetworkTensor(
        np.ones((4, 4, 1)), "scores", visible, meta={"special": {"queries": [0, 3], "keys": [0, 3]}}
    )
    assert network.filled().meta["special"] == {"queries": [2], "keys": [2]}
