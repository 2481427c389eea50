"""config.json in all its dialects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.fields import Field
from kvcalc.core.layers import CrossAttention, FullAttention, SlidingAttention, kind_of
from kvcalc.core.model import Model
from kvcalc.errors import ArchitectureError, ConfigError
from kvcalc.readers.hf_config import model_of, read_config
from kvcalc.readers.presets import preset_model

Write = Callable[..., Path]
SHAPE: dict[str, Any] = {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
LLAMA: dict[str, Any] = {"model_type": "llama", **SHAPE}
EIGHT_WIDE = FullAttention(2, 8, 8, 8)


def read(config: dict[str, Any], **more: Any) -> Model:
    return model_of(config, "config.json", "config", **more)


NESTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "text_config": ({"model_type": "llava", "text_config": LLAMA}, "text_config."),
    "language_config": ({"model_type": "deepseek_vl_v2", "language_config": LLAMA}, "language_config."),
    "llm_config": ({"model_type": "internvl_chat", "llm_config": LLAMA}, "llm_config."),
    "a type that is not known": ({"model_type": "somebody_vl", "text_config": LLAMA}, "text_config."),
    "thinker_config.text_config": (
        {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": {"model_type": "qwen2_5_omni_text", **SHAPE}}},
        "thinker_config.text_config.",
    ),
}


@pytest.mark.parametrize("name", NESTINGS)
def test_a_nested_decoder(name: str) -> None:
    config, path = NESTINGS[name]
    model = read(config)
    assert model.layers == ((EIGHT_WIDE,),) * 3
    assert model.fields.origin("num_layers") == f"config.json: {path}num_hidden_layers"


def test_a_flat_file_of_a_type_that_usually_nests() -> None:
    assert read({"model_type": "qwen2_vl", **SHAPE}).layers == ((EIGHT_WIDE,),) * 3


SPELLINGS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 16, "n_positions": 99},
    "mpt": {"model_type": "mpt", "n_layers": 3, "n_heads": 2, "d_model": 16, "max_seq_len": 99},
    "falcon, old": {
        "model_type": "RefinedWebModel",
        "n_layer": 3,
        "n_head": 2,
        "hidden_size": 16,
        "multi_query": False,
        "max_position_embeddings": 99,
    },
    "chatglm": {
        "model_type": "chatglm",
        "num_layers": 3,
        "num_attention_heads": 4,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "kv_channels": 8,
        "hidden_size": 32,
        "seq_length": 99,
    },
    "hugging face's common names": {**LLAMA, "head_dim": 8, "max_position_embeddings": 99},
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling(name: str) -> None:
    model = read(SPELLINGS[name])
    (part,) = model.layers[0]
    assert isinstance(part, FullAttention)
    assert (len(model.layers), part.num_kv_heads, part.head_dim, model.max_tokens) == (3, 2, 8, 99)


FALCONS: dict[str, tuple[dict[str, Any], int]] = {
    "multi query unless said": ({}, 1),
    "multi query": ({"multi_query": True, "num_kv_heads": 4}, 1),
    "one a query head": ({"multi_query": False}, 8),
    "new decoder": ({"new_decoder_architecture": True, "num_kv_heads": 4}, 4),
    "new decoder, heads unsaid": ({"new_decoder_architecture": True}, 8),
}


@pytest.mark.parametrize("name", FALCONS)
def test_falcon_s_switches(name: str) -> None:
    more, kv_heads = FALCONS[name]
    model = read({"model_type": "falcon", "num_hidden_layers": 1, "num_attention_heads": 8, "hidden_size": 64, **more})
    assert model.layers == ((FullAttention(kv_heads, 8, 8, 8),),)


def test_heads_unsaid_are_one_a_query_head() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert read(config).layers[0] == (FullAttention(8, 8, 8, 8),)


@pytest.mark.parametrize("key", ["num_key_value_heads", "head_dim", "sliding_window", "max_position_embeddings", "torch_dtype"])
def test_null_is_unsaid(key: str) -> None:
    assert len(read({**LLAMA, key: None}).layers) == 3


def test_a_null_beats_the_class_s_default() -> None:
    mistral = {**LLAMA, "model_type": "mistral"}
    assert kind_of(read(mistral).layers[0]) == "sliding_attention"  # the class says 4,096
    assert kind_of(read({**mistral, "sliding_window": None}).layers[0]) == "full_attention"


DEFAULTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "gemma2 alternates": (
        {**LLAMA, "model_type": "gemma2", "head_dim": 8},
        ["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "llama 4's fourth layer is full": (
        {**LLAMA, "model_type": "llama4_text", "num_hidden_layers": 4, "head_dim": 8},
        ["chunked_attention"] * 3 + ["full_attention"],
    ),
    "qwen2 slides only when told to": ({**LLAMA, "model_type": "qwen2"}, ["full_attention"] * 3),
    "qwen2, told to": (
        {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1},
        ["full_attention", "sliding_attention", "sliding_attention"],
    ),
    "gemma3's sixth layer is full": (
        {**LLAMA, "model_type": "gemma3_text", "num_hidden_layers": 6, "head_dim": 8},
        ["sliding_attention"] * 5 + ["full_attention"],
    ),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_the_class_says_where_the_file_doesn_t(name: str) -> None:
    config, kinds = DEFAULTS[name]
    assert [kind_of(layer) for layer in read(config).layers] == kinds


def test_a_size_by_the_class_s_default_is_said_aloud() -> None:
    model = read({"model_type": "llama", "num_attention_heads": 8, "hidden_size": 64})
    assert len(model.layers) == 32
    assert any("num_layers 32" in note and "class's defaults" in note for note in model.notes)
    assert read(LLAMA).notes == ()


def test_every_class_default_that_decided_bytes_is_named_and_no_other() -> None:
    """Gemma 3 4B's file leaves out its heads too, but keys and values have heads of their own."""
    (note,) = (note for note in preset_model("gemma-3-4b").notes if "class's defaults" in note)
    assert sorted(note.partition("stand: ")[2].split(", ")) == ["head_dim 256", "num_kv_heads 4", "sliding_window_pattern 6"]


