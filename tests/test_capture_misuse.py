"""What people hand to a capture that nobody meant: every one is captured rightly, or refused in words that help."""

from __future__ import annotations

import errno
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
from capture_models import tiny, token_ids
from torch import nn
from torch.nn import functional as F

import pyattnorg.capture.writing as writing
from pyattnorg.capture import CaptureError, capture, capture_each, capturing

# -- inputs -----------------------------------------------------------------------------------------------------------


def test_ids_in_lists_and_without_a_batch() -> None:
    model, ids = tiny("BertModel"), token_ids(1, 6)
    right = capture(model, ids).weights.values
    for given in (ids.tolist(), ids[0].tolist(), ids[0], ids.numpy(), ids[0].numpy(), [ids]):
        np.testing.assert_array_equal(capture(model, given).weights.values, right)
    with pytest.raises(ValueError, match=r"lists of different lengths.*attention_mask"):
        capture(model, [[1, 2, 3], [4, 5]])


def test_arguments_in_lists_and_numpy_arrays() -> None:
    # what a tokenizer gives that was not asked for tensors: the first thing that a newcomer passes
    model, ids = tiny("BertModel"), token_ids(1, 6)
    mask = torch.ones_like(ids)
    right = capture(model, {"input_ids": ids, "attention_mask": mask}).weights.values
    readonly = ids.numpy().astype(">i8")
    readonly.flags.writeable = False
    for given in (
        {"input_ids": ids.tolist(), "attention_mask": mask.tolist()},
        {"input_ids": ids[0].tolist(), "attention_mask": mask[0].tolist()},
        {"input_ids": readonly, "attention_mask": mask.numpy()},
        (readonly, mask.numpy()),
        {"inputs_embeds": model.embeddings.word_embeddings(ids).detach().double().numpy()},
    ):
        np.testing.assert_array_equal(capture(model, given).weights.values, right)
    [found] = capture_each(model, [{"input_ids": ids[0].tolist()}])
    np.testing.assert_array_equal(found.weights.values, right)
    with pytest.raises(ValueError, match=r"lists of different lengths"):
        capture(model, {"input_ids": [[1, 2, 3], [4, 5]]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.zeros(1, 0, dtype=torch.long), r"is empty \(shape \(1, 0\)\), expected at least one token"),
        ({"input_ids": torch.zeros(0, 4, dtype=torch.long)}, r"'input_ids' is empty"),
        (torch.zeros(1, 4, dtype=torch.long, device="meta"), r"meta device, which holds no values"),
        ([], r"an empty list"),
    ],
)
def test_inputs_without_values(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        capture(tiny("BertModel"), given)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions take no notes before Python 3.11")
@pytest.mark.parametrize("name", ["BertModel", "GPT2Model"])
def test_errors_of_the_model_say_what_the_input_has_to_do_with_it(name: str) -> None:
    # jerryji1993/DNABERT#37: longer than the model sees
    model = tiny(name, **({"max_position_embeddings": 8} if name == "BertModel" else {"n_positions": 8}))
    for ids, said in (
        (token_ids(1, 9), "got 9 tokens, .* has 8 positions"),
        (torch.full((1, 4), 999), "token ids from 999 to 999, .* has ids 0 to 49"),
    ):
        with pytest.raises((IndexError, RuntimeError)) as caught:
            capture(model, ids)
        assert any(re.search(said, note) for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"example": "0"}, TypeError, r"example: got '0'"),
        ({"example": True}, TypeError, r"example: got True"),
        ({"max_length": 0}, ValueError, r"max_length: got 0"),
        ({"max_bytes": -1}, ValueError, r"max_bytes: got -1"),
        ({"tokens": "abcdef"}, TypeError, r"tokens: got the text 'abcdef', expected a list"),
        ({"heads": lambda layer: True}, CaptureError, r"heads: the function raised TypeError.*takes \(layer, head\)"),
        ({"heads": lambda layer, head: 1 / 0}, CaptureError, r"heads: the function raised ZeroDivisionError"),
        ({"heads": lambda layer, head: False}, CaptureError, r"leaves no head"),
        ({"heads": "L9H*"}, CaptureError, r"leaves no head, the model has layers 0 to 1"),
        ({"layers": slice(5, 5)}, CaptureError, r"leaves no head"),
        ({"queries": slice(100, 200)}, ValueError, r"holds none of the 6 queries"),
        ({"store": ""}, ValueError, r"store: got an empty path"),
        ({"store": 5}, TypeError, r"store: got int"),
    ],
)
def test_arguments_that_mean_nothing(options: dict[str, Any], error: type[Exception], said: str) -> None:
    model = tiny("BertModel")
    with pytest.raises(error, match=said):
        capture(model, token_ids(1, 6), **options)
    capture(model, token_ids(1, 6))  # nothing is left behind


