"""Figures that people published, in papers, tables, documentation and bug reports, recomputed from the models' shapes.

Each row names where it stands. What is printed stands for an interval, as in an audit: half a last digit either side.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from kvcalc.audit.kept import kept_of, states_of
from kvcalc.core.log_facts import Figure
from kvcalc.readers.hf_config import model_of

KIB, MIB, GIB, KB, GB = 2**10, 2**20, 2**30, 10**3, 10**9
Write = Callable[..., Path]


def plain(layers: int, kv_heads: int, head_dim: int, heads: int = 64, **more: Any) -> dict[str, Any]:
    shape = {"num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim}
    return {"model_type": "llama", **shape, **more}


def latent(layers: int) -> dict[str, Any]:
    widths = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    return {"model_type": "deepseek_v3", "num_hidden_layers": layers, "num_attention_heads": 128, **widths}


def delta_hybrid(layers: int, kv_heads: int, conv_channels: int, v_heads: int) -> dict[str, Any]:
    """Qwen3.5: every fourth layer has full attention, the others a gated delta net with heads of 128."""
    linear = {
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_value_heads": v_heads,
    }
    linear |= {"linear_num_key_heads": (conv_channels - 128 * v_heads) // 256, "full_attention_interval": 4}
    return {**plain(layers, kv_heads, 256), "model_type": "qwen3_5_text", **linear}


LLAMA_8B, LLAMA_70B = plain(32, 8, 128, 32), plain(80, 8, 128)
LLAMA_2_7B, PHI3 = plain(32, 32, 128, 32), plain(32, 32, 96, 32)
QWEN35_9B = delta_hybrid(32, 4, 8192, 32)
JAMBA = {**plain(32, 8, 128, 32), "model_type": "jamba", "hidden_size": 4096, "attn_layer_period": 8, "attn_layer_offset": 4}
LFM2 = {**plain(16, 8, 64, 32), "model_type": "lfm2", "hidden_size": 2048, "conv_L_cache": 3}
LFM2["layer_types"] = ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)]
GLM4_1M = {
    "model_type": "chatglm",
    "num_layers": 40,
    "multi_query_attention": True,
    "multi_query_group_num": 4,
    "kv_channels": 128,
}
GLM4_1M |= {"num_attention_heads": 32, "hidden_size": 4096}
GPT2_XL = {"model_type": "gpt2", "n_layer": 48, "n_head": 25, "n_embd": 1600}

# id: where it stands, the model, tokens, options, the figure as printed and its unit
Row = tuple[str, dict[str, Any], int, tuple[str, ...], str, int]
AGREEING: dict[str, Row] = {
    "isca25-qwen72b": ("DeepSeek-V3 at ISCA 2025, table 1", plain(80, 8, 128), 1, (), "327.680", KB),
    "isca25-llama405b": ("DeepSeek-V3 at ISCA 2025, table 1", plain(126, 8, 128), 1, (), "516.096", KB),
    "isca25-deepseek-v3": ("DeepSeek-V3 at ISCA 2025, table 1", latent(61), 1, (), "70.272", KB),
    "jamba15-mixtral8x7b": ("Jamba-1.5, table 1", plain(32, 8, 128, 32), 262144, (), "32", GIB),
    "jamba15-llama31-8b": ("Jamba-1.5, table 1", LLAMA_8B, 262144, (), "32", GIB),
    "jamba15-mixtral8x22b": ("Jamba-1.5, table 1", plain(56, 8, 128, 48), 262144, (), "56", GIB),
    "jamba15-mistrallarge2": ("Jamba-1.5, table 1", plain(88, 8, 128, 96), 262144, (), "88", GIB),
    "hfblog-1k": ("huggingface/blog, Llama 3.1", LLAMA_8B, 1024, (), "0.125", GIB),
    "hfblog-16k": ("huggingface/blog, Llama 3.1: here 16k is 16,000", LLAMA_8B, 16000, (), "1.95", GIB),
    "hfblog-128k": ("huggingface/blog, Llama 3.1: here 128k is 128,000", LLAMA_8B, 128000, (), "15.62", GIB),
    "lmcache-faq-qwen3-8b": ("LMCache FAQ, per 1,000 tokens", plain(36, 8, 128, 32), 1000, (), "0.1373", GIB),
    "lmcache-faq-qwen3-32b": ("LMCache FAQ, per 1,000 tokens", plain(64, 8, 128), 1000, (), "0.2441", GIB),
    "lmcache-faq-llama-70b": ("LMCache FAQ, per 1,000 tokens", LLAMA_70B, 1000, (), "0.3052", GIB),
    "cake-7b": ("Cake, LongAlpaca-7B", LLAMA_2_7B, 1, (), "512", KIB),
    "cake-13b": ("Cake, LongAlpaca-13B", plain(40, 40, 128, 40), 1, (), "800", KIB),
    "cake-70b": ("Cake, Llama-3.1-70B", LLAMA_70B, 1, (), "320", KIB),
    "gpt2xl-300": ("a blog's table", GPT2_XL, 1, (), "300", KIB),
    "gpt2xl-deepseek-v3": ("a blog's table", latent(61), 1, (), "69", KIB),
    "exl2-phi3": ("turboderp-org/exllamav2#425", PHI3, 131072, (), "48", GIB),
    "exl2-phi3-q4": ("turboderp-org/exllamav2#425: 4.5 bits", PHI3, 131072, ("--dtype", "q4_0"), "13.5", GIB),
    "unsloth-dsv31": ("unslothai/unsloth#4757", latent(61), 163840, (), "10.72", GIB),
    "unsloth-kimik25": ("unslothai/unsloth#4757", latent(61), 262144, (), "17.16", GIB),
    "dynamo-headdim": ("ai-dynamo/dynamo#14431: one layer", plain(1, 8, 256, 16, hidden_size=3584), 1, (), "8192", 1),
    "qingya-qwen3-32b": ("QingyaFan/blog#190", plain(64, 8, 128, hidden_size=5120), 1, (), "256", KIB),
    "vllm22291-hidden": ("vllm-project/vllm#22291", plain(28, 4, 128, 28, hidden_size=3584), 3072, (), "168", MIB),
    "ollama6276-f16": ("ollama/ollama#6276", LLAMA_8B, 32768, (), "4", GIB),
    "ollama6276-q4": ("ollama/ollama#6276", LLAMA_8B, 32768, ("--dtype", "q4_0"), "1.1", GIB),
    "kivi17": ("jy-yuan/KIVI#17", LLAMA_2_7B, 4196, (), "2.05", GIB),
    "pqcache12": ("HugoZHL/PQCache#12", LLAMA_8B, 30000, (), "3932160000", 1),
    "hfblog2045": ("huggingface/blog#2045", LLAMA_2_7B, 10000, (), "5", GB),
    "datawhale133-2k": ("datawhalechina/llm-algo-leetcode#133", LLAMA_70B, 2048, (), "640", MIB),
    "datawhale133-128k": ("datawhalechina/llm-algo-leetcode#133", LLAMA_70B, 131072, (), "40960", MIB),
    "glm4-1m-alias": ("a survey of configs", GLM4_1M, 1, (), "81920", 1),
    "lmcache-phi3-blockshape": (
        "LMCache: one layer's 16 keys of 32 x 96 in 2 B",
        {**PHI3, "num_hidden_layers": 1},
        16,
        (),
        "196608",
        1,
    ),
}


def total(cli: Cli, write: Write, config: dict[str, Any], *words: str) -> dict[str, Any]:
    ran = cli("estimate", "--config", write(config), "--json", *words)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = ran.json
    return found


@pytest.mark.parametrize("name", AGREEING)
def test_a_published_figure_is_reproduced(name: str, cli: Cli, write: Write) -> None:
    _, config, tokens, options, text, unit = AGREEING[name]
    options = options or ("--dtype", "bf16")
    figure = Figure(text, unit)
    assert figure.covers(total(cli, write, config, "--tokens", str(tokens), *options)["total_bytes"])


KV_ALONE = {"jamba15-mini": (JAMBA, 262144, 4 * GIB), "lfm2": (LFM2, 32768, 384 * MIB)}


@pytest.mark.parametrize("name", KV_ALONE)
def test_a_hybrid_s_keys_and_values_alone(name: str, cli: Cli, write: Write) -> None:
    """Jamba-1.5, table 1; gpustack/gguf-parser-go#31, where element 0 of the list is a layer without keys."""
    config, tokens, kv = KV_ALONE[name]
    assert total(cli, write, config, "--tokens", str(tokens), "--dtype", "bf16")["components"]["kv"] == kv


