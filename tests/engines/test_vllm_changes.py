"""What changed from one vLLM release to the next, and what a release or a device refuses. Figures by hand from the sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.fields import Fields
from kvcalc.core.layers import FullAttention, SlidingAttention
from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.engines.vllm.backends import CPU, SM80, SM90, SM100, SM120, Need, choose
from kvcalc.errors import EngineError, UsageError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import preset_model
from kvcalc.units import ceil_div

ENGINE = find_engine("vllm")
GIB = 2**30
MEASURED = json.loads((Path(__file__).parents[1] / "data" / "vllm.json").read_text())["configs"]
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "bfloat16",
}


def planned(model: Model | str | Mapping[str, Any], tokens: int = 32768, /, **options: OptionValue) -> Tally:
    """The tally of a preset, or of a file, under options whose names have underscores here."""
    if isinstance(model, str):
        model = preset_model(model)
    elif not isinstance(model, Model):
        model = model_of(model, "config.json", "file")
    draft = options.pop("draft", False) is True
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return ENGINE.allocate(model, Request(tokens=tokens, draft=draft, options=given))


def block_size(model: str | Mapping[str, Any], release: str, **options: OptionValue) -> object:
    return planned(model, release=release, **options).report["block_size"]


# Blocks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "options", "size"),
    [
        ("0.10.0", {}, 64),  # FlashMLA on Hopper
        ("0.10.0", {"block-size": 128}, 64),  # and nothing else
        ("0.11.1", {"block-size": 128}, 128),  # or its multiples
        ("0.17.0", {"block-size": 16}, 64),
        ("0.18.0", {}, 16),  # FlashAttention's, as the backend says
        ("0.10.0", {"platform": "sm100"}, 16),
        ("0.12.0", {"platform": "sm100"}, 128),  # CUTLASS
        ("0.16.0", {"platform": "sm100"}, 64),  # FlashInfer
        ("0.16.0", {"platform": "sm100", "block-size": 32}, 32),
        ("0.18.0", {"platform": "sm100"}, 32),
        ("0.33.0", {"platform": "sm80"}, 16),  # Triton
        ("0.33.0", {"platform": "sm120"}, 16),
    ],
)
def test_blocks_of_latent_models(release: str, options: dict[str, OptionValue], size: int) -> None:
    assert planned("deepseek-v3", release=release, **options).report["block_size"] == size


@pytest.mark.parametrize(("release", "unit"), [("0.11.1", 64), ("0.19.1", 64), ("0.20.0", 16), ("0.26.0", 16), ("0.27.0", 128)])
def test_blocks_of_latent_hybrids_hold_a_state_in_the_releases_own_steps(release: str, unit: int) -> None:
    """Kimi Linear: 32 heads of 128 × 128 in float32 and three windows of three columns; 1,152 B a position."""
    state = 32 * 128 * 128 * 4 + 3 * 3 * 32 * 128 * 2
    assert block_size("kimi-linear-48b", release) == unit * ceil_div(state, unit * 1152)


def test_wide_heads_on_blackwell_took_steps_of_32() -> None:
    """0.11.1 to 0.17: heads of 256 on SM 10.0; Qwen3-Next's state in float32 or bfloat16 fits either way."""
    for release, unit in (("0.14.0", 32), ("0.18.0", 16), ("0.11.0", 16)):
        size = block_size("qwen3-next-80b", release, platform="sm100")
        assert isinstance(size, int)
        assert size % unit == 0
        assert (size - unit) * 2 * 2 * 256 * 2 < 3 * 8192 * 2 + 32 * 128 * 128 * 2 <= size * 2 * 2 * 256 * 2


def test_states_of_every_block_were_kept_once() -> None:
    """Granite 4.0 H on 0.20 with prefix caching: a state for each block, which is a multiple of the kernel's chunk of 256."""
    state, token = 3 * 8448 * 2 + 128 * 64 * 128 * 2, 2 * 8 * 128 * 2
    size = 256 * ceil_div(ceil_div(state, token), 256)
    config = MEASURED["granite-4.0-h-small"]
    found = planned(config, release="0.20.0", enable_prefix_caching=True).report
    assert (found["block_size"], found["blocks_per_request"]) == (size, 10 * ceil_div(32768, size))
    drafted = planned(config, release="0.22.0", enable_prefix_caching=True, num_speculative_tokens=2).report
    assert drafted["blocks_per_request"] == 10 * ceil_div(32768, int(str(drafted["block_size"]))) + 9 * 2
    aligned = planned(config, release="0.20.0", enable_prefix_caching=True, num_speculative_tokens=2).report
    assert aligned["blocks_per_request"] == ceil_div(32768, int(str(aligned["block_size"]))) + 9 * (2 + 2)