def test_looking_for_them_leaves_no_trace() -> None:
    model = preset_model("gemma-3-4b")
    assert model.fields.used["sliding_window_pattern"].value == 6
    assert model.fields.used["num_kv_heads"].value == 4


NO_OBJECT: dict[str, tuple[dict[str, Any], str]] = {
    "a word": ({"model_type": "llava", "text_config": "x"}, "text_config"),
    "a list": ({"model_type": "llava", "text_config": []}, "text_config"),
    "beside flat keys": ({**LLAMA, "model_type": "llava", "text_config": 1}, "text_config"),
    "in a type without one": ({**LLAMA, "llm_config": "x"}, "llm_config"),
    "a level down": ({"model_type": "qwen2_5_omni", "thinker_config": {"text_config": "x"}}, "thinker_config.text_config"),
}


@pytest.mark.parametrize("name", NO_OBJECT)
def test_a_nested_decoder_that_is_no_object_is_refused(name: str) -> None:
    config, key = NO_OBJECT[name]
    with pytest.raises(ConfigError) as found:
        read(config)
    assert "must be an object" in found.value.what
    assert found.value.where == f"config.json: {key}"
    read({**config, key: None} if "." not in key else {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": None}})


def test_a_list_of_heads_a_layer() -> None:
    model = read({**LLAMA, "num_key_value_heads": [1, 2, 4]})
    assert [layer[0] for layer in model.layers] == [FullAttention(heads, 8, 8, 8) for heads in (1, 2, 4)]


def test_openelm_s_lists() -> None:
    config = {
        "model_type": "openelm",
        "num_transformer_layers": 2,
        "num_query_heads": [4, 8],
        "num_kv_heads": [2, 4],
        "head_dim": 16,
        "max_context_length": 77,
    }
    assert read(config).layers == ((FullAttention(2, 16, 16, 4),), (FullAttention(4, 16, 16, 8),))


def test_a_list_too_short_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 entries, none for layer 2") as caught:
        read({**LLAMA, "num_key_value_heads": [1, 2]})
    assert caught.value.where == "config.json: num_key_value_heads"


# ---- types

TYPES: dict[str, tuple[dict[str, Any], str | None]] = {
    "dtype": ({**LLAMA, "dtype": "bfloat16"}, "bfloat16"),
    "torch_dtype": ({**LLAMA, "torch_dtype": "float16"}, "float16"),
    "dtype wins": ({**LLAMA, "dtype": "float32", "torch_dtype": "float16"}, "float32"),
    "torch's full name": ({**LLAMA, "torch_dtype": "torch.bfloat16"}, "bfloat16"),
    "nested": ({"model_type": "llava", "text_config": {**LLAMA, "torch_dtype": "float32"}}, "float32"),
    "outside, for the nested": ({"model_type": "llava", "torch_dtype": "bfloat16", "text_config": LLAMA}, "bfloat16"),
    "unsaid": (LLAMA, None),
    "auto": ({**LLAMA, "torch_dtype": "auto"}, None),
    "no text": ({**LLAMA, "torch_dtype": 16}, None),
}


@pytest.mark.parametrize("name", TYPES)
def test_the_model_s_own_type(name: str) -> None:
    config, dtype = TYPES[name]
    assert read(config).dtype == dtype


def test_a_type_that_no_cache_has_is_said_aloud() -> None:
    model = read({**LLAMA, "torch_dtype": "float64"})
    assert model.dtype is None
    assert any("'float64'" in note for note in model.notes)


SCHEMES: dict[str, tuple[object, str | None]] = {
    "compressed-tensors float": ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8_e4m3"),
    "compressed-tensors int": ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
    "compressed-tensors, four bits": ({"kv_cache_scheme": {"num_bits": 4, "type": "int"}}, "int4"),
    "modelopt": ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
    "modelopt nvfp4": ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
    "null": ({"kv_cache_scheme": None}, None),
    "no scheme": ({"quant_method": "awq"}, None),
    "no object": ("awq", None),
    "none": (None, None),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_cache_type_that_the_file_s_quantisation_sets(name: str) -> None:
    quantisation, dtype = SCHEMES[name]
    model = read({**LLAMA, "quantization_config": quantisation})
    assert model.cache_dtype == dtype
    assert bool(model.cache_dtype_origin) == (dtype is not None)


@pytest.mark.parametrize("scheme", [{"num_bits": 3}, 7, [1], {"num_bits": [8]}, "FP3"], ids=repr)
def test_a_cache_type_that_is_not_known_is_said_aloud(scheme: object) -> None:
    model = read({**LLAMA, "quantization_config": {"kv_cache_scheme": scheme}})
    assert model.cache_dtype is None
    assert any("cache type that is not known" in note for note in model.notes)


def test_modelopt_s_file_beside_config_json(write: Write) -> None:
    path = write(LLAMA)
    write({"quantization": {"kv_cache_quant_algo": "FP8"}}, "hf_quant_config.json")
    for named in (path, path.parent):
        assert read_config(named).cache_dtype == "fp8_e4m3"


def test_config_json_s_own_quantisation_wins(write: Write) -> None:
    path = write({**LLAMA, "quantization_config": {"quant_method": "modelopt"}})
    write({"quantization": {"kv_cache_quant_algo": "FP8"}}, "hf_quant_config.json")
    assert read_config(path).cache_dtype is None


def test_a_broken_file_beside_it_is_named(write: Write) -> None:
    path = write(LLAMA)
    write("{", "hf_quant_config.json")
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert "hf_quant_config.json" in caught.value.where


# ---- files

ODD_TEXTS = {
    "a byte-order mark": "\ufeff" + json.dumps(LLAMA),
    "bare NaN and Infinity elsewhere": json.dumps({**LLAMA, "a": float("nan"), "b": [float("inf"), -float("inf")]}),
    "a number written 3.0": json.dumps({**LLAMA, "num_hidden_layers": 3.0}),
    "blanks around": "\n\n " + json.dumps(LLAMA, indent=8) + "\n\n",
    "keys that nobody knows": json.dumps({**LLAMA, "x": {"y": [[[]]]}, "": 1, "ключ": "é"}),
    "a key twice: the last one counts, as in every JSON reader": json.dumps(LLAMA).replace(
        '{"', '{"num_hidden_layers": 99, "', 1
    ),
}


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_an_odd_but_good_file(name: str, write: Write) -> None:
    assert read_config(write(ODD_TEXTS[name])).layers == ((EIGHT_WIDE,),) * 3


def test_a_folder_stands_for_the_file_in_it_and_names_the_model(write: Write) -> None:
    path = write(LLAMA, "Some-Model-7B/config.json")
    assert read_config(path.parent).name == read_config(path).name == "Some-Model-7B"
    assert read_config(write(LLAMA, "other.json")).name == "other"


# ---- draft layers


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"])
def test_draft_layers_stand_apart(key: str) -> None:
    model = read({**LLAMA, key: 2})
    assert (len(model.layers), model.draft_layers) == (3, ((EIGHT_WIDE,),) * 2)


@pytest.mark.parametrize("count", [-1, 10**30, "1", 2**39, True], ids=repr)
def test_an_impossible_number_of_draft_layers_is_refused(count: object) -> None:
    with pytest.raises(ConfigError) as caught:
        read({**LLAMA, "num_nextn_predict_layers": count})
    assert "num_nextn_predict_layers" in caught.value.where


# ---- types of models


def test_an_unknown_type_names_its_relatives_and_the_way_out() -> None:
    with pytest.raises(ArchitectureError, match="'llamma' is not known") as caught:
        read({**LLAMA, "model_type": "llamma"})
    assert "llama" in caught.value.fix
    assert "--assume" in caught.value.fix


def test_an_assumed_type_is_counted_and_marked() -> None:
    model = read({**LLAMA, "model_type": "llamma"}, assume="llama")
    assert model.layers == ((EIGHT_WIDE,),) * 3
    assert model.assumed == "llama"


def test_an_assumed_type_that_is_not_known_either() -> None:
    with pytest.raises(ArchitectureError, match="'nope'"):
        read(LLAMA, assume="nope")


def test_an_unknown_type_whose_class_is_known() -> None:
    assert read({**LLAMA, "model_type": "new_name", "architectures": ["LlamaForCausalLM"]}).model_type == "llama"


@pytest.mark.parametrize("classes", [None, "LlamaForCausalLM", [], [5, None], ["Llama"], ["NopeForCausalLM"], {"a": 1}], ids=repr)
def test_an_unknown_type_whose_class_says_nothing(classes: object) -> None:
    with pytest.raises(ArchitectureError):
        read({**LLAMA, "model_type": "new_name", "architectures": classes})


@pytest.mark.parametrize("model_type", [None, 5, "", [], {}], ids=repr)
def test_no_type_at_all(model_type: object) -> None:
    with pytest.raises(ArchitectureError, match="names no model_type"):
        read({**SHAPE, "model_type": model_type})


def test_quantisation_settings_alone_are_no_model() -> None:
    with pytest.raises(ArchitectureError, match="quantisation settings only"):
        read({"quantization": {"kv_cache_quant_algo": "FP8"}})


# ---- overrides


def test_flags_stand_instead_of_fields_and_say_so() -> None:
    model = read(LLAMA, overrides={"num_kv_heads": Field(8, "flag --kv-heads")})
    assert model.layers[0] == (FullAttention(8, 8, 8, 8),)
    assert model.fields.origin("num_kv_heads") == "flag --kv-heads"


def test_the_file_s_own_spelling_is_taken_too() -> None:
    model = read(LLAMA, overrides={"num_key_value_heads": Field(4, "flag --set num_key_value_heads")})
    assert model.layers[0] == (FullAttention(4, 8, 8, 8),)


# ---- sizes that can't be

BAD_SIZES: dict[str, tuple[dict[str, Any], str]] = {
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers"),
    "a million layers": ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
    "heads that don't divide the width": ({"num_attention_heads": 7, "num_key_value_heads": 7}, "num_attention_heads"),
    "kv heads that don't divide the heads": ({"num_key_value_heads": 3}, "num_key_value_heads"),
    "no kv heads": ({"num_key_value_heads": 0}, "num_key_value_heads"),
    "a text": ({"hidden_size": "64"}, "hidden_size"),
    "a boolean": ({"num_attention_heads": True}, "num_attention_heads"),
    "ten to the thirty": ({"hidden_size": 10**30}, "hidden_size"),
    "not a number": ({"hidden_size": float("nan")}, "hidden_size"),
    "a negative width": ({"head_dim": -128}, "head_dim"),
}


@pytest.mark.parametrize("name", BAD_SIZES)
def test_a_size_that_can_t_be_names_file_and_key(name: str) -> None:
    more, key = BAD_SIZES[name]
    with pytest.raises(ConfigError) as caught:
        read({**LLAMA, **more})
    assert caught.value.where == f"config.json: {key}"


def test_a_missing_size_names_the_flag_that_gives_it() -> None:
    with pytest.raises(ConfigError, match="no sliding_window is named") as caught:
        read({**LLAMA, "layer_types": ["sliding_attention"] * 3})
    assert "--sliding-window" in caught.value.fix


def test_an_encoder_decoder_s_layers_hold_both() -> None:
    model = read({"model_type": "t5", "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_model": 64})
    assert model.layers == ((FullAttention(4, 16, 16, 4), CrossAttention(4, 16, 16, 4)),) * 2
    assert model.encoder_tokens is None


def test_whisper_names_its_encoder_s_length() -> None:
    config = {
        "model_type": "whisper",
        "decoder_layers": 1,
        "decoder_attention_heads": 4,
        "d_model": 64,
        "max_source_positions": 1500,
    }
    assert read(config).encoder_tokens == 1500


def test_a_window_of_its_own_for_every_layer() -> None:
    model = read({**LLAMA, "layer_types": ["sliding_attention"] * 3, "sliding_window": [4, 8, 16]})
    assert [layer[0] for layer in model.layers] == [SlidingAttention(2, 8, 8, window, 8) for window in (4, 8, 16)]
