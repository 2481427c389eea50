"""Where vLLM's model classes read a file otherwise than the architectures' rules. One row a model type.

Sources: vLLM 0.32.0, ``vllm/model_executor/models``, ``vllm/models``, ``vllm/model_executor/models/config.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

# How a class treats a mix of windowed and full layers.
AS_LAYERS = "as the layers say"
ALL_OR_NONE = "a window counts only when every layer has it"  # the class passes no window a layer
NO_MIX = "a mix is refused"


@dataclass(frozen=True, slots=True)
class Reading:
    """What is special about one model type."""

    windows: str = AS_LAYERS
    own_windows: bool = False  # the config-wide sliding_window is put aside
    window_plus: int = 0
    expands_latent: bool = False  # latent attention cached as full heads, V padded to K's width
    sinks: bool = False
    alibi: str = ""  # always, or the field that says so
    state_dtype: str = ""  # of the temporal state where mamba-ssm-cache-dtype is auto: a type, or "field|fallback"
    kv_heads_must_split: bool = False  # no replication: more ranks than KV heads end in a division by zero
    bidirectional: str = ""  # a field that, when true, makes the model an encoder without a cache
    pipeline: bool = True
    crosses: bool = False  # an encoder-decoder that is served


READINGS: dict[str, Reading] = {
    **dict.fromkeys(
        ("qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_audio", "qwen3"), Reading(windows=NO_MIX)
    ),
    **dict.fromkeys(
        ("qwen2_moe", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"),
        Reading(windows=ALL_OR_NONE),
    ),
    **dict.fromkeys(("cohere2", "cohere2_moe"), Reading(window_plus=1)),  # a windowed layer sees [pos - window, pos]
    **dict.fromkeys(("mimo_v2", "mimo_v2_flash"), Reading(own_windows=True, sinks=True)),
    **dict.fromkeys(("step3p5", "step3p7", "step3p7_text"), Reading(own_windows=True)),
    "gpt_oss": Reading(sinks=True, kv_heads_must_split=True),
    **dict.fromkeys(("granite_swa", "granitemoe_swa"), Reading(sinks=True)),
    "minicpm3": Reading(expands_latent=True),
    "bloom": Reading(alibi="always"),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), Reading(alibi="alibi")),
    "nemotron_h": Reading(state_dtype="mamba_ssm_cache_dtype|float32"),
    **dict.fromkeys(("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), Reading(state_dtype="mamba_ssm_dtype|")),
    **dict.fromkeys(("gemma3", "gemma3_text"), Reading(bidirectional="use_bidirectional_attention")),
    **dict.fromkeys(("gemma3n", "gemma3n_text", "zamba2", "hrm_text"), Reading(pipeline=False)),
    "whisper": Reading(pipeline=False, crosses=True),
}
DEFAULT = Reading()

# Models whose fp8 cache on SM 10.0 is the default, not a choice.
FP8_BY_DEFAULT_ON_SM100 = frozenset({"glm_moe_dsa"})
# float16 checkpoints that are served in bfloat16.
NEVER_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})

# vllm/model_executor/models/registry.py: classes that were served once, and the last release that did.
LAST_SERVED: dict[str, str] = {
    "AquilaForCausalLM": "0.24.0",
    "AquilaModel": "0.24.0",
    "ArcticForCausalLM": "0.28.0",
    "BaiChuanForCausalLM": "0.23.0",
    "BaichuanForCausalLM": "0.23.0",
    "BambaForCausalLM": "0.23.0",
    "ChameleonForConditionalGeneration": "0.28.0",
    "Dots1ForCausalLM": "0.23.0",
    "FuyuForCausalLM": "0.25.0",
    "Grok1ForCausalLM": "0.24.0",
    "Grok1ModelForCausalLM": "0.24.0",
    "InternLMForCausalLM": "0.23.0",
    "JAISLMHeadModel": "0.22.0",
    "MPTForCausalLM": "0.28.0",
    "MiniMaxForCausalLM": "0.23.0",
    "MiniMaxM1ForCausalLM": "0.23.0",
    "MiniMaxText01ForCausalLM": "0.23.0",
    "MllamaForConditionalGeneration": "0.10.2",
    "MotifForCausalLM": "0.10.2",
    "MptForCausalLM": "0.28.0",
    "OuroForCausalLM": "0.26.0",
    "PersimmonForCausalLM": "0.25.0",
    "Phi3SmallForCausalLM": "0.9.2",
    "Phi4FlashForCausalLM": "0.10.2",
    "Phi4MultimodalForCausalLM": "0.12.0",
    "Plamo2ForCausalLM": "0.26.0",
    "QWenLMHeadModel": "0.23.0",
    "RWForCausalLM": "0.28.0",
    "StableLMEpochForCausalLM": "0.28.0",
    "TeleChatForCausalLM": "0.25.0",
    "XverseForCausalLM": "0.23.0",
}

# The class of a model type, where the file itself (a preset, say) names none.
CLASS_OF_TYPE: dict[str, str] = {
    "arctic": "ArcticForCausalLM",
    "baichuan": "BaichuanForCausalLM",
    "bamba": "BambaForCausalLM",
    "chameleon": "ChameleonForConditionalGeneration",
    "dots1": "Dots1ForCausalLM",
    "fuyu": "FuyuForCausalLM",
    "grok-1": "Grok1ForCausalLM",
    "internlm": "InternLMForCausalLM",
    "minimax": "MiniMaxForCausalLM",
    "minimax_m1": "MiniMaxM1ForCausalLM",
    "minimax_text_01": "MiniMaxText01ForCausalLM",
    "mllama": "MllamaForConditionalGeneration",
    "mllama_text_model": "MllamaForConditionalGeneration",
    "mpt": "MPTForCausalLM",
    "persimmon": "PersimmonForCausalLM",
    "phi3small": "Phi3SmallForCausalLM",
    "phi4_multimodal": "Phi4MultimodalForCausalLM",
    "phi4flash": "Phi4FlashForCausalLM",
    "plamo2": "Plamo2ForCausalLM",
    "qwen": "QWenLMHeadModel",
    "xverse": "XverseForCausalLM",
}


def reading_of(model_type: str) -> Reading:
    """The row of a model type, or the plain one."""
    return READINGS.get(model_type, DEFAULT)