@pytest.mark.parametrize(
    ("release", "state_blocks"),
    [("0.10.2", 1), ("0.14.0", 1), ("0.25.1", 1), ("0.26.0", 2), ("0.27.0", 1), ("0.28.0", 2), ("0.33.0", 3)],
)
def test_prefix_caching_of_gated_delta_nets_by_default(release: str, state_blocks: int) -> None:
    groups = planned("qwen3-next-80b", release=release).report["groups"]
    assert isinstance(groups, list)
    assert {group["blocks_per_request"] for group in groups if group["kind"] == "MambaSpec"} == {state_blocks}


# Memory --------------------------------------------------------------------------------------------------------------


def test_the_start_check_by_release() -> None:
    """Gemma 2: 21 windowed and 21 full layers in two groups. Without windows both take as many blocks as one of them."""
    page, memory = 16 * 2 * 8 * 256 * 2, 8 * GIB
    full, sliding = 8192 // 16, (4096 - 1 + 2048) // 16 + 2
    for release, blocks in (("0.13.0", full + sliding), ("0.14.0", sliding), ("0.19.0", full + sliding)):
        found = planned("gemma-2-9b", 8192, release=release, available_bytes=memory, max_num_batched_tokens=2048).report
        assert found["needed_bytes"] == 21 * page * blocks
        assert found["usable_bytes"] == memory
    found = planned("gemma-2-9b", 8192, release="0.29.0", available_bytes=memory, max_num_batched_tokens=2048).report
    assert found["usable_bytes"] == memory - 21 * page


def test_fitting_a_length_came_with_0_14() -> None:
    with pytest.raises(UsageError, match="fits no length"):
        planned(LLAMA, 0, release="0.13.0", max_model_len=-1, available_bytes=GIB)
    found = planned(LLAMA, 0, release="0.14.0", max_model_len=-1, available_bytes=GIB)
    assert found.report["max_model_len"] == GIB // (4 * 16 * 4096) * 16


def test_an_override_replaced_the_memory_of_the_start_check_in_0_20_1() -> None:
    few = {"num_gpu_blocks_override": 10, "available_bytes": 64 * GIB}
    assert planned(LLAMA, release="0.20.0", **few).fits
    assert not planned(LLAMA, release="0.20.1", **few).fits
    assert not planned(LLAMA, release="0.20.0", num_gpu_blocks_override=10).fits


def test_the_first_concurrency_was_tokens_by_length() -> None:
    """0.9.0 divides tokens by the length; 0.9.1 blocks by those of one request, which are whole."""
    for release, blocks in (("0.9.0", 1000 / 16), ("0.9.1", 63)):
        found = planned(LLAMA, 1000, release=release, available_bytes=GIB).report
        assert found["max_concurrency"] == 4096 / blocks
        assert found["kv_tokens"] == 4096 * 16


def test_shares_and_cards_by_release() -> None:
    assert [ENGINE.share({"release": release})[0] for release in ("0.19.1", "0.20.0")] == ["0.9", "0.92"]
    assert ENGINE.share({})[0] == "0.92"
    for release, batched in (("0.27.1", 8192), ("0.28.0", 16384)):
        assert planned(LLAMA, platform="sm100", release=release).request["max_num_batched_tokens"][0] == batched
    assert ENGINE.on_card(80 * GIB, "h100") == {"card": "large", "platform": "sm90"}
    assert ENGINE.on_card(32 * GIB, "rtx-5090") == {"card": "small", "platform": "sm120"}
    assert ENGINE.on_card(200 * GIB, "a card of no table") == {"card": "huge"}


