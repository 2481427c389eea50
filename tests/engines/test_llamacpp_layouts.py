"""llama.cpp's layouts on small models, a worked figure each: 1,024 cells, float16, windows of 128 (768 cells)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kvcalc.core.gguf import GgufMetadata, Skipped
from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.errors import EngineError
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf

ENGINE = find_engine("llama.cpp")
BASE: Mapping[str, object] = {
    "context_length": 8192,
    "embedding_length": 512,
    "block_count": 4,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 64,
}
FULL = 1024 * 2 * 2 * 64 * 2  # a layer: cells, keys and values, 2 heads of 64, 2 bytes
SLIDING = FULL // 1024 * 768  # 128 + 512 positions, up to a multiple of 256
LATENT = 1024 * 576 * 2
INDEX = 1024 * 128 * 2
WINDOW = {"attention.sliding_window": 128}
PATTERN = "attention.sliding_window_pattern"
LISTED = {**WINDOW, PATTERN: [1, 1, 1, 0]}
MLA = {
    "attention.head_count_kv": 1,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.kv_lora_rank": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
    "rope.dimension_count": 64,
}
INDEXED = {**MLA, "attention.indexer.key_length": 128}
FURTHER = {"block_count": 5, "nextn_predict_layers": 1}
SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 1024, "ssm.state_size": 16, "ssm.group_count": 1}
MAMBA = 4 * (3 * 1024 + 16 * 1024)
MAMBA2 = 4 * (3 * (1024 + 2 * 16) + 16 * 1024)
ONE_ATTENDS = {"attention.head_count_kv": [2, 0, 0, 0]}
BESIDE = {"beside-target": True}
MTP = {"context-type": "mtp"}


def made(name: str, keys: Mapping[str, object], types: Mapping[str, str] | None = None) -> Model:
    values = {"general.architecture": name, **{f"{name}.{key}": value for key, value in {**BASE, **keys}.items()}}
    return model_of_gguf(GgufFile(GgufMetadata(values, {f"{name}.{key}": kind for key, kind in (types or {}).items()}), "x"), {})


def total(name: str, keys: Mapping[str, object], options: Mapping[str, str | bool | int]) -> int:
    return ENGINE.allocate(made(name, keys), Request(options={"ctx-size": 1024, "parallel": 1, **options})).total_bytes


PLAIN = ("falcon", "gptneox", "starcoder", "qwen3moe", "phimoe", "starcoder2", "deepseek", "glm4moe", "granite", "maincoder")


@pytest.mark.parametrize("name", PLAIN)
def test_plain_layers(name: str) -> None:
    assert total(name, WINDOW, {}) == 4 * FULL


@pytest.mark.parametrize("name", ["cohere2", "exaone-moe", "afmoe", "mellum", "laguna"])
def test_every_fourth_layer_is_dense(name: str) -> None:
    assert total(name, WINDOW, {}) == 3 * SLIDING + FULL


@pytest.mark.parametrize("name", ["mimo2", "step35", "granite_swa", "spark2_5", "maple"])
def test_layers_that_the_file_lists_slide(name: str) -> None:
    assert total(name, LISTED, {}) == 3 * SLIDING + FULL


@pytest.mark.parametrize(
    ("name", "keys", "options", "wanted"),
    [
        ("llama4", {}, {}, 4 * FULL),  # chunks of 8,192
        ("gemma3n", {**WINDOW, "block_count": 25}, {}, 16 * SLIDING + 4 * FULL),  # the first 20 alone
        ("nanbeige", {"num_loops": 2}, {}, 8 * FULL),
        ("nanbeige", {"num_loops": 1}, {}, 4 * FULL),
        ("graniteswitch", {}, {}, 4 * FULL + FULL // 2),  # one more layer, of one head
        ("gemma4-assistant", {}, BESIDE, 0),
        ("eagle3", {}, BESIDE, 4 * FULL),
        ("dflash", {}, BESIDE, 4 * FULL),
        ("dflash", LISTED, BESIDE, 3 * SLIDING + FULL),
        ("dflash", {**WINDOW, "hyper_connection.count": 4}, BESIDE, 4 * SLIDING),
        ("hy_v4", {**INDEXED, "attention.indexer.top_k": 8, "attention.indexer.types": [1, 0, 1, 0]}, {}, 4 * LATENT + 2 * INDEX),
        ("hy_v4", {**INDEXED, "attention.indexer.top_k": 8}, {}, 4 * LATENT),
        ("hy_v4", INDEXED, {}, 4 * LATENT),
        ("minimax-m3", {"attention.indexer.key_length": 128, "leading_dense_block_count": 1}, {}, 4 * FULL + 3 * 1024 * 192 * 2),
        ("deepseek32", INDEXED, {}, 4 * (LATENT + INDEX)),
        ("deepseek32", {**INDEXED, **FURTHER}, MTP, LATENT),
        ("dots3note", {**INDEXED, **FURTHER, **WINDOW, PATTERN: [0] * 5, "attention.indexer.types": [1] * 5}, MTP, None),
        ("jamba", {**SSM, **ONE_ATTENDS}, {}, FULL + 3 * MAMBA),
        ("granitehybrid", {**SSM, **ONE_ATTENDS}, {}, FULL + 3 * MAMBA2),
        ("plamo2", {**SSM, **ONE_ATTENDS}, {}, FULL + 3 * MAMBA2),
        ("falcon-h1", SSM, {}, 4 * (FULL + MAMBA2)),
        ("nemotron_h", {**SSM, **ONE_ATTENDS, "feed_forward_length": [0, 0, 128, 0]}, {}, FULL + 2 * MAMBA2),
        ("qwen35moe", SSM, {}, FULL + 3 * MAMBA2),
        ("qwen35moe", {**SSM, "full_attention_interval": 2}, {}, 2 * (FULL + MAMBA2)),
        ("qwen35moe", {**SSM, "attention.recurrent_layers": [True, True, False, False]}, {}, 2 * (FULL + MAMBA2)),
        ("qwen35moe", {**SSM, **FURTHER}, MTP, FULL),
        ("qwen4exp", {**SSM, "attention.indexer.key_length": 0}, {}, FULL + 3 * MAMBA2),
        ("qwen4exp", {**SSM, "attention.indexer.key_length": 128}, {}, FULL + INDEX + 3 * MAMBA2),
        ("rwkv6", {"wkv.head_size": 64}, {}, 4 * 4 * (2 * 512 + 512 * 64)),
        ("glm5-next", {**INDEXED, **FURTHER, "ssm.conv_kernel": 4, "kda.head_dim": 64}, MTP, LATENT + 3 * INDEX),
    ],
)
def test_a_layout(name: str, keys: Mapping[str, object], options: Mapping[str, str | bool], wanted: int | None) -> None:
    if wanted is None:
        with pytest.raises(EngineError, match="no layer slides"):
            total(name, keys, options)
        return
    assert total(name, keys, options) == wanted


@pytest.mark.parametrize(
    ("name", "keys", "options", "said"),
    [
        ("gemma4-assistant", {}, {}, "no context for this"),
        ("nanbeige", {"num_loops": 200}, {}, "is the most"),
        ("mimo2", {**WINDOW, PATTERN: 4}, {}, "a value for each layer is required"),
        ("mimo2", {**WINDOW, PATTERN: [0] * 4}, {}, "no layer slides"),
        ("mimo2", {**WINDOW, PATTERN: Skipped("u32", 5000)}, {}, "over 512 entries"),
        ("qwen35moe", {**SSM, "full_attention_interval": 0}, {}, "it is 0"),
        ("llama", {"attention.causal": 3}, {}, "no boolean"),
        ("llama", {"block_count": 600}, {}, "512 is the most"),
        ("llama", {"attention.head_count": -1}, {}, "is no number"),
        ("llama", {"attention.head_count_kv": [2, 2]}, {}, "the array has 2 entries"),
        ("llama", {"rope.dimension_count": 32}, {}, "must be the key's width"),
        ("llama", {}, {"batch-size": 0, "ubatch-size": 0}, "both 0"),
        ("llama", {}, MTP, "no blocks that predict"),
        ("llama", {}, {"parallel": 257, "ctx-size": 257 * 1024}, "256 is the most"),
        ("llama", {}, {"cache-type-v": "q8_0", "flash-attn": "off"}, "without flash attention"),
        ("llama", {"attention.key_length": 80}, {"cache-type-k": "q8_0"}, "don't fill heads of 80"),
        ("deepseek2", MLA, {"cache-type-k": "q8_0"}, "of different types"),
        ("gemma3n", {**WINDOW, "block_count": 24, PATTERN: 3}, {}, "would read caches"),
        ("deepseek4", {**WINDOW, "attention.indexer.key_length": 8, "attention.compress_ratios": [0, 4]}, {}, "shorter than"),
    ],
)
def test_a_refusal(name: str, keys: Mapping[str, object], options: Mapping[str, str | int], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        total(name, keys, options)


@pytest.mark.parametrize(("name", "said"), [("clip", "holds no language model"), ("nosuch", "not among those")])
def test_a_name_that_no_release_can_run(name: str, said: str) -> None:
    assumed = replace(made("llama", {}), metadata={"general.architecture": name})
    with pytest.raises(EngineError, match=said):
        ENGINE.plan(assumed, Request())


def test_a_key_of_another_type_is_the_engine_s_refusal() -> None:
    for key, value, kind in (("block_count", 4, "u64"), ("attention.head_count_kv", [2] * 4, "array of f32")):
        with pytest.raises(EngineError, match=f"it is .*{kind.split()[-1]}"):
            ENGINE.allocate(made("llama", {key: value}, {key: kind}), Request(options={"ctx-size": 256}))


@pytest.mark.parametrize("release", ["b6673", "b7698"])
def test_older_builds_leave_out_glm_s_further_blocks_alone(release: str) -> None:
    assert total("glm4moe", FURTHER, {"release": release}) == 4 * FULL
    assert total("qwen3moe", FURTHER, {"release": release}) == 5 * FULL
