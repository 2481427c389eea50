"""Model types that transformers does not have: remote code, engines' own models, and older publishing formats.

One row each, with where its layout was read. Read: vLLM 0.32.0 (``vllm/model_executor/models``, ``vllm/transformers_utils``),
its older releases where a model has left it, SGLang 0.5.23 (``srt/models``, ``srt/configs``), mlx-lm 0.32.2, mlx-vlm 0.7.10,
optimum-intel 2.2.0, and the models' own configuration code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvcalc.architectures import hybrids, parts, patterns, remote_rules, rules
from kvcalc.architectures.base import Architecture
from kvcalc.architectures.hybrids import HYBRID, HYBRID_SLIDING
from kvcalc.architectures.patterns import FULL, LINEAR, SLIDING

PLAIN = Architecture(rules.decoder())
WINDOWED = Architecture(rules.decoder(patterns.full_unless_window))
LATENT = Architecture(rules.uniform(parts.latent))

# Types whose configuration class derives from the library's, or takes its keys and defaults: they run its code.
SAME_CODE: dict[str, str] = {
    # LLaVA's own format: the decoder's keys stand flat (LLaVA llava/model/language_model; SGLang llava.py)
    "llava_llama": "llama",
    "llava_mistral": "mistral",
    "llava_mpt": "mpt",
    "llava_qwen": "qwen2",
    "llava_qwen2": "qwen2",  # FastVLM (mlx-vlm fastvlm)
    "llava-qwen2": "qwen2",  # nanoLLaVA (mlx-vlm llava_bunny, optimum-intel)
    "bunny-llama": "llama",  # mlx-vlm llava_bunny
    "videochat_flash_qwen": "qwen2",  # optimum-intel
    "mplug_owl2": "llama",  # mPLUG-Owl2's configuration_mplug_owl2.py
    # a library decoder beside an image or audio tower
    "GOT": "qwen2",  # mlx-vlm got
    "bagel": "qwen2",  # vLLM configs/bagel.py
    "dots_ocr": "qwen2",  # vLLM configs/dotsocr.py
    "kimi_audio": "qwen2",  # vLLM kimi_audio.py: Qwen2ForCausalLM on the file's own keys
    "fireredasr2": "qwen2",  # vLLM fireredasr2.py
    "isaac": "qwen3",  # vLLM configs/isaac.py
    "qianfan_ocr": "qwen3",  # vLLM configs/qianfan_ocr.py
    "moss_audio": "qwen3",  # vLLM moss_audio.py
    "openvla": "llama",  # vLLM configs/openvla.py
    "kimi_vl": "deepseek_v3",  # vLLM configs/kimi_vl.py, mlx-vlm kimi_vl
    "dots_vlm": "deepseek_v3",  # SGLang configs/dots_vlm.py: DeepSeek's keys, flat
    "moondream1": "phi",  # mlx-vlm maps it to moondream2, a Phi
    # text models
    "AXK1": "axk1",  # vLLM AXK1.py
    "joyai_llm_flash": "deepseek_v3",  # mlx-lm maps it
    "mimo": "qwen2",  # vLLM mimo.py: a Qwen2 with prediction layers
    "deepseek_ocr2": "deepseek_v2",  # vLLM configs/deepseek_vl2.py
    "deepseek_ocr": "deepseek_v2",
    "deepseek-ocr": "deepseek_v2",
    "unlimited-ocr": "unlimited_ocr_text",  # vLLM configs/unlimited_ocr.py
    "nemotron_h_puzzle": "nemotron_h",  # vLLM nemotron_h.py: experts alone differ by layer
    "interns2_mobius_text": "qwen3_5_moe_text",  # SGLang configs/interns2_mobius.py: experts shared between layers
    "cohere2moe": "cohere2_moe",  # mlx-vlm maps it
    "gpt_neox-japanese": "gpt_neox_japanese",
}

# Grouped, multi-query or one head a query head, of head_dim or hidden_size // heads; every file names its own sizes.
PLAIN_TYPES: tuple[str, ...] = (
    "Keye",  # vLLM keye.py: Qwen3ForCausalLM on the file's own keys
    "KeyeVL1_5",  # vLLM keye_vl1_5.py
    "Klear",  # mlx-lm Klear.py
    "PanguProMoE",  # vLLM openpangu.py
    "bailing_moe_v2",  # SGLang configs/bailing_moe_v2.py
    "ernie4_5_moe_vl",  # mlx-vlm ernie4_5_moe_vl, SGLang ernie45_moe_vl.py
    "intern_s1_pro_text",  # vLLM interns1_pro.py
    "internlm2_ve",  # OpenGVLab's Mono-InternVL: InternLM2 with visual experts (vLLM internlm2_ve.py, 0.10)
    "internlmxcomposer2",  # an InternLM2 (its own configuration code)
    "interns1_pro_text",
    "k2_horizon",  # vLLM k2_horizon.py
    "llada2_moe",  # SGLang llada2.py
    "midashenglm",  # vLLM configs/midashenglm.py
    "minicpmo",  # vLLM minicpmo.py: a Qwen2 or Qwen3 on the file's own keys
    "mixformer-sequential",  # Phi's first name (configuration_mixformer_sequential.py)
    "moss",  # MOSS's configuration_moss.py
    "param2moe",  # vLLM param2moe.py
    "sdar",  # SGLang sdar.py
    "sdar_moe",  # SGLang sdar_moe.py
    "solar",  # vLLM solar.py: bskcn layers add earlier hidden states; each layer keeps its own keys
    "stablelm_alpha",  # its configuration_stablelm_alpha.py
    "stablelm_epoch",  # StableLM's first name
    "step1",  # vLLM step1.py: num_attention_groups
    "talkie",  # mlx-lm talkie.py
    "telechat2",  # vLLM telechat2.py
    "telechat3",  # vLLM: LlamaForCausalLM; mlx-lm telechat3.py
    "teleflm",  # vLLM teleflm.py
    "xllm",  # SGLang xllm.py
)

META_ALIASES = {  # Meta's and Mistral's own names for the sizes (params.json)
    "num_layers": ("n_layers", "num_hidden_layers"),
    "num_attention_heads": ("n_heads", "num_attention_heads"),
    "num_kv_heads": ("n_kv_heads", "num_key_value_heads"),
    "hidden_size": ("dim", "hidden_size"),
}
JINA_ALIASES = {  # its sizes stand inside the block's own object (mlx-vlm jina_vlm)
    "num_layers": ("n_layers", "num_hidden_layers"),
    "num_attention_heads": ("block_config.attn_config.n_heads", "num_attention_heads"),
    "num_kv_heads": ("block_config.attn_config.n_kv_heads", "num_key_value_heads"),
    "head_dim": ("block_config.attn_config.head_dim", "head_dim"),
}
MOONDREAM_ALIASES = {  # vLLM configs/moondream3.py: config.text, and its class defaults
    "num_layers": ("config.text.n_layers", "n_layers"),
    "num_attention_heads": ("config.text.n_heads", "n_heads"),
    "num_kv_heads": ("config.text.n_kv_heads", "n_kv_heads"),
    "hidden_size": ("config.text.dim", "dim"),
    "max_tokens": ("config.text.max_context", "max_context"),
}
LINEAR_BAILING = Architecture(rules.hybrid(remote_rules.group_ends, parts.lightning))

OWN_RULES: dict[str, Architecture] = {
    # heads and widths
    "cogvlm": Architecture(rules.decoder(), {"num_kv_heads": ("num_multi_query_heads",)}),  # lmdeploy cogvlm.py
    "deci": Architecture(  # optimum-intel, llama.cpp convert_hf_to_gguf.py: heads a layer, or Nemotron-NAS blocks
        remote_rules.blocks_or_heads, {"num_kv_heads": ("num_key_value_heads_per_layer", "num_key_value_heads")}
    ),
    "cpmbee": Architecture(rules.decoder(), {"head_dim": ("dim_head",)}),  # transformers' own class, before it left
    "domyn_edge": Architecture(remote_rules.own_windows),  # vLLM 0.33 domyn_edge.py
    "falcon_ocr": Architecture(rules.decoder(), META_ALIASES),  # mlx-vlm falcon_ocr
    "falcon_perception": Architecture(rules.decoder(), META_ALIASES),  # mlx-vlm falcon_perception
    "falcon-perception": Architecture(rules.decoder(), META_ALIASES),
    "hf_olmo": Architecture(remote_rules.queries_or_one),  # olmo/config.py: effective_n_kv_heads
    "inkling_model": Architecture(  # vLLM models/inkling/configs.py, and its class defaults
        rules.decoder(
            hybrids.inkling_listed, {HYBRID: hybrids.inkling(sliding=False), HYBRID_SLIDING: hybrids.inkling(sliding=True)}
        ),
        own_defaults={
            "hidden_size": 1536,
            "num_hidden_layers": 16,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "sliding_window_size": 512,
        },
    ),
    "jina_vlm": Architecture(rules.decoder(), JINA_ALIASES),
    "jvlm": Architecture(rules.decoder(), JINA_ALIASES),
    "lille-130m": Architecture(rules.decoder(), {"max_tokens": ("block_size",)}),  # mlx-lm lille-130m.py
    "mistral_params": Architecture(  # vLLM configs/mistral.py
        remote_rules.mla_unless_heads(remote_rules.by_window_list("sliding_window")), META_ALIASES
    ),
    "moondream3": Architecture(
        rules.decoder(), MOONDREAM_ALIASES, own_defaults={"n_layers": 24, "n_heads": 32, "n_kv_heads": 32, "dim": 2048}
    ),
    "phixtral": Architecture(  # mlx-lm phixtral.py
        rules.decoder(),
        {
            "num_layers": ("num_layers", "n_layer"),
            "num_attention_heads": ("num_heads", "n_head"),
            "hidden_size": ("model_dim", "n_embd"),
        },
    ),
    "plamo": Architecture(rules.uniform(remote_rules.shared_heads)),  # mlx-lm plamo.py
    **dict.fromkeys(  # vLLM configs/step3_vl.py, step3_text.py
        ("step3_text", "step3_vl"),
        Architecture(
            rules.decoder(),
            {"max_tokens": ("max_position_embedding", "max_position_embeddings", "max_seq_len")},
            constants={"num_kv_heads": 1},
            own_defaults={"num_hidden_layers": 61, "num_attention_heads": 64, "head_dim": 256, "hidden_size": 7168},
        ),
    ),
    # windows
    "baichuan_m1": Architecture(remote_rules.baichuan_m1),  # mlx-lm baichuan_m1.py
    "iquest_q1": Architecture(  # SGLang configs/iquest_q1.py
        remote_rules.framed,
        own_defaults={
            "num_hidden_layers": 88,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "sliding_window": 4096,
        },
    ),
    "Motif": Architecture(remote_rules.motif),  # Motif-3's vLLM configuration, RLX's reading of modeling_motif.py
    "phi4mm": WINDOWED,  # vLLM phi4mm.py, mlx-vlm phi4mm: Phi-3's decoder
    "phi4-siglip": WINDOWED,  # vLLM phi4siglip.py
    "plamo3": Architecture(
        remote_rules.plamo3, {"sliding_window": ("sliding_window", "window_size")}
    ),  # vLLM plamo3.py, mlx-lm plamo3.py
    "spark2_5": Architecture(rules.decoder(patterns.every_nth(FULL, SLIDING, "_period", 4))),  # mlx-lm spark2_5.py
    **dict.fromkeys(  # vLLM openpangu.py
        ("PanguEmbedded", "pangu_embedded"), Architecture(remote_rules.by_window_list("interleaved_sliding_window"))
    ),
    "PanguProMoEV2": Architecture(remote_rules.sink_heads, notes=("learned sink rows are not counted",)),  # vLLM openpangu.py
    # shared caches and loops
    "afm7": Architecture(  # mlx-lm afm7.py
        rules.sharing_last(rules.decoder(), "num_kv_reuse_layers"), {"hidden_size": ("hidden_dim",)}
    ),
    "hunyuan": Architecture(  # mlx-lm hunyuan.py, SGLang hunyuan.py
        remote_rules.cross_layer(rules.decoder()), {"head_dim": ("head_dim", "attention_head_dim")}
    ),
    "iquestloopcoder": Architecture(remote_rules.windowed_loops),  # vLLM iquest_loopcoder.py, mlx-lm iquestloopcoder.py
    "nanbeige": Architecture(remote_rules.looped_unless_shared(rules.decoder())),  # SGLang configs/nanbeige.py, mlx-lm
    "ouro": Architecture(  # optimum-intel model_configs.py: a cache for each of total_ut_steps
        rules.repeated(rules.decoder(patterns.upper_layers_slide), "total_ut_steps"), own_defaults={"total_ut_steps": 4}
    ),
    "phi4flash": Architecture(  # vLLM phi4flash.py (0.10), the model's configuration_phi4flash.py
        remote_rules.sambay, own_defaults={"sliding_window": 2047, "num_key_value_heads": 4}
    ),
    # latent and compressed
    "deepseek_v41": Architecture(remote_rules.shared_compressed),  # vLLM models/deepseek_v41/attention.py
    "deepseek_v41_text": Architecture(remote_rules.shared_compressed),
    "gigachat3_5": Architecture(  # SGLang configs/gigachat35.py
        rules.decoder(
            patterns.listed_indices("full_attention_layers", FULL, LINEAR), {FULL: parts.latent, LINEAR: parts.gated_delta_net}
        )
    ),
    "longcat_flash_ngram": Architecture(  # vLLM longcat_flash_ngram.py, mlx-lm longcat_flash_ngram.py
        rules.doubled(rules.uniform(parts.latent)), {"num_layers": ("num_layers", "num_hidden_layers")}
    ),
    "pangu_ultra_moe": Architecture(remote_rules.mla_unless_heads(rules.decoder())),  # vLLM openpangu.py
    "youtu_llm": LATENT,  # mlx-lm youtu_llm.py
    "youtu_vl": LATENT,  # mlx-vlm youtu_vl
    # states among attention
    "bailing_moe_linear": LINEAR_BAILING,  # mlx-lm bailing_moe_linear.py
    "bailing_moe_linear_v2": LINEAR_BAILING,
    "jet_nemotron": Architecture(remote_rules.jet),  # SGLang configs/jet_nemotron.py, jet_nemotron.py
    **dict.fromkeys(  # vLLM minimax_text_01.py (0.10): attn_type_list, 0 lightning, 1 attention
        ("minimax_text_01", "minimax_m1", "MiniMaxText01", "MiniMaxM1"),
        Architecture(
            rules.hybrid(
                remote_rules.numbered_kinds(("attn_type_list", "decoder_attention_types"), {0: LINEAR, 1: FULL}), parts.lightning
            )
        ),
    ),
    "mamba_ssm": Architecture(remote_rules.state_spaces),  # state-spaces/mamba modules/{mamba_simple,mamba2,mha}.py
    "minicpm_sala": Architecture(  # SGLang configs/minicpm.py
        rules.hybrid(
            remote_rules.worded_kinds(
                "mixer_types",
                {"minicpm4": FULL, "lightning": LINEAR, "lightning_attn": LINEAR, "lightning-attn": LINEAR},
                "minicpm4",
            ),
            remote_rules.lightning_heads,
        )
    ),
    "plamo2": Architecture(  # vLLM plamo2.py (0.13), mlx-lm plamo2.py
        rules.hybrid(remote_rules.plamo2_pattern, remote_rules.plamo2_mamba),
        {"head_dim": ("hidden_size_per_head",)},
        notes=("attention_window_size is not counted: the engines keep every position",),
    ),
    "zaya1_vl": Architecture(  # mlx-vlm zaya1_vl: Zaya's convolutional attention in every layer
        rules.uniform(hybrids.both(parts.full, hybrids.cca)), {"num_kv_heads": ("num_query_groups", "num_key_value_heads")}
    ),
}

# LLaVA's format for any decoder (keys ``mm_vision_tower``, ``mm_projector_type`` beside the decoder's own): the type's name
# ends with the decoder's (LLaVA's, MoE-LLaVA's, Cambrian's and their kin's model classes).
LLAVA_KEYS = ("mm_vision_tower", "mm_projector_type", "mm_hidden_size", "mm_vision_tower_aux_list")
LLAVA_DECODERS: dict[str, str] = {
    "llama": "llama",
    "qwen": "qwen2",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "mistral": "mistral",
    "mixtral": "mixtral",
    "phi": "phi",
    "phi3": "phi3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "stablelm": "stablelm",
    "mpt": "mpt",
}

# Types whose layout is not established: the reason stands for a guess.
REFUSED: dict[str, str] = {
    "ultravox": "its decoder's sizes are another checkpoint's (text_model_id): take that one's config.json",
    "hymba": "its meta tokens, and the keys that its layers reuse, are not modelled",
    "stripedhyena": "its convolutions' states are not modelled",
    "evabyte": "its attention keeps chunk summaries, which are not modelled",
    "rwkv_hybrid": "which of its layers attend is told by its code, not by its file",
    "retnet": "its retention's state is not modelled; no key-value cache is kept",
    "medusa": "draft heads on another model's states, without a cache of their own",
    "mlp_speculator": "a draft model without attention, and so without a cache",
}

# Classes whose files name no known type, where the class's name doesn't lead to it.
CLASS_TYPES: dict[str, str] = {
    "LongcatFlashNgramForCausalLM": "longcat_flash_ngram",  # vLLM transformers_utils/config.py
    "MistralLarge3ForCausalLM": "deepseek_v3",  # vLLM configs/mistral.py
    "MoonshotKimiaForCausalLM": "kimi_audio",  # vLLM registry
    "DeciLMForCausalLM": "deci",
    "GLM4VForCausalLM": "glm-4v",
    "InternLMXComposer2ForCausalLM": "internlmxcomposer2",
    "PanguProMoEV2ForCausalLM": "PanguProMoEV2",
    "PanguEmbeddedForCausalLM": "PanguEmbedded",
    "PanguUltraMoEForCausalLM": "pangu_ultra_moe",
    "IQuestLoopCoderForCausalLM": "iquestloopcoder",
    "Step3TextForCausalLM": "step3_text",
    "TeleFLMForCausalLM": "teleflm",
}


def remote_rows(known: Mapping[str, Architecture]) -> dict[str, Architecture]:
    """Name → row; ``known`` are the library's, for those that run its code."""
    same = {name: replace(known[like], defaults=known[like].defaults or like) for name, like in SAME_CODE.items()}
    return {**dict.fromkeys(PLAIN_TYPES, PLAIN), **same, **OWN_RULES}
