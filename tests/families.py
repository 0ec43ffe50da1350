"""Small models of many families with random weights, and what a capture of each has to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from capture_models import SIZES, VISION, Attention, Fused, Written, numbers
from torch import Tensor, nn

# groups: name -> (queries, keys, matrices), a matrix being a head of a layer, in a window where there are windows
Groups = dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Family:
    """A model of a family; inputs are those of a batch of two."""

    name: str
    library: str
    make: Callable[[], Any]
    inputs: Callable[[], dict[str, Any]]
    groups: Groups
    mask: str = "full"  # "causal", "causal 4" and the like for windows, "a | b" for layers in turn, "any"
    kv: tuple[int, ...] = ()  # kv_group of one layer's heads, where they share keys
    kv_in: str = ""  # the group that this is of
    softmax: bool = True  # no mass goes to sinks
    trait: str = ""  # what the family is in the test for
    flat: bool = False  # what reaches its attention is nearly the same for all tokens, with random weights


def token_ids(n: int, low: int = 3) -> Tensor:
    return torch.randint(low, 48, (2, n), generator=torch.Generator().manual_seed(n))


# -- transformers -----------------------------------------------------------------------------------------------------


def hf(cls: str, **config: Any) -> Callable[[], Any]:
    def make() -> Any:
        import transformers

        torch.manual_seed(0)
        model_class = getattr(transformers, cls)
        model = model_class._from_config(model_class.config_class(**config)).eval()
        return spread(model)

    return make


QUERIES_AND_KEYS = (
    "qkv", "query", "key", "q_proj", "k_proj", "q_lin", "k_lin", "c_attn", "to_q", "to_k", ".q.", ".k.", "kv", "q_a",
    "q_b", "attn", "att.", "self", "Attention",
)  # fmt: skip


def spread(model: Any, factor: float = 4.0) -> Any:
    """Weights large enough to matter: random attention is otherwise flat, and flat maps hide mistakes."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and any(word in name for word in QUERIES_AND_KEYS):
                p.mul_(factor)
    return model


def text(n: int = 8) -> Callable[[], dict[str, Any]]:
    return lambda: {"input_ids": token_ids(n)}


def both(n: int = 8, m: int = 4) -> Callable[[], dict[str, Any]]:
    return lambda: {"input_ids": token_ids(n), "decoder_input_ids": token_ids(m)}


def pixels(size: int = 32, name: str = "pixel_values") -> Callable[[], dict[str, Any]]:
    return lambda: {name: numbers(2, 3, size, size)}


def towers(n: int = 7) -> Callable[[], dict[str, Any]]:
    return lambda: {"input_ids": token_ids(n), "pixel_values": numbers(2, 3, 32, 32)}


def encoder(cls: str, trait: str = "", **config: Any) -> Family:
    sizes = {**SIZES, **config}
    layers = sizes["num_hidden_layers"]
    return Family(cls, "transformers", hf(cls, **sizes), text(), {"": (8, 8, 4 * layers)}, trait=trait)


def decoder(cls: str, trait: str = "", mask: str = "causal", matrices: int = 8, **config: Any) -> Family:
    more = {k: config.pop(k) for k in ("kv", "softmax") if k in config}
    return Family(
        cls, "transformers", hf(cls, **{**SIZES, **config}), text(), {"": (8, 8, matrices)}, mask, trait=trait, **more
    )


def vision(cls: str, tokens: int, trait: str = "", **config: Any) -> Family:
    return Family(
        cls, "transformers", hf(cls, **{**VISION, **config}), pixels(), {"": (tokens, tokens, 8)}, trait=trait
    )


def seq2seq(cls: str, matrices: tuple[int, int, int], trait: str = "", **config: Any) -> Family:
    e, d, c = matrices
    groups = {"encoder": (8, 8, e), "decoder": (4, 4, d), "cross": (4, 8, c)}
    return Family(cls, "transformers", hf(cls, **config), both(), groups, "any", trait=trait)


