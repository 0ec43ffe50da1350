"""How large a capture is: told before it runs, and made smaller by choosing layers, heads, queries, keys, numbers."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
from capture_models import Fused, Written, numbers, tiny, token_ids
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import pyattnorg as pa
from pyattnorg.capture import (
    CaptureError,
    CaptureTooLargeError,
    NoAttentionError,
    UnsupportedAttentionError,
    capture,
    capturing,
    estimate,
    load_capture,
)
from pyattnorg.capture import memory as capture_memory
from pyattnorg.capture.cut import Cut
from pyattnorg.capture.qk import QueriesKeys
from pyattnorg.capture.spans import Spans

IDS = token_ids(1, 9)
TEXTS = {"input_ids": IDS}
BOTH = {"input_ids": IDS, "decoder_input_ids": token_ids(1, 5)}
SEVERAL: list[tuple[str, Any]] = [
    ("BertModel", TEXTS), ("MistralModel", TEXTS), ("Gemma2Model", TEXTS), ("BloomModel", TEXTS), ("T5Model", BOTH),
    ("AlbertModel", TEXTS), ("GptOssModel", TEXTS), ("ViTModel", numbers(1, 3, 32, 32)),
]  # fmt: skip


# -- estimate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "inputs"), SEVERAL)
def test_estimate_is_what_capture_takes(name: str, inputs: Any) -> None:
    model = tiny(name)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    hooked: list[Any] = []
    handle = model.register_forward_hook(lambda *a: hooked.append(a))
    found = estimate(model, inputs)
    by_shape = name != "GptOssModel"  # whose experts torch does not know the shapes of in float32
    assert bool(hooked) != by_shape  # the user's hooks are not called where nothing runs
    handle.remove()
    taken = capture(model, inputs)
    maps = [g.scores.values.nbytes + g.weights.values.nbytes for g in taken.groups.values()]
    assert found.bytes == sum(maps)
    assert [(r["layer"], r["module"], r["heads"], r["queries"], r["keys"]) for r in found.layers] == [
        (r["layer"], r["module"], *r["shape"]) for r in taken.report
    ]
    assert found.method == ("shapes" if by_shape else "forward")
    assert found.seconds > 0
    assert found.fits
    assert "heads of" in repr(found)
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert not any(type(v).__name__ == "FakeTensor" for m in model.modules() for v in vars(m).values())


def test_estimate_follows_what_is_asked_for() -> None:
    model = tiny("MistralModel", num_hidden_layers=4)
    whole = estimate(model, TEXTS).bytes
    assert whole == 4 * 4 * 81 * 4 * 2
    assert estimate(model, TEXTS, layers="0-1").bytes == whole // 2
    assert estimate(model, TEXTS, heads="L3H*").bytes == whole // 4
    assert estimate(model, TEXTS, keep="weights").bytes == whole // 2
    assert estimate(model, TEXTS, dtype="float16").bytes == whole // 2
    assert estimate(model, TEXTS, queries="0:3").bytes == whole // 3
    assert estimate(model, TEXTS, keys=slice(0, 3)).bytes == whole // 3
    assert estimate(model, TEXTS, store=True).stored
    taken = capture(model, TEXTS, keep="qk")
    masks = sum(r.visible.first.nbytes * 2 for r in _records(taken))
    assert estimate(model, TEXTS, keep="qk").bytes == sum(taken.report.column("bytes")) - masks


def _records(taken: pa.Capture) -> list[Any]:
    stack = taken.weights._source
    return [layer.__class__ and type("R", (), {"visible": v}) for layer, v in zip(stack._layers, stack._visible)]


def test_estimate_of_plain_torch() -> None:
    for model in (Fused(), Written(), nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)):
        taken = capture(model, numbers(1, 6, 32))
        assert estimate(model, numbers(1, 6, 32)).bytes == taken.scores.values.nbytes * 2


class Looking(Written):
    """Looks at a number on its way, which tensors without values do not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x if float(x.sum()) > 0 else -x)


def test_a_model_that_looks_at_values_runs_once() -> None:
    found = estimate(Looking(), numbers(1, 6, 32))
    assert (found.method, found.bytes) == ("forward", 4 * 36 * 4 * 2)
    assert "the model ran once" in repr(found)


