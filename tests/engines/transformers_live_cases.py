"""Configs that the installed transformers is built from: one small one a model type, and variants that bend a rule.

``NEEDS`` holds what a type's own defaults lack before the library can run it; ``VARIANTS`` what published files do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvcalc.architectures.class_defaults import ATTRIBUTE_MAP, CLASS_DEFAULTS, TEXT_CONFIGS

Config = dict[str, Any]
MOST_LAYERS = 13  # where every pattern has shown itself: two periods of six and one

_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12]}
_DECODER = {"is_decoder": True}

NEEDS: dict[str, Config] = {
    **dict.fromkeys(
        ("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert", "reformer")
        + ("rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl"),
        _DECODER,
    ),
    "xmod": {**_DECODER, "default_language": "en_XX"},
    "aya_vision": {"vision_config": {"model_type": "siglip_vision_model", "num_attention_heads": 16}},
    "bamba": {"attn_layer_indices": [1, 9]},
    "granitemoehybrid": {"num_hidden_layers": 4, "layer_types": ["mamba", "attention", "mamba", "attention"]},
    "chameleon": {"vocabulary_map": {"<image>": 8711, "IMGIMGA": 5}},
    "emu3": {"vocabulary_map": {"<image>": 151667, "<|visual token 000001|>": 151854}},
    "cohere_compass_text": {
        "rope_parameters": dict.fromkeys(("full_attention", "sliding_attention"), {"rope_type": "default", "rope_theta": 10000.0})
    },
    "dbrx": {"d_model": 1024, "n_heads": 8, "attn_config": {"kv_n_heads": 2, "rope_theta": 500000.0}},
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
    "longcat_flash": {"num_layers": 2},
    "qwen4_exp_text": {
        "ple_layer_ids": [],
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 64,
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
NEEDS["qwen4_exp"] = {"text_config": NEEDS["qwen4_exp_text"]}
NEEDS["cohere_compass"] = {"text_config": NEEDS["cohere_compass_text"]}
NEEDS["qwen3_omni_moe"] = {"thinker_config": NEEDS["qwen3_omni_moe_thinker"]}

# What can't be built: the library's own code fails on it, or wants an image, a sound or a state that the cache is made of.
UNBUILT: dict[str, str] = {}


def small(model_type: str) -> Config:
    """The type's defaults with fewer layers, and what it needs."""
    config: Config = {"model_type": model_type}
    inner, kind = config, model_type
    while kind in TEXT_CONFIGS:
        key, nested = TEXT_CONFIGS[kind]
        inner[key] = {"model_type": nested}
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

VARIANTS: dict[str, tuple[Config, ...]] = {}


def cases() -> Iterator[tuple[str, Config]]:
    """(name, config) of every case."""
    for model_type in sorted(CLASS_DEFAULTS):
        yield model_type, small(model_type)
    for name, configs in sorted(VARIANTS.items()):
        for index, config in enumerate(configs):
            yield f"{name}-{index}", config