def test_nan_says_where_to_look() -> None:
    class Attends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    x = torch.randn(1, 2, 5, 4)
    x[0, :, 2] = torch.nan
    with pytest.raises(CaptureError, match=r"the model itself: .* float32.*look for NaN or infinities in the inputs"):
        _ = capture(Attends(), x).weights


def test_a_fully_padded_example_gives_numbers() -> None:
    ids = token_ids(2, 6)
    for name in ("BertModel", "LlamaForCausalLM"):
        for how in ("sdpa", "eager"):
            model = tiny(name, attn_implementation=how)
            mask = torch.ones_like(ids)
            mask[1] = 0
            for example in (0, 1):
                got = capture(model, {"input_ids": ids, "attention_mask": mask}, example=example)
                assert np.isfinite(got.weights.values).all()
                assert got.report.column("nonfinite") == [0, 0]


class Letters:
    """A tokenizer that adds a token on either side, and cannot leave them out."""

    all_special_ids = (0, 1)
    unk_token_id = None
    model_max_length = 10**30

    def __call__(self, text: str, *, max_length: int = 99, **_: Any) -> dict[str, torch.Tensor]:
        ids = [2 + ord(c) % 40 for c in text][: max(max_length - 2, 0)]
        return {"input_ids": torch.tensor([[0, *ids, 1]])}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(i) for i in ids]


@pytest.mark.parametrize(
    ("text", "options", "error", "said"),
    [
        ("abc", {"max_length": 1}, ValueError, r"max_length: got 1, the tokenizer gives 2 tokens at least"),
        ("a\ud800", {}, ValueError, r"half a surrogate pair"),
        (b"abc", {}, TypeError, r"inputs: got bytes"),
    ],
)
def test_texts_that_are_none(text: Any, options: dict[str, Any], error: type[Exception], said: str) -> None:
    model = tiny("BertModel")
    with pytest.raises(error, match=said):
        capture(model, text, tokenizer=Letters(), **options)
    assert capture(model, "abc", tokenizer=Letters(), max_length=4).weights.shape[0] == 4


# -- captures within captures -----------------------------------------------------------------------------------------


def test_a_capture_in_a_hook_is_nothing_of_the_outer_one() -> None:
    model, other, ids = tiny("BertModel", attn_implementation="eager"), tiny("GPT2Model"), token_ids(1, 6)
    right, inner = capture(model, ids), []
    hook = model.encoder.layer[0].register_forward_pre_hook(lambda *_: inner.append(capture(other, ids)) and None)
    got = capture(model, ids, keep=("scores", "weights", "output"))
    hook.remove()
    assert list(got) == [""]
    np.testing.assert_array_equal(got.weights.values, right.weights.values)
    np.testing.assert_array_equal(inner[0].weights.values, capture(other, ids).weights.values)


def test_a_capture_in_a_hook_that_fails_lets_the_outer_one_go_on() -> None:
    model, ids = tiny("BertModel"), token_ids(1, 6)
    right, said = capture(model, ids).weights.values, []

    def fails(*_: Any) -> None:
        with pytest.raises(CaptureError) as caught:
            capture(nn.Linear(2, 2), torch.zeros(1, 2))
        said.append(caught.value)

    hook = model.encoder.layer[0].register_forward_hook(fails)
    np.testing.assert_array_equal(capture(model, ids).weights.values, right)
    hook.remove()
    assert len(said) == 1


def test_the_same_model_captured_in_its_own_hook() -> None:
    model, ids, inner = tiny("BertModel"), token_ids(1, 6), []

    def once(*_: Any) -> None:
        if not inner:
            inner.append(None)
            inner[0] = capture(model, ids).weights.values

    right = capture(model, ids).weights.values
    hook = model.encoder.layer[1].register_forward_hook(once)
    np.testing.assert_array_equal(capture(model, ids).weights.values, right)
    hook.remove()
    np.testing.assert_array_equal(inner[0], right)


