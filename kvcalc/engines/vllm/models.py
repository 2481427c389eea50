"""Where vLLM's model classes read a file otherwise than the architectures' rules. One row a model type.

Sources: vLLM 0.32.0, ``vllm/model_executor/models``, ``vllm/models``, ``vllm/model_executor/models/config.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvcalc.core.model import Model

ROTARY, ALIBI = "rotary layers", "layers with ALiBi"
# How a class treats a mix of windowed and full layers.
AS_LAYERS = "as the layers say"
ALL_OR_NONE = "a window counts only when every layer has it"  # the class passes no window a layer
NO_MIX = "a mix is refused"
NEVER = "no layer's window counts"  # its layers register full attention whatever the window


# Which field says the temporal state's type where mamba-ssm-cache-dtype is auto, and what stands where it doesn't.
NEMOTRON_STATES, QWEN_STATES = "mamba_ssm_cache_dtype|float32", "mamba_ssm_dtype|"


@dataclass(frozen=True, slots=True)
class Reading:
    """What is special about one model type."""

    windows: str = AS_LAYERS
    own_windows: bool = False  # the config-wide sliding_window is put aside
    alternates: bool = False  # where no kinds of layers are named, every other layer takes it, the first one among them
    window_plus: int = 0
    window_field: str = ""  # the windowed layers' window stands there
    window_list: str = ""  # or there, one a layer
    other_heads: str = ""  # the windowed layers' heads and width stand in that object
    head_dim_of_hidden: bool = False  # its own configuration class has no default head_dim: hidden_size // heads
    own_dtype: str = ""  # layers that the class builds without the cache's settings, and so in the model's type: ROTARY, ALIBI
    one_rank: bool = False  # no tensor parallelism
    expands_latent: bool = False  # latent attention cached as full heads, V padded to K's width
    sinks: bool = False
    alibi: str = ""  # always, or the field that says so
    states: str = ""  # what its recurrent layers are, whatever the type says
    full_tail: str = ""  # that field's groups of layers end in an attending one, and all layers of a last, shorter group attend
    fixed_states: bool = False  # mamba-ssm-cache-dtype plays no part
    packed_convs: bool = False  # convolutions are windows, not states
    kda_bound: str = ""  # the bound of KDA's gate stands there, or in linear_attn_config
    sparse_kinds: tuple[str, ...] = ()  # only layers that layer_types calls so read sparsely and have an indexer
    pool: str = ""  # that many tokens share an index row, and a ring holds those of the open pool
    equal_latents: bool = False  # full latents take rows as wide as windowed ones
    block_outermost: bool = False  # its backends take a layout of mixed pages alone
    flash_attn: bool = False  # the class names FlashAttention itself
    needs: str = ""  # a field without which the class reads the file otherwise than kvcalc does
    state_dtype: str = ""  # of the temporal state where mamba-ssm-cache-dtype is auto: "field|fallback"
    kv_heads_must_split: bool = False  # no replication: more ranks than KV heads are an error
    since: str = ""  # the first release whose layout is modelled
    encoder: bool = False  # it sees both ways, and keeps no cache
    bidirectional: str = ""  # a field that, when true, makes the model an encoder without a cache
    pipeline: bool = True
    crosses: bool = False  # an encoder-decoder that is served


READINGS: dict[str, Reading] = {
    **dict.fromkeys(
        ("qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen2_audio", "qwen3"),
        Reading(windows=NO_MIX),
    ),
    **dict.fromkeys(
        ("qwen2_moe", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"),
        Reading(windows=ALL_OR_NONE),
    ),
    **dict.fromkeys(("Keye", "KeyeVL1_5", "midashenglm", "minicpmo", "minicpmv"), Reading(windows=NO_MIX)),  # Qwen's decoders
    **dict.fromkeys(("cohere2", "cohere2_moe"), Reading(window_plus=1)),  # a windowed layer sees [pos - window, pos]
    **dict.fromkeys(("mimo_v2", "mimo_v2_flash"), Reading(own_windows=True, sinks=True, window_field="sliding_window_size")),
    "step3p5": Reading(alternates=True, other_heads="attention_other_setting"),
    "exaone_moe": Reading(window_list="sliding_windows"),
    "laguna": Reading(own_windows=True),
    "baichuan": Reading(own_dtype=ALIBI),
    "beam": Reading(head_dim_of_hidden=True),
    "dory": Reading(one_rank=True),
    "inkling_model": Reading(own_windows=True, packed_convs=True, flash_attn=True, kv_heads_must_split=True),
    "gpt_oss": Reading(sinks=True, kv_heads_must_split=True),
    **dict.fromkeys(
        ("inkling_text", "inkling_mm_model"),
        Reading(own_windows=True, packed_convs=True, flash_attn=True, kv_heads_must_split=True, needs="local_layer_ids"),
    ),
    **dict.fromkeys(
        ("hy_v4", "hy_v4_vl_text"),
        Reading(sparse_kinds=("sparse_attention", "sparse", "indexed_attention", "deepseek_sparse_attention")),
    ),
    **dict.fromkeys(("deepseek_v4", "deepseek_v4_text"), Reading(since="0.32.0")),
    **dict.fromkeys(("dots3_note", "dots3_note_text"), Reading(equal_latents=True, block_outermost=True, since="0.32.0")),
    **dict.fromkeys(
        ("glm5_next", "glm5_next_text"),
        Reading(pool="index_kpool", kda_bound="linear_lower_bound", block_outermost=True, since="0.32.0"),
    ),
    "kimi_linear": Reading(kda_bound="gate_lower_bound"),
    "param2moe": Reading(kv_heads_must_split=True),
    "PanguProMoEV2": Reading(windows=NEVER, kv_heads_must_split=True),  # StaticSinkAttention: SinkFullAttentionSpec
    **dict.fromkeys(("granite_swa", "granitemoe_swa"), Reading(sinks=True)),
    "minicpm3": Reading(expands_latent=True),
    "bloom": Reading(alibi="always"),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), Reading(alibi="alibi", own_dtype=ROTARY)),
    **dict.fromkeys(("nemotron_h", "nemotron_h_puzzle"), Reading(state_dtype=NEMOTRON_STATES)),
    **dict.fromkeys(
        ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp", "qwen4_exp_text"),
        Reading(state_dtype=QWEN_STATES),
    ),
    "AXK1": Reading(expands_latent=True),  # is_deepseek_mla knows it as axk1 alone, and its class then takes plain heads
    **dict.fromkeys(("gemma3", "gemma3_text"), Reading(bidirectional="use_bidirectional_attention")),
    **dict.fromkeys(
        ("diffusion_gemma_text", "gemma3n", "gemma3n_text", "hrm_text", "iquestloopcoder", "mamba2", "zamba2"),
        Reading(pipeline=False),
    ),
    "whisper": Reading(pipeline=False, crosses=True),
}
DEFAULT = Reading()

# Where the class that the file names decides, not its decoder's type: models/config.py (MODELS_CONFIG_MAP), registry.py.
CLASS_READINGS: dict[str, tuple[tuple[str, Any], ...]] = {
    # a decoder of Qwen3.5 or Nemotron-H behind a class that leaves the state in the model's type
    **dict.fromkeys(
        (
            "InternS2MobiusForConditionalGeneration",
            "InternS2PreviewForConditionalGeneration",
            "MiniCPMV4_6ForConditionalGeneration",
            "MiniCPMV4_7ForConditionalGeneration",
        ),
        (("state_dtype", ""),),
    ),
    **dict.fromkeys(
        ("NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3", "NemotronH_Super_Omni_Reasoning_V3"),
        (("state_dtype", ""), ("pipeline", False)),
    ),
    # models/config.py sets is_causal to false for these
    **dict.fromkeys(
        (
            "LlamaBidirectionalForSequenceClassification",
            "LlamaBidirectionalModel",
            "LlamaNemotronVLForSequenceClassification",
            "LlamaNemotronVLModel",
            "VoyageQwen3BidirectionalEmbedModel",
        ),
        (("encoder", True),),
    ),
    # no SupportsPP, whatever the decoder has
    **dict.fromkeys(
        (
            "AriaForConditionalGeneration",
            "DeepseekV4ForConditionalGeneration",
            "FireRedASR2ForConditionalGeneration",
            "FunASRForConditionalGeneration",
            "Idefics3ForConditionalGeneration",
            "NemotronH_Nano_VL_V2",
            "PaddleOCRVLForConditionalGeneration",
            "Phi4MMForCausalLM",
            "SmolVLMForConditionalGeneration",
        ),
        (("pipeline", False),),
    ),
    "BailingMoeV2_5ForCausalLM": (("states", "lightning"),),
    **dict.fromkeys(
        ("BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"),
        (("full_tail", "layer_group_size"), ("fixed_states", True)),
    ),
}

# Models whose fp8 cache on SM 10.0 is the default, not a choice.
FP8_BY_DEFAULT_ON_SM100 = frozenset({"glm_moe_dsa"})
# float16 checkpoints that are served in bfloat16.
NEVER_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})

# Classes of the library that vLLM has none of its own for, and whose code its Transformers backend can't run: they have neither
# an attention interface nor a choice of attention (transformers 5.24); DiffLlama asks the interface twice a layer.
INCOMPATIBLE = frozenset(
    [
        "BigBirdForCausalLM",
        "CpmAntForCausalLM",
        "DiffLlamaForCausalLM",
        "GPTNeoForCausalLM",
        "GPTNeoXJapaneseForCausalLM",
        "MegatronBertForCausalLM",
        "MptForCausalLM",
        "MvpForCausalLM",
        "OpenAIGPTLMHeadModel",
        "ProphetNetForCausalLM",
        "ReformerModelWithLMHead",
        "RemBertForCausalLM",
        "RoFormerForCausalLM",
        "RwkvForCausalLM",
        "TrOCRForCausalLM",
        "XGLMForCausalLM",
        "XLMWithLMHeadModel",
        "XLNetLMHeadModel",
        "xLSTMForCausalLM",
    ]
)

# The class of a model type that the library doesn't have, where the file itself (a preset, say) names none.
CLASS_OF_TYPE: dict[str, str] = {
    "baichuan": "BaichuanForCausalLM",
    "chatglm": "ChatGLMModel",
    "deepseek": "DeepseekForCausalLM",
    "exaone4_5_text": "Exaone4_5_ForConditionalGeneration",
    "glm4v_moe_text": "Glm4vMoeForConditionalGeneration",
    "grok-1": "Grok1ForCausalLM",
    "internlm": "InternLMForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "mimo": "MiMoForCausalLM",
    "minicpm": "MiniCPMForCausalLM",
    "minimax_m1": "MiniMaxM1ForCausalLM",
    "minimax_m3": "MiniMaxM3SparseForCausalLM",
    "minimax_text_01": "MiniMaxText01ForCausalLM",
    "mllama_text_model": "MllamaForConditionalGeneration",
    "molmo": "MolmoForCausalLM",
    "mpt": "MPTForCausalLM",
    "nemotron-nas": "DeciLMForCausalLM",
    "orion": "OrionForCausalLM",
    "phi-msft": "PhiForCausalLM",
    "phimoe": "PhiMoEForCausalLM",
    "phi3_v": "Phi3VForCausalLM",
    "phi3small": "Phi3SmallForCausalLM",
    "phi4flash": "Phi4FlashForCausalLM",
    "plamo2": "Plamo2ForCausalLM",
    "qwen": "QWenLMHeadModel",
    "qwen2_5_omni_text": "Qwen2_5OmniModel",
    "qwen3_vl_moe_text": "Qwen3VLMoeForConditionalGeneration",
    "qwen3_vl_text": "Qwen3VLForConditionalGeneration",
    "step3p5": "Step3p5ForCausalLM",
    "xverse": "XverseForCausalLM",
}


# Attention-free classes: prefix caching is off for them unless asked for.
ATTENTION_FREE = frozenset({"falcon_mamba", "mamba", "mamba2"})

# Classes that once kept a state for every block (SupportsMambaPrefixCaching).
EVERY_STATE = frozenset(
    (
        "bamba",
        "falcon_h1",
        "granitemoehybrid",
        "jamba",
        "mamba",
        "falcon_mamba",
        "mamba2",
        "nemotron_h",
        "nemotron_h_puzzle",
        "zamba2",
    )
)

# Classes that keep states: registry.py, those that are hybrid or attention-free.
STATEFUL = frozenset(
    (
        *(
            "bailing_hybrid",
            "bamba",
            "falcon_h1",
            "falcon_mamba",
            "granitemoehybrid",
            "interns2_mobius_text",
            "jamba",
            "kimi_linear",
        ),
        *("lfm2", "lfm2_moe", "mamba", "mamba2", "nemotron_h", "nemotron_h_puzzle", "olmo_hybrid"),
        *("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next", "zamba2"),
        *("glm5_next", "glm5_next_text", "inkling_model", "inkling_text", "inkling_mm_model", "qwen4_exp", "qwen4_exp_text"),
    )
)

# Qwen4-Exp: blocks hold the state of its n-gram layers, even where a file names none of them.
NGRAMS = frozenset({"qwen4_exp", "qwen4_exp_text"})

# Served, but with caches that are not modelled. By the decoder's type, or the class.
UNMODELLED: dict[str, str] = {
    **dict.fromkeys(
        ("deepseek_v41", "deepseek_v41_text"), "its layers share compressed rows and replay windows (vllm/models/deepseek_v41)"
    ),
    "step1": "vLLM starts it with --attention-backend TRITON_ATTN alone (its square-root ALiBi), which can't be said here",
    "BailingHybridForCausalLM": "vLLM's registry has no such class (BailingMoeV2_5ForCausalLM, BailingMoeV3ForCausalLM)",
    "VoxtralRealtimeGeneration": "its audio encoder keeps a cache of its own (vllm/model_executor/models/whisper_causal.py)",
    "CohereAsrForConditionalGeneration": "its file's own format is not read (vllm/model_executor/models/cohere_asr.py)",
    "NemotronParseForConditionalGeneration": "its decoder's file is not read (vllm/model_executor/models/nemotron_parse.py)",
}


def class_names(model: Model) -> list[str]:
    """The classes that the file names, or that of its type, and of the composite whose decoder it is."""
    names = model.metadata.get("architectures")
    if not isinstance(names, list):
        names = [*_classes_of(model.model_type), *_classes_of(model.model_type.removesuffix("_text"))]
    return [name for name in names if isinstance(name, str)]


def _classes_of(model_type: str) -> list[str]:
    from kvcalc.engines.vllm.registry import TYPES

    if model_type in CLASS_OF_TYPE:
        return [CLASS_OF_TYPE[model_type]]
    start = f"{model_type}="
    return [pair.removeprefix(start) for pair in TYPES[""].split() if pair.startswith(start)]


def reading_of(model: Model) -> Reading:
    """The row of the decoder's type, or the plain one, and what the file's class changes of it."""
    row = READINGS.get(model.model_type, DEFAULT)
    for name in class_names(model):
        row = replace(row, **dict(CLASS_READINGS.get(name, ())))
    return row
