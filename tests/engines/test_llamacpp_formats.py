"""One model as a GGUF file and as published fields: the same layers, and the same bytes in the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvcalc.core.gguf import GgufMetadata
from kvcalc.core.layers import FullAttention, LatentAttention, Recurrent, Shared, SlidingAttention
from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.engines.llamacpp.arches import ARCHES
from kvcalc.engines.llamacpp.metadata import GGUF_NAMES
from kvcalc.errors import EngineError, KvcalcError
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import preset_model

MODELS = json.loads((Path(__file__).resolve().parents[1] / "data" / "llamacpp_sample.json").read_text())["models"]
SAME = str.split(
    "llama-3-8b llama-3.1-70b llama-3.1-405b llama-3.2-1b llama-2-7b llama-2-13b mistral-nemo-12b mixtral-8x7b "
    "yi-34b ministral-3-8b smollm3-3b qwen-7b qwen2.5-0.5b qwen1.5-moe-a2.7b qwen2-vl-7b qwen3-0.6b qwen3-8b "
    "qwen3-32b qwen3-vl-8b qwen3-vl-30b-a3b gemma-2b gemma-2-2b gemma-2-9b gemma-3-270m gemma-3-4b gemma-4-e2b "
    "gemma-4-31b gpt-oss-20b gpt-oss-120b phi-3-mini-4k kimi-k2 glm-4.7-flash deepseek-v3.2 glm-5 minicpm3-4b gpt2 "
    "gpt2-xl mpt-7b olmo-7b olmoe-1b-7b chatglm3-6b flan-t5-base nemotron-mini-4b exaone-4-32b ernie-4.5-0.3b "
    "mamba-2.8b falcon-mamba-7b mamba2-2.7b mamba-codestral-7b "
)
# the file's model → the preset of the same, where its name differs
PAIRS = {
    "mistral-7b-v0.1-swa": "mistral-7b-v0.1",
    "qwen3-next-80b-a3b": "qwen3-next-80b",
    "deepseek-v2-lite-mla": "deepseek-v2-lite",
    "deepseek-v3-mla-mtp": "deepseek-v3",
    "command-r-35b": "command-r",
    "olmo2-7b": "olmo-2-7b",
    "minimax-m2": "minimax-m2.5",
    **{name: name for name in SAME},
}
BF16 = find_dtype("bf16")


def gguf(name: str) -> Model:
    return model_of_gguf(GgufFile(GgufMetadata(MODELS[name]), f"{name}.gguf"), {})


@pytest.mark.parametrize("name", PAIRS)
def test_both_forms_keep_the_same_bytes(name: str) -> None:
    exact = find_engine("exact")
    for tokens in (1, 5_000, 131_072):
        request = Request(tokens=tokens, k_dtype=BF16, v_dtype=BF16, encoder_tokens=512)
        found = [exact.allocate(one, request).component_bytes() for one in (gguf(name), preset_model(PAIRS[name]))]
        assert found[0] == found[1]


@pytest.mark.parametrize("name", PAIRS)
def test_both_forms_get_the_same_caches_from_the_engine(name: str) -> None:
    engine = find_engine("llama.cpp")
    cases: tuple[dict[str, OptionValue], ...] = (
        {"ctx-size": 300},
        {"ctx-size": 20_000, "parallel": 4},
        {"ctx-size": 9_000, "flash-attn": "off"},
    )
    for options in cases:
        request = Request(options=options)
        found = [engine.allocate(one, request).report["caches"] for one in (gguf(name), preset_model(PAIRS[name]))]
        assert found[0] == found[1]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_measured_file_has_layers_of_its_own(name: str) -> None:
    model = gguf(name)
    assert model.layers_unknown == ""
    nextn = model.fields.int("num_nextn_predict_layers", 0, minimum=0)
    passes = model.fields.int("num_loops", 1)
    arch = model.metadata["general.architecture"]
    depth = MODELS[name].get(f"{arch}.decoder_block_count") or MODELS[name][f"{arch}.block_count"] - nextn
    assert len(model.layers) == depth * passes
    assert len(model.draft_layers) == nextn or not any(
        isinstance(part, FullAttention) for layer in model.layers for part in layer
    )


def test_each_converted_type_leads_to_a_known_name() -> None:
    assert set(GGUF_NAMES.values()) <= set(ARCHES)


def test_a_type_without_a_converter_is_refused() -> None:
    with pytest.raises(EngineError, match="converter"):
        find_engine("llama.cpp").allocate(preset_model("opt-125m"), Request(tokens=256))


def test_what_one_file_can_not_say_is_refused() -> None:
    """Full layers of different head sizes have no GGUF keys."""
    model = preset_model("llama-8b")
    mixed = (*model.layers[:-1], (FullAttention(8, 64, 64),))
    import dataclasses

    with pytest.raises(EngineError, match="one key size for all layers"):
        find_engine("llama.cpp").allocate(dataclasses.replace(model, layers=mixed), Request(tokens=256))


# What single keys mean


def layers(name: str, **keys: object) -> tuple[object, ...]:
    arch = MODELS[name]["general.architecture"]
    changed = {f"{arch}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return model_of_gguf(GgufFile(GgufMetadata({**MODELS[name], **changed}), "x.gguf"), {}).layers


def test_a_window_in_a_llama_file_is_mistrals() -> None:
    assert layers("llama-3-8b", attention__sliding_window=4096)[0] == (SlidingAttention(8, 128, 128, 4096, 32),)


def test_a_window_of_0_is_none() -> None:
    assert layers("gemma-3-4b", attention__sliding_window=0)[0] == (FullAttention(4, 256, 256, 8),)


def test_values_may_be_of_another_width_than_keys() -> None:
    assert layers("llama-3-8b", attention__value_length=64)[0] == (FullAttention(8, 128, 64, 32),)


def test_head_sizes_follow_from_the_embedding_where_the_file_has_none() -> None:
    assert layers("qwen2.5-0.5b")[0] == (FullAttention(2, 896 // 14, 896 // 14, 14),)


def test_latents_keep_one_row() -> None:
    assert layers("deepseek-v2-lite-mla")[0] == (LatentAttention(512, 64, 16, 128, 128),)


def test_a_hybrids_headless_layers_are_recurrent() -> None:
    kinds = [type(layer[0]) for layer in layers("lfm2-350m")]  # type: ignore[index]
    assert kinds.count(FullAttention) == 6
    assert kinds.count(Recurrent) == 10


def test_gemma_4s_last_layers_share() -> None:
    assert sum(layer == (Shared(14),) or layer == (Shared(13),) for layer in layers("gemma-4-e2b")) == 20


def test_layers_that_can_not_be_told_leave_the_engine_its_answer() -> None:
    """A file whose latents lack a rank: the equation can't be told, the engine reads its keys all the same."""
    metadata = {key: value for key, value in MODELS["deepseek-v2-lite-mla"].items() if "rope.dimension" not in key}
    model = model_of_gguf(GgufFile(GgufMetadata(metadata), "x.gguf"), {})
    assert "qk_rope_head_dim" in model.layers_unknown
    assert find_engine("llama.cpp").allocate(model, Request(tokens=256)).total_bytes == 27 * 256 * 576 * 2
    with pytest.raises(KvcalcError, match="could not be told"):
        find_engine("exact").allocate(model, Request(tokens=256))


def test_a_hybrid_without_recurrent_layers_keeps_no_state() -> None:
    config = {
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 2,
        "layer_types": ["attention", "attention"],
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    }
    tally = find_engine("llama.cpp").allocate(model_of(config, "config.json", "granite"), Request(tokens=256))
    assert tally.total_bytes == 2 * 256 * 2 * 2 * 64 * 2
