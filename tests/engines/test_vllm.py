"""vLLM's rules, each figure written as arithmetic. Source: vLLM 0.32.0 and its log lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcalc.core.fields import Field, Fields
from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    Conv,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    Recurrent,
    Shared,
    SlidingAttention,
    State,
)
from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.engines.vllm import serving
from kvcalc.engines.vllm.models import STATEFUL
from kvcalc.engines.vllm.options import card_of
from kvcalc.engines.vllm.setup import pipeline_stages
from kvcalc.errors import EngineError, UsageError
from kvcalc.readers.presets import preset_model

ENGINE = find_engine("vllm")
GIB = 2**30


@pytest.fixture(autouse=True)
def _toys_have_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own model type counts as one with a class for recurrent layers."""
    monkeypatch.setattr(serving, "STATEFUL", STATEFUL | {"toy"})


def a_model(*layers: Layer, model_type: str = "toy", dtype: str = "bfloat16", **fields: object) -> Model:
    known = Fields({name: Field(value, f"test {name}") for name, value in fields.items()})
    return Model("toy", model_type, layers, known, dtype=dtype, metadata={"architectures": ["LlamaForCausalLM"]})


def plan(model: Model, tokens: int | None = 1000, batch_size: int = 1, tp: int = 1, pp: int = 1, **options: OptionValue) -> Tally:
    asked = {name.replace("_", "-"): value for name, value in options.items()}
    return ENGINE.allocate(model, Request(batch_size=batch_size, tokens=tokens, tp_size=tp, pp_size=pp, options=asked))


FULL = FullAttention(8, 128, 128, 32)
LLAMA = a_model(*[(FULL,)] * 32)
PAGE = 16 * 8 * (128 + 128) * 2
MAMBA2 = Recurrent("mamba2", (Conv(3328, 4),), (State((48, 64, 128), None),), num_groups=1)


def test_a_request_takes_whole_blocks_of_every_layer() -> None:
    tally = plan(LLAMA, tokens=1000, batch_size=3)
    assert tally.total_bytes == 3 * 63 * 32 * PAGE  # 63 blocks of 16 hold 1,000 tokens
    assert tally.component_bytes()["kv"] == tally.total_bytes
    assert (tally.report["bytes_per_block"], tally.report["blocks_per_request"], tally.report["block_size"]) == (
        32 * PAGE,
        63,
        16,
    )


def test_with_memory_the_pool_is_what_is_held() -> None:
    tally = plan(LLAMA, tokens=32768, available_bytes=20 * GIB)
    assert tally.report["num_blocks"] == 20 * GIB // (32 * PAGE)
    assert tally.total_bytes == 10240 * 32 * PAGE
    assert (
        tally.report["log_line"] == "GPU KV cache size: 163,840 tokens, Maximum concurrency for 32,768 tokens per request: 5.00x"
    )


def test_one_block_is_held_back_from_the_check_but_not_from_the_count() -> None:
    needed = 63 * 32 * PAGE
    assert plan(LLAMA, available_bytes=needed + 32 * PAGE).fits
    refused = plan(LLAMA, available_bytes=needed + 32 * PAGE - 1)
    assert not refused.fits
    assert refused.report["longest_model_len"] == 62 * 16
    assert "1 bytes are missing" in refused.refusal


