"""A model's GGUF keys: those of its file, or those that llama.cpp's converter would write for it.

The keys that decide caches follow from the layers that the model's own rule found; which of them an architecture reads,
and what it does with them, stays with the engine. Source: llama.cpp 0.5.0-dev, ``conversion/*.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
)
from kvcalc.core.model import Model
from kvcalc.engines.llamacpp.arches import ARCHES, Arch, names
from kvcalc.errors import EngineError

# GGUF name → the model types that its converter takes
_CONVERTED: Mapping[str, str] = {
    "llama": "llama mistral mixtral yi Yi internlm3 llava janus idefics3 smolvlm pixtral llava_next iquestcoder voxtral equation",
    "deci": "nemotron-nas deci",
    "llama4": "llama4 llama4_text",
    "mistral3": "mistral3 ministral3 ministral",
    "falcon": "falcon RefinedWeb RefinedWebModel",
    "grok": "grok-1",
    "gpt2": "gpt2 gpt-sw3",
    "gptneox": "gpt_neox",
    "mpt": "mpt",
    "baichuan": "baichuan",
    "starcoder": "gpt_bigcode",
    "bloom": "bloom",
    "stablelm": "stablelm",
    "qwen": "qwen",
    "qwen2": "qwen2 qwen2_audio",
    "qwen2moe": "qwen2_moe",
    "qwen2vl": "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "qwen3vl": "qwen3_vl qwen3_vl_text",
    "qwen3vlmoe": "qwen3_vl_moe qwen3_vl_moe_text",
    "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5 qwen3_5_text",
    "qwen35moe": "qwen3_5_moe qwen3_5_moe_text",
    "phi2": "phi phi-msft",
    "phi3": "phi3 phi3_v",
    "phimoe": "phimoe",
    "codeshell": "codeshell",
    "orion": "orion",
    "internlm2": "internlm2",
    "minicpm": "minicpm minicpmv",
    "minicpm3": "minicpm3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3 gemma3_text",
    "gemma3n": "gemma3n gemma3n_text",
    "gemma4": "gemma4 gemma4_text gemma4_unified gemma4_unified_text",
    "starcoder2": "starcoder2",
    "mamba": "mamba falcon_mamba",
    "mamba2": "mamba2",
    "jamba": "jamba",
    "falcon-h1": "falcon_h1",
    "xverse": "xverse",
    "command-r": "cohere",
    "cohere2": "cohere2",
    "dbrx": "dbrx",
    "olmo": "olmo",
    "olmo2": "olmo2 olmo3",
    "olmoe": "olmoe",
    "openelm": "openelm",
    "arctic": "arctic",
    "deepseek": "deepseek",
    "deepseek2": "deepseek_v2 deepseek_v3 kimi_k2 kimi_k25 glm4_moe_lite youtu",
    "deepseek32": "deepseek_v32",
    "deepseek4": "deepseek_v4",
    "chatglm": "chatglm glm",
    "glm4": "glm4 glm4v glm4v_text glm46v glm_ocr_text",
    "glm4moe": "glm4_moe glm4v_moe glm4v_moe_text solar_open",
    "glm-dsa": "glm_moe_dsa",
    "bitnet": "bitnet",
    "t5": "t5 mt5 umt5",
    "jais": "jais",
    "jais2": "jais2",
    "nemotron": "nemotron",
    "nemotron_h": "nemotron_h",
    "exaone": "exaone",
    "exaone4": "exaone4 exaone4_5 exaone4_5_text",
    "rwkv6": "rwkv6",
    "rwkv7": "rwkv7",
    "granite": "granite",
    "granitemoe": "granitemoe granitemoeshared",
    "granitehybrid": "granitemoehybrid bamba",
    "chameleon": "chameleon",
    "bailingmoe": "bailing_moe",
    "dots1": "dots1",
    "arcee": "arcee",
    "ernie4_5": "ernie4_5",
    "ernie4_5-moe": "ernie4_5_moe",
    "hunyuan-moe": "hunyuan_v1_moe",
    "hunyuan-dense": "hunyuan_v1_dense",
    "smollm3": "smollm3",
    "gpt-oss": "gpt_oss",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2_moe",
    "seed_oss": "seed_oss",
    "apertus": "apertus",
    "minimax-m2": "minimax_m2",
    "minimax-m3": "minimax_m3 minimax_m3_vl minimax_m3_vl_text",
    "minimax-01": "minimax",
    "mistral4": "mistral4",
    "mimo2": "mimo_v2_flash mimo_v2",
    "kimi-linear": "kimi_linear",
    "afmoe": "afmoe",
    "bailingmoe2": "sarvam_moe",
    "cohere2moe": "cohere2_moe",
    "exaone-moe": "exaone_moe",
    "granite_swa": "granite_swa granitemoe_swa",
    "hunyuan_vl": "hunyuan_vl_text",
    "hy_v3": "hy_v3",
    "laguna": "laguna",
    "mellum": "mellum",
    "muse-glimmer": "muse_glimmer_text",
    "paddleocr": "paddleocr_vl_text",
    "step35": "step3p5",
}
GGUF_NAMES: dict[str, str] = {kind: name for name, kinds in _CONVERTED.items() for kind in names(kinds)}
# these converters write no sliding_window_pattern: the engine slides by its own
_NO_PATTERN = frozenset(names("gemma2 gemma3 cohere2 gpt-oss afmoe laguna smallthinker llama4 deepseek4"))
# these spread their latents over heads again: the cache is a full one
_EXPANDED = frozenset(("minicpm3", "plm"))


# a hybrid's sizes where none of its layers is recurrent
_NO_STATE: Mapping[str, object] = {
    "ssm.conv_kernel": 0,
    "ssm.inner_size": 0,
    "ssm.state_size": 0,
    "ssm.group_count": 0,
    "shortconv.l_cache": 1,
}


def gguf_name(model: Model) -> str:
    """The architecture's GGUF name. Raises EngineError for a type that no converter is known to take."""
    if model.format == "gguf":
        return str(model.metadata.get("general.architecture", ""))
    name = GGUF_NAMES.get(model.model_type)
    if name is None or model.assumed:
        raise EngineError(
            f"what llama.cpp's converter would make of the model type {model.model_type[:60]!r} is not known",
            model.source,
            "give the converted file with --gguf",
        )
    return name


