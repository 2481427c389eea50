"""Configs that the installed transformers is built from: one small one a model type, and variants that bend a rule.

``NEEDS`` holds what a type's own defaults lack before the library can run it; ``VARIANTS`` what published files do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcalc.architectures.class_defaults import ATTRIBUTE_MAP, CLASS_DEFAULTS, TEXT_CONFIGS, TEXT_INIT
from kvcalc.architectures.library_rows import AS_DECODER_TYPES

Config = dict[str, Any]
MOST_LAYERS = 13  # where every pattern has shown itself: two periods of six and one

_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12]}
_DECODER = {"is_decoder": True}

NEEDS: dict[str, Config] = {
    **dict.fromkeys((*AS_DECODER_TYPES, "reformer"), _DECODER),
    "xmod": {**_DECODER, "default_language": "en_XX"},
    "aya_vision": {"vision_config": {"model_type": "siglip_vision_model", "num_attention_heads": 16}},
    "bamba": {"attn_layer_indices": [1, 9]},
    "granitemoehybrid": {"num_hidden_layers": 4, "layer_types": ["mamba", "attention", "mamba", "attention"]},
    "chameleon": {"vocabulary_map": {"<image>": 8711, "IMGIMGA": 5}},
    "emu3": {"vocabulary_map": {"<image>": 151667, "<|visual token 000001|>": 151854}},
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("full_attention", "sliding_attention")
        }
    },
    "dbrx": {"d_model": 1024, "n_heads": 8, "attn_config": {"kv_n_heads": 2, "rope_theta": 500000.0, "clip_qkv": 8.0}},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense"] * MOST_LAYERS}},
    "deepseek_v2": {"topk_method": "greedy", "num_experts_per_tok": 2, "n_routed_experts": 8, "first_k_dense_replace": 13},
    "diffusion_gemma": {"text_config": {"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64}},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "glm46v": {"text_config": {"rope_parameters": {**_MROPE, "partial_rotary_factor": 0.5}}},
    "glm4v": {"text_config": {"rope_parameters": {**_MROPE, "partial_rotary_factor": 0.5}}},
    "glm4v_moe": {"text_config": {"head_dim": 128, "rope_parameters": {**_MROPE, "partial_rotary_factor": 0.5}}},
    "glmga": {"text_config": {"rope_parameters": {**_MROPE, "partial_rotary_factor": 0.5}}},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 2},
    "hunyuan_vl": {"text_config": {"head_dim": 128, "rope_parameters": {**_MROPE, "mrope_section": [16, 16, 16, 16]}}},
    "ministral": {"head_dim": 128},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
    "lfm2_moe": {"layer_types": (["conv", "conv", "full_attention"] * 5)[:MOST_LAYERS]},
    "jetmoe": {"hidden_size": 256, "intermediate_size": 64, "vocab_size": 1000, "num_local_experts": 2, "num_hidden_layers": 3},
    "nllb-moe": {
        "d_model": 256,
        "decoder_ffn_dim": 64,
        "encoder_ffn_dim": 64,
        "num_experts": 4,
        "vocab_size": 1000,
        "decoder_layers": 4,
        "encoder_layers": 2,
    },
    "switch_transformers": {
        "d_model": 256,
        "d_ff": 64,
        "num_experts": 4,
        "vocab_size": 1000,
        "num_layers": 4,
        "num_decoder_layers": 3,
    },
    "longcat_flash": {"num_layers": 2},
    "dory": {"n_input_layers": 3, "n_output_layers": 3},
    "gpt_neo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "gemma3n_text": {"num_hidden_layers": 20, "num_kv_shared_layers": 10},
    "inkling2_loop_text": {"loop_layer_index_start": 6, "loop_layer_index_end": 12},
    "qwen4_exp_text": {
        "ple_layer_ids": [],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 256,
        "indexer_budget": 64,
        "indexer_compress_ratio": 16,
    },
    "step3p7": {
        "text_config": {"sliding_window": 16, "layer_types": (["full_attention", *["sliding_attention"] * 3] * 4)[:MOST_LAYERS]}
    },
    "qwen3_omni_moe_thinker": {
        "text_config": {"head_dim": 128, "rope_parameters": {**_MROPE, "mrope_section": [24, 20, 20], "interleaved": True}}
    },
    "zamba2": {"num_hidden_layers": 54},
}
NEEDS["gemma3n"] = {"text_config": NEEDS["gemma3n_text"]}
NEEDS["inkling2_loop"] = {"text_config": NEEDS["inkling2_loop_text"]}
NEEDS["qwen4_exp"] = {"text_config": NEEDS["qwen4_exp_text"]}
NEEDS["cohere_compass"] = {"text_config": NEEDS["cohere_compass_text"]}
NEEDS["qwen3_omni_moe"] = {"thinker_config": NEEDS["qwen3_omni_moe_thinker"]}

# What can't be built alone: refused types, parts of others, encoders, and code that fails on any config.
UNBUILT: dict[str, str] = {
    **dict.fromkeys(("bark", "semantic", "coarse_acoustics"), "three models in turn, refused"),
    **dict.fromkeys(("blt", "blt_global_transformer", "blt_local_decoder", "blt_local_encoder", "blt_patcher"), "refused"),
    **dict.fromkeys(("fastspeech2_conformer", "fastspeech2_conformer_with_hifigan", "vits"), "one pass, no cache, refused"),
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), "drafts that read another model's cache, refused"),
    **dict.fromkeys(("openai-gpt", "xlm", "xlnet"), "no key-value cache, refused"),
    "pi0": "its cache is made of image, text and state inputs, refused",
}
# Code that fails on the first step after the prompt.
PROMPT_ONLY = frozenset(("cpmant",))


def small(model_type: str) -> Config:
    """The type's defaults with fewer layers, and what it needs."""
    config: Config = {"model_type": model_type}
    inner, kind = config, model_type
    while kind in TEXT_CONFIGS:
        key, nested = TEXT_CONFIGS[kind]
        inner[key] = {"model_type": nested, **TEXT_INIT.get(kind, {})}
        inner, kind = inner[key], nested
    for key, most in depths(kind).items():
        inner[key] = most
    return merged(config, NEEDS.get(model_type, {}))