def test_estimate_refuses_what_capture_refuses() -> None:
    model = tiny("BertModel")
    with pytest.raises(CaptureError, match=r"layers: got \[7\], the model has layers 0 to 1"):
        estimate(model, TEXTS, layers=7)
    with pytest.raises(CaptureError, match=r"got a batch of 2 examples, expected one; pick it with example=0 to 1"):
        estimate(model, token_ids(2, 9))
    with pytest.raises(NoAttentionError, match="no attention was seen in Linear"):
        estimate(nn.Linear(4, 4), numbers(2, 4))
    with pytest.raises(ValueError, match=r"queries: 20: holds none of the 9 queries"):
        estimate(model, TEXTS, queries="20:")
    with pytest.raises(TypeError, match="nonsense"):
        estimate(model, TEXTS, nonsense=1)


class Never(TorchDispatchMode):  # type: ignore[misc]
    """Refuses to compute anything large."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        assert not isinstance(out, torch.Tensor) or type(out).__name__ == "FakeTensor" or out.numel() < 10**6
        return out


def test_a_context_that_no_memory_holds_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # inseq-team/inseq#279: 100,000 tokens would be 320 GB of maps; TransformerLens#479: the config's length is nothing
    model = tiny("LlamaModel", max_position_embeddings=131072)
    assert estimate(model, TEXTS).bytes == 2 * 4 * 81 * 4 * 2
    monkeypatch.setattr(capture_memory, "available_memory", lambda: 4 * 10**9)
    with (
        Never(),
        pytest.raises(CaptureTooLargeError, match=r"10\.0 GB .*4 heads x 25000 queries x 25000 keys.*store=.*queries="),
    ):
        capture(model, token_ids(1, 25000), keep="weights", layers=0)


def test_what_no_disk_holds_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(CaptureTooLargeError, match=r"store: 5\.2 KB .* 1\.0 KB are free"):
        capture(tiny("BertModel"), TEXTS, store=tmp_path / "s")
    assert not (tmp_path / "s").exists()


# -- refused before the forward ----------------------------------------------------------------------------------------


def test_what_can_be_known_is_refused_before_the_forward() -> None:
    model = tiny("BertModel")
    model.forward = None  # running it would be another error
    with pytest.raises(CaptureError, match=r"layers: got \[2, 9\], the model has layers 0 to 1"):
        capture(model, TEXTS, layers=[0, 2, 9])
    with pytest.raises(CaptureError, match=r"batch of 3 examples, expected one; pick it with example=0 to 2"):
        capture(model, {"input_ids": token_ids(3, 9)})
    for example in (3, -4):
        with pytest.raises(CaptureError, match=rf"example: got {example}, the batch has 3 example\(s\)"):
            capture(model, {"input_ids": token_ids(3, 9)}, example=example)
    model.__dict__.pop("forward")
    with pytest.raises(CaptureTooLargeError, match="max_bytes=100"):
        capture(model, TEXTS, max_bytes=100)


def test_shared_layers_are_counted_by_the_configuration() -> None:
    model = tiny("AlbertModel")  # one module, called twelve times
    assert capture(model, TEXTS, layers=11).scores.shape == (9, 9, 4)
    with pytest.raises(CaptureError, match=r"layers: got \[12\], the model has layers 0 to 11"):
        capture(model, TEXTS, layers=12)


# -- part of the maps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "inputs"), SEVERAL)
def test_a_part_is_a_part_of_the_whole(name: str, inputs: Any) -> None:
    model = tiny(name)
    whole = capture(model, inputs)
    part = capture(model, inputs, queries="1:4", keys=slice(None, None, 2))
    assert list(part.groups) == list(whole.groups)
    for group in whole.groups:
        for kind in ("scores", "weights"):
            a, b = getattr(whole[group], kind), getattr(part[group], kind)
            assert b.shape == (3, -(-a.shape[1] // 2), a.shape[2]) == part[group].shape
            np.testing.assert_allclose(b.values, a.values[1:4, ::2], rtol=1e-5, atol=2e-6)
            assert np.array_equal(b.visible_cells(), a.visible_cells()[1:4, ::2])
            assert b.labels == a.labels
    for ours, theirs in zip(part.report, whole.report, strict=True):
        assert (
            theirs["row_sums"][0] - 1e-5 <= ours["row_sums"][0] <= ours["row_sums"][1] <= theirs["row_sums"][1] + 1e-5
        )


def test_a_part_keeps_its_names_and_loses_padding() -> None:
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]])
    model, names = tiny("MistralModel"), [f"t{i}" for i in range(9)]
    whole = capture(model, {**TEXTS, "attention_mask": mask}, tokens=names)
    part = capture(model, {**TEXTS, "attention_mask": mask}, tokens=names, queries="1:6", keys="-4:")
    assert whole.weights.queries == tuple(names[3:])
    assert part.weights.queries == ("t3", "t4", "t5")
    assert part.weights.keys == ("t5", "t6", "t7", "t8")
    np.testing.assert_allclose(part.weights.values, whole.weights.values[:3, 2:], atol=1e-6)
    with pytest.raises(CaptureError, match="are padding, expected some real ones"):
        capture(model, {**TEXTS, "attention_mask": mask}, queries="0:3")


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [("0:4", [0, 1, 2, 3]), ("-2:", [7, 8]), (3, [3]), (-1, [8]), ("5", [5]), (range(1, 6, 2), [1, 3, 5]),
     (slice(None), list(range(9))), (np.int64(2), [2]), ("::4", [0, 4, 8]), (None, list(range(9)))],
)  # fmt: skip
def test_ways_to_choose(choice: Any, wanted: list[int]) -> None:
    assert list(range(9)[Cut.of(choice).rows(9)]) == wanted


@pytest.mark.parametrize(
    ("choice", "error", "said"),
    [("a:b", ValueError, "expected a slice such as"), (1.5, TypeError, "got float"), (True, TypeError, "got bool"),
     (slice(5, 1, -1), ValueError, "expected 1 or more"), (range(0), ValueError, "which is empty"),
     ([1, 2], TypeError, "list")],
)  # fmt: skip
def test_ways_not_to_choose(choice: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"keys: .*{said}"):
        capture(tiny("BertModel"), TEXTS, keys=choice)


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "float32", "float64", np.float16, np.dtype("float64"), torch.float16])
@pytest.mark.parametrize("stored", [False, True])
def test_numbers_are_kept_as_asked(name: Any, stored: bool, tmp_path: Any) -> None:
    plain = capture(tiny("MistralModel"), TEXTS)
    found = capture(tiny("MistralModel"), TEXTS, dtype=name, store=tmp_path / "s" if stored else None)
    size = int("".join(c for c in str(name) if c.isdigit())) // 8
    bare = [(r["shape"][0] * 81 * 2) * size for r in found.report]
    assert all(0 <= b - want <= 2 * 81 for b, want in zip(found.report.column("bytes"), bare, strict=True))
    assert found.weights.values.dtype == (np.float64 if size == 8 else np.float32)
    for kind in ("scores", "weights"):
        a, b = getattr(plain, kind), getattr(found, kind)
        np.testing.assert_allclose(b.values, a.values, rtol=1e-3 if size == 2 else 0, atol=1e-6 if size == 2 else 0)
    assert np.array_equal(plain.weights.visible, found.weights.visible)


def test_numbers_that_do_not_fit_are_refused() -> None:
    model = Written()
    with torch.no_grad():
        model.qkv.weight.mul_(200)
    with pytest.raises(UnsupportedAttentionError, match=r"its scores go up to .*'float16' holds at most 6\.55e\+04"):
        capture(model, numbers(1, 6, 32), dtype="float16")
    with pytest.raises(ValueError, match=r"dtype: got 'bfloat16'.*torch_dtype="):
        capture(model, numbers(1, 6, 32), dtype="bfloat16")
    with pytest.raises(ValueError, match="dtype: got 'int8'"):
        capture(model, numbers(1, 6, 32), dtype="int8")


# -- queries and keys instead of maps ----------------------------------------------------------------------------------

QK: list[tuple[str, Any, Any]] = [
    ("encoder", tiny("BertModel"), TEXTS),
    ("grouped, window", tiny("MistralModel"), TEXTS),
    ("padded", tiny("MistralModel"), {**TEXTS, "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1]])}),
    ("bias", tiny("T5Model"), BOTH),
    ("image", tiny("ViTModel"), numbers(1, 3, 32, 32)),
    ("torch.nn", nn.TransformerEncoderLayer(32, 4, 48, batch_first=True).eval(), numbers(1, 6, 32)),
    ("extra keys", nn.MultiheadAttention(32, 4, add_bias_kv=True, add_zero_attn=True, batch_first=True).eval(), None),
    ("float64", Fused(causal=True).double(), numbers(1, 6, 32).double()),
    ("holes", Fused(), numbers(1, 6, 32)),
]


@pytest.mark.parametrize("name", [name for name, *_ in QK])
@pytest.mark.parametrize("stored", [False, True])
def test_heads_are_computed_again(name: str, stored: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # TransformerLensOrg/TransformerLens#378
    model, inputs = next((m, x) for n, m, x in QK if n == name)
    inputs = (numbers(1, 6, 32),) * 3 if inputs is None else inputs
    whole = capture(model, inputs)
    monkeypatch.setattr("pyattnorg.capture.qk.BLOCK", 20)
    found = capture(model, inputs, keep="qk", store=tmp_path / "s" if stored else None)
    found = load_capture(tmp_path / "s") if stored else found
    cut = capture(model, inputs, keep="qk", queries="1:3", keys="0:4", heads="L1H*" if len(whole.report) > 1 else None)
    for group in whole.groups:
        for kind in ("scores", "weights"):
            a, b = getattr(whole[group], kind), getattr(found[group], kind)
            assert not b.in_memory
            assert np.array_equal(a.visible_cells(), b.visible_cells())
            seen = a.visible_cells()
            for i in range(len(a)):
                np.testing.assert_allclose(
                    np.where(seen[:, :, i], b[i], 0), np.where(seen[:, :, i], a[i], 0), rtol=1e-5, atol=1e-5
                )
                assert np.array_equal(b.head(i, slice(2, 4)), b[i][2:4])
            c = getattr(cut[group], kind)
            rows, columns = (slice(0, 1), slice(0, 2)) if name == "padded" else (slice(1, 3), slice(0, 4))
            np.testing.assert_allclose(c[0], b[c.labels[0]][rows, columns], rtol=1e-5, atol=1e-5)
    assert pa.organize(found[group].weights).trees_[2].n_leaves == a.shape[2]


def test_bytes_grow_with_the_tokens_and_not_with_their_square() -> None:
    model = tiny("MistralModel")
    bytes_at = {n: sum(capture(model, token_ids(1, n), keep="qk").report.column("bytes")) for n in (20, 40, 80)}
    assert bytes_at[80] - bytes_at[40] == 2 * (bytes_at[40] - bytes_at[20])
    assert bytes_at[80] < sum(capture(model, token_ids(1, 80)).report.column("bytes")) / 5
    with_capturing(model)


def with_capturing(model: Any) -> None:
    with capturing(model, keep="qk", queries="0:5", dtype="float16") as tape:
        model(**TEXTS)
    assert tape.capture().weights.shape == (5, 9, 8)


def test_what_queries_and_keys_do_not_tell_is_refused() -> None:
    for name in ("BloomModel", "GptOssModel", "Gemma2Model"):
        with pytest.raises(UnsupportedAttentionError, match=r"keep=\('qk',\) cannot bring its maps back.*sdpa.*store="):
            capture(tiny(name), TEXTS, keep="qk")
    with pytest.raises(ValueError, match=r"keep: got \['maps'\]"):
        capture(tiny("BertModel"), TEXTS, keep="maps")


def test_rows_that_see_nothing_have_no_weights() -> None:
    q, k = np.ones((1, 3, 2), np.float32), np.ones((1, 4, 2), np.float32)
    seen = np.array([[True, False, False, True], [False] * 4, [True] * 4])
    _, weights = QueriesKeys(q, k, np.zeros(1, np.int64), 0.5).maps(0, slice(None), seen)
    np.testing.assert_allclose(weights, [[0.5, 0, 0, 0.5], [0] * 4, [0.25] * 4])


def test_spans() -> None:
    for seen in (np.tri(5, dtype=bool), np.tri(5, k=-1, dtype=bool), np.ones((2, 3), bool), np.zeros((2, 3), bool)):
        spans = Spans.of(seen)
        assert spans is not None
        assert np.array_equal(spans.cells(), seen)
        assert np.array_equal(spans.cells(slice(1, 2)), seen[1:2])
    assert Spans.of(np.array([[True, False, True]])) is None


def test_captures_leave_nothing_behind() -> None:
    # ndif-team/nnsight#102: what one capture saved must not keep earlier ones alive
    model = tiny("BertModel")
    capture(model, TEXTS, keep="qk")
    estimate(model, TEXTS)
    gc.collect()
    before = sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects())
    for _ in range(5):
        capture(model, TEXTS, keep="qk")
        estimate(model, TEXTS)
    gc.collect()
    assert sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects()) <= before
