"""What a capture promises whatever the model: nothing changes, nothing stays behind, nothing grows, filters hold."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
from capture_models import Fused, Written, numbers, tiny, token_ids
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from pyattnorg.capture import CaptureError, CaptureTooLargeError, UnsupportedAttentionError, capture, capturing
from pyattnorg.capture import memory as capture_memory


def traces(model: nn.Module) -> list[Any]:
    """Everything that a capture could leave behind."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    everywhere = [len(v) for k, v in vars(module_hooks).items() if k.startswith("_global_") and hasattr(v, "__len__")]
    attributes = [sorted(vars(m)) for m in model.modules()]
    return [hooks, everywhere, attributes, torch._C._len_torch_function_stack(), [m.training for m in model.modules()]]


class Breaks(nn.Module):
    """Raises after its first layer; may be told to swallow what a layer raises."""

    def __init__(self, error: type[BaseException], swallow: bool = False) -> None:
        super().__init__()
        self.layers, self.error, self.swallow = nn.ModuleList([Fused(), Fused()]), error, swallow
        self.bad = Bad(error)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers[0](x)
        try:
            x = self.bad(x)
        except self.error:
            if not self.swallow:
                raise
        out: Tensor = self.layers[1](x)
        return out


class Bad(nn.Module):
    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error, self.attention = error, Fused()

    def forward(self, x: Tensor) -> Tensor:
        self.attention(x)
        raise self.error("from inside")


# -- nothing changes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, StopIteration])
def test_nothing_is_left_when_forward_raises(error: type[BaseException]) -> None:
    model = Breaks(error).train()
    model.layers[1].eval()
    before = traces(model)
    with pytest.raises(error, match=r"from inside"):
        capture(model, numbers(1, 5, 32))
    assert traces(model) == before
    with pytest.raises(error, match=r"from inside"), capturing(model, evaluate=True):
        model(numbers(1, 5, 32))
    assert traces(model) == before


def test_a_forward_that_was_not_finished_gives_no_capture() -> None:
    model = Breaks(RuntimeError)
    with capturing(model) as tape, pytest.raises(RuntimeError, match=r"from inside"):
        model(numbers(1, 5, 32))
    with pytest.raises(CaptureError, match=r"forward did not end"):
        tape.capture()


def test_what_the_model_catches_itself_confuses_no_names() -> None:
    got = capture(Breaks(RuntimeError, swallow=True), numbers(1, 5, 32), verify=True)
    assert [row["module"] for row in got.report] == ["layers.0", "bad.attention", "layers.1"]


def test_nothing_is_left_after_a_capture() -> None:
    for model in (tiny("BertModel"), tiny("LlamaModel")):
        state = {k: v.clone() for k, v in model.state_dict().items()}
        buffers = [name for name, _ in model.named_buffers()]
        before = traces(model)
        capture(model, token_ids(1, 6), verify=True)
        assert traces(model) == before
        assert [name for name, _ in model.named_buffers()] == buffers
        assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
        pickle.loads(pickle.dumps(model))
        copy.deepcopy(model)