def depths(model_type: str) -> dict[str, int]:
    """The keys that say how deep a type is, cut to ``MOST_LAYERS``."""
    row = CLASS_DEFAULTS.get(model_type, {})
    own = ATTRIBUTE_MAP.get(model_type, {}).get("num_hidden_layers", "num_hidden_layers")
    keys = {own, "decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers", "num_layers"} & set(row)
    return {key: MOST_LAYERS for key in sorted(keys) if isinstance(row[key], int) and row[key] > MOST_LAYERS}


def merged(config: Mapping[str, Any], more: Mapping[str, Any]) -> Config:
    """``more`` over ``config``, nested objects merged."""
    found = dict(config)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found


_SMALL = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 64}
_WINDOWED = {**_SMALL, "sliding_window": 8}
_PAIRS = ["full_attention", "sliding_attention"] * 3
_MLA = {
    **_SMALL,
    "num_key_value_heads": 8,
    "q_lora_rank": 32,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "n_routed_experts": 16,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 6,
}

# What published files do: windows switched on and off, kinds named layer by layer, widths that don't follow from others.
VARIANTS: tuple[Config, ...] = (
    {"model_type": "llama", **_WINDOWED},  # the attention reads no window, its cache does
    {"model_type": "llama", **_WINDOWED, "layer_types": _PAIRS},
    {"model_type": "llama", **_SMALL, "head_dim": 48},
    {"model_type": "llama", **_SMALL, "dtype": "float32"},  # the type asked for stands, not the file's
    {"model_type": "mistral", **_WINDOWED},
    {"model_type": "mistral", **_SMALL, "sliding_window": None},
    {"model_type": "mistral", **_SMALL, "sliding_window": 1},
    {"model_type": "ministral3", **_WINDOWED},
    {"model_type": "mixtral", **_WINDOWED},
    {"model_type": "phi3", **_WINDOWED},
    {"model_type": "starcoder2", **_WINDOWED},
    {"model_type": "moshi", **_WINDOWED},
    {"model_type": "qwen2", **_WINDOWED, "use_sliding_window": True, "max_window_layers": 2},
    {"model_type": "qwen2", **_WINDOWED, "use_sliding_window": False},
    {"model_type": "qwen2", **_WINDOWED, "use_sliding_window": True, "layer_types": _PAIRS},
    {"model_type": "qwen2_moe", **_WINDOWED, "use_sliding_window": True, "max_window_layers": 3, "num_experts": 8},
    {"model_type": "qwen3_moe", **_WINDOWED, "use_sliding_window": True, "max_window_layers": 3, "num_experts": 8},
    {"model_type": "dots1", **_WINDOWED, "max_window_layers": 3, "head_dim": 32, **NEEDS["dots1"]},
    {"model_type": "smollm3", **_WINDOWED, "use_sliding_window": True, "no_rope_layers": [1, 0, 1, 0, 1, 0]},
    {"model_type": "gemma2", **_WINDOWED, "num_hidden_layers": 5, "head_dim": 32},
    {"model_type": "gemma3_text", **_WINDOWED, "sliding_window_pattern": 3, "head_dim": 32},
    {"model_type": "gemma3_text", **_WINDOWED, "use_bidirectional_attention": True, "head_dim": 32},
    {"model_type": "cohere2", **_WINDOWED, "sliding_window_pattern": 2},
    {"model_type": "exaone4", **_WINDOWED, "sliding_window_pattern": 2},
    {"model_type": "exaone4", **_SMALL, "sliding_window": None, "layer_types": ["full_attention"] * 6},
    {"model_type": "olmo3", **_WINDOWED},
    {"model_type": "mimo_v2_flash", **_SMALL, "head_dim": 32, "v_head_dim": 16, "sliding_window_size": 8, "n_routed_experts": 8},
    {"model_type": "falcon", **_SMALL, "new_decoder_architecture": True, "num_kv_heads": 2},
    {"model_type": "falcon", **_SMALL, "multi_query": False},
    {"model_type": "gpt_bigcode", "n_embd": 256, "n_layer": 2, "n_head": 8, "multi_query": False},
    {"model_type": "deepseek_v3", **_MLA},
    {"model_type": "deepseek_v4", "compress_ratios": [0, 4, 128, 0], "num_hidden_layers": 4, "sliding_window": 8},
    {"model_type": "deepseek_v32", **_MLA, "index_head_dim": 32, "index_n_heads": 4, "index_topk": 4},
    {"model_type": "jamba", **_SMALL, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1},
    {"model_type": "nemotron_h", **_SMALL, "head_dim": 32, "hybrid_override_pattern": "M*-ME*", "n_routed_experts": 8},
    {"model_type": "gemma3n_text", **_WINDOWED, "head_dim": 32, "num_hidden_layers": 10, "num_kv_shared_layers": 5},
    {"model_type": "qwen3_next", **_SMALL, "head_dim": 32, "full_attention_interval": 3, "num_experts": 16},
    {"model_type": "recurrent_gemma", **_SMALL, "num_key_value_heads": 1, "attention_window_size": 8},
    {"model_type": "t5", "d_model": 256, "num_layers": 4, "num_decoder_layers": 2, "num_heads": 4, "d_kv": 48},
    {
        "model_type": "encoder-decoder",
        "encoder": {"model_type": "bert"},
        "decoder": {"model_type": "gpt2", "add_cross_attention": True},
    },
    {**small("qwen4_exp_text"), "ple_layer_ids": [1, 3], "ple_embed_dim": 256, "eos_token_id": 1},
)
