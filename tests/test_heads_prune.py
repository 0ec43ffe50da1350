"""Pruning heads: equals ablation, counts follow, saves, loads, generates; refusals with reasons."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("timm")
pytest.importorskip("safetensors")
import torch
from capture_models import SIZES, numbers, tiny, token_ids
from families import FAMILIES, Family
from test_families import forward

import pyattnorg as pa
from pyattnorg.heads.anatomy import anatomies
from pyattnorg.heads.tables import head_table_of
from pyattnorg.heads.tried import TRIED, is_tried

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def kinds(family: Family) -> set[type]:
    model = family.make()
    return {type(one.module) for one in anatomies(model) if is_tried(type(one.module))}


# Attention modules with the same name in many families are pruned in one of them.
PRUNED = [
    "BertModel", "RobertaModel", "ElectraModel", "DistilBertModel", "BigBirdModel", "GPT2Model", "GPTNeoModel",
    "GPTNeoXModel", "GPTJModel", "OPTModel", "LlamaModel", "MistralModel", "MixtralModel", "Qwen2Model", "Qwen3Model",
    "GemmaModel", "Gemma2Model", "Gemma3TextModel", "GptOssModel", "PhiModel", "StableLmModel", "CohereModel",
    "OlmoModel", "GraniteModel", "JambaModel", "BartModel", "PegasusModel", "M2M100Model", "WhisperModel",
    "Wav2Vec2Model", "ViTModel", "DeiTModel", "Dinov2Model", "Dinov2WithRegistersModel", "DINOv3ViTModel",
    "YolosModel", "CLIPModel", "SiglipModel", "vit_tiny_patch16_224",
]  # fmt: skip
SEEN: set[tuple[str, str]] = set()


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name in PRUNED], ids=lambda f: f.name)
def test_pruned_equals_ablated_saves_and_loads(family: Family, tmp_path: Path) -> None:
    given = family.inputs()
    table = head_table_of(family.make(), given)
    rows = list(zip(table.module, table.layer.tolist(), table.head.tolist(), table.kv_group.tolist(), strict=True))
    module, layer = rows[0][:2]
    mine = [i for i, row in enumerate(rows) if row[:2] == (module, layer)]
    groups = {rows[i][3] for i in mine}
    one_each = [next(i for i in mine if rows[i][3] == g) for g in groups] if len(groups) < len(mine) else mine[:1]
    last = [i for i, row in enumerate(rows) if row[:2] == rows[-1][:2]] if table.module[-1] != module else []
    for name, chosen in (("some", one_each), ("a layer", mine), ("both", sorted({*one_each, *last}))):
        heads = table.take(chosen)
        model = family.make()
        known = all(is_tried(type(model.get_submodule(m))) for m in heads.module)
        with pa.ablate_heads(model, heads):
            wanted = forward(model, given)
        if name == "both" and not known:
            continue
        SEEN.update(
            (type(model.get_submodule(m)).__module__, type(model.get_submodule(m)).__name__) for m in heads.module
        )
        size = sum(p.numel() for p in model.parameters())
        found = pa.prune_heads(model, heads)
        assert len(found.removed) == len(chosen)
        assert found.after.parameters == sum(p.numel() for p in model.parameters()) < size
        got = forward(model, given)
        for a, b in zip(wanted, got, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, equal_nan=True)
        folder = tmp_path / name
        pa.save_pruned(model, folder)
        own = family.library == "transformers"
        again = pa.load_pruned(folder) if own else pa.load_pruned(folder, family.make())
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(got, forward(again, given), strict=True))


def test_every_module_that_is_said_to_be_tried_was() -> None:
    if len(SEEN) < 30:
        pytest.skip("only some families ran")
    seen = {(m.split(".")[0], n) for m, n in SEEN} | SEEN
    assert {t for t in TRIED if t not in seen} == set()


def causal(name: str, **config: Any) -> Any:
    import transformers

    cls = getattr(transformers, name)
    torch.manual_seed(0)
    return cls(cls.config_class(**config)).eval()


GENERATORS = {
    "LlamaForCausalLM": {**SIZES, "num_key_value_heads": 2, "eos_token_id": None},
    "GPT2LMHeadModel": {
        "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": None,
    },
    "MistralForCausalLM": {**SIZES, "num_key_value_heads": 2, "sliding_window": 4, "eos_token_id": None},
    "Qwen3ForCausalLM": {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "eos_token_id": None},
    "GPTNeoXForCausalLM": {**SIZES, "eos_token_id": None},
    "GPTJForCausalLM": {
        "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "vocab_size": 50, "bos_token_id": 0,
        "eos_token_id": None,
    },
    "PhiForCausalLM": {**SIZES, "eos_token_id": None},
    "OPTForCausalLM": {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32, "eos_token_id": None},
    "BartForConditionalGeneration": {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 50,
        "max_position_embeddings": 32, "eos_token_id": None, "forced_eos_token_id": None, "pad_token_id": 2,
        "decoder_start_token_id": 3,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("layer", [0, 1])
def test_generation_with_a_cache_after_pruning(name: str, layer: int, tmp_path: Path) -> None:
    model = causal(name, **GENERATORS[name])
    part = "decoder." if name.startswith("Bart") else ""
    heads = [f"{part}L{layer}H*"]
    if part:
        heads += [f"cross.L{layer}H*", f"encoder.L{1 - layer}H0"]
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 2}
    with pa.ablate_heads(model, heads):
        wanted = model.generate(token_ids(2, 5), use_cache=False, **options)
    pa.prune_heads(model, heads)
    assert torch.equal(model.generate(token_ids(2, 5), **options), wanted)
    pa.save_pruned(model, tmp_path / "m")
    assert torch.equal(pa.load_pruned(tmp_path / "m").generate(token_ids(2, 5), **options), wanted)


def test_counts_follow_and_pruning_again_adds_up(tmp_path: Path) -> None:
    model, given = tiny("BertModel", num_attention_heads=4), {"input_ids": token_ids(1, 7)}
    with pa.ablate_heads(model, ["L0H1", "L0H3"]):
        wanted = forward(model, given)
    found = pa.prune_heads(model, "L0H1", inputs=given)
    attention = model.encoder.layer[0].attention.self
    assert (attention.num_attention_heads, attention.all_head_size, attention.query.out_features) == (3, 24, 24)
    assert model.encoder.layer[0].attention.output.dense.in_features == 24
    assert found.difference is not None
    assert found.before.seconds is not None
    assert "1 heads removed" in repr(found)
    pa.prune_heads(model, "L0H2")  # what was head 3
    for a, b in zip(wanted, forward(model, given), strict=True):
        torch.testing.assert_close(a, b)
    pa.save_pruned(model, tmp_path / "m")
    about = json.loads((tmp_path / "m" / "pyattnorg_pruned.json").read_text())
    assert about["modules"]["encoder.layer.0.attention.self"]["kept"] == [0, 2]
    captured = pa.capture(pa.load_pruned(tmp_path / "m"), given).weights
    assert captured.labels[:3] == ("L0H0", "L0H1", "L1H0")


def test_mean_is_added_to_the_bias(tmp_path: Path) -> None:
    model, given = tiny("LlamaModel"), {"input_ids": token_ids(1, 7)}
    means = pa.head_means(model, {"input_ids": token_ids(2, 6)})
    with pa.ablate_heads(model, ["L0H1", "L1H*"], mode="mean", means=means):
        wanted = forward(model, given)
    pa.prune_heads(model, ["L0H1", "L1H*"], means=means, inputs=given)
    for a, b in zip(wanted, forward(model, given), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    pa.save_pruned(model, tmp_path / "m")
    for a, b in zip(forward(model, given), forward(pa.load_pruned(tmp_path / "m"), given), strict=True):
        assert torch.equal(a, b)


def test_heads_that_share_keys_are_grouped_or_refused() -> None:
    given = {"input_ids": token_ids(1, 7)}
    model = tiny("LlamaModel", num_key_value_heads=2)
    with pytest.raises(pa.CannotPruneError, match=r"2 heads share keys.*heads \[0\] of layer 0.*say 0 to 1"):
        pa.prune_heads(model, "L0H0")
    found = pa.prune_heads(copy.deepcopy(model), ["L0H0", "L0H1"])
    attention = found.model.layers[0].self_attn
    assert (attention.k_proj.out_features, attention.num_key_value_groups) == (8, 2)
    found = pa.prune_heads(copy.deepcopy(model), ["L0H0", "L0H3"])
    attention = found.model.layers[0].self_attn
    assert (attention.k_proj.out_features, attention.q_proj.out_features, attention.num_key_value_groups) == (16, 16, 1)
    assert len(pa.prune_heads(copy.deepcopy(model), ["L0H0", "L0H1", "L0H2"]).removed) == 3  # one group of one is left
    with pa.ablate_heads(model, ["L0H0", "L1H0", "L1H2"]):
        wanted = forward(model, given)
    found = pa.prune_heads(model, ["L0H0", "L1H0", "L1H2"], otherwise="zero", inputs=given)
    assert (found.removed, found.zeroed) == (("L1H0", "L1H2"), ("L0H0",))
    for a, b in zip(wanted, forward(model, given), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("AlbertModel", "several layers share its weights"),
        ("T5Model", "may go by head"),
        ("SwinModel", "may go by head"),
        ("BloomModel", "does not run without the heads' weights"),
        ("nn.TransformerEncoder", "as many channels as its input"),
        ("DebertaV2Model", "cannot be found in the weights"),
    ],
)
def test_refusals_leave_the_model_as_it_was(name: str, match: str) -> None:
    family = next(f for f in FAMILIES if f.name == name)
    model, given = family.make(), family.inputs()
    before = forward(model, given)
    with pytest.raises(pa.CannotPruneError, match=match):
        pa.prune_heads(model, head_table_of(model, given).take([0]), inputs=given)
    assert all(torch.equal(a, b) for a, b in zip(before, forward(model, given), strict=True))


def test_unknown_attention_needs_an_example() -> None:
    family = next(f for f in FAMILIES if f.name == "vit_base_patch16_rope_224")
    model, given = family.make(), family.inputs()
    with pytest.raises(pa.CannotPruneError, match="pass inputs="):
        pa.prune_heads(model, "L0H0")
    assert pa.prune_heads(model, "L0H0", inputs=given).removed == ("L0H0",)


def test_half_precision_and_views() -> None:
    model, given = tiny("BertModel").to(torch.bfloat16), {"input_ids": token_ids(2, 14)[:, ::2]}
    found = pa.prune_heads(model, "L1H2", inputs=given)
    assert found.difference is not None
    assert next(model.parameters()).dtype == torch.bfloat16


def test_what_is_wrong_with_files_is_said(tmp_path: Path) -> None:
    model = tiny("BertModel")
    with pytest.raises(ValueError, match="was not pruned"):
        pa.save_pruned(model, tmp_path / "a")
    pa.prune_heads(model, "L0H0")
    pa.save_pruned(model, tmp_path / "a")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        pa.save_pruned(model, tmp_path / "a")
    pa.save_pruned(model, tmp_path / "a", overwrite=True)
    with pytest.raises(FileNotFoundError, match="save_pruned wrote"):
        pa.load_pruned(tmp_path / "b")
    weights = tmp_path / "a" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(pa.DamagedFileError, match=r"model\.safetensors"):
        pa.load_pruned(tmp_path / "a")
    (tmp_path / "a" / "pyattnorg_pruned.json").write_text("{}")
    with pytest.raises(pa.DamagedFileError, match="not what save_pruned writes"):
        pa.load_pruned(tmp_path / "a")


def test_folders_keep_one_head_each() -> None:
    model, given = tiny("BertModel"), {"input_ids": token_ids(1, 9)}
    organization = pa.organize(pa.capture(model, given).weights)
    tree = organization.trees_[2]
    for level in range(tree.n_levels):
        choice = pa.choose_folders(organization, level)
        assert len(choice.kept) == len(tree.folder_sizes(level))
        assert sorted([*choice.labels, *choice.kept]) == sorted(organization.labels)
    choice = pa.choose_folders(organization, 0)
    assert choice.dropped is not None
    assert pa.prune_heads(model, choice.dropped, inputs=given).removed == tuple(sorted(choice.labels))
    ranking = pa.rank_heads(tiny("BertModel"), given, by="norm")
    ranked = pa.choose_folders(organization, 0, representative="ranked", ranking=ranking, by="norm")
    assert list(ranked.kept) == [ranking.order("norm")[-1]]
    with pytest.raises(ValueError, match="ranking: is missing"):
        pa.choose_folders(organization, representative="ranked")


@pytest.mark.parametrize("tree", ["entropy", "flexible", "binary"])
def test_folders_of_several_levels_keep_one_head_each(tree: str) -> None:
    rng = np.random.default_rng(3)
    heads = [np.outer(np.arange(8.0) ** i, np.ones(8)) for i in (0, 1, 1.1, 1.2, 2, 3)]
    x = np.stack([head / head.max() + 0.01 * rng.random((8, 8)) for head in heads for _ in range(3)], axis=2)
    organization = pa.organize(x, tree=tree)
    choice = pa.choose_folders(organization)
    assert choice.level is None
    assert "level" not in repr(choice)
    assert [set(folder) for folder in choice.kept.values()] == [set(f) for f in organization.head_folders()]
    assert all(len(folder) <= x.shape[2] // 3 for folder in choice.kept.values())
    assert len(choice.kept) + len(choice.labels) == x.shape[2]


def test_images_of_timm() -> None:
    family = next(f for f in FAMILIES if f.name == "vit_tiny_patch16_224")
    model = family.make()
    given = {"x": numbers(1, 3, 64, 64)}
    with pa.ablate_heads(model, "L0H*,L1H1"):
        wanted = forward(model, given)
    pa.prune_heads(model, "L0H*,L1H1")
    torch.testing.assert_close(forward(model, given), wanted)


def test_a_full_disk_leaves_the_pruned_model_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("BertModel")
    pa.prune_heads(model, ["L0H1"])
    folder = tmp_path / "pruned"
    pa.save_pruned(model, folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "model-00009-of-00009.safetensors").write_text("left by something else")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    pa.prune_heads(model, ["L1H1"])

    def full(*args: Any, **options: Any) -> None:
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "save_pretrained", full)
        with pytest.raises(OSError, match=r"No space left on device: .*pruned"):
            pa.save_pruned(model, folder, overwrite=True)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert [file.name for file in tmp_path.iterdir()] == ["pruned"]
    pa.save_pruned(model, folder, overwrite=True)  # only what it wrote itself is read again
    assert (folder / "notes.txt").read_text() == "mine"
    ids = token_ids(1, 5)
    with torch.no_grad():
        assert torch.equal(pa.load_pruned(folder)(ids).last_hidden_state, model(ids).last_hidden_state)