def test_training_still_works_after_a_capture() -> None:
    # buffers made under inference mode could not be used by autograd any more
    model = tiny("LlamaForCausalLM")
    capture(model, token_ids(1, 6))
    model.train()
    model(token_ids(1, 6), labels=token_ids(1, 6)).loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_random_numbers_are_those_without_a_capture() -> None:
    model = tiny("BertModel").train()
    outs = []
    for run in (
        lambda m: m(token_ids(1, 6))[0],
        lambda m: capture(m, token_ids(1, 6), evaluate=False, keep="output").output[0],
    ):
        torch.manual_seed(3)
        outs.append((run(model).detach(), torch.rand(1)))
    assert torch.equal(outs[0][0], outs[1][0])
    assert torch.equal(outs[0][1], outs[1][1])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_dropout_is_off_and_the_mode_comes_back(implementation: str) -> None:
    # idiap/fast-transformers#131, pytorch/pytorch#42929, huggingface/transformers#31468: rows sum to anything
    model = tiny("BertModel", attention_probs_dropout_prob=0.5, attn_implementation=implementation).train()
    model.encoder.layer[1].eval()
    modes = [m.training for m in model.modules()]
    got = capture(model, token_ids(1, 6))
    assert [m.training for m in model.modules()] == modes
    assert got.report.column("dropout") == [0.0, 0.0]
    np.testing.assert_allclose(got.weights.values.sum(1), 1, atol=1e-5)
    with capturing(model) as tape:
        model(token_ids(1, 6))
    watched = tape.capture()
    assert watched.report.column("dropout") == [0.5, 0.0]
    np.testing.assert_allclose(watched.weights.values.sum(1), 1, atol=1e-5)  # before dropout


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_gives_one_record_a_layer(reentrant: bool) -> None:
    # pytorch/pytorch#81296: forward runs twice, and captures double
    model = tiny("LlamaForCausalLM").train()
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)  # its later name
    enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    with capturing(model) as tape:
        model(token_ids(1, 6), labels=token_ids(1, 6), use_cache=False).loss.backward()
    got = tape.capture()
    assert got.scores.labels == tuple(f"L{i}H{h}" for i in range(2) for h in range(4))
    assert all(p.grad is not None for p in model.model.layers.parameters())
    assert not isinstance(got.scores.values, torch.Tensor)


def test_verify_finds_a_model_that_changes_its_mind() -> None:
    class Counts(Fused):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) + self.calls

    with pytest.raises(CaptureError, match=r"verify: .*differs"):
        capture(Counts(), numbers(1, 5, 32), verify=True)
    noisy = tiny("BertModel").train()
    capture(noisy, token_ids(1, 6), evaluate=False, verify=True)  # dropout falls the same way both times