def metadata_of(model: Model, *, latents: bool = True) -> tuple[str, Mapping[str, object]]:
    """The architecture's GGUF name, and the keys; without ``latents`` those of before MLA's were known. Raises EngineError."""
    name = gguf_name(model)
    if model.format == "gguf":
        return name, model.metadata
    values = {
        **_common(model),
        **_recurrent(model),
        **_indexer(model, name, ARCHES[name]),
        **(_attention(model, name, ARCHES[name]) if latents or not _latents(model) else _whole_heads(model)),
    }
    return name, {"general.architecture": name, **{f"{name}.{key}": value for key, value in values.items()}}


def _common(model: Model) -> dict[str, object]:
    return {
        "context_length": model.max_tokens or 0,
        "embedding_length": model.fields.int("hidden_size", 0, minimum=0),
        "block_count": len(model.layers),
    }


def _parts(model: Model) -> list[Part]:
    return [part for layer in model.layers for part in layer]


def _one(model: Model, what: str, values: list[int]) -> int:
    """The one value that all layers share. Raises EngineError."""
    different = sorted(set(values))
    if len(different) > 1:
        raise EngineError(
            f"a GGUF file has one {what} for all layers, and {model.name} has {different[0]} and {different[-1]}",
            model.source,
            "give the converted file with --gguf",
        )
    return different[0] if different else 0