def test_drafts_look_ahead_where_several_layers_follow_one_another() -> None:
    file = {**LLAMA, "sliding_window": 512, "num_nextn_predict_layers": 3}
    for release, more in (("0.27.0", 0), ("0.28.0", 2)):
        found = planned(file, release=release, draft=True, max_num_batched_tokens=1024).report
        assert found["blocks_per_request"] == ceil_div(512 - 1 + more + 2 * 1024, 16) + 1
    notes = planned(file, draft=True).notes
    assert any("layers from 4 on are draft layers" in note for note in notes)


# Types ---------------------------------------------------------------------------------------------------------------


def test_types_came_one_by_one() -> None:
    with pytest.raises(EngineError, match=r"it came with 0\.20\.0"):
        planned(LLAMA, release="0.19.0", kv_cache_dtype="int8_per_token_head")
    with pytest.raises(EngineError, match="not in float16"):
        planned(LLAMA, kv_cache_dtype="float16")
    assert planned(LLAMA, release="0.32.0", kv_cache_dtype="float16").total_bytes == planned(LLAMA).total_bytes


def test_one_type_is_named_once() -> None:
    from kvcalc.dtypes import find_dtype

    bf16, fp8 = find_dtype("bf16"), find_dtype("fp8_e4m3")
    with pytest.raises(UsageError, match="both name"):
        ENGINE.allocate(preset_model("llama-8b"), Request(tokens=9, k_dtype=bf16, options={"kv-cache-dtype": "fp8"}))
    assert ENGINE.allocate(preset_model("llama-8b"), Request(tokens=9, k_dtype=fp8, options={"kv-cache-dtype": "fp8"})).fits


def test_classes_that_pass_no_cache_type_on() -> None:
    """Falcon's rotary layers, and Baichuan's with ALiBi: a cache of fp8 stays in the model's type."""
    rotary = planned("falcon-7b", 2048, kv_cache_dtype="fp8")
    assert rotary.total_bytes == planned("falcon-7b", 2048).total_bytes
    assert any("passes no cache type on" in note for note in rotary.notes)
    shape = {**LLAMA, "model_type": "baichuan", "architectures": ["BaichuanForCausalLM"]}
    for hidden, ratio in ((4096, 2), (5120, 1)):
        file = {**shape, "hidden_size": hidden, "num_key_value_heads": 32}
        both = [planned(file, 4096, release="0.20.0", **given).total_bytes for given in ({}, {"kv_cache_dtype": "fp8"})]
        assert both[0] == ratio * both[1]


# Backends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("need", "platform", "block", "reason"),
    [
        (Need(12, "fp8"), SM90, None, "takes no head size 12"),
        (Need(512, "nvfp4"), SM80, None, "takes no head size 512"),
        (Need(128, "fp8_ds_mla"), SM90, None, "does not cache fp8_ds_mla"),
        (Need(64, "turboquant_k8v4", sink=True), SM120, None, "has no attention sinks here"),
        (Need(64, "turboquant_k8v4", sliding=True), SM90, None, "has no sliding window"),
        (Need(64, "turboquant_k8v4", cross=True), SM90, None, "has no cross-attention"),
        (Need(64, "turboquant_k8v4", cross=True, flashinfer=True), SM90, None, "FLASHINFER has no cross-attention"),
        (Need(96, "nvfp4", flashinfer=True), SM90, None, "FLASHINFER takes no head size 96"),
        (Need(64, "nvfp4", flashinfer=True), SM90, None, "does not cache nvfp4 here"),
        (Need(16, "fp8_e5m2"), SM90, None, "TRITON_ATTN takes no head size 16"),
        (Need(100, "nvfp4", mla=True), SM90, None, "takes no latent row of 100"),
        (Need(576, "nvfp4", mla=True, nope_dim=100), SM100, None, "takes no qk_nope_head_dim 100"),
        (Need(100, "nvfp4", mla=True, sparse=True, flashinfer=True), SM90, None, "takes no latent row of 100"),
        (Need(576, "nvfp4", mla=True, sparse=True), SM90, None, "is not counted as installed"),
        (Need(100, "fp8", mla=True, sparse=True, nope_dim=128), SM100, None, "takes no latent row of 100"),
        (Need(576, "fp8", mla=True, sparse=True, nope_dim=7, query_heads=64), SM100, 16, "takes no qk_nope_head_dim 7"),
        (Need(576, "auto", mla=True, sparse=True), SM80, None, "none is there"),
        (Need(576, "auto", mla=True, sparse=True), SM120, None, "does not cache auto"),
        (Need(576, "auto", mla=True, sparse=True), CPU, None, "none is there"),
        (Need(576, "auto", mla=True, sparse=True), SM90, 16, "takes no block of 16"),
        (Need(576, "auto", mla=True, sparse=True, dcp=2), SM90, None, "a 16-bit cache"),
        (Need(576, "fp8_ds_mla", mla=True, sparse=True, dcp=2, query_heads=64), SM90, None, "64 heads a rank"),
        (Need(576, "fp8_ds_mla", mla=True, sparse=True, dcp=8, query_heads=16), SM90, None, "128 together"),
        (Need(64, "fp8", alibi=True), SM90, None, "ALiBi"),
    ],
)
def test_what_no_backend_takes_is_refused_with_each_ones_reason(
    need: Need, platform: str, block: int | None, reason: str
) -> None:
    with pytest.raises(EngineError, match=reason):
        choose(need, platform, block)


