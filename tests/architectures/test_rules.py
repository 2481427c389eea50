"""Each rule and builder on a small shape, its bytes as arithmetic: 100 tokens, one sequence, bfloat16."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.layers import CompressedAttention, Shared, kind_of
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines.exact import ENGINE
from kvcalc.errors import ArchitectureError, ConfigError, DtypeError, KvcalcError
from kvcalc.readers.hf_config import model_of

T, S, F32 = 100, 2, 4
BF16 = find_dtype("bf16")
SHAPE: dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
FULL = T * 2 * 2 * 8 * S  # T positions, 2 arrays, 2 heads of 8
WINDOW = 16 * 2 * 2 * 8 * S
MLA: dict[str, Any] = {**SHAPE, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
LATENT = T * (32 + 8) * S
MAMBA2: dict[str, Any] = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_d_conv": 4}
SSD = 3 * (4 * 16 + 2 * 8) * S + 4 * 16 * 8 * F32
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
DELTA_STATE = 3 * (2 * 2 * 8 + 4 * 16) * S + 4 * 16 * 8 * F32


def config(model_type: str, shape: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"model_type": model_type, **(SHAPE if shape is None else shape), **more}


def read(values: dict[str, Any]) -> Model:
    return model_of(values, "config.json", "model")


def split(model: Model, encoder_tokens: int | None = None) -> tuple[int, int, int]:
    request = Request(tokens=T, k_dtype=BF16, v_dtype=BF16, encoder_tokens=encoder_tokens)
    found = ENGINE.allocate(model, request).component_bytes()
    return found["kv"], found["index"], found["state"]


BLOCKS = [
    {"attention": {"n_heads_in_group": 4}},
    {"attention": {"no_op": True}},
    {"attention": {"replace_with_linear": True}},
    {"attention": {"n_heads_in_group": 8, "window_length": 16}},
]
ROWS: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "plain": (config("llama"), (4 * FULL, 0, 0)),
    "one head a query head": (config("llama", num_key_value_heads=None), (4 * T * 2 * 8 * 8 * S, 0, 0)),
    "a width of its own": (config("llama", head_dim=32), (4 * T * 2 * 2 * 32 * S, 0, 0)),
    "all slide": (config("mistral", sliding_window=16), (4 * WINDOW, 0, 0)),
    "alternating": (config("gemma2", sliding_window=16, head_dim=8), (2 * WINDOW + 2 * FULL, 0, 0)),
    "chunks": (config("llama4_text", head_dim=8, attention_chunk_size=16), (3 * WINDOW + FULL, 0, 0)),
    "gpt_bigcode, one head": (config("gpt_bigcode", {"n_layer": 4, "n_head": 8, "n_embd": 64}), (4 * T * 2 * 8 * S, 0, 0)),
    "gpt_bigcode, all heads": (
        config("gpt_bigcode", {"n_layer": 4, "n_head": 8, "n_embd": 64}, multi_query=False),
        (4 * T * 2 * 8 * 8 * S, 0, 0),
    ),
    "chatglm, all heads": (
        config("chatglm", {"num_layers": 4, "num_attention_heads": 8, "hidden_size": 64}),
        (4 * T * 2 * 8 * 8 * S, 0, 0),
    ),
    "nemotron-nas": (config("nemotron-nas", block_configs=BLOCKS), (T * 2 * 2 * 8 * S + 16 * 2 * 1 * 8 * S, 0, 0)),
    "gemma 3n shares its last layers": (
        config("gemma3n_text", head_dim=8, sliding_window=16, num_kv_shared_layers=2),
        (2 * WINDOW, 0, 0),
    ),
    "mla": (config("deepseek_v3", MLA), (4 * LATENT, 0, 0)),
    "mla, rank null": (
        config("deepseek_v2", {**MLA, "kv_lora_rank": None, "num_key_value_heads": 8}),
        (4 * T * 2 * 8 * 8 * S, 0, 0),
    ),
    "mla with indexer": (config("deepseek_v32", MLA, index_head_dim=16), (4 * LATENT, 4 * T * 16 * S, 0)),
    "indexers shared by type": (
        config("glm_moe_dsa", MLA, index_head_dim=16, indexer_types=["full", "shared", "shared", "full"]),
        (4 * LATENT, 2 * T * 16 * S, 0),
    ),
    "indexers shared by letter": (
        config("glm_moe_dsa", MLA, index_head_dim=16, indexer_types=None, index_topk_pattern="FSSS"),
        (4 * LATENT, T * 16 * S, 0),
    ),
    "indexers by a period alone: layers 0, 1 and 5": (
        config("glm_moe_dsa", {**MLA, "num_hidden_layers": 8}, index_head_dim=16, indexer_types=None, index_topk_freq=4),
        (8 * LATENT, 3 * T * 16 * S, 0),
    ),
    "indexers by a period and an offset: layers 0 to 3 and 7": (
        config(
            "glm_moe_dsa",
            {**MLA, "num_hidden_layers": 8},
            index_head_dim=16,
            indexer_types=None,
            index_topk_freq=4,
            index_skip_topk_offset=4,
        ),
        (8 * LATENT, 5 * T * 16 * S, 0),
    ),
    "a window that looks both ways: half to each side, and the token itself": (
        config("gemma3_text", head_dim=8, sliding_window=16, sliding_window_pattern=4, use_bidirectional_attention=True),
        (3 * (16 // 2 + 1) * 2 * 2 * 8 * S + FULL, 0, 0),
    ),
    "a window that looks back": (
        config("gemma3_text", head_dim=8, sliding_window=16, sliding_window_pattern=4, use_bidirectional_attention=False),
        (3 * WINDOW + FULL, 0, 0),
    ),
    "two blocks a layer": (config("longcat_flash", {**MLA, "num_layers": 4}), (8 * LATENT, 0, 0)),
    "compressed": (
        config("deepseek_v4", head_dim=32, sliding_window=16, index_head_dim=8, compress_ratios=[0, 4, 128, 0]),
        (
            4 * 16 * 32 * S + T // 4 * 32 * S + T // 128 * 32 * S,
            T // 4 * 8 * S,
            2 * 8 * 2 * (32 + 8) * F32 + 2 * 128 * 32 * F32,
        ),
    ),
    "mamba": (
        config("mamba", {"num_hidden_layers": 4, "hidden_size": 32, "expand": 2, "conv_kernel": 4, "state_size": 8}),
        (0, 0, 4 * (3 * 64 * S + 64 * 8 * F32)),
    ),
    "mamba, the file's inner width": (
        config("mamba", {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 80, "conv_kernel": 4, "state_size": 8}),
        (0, 0, 3 * 80 * S + 80 * 8 * F32),
    ),
    "jamba": (
        config("jamba", attn_layer_period=4, attn_layer_offset=1, mamba_expand=2, mamba_d_conv=4, mamba_d_state=8),
        (FULL, 0, 3 * (3 * 128 * S + 128 * 8 * F32)),
    ),
    "bamba": (config("bamba", **MAMBA2, attn_layer_indices=[2]), (FULL, 0, 3 * SSD)),
    "both in every layer": (config("falcon_h1", **MAMBA2, mamba_d_ssm=64, head_dim=8), (4 * FULL, 0, 4 * SSD)),
    "letters": (
        config(
            "nemotron_h",
            hybrid_override_pattern="M*-E",
            head_dim=8,
            mamba_num_heads=4,
            mamba_head_dim=16,
            n_groups=1,
            ssm_state_size=8,
            conv_kernel=4,
        ),
        (FULL, 0, SSD),
    ),
    "delta net": (config("qwen3_next", **DELTA, head_dim=8), (FULL, 0, 3 * DELTA_STATE)),
    "delta net in bfloat16": (
        config("qwen3_next", **DELTA, head_dim=8, mamba_ssm_dtype="bfloat16"),
        (FULL, 0, 3 * (3 * (2 * 2 * 8 + 4 * 16) * S + 4 * 16 * 8 * S)),
    ),
    "kimi linear": (
        config(
            "kimi_linear",
            MLA,
            linear_attn_config={
                "num_heads": 4,
                "head_dim": 8,
                "short_conv_kernel_size": 4,
                "full_attn_layers": [4],
                "kda_layers": [1, 2, 3],
            },
        ),
        (LATENT, 0, 3 * (3 * 3 * 4 * 8 * S + 4 * 8 * 8 * F32)),
    ),
    "short convolutions": (
        config("lfm2", full_attn_idxs=[1], conv_L_cache=3),
        (FULL, 0, 3 * 2 * 64 * S),
    ),
    "gated recurrence": (
        config("recurrent_gemma", lru_width=48, attention_window_size=16, conv1d_width=4, head_dim=8),
        (WINDOW, 0, 3 * (3 * 48 * S + 48 * F32)),
    ),
    "rwkv 4": (
        config("rwkv", {"num_hidden_layers": 4, "hidden_size": 64, "attention_hidden_size": 64}),
        (0, 0, 4 * (2 * 64 * S + 3 * 64 * F32)),
    ),
    "rwkv 6": (
        config("rwkv6", {"num_hidden_layers": 4, "hidden_size": 64, "head_size": 16}),
        (0, 0, 4 * (2 * 64 * S + 4 * 16 * 16 * F32)),
    ),
    "two widths": (
        config(
            "mimo_v2_flash",
            head_dim=8,
            v_head_dim=4,
            swa_num_key_value_heads=4,
            swa_head_dim=8,
            swa_v_head_dim=4,
            sliding_window=16,
            hybrid_layer_pattern=[0, 1, 1, 0],
        ),
        (2 * T * 2 * (8 + 4) * S + 2 * 16 * 4 * (8 + 4) * S, 0, 0),
    ),
    "sparse layers keep index keys": (
        config(
            "minimax_m3",
            head_dim=8,
            layer_types=None,
            sparse_attention_config={"use_sparse_attention": True, "sparse_attention_freq": [0, 1, 1], "sparse_index_dim": 16},
        ),
        (4 * FULL, 2 * T * 16 * S, 0),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_rule(name: str) -> None:
    values, expected = ROWS[name]
    assert split(read(values)) == expected


T5: dict[str, Any] = {"num_layers": 6, "num_decoder_layers": 2, "num_heads": 4, "d_kv": 8, "d_model": 64}
CROSSES: dict[str, tuple[dict[str, Any], int]] = {
    "t5": (config("t5", T5), 2 * (T + 30) * 2 * 4 * 8 * S),
    "bart": (config("bart", {"decoder_layers": 2, "decoder_attention_heads": 4, "d_model": 32}), 2 * (T + 30) * 2 * 4 * 8 * S),
    "llama 3.2 vision": (config("mllama_text_model", cross_attention_layers=[1]), 3 * FULL + 30 * 2 * 2 * 8 * S),
}


@pytest.mark.parametrize("name", CROSSES)
def test_layers_that_look_at_an_encoder(name: str) -> None:
    values, expected = CROSSES[name]
    assert split(read(values), encoder_tokens=30) == (expected, 0, 0)


def test_sharing_layers_name_the_last_owner_of_their_kind() -> None:
    layers = read(config("gemma3n_text", num_hidden_layers=10, head_dim=8, sliding_window=16, num_kv_shared_layers=4)).layers
    owners = [kind_of(layer) for layer in layers[:6]]
    assert owners == ["sliding_attention"] * 4 + ["full_attention", "sliding_attention"]
    assert [layer[0] for layer in layers[6:]] == [Shared(5), Shared(5), Shared(5), Shared(4)]


def test_gemma_4_s_full_layers_have_their_own_width_and_heads() -> None:
    values = config(
        "gemma4_text",
        num_hidden_layers=6,
        head_dim=8,
        global_head_dim=16,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        sliding_window=16,
        num_kv_shared_layers=0,
    )
    assert split(read(values)) == (5 * WINDOW + T * 2 * 1 * 16 * S, 0, 0)


def test_a_compressed_model_s_draft_layers_keep_a_window_alone() -> None:
    values = config("deepseek_v4", head_dim=32, sliding_window=16, compress_ratios=[4] * 4, num_nextn_predict_layers=1)
    (((part,)),) = read(values).draft_layers
    assert part == CompressedAttention(32, 16, num_heads=8)


def test_a_recurrent_model_has_no_draft_layers_to_copy() -> None:
    values = config("mamba", {"num_hidden_layers": 2, "hidden_size": 32, "num_nextn_predict_layers": 2})
    assert read(values).draft_layers == ()


BAD: dict[str, tuple[dict[str, Any], type[KvcalcError], str]] = {
    "more sharing layers than layers": (config("gemma3n_text", num_kv_shared_layers=4), ConfigError, "for 4 layers"),
    "blocks that are missing": (config("nemotron-nas", block_configs=BLOCKS[:2]), ConfigError, "every layer's block"),
    "blocks that are no list": (config("nemotron-nas", block_configs={"a": 1}), ConfigError, "every layer's block"),
    "a block that is no object": (config("nemotron-nas", block_configs=[5] * 4), ConfigError, "must be an object"),
    "a group that doesn't divide": (
        config("nemotron-nas", block_configs=[{"attention": {"n_heads_in_group": 3}}] * 4),
        ConfigError,
        "does not divide",
    ),
    "an unknown indexer": (config("glm_moe_dsa", MLA, index_head_dim=8, indexer_types=["both"] * 4), ArchitectureError, "'both'"),
    "an unknown ratio": (config("deepseek_v4", compress_ratios=[5] * 4), ArchitectureError, "'5'"),
    "too few ratios": (config("deepseek_v4", compress_ratios=[4]), ConfigError, "1 entries for 4 layers"),
    "an unknown compressed kind": (config("deepseek_v4", layer_types=["warp"] * 4), ArchitectureError, "'warp'"),
    "a kind that the type can't have": (
        config("llama", layer_types=["mamba"] * 4),
        ArchitectureError,
        "not known for this model type",
    ),
    "a window that nobody names": (config("llama", layer_types=["sliding_attention"] * 4), ConfigError, "no sliding_window"),
    "heads that leave no width": (
        config("xlstm", {"num_blocks": 1, "hidden_size": 4, "num_heads": 128}),
        ConfigError,
        "leave no width",
    ),
    "mamba heads that leave no width": (
        config("mamba2", {"num_hidden_layers": 1, "hidden_size": 4, "num_heads": 64, "head_dim": None, "state_size": 8}),
        ConfigError,
        "leave no width",
    ),
    "a state of an unknown type": (config("qwen3_next", **DELTA, mamba_ssm_dtype="fp7"), DtypeError, "'fp7'"),
    "a window of nothing": (
        config("llama", layer_types=["sliding_attention"] * 4, sliding_window=0),
        ConfigError,
        "sliding_window is 0",
    ),
    "no rank": (config("deepseek_v3", {**SHAPE, "qk_rope_head_dim": 8}, kv_lora_rank=0), ConfigError, "kv_lora_rank is 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_rule_refuses(name: str) -> None:
    values, error, words = BAD[name]
    with pytest.raises(error, match=words) as caught:
        split(read(values))
    assert len(str(caught.value)) < 600