QWEN_TABLE = {4096: 178, 8192: 306, 16384: 562, 32768: 1074, 65536: 2098, 131072: 4146}


@pytest.mark.parametrize(("context", "mebibytes"), QWEN_TABLE.items())
def test_a_measured_table_of_qwen35_9b(context: int, mebibytes: int, cli: Cli, write: Write) -> None:
    """8 full layers that grow, and 24 x (3 x 8,192 + 32 x 128 x 128) float32 that don't: 50.25 MiB."""
    words = ["--engine", "llama.cpp", "-o", f"ctx-size={context}", "-o", "parallel=1", "--dtype", "f16"]
    found = total(cli, write, QWEN35_9B, *words)["total_bytes"]
    assert found == 8 * context * 2 * 4 * 256 * 2 + 24 * (3 * 8192 + 32 * 128 * 128) * 4
    assert Figure(str(mebibytes), MIB).covers(found)


@pytest.mark.parametrize(("slots", "mebibytes"), [(3, 27), (4, 18)])
def test_three_slots_cost_more_than_four(slots: int, mebibytes: int, cli: Cli, write: Write) -> None:
    """unslothai/unsloth#7530: 1,024 over 3 is 341, up to 512 cells each; over 4 it is 256 each."""
    metadata = {"general.architecture": "gemma3", "gemma3.block_count": 18, "gemma3.context_length": 32768}
    metadata |= {"gemma3.embedding_length": 640, "gemma3.attention.head_count": 4, "gemma3.attention.head_count_kv": 1}
    metadata |= {"gemma3.attention.key_length": 256, "gemma3.attention.value_length": 256, "gemma3.attention.sliding_window": 512}
    options = [part for text in ("ctx-size=1024", f"parallel={slots}", "kv-unified=false") for part in ("-o", text)]
    ran = cli("estimate", "--gguf", write(metadata, "model.json"), "--engine", "llama.cpp", "--json", *options)
    assert ran.json["total_bytes"] == mebibytes * MIB


