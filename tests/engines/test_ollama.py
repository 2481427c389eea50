"""The ollama engine: public figures of every release, the rules of its own engine, and what it passes to llama.cpp."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.errors import EngineError, UsageError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import find_preset, model_in

MIB = 2**20
PLAIN = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
PLAIN |= {"hidden_size": 512, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
GPT_OSS = {"model_type": "gpt_oss", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
GPT_OSS |= {"hidden_size": 512, "sliding_window": 128, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
LATENT = {"model_type": "deepseek_v3", "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 16}
LATENT |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
ROW = 8 * 64 * 2 * 2  # keys and values of a token of a layer of GPT_OSS, in bytes

Asker = Callable[..., Tally]


def preset(name: str) -> Model:
    return model_in(find_preset(name), {}, "")


def allocated(model: Model, *options: str, **request: int) -> Tally:
    engine = find_engine("ollama")
    return engine.allocate(model, Request(options=engine.parse_options(list(options)), **request))  # type: ignore[arg-type]


def toy(config: dict[str, object]) -> Model:
    return model_of(config, "config.json", "toy")


# Public figures, as the engine printed them

PUBLISHED = {
    "gpt-oss:120b 0.11.10": ("gpt-oss-120b", "release=0.11.10 num-ctx=8192 num-batch=512", 450 * MIB),
    "gemma4:26b 0.20, ollama#15388": ("gemma-4-26b-a4b", "release=0.20.0 num-ctx=32768", 25 * 37_748_736 + 5 * 134_217_728),
    "qwen3.6:35b-a3b 2026-05": ("qwen3.6-35b-a3b", "release=0.20.0 num-ctx=4096", 1_730_478_080),
    "gemma3:4b 0.12, #12303": ("gemma-3-4b", "release=0.12.3 num-ctx=8192", 334 * MIB),
    "gemma3:1b 0.13": ("gemma-3-1b", "release=0.13.0 num-ctx=4096", 38 * MIB),
    "qwen3:30b 0.12": ("qwen3-30b-a3b", "release=0.12.6 num-ctx=32768", 3072 * MIB),
    "qwen3:30b 0.16": ("qwen3-30b-a3b", "release=0.16.2 num-ctx=4096", 384 * MIB),
    "hermes3:8b from 0.30 on": ("llama-3.1-8b", "release=0.30.0 num-ctx=32768", 4096 * MIB),
    "gemma4:e4b from 0.30 on, #16617": ("gemma-4-e4b", "num-ctx=32768 num-parallel=2", (1024 + 200) * MIB),
    "deepseek-r1:671b 0.6, #9808": ("deepseek-r1", "release=0.6.0 num-ctx=8192", 39_040 * MIB),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_figure(name: str) -> None:
    model, options, size = PUBLISHED[name]
    assert allocated(preset(model), *options.split()).total_bytes == size


# Its own engine


def test_a_window_is_kept_for_requests_that_begin_alike() -> None:
    """4,096 positions and the batch, though the window has 128."""
    whole, sliding = 2 * 65_536 * ROW, 2 * (4096 + 512) * ROW
    assert allocated(toy(GPT_OSS), "release=0.20.0", "num-ctx=65536").total_bytes == whole + sliding
    assert allocated(toy(GPT_OSS), "release=0.20.0", "num-ctx=4096").total_bytes == 4 * 4096 * ROW  # no longer than that


def test_sequences_have_a_window_each() -> None:
    whole, sliding = 2 * 2 * 16_384 * ROW, 2 * (2 * 4096 + 512) * ROW
    assert allocated(toy(GPT_OSS), "release=0.20.0", "num-ctx=16384", "num-parallel=2").total_bytes == whole + sliding


@pytest.mark.parametrize(
    ("release", "flash", "cells"), [("0.12.0", "true", 512), ("0.12.0", "false", 320), ("0.13.0", "false", 512)]
)
def test_cells_come_by_256_or_by_32(release: str, flash: str, cells: int) -> None:
    found = allocated(toy(GPT_OSS), f"release={release}", "num-ctx=300", f"flash-attention={flash}")
    assert found.total_bytes == 4 * cells * ROW


@pytest.mark.parametrize(("kind", "flash", "share"), [("q8_0", "true", 34), ("q8_0", "false", 64), ("q5_0", "true", 64)])
def test_a_quantised_cache_needs_flash_attention_and_a_type_it_has(kind: str, flash: str, share: int) -> None:
    options = ("release=0.20.0", "num-ctx=4096", f"kv-cache-type={kind}", f"flash-attention={flash}")
    assert allocated(toy(GPT_OSS), *options).total_bytes == 4 * 4096 * ROW * share // 64


def test_a_latent_is_stored_with_its_values() -> None:
    assert allocated(toy(LATENT), "release=0.20.0", "num-ctx=4096").total_bytes == 3 * 4096 * (576 + 512) * 2


def test_heads_of_a_latent_before_it_was_known() -> None:
    assert allocated(toy(LATENT), "release=0.6.0", "num-ctx=4096").total_bytes == 3 * 4096 * 16 * (192 + 128) * 2


def test_states_have_24_checkpoints_and_one_sequence() -> None:
    model = preset("qwen3.5-9b")
    found = allocated(model, "release=0.20.0", "num-ctx=4096", "num-parallel=4")
    assert found.report["num_parallel"] == 1
    assert any("one after another" in text for text in found.warnings)
    states = [array for run in found.layers for array in run.arrays if array.component == "state"]
    assert {array.rows for array in states} == {25}
    assert {array.dtype for array in states} == {"float32"}


def test_models_that_it_does_not_list_are_llama_cpp_s() -> None:
    found = allocated(toy(PLAIN), "release=0.20.0", "num-ctx=5000")
    assert found.report["runner"] == "llama.cpp, linked in"
    assert found.total_bytes == 4 * 5120 * 2 * 64 * 2 * 2
    asked = allocated(toy(PLAIN), "release=0.20.0", "num-ctx=5000", "new-engine")
    assert asked.report["runner"] == "ollama's own engine"


def test_an_architecture_counts_from_its_own_release_on() -> None:
    assert allocated(toy(GPT_OSS), "release=0.11.0", "num-ctx=4096").report["runner"] == "ollama's own engine"
    with pytest.raises(EngineError, match="doesn't know the architecture"):
        allocated(toy(GPT_OSS), "release=0.9.0", "num-ctx=4096")


# From 0.30 on


@pytest.mark.parametrize(("context", "batch"), [(4096, 512), (8192, 1024), (32_768, 1024), (65_536, 2048)])
def test_a_step_goes_by_the_context(context: int, batch: int) -> None:
    model = toy(GPT_OSS)
    found = allocated(model, f"num-ctx={context}")
    llama = find_engine("llama.cpp")
    words = [f"ctx-size={context}", "parallel=1", f"batch-size={batch}", f"ubatch-size={batch}"]
    assert found.report["num_batch"] == batch
    assert found.total_bytes == llama.allocate(model, Request(options=llama.parse_options(words))).total_bytes


@pytest.mark.parametrize(("vram", "context"), [("8GiB", 4096), ("24GiB", 32_768), ("48GiB", 131_072)])
def test_a_context_that_is_not_asked_for_goes_by_the_memory(vram: str, context: int) -> None:
    """262,144 from 47 GiB on, but no more than the model was made for."""
    found = allocated(toy(PLAIN), f"vram={vram}")
    assert found.report["num_ctx"] == context


@pytest.mark.parametrize(("release", "context"), [("0.6.0", 2048), ("0.12.0", 4096), ("0.30.0", 4096)])
def test_the_default_context_of_a_release(release: str, context: int) -> None:
    assert allocated(toy(PLAIN), f"release={release}").report["num_ctx"] == context


def test_what_is_foretold_counts_every_layer_whole() -> None:
    """2 · layers · the fewest KV heads · (hidden / heads) · context · 2 B, windows or not."""
    found = allocated(toy(GPT_OSS), "num-ctx=65536")
    assert found.report["predicted_before_loading"] == 2 * 4 * 8 * (512 // 8) * 65_536 * 2
    assert found.total_bytes < 2 * 4 * 8 * 64 * 65_536 * 2


# What it refuses


@pytest.mark.parametrize(
    ("options", "request_", "error"),
    [
        (("num-ctx=4096",), {"tokens": 5000}, UsageError),
        (("num-ctx=2m", "num-parallel=2048", "release=0.20.0"), {}, EngineError),
        (("num-ctx=4096",), {"tp_size": 2}, EngineError),
        (("release=0.5.0",), {}, EngineError),
    ],
)
def test_what_it_refuses(options: tuple[str, ...], request_: dict[str, int], error: type[Exception]) -> None:
    model = toy({**GPT_OSS, "max_position_embeddings": 2**22})
    with pytest.raises(error):
        allocated(model, *options, **request_)
