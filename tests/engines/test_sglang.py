"""SGLang's rules one by one, with figures from its sources: backends and pages, refusals, requests, drafts, what it serves."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.errors import EngineError, UsageError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import preset_model

ENGINE = find_engine("sglang")
GIB = 2**30


def tally(preset: str, *texts: str, **sizes: Any) -> Tally:
    return ENGINE.allocate(preset_model(preset), Request(options=ENGINE.parse_options(list(texts)), **{"tokens": 64, **sizes}))


@pytest.mark.parametrize(
    ("preset", "texts", "backend", "page"),
    [
        ("llama-8b", (), "fa3", 1),
        ("llama-8b", ("platform=sm80",), "flashinfer", 1),
        ("llama-8b", ("platform=sm100",), "trtllm_mha", 64),
        ("llama-8b", ("platform=sm100", "page-size=16"), "trtllm_mha", 16),
        ("llama-8b", ("platform=sm100", "attention-backend=fa4"), "fa4", 128),
        ("deepseek-v3", (), "fa3", 1),
        ("deepseek-v3", ("platform=sm80",), "triton", 1),
        ("deepseek-v3", ("platform=sm100",), "trtllm_mla", 64),
        ("deepseek-v3", ("attention-backend=flashmla",), "flashmla", 64),
        ("deepseek-v3.2", ("page-size=16",), "dsa", 64),
        ("gpt-oss-20b", ("platform=sm80",), "triton", 1),
        ("qwen3-next-80b", ("platform=sm100",), "triton", 1),
        ("qwen3-next-80b", ("platform=sm100", "disable-radix-cache"), "trtllm_mha", 64),
    ],
)
def test_backends_and_pages(preset: str, texts: tuple[str, ...], backend: str, page: int) -> None:
    """get_default_attn_backend, and the pages that each takes."""
    request = tally(preset, *texts).request
    assert (request["attention_backend"][0], request["page_size"][0]) == (backend, page)


@pytest.mark.parametrize(
    ("preset", "texts"),
    [
        ("deepseek-v3", ("attention-backend=trtllm_mla",)),
        ("llama-8b", ("kv-cache-dtype=mxfp8",)),
        ("llama-8b", ("kv-cache-dtype=nvfp4",)),
        ("llama-8b", ("kv-cache-dtype=nvfp4", "platform=sm100", "attention-backend=triton")),
        ("llama-8b", ("kv-cache-dtype=nvfp4", "platform=sm100", "decode-attention-backend=fa3")),
        ("llama-8b", ("kv-cache-dtype=fp4_mx_block16",)),
        ("deepseek-v3.2", ("kv-cache-dtype=fp8_e5m2",)),
        ("qwen3-next-80b", ("page-size=48",)),
        ("qwen3-next-80b", ("page-size=16", "mamba-radix-cache-strategy=no_buffer")),
        ("llama-8b", ("attn-dp-size=2",)),
        ("llama-8b", ("context-length=1000000",)),
        ("llama-8b", ("enable-page-major-kv-layout",)),
        ("llama-8b", ("speculative-algorithm=STANDALONE", "speculative-num-steps=3")),
    ],
)
def test_refused(preset: str, texts: tuple[str, ...]) -> None:
    """What the engine's own argument checks stop at, and what is not modelled."""
    with pytest.raises(EngineError):
        tally(preset, *texts)


def test_the_cache_type_is_named_once() -> None:
    from kvcalc.dtypes import find_dtype

    bf16 = find_dtype("bf16")
    with pytest.raises(UsageError):
        tally("llama-8b", "kv-cache-dtype=fp8_e4m3", k_dtype=bf16, v_dtype=bf16)
    assert tally("llama-8b", "kv-cache-dtype=fp8_e4m3").request["k_dtype"] == ("fp8_e4m3", "-o kv-cache-dtype")


def test_ratios_and_drafts_are_read_with_care() -> None:
    for text in ("swa-full-tokens-ratio=zero", "mamba-full-memory-ratio=0", "speculative-algorithm=EAGLE"):
        with pytest.raises(UsageError):
            tally("llama-8b", text)
    with pytest.raises(EngineError, match="an algorithm is named"):
        tally("deepseek-v3", draft=True)


