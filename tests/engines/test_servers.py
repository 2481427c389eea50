"""SGLang, TensorRT-LLM, MLX-LM, LMCache: figures of published logs, and the rules as arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.engines.mlx_lm.rows import Arrival, chunked_rows, growing_rows, rotating_rows
from kvcalc.errors import EngineError, UsageError
from kvcalc.readers.presets import preset_model

LOGS: list[dict[str, Any]] = json.loads((Path(__file__).resolve().parents[1] / "data" / "server_logs.json").read_text())
PRESETS = {
    "GLM-4.7-Flash": "glm-4.7-flash",
    "Qwen3-4B-Instruct-2507": "qwen3-4b-2507",
    "Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen3-Reranker-0.6B": "qwen3-0.6b",
    "Qwen3.6-27B": "qwen3.6-27b",
    "Gemma-4-26B-A4B (fp8 KV)": "gemma-4-26b-a4b",
    "Qwen2.5-0.5B": "qwen2.5-0.5b",
    "Qwen2.5-1.5B": "qwen2.5-1.5b",
    "Llama-3.1-8B (fp8 KV)": "llama-3-8b",
}
GIB = 2**30


def tally(
    name: str, model: Model, tokens: int, batch_size: int = 1, tp_size: int = 1, dtype: str | None = None, **options: OptionValue
) -> Tally:
    """An engine's answer; options with underscores for dashes."""
    given = {key.replace("_", "-"): value for key, value in options.items()}
    kind = find_dtype(dtype) if dtype else None
    request = Request(tokens=tokens, batch_size=batch_size, tp_size=tp_size, k_dtype=kind, v_dtype=kind, options=given)
    return find_engine(name).allocate(model, request)


def side_bytes(found: Tally, label: str, pool: str = "") -> int:
    """Bytes of the arrays called so, of one pool where it is named."""
    arrays = ((run.count, array) for run in found.layers for array in run.arrays)
    return sum(count * array.bytes for count, array in arrays if array.label == label and pool in array.note)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: str(log["id"]))
def test_published_logs(log: dict[str, Any]) -> None:
    """What servers printed, to the digit that they printed."""
    said, settings = log["expected"], log["settings"]
    tokens = said.get("tokens") or settings.get("full_tokens") or settings["tokens"]
    dtype = "fp8" if "fp8 KV" in log["model"] else "float16" if settings.get("kv") == "fp16" else None
    found = tally(log["engine"], preset_model(PRESETS[log["model"]]), tokens, tp_size=settings.get("tp", 1), dtype=dtype)
    if "K_GB" in said:
        label = "latent" if side_bytes(found, "latent") else "keys"
        assert side_bytes(found, label) / GIB == pytest.approx(said["K_GB"], abs=0.005)
    if "SWAKVPool_GB" in said:
        assert found.report["swa_max_total_num_tokens"] == settings["swa_tokens"]
        assert found.total_bytes / GIB == pytest.approx(said["SWAKVPool_GB"], abs=0.005)
    if "GiB" in said:
        assert found.total_bytes / GIB == pytest.approx(said["GiB"], abs=0.005)
    if "blocks" in settings:
        assert found.report["num_blocks"] == settings["blocks"]
    if "size_gb" in said:
        assert found.report["size_gb"] == said["size_gb"]


def test_every_log_is_asked() -> None:
    """The logs name models that are shipped, and each engine has some."""
    assert {log["model"] for log in LOGS} <= set(PRESETS)
    assert {log["engine"] for log in LOGS} == {"sglang", "tensorrt-llm", "lmcache"}


QWEN3 = 2 * 28 * 8 * 128 * 2  # bytes a token of qwen3-0.6b


