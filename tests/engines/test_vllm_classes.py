"""vLLM's model classes that read a file otherwise than its type suggests. Figures by hand from vLLM 0.32.0's source.

Each case is a small made-up file, and bytes written as layers × heads × widths × 2 bytes as the class named registers them.
"""

from __future__ import annotations

import pytest

from kvcalc.core.model import OptionValue, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.errors import ConfigError, EngineError
from kvcalc.readers.hf_config import model_of

ENGINE = find_engine("vllm")
BF16 = 2
SIZES: dict[str, object] = {
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 32768,
    "dtype": "bfloat16",
}
PAGE = 16 * 2 * (128 + 128) * BF16  # a block of 16 tokens of one layer of those sizes


def planned(config: dict[str, object], tokens: int = 8192, **options: OptionValue) -> Tally:
    asked = {"max-num-batched-tokens": 1024, **{name.replace("_", "-"): value for name, value in options.items()}}
    model = model_of({**SIZES, **config}, "config.json", "toy")
    return ENGINE.allocate(model, Request(batch_size=1, tokens=tokens, options=asked))


def groups(tally: Tally) -> list[tuple[str, int, int, int]]:
    """(kind, layers, block size, blocks a request) of every group."""
    rows = tally.report["groups"]
    assert isinstance(rows, list)
    return [(row["kind"], row["layers"], row["block_size"], row["blocks_per_request"]) for row in rows]