def _attention(model: Model, name: str, arch: Arch) -> dict[str, object]:
    """Heads and widths; which layers slide, and how far."""
    if name in _EXPANDED:
        return _expanded(model)
    found: dict[str, object] = {"attention.head_count": _query_heads(model), "attention.head_count_kv": _kv_heads(model)}
    if name == "nemotron_h":
        found["feed_forward_length"] = [int(all(part.kind == "no_attention" for part in layer)) for layer in model.layers]
    if latents := _latents(model):
        return {**found, **_latent(model, latents)}
    compressed = [part for part in _parts(model) if isinstance(part, CompressedAttention)]
    if compressed:
        return {**found, **_compressed(model, compressed)}
    found |= _widths(model)
    if arch.shares_kv or name == "gemma3n":  # written there too, though the engine shares by a number of its own
        found["attention.shared_kv_layers"] = sum(isinstance(part, Shared) for part in _parts(model))
    return {**found, **_window(model, name)}


def _query_heads(model: Model) -> int:
    """Those of the first layer that says; the widths are given in full, so that they matter to states alone."""
    for part in _parts(model):
        if isinstance(part, Recurrent) and part.variant in ("kda", "lightning"):
            return part.states[0].shape[0]
    return max((getattr(part, "num_heads", 0) for part in _parts(model)), default=0) or int(any(map(_headed, _parts(model))))


def _headed(part: Part) -> bool:
    return isinstance(part, FullAttention | SlidingAttention | ChunkedAttention | LatentAttention | CompressedAttention)


def _kv_heads(model: Model) -> list[int]:
    """KV heads a layer; 0 where it has none of its own."""
    return [_layer_heads(model, layer) for layer in model.layers]


def _layer_heads(model: Model, layer: Layer) -> int:
    for part in layer:
        if isinstance(part, FullAttention | SlidingAttention | ChunkedAttention):
            return part.num_kv_heads
        if isinstance(part, LatentAttention | CompressedAttention):
            return 1
        if isinstance(part, Shared) and part.source is not None:
            return _layer_heads(model, model.layers[part.source])
    return 0


def _latents(model: Model) -> list[LatentAttention]:
    return [part for part in _parts(model) if isinstance(part, LatentAttention)]


def _whole_heads(model: Model) -> dict[str, object]:
    """What the converter wrote before latents were known: every head's own keys and values."""
    latents = _latents(model)
    heads = _one(model, "number of heads", [part.num_heads for part in latents])
    if not heads:
        raise EngineError(f"the file of {model.name} doesn't name the heads of its latent attention", model.source)
    return {
        "attention.head_count": heads,
        "attention.head_count_kv": heads,
        "attention.key_length": _one(model, "key size", [part.nope_dim + part.rope_dim for part in latents]),
        "attention.value_length": _one(model, "value size", [part.v_head_dim for part in latents]),
    }


def _latent(model: Model, latents: list[LatentAttention]) -> dict[str, object]:
    """One head of rank + rope; the _mla keys tell the engine that values are a view of it."""
    rank = _one(model, "kv_lora_rank", [part.kv_lora_rank for part in latents])
    width = _one(model, "latent width", [part.row_width for part in latents])
    return {
        "attention.key_length": width,
        "attention.value_length": rank,
        "attention.kv_lora_rank": rank,
        "rope.dimension_count": latents[0].rope_dim,
        "attention.key_length_mla": latents[0].nope_dim + latents[0].rope_dim or width,
        "attention.value_length_mla": latents[0].v_head_dim or rank,
    }


def _compressed(model: Model, compressed: list[CompressedAttention]) -> dict[str, object]:
    width = _one(model, "head size", [part.head_dim for part in compressed])
    return {
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.sliding_window": _one(model, "window", [part.window for part in compressed]),
        "attention.compress_ratios": [part.ratio for part in compressed],
        "attention.indexer.key_length": max(part.index_head_dim for part in compressed),
    }


def _expanded(model: Model) -> dict[str, object]:
    """minicpm3: the converter writes the heads as attention sees them, and no value_length."""
    fields = model.fields
    return {
        "attention.head_count": fields.int("num_attention_heads"),
        "attention.head_count_kv": fields.int_of(("num_kv_heads", "num_attention_heads")),
        "attention.key_length": fields.int("qk_nope_head_dim") + fields.int("qk_rope_head_dim"),
    }