def test_minus_one_fits_the_length() -> None:
    model = a_model(*[(FULL,)] * 32, max_position_embeddings=131072)
    model = Model("toy", "toy", model.layers, model.fields, dtype="bfloat16", format="hf")
    tally = plan(model, tokens=None, max_model_len=-1, available_bytes=2 * GIB)
    assert tally.report["max_model_len"] == (2 * GIB // (32 * PAGE) - 1) * 16


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
def test_heads_are_split_and_then_repeated(tp: int, heads: int) -> None:
    assert plan(LLAMA, tp=tp).report["bytes_per_block"] == 32 * 16 * heads * 256 * 2


@pytest.mark.parametrize("dcp", [1, 2])
def test_layers_without_kv_heads_are_refused(dcp: int) -> None:
    with pytest.raises(EngineError, match="0 KV heads"):
        plan(a_model((FullAttention(0, 128, 128, 32),)), tp=2, decode_context_parallel_size=dcp)


def test_the_latent_is_the_same_on_every_rank() -> None:
    model = a_model(*[(LatentAttention(512, 64, 128, 128, 128),)] * 61)
    assert plan(model, tp=8).report["bytes_per_block"] == 61 * 16 * 576 * 2
    assert plan(model, tp=8, decode_context_parallel_size=8).report["blocks_per_request"] == 8  # 125 positions a rank


def test_dense_mla_in_fp8_takes_64_token_blocks() -> None:
    tally = plan(a_model((LatentAttention(512, 64, 128, 128, 128),)), kv_cache_dtype="fp8")
    assert (tally.report["block_size"], tally.report["bytes_per_block"], tally.report["backends"]) == (64, 64 * 576, ["FLASHMLA"])


@pytest.mark.parametrize(("dtype", "row"), [("auto", 576 * 2), ("fp8", 656)])
def test_sparse_mla_keeps_index_keys_beside_the_latent(dtype: str, row: int) -> None:
    model = a_model(*[(LatentAttention(512, 64, 128, 128, 128), Indexer(128))] * 2, index_topk=2048)
    tally = plan(model, kv_cache_dtype=dtype)
    assert tally.report["bytes_per_block"] == 2 * 64 * (row + 132)
    assert tally.component_bytes()["index"] == 2 * 16 * 64 * 132


def test_sparse_mla_takes_no_small_block() -> None:
    model = a_model((LatentAttention(512, 64, 128, 128, 128), Indexer(128)), index_topk=2048)
    with pytest.raises(EngineError, match="no attention backend"):
        plan(model, block_size=32)


def test_windows_and_full_layers_fill_groups_of_the_smaller_number() -> None:
    """Gemma-3-27B: 52 windowed and 10 full layers make six groups of at most 9 and one of 10."""
    pattern = [SlidingAttention(16, 128, 128, 1024, 32)] * 5 + [FullAttention(16, 128, 128, 32)]
    model = a_model(*[(part,) for part in (pattern * 11)[:62]])
    tally = plan(model, tokens=32768, max_num_batched_tokens=8192)
    page = 16 * 16 * 256 * 2
    windowed = -(-(1024 - 1 + 2 * 8192) // 16) + 1
    assert tally.report["bytes_per_block"] == 10 * page
    assert tally.report["blocks_per_request"] == 6 * windowed + 32768 // 16
    assert tally.component_bytes()["other"] == (6 * 10 - 52) * windowed * page  # eight places in the groups are empty


def test_positions_are_those_that_a_layers_own_blocks_hold() -> None:
    window = SlidingAttention(8, 128, 128, 100)
    tally = plan(a_model((FULL,), (window,)), tokens=32768, batch_size=2, max_num_batched_tokens=2048, async_scheduling=False)
    full, sliding = tally.layers
    assert full.positions == 32768
    assert sliding.positions == sum(array.rows for array in sliding.arrays if array.label == "keys") // 2 < 32768


def test_close_counts_are_padded_to_the_larger() -> None:
    window, full = (SlidingAttention(8, 64, 64, 128),), (FullAttention(8, 64, 64),)
    assert plan(a_model(*[window] * 13, *[full] * 12)).report["bytes_per_block"] == 13 * 16 * 8 * 128 * 2
    assert len(_groups(plan(a_model(*[window] * 13, *[full] * 12)))) == 2
    assert len(_groups(plan(a_model(*[window] * 18, *[full] * 12)))) == 3  # 18 is 1.5 times 12


def _groups(tally: Tally) -> list[dict[str, object]]:
    groups = tally.report["groups"]
    assert isinstance(groups, list)
    return groups


def test_without_the_hybrid_manager_windows_cost_like_full_attention() -> None:
    model = a_model((SlidingAttention(8, 64, 64, 128),), (FullAttention(8, 64, 64),))
    tally = plan(model, disable_hybrid_kv_cache_manager=True)
    assert tally.total_bytes == 2 * 63 * 16 * 8 * 128 * 2
    assert len(_groups(tally)) == 1


def test_two_windows_can_not_be_one_full_kind() -> None:
    model = a_model((SlidingAttention(8, 64, 64, 128),), (SlidingAttention(8, 64, 64, 256),), (FullAttention(8, 64, 64),))
    with pytest.raises(EngineError, match="one window size only"):
        plan(model, disable_hybrid_kv_cache_manager=True)


def test_a_smaller_page_holds_more_tokens_where_it_divides() -> None:
    """MiMo-V2: full layers of 4 heads run 32-token blocks beside windowed ones of 8 heads."""
    model = a_model((FullAttention(4, 192, 128),), (SlidingAttention(8, 192, 128, 128),), model_type="mimo_v2_flash")
    assert [group["block_size"] for group in _groups(plan(model))] == [32, 16]


def test_a_page_that_does_not_divide_is_padded() -> None:
    model = a_model((FullAttention(3, 64, 64),), (SlidingAttention(8, 64, 64, 128),))
    tally = plan(model)
    assert {group["page_bytes"] for group in _groups(tally)} == {16 * 8 * 128 * 2}
    assert tally.component_bytes()["other"] == 63 * 16 * 5 * 128 * 2


def test_chunks_count_what_is_in_flight() -> None:
    model = a_model((ChunkedAttention(8, 128, 128, 8192, 40),))
    tally = plan(model, tokens=100_000, max_num_batched_tokens=1024)
    assert tally.report["blocks_per_request"] == (8192 + 2 * 1024) // 16


def test_synchronous_scheduling_keeps_one_batch_in_flight() -> None:
    model = a_model((SlidingAttention(8, 128, 128, 4096, 32),))
    blocks = [
        plan(model, tokens=32768, max_num_batched_tokens=2048, async_scheduling=on).report["blocks_per_request"]
        for on in (True, False)
    ]
    assert blocks == [-(-(4095 + 2 * 2048) // 16) + 1, -(-(4095 + 2048) // 16) + 1]


def test_the_encoders_keys_take_the_schedulers_budget() -> None:
    model = a_model((FullAttention(20, 64, 64, 20), CrossAttention(20, 64, 64, 20)), model_type="whisper")
    assert plan(model, tokens=448, max_num_batched_tokens=8192).report["blocks_per_request"] == 28 + 8192 // 16


def test_other_encoder_decoders_are_not_served() -> None:
    with pytest.raises(EngineError, match="only Whisper"):
        plan(a_model((FullAttention(8, 64, 64), CrossAttention(8, 64, 64)), model_type="t5"))


def test_shared_layers_have_no_page() -> None:
    assert plan(a_model((FULL,), (Shared(0),))).report["bytes_per_block"] == PAGE


def test_a_block_grows_until_it_holds_a_state() -> None:
    """Granite-4.0-H-tiny: (3 × 3328 + 48 × 64 × 128) × 2 bytes in blocks of 16 × 2,048 bytes: 25 of them, 400 tokens."""
    model = a_model(*[(MAMBA2,)] * 9, (FullAttention(4, 128, 128, 12),))
    tally = plan(model, tokens=4096)
    state = (3 * 3328 + 48 * 64 * 128) * 2
    assert tally.report["block_size"] == 16 * -(-state // (16 * 2048)) == 400
    assert tally.report["blocks_per_request"] == 9 * 3 + 11  # two states and a checkpoint each, eleven blocks of 400
    assert plan(model, tokens=4096, enable_prefix_caching=False).report["blocks_per_request"] == 9 + 11


def test_state_groups_are_repeated_for_ranks_only_when_there_is_one() -> None:
    model = a_model((MAMBA2,))
    split = plan(model, tp=2, enable_prefix_caching=False).total_bytes
    assert split == (3 * (3328 + 2 * 128) // 2 + 24 * 64 * 128) * 2
    two = Recurrent("mamba2", (Conv(3328, 4),), (State((48, 64, 128), None),), num_groups=2)
    with pytest.raises(EngineError, match="state groups"):
        plan(a_model((two,)), tp=4)


def test_delta_attention_keeps_float32_states() -> None:
    kda = Recurrent("kda", (Conv(4096, 4),) * 3, (State((32, 128, 128)),))
    tally = plan(a_model((kda,)), enable_prefix_caching=False)
    assert tally.total_bytes == 3 * 3 * 4096 * 2 + 32 * 128 * 128 * 4
    with pytest.raises(EngineError, match="float32 or bfloat16"):
        plan(a_model((kda,)), mamba_ssm_cache_dtype="float16")


def test_v4_packs_pages_side_by_side() -> None:
    """DeepSeek V4 Flash's three kinds of layer at block 256, from 584-byte rows on pages of whole 576 bytes."""
    kinds = {
        0: CompressedAttention(512, 128),
        4: CompressedAttention(512, 128, 4, 128, 1),
        128: CompressedAttention(512, 128, 128, 0, 1),
    }
    model = a_model(*[(kinds[ratio],) for ratio in [0, 0, *[4, 128] * 20, 4]], model_type="deepseek_v4")
    tally = plan(model, tokens=8192)
    assert (tally.report["block_size"], tally.report["bytes_per_block"]) == (256, 1_002_240)
    with pytest.raises(EngineError, match="no whole row"):
        plan(model, block_size=64)


@pytest.mark.parametrize(
    ("dtype", "platform", "row"),
    [
        ("int8_per_token_head", "sm90", 2 * 128 + 8),
        ("int4_per_token_head", "sm90", 128 + 8),
        ("nvfp4", "sm100", 2 * (128 // 2 + 128 // 16)),
        ("fp8_e5m2", "cpu", 2 * 128),
    ],
)
def test_packed_rows(dtype: str, platform: str, row: int) -> None:
    tally = plan(LLAMA, kv_cache_dtype=dtype, platform=platform)
    size = tally.report["block_size"]
    assert isinstance(size, int)
    assert tally.report["bytes_per_block"] == 32 * size * 8 * row


def test_turboquant_leaves_two_layers_at_each_end_alone() -> None:
    tally = plan(LLAMA, kv_cache_dtype="turboquant_k8v4")
    packed = 128 + 64 + 4
    assert (tally.report["block_size"], tally.report["bytes_per_block"]) == (32, 32 * 8 * (4 * 512 + 28 * packed))


def test_alibi_and_fp8_are_refused() -> None:
    with pytest.raises(EngineError, match="ALiBi"):
        plan(a_model((FULL,), model_type="bloom"), kv_cache_dtype="fp8")


@pytest.mark.parametrize(("layers", "stages", "sizes"), [(32, 2, [16, 16]), (61, 8, [7, 7, 8, 8, 8, 8, 8, 7]), (7, 2, [4, 3])])
def test_what_is_left_over_goes_before_the_last_stage(layers: int, stages: int, sizes: list[int]) -> None:
    assert pipeline_stages(layers, stages) == sizes


def test_a_pipeline_counts_its_heaviest_stage() -> None:
    model = a_model(*[(FULL,)] * 7, num_layers=7)
    tally = plan(model, pp=2, available_bytes=GIB)
    assert tally.report["bytes_per_block"] == 4 * PAGE
    assert tally.report["num_blocks"] == GIB // (4 * PAGE)
    ranks = tally.report["ranks"]
    assert isinstance(ranks, list)
    assert [rank["bytes_per_block"] for rank in ranks] == [4 * PAGE, 3 * PAGE]


def test_sequences_of_different_lengths_hold_their_own_blocks() -> None:
    tally = ENGINE.allocate(LLAMA, Request(lengths=(10, 100, 1000)))
    assert tally.total_bytes == (1 + 7 + 63) * 32 * PAGE


def test_a_pool_runs_what_it_has_blocks_for() -> None:
    tally = plan(LLAMA, tokens=32768, batch_size=9, available_bytes=20 * GIB)
    assert tally.warnings == ("5 of the 9 sequences run at once, the others wait",)
    assert tally.component_bytes()["kv"] == 5 * 2048 * 32 * PAGE


def test_memory_by_share_of_a_card() -> None:
    tally = plan(LLAMA, device_memory=80 * GIB, gpu_memory_utilization="0.9", non_kv_bytes=20 * GIB)
    assert tally.report["num_blocks"] == (72 * GIB - 20 * GIB) // (32 * PAGE)


@pytest.mark.parametrize(
    ("tokens", "options"),
    [
        (1000, {"gpu-memory-utilization": "2", "device-memory": 1}),
        (1000, {"max-model-len": 0}),
        (1000, {"max-model-len": 10}),
        (None, {"max-model-len": -1}),
        (1000, {"available-bytes": GIB, "kv-cache-memory-bytes": GIB}),
        (1000, {"available-bytes": GIB, "device-memory": GIB}),
        (1000, {"gpu-memory-utilization": "0.5"}),
        (1000, {"available-bytes": GIB, "non-kv-bytes": 1}),
    ],
)
def test_options_that_can_not_be(tokens: int | None, options: dict[str, OptionValue]) -> None:
    with pytest.raises(UsageError):
        ENGINE.allocate(LLAMA, Request(tokens=tokens, options=options))


@pytest.mark.parametrize(
    ("options", "batched"),
    [
        ({}, 8192),
        ({"device-memory": 24 * GIB}, 2048),
        ({"device-memory": 80 * GIB}, 8192),
        ({"device-memory": 180 * GIB}, 16384),
        ({"device-memory": 80 * GIB, "card": "small"}, 2048),
        ({"device-memory": 24 * GIB, "usage-context": "offline"}, 8192),
        ({"platform": "sm100"}, 16384),
        ({"platform": "cpu", "device-memory": 80 * GIB}, 2048),
    ],
    ids=str,
)
def test_what_is_scheduled_in_one_step_goes_by_the_card(options: dict[str, OptionValue], batched: int) -> None:
    """VLLM 0.32.0, engine/arg_utils.py: get_batch_defaults."""
    model = a_model(*[(FULL,)] * 4, max_position_embeddings=131072)
    request = Request(tokens=100_000, options=options)
    assert ENGINE.allocate(model, request).request["max_num_batched_tokens"][0] == batched


def test_an_a100_is_batched_like_a_small_card() -> None:
    assert [card_of(79 * GIB, name) for name in ("h100", "NVIDIA A100-SXM4-80GB")] == ["large", "small"]


def test_draft_layers_share_the_pool_of_the_models_own() -> None:
    """A public start of Qwen3.6-27B on 0.23.0: 17.25 GiB, one draft token, no prefix caching: 255,975 tokens.

    One attention layer more makes groups of 17 layers; each request keeps two blocks a group of states.
    """
    options: dict[str, OptionValue] = {
        "release": "0.23.0",
        "max-model-len": 131072,
        "available-bytes": 17 * GIB + GIB // 4,
        "enable-prefix-caching": False,
    }
    report = ENGINE.allocate(preset_model("qwen3.6-27b"), Request(draft=True, options=options)).report
    assert (report["num_blocks"], report["kv_tokens"]) == (17.25 * GIB // (17 * 1_638_400 * 2), 255_975)


def test_a_length_beyond_the_models_own_is_refused_unless_allowed() -> None:
    model = Model("toy", "toy", ((FULL,),), Fields({"max_position_embeddings": Field(2048, "")}), dtype="bfloat16", format="hf")
    with pytest.raises(EngineError, match="made for"):
        plan(model, tokens=4096)
    assert plan(model, tokens=4096, allow_long_max_model_len=True).fits


def test_a_linear_rope_stretches_the_length() -> None:
    fields = Fields({"max_position_embeddings": Field(2048, ""), "rope_scaling": Field({"type": "linear", "factor": 2.0}, "")})
    assert plan(Model("toy", "toy", ((FULL,),), fields, dtype="bfloat16", format="hf"), tokens=4096).fits


@pytest.mark.parametrize("kind", [["linear"], ["yarn"], 1, None])
def test_a_rope_whose_kind_is_no_word_is_of_no_stretched_kind(kind: object) -> None:
    fields = Fields({"max_position_embeddings": Field(2048, ""), "rope_scaling": Field({"rope_type": kind, "factor": 2.0}, "")})
    assert plan(Model("toy", "toy", ((FULL,),), fields, dtype="bfloat16", format="hf"), tokens=4096).fits


def test_classes_that_were_served_once() -> None:
    model = Model("toy", "mpt", ((FULL,),), Fields({}), format="hf", metadata={"architectures": ["MptForCausalLM"]})
    with pytest.raises(EngineError, match="the last release that did"):
        plan(model)


def test_a_config_wide_window_counts_in_every_layer() -> None:
    model = a_model(*[(FULL,)] * 2, sliding_window=256)
    assert [group["kind"] for group in _groups(plan(model))] == ["SlidingWindowSpec"]


def test_an_encoder_has_no_cache() -> None:
    tally = plan(a_model((FULL,), is_causal=False), available_bytes=GIB)
    assert (tally.total_bytes, tally.report["num_blocks"]) == (0, 1)


PARTS = (
    FullAttention(8, 64, 64, 8),
    FullAttention(4, 64, 64, 8),
    SlidingAttention(8, 64, 64, 128, 8),
    SlidingAttention(4, 64, 64, 512, 8),
    ChunkedAttention(8, 64, 64, 256, 8),
    LatentAttention(512, 64, 8, 128, 128),
    MAMBA2,
    Recurrent("short_conv", (Conv(1024, 3),)),
)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=24), st.integers(1, 5000), st.integers(1, 4))
def test_a_tally_is_whole_blocks(parts: list[object], tokens: int, batch_size: int) -> None:
    """What the layers, their padding and the groups' gaps hold adds up to blocks × bytes a block."""
    model = a_model(*[(part,) for part in parts])  # type: ignore[arg-type]
    try:
        tally = plan(model, tokens=tokens, batch_size=batch_size)
    except EngineError:
        return
    blocks, size = tally.report["blocks_per_request"], tally.report["bytes_per_block"]
    assert isinstance(blocks, int)
    assert isinstance(size, int)
    assert tally.total_bytes == batch_size * blocks * size
    assert all(array.rows >= 0 for array in tally.shared)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=12), st.integers(1, 3000), st.integers(0, GIB))
def test_the_longest_length_is_maximal(parts: list[object], tokens: int, memory: int) -> None:
    model = a_model(*[(part,) for part in parts])  # type: ignore[arg-type]
    try:
        tally = plan(model, tokens=tokens, available_bytes=memory, max_num_batched_tokens=8192)
    except EngineError:
        return
    longest = tally.report["longest_model_len"]
    assert isinstance(longest, int)
    assert tally.fits is (longest == tokens)
    if longest > 0:
        assert plan(model, tokens=longest, available_bytes=memory, max_num_batched_tokens=8192).fits
    if longest < tokens:
        assert not plan(model, tokens=longest + 1, available_bytes=memory, max_num_batched_tokens=8192).fits


# What users' logs print: memory to 0.01 GiB, tokens exactly (releases before 0.32 too, where the arithmetic is the same).
LOGS = [
    ("llama-3-8b", 1, None, 2.89, 23_648, 4096),
    ("qwen3-32b", 2, None, 33.66, 275_760, 40_960),
    ("llama-3.1-70b", 4, None, 32.06, 420_208, 131_072),
    ("qwen3-30b-a3b", 1, "fp8", 10.55, 230_528, 32_768),
    ("qwen2.5-1.5b", 1, None, 0.56, 20_992, 16_384),
]


@pytest.mark.parametrize(("name", "tp_size", "dtype", "gib", "tokens", "length"), LOGS, ids=[str(log[0]) for log in LOGS])
def test_published_logs(name: str, tp_size: int, dtype: str | None, gib: float, tokens: int, length: int) -> None:
    """The tokens of each log lie between those of the memory rounded down and up."""
    found = []
    for memory in (gib - 0.005, gib + 0.005):
        options: dict[str, OptionValue] = {"available-bytes": int(memory * 2**30), **({"kv-cache-dtype": dtype} if dtype else {})}
        tally = ENGINE.allocate(preset_model(name), Request(tokens=length, tp_size=tp_size, options=options))
        found.append(tally.report["kv_tokens"])
    assert found[0] <= tokens <= found[1]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "length", "dtype", "gib"),
    [("llama-3-8b", 8192, None, 1.0), ("qwen2.5-3b", 32_000, None, 1.0986), ("qwen3-30b-a3b", 32_768, "fp8", 1.5)],
)
def test_needs_of_published_refusals(name: str, length: int, dtype: str | None, gib: float) -> None:
    """One request of a length: 128, 36 and 48 KiB a token, as the errors of such models print them."""
    options: dict[str, OptionValue] = {"available-bytes": 2**20, **({"kv-cache-dtype": dtype} if dtype else {})}
    tally = ENGINE.allocate(preset_model(name), Request(tokens=length, options=options))
    assert not tally.fits
    assert int(str(tally.report["needed_bytes"])) / 2**30 == pytest.approx(gib, abs=0.0001)
