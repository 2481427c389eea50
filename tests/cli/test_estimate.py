"""``kvcalc estimate``: naming models, requests, and what is said besides the figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import EQUATION, Cli

Write = Callable[..., Path]
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
A_TOKEN = 2 * 2 * 2 * 4 * 2  # 2·L·H_kv·D_h·s of that shape, and of EQUATION


def test_one_model_is_one_thing_however_it_is_given(cli: Cli, write: Write) -> None:
    path = write(LLAMA)
    ways = [(path,), (path.parent,), ("--config", path), ("--config", path.parent), ("-c", path), (*EQUATION, "--dtype", "bf16")]
    assert {cli("estimate", *way, "--json").json["total_bytes"] for way in ways} == {4096 * A_TOKEN}


def test_flags_stand_instead_of_the_file_s_fields(cli: Cli, write: Write) -> None:
    ran = cli("estimate", write(LLAMA), "--layers", 3, "--kv-heads", 4, "--head-dim", 16, "--tokens", 1, "--json")
    assert ran.json["total_bytes"] == 2 * 3 * 4 * 16 * 2
    fields = ran.json["model"]["fields"]
    assert {name: fields[name]["origin"] for name in ("num_layers", "num_kv_heads", "head_dim")} == {
        "num_layers": "flag --layers",
        "num_kv_heads": "flag --kv-heads",
        "head_dim": "flag --head-dim",
    }


MARKED = {
    "one field": (("--layers", 4), "llama-8b with num_layers 4"),
    "two fields": (("--layers", 4, "--set", "head_dim=64"), "llama-8b with 2 fields changed"),
    "a field that nothing reads": (("--v-head-dim", 64), "llama-8b"),
    "no field": ((), "llama-8b"),
}


@pytest.mark.parametrize("name", MARKED)
def test_a_model_with_fields_of_the_user_s_own_doesn_t_pass_for_the_published_one(name: str, cli: Cli) -> None:
    words, said = MARKED[name]
    assert cli("estimate", "llama-8b", *words).out.startswith(f"{said}: ")
    assert f"\n{said}  " in cli("compare", "llama-8b", *words).out
    assert cli("estimate", *EQUATION).out.startswith("the equation: 256 KiB (engine: exact)")


def test_any_other_field_by_set(cli: Cli) -> None:
    ran = cli("estimate", "deepseek-v3", "--set", "kv_lora_rank=256", "--tokens", 1, "--json")
    assert ran.json["total_bytes"] == 61 * (256 + 64) * 2
    assert ran.json["model"]["fields"]["kv_lora_rank"]["origin"] == "flag --set kv_lora_rank"


def test_set_takes_lists_and_words(cli: Cli, write: Write) -> None:
    kinds = 'layer_types=["full_attention", "sliding_attention"]'
    ran = cli("estimate", write(LLAMA), "--set", kinds, "--set", "sliding_window=16", "--set", "dtype=float32", "--json")
    assert ran.json["total_bytes"] == (4096 + 16) * 2 * 2 * 4 * 4


@pytest.mark.parametrize("key", ["dtype", "torch_dtype", "text_config.dtype"])
def test_a_field_is_set_by_every_name_that_the_table_gives_it(key: str, cli: Cli) -> None:
    name = "gemma-3-4b" if "." in key else "llama-8b"
    ran, plain = cli("estimate", name, "--set", f"{key}=float32", "--json").json, cli("estimate", name, "--json").json
    assert ran["total_bytes"] == 2 * plain["total_bytes"]
    assert ran["warnings"] == plain["warnings"]


FILE_KEYS = {
    "num_nextn_predict_layers": "deepseek-r1",
    "qk_rope_head_dim": "glm-4.7-flash",
    "layer_types": "granite-4.0-h-350m",
    "num_heads": "mamba-codestral-7b",
    "text_config.num_nextn_predict_layers": "kimi-k2.6",
    "attn_config.kv_n_heads": "dbrx",
}


@pytest.mark.parametrize("key", FILE_KEYS)
def test_a_key_that_the_table_names_is_one_that_can_be_set(key: str, cli: Cli) -> None:
    plain = cli("estimate", FILE_KEYS[key], "--json").json
    (value,) = {json.dumps(field["value"]) for field in plain["model"]["fields"].values() if field["origin"].endswith(f": {key}")}
    ran = cli("estimate", FILE_KEYS[key], "--set", f"{key}={value}", "--json").json
    assert (ran["total_bytes"], ran["warnings"]) == (plain["total_bytes"], plain["warnings"])
    assert any(field["origin"] == f"flag --set {key}" for field in ran["model"]["fields"].values())


def test_the_same_said_twice_is_no_contradiction(cli: Cli) -> None:
    words = ("--layers", 8, "--set", "num_hidden_layers=8", "-p", "llama-8b", "--preset", "llama-8b")
    assert cli("estimate", *words).code == 0


UNREAD = {
    "a flag": (("--v-head-dim", 64), "flag --v-head-dim"),
    "a misspelt key": (("--set", "num_hiden_layers=3"), "flag --set num_hiden_layers"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_nothing_reads_is_said_aloud(name: str, cli: Cli) -> None:
    words, origin = UNREAD[name]
    ran = cli("estimate", "llama-8b", *words, "--json")
    assert ran.code == 0
    assert [line for line in ran.json["warnings"] if line.startswith(origin) and "plays no part" in line]


NO_PART = {
    "ranks": (("--tp", 2, "--engine", "transformers"), "parallel ranks play no part"),
    "encoder tokens": (("--encoder-tokens", 10), "encoder tokens play no part"),
    "draft layers": (("--draft",), "no draft layers"),
}


@pytest.mark.parametrize("name", NO_PART)
def test_what_changes_nothing_is_said_aloud(name: str, cli: Cli) -> None:
    words, said = NO_PART[name]
    plain, ran = (cli("estimate", "llama-8b", *more, "--json").json for more in (words[2:], words))
    assert ran["total_bytes"] == plain["total_bytes"]
    assert plain["warnings"] == []
    assert any(said in line for line in ran["warnings"])


def test_a_length_beyond_the_model_s_maximum_is_counted_and_warned_about(cli: Cli, write: Write) -> None:
    within, beyond = (cli("estimate", write(LLAMA), "--tokens", tokens, "--json").json for tokens in (8192, 8193))
    assert within["warnings"] == []
    assert beyond["warnings"] == ["8,193 tokens are beyond the model's own maximum of 8,192"]
    assert beyond["total_bytes"] == 8193 * A_TOKEN


def test_the_type_that_the_file_s_quantisation_sets(cli: Cli, write: Write) -> None:
    quantised = {**LLAMA, "quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}
    ran = cli("estimate", write(quantised), "--json").json
    assert ran["total_bytes"] == 4096 * A_TOKEN // 2
    assert ran["request"]["origins"]["k_dtype"] == "config.json: quantization_config.kv_cache_scheme"
    assert cli("estimate", write(quantised), "--dtype", "bf16", "--json").json["total_bytes"] == 4096 * A_TOKEN


def test_draft_layers_are_left_out_named_and_counted_on_request(cli: Cli, write: Write) -> None:
    path = write({**LLAMA, "num_nextn_predict_layers": 1})
    without, with_draft = (cli("estimate", path, *more, "--json").json for more in ((), ("--draft",)))
    assert without["total_bytes"] == 4096 * A_TOKEN
    assert any("1 draft" in line and "--draft" in line for line in without["excluded"])
    assert with_draft["total_bytes"] == 4096 * A_TOKEN * 3 // 2
    assert with_draft["excluded"] == [line for line in without["excluded"] if "draft" not in line]


def test_an_assumed_type_is_marked(cli: Cli, write: Write) -> None:
    path = write({**LLAMA, "model_type": "nobody_knows"})
    assert cli("estimate", path).code == 4
    ran = cli("estimate", path, "--assume", "llama", "--json").json
    assert ran["model"]["assumed"] == "llama"
    assert any(line.startswith("assumed:") for line in ran["warnings"])
    assert "assumed" in cli("estimate", path, "--assume", "llama").out


def test_flags_alone_may_be_assumed_to_be_of_a_type(cli: Cli) -> None:
    assert cli("estimate", *EQUATION, "--assume", "llama", "--json").json["model"]["assumed"] == "llama"
    assert cli("estimate", *EQUATION, "--assume", "nobody_knows").code == 4


ENCODERS = {
    "asked for": ("bart-large", (), 3, None),
    "given": ("bart-large", ("--encoder-tokens", 7), 0, (4096 + 7) * 12 * 2 * 16 * 64 * 2),
    "none": ("bart-large", ("--encoder-tokens", 0), 0, 4096 * 12 * 2 * 16 * 64 * 2),
    "the file's own": ("whisper-tiny", (), 0, (448 + 1500) * 4 * 2 * 6 * 64 * 2),
    "an image's, unsaid": ("llama-3.2-11b-vision", (), 0, 4096 * 32 * 2 * 8 * 128 * 2),
    "an image's": ("llama-3.2-11b-vision", ("--encoder-tokens", 6404), 0, (4096 * 32 + 6404 * 8) * 2 * 8 * 128 * 2),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_s_length(name: str, cli: Cli) -> None:
    model, words, code, total = ENCODERS[name]
    tokens = ("--tokens", 448) if "whisper" in model else ()
    ran = cli("estimate", model, *words, *tokens, "--dtype", "fp16", "--json")
    assert ran.code == code
    if total is None:
        assert "--encoder-tokens" in ran.json["error"]["fix"]
    else:
        assert ran.json["total_bytes"] == total


def test_a_vision_model_for_text_alone_says_so(cli: Cli) -> None:
    origins = cli("estimate", "llama-3.2-11b-vision", "--json").json["request"]["origins"]
    assert origins["encoder_tokens"] == "default: text alone, no image"


def test_sequences_of_different_lengths(cli: Cli) -> None:
    ran = cli("estimate", *EQUATION, "--lengths", "1,10,100")
    assert ran.code == 0
    assert f"{111 * A_TOKEN:,} bytes" in ran.out


def test_a_model_of_several_kinds_shows_a_row_for_each(cli: Cli) -> None:
    out = cli("estimate", "gemma-3-27b", "--tokens", "32k").out
    full, sliding = 10 * 2 * 16 * 128 * 2 * 32768, 52 * 2 * 16 * 128 * 2 * 1024
    assert f"{full:,}" in out
    assert f"{sliding:,}" in out
    assert f"{full + sliding:,} bytes" in out
    assert "fixed" in out


def test_a_total_of_several_components_is_split(cli: Cli) -> None:
    out = cli("estimate", "qwen3-next-80b").out
    assert "of which keys and values" in out
    assert "of which recurrent state" in out


def test_a_compressed_model_grows_in_steps(cli: Cli) -> None:
    found = cli("estimate", "deepseek-v4-flash", "--json").json
    assert found["bytes_per_token_step"] == 128
    longer = cli("estimate", "deepseek-v4-flash", "--tokens", 4096 + 128, "--json").json
    assert found["bytes_per_token"] * 128 == longer["total_bytes"] - found["total_bytes"]


@pytest.mark.parametrize("dtype", ["q8_0", "int4", "nvfp4", "mxfp4", "fp8"])
def test_a_type_with_blocks_is_counted_in_whole_blocks_or_refused(dtype: str, cli: Cli) -> None:
    shape = ("--layers", 1, "--kv-heads", 1, "--tokens", 1, "--dtype", dtype)
    sizes = {"q8_0": 34, "int4": 16, "nvfp4": 18, "mxfp4": 17, "fp8": 32}
    assert cli("estimate", *shape, "--head-dim", 32, "--json").json["total_bytes"] == 2 * sizes[dtype]
    odd = cli("estimate", *shape, "--head-dim", 33)
    assert odd.code == (0 if dtype == "fp8" else 4)


@pytest.mark.parametrize("words", [("sglang", "-o", "max-total-tokens=100"), ("tensorrt-llm", "-o", "max-tokens=100")])
def test_a_sequence_longer_than_a_capped_pool_is_refused(words: tuple[str, ...], cli: Cli) -> None:
    ran = cli("estimate", "llama-8b", "--tokens", "4k", "--engine", *words)
    assert ran.code == 1
    assert "refused: one sequence of 4,096 tokens" in ran.out
    assert words[-1] in ran.out
    assert cli("estimate", "llama-8b", "--tokens", "96", "--engine", *words).code == 0


HABITS = {
    ("estimate", "--ctx-size", "4096"): "--tokens",
    ("estimate", "--max-model-len=4096"): "--tokens",
    ("estimate", "--gpu", "4090"): "kvcalc fit MODEL --gpu",
    ("fit", "--gpu-memory-utilization", "0.9"): "--utilization",
    ("sweep", "--kv-cache-dtype", "fp8"): "--dtype",
}


@pytest.mark.parametrize("words", HABITS, ids=" ".join)
def test_an_engines_own_flag_gets_the_right_spelling(words: tuple[str, ...], cli: Cli) -> None:
    ran = cli(words[0], "llama-8b", *words[1:])
    assert (ran.code, HABITS[words] in ran.err) == (2, True)


@pytest.mark.parametrize("name", ["llamacpp", "llama-cpp", "llama-server", "koboldcpp", "lmstudio", "trt", "mlx"])
def test_engines_go_by_what_people_type(name: str, cli: Cli) -> None:
    assert cli("estimate", "llama-8b", "--engine", name).code == 0


def test_programs_around_an_engine_have_their_own_defaults(cli: Cli) -> None:
    """KoboldCpp keeps a sliding cache at full length."""
    words = ("estimate", "gemma-3-4b", "--tokens", "32k", "--json", "--engine")
    plain, full, kobold = (
        cli(*words, *more).json["total_bytes"] for more in (("llama.cpp",), ("llama.cpp", "-o", "swa-full"), ("koboldcpp",))
    )
    assert plain < full == kobold


def test_llama_cpps_short_options(cli: Cli) -> None:
    long = (
        "-o",
        "ctx-size=8192",
        "-o",
        "cache-type-k=q8_0",
        "-o",
        "cache-type-v=q8_0",
        "-o",
        "parallel=2",
        "-o",
        "flash-attn=on",
    )
    short = ("-o", "c=8192", "-o", "ctk=q8_0", "-o", "-ctv=q8_0", "-o", "np=2", "-o", "fa=on")
    figures = [cli("estimate", "llama-8b", "-e", "llama.cpp", *words, "--json").json["total_bytes"] for words in (long, short)]
    assert figures[0] == figures[1] == 8192 * 32 * 2 * 8 * 128 // 32 * 34


def test_thousands_as_tables_print_them(cli: Cli) -> None:
    assert cli("estimate", "llama-8b", "--tokens", "32,768", "--json").json["total_bytes"] == 32768 * 131072
    assert cli("estimate", "llama-8b", "--tokens", "32,76").code == 2


def test_a_bare_number_as_memory_is_a_unit_forgotten(cli: Cli) -> None:
    ran = cli("fit", "llama-8b", "--memory", "24")
    assert (ran.code, "24 bytes?" in ran.err, "24GiB" in ran.err) == (2, True, True)
    assert cli("fit", "llama-8b", "--memory", "24B").code == 1


@pytest.mark.parametrize("value", ["NaN", "[1, NaN]", '{"a": NaN}'])
def test_a_field_that_equals_nothing_is_refused_as_such(value: str, cli: Cli) -> None:
    ran = cli("estimate", "llama-8b", "--set", f"head_dim={value}")
    assert ran.code == 2
    assert "NaN is no value of a field" in ran.err