def _widths(model: Model) -> dict[str, object]:
    """Head sizes of full layers, and of sliding ones where they differ."""
    full = [part for part in _parts(model) if isinstance(part, FullAttention)]
    slide = [part for part in _parts(model) if isinstance(part, SlidingAttention | ChunkedAttention)]
    if not full and not slide:
        return {}
    base = full or slide
    found: dict[str, object] = {
        "attention.key_length": _one(model, "key size", [part.head_dim for part in base]),
        "attention.value_length": _one(model, "value size", [part.v_head_dim for part in base]),
    }
    if full and slide:
        found["attention.key_length_swa"] = _one(model, "key size of sliding layers", [part.head_dim for part in slide])
        found["attention.value_length_swa"] = _one(model, "value size of sliding layers", [part.v_head_dim for part in slide])
    return found


def _window(model: Model, name: str) -> dict[str, object]:
    windows = [_reach(part) for part in _parts(model) if isinstance(part, SlidingAttention | ChunkedAttention)]
    if not windows:
        return {"attention.sliding_window": 0} if name == "llama4" else {}
    found: dict[str, object] = {"attention.sliding_window": _one(model, "window", windows)}
    if name not in _NO_PATTERN:
        found["attention.sliding_window_pattern"] = [_slides(model, layer) for layer in model.layers]
    return found


def _reach(part: SlidingAttention | ChunkedAttention) -> int:
    return part.window if isinstance(part, SlidingAttention) else part.chunk


def _slides(model: Model, layer: Layer) -> bool:
    if isinstance(layer[0], Shared) and layer[0].source is not None:
        return _slides(model, model.layers[layer[0].source])
    return any(isinstance(part, SlidingAttention | ChunkedAttention) for part in layer)


def _recurrent(model: Model) -> dict[str, object]:
    """The state's shape, in the keys of its family."""
    states = [part for part in _parts(model) if isinstance(part, Recurrent)]
    if not states:
        return dict(_NO_STATE)
    part = states[0]
    found: dict[str, object] = {
        "attention.recurrent_layers": [any(isinstance(part, Recurrent) for part in layer) for layer in model.layers],
        "ssm.conv_kernel": part.convs[0].kernel if part.convs else 0,
    }
    if part.variant == "short_conv":
        found |= {"shortconv.l_cache": part.convs[0].kernel, "embedding_length": part.convs[0].channels}
    elif part.variant == "rwkv":
        found |= {"wkv.head_size": part.states[-1].shape[-1]}
    elif part.variant == "kda":
        found |= {"kda.head_dim": part.states[0].shape[-1]}
    elif part.variant != "lightning":
        found |= _state_space(part)
    return found


def _state_space(part: Recurrent) -> dict[str, object]:
    """Inner · state numbers; what a convolution has beyond the inner width is 2 · groups · state."""
    state = part.states[0].shape[-1]
    inner = part.states[0].elements // state
    groups = (part.convs[0].channels - inner) // (2 * state)
    found: dict[str, object] = {"ssm.inner_size": inner, "ssm.state_size": state, "ssm.group_count": groups}
    return {**found, "ssm.time_step_rank": part.states[0].shape[0]} if len(part.states[0].shape) > 2 else found


def _indexer(model: Model, name: str, arch: Arch) -> dict[str, object]:
    widths = [part.index_head_dim for part in _parts(model) if isinstance(part, Indexer)]
    if not widths:
        return {"attention.indexer.key_length": 0, "leading_dense_block_count": len(model.layers)} if arch.indexer else {}
    owned = [any(isinstance(part, Indexer) for part in layer) for layer in model.layers]
    found: dict[str, object] = {"attention.indexer.key_length": _one(model, "indexer width", widths)}
    if name == "minimax-m3":
        lead = owned.index(True)
        if not all(owned[lead:]):
            raise EngineError(
                "llama.cpp gives every layer after the first sparse one an indexer; this model doesn't", model.source
            )
        return {**found, "leading_dense_block_count": lead}
    return {**found, "attention.indexer.types": owned}