def test_glm_5_2_under_vllm_s_own_mla_format(cli: Cli, write: Write) -> None:
    """A table of vLLM's: 656 bytes of latent and 132 of index a token and layer, over 78 layers."""
    config = {**latent(78), "model_type": "glm_moe_dsa", "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048}
    options = [part for text in ("kv-cache-dtype=fp8_ds_mla", "max-model-len=64") for part in ("-o", text)]
    found = total(cli, write, {**config, "torch_dtype": "bfloat16"}, "--engine", "vllm", *options)
    assert found["engine_report"]["bytes_per_block"] == 64 * 61464 == 64 * 78 * (656 + 132)


def test_heads_that_are_not_shared_out_shrink_a_pool_fourfold(cli: Cli, write: Write) -> None:
    """huggingface/transformers#48566: 814 blocks of 256 tokens with all 8 heads, 3,258 with the 2 of one rank of 4."""
    for blocks, ranks in ((814, 1), (3258, 4)):
        block = total(
            cli,
            write,
            {**plain(64, 8, 128), "torch_dtype": "bfloat16"},
            "--tokens",
            "256",
            "--tp",
            str(ranks),
            "--engine",
            "vllm",
        )
        pool = 52.0 * GIB  # about what 814 blocks take
        assert abs(pool / block["total_bytes"] - blocks) / blocks < 0.03


def test_ranks_beyond_the_kv_heads_keep_one_each() -> None:
    """Qwen3.5-35B-A3B on 8 ranks of Ascend: 512 bytes of keys a token, states of 262,144, and so blocks of 512 tokens."""
    model = model_of(delta_hybrid(40, 2, 8192, 32), "config.json", "qwen3.5-35b-a3b")
    (keys,) = {kept.keys * 2 for kept in kept_of(model, tp_size=8)}
    (state,) = {elements // 8 * 4 for _, elements in states_of(model)}
    assert (keys, state, state // keys) == (512, 262_144, 512)


# Slips that were reported, as factors of the right figure


SLIPS: dict[str, tuple[dict[str, Any], float, dict[str, Any], str]] = {
    "unsloth-qwen35-27b": (delta_hybrid(64, 4, 10240, 48), 53.25 / 16, plain(64, 4, 213), "all layers, hidden // heads"),
    "gguf-parser-qwen36": (delta_hybrid(40, 2, 8192, 32), 4, plain(40, 2, 256), "every layer, one in four has keys"),
    "vllm29736-gqa4x": (LLAMA_8B, 4, plain(32, 32, 128, 32), "query heads instead of KV heads"),
    "modelopt-mistral-small": (plain(40, 8, 128, 32), 1.25, plain(40, 8, 160, 32), "hidden // heads is 160, head_dim 128"),
    "modelopt-gpt-oss": (plain(24, 8, 64), 45 / 64, plain(24, 8, 45), "hidden // heads is 45, head_dim 64"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_reported_slip_is_this_factor(name: str, cli: Cli, write: Write) -> None:
    right, factor, wrong, _ = SLIPS[name]
    sizes = [total(cli, write, config, "--tokens", "262144", "--dtype", "bf16")["components"]["kv"] for config in (right, wrong)]
    assert sizes[1] / sizes[0] == pytest.approx(factor, rel=0.002)


def test_block_bytes_taken_for_element_bytes_are_32_times_too_many(cli: Cli, write: Write) -> None:
    """withcatai/node-llama-cpp#608."""
    found = total(cli, write, LLAMA_8B, "--tokens", "5000", "--dtype", "q8_0")["total_bytes"]
    assert 32 * found == 2 * 32 * 5000 * 1024 * 34


# Figures that don't agree, and why


def test_a_table_with_twice_the_heads(cli: Cli, write: Write) -> None:
    """Jamba-1.5, table 1: 252 for Llama-3.1-405B, which is 126 with its 8 KV heads, and 252 with 16."""
    eight, sixteen = (
        total(cli, write, plain(126, heads, 128), "--tokens", "262144", "--dtype", "bf16")["total_bytes"] for heads in (8, 16)
    )
    assert not Figure("252", GIB).covers(eight)
    assert (eight, sixteen) == (126 * GIB, 252 * GIB)


def test_a_figure_that_was_cut_and_not_rounded(cli: Cli, write: Write) -> None:
    """EvicPress: 0.0915 GiB for 1,000 tokens of Qwen3-30B-A3B, which round to 0.0916."""
    found = total(cli, write, plain(48, 4, 128, 32), "--tokens", "1000", "--dtype", "bf16")["total_bytes"]
    assert not Figure("0.0915", GIB).covers(found)
    assert int(found / GIB * 10_000) == 915


def test_a_table_that_mixes_rounding_and_cutting(cli: Cli, write: Write) -> None:
    """328, 192 and 70 KB a token: the first is rounded, 192.512 and 70.272 are cut, or rounded down."""
    configs = [LLAMA_70B, plain(94, 4, 128), latent(61)]
    found = [total(cli, write, config, "--tokens", "1", "--dtype", "bf16")["total_bytes"] for config in configs]
    assert found == [327_680, 192_512, 70_272]
    assert [Figure(text, KB).covers(size) for text, size in zip(("328", "192", "70"), found, strict=True)] == [True, False, True]


def test_blocks_that_must_have_been_tokens(cli: Cli, write: Write) -> None:
    """8,348 "blocks" of 16 tokens of Llama-2-7B would be 65 GiB on a card of 24; as tokens they are 4.1."""
    as_blocks, as_tokens = (
        total(cli, write, LLAMA_2_7B, "--tokens", str(tokens), "--dtype", "f16")["total_bytes"] for tokens in (8348 * 16, 8348)
    )
    assert as_blocks == 65.21875 * GIB
    assert as_blocks > 24 * GIB > as_tokens


def test_the_rows_name_their_source() -> None:
    assert all(source for source, *_ in AGREEING.values())
    assert json.dumps(AGREEING)
