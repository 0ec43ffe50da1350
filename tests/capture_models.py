"""Tiny models with random weights for the tests of capture: transformers families, torch.nn, attention by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

torch.set_num_threads(1)

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 50,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}


def tiny(name: str, **more: Any) -> Any:
    """A tiny transformers model of a class, such as ``tiny("BertModel")``; weights large enough to matter."""
    import transformers

    cls = getattr(transformers, name)
    config = cls.config_class
    special: dict[str, dict[str, Any]] = {
        "GPT2Model": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1},
        "AlbertModel": {**SIZES, "embedding_size": 16, "num_hidden_layers": 12},
        "T5Model": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 50},
        "BartModel": {
            "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
            "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 50,
            "max_position_embeddings": 32,
        },
        "CLIPModel": {"text_config": SIZES, "vision_config": {**VISION, "num_hidden_layers": 3}},
        "OPTModel": {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32},
        "BloomModel": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50},
        "GPTNeoModel": {
            "hidden_size": 32, "num_layers": 2, "num_heads": 4, "vocab_size": 50, "window_size": 4,
            "attention_types": [[["global", "local"], 1]], "bos_token_id": 0, "eos_token_id": 1,
        },
        "SwinModel": {
            "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4
        },
        "LongformerModel": {**SIZES, "attention_window": 4},
        "BigBirdModel": {**SIZES, "attention_type": "block_sparse", "block_size": 8, "num_random_blocks": 1},
        "LongT5Model": {
            "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 50, "local_radius": 3
        },
        "LEDModel": {
            "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
            "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 50,
            "attention_window": 4, "max_encoder_position_embeddings": 32, "max_decoder_position_embeddings": 32,
        },
        "MambaModel": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 50, "state_size": 4},
        "GptOssModel": {
            **SIZES, "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
            "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"],
        },
        "Gemma2Model": {
            **SIZES, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 5.0
        },
        "MistralModel": {**SIZES, "num_key_value_heads": 2, "sliding_window": 4},
        "MixtralModel": {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4},
    }  # fmt: skip
    sizes = special.get(name, VISION if "ViT" in name or "Dinov2" in name or "DeiT" in name else SIZES)
    implementation = more.pop("attn_implementation", None)
    options = {} if implementation is None else {"attn_implementation": implementation}
    torch.manual_seed(0)
    model = cls._from_config(config(**{**sizes, **more}), **options).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p.mul_(3.0)  # random attention is otherwise flat, and flat maps hide mistakes
    return model


def token_ids(*shape: int) -> Tensor:
    """Token ids that are no special ones."""
    return torch.randint(3, 50, shape, generator=torch.Generator().manual_seed(1))


def numbers(*shape: int, seed: int = 1) -> Tensor:
    """Normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def eager_maps(model: Any, example: int = 0, *, field: str = "attentions", **inputs: Any) -> NDArray[Any]:
    """What transformers itself returns for eager attention: weights (queries, keys, heads of all layers)."""
    with torch.no_grad():
        maps = getattr(model(**inputs, output_attentions=True), field)
    return np.concatenate([m[example].numpy() for m in maps]).transpose(1, 2, 0)


def softmax(scores: Any, visible: Any = None) -> NDArray[Any]:
    """Softmax over keys of (queries, keys, heads), invisible cells left out."""
    x = np.asarray(scores, np.float64)
    if visible is not None:
        x = np.where(visible, x, -np.inf)
    top = x.max(1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0))
    return np.asarray(e / np.maximum(e.sum(1, keepdims=True), 1e-300))


class Attention(nn.Module):
    """Self-attention with 4 heads of 8; subclasses say how."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(32, 96), nn.Linear(32, 32), causal
        generator = torch.Generator().manual_seed(0)
        for p in self.parameters():  # the same in every instance
            nn.init.normal_(p, std=0.4, generator=generator)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        return q, k, v

    def join(self, x: Tensor) -> Tensor:
        joined: Tensor = self.out(x.transpose(1, 2).reshape(x.shape[0], x.shape[2], 32))
        return joined


class Fused(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.join(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal))


class Written(Attention):
    """Softmax written out, masked the way old code does it."""

    fill = -1e4

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        scores = q @ k.transpose(-2, -1) / 8**0.5
        if self.causal:
            future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
            scores = scores.masked_fill(future, self.fill)
        return self.join(torch.softmax(scores, -1) @ v)
