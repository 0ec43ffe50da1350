"""Attention modules that the tests prune: the package (or module) and the class."""

from __future__ import annotations

_TRANSFORMERS = (
    "BartAttention", "BertSelfAttention", "BigBirdSelfAttention", "CLIPAttention", "CohereAttention",
    "DINOv3ViTAttention", "DeiTAttention", "Dinov2Attention", "Dinov2WithRegistersAttention",
    "DistilBertSelfAttention", "ElectraSelfAttention", "GPT2Attention", "GPTJAttention", "GPTNeoSelfAttention",
    "GPTNeoXAttention", "Gemma2Attention", "Gemma3Attention", "GemmaAttention", "GptOssAttention", "GraniteAttention",
    "JambaAttention", "LlamaAttention", "M2M100Attention", "MistralAttention", "MixtralAttention", "OPTAttention",
    "OlmoAttention", "PegasusAttention", "PhiAttention", "Qwen2Attention", "Qwen3Attention", "RobertaSelfAttention",
    "SiglipAttention", "StableLmAttention", "ViTAttention", "Wav2Vec2Attention", "WhisperAttention",
    "YolosSelfAttention",
)  # fmt: skip
TRIED = frozenset({("transformers", name) for name in _TRANSFORMERS} | {("timm.layers.attention", "Attention")})


def is_tried(kind: type) -> bool:
    """Whether the tests prune modules of this class."""
    return bool({(kind.__module__.split(".")[0], kind.__name__), (kind.__module__, kind.__name__)} & TRIED)


__all__ = ["TRIED", "is_tried"]