def test_a_request_takes_several_state_slots() -> None:
    """3, and 2 more while steps overlap, 1 more where they don't; 1 without prefixes."""
    for texts, slots in (
        ((), 5),
        (("disable-overlap-schedule",), 3),
        (("disable-overlap-schedule", "mamba-radix-cache-strategy=extra_buffer"), 4),
        (("disable-overlap-schedule", "mamba-radix-cache-strategy=no_buffer"), 3),
        (("disable-radix-cache",), 1),
    ):
        assert tally("qwen3-next-80b", *texts).report["mamba_slots_per_request"] == slots


def test_requests_that_run_at_once() -> None:
    """No more than half the tokens; within 2,048 and 4,096 unless said."""
    cell = 32 * 2 * 8 * 128 * 2
    assert tally("llama-8b", f"available-bytes={1000 * cell}").report["max_running_requests"] == 500
    assert tally("llama-8b", f"available-bytes={9000 * cell}").report["max_running_requests"] == 2048
    found = tally("llama-8b", f"available-bytes={9000 * cell}", "max-running-requests=2", batch_size=3)
    assert found.warnings == ("2 of the 3 sequences run at once, the others wait",)


def test_a_window_pool_for_the_requests_that_may_run() -> None:
    """(127 + 128 + 1 + 1) a request, two chunks in flight, and a page."""
    texts = (f"available-bytes={60 * GIB}", "disable-radix-cache", "max-running-requests=32")
    assert tally("gpt-oss-20b", *texts).report["swa_max_total_num_tokens"] == 32 * 257 + 2 * 8192 + 1


def test_a_window_pool_that_holds_no_request_is_a_no() -> None:
    found = tally("gpt-oss-20b", "available-bytes=1MiB")
    assert not found.fits
    assert "holds no request" in found.refusal


def test_drafts_take_of_every_token() -> None:
    """DeepSeek V3: 61 layers' 1,152 bytes and the draft's one; the draft's own pool on request."""
    texts = (f"available-bytes={60 * GIB}", "speculative-algorithm=EAGLE", "speculative-num-steps=1")
    found = tally("deepseek-v3", *texts)
    assert found.report["max_total_num_tokens"] == 60 * GIB // (62 * 1152)
    with_pool = tally("deepseek-v3", *texts, draft=True)
    assert with_pool.total_bytes - found.total_bytes == (60 * GIB // (62 * 1152) + 1) * 1152


def served(model_type: str, **keys: Any) -> Model:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "vocab_size": 32}
    return model_of({"model_type": model_type, **sizes, **keys}, "config.json", model_type)


def test_what_it_serves() -> None:
    """A class of its registry, the library's with a mark, neither, a quantisation that it has no code for."""
    rules = ENGINE.releases.find(None)
    assert not ENGINE.serves(served("llama"), rules).unchecked
    assert ENGINE.serves(served("gpt_neox"), rules).unchecked
    assert ENGINE.serves(served("cpmant", dim_head=16), rules).refused
    assert ENGINE.serves(served("llama", quantization_config={"quant_method": "fbgemm_fp8"}), rules).refused
    trt = find_engine("tensorrt-llm")
    assert trt.serves(served("cpmant", dim_head=16), trt.releases.find(None)).refused


def test_caps_and_needs() -> None:
    """What bounds the pool refuses a longer sequence; what must be there holds the pools; stages are no more than layers."""
    model = preset_model("qwen3-next-80b")
    assert not tally("llama-8b", "max-total-tokens=32").fits
    plan = ENGINE.plan(model, Request(tokens=64, options=ENGINE.parse_options(["max-running-requests=2"])))
    assert plan.at_once == (2, "-o max-running-requests")
    need = plan.need(2, 64)
    assert need >= plan.at(2, 64).tally.total_bytes
    given = Request(tokens=64, batch_size=2, options=ENGINE.parse_options([f"available-bytes={need}"]))
    assert ENGINE.allocate(model, given).fits
    capped = ENGINE.plan(model, Request(tokens=64, options=ENGINE.parse_options(["max-total-tokens=32"])))
    assert "max-total-tokens" in capped.over_cap
    with pytest.raises(EngineError, match="pipeline stages"):
        tally("llama-8b", pp_size=33)