BART: dict[str, Any] = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 50,
    "max_position_embeddings": 32,
}  # fmt: skip
T5: dict[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 50}
GPT2: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4}
SWIN: dict[str, Any] = {
    "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4
}  # fmt: skip
MLA: dict[str, Any] = {
    "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
RELATIVE: dict[str, Any] = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
MIXED: dict[str, Any] = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
GQA: dict[str, Any] = {"num_key_value_heads": 2, "kv": (0, 0, 1, 1)}


def _llava() -> Any:
    import transformers as t

    torch.manual_seed(0)
    eyes = t.CLIPVisionConfig(**{**VISION, "num_hidden_layers": 3})
    words = t.LlamaConfig(**{**SIZES, "num_key_value_heads": 2})
    config = t.LlavaConfig(vision_config=eyes, text_config=words, image_token_index=49, vision_feature_layer=-1)
    return spread(t.LlavaForConditionalGeneration._from_config(config).eval())


def _llava_inputs() -> dict[str, Any]:
    ids = token_ids(22)
    ids[:, 2:18] = 49
    return {"input_ids": ids, "pixel_values": numbers(2, 3, 32, 32)}


TRANSFORMERS = [
    encoder("BertModel"),
    encoder("RobertaModel"),
    encoder("AlbertModel", "one set of weights for all layers", embedding_size=16, num_hidden_layers=3),
    encoder("ElectraModel", embedding_size=16),
    Family("DistilBertModel", "transformers",
           hf("DistilBertModel", dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=50), text(), {"": (8, 8, 8)}),
    encoder("MPNetModel", "position bias"),
    Family("XLNetModel", "transformers",
           hf("XLNetModel", d_model=32, n_layer=2, n_head=4, d_inner=48, vocab_size=50), text(), {"": (8, 8, 8)},
           trait="relative positions by einsum"),
    encoder("DebertaModel", "relative positions", **RELATIVE),
    encoder("DebertaV2Model", "relative positions", **RELATIVE),
    encoder("BigBirdModel", "short inputs: full attention", attention_type="original_full"),
    Family("ModernBertModel", "transformers",
           hf("ModernBertModel", **SIZES, local_attention=4, global_attn_every_n_layers=2, cls_token_id=0,
              sep_token_id=1), text(), {"": (8, 8, 8)}, "full | band 2", trait="local and global layers"),
    Family("LongformerModel", "transformers", hf("LongformerModel", **SIZES, attention_window=4), text(),
           {"": (8, 8, 8)}, "band 2", trait="a band and global tokens"),
    Family("FunnelModel", "transformers",
           hf("FunnelModel", vocab_size=50, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=48,
              num_decoder_layers=1), text(),
           {"encoder 0": (8, 8, 4), "encoder 1": (4, 8, 4), "decoder": (8, 8, 4)}, "any", trait="pooled queries"),
    # huggingface/transformers#16424: its maps are latents x inputs
    Family("PerceiverModel", "transformers",
           hf("PerceiverModel", d_model=16, num_latents=6, d_latents=32, num_blocks=1, num_self_attends_per_block=2,
              num_self_attention_heads=4, num_cross_attention_heads=4), lambda: {"inputs": numbers(2, 20, 16)},
           {"cross": (6, 20, 4), "encoder": (6, 6, 8)}, trait="latents"),
    Family("GPT2Model", "transformers", hf("GPT2Model", **GPT2, vocab_size=50, bos_token_id=0, eos_token_id=1),
           text(), {"": (8, 8, 8)}, "causal"),
    Family("GPTBigCodeModel", "transformers", hf("GPTBigCodeModel", **GPT2, vocab_size=50, multi_query=True,
           bos_token_id=0, eos_token_id=1), text(), {"": (8, 8, 8)}, "causal", (0, 0, 0, 0), trait="multi-query"),
    decoder("GPTNeoModel", "local and global layers", "causal | causal 4", num_layers=2, num_heads=4, window_size=4,
            attention_types=[[["global", "local"], 1]]),
    decoder("GPTNeoXModel", "partial rotary"),
    decoder("GPTJModel", **GPT2, rotary_dim=4),
    decoder("CodeGenModel", **GPT2, rotary_dim=4),
    decoder("OPTModel", ffn_dim=48, word_embed_proj_dim=32),
    decoder("BloomModel", "ALiBi", n_layer=2, n_head=4),
    decoder("MptModel", "ALiBi", d_model=32, n_layers=2, n_heads=4),
    decoder("FalconModel", "multi-query", multi_query=True, new_decoder_architecture=False, kv=(0, 0, 0, 0)),
    decoder("LlamaModel", "grouped queries", **GQA),
    decoder("MistralModel", "sliding window", "causal 4", sliding_window=4, **GQA),
    decoder("MixtralModel", "experts: routers are no attention", num_local_experts=4, **GQA),
    decoder("Qwen2Model", **GQA),
    decoder("Qwen3Model", "norms of queries and keys", head_dim=8, **GQA),
    decoder("GemmaModel", "multi-query", num_key_value_heads=1, head_dim=8, kv=(0, 0, 0, 0)),
    decoder("Gemma2Model", "soft-capping", "causal 4 | causal", head_dim=8, sliding_window=4,
            attn_logit_softcapping=5.0, **GQA),
    decoder("Gemma3TextModel", "sliding window and full", "causal 4 | causal", head_dim=8, sliding_window_pattern=2,
            **MIXED, **GQA),
    decoder("GptOssModel", "attention sinks", "causal 4 | causal", head_dim=8, num_local_experts=4,
            num_experts_per_tok=2, softmax=False, **MIXED, **GQA),
    decoder("PhiModel"),
    decoder("StableLmModel", num_key_value_heads=4),
    decoder("CohereModel"),
    decoder("OlmoModel"),
    decoder("GraniteModel", "a scale of its own"),
    decoder("DiffLlamaModel", "one map, values in halves", **GQA),
    decoder("DeepseekV2Model", "latent attention", **MLA),
    decoder("DeepseekV3Model", "latent attention", **MLA),
    decoder("JambaModel", "hybrid: one layer attends", matrices=4, attn_layer_period=2, attn_layer_offset=1,
            mamba_d_state=4, mamba_d_conv=2, num_experts=2, use_mamba_kernels=False, **GQA),
    decoder("Qwen3NextModel", "hybrid: one layer attends", matrices=4, head_dim=8, num_experts=4,
            linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
            layer_types=["linear_attention", "full_attention"], moe_intermediate_size=16,
            shared_expert_intermediate_size=16, num_experts_per_tok=2, **GQA),
    decoder("Zamba2Model", "hybrid: one block shared by two layers", num_hidden_layers=4, num_key_value_heads=4,
            mamba_d_state=4, mamba_headdim=8, n_mamba_heads=8, mamba_ngroups=1, num_mem_blocks=1, adapter_rank=4,
            layers_block_type=["mamba", "hybrid", "mamba", "hybrid"], use_mem_rope=True, chunk_size=4),
    seq2seq("T5Model", (8, 8, 8), "position bias, no scale", **T5),
    seq2seq("MT5Model", (8, 8, 8), "position bias, no scale", **T5),
    seq2seq("BartModel", (8, 6, 6), **BART),
    seq2seq("PegasusModel", (8, 6, 6), **BART),
    seq2seq("M2M100Model", (8, 6, 6), **BART),
    seq2seq("LEDModel", (8, 6, 6), "a band and global tokens",
            **{k: v for k, v in BART.items() if k != "max_position_embeddings"}, attention_window=4,
            max_encoder_position_embeddings=32, max_decoder_position_embeddings=32),
    Family("WhisperModel", "transformers",
           hf("WhisperModel", **{k: v for k, v in BART.items() if k != "max_position_embeddings"}, pad_token_id=2,
              max_source_positions=10, max_target_positions=16, num_mel_bins=8, decoder_start_token_id=3,
              bos_token_id=0, eos_token_id=1),
           lambda: {"input_features": numbers(2, 8, 20), "decoder_input_ids": token_ids(4)},
           {"encoder": (10, 10, 8), "decoder": (4, 4, 6), "cross": (4, 10, 6)}, "any", trait="speech"),
    Family("Wav2Vec2Model", "transformers",
           hf("Wav2Vec2Model", **SIZES, conv_dim=[8, 8], conv_stride=[4, 4], conv_kernel=[4, 4],
              num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2),
           lambda: {"input_values": numbers(2, 200)}, {"": (12, 12, 8)}, trait="speech"),
    vision("ViTModel", 17),
    vision("DeiTModel", 18, "class and distillation tokens"),
    vision("Dinov2Model", 17),
    vision("Dinov2WithRegistersModel", 21, "registers"),
    vision("DINOv3ViTModel", 19, "rotary, registers", num_register_tokens=2),
    vision("BeitModel", 17, "relative bias", use_relative_position_bias=True),
    vision("YolosModel", 20, "detection tokens", image_size=[32, 32], num_detection_tokens=3),
    Family("SwinModel", "transformers", hf("SwinModel", **SWIN), pixels(),
           {"encoder 0": (16, 16, 64), "encoder 1": (16, 16, 32)}, "any", trait="windows, shifted"),
    Family("Swinv2Model", "transformers", hf("Swinv2Model", **SWIN), pixels(),
           {"encoder 0": (16, 16, 64), "encoder 1": (16, 16, 32)}, "any", trait="windows, shifted; cosine attention"),
    Family("HieraModel", "transformers",
           hf("HieraModel", embed_dim=16, image_size=[64, 64], depths=[1, 1], num_heads=[1, 2],
              embed_dim_multiplier=2.0, masked_unit_size=[4, 4], masked_unit_attention=[True, False],
              patch_stride=[4, 4], num_query_pool=1, query_stride=[2, 2]), pixels(64),
           {"encoder 0": (16, 16, 16), "encoder 1": (4, 16, 32)}, trait="windows, pooled queries"),
    Family("MobileViTModel", "transformers",
           hf("MobileViTModel", hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
              image_size=64), pixels(64),
           {"encoder 2": (16, 16, 32), "encoder 3": (4, 4, 64), "encoder 4": (1, 1, 48)},
           trait="every pixel of a patch attends by itself"),
    Family("SegformerModel", "transformers",
           hf("SegformerModel", depths=[1, 1], num_encoder_blocks=2, hidden_sizes=[16, 32],
              num_attention_heads=[1, 2], sr_ratios=[4, 2], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2]),
           pixels(64), {"stages 0": (256, 16, 1), "stages 1": (64, 16, 2)}, trait="fewer keys than queries"),
    Family("CLIPModel", "transformers",
           hf("CLIPModel", text_config=SIZES, vision_config={**VISION, "num_hidden_layers": 3}), towers(),
           {"vision": (17, 17, 12), "text": (7, 7, 8)}, "any", trait="two towers"),
    Family("SiglipModel", "transformers",
           hf("SiglipModel", text_config=SIZES, vision_config={**VISION, "num_hidden_layers": 3}), towers(),
           {"vision vision_model.encoder.layers": (16, 16, 12), "vision": (1, 16, 4), "text": (7, 7, 8)},
           trait="two towers, pooling attention"),
    Family("BlipModel", "transformers", hf("BlipModel", text_config=SIZES, vision_config=VISION), towers(),
           {"vision": (17, 17, 8), "text": (7, 7, 8)}, "any", trait="two towers"),
    Family("LlavaForConditionalGeneration", "transformers", _llava, _llava_inputs,
           {"vision": (17, 17, 12), "text": (22, 22, 8)}, "any", (0, 0, 1, 1), "text", trait="vision and language"),
]  # fmt: skip