def test_wrong_maps_are_refused() -> None:
    class Doubled(torch.overrides.TorchFunctionMode):
        """Fused attention that is not what its arguments say."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            return out.mul_(2) if func is torch.nn.functional.scaled_dot_product_attention else out

    with pytest.raises(UnsupportedAttentionError, match=r"Fused.*differs from its output by 0.5"), Doubled():
        capture(Fused(), numbers(1, 5, 32))


# -- nothing stays, nothing grows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_memory_is_constant_over_captures(implementation: str) -> None:
    # huggingface/transformers#25487, ericwtodd/function_vectors#18, pytorch/pytorch#7142: it grows batch by batch
    # ndif-team/nnsight#102, #396: saved values keep earlier ones alive
    model = tiny("BertModel", attn_implementation=implementation)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            capture(model, token_ids(1, 64))
        tracemalloc.start()
        first = tracemalloc.get_traced_memory()[0]
        for _ in range(30):
            got = capture(model, token_ids(1, 64))
        one = sum(got.report.column("bytes"))
        del got
        grown = tracemalloc.get_traced_memory()[0] - first
    finally:
        tracemalloc.stop()
        gc.enable()
    assert grown < one


def test_no_cycles_keep_models_or_captures_alive() -> None:
    model = tiny("BertModel")
    gc.collect()
    gc.disable()
    try:
        with capturing(model) as tape:
            model(token_ids(1, 6))
        got = tape.capture()
        alive = [weakref.ref(x) for x in (model, got, tape)]
        del model
        assert alive[0]() is None  # neither the tape nor the capture holds the model
        del got, tape
        assert alive[1]() is None
        assert alive[2]() is None
    finally:
        gc.enable()


def test_graphs_are_not_held() -> None:
    model = Fused()
    x = numbers(1, 5, 32).requires_grad_()
    with capturing(model) as tape:
        out = model(x)
    assert out.requires_grad
    alive = weakref.ref(out)
    del out
    assert alive() is None
    assert len(tape) == 1


def test_arrays_own_their_memory() -> None:
    got = capture(tiny("BertModel"), token_ids(3, 9), example=1)
    for tensor in (got.scores, got.weights):
        base = tensor.values
        while base.base is not None:
            base = base.base
        assert base.nbytes == tensor.values.nbytes


# -- several at once --------------------------------------------------------------------------------------------------


def test_captures_inside_captures() -> None:
    model = tiny("BertModel")
    with capturing(model) as outer:
        model(token_ids(1, 6))
        inner = capture(model, token_ids(1, 6))
        with capturing(model) as middle:
            model(token_ids(1, 6))
    assert [len(t) for t in (outer, middle)] == [3, 1]
    for got in (inner, middle.capture(), *(outer.capture(i) for i in range(3))):
        assert len(got.report) == 2
        np.testing.assert_array_equal(got.weights.values, inner.weights.values)


def test_models_inside_models_do_not_mix() -> None:
    a, b = nn.Sequential(Fused()), nn.Sequential(Written(causal=True))
    with capturing(a) as first, capturing(b) as second:
        b(a(numbers(1, 5, 32)))
    assert first.capture().report.column("backend") == ["sdpa"]
    assert second.capture().report.column("backend") == ["softmax"]


def test_threads_do_not_see_each_other() -> None:
    # pytorch/pytorch#128272, #35191: hooks race
    shared, errors = tiny("BertModel").train(), []
    want = capture(shared, token_ids(1, 6)).weights.values

    def work(seed: int) -> None:
        try:
            own = nn.Sequential(Fused(causal=bool(seed % 2)))
            for _ in range(5):
                np.testing.assert_array_equal(capture(shared, token_ids(1, 6)).weights.values, want)
                got = capture(own, numbers(1, 5 + seed, 32, seed=seed), verify=True)
                assert got.weights.shape == (5 + seed, 5 + seed, 4)
                assert len(got.report) == 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert shared.training
    assert all(m.training for m in shared.modules())


def test_another_thread_is_not_watched() -> None:
    model = Fused()
    with capturing(model) as tape:
        thread = threading.Thread(target=model, args=(numbers(1, 5, 32),))
        thread.start()
        thread.join()
    with pytest.raises(CaptureError, match=r"not run inside"):
        tape.capture()


# -- the tape ---------------------------------------------------------------------------------------------------------


def test_a_tape_of_several_forwards() -> None:
    model = tiny("BertModel")
    with capturing(model) as tape:
        for n in (4, 6):
            model(token_ids(1, n))
    assert len(tape) == 2
    with pytest.raises(CaptureError, match=r"2 forward passes.*\.capture\(0\) to \.capture\(1\)"):
        tape.capture()
    assert tape.capture(-1) is tape.capture(1)
    assert [tape.capture(i).scores.shape[0] for i in range(2)] == [4, 6]
    with pytest.raises(CaptureError, match=r"index: got 2"):
        tape.capture(2)
    tape.clear()
    with pytest.raises(CaptureError, match=r"not run inside"):
        tape.capture()


def test_a_cleared_tape_has_its_memory_back() -> None:
    model, one = tiny("BertModel"), 2 * 4 * 6 * 6 * 4 * 2
    with capturing(model, max_bytes=one) as tape:
        for _ in range(3):
            model(token_ids(1, 6))
            assert tape.capture().scores.shape == (6, 6, 8)
            tape.clear()


def test_the_package_is_the_function() -> None:
    # `pa.capture` is the package where a part of it was imported before, the function otherwise
    import pyattnorg.capture

    got = pyattnorg.capture(Fused(), numbers(1, 5, 32))  # type: ignore[operator]
    assert got.scores.shape == (5, 5, 4)


def test_parts_of_a_model_may_be_called() -> None:
    model = tiny("CLIPModel")
    with capturing(model) as tape, torch.no_grad():
        model.get_text_features(token_ids(1, 6))
    assert tape.capture().scores.shape == (6, 6, 8)


# -- filters and sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "labels"),
    [
        ({"layers": 1}, "L1H0 L1H1 L1H2 L1H3"),
        ({"layers": "0,2-3", "heads": 1}, "L0H1 L2H1 L3H1"),
        ({"layers": range(2, 9), "heads": "L3H*"}, "L3H0 L3H1 L3H2 L3H3"),
        ({"layers": slice(1, None, 2), "heads": [0, "L3H2"]}, "L1H0 L3H0 L3H2"),
        ({"heads": ["L0H[13]", "L2H0"]}, "L0H1 L0H3 L2H0"),
        ({"heads": lambda layer, head: layer == head}, "L0H0 L1H1 L2H2 L3H3"),
    ],
)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_filters(filters: dict[str, Any], labels: str, implementation: str) -> None:
    # msakarvadia/AttentionLens#5, ndif-team/nnsight#356: only what I need
    model = tiny("BertModel", num_hidden_layers=4, attn_implementation=implementation)
    everything = capture(model, token_ids(1, 6))
    if filters.get("layers") == range(2, 9):
        with pytest.raises(CaptureError, match=r"layers: got \[4, 5, 6, 7, 8\], the model has layers 0 to 3"):
            capture(model, token_ids(1, 6), **filters)
        filters = {**filters, "layers": range(2, 4)}
    got = capture(model, token_ids(1, 6), **filters)
    assert " ".join(got.weights.labels) == labels
    for label in got.weights:
        np.testing.assert_array_equal(got.weights[label], everything.weights[label])
        np.testing.assert_array_equal(got.scores[label], everything.scores[label])


def test_filters_of_torch_attention() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    x = numbers(1, 6, 32)
    everything, got = capture(model, x), capture(model, x, layers=[2], heads=[3, 1])
    assert got.weights.labels == ("L2H1", "L2H3")
    np.testing.assert_array_equal(got.weights["L2H3"], everything.weights["L2H3"])


def test_keep() -> None:
    model = tiny("BertModel")
    got = capture(model, token_ids(1, 6), keep=("weights",))
    assert got.weights.shape == (6, 6, 8)
    with pytest.raises(CaptureError, match=r"keep: 'scores' was not kept"):
        _ = got.scores
    assert got.output is None
    assert capture(model, token_ids(1, 6), keep=["scores", "output"]).output.last_hidden_state.shape == (1, 6, 32)


def test_what_cannot_fit_is_refused_before_the_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # inseq-team/inseq#279, QwenLM/Qwen3-VL#1464: long context and attentions do not fit
    model = tiny("BertModel", num_hidden_layers=4)
    one = 4 * 6 * 6 * 4 * 2
    assert capture(model, token_ids(1, 6), max_bytes=4 * one).scores.shape == (6, 6, 16)
    with pytest.raises(
        CaptureTooLargeError, match=r"4\.6 KB \(4 layer\(s\), up to 4 heads x 6 .* are needed .*store=.*layers=, heads="
    ):
        capture(model, token_ids(1, 6), max_bytes=4 * one - 1)
    assert capture(model, token_ids(1, 6), max_bytes=one, layers=3).scores.shape == (6, 6, 4)
    assert capture(model, token_ids(1, 6), max_bytes=2 * one, keep="weights").weights.shape == (6, 6, 16)
    monkeypatch.setattr(capture_memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"900 bytes that may be used"):
        capture(model, token_ids(1, 6))


def test_free_memory_is_read() -> None:
    free = capture_memory.available_memory()
    assert free is None or 0 < free < 2**50


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"layers": -1}, ValueError, "layers: got -1.*count from 0"),
        ({"layers": "one"}, ValueError, "layers: got 'one'"),
        ({"layers": "3-1"}, ValueError, "ends before it starts"),
        ({"layers": []}, ValueError, "layers: got none"),
        ({"layers": 1.5}, TypeError, "layers: got float"),
        ({"layers": [0, "a"]}, TypeError, "whole numbers"),
        ({"layers": slice(-2, None)}, ValueError, "no negative"),
        ({"layers": 99}, CaptureError, r"layers: got \[99\], the model has layers 0 to 1"),
        ({"heads": "L7H*"}, CaptureError, "heads='L7H.' leaves no head"),
        ({"heads": []}, ValueError, "heads: got none"),
        ({"heads": -1}, ValueError, "heads: got -1"),
        ({"heads": 1.5}, TypeError, "heads: got float"),
        ({"keep": "nothing"}, ValueError, "keep: got"),
        ({"keep": ()}, ValueError, "keep: got"),
        ({"example": 3}, CaptureError, r"example: got 3, the batch has 1 example"),
        ({"tokens": ["a"]}, CaptureError, "tokens: got 1 names.*6"),
        ({"reversion": "main"}, TypeError, "unexpected.*reversion"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        capture(tiny("BertModel"), token_ids(1, 6), **options)
    assert "\n" not in str(raised.value)


def test_batches_need_an_example() -> None:
    with pytest.raises(CaptureError, match=r"inputs: got a batch of 3 examples.*example=0 to 2"):
        capture(tiny("BertModel"), token_ids(3, 6))
    last = capture(tiny("BertModel"), token_ids(3, 6), example=-1)
    np.testing.assert_array_equal(
        last.weights.values, capture(tiny("BertModel"), token_ids(3, 6), example=2).weights.values
    )


def test_wrapped_models_are_unwrapped_and_compiled_ones_refused() -> None:
    # pytorch/pytorch#128272: DataParallel renames and races
    model = tiny("BertModel")
    want = capture(model, token_ids(1, 6))
    got = capture(nn.DataParallel(model), token_ids(1, 6))
    assert got.weights.heads == want.weights.heads
    compiled = torch.compile(model)
    np.testing.assert_array_equal(capture(compiled, token_ids(1, 6)).weights.values, want.weights.values)
    with pytest.raises(UnsupportedAttentionError, match=r"compiled.*_orig_mod"), capturing(compiled):
        pass
    inside = tiny("BertModel")
    inside.encoder.layer[1] = torch.compile(inside.encoder.layer[1])
    with pytest.raises(UnsupportedAttentionError, match=r"'encoder\.layer\.1' is compiled"):
        capture(inside, token_ids(1, 6))
    in_place = tiny("BertModel")
    in_place.compile()
    with pytest.raises(UnsupportedAttentionError, match=r"is compiled"):
        capture(in_place, token_ids(1, 6))


def test_functions_that_the_forward_compiles_run_as_written() -> None:
    @torch.compile(backend="eager")
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    class Net(Fused):
        def forward(self, x: Tensor) -> Tensor:
            return self.join(attend(*self.split(x)))

    got = capture(Net(), numbers(1, 5, 32))
    np.testing.assert_allclose(got.weights.values, capture(Fused(), numbers(1, 5, 32)).weights.values, atol=1e-6)
    from torch._dynamo import eval_frame

    assert eval_frame._stance.stance == "default"


def test_models_without_weights_and_other_things_are_refused() -> None:
    with torch.device("meta"):
        empty = Fused()
    with pytest.raises(CaptureError, match=r"'qkv.weight' is on the meta device"):
        capture(empty, numbers(1, 5, 32))
    with pytest.raises(TypeError, match=r"model: got int, expected a torch.nn.Module"):
        capture(3, numbers(1, 5, 32))
    with pytest.raises(ValueError, match=r"got text for a Fused without a tokenizer"):
        capture(Fused(), "text")


def test_the_report_prints_as_a_table() -> None:
    got = capture(tiny("BertModel"), token_ids(1, 6))
    lines = repr(got.report).splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:4] == ["layer", "module", "backend", "dtype"]
    assert "encoder.layer.1.attention.self" in lines[2]
    assert repr(got) == "Capture(BertModel; 2 layer(s), 6 queries x 6 keys x 8 heads)"
    import json

    assert json.loads(json.dumps(list(got.report))) == list(got.report)
    assert json.dumps(got.scores.meta)