def sliding_blocks(window: int, block: int, tokens: int = 8192, in_flight: int = 2 * 1024) -> int:
    return -(-min(window - 1 + in_flight, tokens) // block) + 1


# Windows -------------------------------------------------------------------------------------------------------------


def test_step_3_5_alternates_where_no_kinds_are_named() -> None:
    """model_executor/models/step3p5.py: layer_idx % 2 == 0 takes the window."""
    config = {"model_type": "step3p5", "architectures": ["Step3p5ForCausalLM"], "num_hidden_layers": 4, "sliding_window": 512}
    tally = planned(config)
    assert groups(tally) == [("SlidingWindowSpec", 2, 16, sliding_blocks(512, 16)), ("FullAttentionSpec", 2, 16, 512)]
    assert tally.report["bytes_per_block"] == 2 * PAGE


def test_step_3_5_windows_have_heads_of_their_own() -> None:
    """step3p5.py: attention_other_setting replaces heads, groups and width where the kind matches."""
    config = {
        "model_type": "step3p5",
        "num_hidden_layers": 4,
        "sliding_window": 512,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
        "attention_other_setting": {
            "attention_type": "sliding_attention",
            "num_attention_heads": 16,
            "num_attention_groups": 4,
            "head_dim": 128,
        },
    }
    # windowed pages are twice as large, so full layers run blocks of twice the tokens
    assert groups(planned(config)) == [("FullAttentionSpec", 2, 32, 256), ("SlidingWindowSpec", 2, 16, sliding_blocks(512, 16))]


def test_k_exaone_lists_a_window_for_each_layer() -> None:
    """model_executor/models/exaone_moe.py: sliding_windows[layer] beside layer_types."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]
    config = {
        "model_type": "exaone_moe",
        "num_hidden_layers": 4,
        "layer_types": kinds,
        "sliding_window": 64,
        "sliding_windows": [128, 128, None, None],
    }
    assert groups(planned(config)) == [("SlidingWindowSpec", 2, 16, sliding_blocks(128, 16)), ("FullAttentionSpec", 2, 16, 512)]
    with pytest.raises(ConfigError, match="window"):
        planned({**config, "sliding_windows": [128, "all", None, None]})


def test_pangu_pro_v2_keeps_everything_whatever_its_windows() -> None:
    """layers/attention/static_sink_attention.py: SinkFullAttentionSpec has no window; openpangu.py: no replication."""
    config = {
        "model_type": "PanguProMoEV2",
        "architectures": ["PanguProMoEV2ForCausalLM"],
        "num_hidden_layers": 4,
        "qk_nope_dim": 128,
        "qk_rope_dim": 64,
        "v_channels": 128,
        "param_sink_number": 128,
        "interleaved_sliding_window": [512, None],
    }
    tally = planned(config)
    assert tally.report["bytes_per_block"] == 4 * 16 * 2 * (192 + 128) * BF16
    assert groups(tally) == [("FullAttentionSpec", 4, 16, 512)]
    assert tally.report["backends"] == ["FLASH_ATTN_DIFFKV"]
    with pytest.raises(EngineError, match="2 KV heads"):
        planned(config, tensor_parallel_size=4)


@pytest.mark.parametrize("model_type", ["Keye", "KeyeVL1_5", "minicpmo", "minicpmv", "midashenglm"])
def test_a_window_that_is_switched_off_does_not_count(model_type: str) -> None:
    """The Qwen classes that these run null sliding_window where use_sliding_window is false."""
    config = {"model_type": model_type, "num_hidden_layers": 2, "sliding_window": 4096, "use_sliding_window": False}
    assert groups(planned(config)) == [("FullAttentionSpec", 2, 16, 512)]


def test_mimo_v2_keeps_narrow_values_and_names_its_own_backend() -> None:
    """model_executor/models/mimo_v2.py: FLASH_ATTN_DIFFKV, sliding_window_size, swa_* heads."""
    config = {
        "model_type": "mimo_v2_flash",
        "architectures": ["MiMoV2FlashForCausalLM"],
        "num_hidden_layers": 4,
        "head_dim": 192,
        "v_head_dim": 128,
        "swa_num_attention_heads": 8,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 192,
        "swa_v_head_dim": 128,
        "sliding_window": 129,
        "sliding_window_size": 128,
        "hybrid_layer_pattern": [0, 1, 1, 0],
    }
    tally = planned(config)
    assert groups(tally) == [("FullAttentionSpec", 2, 32, 256), ("SlidingWindowSpec", 2, 16, sliding_blocks(128, 16))]
    assert tally.report["bytes_per_block"] == 2 * 16 * 4 * (192 + 128) * BF16
    assert tally.report["backends"] == ["FLASH_ATTN_DIFFKV"]
    with pytest.raises(EngineError, match="FLASH_ATTN_DIFFKV"):
        planned(config, platform="sm100", kv_cache_dtype="fp8")  # FlashAttention 2 there, which caches no fp8


# Latents -------------------------------------------------------------------------------------------------------------

LATENT: dict[str, object] = {
    "num_hidden_layers": 2,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "index_head_dim": 128,
    "index_topk": 2048,
}
LATENT_ROW = (512 + 64) * BF16


def test_a_latent_model_that_vllm_does_not_know_as_one_has_plain_heads() -> None:
    """transformers_utils/model_arch_config_convertor.py lists axk1, not AXK1; AXK1.py then pads V to the keys' width."""
    plain = planned({**LATENT, "model_type": "AXK1", "index_topk": None})
    known = planned({**LATENT, "model_type": "axk1", "index_topk": None})
    assert plain.report["bytes_per_block"] == 2 * 16 * 8 * 2 * (128 + 64) * BF16
    assert known.report["bytes_per_block"] == 2 * 16 * LATENT_ROW


def test_hy_v4_is_sparse_where_its_kinds_say_so() -> None:
    """models/hy_v4/nvidia/attention.py: layer_types decides; indexer_types says who keeps index keys."""
    dense = planned({**LATENT, "model_type": "hy_v4"})
    assert dense.report["bytes_per_block"] == 2 * 16 * LATENT_ROW
    kinds = {"layer_types": ["indexed_attention"] * 2, "indexer_types": ["full", "shared"]}
    sparse = planned({**LATENT, **kinds, "model_type": "hy_v4"})
    assert sparse.report["bytes_per_block"] == 64 * (2 * LATENT_ROW + 132)  # one indexer: 128 fp8 and a float32 scale


# States --------------------------------------------------------------------------------------------------------------

BAILING: dict[str, object] = {
    **LATENT,
    "model_type": "bailing_hybrid",
    "num_hidden_layers": 5,
    "layer_group_size": 2,
    "index_topk": None,
    "short_conv_kernel_size": 4,
}


def test_bailing_2_5_and_3_share_a_type_but_not_their_states() -> None:
    """bailing_moe_linear.py: one head × head state in the model's type. bailing_moe_v3.py: KDA, float32, tails attend."""
    older = planned({**BAILING, "architectures": ["BailingMoeV2_5ForCausalLM"]})
    newer = planned({**BAILING, "architectures": ["BailingMoeV3ForCausalLM"]}, mamba_ssm_cache_dtype="bfloat16")
    for tally, state, attending in (
        (older, 8 * 128 * 128 * BF16, 2),
        (newer, 3 * 8 * 128 * 3 * BF16 + 8 * 128 * 128 * 4, 3),
    ):
        block = -(-state // (128 * LATENT_ROW)) * 128  # MLA hybrids: multiples of 128 tokens
        assert tally.report["block_size"] == block
        caches = {kind: sum(layers for one, layers, *_ in groups(tally) if one == kind) for kind, *_ in groups(tally)}
        assert caches == {"MambaSpec": 5 - attending, "MLAAttentionSpec": attending}


NEMOTRON: dict[str, object] = {
    "model_type": "nemotron_h",
    "num_hidden_layers": 2,
    "hybrid_override_pattern": "M*",
    "mamba_num_heads": 16,
    "mamba_head_dim": 64,
    "n_groups": 1,
    "ssm_state_size": 128,
    "conv_kernel": 4,
}


@pytest.mark.parametrize(
    ("name", "element"), [("NemotronHForCausalLM", 4), ("NemotronH_Nano_VL_V2", 4), ("NemotronH_Super_Omni_Reasoning_V3", BF16)]
)
def test_the_class_decides_the_type_of_states(name: str, element: int) -> None:
    """models/config.py: MODELS_CONFIG_MAP makes float32 the default for some of the classes around one decoder."""
    state = (16 * 64 + 2 * 128) * 3 * BF16 + 16 * 64 * 128 * element
    token = 2 * 256 * BF16
    block = -(-state // (16 * token)) * 16
    text = {**SIZES, **NEMOTRON}
    tally = planned(text if name.endswith("CausalLM") else {"model_type": "wrapper", "llm_config": text, "architectures": [name]})
    assert tally.report["block_size"] == block


def test_an_all_recurrent_file_of_a_hybrid_class_is_cached_for_prefixes() -> None:
    """config/model.py: is_prefix_caching_supported asks the class, not the layers: 2 + 1 blocks a Mamba-2 state."""
    config = {"model_type": "granitemoehybrid", "num_hidden_layers": 2, "layer_types": ["mamba"] * 2}
    config |= {"mamba_n_heads": 16, "mamba_d_head": 128, "mamba_d_state": 128}
    assert planned(config).report["blocks_per_request"] == 3
    assert planned(config, enable_prefix_caching=False).report["blocks_per_request"] == 1


def test_kimi_k3s_bounded_gate_stores_a_checkpoint() -> None:
    """models/kimi_k3/nvidia/kda.py: num_prefill_checkpoint_blocks with FlashKDA, which wants a bound and heads of 128."""
    own: dict[str, object] = {
        "num_heads": 8,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
        "kda_layers": [1],
        "full_attn_layers": [2],
    }
    config = {**LATENT, "index_topk": None, "model_type": "kimi_linear"}
    free = planned({**config, "linear_attn_config": own})
    bounded = planned({**config, "linear_attn_config": {**own, "gate_lower_bound": -5.0}})
    states = [[row[3] for row in groups(tally) if row[0] == "MambaSpec"] for tally in (free, bounded)]
    assert states == [[2], [3]]


INKLING: dict[str, object] = {
    "model_type": "inkling_text",
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 128,
    "sliding_window_size": 512,
    "conv_kernel_size": 4,
    "local_layer_ids": [0, 1],
}


def test_inklings_convolutions_are_windows_of_their_own() -> None:
    """models/inkling/nvidia/sconv_swa_attn.py: 2·128 + 2·(1024/4) channels a head, made 1,024; blocks of 4 tokens."""
    tally = planned(INKLING)
    conv_page = 4 * 4 * 1024 * BF16  # kernel × heads × width
    assert conv_page == 16 * 4 * (128 + 128) * BF16 // 1  # an attention page of 16 tokens is as large here
    assert tally.report["bytes_per_block"] == 2 * conv_page
    assert groups(tally) == [
        ("SlidingWindowSpec", 2, 16, sliding_blocks(512, 16)),
        ("SlidingWindowSpec", 2, 4, sliding_blocks(4, 4)),
        ("SlidingWindowSpec", 2, 4, sliding_blocks(4, 4)),
        ("FullAttentionSpec", 2, 16, 512),
    ]
    assert tally.report["backends"] == ["FLASH_ATTN", "INKLING_SCONV_SWA"]
    with pytest.raises(EngineError, match="KV heads"):
        planned(INKLING, tensor_parallel_size=8)
    with pytest.raises(EngineError, match="local_layer_ids"):
        planned({**INKLING, "local_layer_ids": None, "layer_types": ["hybrid"] * 4})


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "step1", "num_hidden_layers": 2}, "ALiBi"),
        ({"model_type": "llama", "num_hidden_layers": 2, "architectures": ["VoxtralRealtimeGeneration"]}, "encoder"),
        ({"model_type": "gpt_neo", "num_hidden_layers": 2}, "GPTNeoForCausalLM"),
        ({"model_type": "lfm3", "num_hidden_layers": 3}, "runs no recurrent layers"),
    ],
)
def test_what_is_not_served_or_not_modelled_is_refused_by_name(config: dict[str, object], reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        planned(config)


def test_param2_splits_its_heads_and_repeats_none() -> None:
    """model_executor/models/param2moe.py: assert num_kv_heads % tp_size == 0."""
    config = {"model_type": "param2moe", "num_hidden_layers": 2}
    assert planned(config, tensor_parallel_size=2).report["bytes_per_block"] == 2 * 16 * 1 * 256 * BF16
    with pytest.raises(EngineError, match="2 KV heads"):
        planned(config, tensor_parallel_size=4)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "architectures": ["SmolVLMForConditionalGeneration"]},
        {"model_type": "mamba2", "num_heads": 16, "head_dim": 64, "n_groups": 1, "state_size": 128},
    ],
)
def test_classes_without_pipeline_stages_refuse_them(config: dict[str, object]) -> None:
    """model_executor/models/interfaces.py: SupportsPP is not among the class's bases."""
    with pytest.raises(EngineError, match="pipeline"):
        planned({**config, "num_hidden_layers": 4}, pipeline_parallel_size=2)