# -- timm -------------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"depth": 2, "embed_dim": 32, "num_heads": 4}


def timm_model(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        import timm

        torch.manual_seed(0)
        return spread(timm.create_model(name, pretrained=False, **options).eval(), 3.0)

    return make


def timm_class(module: str, cls: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from importlib import import_module

        torch.manual_seed(0)
        return spread(getattr(import_module(f"timm.models.{module}"), cls)(**options).eval(), 3.0)

    return make


def vit(name: str, tokens: int, trait: str = "", size: int = 64, matrices: int = 8, **pool: Any) -> Family:
    groups = {"blocks" if pool else "": (tokens, tokens, matrices), **pool}
    return Family(name, "timm", timm_model(name, img_size=size, **SMALL), pixels(size, "x"), groups, trait=trait)


def staged(name: str, groups: Groups, trait: str = "", size: int = 64, mask: str = "any", **options: Any) -> Family:
    return Family(name, "timm", timm_model(name, **options), pixels(size, "x"), groups, mask, trait=trait)


def of_class(
    module: str, cls: str, groups: Groups, trait: str = "", size: int = 64, mask: str = "any", **options: Any
) -> Family:
    return Family(cls, "timm", timm_class(module, cls, **options), pixels(size, "x"), groups, mask, trait=trait)


WINDOWS: dict[str, Any] = {"window_size": 4, "depths": (2, 2), "embed_dim": 16, "num_heads": (2, 4)}
PVT_GROUPS: Groups = {
    "stages 0": (256, 4, 1), "stages 1": (64, 4, 2), "stages 2": (16, 4, 4), "stages 3": (4, 4, 8)
}  # fmt: skip

TIMM = [
    vit("vit_tiny_patch16_224", 17),
    vit("vit_small_patch14_reg4_dinov2", 21, "registers", 56),
    vit("vit_relpos_small_patch16_224", 16, "relative bias"),
    vit("vit_srelpos_small_patch16_224", 16, "one relative bias for all layers"),
    vit("vit_base_patch16_clip_224", 17),
    vit("vit_base_patch16_rope_224", 17, "rotary"),
    vit("vit_base_patch16_rope_mixed_224", 17, "rotary, a table a layer"),
    vit("vit_small_patch16_dinov3", 21, "rotary, registers"),
    vit("vit_base_patch16_xp_224", 17, "norms of queries and keys"),
    vit("vit_small_patch16_18x2_224", 17, "two attentions a block", matrices=16),
    vit("vit_base_resnet26d_224", 5, "tokens of a convolutional stem"),
    vit("vit_base_patch16_siglip_224", 16, "pooling attention", attn_pool=(1, 16, 4)),
    vit("vit_so150m_patch16_reg4_map_256", 20, "pooling attention, registers", attn_pool=(1, 16, 4)),
    vit("vit_pe_core_tiny_patch16_384", 17, "pooling attention", attn_pool=(1, 17, 8)),
    vit("vit_dlittle_patch16_reg1_gap_256", 17, "two maps a head", matrices=16),
    vit("vit_dpwee_patch16_reg1_gap_256", 17, "two maps a head", matrices=16),
    vit("deit3_small_patch16_224", 17),
    vit("deit_tiny_distilled_patch16_224", 18, "class and distillation tokens"),
    vit("flexivit_small", 17),
    vit("beit_base_patch16_224", 17, "relative bias"),
    vit("beit3_base_patch16_224", 17),
    vit("eva02_tiny_patch14_224", 17, "rotary", 56),
    vit("eva_giant_patch14_224", 17, "", 56),
    vit("naflexvit_base_patch16_gap", 20, "registers"),
    staged("swin_tiny_patch4_window7_224", {"layers 0": (16, 16, 16), "layers 1": (16, 16, 8)}, "windows, shifted", 32,
           img_size=32, **WINDOWS),
    staged("swin_s3_tiny_224", {"layers 0": (16, 16, 64), "layers 1": (16, 16, 32)}, "windows, shifted",
           img_size=64, **{**WINDOWS, "window_size": (4, 4)}),
    staged("swinv2_tiny_window8_256", {"layers 0": (16, 16, 16), "layers 1": (16, 16, 8)}, "windows, cosine attention",
           32, img_size=32, **WINDOWS),
    staged("swinv2_cr_tiny_224", {"stages 0": (16, 16, 16), "stages 1": (16, 16, 8)}, "windows, cosine attention", 32,
           img_size=32, **WINDOWS),
    staged("maxvit_rmlp_pico_rw_256",
           {f"stages {s} blocks.*.attn_{kind}.attn": (4, 4, n) for s, n in enumerate((128, 64, 80, 16))
            for kind in ("block", "grid")}, "windows and grids", mask="full", img_size=64),
    staged("coatnet_pico_rw_224", {"stages 2": (16, 16, 36), "stages 3": (4, 4, 24)}, "convolutions first",
           mask="full", img_size=64),
    staged("pvt_v2_b0", PVT_GROUPS, "fewer keys than queries", mask="full", depths=(1, 1, 1, 1),
           embed_dims=(8, 16, 32, 64), num_heads=(1, 2, 4, 8)),
    staged("twins_svt_small",
           {"blocks 0 49x49": (49, 49, 8), "blocks 0 196x9": (196, 9, 2), "blocks 1 49x49": (49, 49, 4),
            "blocks 1 49x9": (49, 9, 4)}, "windows and pooled keys", 56, "full", img_size=56, depths=(2, 2),
           embed_dims=(16, 32), num_heads=(2, 4), wss=(7, 7), sr_ratios=(4, 2)),
    staged("cait_xxs24_224", {"blocks": (16, 16, 8), "blocks_token_only": (1, 17, 8)},
           "talking heads, class attention", mask="full", img_size=64, **SMALL),
    staged("xcit_nano_12_p16_224", {"": (1, 17, 8)}, "class attention; channel attention is left out", mask="full",
           img_size=64, **SMALL),
    staged("levit_128s",
           {"stages 0": (16, 16, 8), "stages 4x16": (4, 16, 8), "stages 1": (4, 4, 18), "stages 1x4": (1, 4, 16),
            "stages 2": (1, 1, 32)}, "queries fewer than keys, learned bias", mask="full", img_size=64),
    staged("mobilevit_xxs", {"stages 2": (16, 16, 32), "stages 3": (4, 4, 64), "stages 4": (1, 1, 48)},
           "every pixel of a patch attends by itself", mask="full"),
    staged("hiera_tiny_224",
           {"blocks 64x64": (64, 64, 4), "blocks 16x64": (16, 64, 8), "blocks 4x16 in 4": (4, 16, 16),
            "blocks 4x16": (4, 16, 8)}, "windows, pooled queries", mask="full", img_size=64, stages=(1, 1, 1, 1),
           embed_dim=16),
    staged("tnt_s_patch16_224", {"blocks 16x16": (16, 16, 128), "blocks 17x17": (17, 17, 12)},
           "pixels within patches", mask="full", img_size=64, depth=2),
    staged("samvit_base_patch16", {"blocks 4x4": (4, 4, 16), "blocks 16x16": (16, 16, 4)},
           "windows, decomposed relative bias", mask="full", img_size=64, **SMALL, global_attn_indexes=(1,),
           window_size=2),
    staged("convit_tiny", {"blocks 16x16": (16, 16, 8), "blocks 17x17": (17, 17, 4)}, "gated after softmax",
           mask="full", img_size=64, depth=3, embed_dim=32, num_heads=4, local_up_to_layer=2),
    staged("efficientvit_m0", {"stages 0": (16, 16, 4), "stages 1": (4, 4, 8), "stages 2": (1, 1, 12)},
           "one head at a time", mask="full", img_size=64),
    staged("pit_ti_224",
           {"transformers 0": (50, 50, 4), "transformers 1": (17, 17, 24), "transformers 2": (5, 5, 32)},
           "stages with a class token", mask="full", img_size=64),
    staged("visformer_tiny", {"stage2": (16, 16, 12), "stage3": (4, 4, 12)}, "convolutions first", mask="full",
           img_size=64),
    staged("mobilenetv4_hybrid_medium", {"blocks 2": (16, 4, 16), "blocks 3": (4, 4, 16)},
           "multi-query, pooled keys", mask="full"),
    staged("fastvit_sa12", {"": (4, 4, 32)}, "convolutions first", mask="full"),
    staged("shvit_s1", {"stages 1": (4, 4, 4), "stages 2": (1, 1, 5)}, "one head", mask="full"),
    staged("iformer_t", {"stages 2": (16, 16, 3), "stages 3": (4, 4, 2)}, "one head", mask="full"),
    of_class("nest", "Nest", {"levels 0": (16, 16, 8), "levels 1": (16, 16, 4)}, "windows that merge", 32, "full",
             img_size=32, patch_size=4, num_levels=2, embed_dims=(16, 32), num_heads=(2, 4), depths=(1, 1)),
    of_class("tiny_vit", "TinyVit", {"stages 1": (16, 16, 16), "stages 2": (16, 16, 4), "stages 3": (4, 4, 4)},
             "windows, learned bias", mask="full", depths=(1, 2, 1, 1), embed_dims=(16, 32, 64, 64),
             num_heads=(1, 2, 4, 4), window_sizes=(4, 4, 4, 2)),
    of_class("davit", "DaVit", {"stages 0": (16, 16, 32), "stages 1": (16, 16, 16)},
             "windows; channel attention is left out", mask="full", depths=(1, 1), embed_dims=(16, 32),
             num_heads=(2, 4), window_size=4),
    of_class("crossvit", "CrossVit",
             {"blocks 0 65x65": (65, 65, 4), "blocks 0 10x10": (10, 10, 8), "blocks 1x10": (1, 10, 4),
              "blocks 1x65": (1, 65, 4)}, "two branches that cross", mask="full", img_size=64, img_scale=(1.0, 0.75),
             patch_size=(8, 16), embed_dim=(32, 64), depth=((1, 2, 0),), num_heads=(4, 4)),
]  # fmt: skip


# -- plain torch ------------------------------------------------------------------------------------------------------


class ByExponentials(Attention):
    """Softmax as exponentials over their sum."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        scores = q @ k.transpose(-2, -1) / 8**0.5
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        return self.join((weights / weights.sum(-1, keepdim=True)) @ v)


class ByLogarithms(Attention):
    """Softmax as the exponential of log_softmax, or of what logsumexp leaves."""

    sums = False

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        scores = q @ k.transpose(-2, -1) / 8**0.5
        if self.sums:
            return self.join((scores - torch.logsumexp(scores, -1, keepdim=True)).exp() @ v)
        return self.join(F.log_softmax(scores, -1).exp() @ v)


class ByHead(Attention):
    """One head at a time."""

    num_heads = 4

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        heads = [torch.softmax(q[:, h] @ k[:, h].mT / 8**0.5, -1) @ v[:, h] for h in range(4)]
        return self.join(torch.stack(heads, 1))


class Chunks(Attention):
    """Queries in two halves, to save memory."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        return self.join(torch.cat([F.scaled_dot_product_attention(part, k, v) for part in q.chunk(2, 2)], 2))


class InWindows(Fused):
    """Attention within windows of four tokens."""

    num_heads = 4

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, 4, 32)).reshape(x.shape)


