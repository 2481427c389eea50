"""Each engine's lines one by one: what is predicted, what explains a difference, what is asked where something is unknown."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.audit.audit import audit
from kvcalc.audit.explain import Guess, common_guesses, dtype_guesses, explain, layer_guesses
from kvcalc.audit.findings import Finding
from kvcalc.audit.kept import Kept, kept_of, states_of
from kvcalc.audit.settings import Given
from kvcalc.core.model import Model
from kvcalc.dtypes import find_dtype
from kvcalc.readers.engine_log import read_log
from kvcalc.readers.hf_config import model_of

MIB, GIB = 2**20, 2**30
PLAIN = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
SLIDING = {**PLAIN, "model_type": "gemma3_text", "num_hidden_layers": 12, "sliding_window": 1024, "sliding_window_pattern": 6}
DELTA = {
    **PLAIN,
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
}
ROW = 8 * 128 * 2  # one layer's keys of one token in two bytes


def model(config: dict[str, object]) -> Model:
    return model_of({"torch_dtype": "bfloat16", **config}, "config.json", "toy")


def findings(log: str, config: dict[str, object] | None = None, given_: Given | None = None) -> list[Finding]:
    loads = read_log(io.BytesIO(log.encode())).loads
    known = model(config) if config else None
    return [finding for load in loads for finding in audit(load, known, given_ or Given()).findings]


def only(log: str, config: dict[str, object] | None = None, given_: Given | None = None) -> Finding:
    (found,) = findings(log, config, given_)
    return found


def in_gib(count: int) -> str:
    return f"{count / GIB:.2f}"


# SGLang


def test_sglang_s_pool_may_hold_one_page_more() -> None:
    tokens, page = 1000, 64
    line = "KV Cache is allocated. #tokens: {}, K size: {} GB, V size: {} GB"
    size = f"{(tokens + page) * 32 * ROW / GIB:.4f}"
    log = f"server_args=ServerArgs(page_size={page})\n" + line.format(tokens, size, size)
    assert [finding.verdict for finding in findings(log, PLAIN)] == ["agrees", "agrees"]
    unsaid = findings(line.format(tokens, size, size), PLAIN)
    assert [(finding.verdict, "-o page-size=64" in finding.why) for finding in unsaid] == [("agrees", True)] * 2
    given_ = Given(options=("page-size=16",))
    assert [finding.verdict for finding in findings(line.format(tokens, size, size), PLAIN, given_)] == ["differs", "differs"]


def test_a_second_pool_of_another_shape_is_a_draft_model_s() -> None:
    line = "KV Cache is allocated. #tokens: 1000000, K size: {0} GB, V size: {0} GB\n"
    log = line.format(in_gib(1000000 * 32 * ROW)) + line.format(in_gib(1000000 * 7 * 640))
    found = findings(log, PLAIN)
    assert [finding.verdict for finding in found] == ["agrees", "agrees", "unchecked", "unchecked"]
    assert "draft model's" in found[-1].why


def test_sglang_s_sliding_layers_have_a_pool_of_their_own() -> None:
    sizes = [f"{5000 * layers * ROW / GIB:.2f}" for layers in (2, 10)]
    log = "\n".join(f"KV Cache is allocated. #tokens: 5000, K size: {size} GB, V size: {size} GB" for size in sizes)
    assert {finding.verdict for finding in findings(log, SLIDING)} == {"agrees"}


def test_sglang_s_two_pools_add_up() -> None:
    total = (800 * 10 + 1000 * 2) * 2 * ROW
    line = "SWAKVPool mem usage: {} GB, swa size: 800, full size: 1000"
    assert only(line.format(f"{total / GIB:.3f}"), SLIDING).verdict == "agrees"
    wrong = only(line.format(f"{2 * total / GIB:.3f}"), SLIDING)
    assert (wrong.verdict, wrong.why.partition(":")[0]) == ("differs", "the line is of 2 times as many heads")
    assert only(line.format("1.00")).verdict == "unchecked"


def test_sglang_s_states() -> None:
    conv, state = 3 * 3 * 8192, 3 * 32 * 128 * 128  # of 3 layers
    line = "Mamba Cache is allocated. max_mamba_cache_size: {}, conv_state size: {}GB, ssm_state size: {}GB "
    log = line.format(100, in_gib(100 * conv * 2), in_gib(101 * state * 4))  # one slot more is padding
    assert [finding.verdict for finding in findings(log, DELTA)] == ["agrees", "agrees"]
    assert [finding.verdict for finding in findings(line.format(100, "9.00", "9.00"), DELTA)] == ["differs", "differs"]
    assert [finding.verdict for finding in findings(log, PLAIN)] == ["unchecked", "unchecked"]


# TensorRT-LLM and LMCache


def test_tensorrt_llm_s_cache_and_blocks() -> None:
    tokens = 32 * 100
    size = f"{tokens * 32 * 2 * ROW / GIB:.2f}"
    log = "Number of tokens per block: 32.\nNumber of blocks in KV cache primary pool: {}\n"
    paged = f"[MemUsageChange] Allocated {size} GiB for max tokens in paged KV cache ({tokens})."
    assert [finding.verdict for finding in findings(log.format(100) + paged, PLAIN)] == ["exact", "agrees"]
    assert [finding.verdict for finding in findings(log.format(99) + paged, PLAIN)] == ["differs", "agrees"]


def test_tensorrt_llm_s_older_bytes() -> None:
    log = f"Using 1000 tokens in paged KV cache\nAllocate {1000 * 32 * 2 * ROW} bytes for k/v cache."
    assert only(log, PLAIN).verdict == "exact"
    assert only(log).verdict == "unchecked"


@pytest.mark.parametrize(("share", "verdict"), [(0.9, "agrees"), (0.5, "unchecked")])
def test_tensorrt_llm_s_blocks_fill_a_share_of_the_free_memory(share: float, verdict: str) -> None:
    """A last block is begun: 20 GiB · share / (32 tokens · 32 layers · 4 KiB), rounded up."""
    blocks = int(-(-20 * GIB * share // (32 * 32 * 2 * ROW)))
    log = "Number of tokens per block: 32.\nMemory usage when calculating max tokens in paged kv cache: total: 40.00 GiB, "
    log += f"available: 20.00 GiB\nNumber of blocks in KV cache primary pool: {blocks}"
    assert only(log, PLAIN).verdict == verdict


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("INFO text_generation_launcher: KV-cache blocks: 1000, size: 1", "TGI"),
        ("[BlockManager] block_size = 64 MB\n[BlockManager] max_block_count = 1000", "LMDeploy"),
    ],
)
def test_a_server_without_rules_is_named_and_its_figure_stands(line: str, name: str) -> None:
    found = only(line, PLAIN)
    assert (found.verdict, found.low) == ("unchecked", 1000)
    assert name in found.why
    assert {"TGI": "131,072 B a token make 125 MiB", "LMDeploy": "make about 62.50 GiB"}[name] in found.why


SHAPELESS = ("Stored 10 out of total 10 tokens. size: 1.0000 gb", "KV Cache is allocated. #tokens: 1, KV size: 1.00 GB")


@pytest.mark.parametrize("line", SHAPELESS)
def test_without_a_shape_nothing_is_claimed(line: str) -> None:
    found = only(line)
    assert (found.verdict, found.why, found.difference, found.predicted_text) == (
        "unchecked",
        "the model's shape isn't known",
        None,
        "",
    )


# Ollama


OLLAMA = 'msg=load request="{{Operation:commit Parallel:{} BatchSize:512 KvSize:{} KvCacheType:{} NumThreads:8"\n'
DEVICE = 'msg="kv cache" device={} size="{:.1f} MiB"\n'


def test_ollama_s_devices_add_up() -> None:
    half = 8192 * 32 * ROW / MIB
    log = OLLAMA.format(1, 8192, "") + DEVICE.format("CUDA0", half) + DEVICE.format("CPU", half)
    found = only(log, {**PLAIN, "torch_dtype": "float16"})
    assert (found.verdict, found.what, found.stated) == ("agrees", "cache on 2 devices", "512.0 MiB + 512.0 MiB")


def test_ollama_s_cache_type_counts() -> None:
    log = OLLAMA.format(1, 8192, "q8_0") + DEVICE.format("CUDA0", 8192 * 32 * 2 * 1024 // 32 * 34 / MIB)
    assert only(log, PLAIN).verdict == "agrees"


def test_ollama_s_sliding_layers_keep_a_window_for_each_slot_and_a_batch() -> None:
    cells = 2 * 8192 + 10 * (1024 * 2 + 512)
    log = OLLAMA.format(2, 8192, "") + DEVICE.format("CUDA0", cells * 2 * ROW / MIB)
    assert only(log, SLIDING).verdict == "agrees"


def test_ollama_s_estimate_that_leaves_windows_out() -> None:
    log = OLLAMA.format(1, 65536, "") + DEVICE.format("CUDA0", 12 * 65536 * 2 * ROW / MIB)
    assert "leaves windows out" in only(log, SLIDING).why


def test_ollama_without_a_context_is_asked_for_it() -> None:
    found = only(DEVICE.format("CUDA0", 512), PLAIN)
    assert (found.verdict, "doesn't state the context" in found.why) == ("unchecked", True)


# llama.cpp


def test_buffers_alone_are_checked_over_the_cells_that_were_announced() -> None:
    log = "llama_kv_cache_iswa: creating {} KV cache, size = {} cells\n" + "llama_kv_cache: CUDA0 KV buffer size = {:.2f} MiB\n"
    right = log.format("non-SWA", 4096, 4096 * 2 * 2 * ROW / MIB) + log.format("    SWA", 1536, 1536 * 10 * 2 * ROW / MIB)
    assert [finding.verdict for finding in findings(right, SLIDING)] == ["agrees", "agrees"]
    assert only("llama_kv_cache: CUDA0 KV buffer size = 4.00 MiB", SLIDING).verdict == "unchecked"


@pytest.mark.parametrize("side", ["K (turbo4): 1.00 MiB, V (f16)", "K (f16): 1.00 MiB, V (turbo4)"])
def test_a_type_that_isn_t_known_is_said(side: str) -> None:
    log = f"llama_kv_cache: size = 2.00 MiB ( 256 cells, 32 layers, 1/1 seqs), {side}: 1.00 MiB"
    fix = "name it: --dtype turbo4=BYTES/ELEMENTS, as --dtype q8_0=34/32"
    assert {finding.why for finding in findings(log, PLAIN)} == {f"unknown element type 'turbo4': {fix}"}


def test_values_as_wide_as_the_widest_layer_s() -> None:
    config = {**PLAIN, "model_type": "gemma4_text", "num_hidden_layers": 2, "global_head_dim": 512, "sliding_window": 512}
    config |= {"layer_types": ["sliding_attention", "full_attention"], "attention_k_eq_v": True}
    config |= {"num_global_key_value_heads": 8}
    keys, narrow = 256 * 8 * 512 * 2 / MIB, 256 * 8 * 128 * 2 / MIB
    sizes = f"K (f16): {narrow:.4f} MiB, V (f16): {keys:.4f} MiB"
    log = "llama_kv_cache_iswa: creating     SWA KV cache, size = 256 cells\n"
    log += f"llama_kv_cache: size = {narrow + keys:.4f} MiB ( 256 cells, 1 layers, 1/1 seqs), {sizes}"
    found = {finding.what: finding for finding in findings(log, config)}
    assert found["SWA cache, keys (f16)"].verdict == "agrees"
    assert "as wide as the widest layer's" in found["SWA cache, values (f16)"].why


def test_states_of_a_model_without_any() -> None:
    log = "size = 1.00 MiB ( 1 cells, 4 layers, 1 seqs), R (f32): 0.50 MiB, S (f32): 0.50 MiB"
    assert {finding.why for finding in findings(log, PLAIN)} == {"the model's states aren't known"}


# vLLM


def test_vllm_s_blocks_alone_give_the_tokens() -> None:
    log = "# GPU blocks: 1000\nGPU KV cache size: 16,000 tokens\nMaximum concurrency for 4000 tokens per request: 4.00x"
    assert [finding.verdict for finding in findings(log, PLAIN)] == ["exact", "agrees"]


def test_vllm_s_swap_space_tells_the_ranks() -> None:
    block = 16 * 32 * 2 * ROW
    log = "# GPU blocks: 10, # CPU blocks: {}"
    assert only(log.format(4 * GIB // block), PLAIN).verdict == "exact"
    unsaid = only(log.format(8 * GIB // block), PLAIN)
    assert (unsaid.verdict, unsaid.why) == ("unchecked", "the prediction without it is 2,048: add --dtype fp8 or --tp 2")
    banner = "Initializing an LLM engine (v0.8.0) with config: kv_cache_dtype=bfloat16, tensor_parallel_size=1\n"
    assert "another --swap-space" in only(banner + log.format(8 * GIB // block), PLAIN).why
    assert "swap-space" in only(log.format(3), PLAIN).why
    assert only(log.format(8 * GIB // block), PLAIN, Given(tp_size=2)).verdict == "exact"


def test_vllm_s_refusal_without_a_model_is_unchecked() -> None:
    log = "max seq len (4096), (0.50 GiB KV cache is needed, which is larger than the available KV cache memory (0.40 GiB). "
    log += "Based on the available memory, the estimated maximum model length is 3264."
    assert [finding.verdict for finding in findings(log)] == ["unchecked", "unchecked"]
    assert [finding.verdict for finding in findings(log, PLAIN)] == ["agrees", "agrees"]


def test_vllm_s_padding_needs_states() -> None:
    log = "Padding mamba page size by 1.00% to ensure"
    assert only(log).why == "the model's shape isn't known"
    assert only(log, PLAIN).why == "no page is padded"


def test_a_fuller_token_is_another_type_or_draft_layers() -> None:
    start = "Initializing a V1 LLM engine (v0.11.0) with config: max_seq_len=4096, tensor_parallel_size=1\n"
    start += "Available KV cache memory: 16.00 GiB\n"
    for tokens, words in ((262_144, "fp8"), (127_104, "1 more layer kept"), (43_000, "more is kept a token")):
        assert words in only(f"{start}GPU KV cache size: {tokens:,} tokens", PLAIN).why


def test_what_the_engine_would_refuse_is_said() -> None:
    log = "Initializing a V1 LLM engine (v0.11.0) with config: block_size=7\nAvailable KV cache memory: 1.00 GiB\n"
    log += "GPU KV cache size: 16 tokens"
    found = only(log, PLAIN)
    assert found.verdict == "unchecked"
    assert "block" in found.why


# The parts


def test_each_rank_keeps_one_head_at_least_and_whole_latents() -> None:
    assert {kept.keys for kept in kept_of(model(PLAIN), 4)} == {2 * 128}
    assert {kept.keys for kept in kept_of(model(PLAIN), 64)} == {128}
    widths = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    latent = kept_of(model({**PLAIN, "model_type": "deepseek_v3", **widths}), 8)
    assert {(kept.keys, kept.values, kept.latent) for kept in latent} == {(576, 0, True)}
    assert states_of(model(DELTA)) == ((3 * 8192, 32 * 128 * 128),) * 3


@given(st.integers(1, 10**15), st.sampled_from(common_guesses()))
def test_a_guess_explains_what_it_makes(predicted: int, guess: Guess) -> None:
    size = int(guess.factor * predicted)
    if size != predicted:
        assert explain(size, size + 1, predicted, [guess]) == guess.words
    assert explain(predicted, predicted, predicted, [guess]) in ("", guess.words)


def test_guesses_of_nothing_are_none() -> None:
    assert layer_guesses(0, ()) == []
    assert dtype_guesses(find_dtype("q8_0"), 7) == []
    assert explain(1, 2, 100, []) == ""
    assert any("draft" in guess.words for guess in layer_guesses(1, (Kept(0, "full", 1, 1), Kept(1, "full", 1, 1, draft=True))))