# -- disks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, r"its disk is full; layers that are whole stay"), (errno.EROFS, r"cannot be written")],
)
def test_disks_that_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    pytest.importorskip("zarr")
    model, ids, real, calls = tiny("BertModel"), token_ids(1, 6), writing.create_array, []

    def full(*args: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:
            raise OSError(number, "as the system says")
        return real(*args)

    monkeypatch.setattr(writing, "create_array", full)
    with pytest.raises(OSError, match=said) as caught:
        capture(model, ids, store=tmp_path / "s")
    assert caught.value.errno == number
    monkeypatch.undo()
    got = capture(model, ids, store=tmp_path / "s")  # room was made
    np.testing.assert_array_equal(got.weights.values, capture(model, ids).weights.values)


def test_a_lock_that_a_killed_capture_left_goes_away(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    model, ids = tiny("BertModel"), token_ids(1, 6)
    capture(model, ids, store=tmp_path / "s")
    (tmp_path / "s" / ".lock").touch()
    capture(model, ids, store=tmp_path / "s")
    assert not (tmp_path / "s" / ".lock").exists()


# -- layers that lie together -----------------------------------------------------------------------------------------


def test_layers_are_not_copied_to_be_put_together() -> None:
    model, ids = tiny("BertModel"), token_ids(1, 6)
    with capturing(model) as tape:
        model(ids)
    records = tape.recorder.passes[0].records
    first = [r.weights for r in records]
    got = tape.capture().weights.values
    assert all(np.shares_memory(got, layer) for layer in first)
    assert not got.flags.writeable


def test_layers_that_lie_apart_are_put_together_all_the_same() -> None:
    # encoder and decoder take turns with maps of one shape, and the decoder's two kinds do
    model, ids = tiny("BartModel", decoder_attention_heads=4), token_ids(1, 5)
    got = capture(model, {"input_ids": ids, "decoder_input_ids": ids})
    eager = tiny("BartModel", decoder_attention_heads=4, attn_implementation="eager")
    eager.load_state_dict(model.state_dict())
    with torch.no_grad():
        out = eager(input_ids=ids, decoder_input_ids=ids, output_attentions=True)
    for name, maps in (
        ("encoder", out.encoder_attentions), ("decoder", out.decoder_attentions), ("cross", out.cross_attentions)
    ):  # fmt: skip
        right = torch.cat([m[0] for m in maps]).permute(1, 2, 0).numpy()
        np.testing.assert_allclose(got[name].weights.values, right, atol=1e-5)


def test_threads_and_streams_give_what_one_capture_gives() -> None:
    model, ids = tiny("BertModel"), token_ids(1, 6)
    right, found = capture(model, ids).weights.values, []

    def go() -> None:
        found.extend(np.array_equal(c.weights.values, right) for c in capture_each(model, [ids] * 3))

    threads = [threading.Thread(target=go) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 9


# -- weights that change after softmax --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["as it is", "in place", "another tensor", "a view"])
def test_weights_that_are_changed_are_told_from_those_that_are_not(how: str) -> None:
    class Gated(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = torch.softmax(x @ x.transpose(-1, -2), -1)
            if how == "in place":
                weights *= torch.linspace(0.5, 1, weights.shape[-1])
            elif how == "another tensor":
                weights = weights * torch.linspace(0.5, 1, weights.shape[-1])
            elif how == "a view":
                weights.view(-1)[::2] *= 0.5
            return weights @ x

    got = capture(Gated(), torch.randn(1, 2, 5, 4))
    assert bool(got.report[0]["note"]) == (how != "as it is")
    np.testing.assert_allclose(got.weights.values.sum(1), 1, atol=1e-6)


def test_inference_tensors_do_not_count_their_changes() -> None:
    class Quiet(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode():
                return torch.softmax(x @ x.transpose(-1, -2), -1) @ x

    x = torch.randn(1, 2, 5, 4)
    for got in (capture(Quiet(), x), _within_inference(x)):
        right = torch.softmax(x @ x.transpose(-1, -2), -1)[0].permute(1, 2, 0).numpy()
        np.testing.assert_allclose(got.weights.values, right, atol=1e-6)


def _within_inference(x: torch.Tensor) -> Any:
    class Plain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x @ x.transpose(-1, -2), -1) @ x

    with torch.inference_mode():
        return capture(Plain(), x)


def test_softmax_in_float64_of_float32_scores_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    class Careful(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x @ x.transpose(-1, -2), -1, dtype=torch.float64).to(x.dtype) @ x

    got = capture(Careful(), torch.randn(1, 2, 40, 4))
    assert not caplog.records
    assert got.report[0]["softmax_error"] < 1e-6
