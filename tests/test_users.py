"""Faults that users of neighbouring tools met, each kept from happening here, where no other test cites it."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
from capture_models import Fused, Written, eager_maps, numbers, softmax, tiny, token_ids
from torch import Tensor, nn

import pyattnorg as pa
from pyattnorg.capture import CaptureError, capture, capturing

# -- getting the attention out ----------------------------------------------------------------------------------------


def test_renamed_insides_of_transformers_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # huggingface/transformers#43590, #47117; OpenSenseNova/SenseNova-U1#242; ndif-team/nnterp#58: capture by a name
    # breaks with the name. Here calls are watched, so a function of another name is seen as well.
    transformers = pytest.importorskip("transformers")
    interface = getattr(transformers, "AttentionInterface", None)
    masks = getattr(pytest.importorskip("transformers.masking_utils"), "AttentionMaskInterface", None)
    if interface is None or masks is None:
        pytest.skip("this transformers has no registry of attention functions")
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    interface.register("renamed_in_another_version", sdpa_attention_forward)
    masks.register("renamed_in_another_version", sdpa_mask)
    want = capture(tiny("LlamaModel"), token_ids(1, 6))
    got = capture(tiny("LlamaModel", attn_implementation="renamed_in_another_version"), token_ids(1, 6))
    np.testing.assert_array_equal(got.weights.values, want.weights.values)


def test_every_record_leaves_the_device_as_it_arrives() -> None:
    # zjunlp/KnowledgeCircuits#5; huggingface/transformers#35918: layers on several devices cannot be stacked
    for implementation in ("sdpa", "eager"):
        model = tiny("BertModel", attn_implementation=implementation)
        with torch.no_grad(), capturing(model) as tape:
            model(token_ids(1, 6))
        for record in tape.recorder.passes[0].records:  # before anything was put together
            assert type(record.weights) is type(record.scores) is np.ndarray


def test_gradients_flow_and_nothing_of_them_is_kept() -> None:
    # huggingface/transformers#31593, #9387; pytorch/pytorch#7142: attentions that require grad keep their graph
    model = tiny("BertModel", attn_implementation="eager")
    with capturing(model) as tape:
        out = model(token_ids(1, 6)).last_hidden_state
    out.sum().backward()
    assert all(p.grad is not None for p in model.encoder.parameters())
    assert tape.capture().weights.values.dtype == np.float32


def test_quantised_layers_are_captured() -> None:
    model = nn.Sequential(Written(causal=True), Written(causal=True)).eval()
    x = numbers(1, 7, 32) * 0.2
    want = capture(model, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)
        got = capture(small, x, verify=True)
    assert got.weights.labels == want.weights.labels
    assert 0 < np.abs(got.weights.values - want.weights.values).max() < 0.2
    np.testing.assert_allclose(softmax(got.scores.values, got.scores.visible_cells()), got.weights.values, atol=1e-6)


def test_distributed_wrappers_are_taken_off() -> None:
    # pytorch/pytorch#128272, #35191, #42478: replicas race, names get a prefix
    dist = torch.distributed
    if not dist.is_available():
        pytest.skip("this build of torch has no torch.distributed")
    model = tiny("BertModel")
    want = capture(model, token_ids(1, 6))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        got = capture(nn.parallel.DistributedDataParallel(model), token_ids(1, 6))
    finally:
        dist.destroy_process_group()
    assert got.weights.heads == want.weights.heads
    np.testing.assert_array_equal(got.weights.values, want.weights.values)


# -- masks, padding, numbers ------------------------------------------------------------------------------------------


def test_half_precision_rows_are_those_the_model_had() -> None:
    # huggingface/diffusers#3483: rows of half precision sum to 0.998 or 1.002, and NumPy has no bfloat16
    got = capture(nn.Sequential(Written()).to(torch.bfloat16), numbers(1, 40, 32).bfloat16())
    sums = np.array([row["row_sums"] for row in got.report])
    assert got.weights.values.dtype == np.float32
    assert 1e-5 < np.abs(sums - 1).max() < 0.02
    assert {row["dtype"] for row in got.report} == {"bfloat16"}


def test_soft_capping_is_in_the_scores() -> None:
    # vllm-project/vllm-metal#665; paiml/realizar#27; ReaLLMASIC/ReaLLM-Forge#461: the cap is dropped when recomputed
    model = tiny("Gemma2Model", attn_logit_softcapping=0.5)
    got = capture(model, token_ids(1, 8))
    assert np.abs(got.scores.values[got.scores.visible_cells()]).max() <= 0.5
    np.testing.assert_allclose(got.weights.values, eager_maps(model, input_ids=token_ids(1, 8)), atol=1e-6)
    np.testing.assert_allclose(softmax(got.scores.values, got.scores.visible_cells()), got.weights.values, atol=1e-6)


def test_sums_and_entropies_are_over_visible_cells() -> None:
    # xjdr-alt/entropix#62; smolorg/smoltropix#5; joshyZhou/AST#17: 0 log 0 is NaN, masked cells make means explode
    causal = np.tri(6, dtype=bool)
    weights = causal / causal.sum(1, keepdims=True)
    network = pa.NetworkTensor(weights[:, :, None].repeat(3, 2), "weights", causal)
    scores = pa.NetworkTensor(np.where(causal, 1.0, -1e30)[:, :, None].repeat(3, 2), "scores", causal)
    np.testing.assert_array_equal(scores.filled().values, 1.0)
    for x in (network, scores):
        table = pa.organize(x).head_table()
        assert all(np.isfinite(v) for row in table for v in row.values() if isinstance(v, float))
    assert np.isfinite(pa.l1_entropy(np.zeros((3, 3))))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_packed_samples_show_what_they_see_of_each_other(implementation: str) -> None:
    # axolotl-ai-cloud/axolotl#3796; AnswerDotAI/ModernBERT#229: samples packed in one row see each other, or not
    model = tiny("LlamaModel", attn_implementation=implementation)
    ids, positions = token_ids(1, 8), torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])
    got = capture(model, {"input_ids": ids, "position_ids": positions})
    second = got.weights.without([0, 1, 2, 3])  # one sample: the tokens of the other are left out
    across = got.weights.values[4:, :4].sum(1).mean()
    assert second.shape == (4, 4, 8)
    assert second.meta["dropped"]["mass"] == pytest.approx(across, abs=1e-6)
    apart = torch.full((1, 1, 8, 8), torch.finfo(torch.float32).min)
    block = torch.ones(4, 4).tril().bool()
    for start in (0, 4):
        apart[0, 0, start : start + 4, start : start + 4][block] = 0
    alone = capture(model, {"input_ids": ids, "position_ids": positions, "attention_mask": apart})
    seen = alone.weights.visible_cells()[:, :, 0]
    assert not seen[4:, :4].any()
    assert alone.weights.without([0, 1, 2, 3]).meta["dropped"]["mass"] == 0
    np.testing.assert_allclose(
        alone.weights.values[4:, 4:], capture(model, {"input_ids": ids[:, 4:]}).weights.values, atol=1e-5
    )


def test_masses_need_not_be_equal() -> None:
    # PythonOT/POT#126, #374: rows of a float32 softmax do not sum to 1 exactly, and a solver calls them infeasible
    rows = torch.softmax(numbers(4, 50), -1).numpy()
    tree = pa.PartitionTree.dyadic(50)
    found = pa.tree_emd(np.vstack([rows, rows[:1] * 2]), [tree])
    assert np.isfinite(found).all()
    assert found[0, 4] > 0


# -- memory, speed, storage -------------------------------------------------------------------------------------------


def test_views_are_copied_for_the_user(tmp_path: Any) -> None:
    # safetensors/safetensors#17, #232, #469: views and shared storage cannot be saved
    safetensors = pytest.importorskip("safetensors.numpy")
    got = capture(tiny("BertModel"), token_ids(2, 6), example=1)
    parent = got.weights.values
    safetensors.save_file({"head": np.ascontiguousarray(got.weights["L0H1"])}, tmp_path / "one.safetensors")
    network = pa.NetworkTensor(parent.transpose(1, 0, 2)[::2], "weights")
    pa.organize(network).save(tmp_path / "organized.npz")
    np.testing.assert_array_equal(pa.load(tmp_path / "organized.npz").network.values, network.values)


def test_another_resolution_is_another_capture() -> None:
    # brain-score/vision#2511: a cache whose key ignored preprocessing shared activations between two resolutions
    from capture_models import VISION

    small = capture(tiny("ViTModel", **VISION), numbers(1, 3, 32, 32))
    large = capture(tiny("ViTModel", **{**VISION, "image_size": 64}), numbers(1, 3, 64, 64))
    assert (small.weights.shape, large.weights.shape) == ((17, 17, 8), (65, 65, 8))
    again = capture(tiny("ViTModel", **VISION), numbers(1, 3, 32, 32))
    np.testing.assert_array_equal(again.weights.values, small.weights.values)


def test_offsets_beyond_2_to_the_31_are_right(tmp_path: Path) -> None:
    # MDAnalysis/mdanalysis#3512; pytorch/pytorch#31593, #15511; NVIDIA/cuml#4552: int32 offsets wrap round. A sparse
    # file of 9.7 GB, of which a few pages are there; its points lie 2^28 elements from one another.
    step = 2**28
    file = np.memmap(tmp_path / "sparse", np.float32, "w+", shape=(9 * step,))
    values = np.arange(9, dtype=np.float32) ** 2
    file[::step] = values
    points = file[::step][:, None]
    assert (len(points) - 1) * points.strides[0] // points.itemsize >= 2**31
    np.testing.assert_allclose(pa.pairwise_l1(points), np.abs(values[:, None] - values), rtol=1e-6)
    found = pa.tree_emd(points.repeat(2, 1), [pa.PartitionTree.dyadic(2)])
    assert np.array_equal(found > 0, ~np.eye(9, dtype=bool))
    with pytest.raises((MemoryError, ValueError)):
        pa.pairwise_l1(np.broadcast_to(np.float32(0), (2**22, 1)))  # 2^44 distances: refused, not wrapped round


def test_pairwise_distances_hold_their_output_only() -> None:
    # pytorch/pytorch#24345, #57720, #37754, #37408; hcw-00/PatchCore_anomaly_detection#19: pairwise l1 eats memory
    import tracemalloc

    x = np.random.default_rng(0).random((144, 20_000), dtype=np.float32)
    pa.pairwise_l1(x[:2])
    tracemalloc.start()
    try:
        pa.pairwise_l1(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * x.nbytes  # broadcasting would take 144 times


def test_l1_is_a_metric_by_its_own_name() -> None:
    # facebookresearch/faiss#12, #313, #3458, #848, #1646: l1 is there, and nobody is told
    distance = pytest.importorskip("scipy.spatial.distance")
    x = np.random.default_rng(0).random((6, 50))
    np.testing.assert_allclose(pa.pairwise_l1(x), distance.squareform(distance.pdist(x, "cityblock")), rtol=1e-12)
    assert "l1" in (pa.pairwise_l1.__doc__ or "")


def test_fitted_objects_hold_no_inputs_twice() -> None:
    # DiffusionMapsAcademics/pyDiffMap#14; awlong/DiffusionMap#3; theislab/destiny#9: kernel, kernel again, and data
    x = np.random.default_rng(0).random((300, 300))
    affinity = (x + x.T) / 2
    found = pa.diffusion_map(affinity, n_components=3)
    gc.collect()
    held = sum(v.nbytes for v in vars(found).values() if isinstance(v, np.ndarray))
    assert held < affinity.nbytes / 10


def test_capture_keeps_no_second_copy_of_the_maps() -> None:
    # ndif-team/nnsight#102, #169: saved values keep earlier ones alive
    model = tiny("BertModel")
    with torch.no_grad(), capturing(model) as tape:
        model(token_ids(1, 6))
    got = tape.capture()
    assert all(r.weights is None and r.scores is None for r in tape.recorder.passes[0].records)
    assert got.weights.shape == (6, 6, 8)


def test_wrong_layers_of_a_model_are_an_error_that_says_which_there_are() -> None:
    # msakarvadia/AttentionLens#14: a hook on a layer that is not there is silent
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Fused(), Fused()])

        def forward(self, x: Tensor) -> Tensor:
            return self.layers[1](self.layers[0](x))  # type: ignore[no-any-return]

    with pytest.raises(CaptureError, match=r"layers: got \[2\], the model has layers 0 to 1"):
        capture(Net(), numbers(1, 6, 32), layers=[1, 2])
