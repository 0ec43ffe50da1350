"""Vision transformers of timm and transformers: maps, names of patches, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("timm")
import timm
import torch
from capture_models import numbers, softmax, tiny

from pyattnorg.capture import CaptureError, LoadedModel, NoAttentionError, UnsupportedAttentionError, capture

SMALL = {"depth": 2, "embed_dim": 32, "num_heads": 4}


def make(name: str, **more: Any) -> Any:
    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False, **more).eval()


def unfused(model: Any) -> Any:
    for m in model.modules():
        if hasattr(m, "fused_attn"):
            m.fused_attn = False
    return model


@pytest.mark.parametrize(
    ("name", "size", "tokens", "prefix"),
    [
        ("vit_tiny_patch16_224", 64, 17, ("cls",)),
        ("deit3_small_patch16_224", 64, 17, ("cls",)),
        ("vit_small_patch14_reg4_dinov2", 56, 21, ("cls", "reg1", "reg2", "reg3", "reg4")),
        ("beit_base_patch16_224", 64, 17, ("cls",)),
        ("eva02_tiny_patch14_224", 56, 17, ("cls",)),
        ("vit_relpos_small_patch16_224", 64, 16, ()),
    ],
)
def test_timm_vits(name: str, size: int, tokens: int, prefix: tuple[str, ...]) -> None:
    model = make(name, img_size=size, **SMALL)
    with torch.no_grad():
        before = model(numbers(2, 3, size, size))
    fused = capture(model, numbers(2, 3, size, size), example=1, verify=True)
    with torch.no_grad():
        assert torch.equal(model(numbers(2, 3, size, size)), before)
    written = capture(unfused(model), numbers(2, 3, size, size), example=1, verify=True)
    assert fused.weights.shape == (tokens, tokens, 8)
    np.testing.assert_allclose(fused.weights.values, written.weights.values, atol=1e-5)
    np.testing.assert_allclose(fused.scores.values, written.scores.values, atol=1e-4)
    np.testing.assert_allclose(softmax(fused.scores.values), fused.weights.values, atol=1e-6)
    patches = tuple(f"r{r}c{c}" for r in range(4) for c in range(4))
    assert fused.scores.queries == fused.scores.keys == prefix + patches
    assert fused.scores.heads.layer.tolist() == [0] * 4 + [1] * 4
    assert {row["backend"] for row in written.report} == {"softmax"}


def test_transformers_vits_name_their_patches() -> None:
    got = capture(tiny("ViTModel"), numbers(1, 3, 32, 32))
    assert got.scores.queries is not None
    assert got.scores.queries[:3] == ("cls", "r0c0", "r0c1")
    got = capture(tiny("Dinov2WithRegistersModel"), {"pixel_values": numbers(1, 3, 32, 32)})
    assert got.scores.queries is not None
    assert got.scores.queries[:6] == ("cls", "reg1", "reg2", "reg3", "reg4", "r0c0")
    names = [f"t{i}" for i in range(17)]
    assert capture(tiny("ViTModel"), numbers(1, 3, 32, 32), tokens=names).scores.keys == tuple(names)


def test_the_same_weights_give_the_same_maps_in_both_libraries() -> None:
    ours = tiny("ViTModel")
    theirs = make("vit_tiny_patch16_224", img_size=32, patch_size=8, mlp_ratio=1.5, num_classes=0, **SMALL)
    w = ours.state_dict()
    state = {
        "cls_token": w["embeddings.cls_token"],
        "pos_embed": w["embeddings.position_embeddings"],
        "patch_embed.proj.weight": w["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": w["embeddings.patch_embeddings.projection.bias"],
        "norm.weight": w["layernorm.weight"],
        "norm.bias": w["layernorm.bias"],
    }
    stem = "layers" if "layers.0.layernorm_before.weight" in w else "encoder.layer"
    for i in range(2):
        block = {k.removeprefix(f"{stem}.{i}."): v for k, v in w.items() if k.startswith(f"{stem}.{i}.")}
        for end in ("weight", "bias"):
            parts = {part: next(v for k, v in block.items() if _is(k, part, end)) for part in _PARTS}
            state[f"blocks.{i}.attn.qkv.{end}"] = torch.cat([parts["query"], parts["key"], parts["value"]])
            for name, part in _NAMES.items():
                state[f"blocks.{i}.{name}.{end}"] = parts[part]
    theirs.load_state_dict(state)
    for m in theirs.modules():
        if isinstance(m, torch.nn.LayerNorm):
            m.eps = ours.config.layer_norm_eps
    a, b = capture(ours, numbers(1, 3, 32, 32)), capture(theirs, numbers(1, 3, 32, 32))
    np.testing.assert_allclose(a.scores.values, b.scores.values, atol=1e-4)
    assert a.scores.queries == b.scores.queries
    assert a.scores.labels == b.scores.labels


_PARTS = {
    "query": ("query", "q_proj"), "key": ("key", "k_proj"), "value": ("value", "v_proj"),
    "out": ("output.dense", "o_proj", "out_proj"), "before": ("layernorm_before",), "after": ("layernorm_after",),
    "up": ("intermediate.dense", "fc1"), "down": ("output.dense", "fc2"),
}  # fmt: skip
_NAMES = {"attn.proj": "out", "norm1": "before", "norm2": "after", "mlp.fc1": "up", "mlp.fc2": "down"}


def _is(name: str, part: str, end: str) -> bool:
    in_attention = "attention" in name
    return (
        any(name.endswith(f"{n}.{end}") for n in _PARTS[part])
        and (part not in ("out", "query", "key", "value") or in_attention)
        and (part not in ("up", "down") or not in_attention)
    )


def test_pooling_and_stages_are_groups_of_their_own() -> None:
    got = capture(make("vit_base_patch16_siglip_224", img_size=64, **SMALL), numbers(1, 3, 64, 64))
    assert {name: g.shape for name, g in got.groups.items()} == {"blocks": (16, 16, 8), "attn_pool": (1, 16, 4)}
    with pytest.raises(CaptureError, match=r"'blocks' 16x16x8, 'attn_pool' 1x16x4"):
        _ = got.scores
    sizes = {"depths": (1, 1, 1, 1), "embed_dims": (8, 16, 32, 64), "num_heads": (1, 2, 4, 8)}
    got = capture(make("pvt_v2_b0", **sizes), numbers(1, 3, 64, 64), verify=True)
    assert [g.shape[:2] for g in got.groups.values()] == [(256, 4), (64, 4), (16, 4), (4, 4)]


@pytest.mark.parametrize(
    ("name", "options", "size", "error", "said"),
    [
        ("edgenext_xx_small", {}, 64, UnsupportedAttentionError, "CrossCovarianceAttn.*channels"),
        ("coat_tiny", {"img_size": 64}, 64, NoAttentionError, "FactorAttnConvRelPosEnc.*no product of queries"),
        ("resnet18", {}, 64, NoAttentionError, "no attention was seen in ResNet"),
    ],
)  # fmt: skip
def test_other_families_are_refused_by_name(
    name: str, options: dict[str, Any], size: int, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        capture(make(name, **options), numbers(1, 3, size, size))


def test_images_are_prepared_by_the_models_own_transform() -> None:
    image = pytest.importorskip("PIL.Image")
    model = LoadedModel(make("vit_tiny_patch16_224", img_size=32, **SMALL), "timm/vit_tiny_patch16_224", "timm")
    model.model.pretrained_cfg = {**model.model.pretrained_cfg, "input_size": (3, 32, 32)}
    picture = image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8))
    assert capture(model, picture).scores.shape == (5, 5, 8)
    with pytest.raises(ValueError, match=r"could not be opened as an image"):
        capture(model, "no/such/picture.png")
    with pytest.raises(ValueError, match=r"got an image and no processor"):
        capture(model.model, picture)