def test_embedding_classes_that_see_both_ways_keep_nothing() -> None:
    """models/config.py: LlamaBidirectionalConfig makes every layer an encoder's."""
    config = {"model_type": "llama", "num_hidden_layers": 2, "architectures": ["LlamaBidirectionalModel"]}
    assert planned(config).total_bytes == 0


def test_dots3_note_rows_are_all_as_wide_as_the_windowed_ones() -> None:
    """models/dots3_note/nvidia/model.py: physical_head_size; a block-outermost layout keeps the index pages small."""
    kinds = ["full_attention", "sliding_attention", "sliding_attention"] * 2
    config = {**LATENT, "model_type": "dots3_note_text", "num_hidden_layers": 6, "layer_types": kinds, "sliding_window_size": 512}
    config |= {"swa_kv_lora_rank": 1024, "swa_qk_rope_head_dim": 64}
    tally = planned(config)
    row, index_row = (1024 + 64) * BF16, 128 + 4
    # two full layers with their index pages, and four windowed ones in two groups of two; blocks lie whole rows apart
    assert tally.report["bytes_per_block"] == -(-64 * 2 * (row + index_row) // row) * row
    windowed = ("SlidingWindowMLASpec", 2, 64, sliding_blocks(512, 64))
    assert [group[1:] for group in groups(tally)] == [(4, 64, 128), windowed[1:], windowed[1:]]
    with pytest.raises(EngineError, match="own type alone"):
        planned(config, kv_cache_dtype="fp8")


def test_glm_5_next_pools_its_index_and_keeps_the_open_pool_in_a_ring() -> None:
    """models/glm5next/common/attention.py: tokens_per_state = index_kpool, CircularBufferSpec; kda.py: a checkpoint."""
    config = {**LATENT, "model_type": "glm5_next_text", "num_hidden_layers": 4, "qk_rope_head_dim": 0, "index_kpool": 16}
    config |= {"layer_types": ["linear_attention"] * 3 + ["indexed_attention"], "linear_lower_bound": -5.0}
    config |= {"linear_num_heads": 8, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
    tally = planned(config)
    row = 512 * BF16
    state = 3 * 8 * 128 * 3 * BF16 + 8 * 128 * 128 * 4
    block = -(-state // (512 * row)) * 512  # 16 tokens a row, 32 rows a page of the index kernels
    assert tally.report["block_size"] == block
    # one latent and its index page make a block; each state, padded to a latent's page, and the ring have groups of their own
    page, index_page = block * row, block // 16 * 132
    assert block == 16 * 64  # a whole page of the index kernels, so that blocks need only lie whole latent rows apart
    assert tally.report["bytes_per_block"] == -(-(page + index_page) // row) * row
    assert sorted(groups(tally)) == [
        ("CircularBufferSpec", 1, 16, 1),
        ("MLAAttentionSpec", 2, block, -(-8192 // block)),
        *[("MambaSpec", 1, block, 3)] * 3,
    ]


def test_classes_that_left_vllm_may_run_by_the_librarys_own_code() -> None:
    """registry.py: inspect_model_cls tries the Transformers backend before it says that a class was supported once."""
    config = {"model_type": "dots1", "architectures": ["Dots1ForCausalLM"], "num_hidden_layers": 4}
    kinds = ["full_attention", "full_attention", "sliding_attention", "sliding_attention"]
    found = groups(planned({**config, "layer_types": kinds, "sliding_window": 512}))
    assert found == [("FullAttentionSpec", 2, 16, 512), ("SlidingWindowSpec", 2, 16, sliding_blocks(512, 16))]