class TestSglang:
    """Pools from the memory that is left."""

    def test_tokens_from_memory(self) -> None:
        """available // cell, down to a page; one page more is allocated."""
        model = preset_model("qwen3-0.6b")
        for page, tokens in ((1, 1000), (64, 960)):
            found = tally("sglang", model, 900, available_bytes=1000 * QWEN3 + 1, page_size=page)
            assert found.report["max_total_num_tokens"] == tokens
            assert found.total_bytes == (tokens + page) * QWEN3

    def test_too_little_is_a_no(self) -> None:
        """One sequence that is longer than the pool."""
        found = tally("sglang", preset_model("qwen3-0.6b"), 1001, available_bytes=1000 * QWEN3)
        assert not found.fits
        assert "1,001 tokens" in found.refusal
        assert tally("sglang", preset_model("qwen3-0.6b"), 500, batch_size=3, available_bytes=1000 * QWEN3).warnings

    def test_two_pools(self) -> None:
        """gpt-oss: 12 full and 12 sliding layers of 2,048 bytes; full = memory // (24,576 + 0.8 · 24,576), sliding 0.8 of it."""
        cell = 12 * 8 * 2 * 64 * 2
        found = tally("sglang", preset_model("gpt-oss-20b"), 1000, available_bytes=10_000 * cell)
        assert found.report["max_total_num_tokens"] == 10_000 * 5 // 9
        assert found.report["swa_max_total_num_tokens"] == 10_000 * 5 // 9 * 4 // 5

    def test_windows_of_other_classes_keep_everything(self) -> None:
        """Gemma 3 has no pool of its own for its windows here."""
        found = tally("sglang", preset_model("gemma-3-1b"), 5000)
        assert found.total_bytes == 5001 * 2 * 26 * 1 * 256 * 2

    def test_states_have_slots(self) -> None:
        """Five slots a request (two of them while steps overlap), one for padding; with memory, 0.9 / 1.9 of it."""
        model = preset_model("qwen3-next-80b")
        each = 36 * (8192 * 3 * 2 + 32 * 128 * 128 * 4)
        assert side_bytes(tally("sglang", model, 100, batch_size=4), "state") == (5 * 4 + 1) * 36 * 32 * 128 * 128 * 4
        found = tally("sglang", model, 100, available_bytes=8 * GIB)
        slots = (8 * GIB * 9 // 19 - each) // each
        assert found.report["max_mamba_cache_size"] == slots
        cell = 12 * 2 * 2 * 256 * 2
        assert found.report["max_total_num_tokens"] == (8 * GIB - (slots + 1) * each) // cell

    def test_sparse_latents(self) -> None:
        """DeepSeek V3.2: 656 packed bytes of fp8, else 576 numbers, and 132 bytes of index keys; pages of 64."""
        model = preset_model("deepseek-v3.2")
        assert tally("sglang", model, 64).total_bytes == 128 * 61 * (1152 + 132)
        assert tally("sglang", model, 64, kv_cache_dtype="fp8_e4m3").total_bytes == 128 * 61 * (656 + 132)

    def test_layers_over_stages(self) -> None:
        """28 layers over 3 stages: the last has one more."""
        found = find_engine("sglang").allocate(preset_model("qwen3-0.6b"), Request(tokens=100, pp_size=3))
        assert [(run.first, run.count) for run in found.layers] == [(18, 10)]


class TestTensorRt:
    """Blocks from a share of the memory."""

    def test_blocks_from_memory(self) -> None:
        """max_tokens = memory // bytes, blocks = max_tokens // 32."""
        model = preset_model("qwen3-0.6b")
        found = tally("tensorrt-llm", model, 900, available_bytes=1000 * QWEN3)
        assert (found.report["num_blocks"], found.total_bytes) == (31, 31 * 32 * QWEN3)
        capped = tally("tensorrt-llm", model, 60, available_bytes=1000 * QWEN3, max_tokens=64)
        assert capped.report["num_blocks"] == 2
        assert not tally("tensorrt-llm", model, 1000, available_bytes=1000 * QWEN3).fits

    def test_windows_are_a_pattern(self) -> None:
        """Three layers in four see 256 tokens: 8 blocks of 32, the others ceil(1,000 / 32) = 32."""
        found = tally("tensorrt-llm", preset_model("qwen3-0.6b"), 1000, max_attention_window="256,256,256,1000")
        layer = 2 * 8 * 128 * 2 * 32
        assert found.total_bytes == 21 * 8 * layer + 7 * 32 * layer

    def test_memory_is_shared_by_window(self) -> None:
        """Shares of 256 · 21 and 1,000 · 7 layers; blocks rounded up."""
        found = tally(
            "tensorrt-llm", preset_model("qwen3-0.6b"), 1000, max_attention_window="256,256,256,1000", available_bytes=GIB
        )
        layer, weight = 2 * 8 * 128 * 2, 256 * 21 + 1000 * 7
        narrow, wide = GIB * 256 // (weight * layer), GIB * 1000 // (weight * layer)
        pools = found.report["pools"]
        assert isinstance(pools, list)
        assert [pool["blocks"] for pool in pools] == [-(-narrow // 32), -(-wide // 32)]

    def test_attention_data_parallel(self) -> None:
        """Heads are not split over the ranks then."""
        model = preset_model("qwen3-0.6b")
        whole = tally("tensorrt-llm", model, 320)
        assert tally("tensorrt-llm", model, 320, tp_size=4).total_bytes * 4 == whole.total_bytes
        assert tally("tensorrt-llm", model, 320, tp_size=4, enable_attention_dp=True).total_bytes == whole.total_bytes

    def test_nvfp4(self) -> None:
        """Half a byte a number and a scale for sixteen."""
        found = tally("tensorrt-llm", preset_model("qwen3-0.6b"), 32, kv_cache_dtype="nvfp4")
        assert found.total_bytes == 32 * 2 * 28 * 8 * (64 + 8)

    def test_what_is_not_modelled(self) -> None:
        """States are refused, not guessed."""
        with pytest.raises(EngineError, match="not modelled"):
            tally("tensorrt-llm", preset_model("mamba-130m"), 10)


class Buffer:
    """A rotating cache's bookkeeping as the library has it: length of the buffer, offset, index."""

    def __init__(self, window: int) -> None:
        self.window, self.length, self.offset, self.index = window, 0, 0, 0

    def append(self, new: int) -> None:
        """A chunk is concatenated to what is left of the buffer in temporal order."""
        if self.length:
            kept = self.length if self.index == self.length or self.index < self.offset else self.index
            self.length = kept - max(kept - self.window + 1, 0) + new
        else:
            self.length = new
        self.offset += new
        self.index = self.length

    def put(self) -> None:
        """A single position goes in place; the buffer grows by up to 256, and is cut to the window."""
        if not self.length or (self.offset >= self.length and self.length < self.window):
            self.length += min(256, self.window - self.offset)
            self.index = self.offset
        if self.length > self.window:
            self.length = self.index = self.window
        if self.index == self.window:
            self.index = 0
        self.offset += 1
        self.index += 1


class TestMlx:
    """Buffers that grow in steps."""

    @given(st.integers(1, 700), st.integers(1, 200), st.integers(0, 900), st.integers(2, 600))
    def test_rotating_buffers(self, prompt: int, chunk: int, decoded: int, window: int) -> None:
        """Against the class's own bookkeeping, position by position."""
        plan = Arrival((prompt,), chunk, decoded)
        buffer, peak = Buffer(window), 0
        for new, count in plan.steps():
            for _ in range(count):
                buffer.append(new) if new > 1 else buffer.put()
                peak = max(peak, buffer.length)
        for _ in range(decoded):
            buffer.put()
        found = rotating_rows(plan, window)
        assert (found.held, found.peak) == (buffer.length, max(peak, buffer.length))

    def test_a_conversation_that_goes_on(self) -> None:
        """300 tokens take 512 rows; 300 more don't fit: the buffer is cut to 300 and 512 are added, 812."""
        assert growing_rows(Arrival((300,), 2048, 0)).held == 512
        assert growing_rows(Arrival((300, 300), 2048, 0)).held == 812

    @given(st.lists(st.integers(1, 3000), min_size=1, max_size=3), st.integers(1, 400))
    def test_equal_passes_are_skipped_rightly(self, prompts: list[int], chunk: int) -> None:
        """Pass by pass, with no short cut."""
        size = offset = 0
        plan = Arrival(tuple(prompts), chunk, 0)
        for new, count in plan.steps():
            for _ in range(count):
                if offset + new > size:
                    size = (offset if offset % 256 else size) + -(-new // 256) * 256
                offset += new
        assert growing_rows(plan).held == size

    @given(st.integers(1, 9000), st.integers(0, 3000))
    def test_a_single_prompt_fills_whole_steps(self, prompt: int, decoded: int) -> None:
        """From nothing on, rows are the tokens rounded up to 256."""
        assert growing_rows(Arrival((prompt,), 2048, decoded)).held == -(-(prompt + decoded) // 256) * 256

    def test_chunks_stay_near_their_length(self) -> None:
        """Llama 4: 8,192 rows and a step; while a prompt runs, a forward pass more."""
        found = chunked_rows(Arrival((20_000,), 2048, 0), 8192)
        assert (found.held, found.peak) == (8192 + 256, 8192 + 2048)

    def test_quantised_rows(self) -> None:
        """4 bits of 128 numbers are 64 bytes, scale and bias of two groups 8: 72 of 256; below the start nothing changes."""
        model = preset_model("llama-3-8b")
        assert tally("mlx-lm", model, 6000, kv_bits="4").total_bytes == 6144 * 32 * 8 * 2 * 72
        assert tally("mlx-lm", model, 4000, kv_bits="4").total_bytes == 4096 * 32 * 8 * 2 * 256

    def test_windows_of_the_classes_that_rotate(self) -> None:
        """Gemma 3 1B: 22 windows of 512 and 4 full layers; Gemma 2's class keeps everything."""
        found = tally("mlx-lm", preset_model("gemma-3-1b"), 3000)
        assert found.total_bytes == (22 * 512 + 4 * 3072) * 2 * 256 * 2
        assert found.held_bytes is not None
        assert tally("mlx-lm", preset_model("gemma-2-2b"), 6000, dtype="bf16").total_bytes == 26 * 6144 * 4 * 2 * 256 * 2

    def test_latents_whole_or_expanded(self) -> None:
        """DeepSeek V3 keeps latents, V2's class 16 heads of 192 + 128."""
        assert tally("mlx-lm", preset_model("deepseek-v3"), 256).total_bytes == 256 * 61 * 576 * 2
        assert tally("mlx-lm", preset_model("deepseek-v2-lite"), 256).total_bytes == 256 * 27 * 16 * (192 + 128) * 2

    def test_turns_are_no_more_than_the_tokens(self) -> None:
        """Said without tokens, turns are the tokens."""
        model = preset_model("llama-3-8b")
        found = find_engine("mlx-lm").allocate(model, Request(options={"turns": "300,300"}))
        assert found.total_bytes == 812 * 2 * 32 * 8 * 128 * 2
        with pytest.raises(UsageError, match="more than"):
            tally("mlx-lm", model, 100, turns="300")


class TestLmcache:
    """What is stored outside the engine."""

    def test_only_whole_chunks(self) -> None:
        """1,000 tokens are three chunks of 256."""
        model = preset_model("qwen3-0.6b")
        assert tally("lmcache", model, 1000).total_bytes == 768 * QWEN3
        assert tally("lmcache", model, 1000, save_unfull_chunk=True).total_bytes == 1000 * QWEN3

    def test_per_thousand_tokens(self) -> None:
        """The documentation's table, in GiB: 0.1373, 0.2441, 0.3052."""
        for name, size in (("qwen3-8b", 0.1373), ("qwen3-32b", 0.2441), ("llama-3.1-70b", 0.3052)):
            assert tally("lmcache", preset_model(name), 1000, save_unfull_chunk=True).report["size_gb"] == size


@pytest.mark.parametrize("name", ["sglang", "tensorrt-llm", "mlx-lm", "lmcache"])
def test_sequences_of_different_lengths(name: str) -> None:
    """At least what must be kept, at most the batch padded to its longest."""
    model, engine = preset_model("qwen3-0.6b"), find_engine(name)
    mixed = engine.allocate(model, Request(lengths=(512, 1024, 2048))).total_bytes
    longest = engine.allocate(model, Request(tokens=2048, batch_size=3)).total_bytes
    assert (512 + 1024 + 2048) * QWEN3 <= mixed <= longest


@pytest.mark.parametrize("name", ["tensorrt-llm", "lmcache"])
def test_evidence_is_said(name: str) -> None:
    """Read rules are marked so."""
    engine = find_engine(name)
    assert engine.evidence.startswith("read in the source")
    assert engine.source