def test_sparse_rows_under_context_parallelism() -> None:
    need = Need(576, "fp8_ds_mla", mla=True, sparse=True, dcp=2, query_heads=16)
    assert choose(need, SM90, None).name == "FLASHMLA_SPARSE"


def test_head_widths_of_512_take_blocks_of_64_in_fp8_on_hopper() -> None:
    assert choose(Need(512, "fp8", query_heads=8), SM90, None).sizes == (64,)
    assert choose(Need(128, "auto", query_heads=8, kv_heads=2), SM100, None).name == "FLASHINFER"


# Serving -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "release", "reason"),
    [
        ({"architectures": ["FlintForCausalLM"], "model_type": "flint"}, "0.32.0", "the first release that does is 0.33.0"),
        ({"architectures": ["XverseForCausalLM"]}, "0.24.0", "the last release that did is 0.23.0"),
        ({"architectures": ["NobodysForCausalLM"]}, "0.33.0", "the library has no such class either"),
        ({"architectures": ["DiffLlamaForCausalLM"]}, "0.33.0", "can't run under it"),
    ],
)
def test_a_class_that_is_not_in_the_registry_is_refused_by_name(config: dict[str, object], release: str, reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        planned({**LLAMA, **config}, release=release)


@pytest.mark.parametrize(
    ("config", "release", "said"),
    [
        ({"architectures": ["HeliumForCausalLM"]}, "0.20.0", "Transformers backend"),
        ({"architectures": ["OwnForCausalLM"], "auto_map": {"AutoModel": "own--Own"}}, "0.20.0", "Transformers backend"),
        ({"architectures": None, "model_type": "xllm"}, "0.33.0", "names no class"),
    ],
)
def test_what_was_not_checked_is_marked(config: dict[str, object], release: str, said: str) -> None:
    assert any(said in warning for warning in planned({**LLAMA, **config}, release=release).warnings)


def test_pooling_classes_are_their_generating_ones() -> None:
    assert planned({**LLAMA, "architectures": ["LlamaForRewardModeling"]}, release="0.20.0").warnings == ()
    assert planned({**LLAMA, "architectures": ["HeliumForCausalLM"]}, release="0.32.0").warnings == ()


@pytest.mark.parametrize(
    ("name", "release", "reason"),
    [
        ("mamba-2.8b", "0.10.1", "recurrent layers on its V0 engine"),
        ("whisper-large-v3", "0.10.0", "encoder-decoders on its V0 engine"),
        ("deepseek-v4-flash", "0.31.0", "the layout of deepseek_v4"),
        ("t5-base", "0.33.0", "only Whisper"),
        ("bamba-9b", "0.33.0", "the last release that did is 0.23.0"),
        ("llama-8b", "0.8.4", "the oldest known release is 0.8.5"),
    ],
)
def test_what_a_release_can_not_run_is_refused_by_name(name: str, release: str, reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        planned(name, 100, release=release)


def test_whisper_once_counted_its_encoders_own_length() -> None:
    """0.10.2: 1,500 positions; from 0.11 the scheduler's budget."""
    for release, positions in (("0.10.2", 1500), ("0.11.0", 8192)):
        found = planned("whisper-large-v3", 448, release=release, max_num_batched_tokens=8192).report
        assert found["blocks_per_request"] == ceil_div(448, 16) + ceil_div(positions, 16)


def test_pages_that_older_planners_could_not_bring_together() -> None:
    wide, narrow = FullAttention(8, 256, 256, 32), FullAttention(8, 128, 128, 32)
    window = SlidingAttention(8, 128, 128, 512, 32)
    full = Model("toy", "toy", ((narrow,), (wide,)), Fields({}), dtype="bfloat16")
    mixed = Model("toy", "toy", ((wide,), (window,)), Fields({}), dtype="bfloat16")
    with pytest.raises(EngineError, match="can't be brought to the largest page"):
        planned(full, release="0.10.2")
    with pytest.raises(EngineError, match="one kind of cache"):
        planned(full, release="0.8.5")
    assert planned(full, release="0.11.0").fits  # one group, pages side by side
    with pytest.raises(EngineError, match="can't be brought to the largest page"):
        planned(mixed, release="0.11.2")
    groups = planned(mixed, release="0.12.0").report["groups"]
    assert isinstance(groups, list)
    assert {group["kind"]: group["block_size"] for group in groups} == {"FullAttentionSpec": 16, "SlidingWindowSpec": 32}


def test_dory_and_beam_read_their_files_their_own_way() -> None:
    with pytest.raises(EngineError, match="no tensor parallelism"):
        planned(MEASURED["default-dory"], 100, tensor_parallel_size=2)
    beam = MEASURED["default-beam"]
    assert planned({**beam, "head_dim": 128}, 100).total_bytes == 2 * planned(beam, 100).total_bytes


def test_chunked_layers_are_opt_in_for_some_releases() -> None:
    noted = [
        release
        for release in ("0.10.0", "0.10.1", "0.13.0", "0.14.0")
        if any("chunked layers" in note for note in planned("llama-4-scout", release=release).notes)
    ]
    assert noted == ["0.10.1", "0.13.0"]


QWEN4 = MEASURED["default-qwen4_exp_text"]


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        ({**QWEN4, "indexer_n_heads": 4, "indexer_head_dim": 64, "indexer_kv_heads": 1}, {}, "index keys and a ring"),
        ({**QWEN4, "ple_layer_ids": [1]}, {}, "n-gram layers"),
        (
            {**LLAMA, "architectures": ["LlamaForCausalLM"], "model_type": "lfm3", "num_hidden_layers": 3},
            {},
            "recurrent layers are not",
        ),
        (LLAMA, {"pipeline_parallel_size": 5}, "5 pipeline stages"),
        ({**LLAMA, "sliding_window": 64}, {"decode_context_parallel_size": 2, "tensor_parallel_size": 16}, "sliding windows"),
        (LLAMA, {"decode_context_parallel_size": 3, "tensor_parallel_size": 16}, "3 are asked for"),
        ("deepseek-v3", {"decode_context_parallel_size": 3, "tensor_parallel_size": 4}, "don't divide 4"),
        ("qwen3-next-80b", {"tensor_parallel_size": 16, "num_speculative_tokens": 1}, None),
        ("deepseek-v4-flash", {"platform": "sm120"}, "SM 9.0 and 10.0"),
        ("deepseek-v4-flash", {"kv_cache_dtype": "nvfp4"}, "its own fp8 rows"),
    ],
)
def test_what_the_engine_refuses_it_is_refused_for(
    model: str | Mapping[str, Any], options: dict[str, OptionValue], reason: str | None
) -> None:
    if reason is None:
        assert planned(model, 1000, **options).fits
        return
    with pytest.raises(EngineError, match=reason):
        planned(model, 1000, **options)


def test_glm_5_is_cached_in_fp8_on_blackwell_unless_told_otherwise() -> None:
    assert planned("glm-5.1", 1000, platform="sm100").request["k_dtype"][0] == "fp8_e4m3"
    assert planned("glm-5.1", 1000).request["k_dtype"][0] == "bfloat16"


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="--tp says 2"):
        ENGINE.allocate(preset_model("llama-8b"), Request(tokens=9, tp_size=2, options={"tensor-parallel-size": 4}))
    with pytest.raises(UsageError, match="no share"):
        planned(LLAMA, device_memory=8 * GIB, gpu_memory_utilization="1/0")
