"""What SGLang's own code says of its model classes, by class name: pools, latents, backends. One row a class.

Sources of 0.5.23: ``srt/configs/model_config.py`` (is_hybrid_swa_model, is_deepseek_dsa, attention_arch),
``srt/arg_groups/model_overrides``, ``srt/arg_groups/overrides.py``, ``srt/layers/quantization/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvcalc.core.model import Model
from kvcalc.engines.sglang.options import SM80, SM90, SM100, SM120

GEMMA4 = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration")
SINKS = frozenset({"GptOssForCausalLM", "GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM", "IQuestQ1ForCausalLM"})
MIMO = frozenset({"MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"})
STEP = frozenset({"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"})
DEEPSEEK_V4 = frozenset({"DeepseekV4ForCausalLM"})
MINIMAX_M3 = frozenset({"MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"})

# Classes with a pool of their own for their sliding (or chunked) layers.
TWO_POOLS = frozenset(
    {
        *SINKS,
        *MIMO,
        *STEP,
        *GEMMA4,
        "BeamForCausalLM",
        "DiffusionGemmaForBlockDiffusion",
        "Dots3NoteForCausalLM",
        "EmbeddingGemma2Model",
        "InklingForConditionalGeneration",
        "LagunaForCausalLM",
        "Llama4ForConditionalGeneration",
        "MellumForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "UnlimitedOCRForCausalLM",
    }
)
# Of these, the window pool's buffers have heads and widths of their own; the others' take the full layers'.
OWN_WINDOW_HEADS = frozenset(
    {*MIMO, *GEMMA4, "EmbeddingGemma2Model", "InklingForConditionalGeneration", "DiffusionGemmaForBlockDiffusion"}
)

# Classes that count their window without the token itself (get_attention_sliding_window_size).
INCLUSIVE_WINDOW = frozenset(
    {
        *GEMMA4,
        "GptOssForCausalLM",
        "BeamForCausalLM",
        "DiffusionGemmaForBlockDiffusion",
        "InklingForConditionalGeneration",
        "MellumForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
    }
)

# Classes whose latents are cached as such; an indexer's keys too where the file has index_topk.
SPARSE = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "Glm5NextForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "Dots3NoteForCausalLM",
        "HYV4ForCausalLM",
    }
)
LATENT = SPARSE | {
    "DeepseekV2ForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "DotsVLMForCausalLM",
    "KimiK25ForConditionalGeneration",
    "GigaChat35ForCausalLM",
    "MiniCPM3ForCausalLM",
    "DeepseekVL2ForCausalLM",
    "KimiVLForConditionalGeneration",
    "KimiLinearForCausalLM",
    "KimiK3LinearForCausalLM",
    "KimiK3ForConditionalGeneration",
    "BailingMoeV2_5ForCausalLM",
    "BailingMoeV3ForCausalLM",
    "BailingMoeV3VLForConditionalGeneration",
    "SarvamMLAForCausalLM",
}
# The DeepSeek family of arg_groups: trtllm_mla on SM 10.0, or sparse attention's own backend.
DEEPSEEK_FAMILY = SPARSE | {"KimiK25ForConditionalGeneration"}

# Hybrids whose states may be kept twice, so that steps overlap (extra_buffer); the others' strategy is no_buffer.
EXTRA_BUFFER = frozenset(
    {
        "KimiLinearForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen4ExpForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "MiniCPMV4_6ForConditionalGeneration",
        "MiniCPMV4_7ForConditionalGeneration",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "FalconH1ForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "Glm5NextForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronH_Omni_Reasoning_V3",
        "KimiK3ForConditionalGeneration",
        "InklingForConditionalGeneration",
    }
)
# Hybrids for which the strategy is settled at all (uses_mamba_radix_cache); with the rest, a request takes three slots.
RADIX_STATES = EXTRA_BUFFER | {
    "InternS2MobiusForConditionalGeneration",
    "JetNemotronForCausalLM",
    "JetVLMForConditionalGeneration",
    "Lfm2ForCausalLM",
    "Lfm2MoeForCausalLM",
    "ZayaForCausalLM",
}
GATED_DELTA = frozenset(
    {
        "Qwen3NextForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
    }
)

# The backend that a class takes where none is named; a platform that is left out takes the generic one.
_SM100_ALONE = {
    "flashinfer": ("Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "GraniteMoeHybridForCausalLM"),
    "triton": (
        "FalconH1ForCausalLM",
        "JetNemotronForCausalLM",
        "JetVLMForConditionalGeneration",
        "MiniCPMV4_6ForConditionalGeneration",
        "MiniCPMV4_7ForConditionalGeneration",
    ),
    "fa4": tuple(MIMO),
    "trtllm_mla": ("KimiK3ForConditionalGeneration",),
}
_EVERYWHERE = (SM80, SM90, SM100, SM120)


def _rows(names: Iterable[str], backends: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """The same backends for several classes."""
    return dict.fromkeys(names, backends)


DEFAULT_BACKENDS: Mapping[str, Mapping[str, str]] = {
    **{name: {SM100: backend} for backend, names in _SM100_ALONE.items() for name in names},
    **_rows(GEMMA4, {SM80: "triton", SM90: "triton", SM100: "trtllm_mha", SM120: "triton"}),
    **_rows(
        ("GptOssForCausalLM", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        {SM80: "triton", SM90: "fa3", SM100: "trtllm_mha", SM120: "triton"},
    ),
    **_rows(
        ("Exaone4ForCausalLM", "ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM", "Olmo2ForCausalLM"),
        {SM80: "fa3", SM90: "fa3", SM100: "trtllm_mha", SM120: "fa3"},
    ),
    **_rows(STEP, {SM90: "fa3", SM100: "fa4", SM120: "fa4"}),
    **_rows(MINIMAX_M3, {SM90: "fa3", SM100: "fa4"}),
    **_rows(DEEPSEEK_V4, dict.fromkeys(_EVERYWHERE, "dsv4")),
    **_rows(("DiffusionGemmaForBlockDiffusion", "EmbeddingGemma2Model"), dict.fromkeys(_EVERYWHERE, "triton")),
    "WhisperForConditionalGeneration": dict.fromkeys(_EVERYWHERE, "flashinfer"),
    "BeamForCausalLM": dict.fromkeys((SM90, SM100, SM120), "trtllm_mha"),
    "InklingForConditionalGeneration": {SM80: "triton", SM90: "fa4", SM100: "fa4", SM120: "triton"},
    "IQuestQ1ForCausalLM": dict.fromkeys(_EVERYWHERE, "fa3"),
}
# What a class's own ratios are where none is given.
SWA_RATIOS = {"InklingForConditionalGeneration": 0.1, "DeepseekV4ForCausalLM": 0.1}
MAMBA_RATIOS = {"InklingForConditionalGeneration": 0.1}

# quant_method values of files for which SGLang has no code; gptq and awq are taken through their Marlin forms.
QUANTIZATIONS = frozenset(
    {
        "fp8",
        "mxfp8",
        "minimax_m3_nvfp4",
        "blockwise_int8",
        "modelopt",
        "modelopt_fp8",
        "modelopt_fp4",
        "nvfp4_online",
        "modelopt_mixed",
        "w8a8_int8",
        "w8a8_fp8",
        "awq",
        "awq_marlin",
        "bitsandbytes",
        "gguf",
        "gptq",
        "gptq_marlin",
        "moe_wna16",
        "compressed-tensors",
        "w4afp8",
        "petit_nvfp4",
        "quark",
        "quark_mxfp4",
        "auto-round",
        "auto-round-int8",
        "modelslim",
        "quark_int4fp8_moe",
        "humming",
        "mxfp_w4a8",
        "mxfp4",
    }
)

# Layers that its pools keep otherwise than is known here.
UNMODELLED = {
    "Qwen4ExpForConditionalGeneration": "its compressed index keys and prefix states",
    "InklingForConditionalGeneration": "its convolution windows beside two pools",
    "MiniCPMSALAForCausalLM": "its sparse layers' compressed keys",
    "Dots3NoteForCausalLM": "its two pools of latents",
}


def class_names(model: Model) -> tuple[str, ...]:
    """The classes that a file names, else the one of its type; none where neither is known."""
    from kvcalc.engines.sglang.registry import TYPES

    found = model.metadata.get("architectures")
    if isinstance(found, list) and found:
        return tuple(str(name) for name in found)
    outer = model.metadata.get("model_type")
    for kind in (str(outer or ""), model.model_type, model.model_type.removesuffix("_text")):
        if kind in TYPES:
            return (TYPES[kind],)
    return ()