class Backwards(nn.Module):
    """Layers that run in another order than they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Fused() for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in reversed(self.layers):
            x = x + layer(x)
        return x


def twice(cls: type[Attention], **options: Any) -> Callable[[], Any]:
    return lambda: nn.Sequential(cls(**options), cls(**options)).eval()


def torch_encoder(fast: bool) -> Callable[[], Any]:
    def make() -> Any:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=fast).eval()

    return make


def torch_transformer() -> Any:
    torch.manual_seed(0)
    return nn.Transformer(32, 4, 2, 2, 48, batch_first=True).eval()


def floats(*shapes: tuple[int, int], names: tuple[str, ...] = ("input",)) -> Callable[[], dict[str, Any]]:
    return lambda: {name: numbers(2, *shape) for name, shape in zip(names, shapes, strict=True)}


SEVEN = floats((7, 32))
TORCH = [
    Family("nn.TransformerEncoder", "torch", torch_encoder(False), floats((7, 32), names=("src",)), {"": (7, 7, 8)},
           trait="the fast path"),
    Family("nn.Transformer", "torch", torch_transformer, floats((7, 32), (5, 32), names=("src", "tgt")),
           {"encoder": (7, 7, 8), "decoder": (5, 5, 8), "cross": (5, 7, 8)}, trait="encoder and decoder"),
    Family("scaled_dot_product_attention", "torch", twice(Fused, causal=True), SEVEN, {"": (7, 7, 8)}, "causal",
           trait="user code"),
    Family("softmax", "torch", twice(Written, causal=True), SEVEN, {"": (7, 7, 8)}, "causal", trait="user code"),
    Family("exp / sum", "torch", twice(ByExponentials), SEVEN, {"": (7, 7, 8)}, trait="softmax by hand"),
    Family("log_softmax().exp()", "torch", twice(ByLogarithms), SEVEN, {"": (7, 7, 8)}, trait="softmax by hand"),
    Family("a loop over heads", "torch", twice(ByHead), SEVEN, {"": (7, 7, 8)}, trait="one head at a time"),
    Family("a loop over chunks", "torch", twice(Chunks), floats((8, 32)), {"": (8, 8, 8)}, trait="queries in chunks"),
    Family("windows by reshape", "torch", twice(InWindows), floats((8, 32)), {"": (4, 4, 16)}, trait="windows"),
    Family("layers backwards", "torch", Backwards, floats((7, 32), names=("x",)), {"": (7, 7, 12)},
           trait="numbered as they stand"),
]  # fmt: skip

# deep stems of random convolutions tell tokens apart but little
FLAT = {
    "MobileViTModel", "BlipModel", "levit_128s", "efficientvit_m0", "visformer_tiny", "mobilenetv4_hybrid_medium",
    "fastvit_sa12", "iformer_t"
}  # fmt: skip
FAMILIES = [replace(f, flat=f.name in FLAT) for f in (*TRANSFORMERS, *TIMM, *TORCH)]
