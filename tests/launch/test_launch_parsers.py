"""The engines' own parsers: abbreviations, negations, sizes, what a release refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.launch.forms import read_launches
from kvcalc.launch.scalars import UnreadableError, read_size
from kvcalc.launch.values import AMBIGUOUS, COUNTED, REMOVED, UNKNOWN, UNREADABLE, Launch


def one(text: str, **more: Any) -> Launch:
    (launch,) = read_launches(text, **more)
    return launch


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1k", 1000),
        ("25.6k", 25_600),
        ("1K", 1024),
        ("1m", 10**6),
        ("1M", 2**20),
        ("4G", 2**32),
        ("32768", 32_768),
        ("-1", -1),
        ("auto", "auto"),
    ],
)
def test_sizes_of_vllm(text: str, tokens: int | str) -> None:
    assert read_size(text) == tokens
    assert one(f"vllm serve m --max-model-len {text}").settings == {"max-model-len": tokens}


@pytest.mark.parametrize("text", ["25.6K", "32k tokens", "1e5", "0x10", "ten", "", "9" * 40])
def test_no_sizes(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_size(text)


VLLM = {
    "-tp=2": {"tensor-parallel-size": 2},
    "-tp 2": {"tensor-parallel-size": 2},
    "--tensor-parallel 4": {"tensor-parallel-size": 4},
    "--tensor_parallel_size=4": {"tensor-parallel-size": 4},
    "--gpu-memory 0.5": {"gpu-memory-utilization": 0.5},
    "--kv-cache-memory 26017729126": {"kv-cache-memory-bytes": 26_017_729_126},
    "--no-enable-prefix-caching": {"enable-prefix-caching": False},
    "--no-disable-hybrid-kv-cache-manager": {"disable-hybrid-kv-cache-manager": False},
    "--disable-prefix-caching": {"enable-prefix-caching": False},
    "--max-num-seqs 4 --max-num-seqs 8": {"max-num-seqs": 8},
    "-cc.pass_config.x=True -cc.mode 3": {"compilation-config": {"pass_config": {"x": True}, "mode": 3}},
    "--speculative-config.method mtp --speculative-config.num_speculative_tokens 2": {
        "speculative-config": {"method": "mtp", "num_speculative_tokens": 2}
    },
    '--hf-overrides \'{"rope_scaling": {"factor": 2}}\'': {"hf-overrides": {"rope_scaling": {"factor": 2}}},
}


@pytest.mark.parametrize("flags", VLLM)
def test_flags_of_vllm(flags: str) -> None:
    launch = one(f"vllm serve m {flags}")
    assert launch.settings == VLLM[flags]
    assert {flag.verdict for flag in launch.flags} == {COUNTED}


SGLANG = {
    "--tp 8": {"tp-size": 8},
    "--tensor-parallel-size 8": {"tp-size": 8},
    "--mem-frac 0.8": {"mem-fraction-static": 0.8},
    "--max-prefill 8192": {"max-prefill-tokens": 8192},
    "--speculative-algo EAGLE": {"speculative-algorithm": "EAGLE"},
    "--dp 8 --enable-dp-attention": {"dp-size": 8, "enable-dp-attention": True},
}


@pytest.mark.parametrize("flags", SGLANG)
def test_flags_of_sglang(flags: str) -> None:
    assert one(f"python3 -m sglang.launch_server --model-path m {flags}").settings == SGLANG[flags]


LLAMACPP = {
    "-c 4096 -np 2": {"ctx-size": 4096, "parallel": 2},
    "-fa": {"flash-attn": "on"},
    "-fa off": {"flash-attn": "off"},
    "-fa -ub 1024": {"flash-attn": "on", "ubatch-size": 1024},
    "-nkvo": {"no-kv-offload": True},
    "-kvu": {"kv-unified": True},
    "--gpu-layers 1": {"n-gpu-layers": 1},
    "-ngl -1": {"n-gpu-layers": -1},
    "-ot a=CPU -ot b=CPU": {"override-tensor": ["a=CPU", "b=CPU"]},
    "--ctx_size 512": {"ctx-size": 512},
}


@pytest.mark.parametrize("flags", LLAMACPP)
def test_flags_of_llamacpp(flags: str) -> None:
    assert one(f"llama-server -m m.gguf {flags}").settings == LLAMACPP[flags]


def verdicts(launch: Launch) -> dict[str, str]:
    return {flag.written: flag.verdict for flag in launch.flags}


def test_a_removed_flag_is_named_with_its_release() -> None:
    launch = one("vllm serve m --swap-space 8")
    (flag,) = launch.flags
    assert (flag.verdict, flag.value, "0.18" in flag.note) == (REMOVED, 8, True)


def test_a_release_that_had_the_flag_takes_it() -> None:
    text = "docker run vllm/vllm-openai:v0.8.5 --model m --swap-space 8"
    launch = one(text)
    assert (launch.release, verdicts(launch)["--swap-space"]) == ("0.8.5", COUNTED)


def test_a_flag_that_a_release_had_not_yet() -> None:
    launch = one("docker run vllm/vllm-openai:v0.6.6 --model m --decode-context-parallel-size 2")
    assert verdicts(launch)["--decode-context-parallel-size"] == REMOVED
    assert "came in" in launch.flags[-1].note


def test_an_unknown_flag_has_its_nearest_name() -> None:
    launch = one("vllm serve m --max-modellen 8k")
    (flag,) = launch.flags
    assert (flag.verdict, "--max-model-len" in flag.note) == (UNKNOWN, True)


def test_an_ambiguous_prefix_is_refused_and_its_older_meaning_told() -> None:
    launch = one("python -m sglang.launch_server --model-path m --speculative-draft d")
    flag = launch.named(AMBIGUOUS)[0]
    assert (flag.name, flag.value) == ("speculative-draft-model-path", "d")


@pytest.mark.parametrize(
    ("flags", "note"),
    [
        ("--max-model-len <n>", "isn't given"),
        ("--max-num-seqs many", "no whole number"),
        ("--speculative-config '{\"model\": <m>}'", "column"),
        ("--max-model-len", "missing"),
    ],
)
def test_a_value_that_the_parser_refuses(flags: str, note: str) -> None:
    launch = one(f"vllm serve m {flags}")
    (flag,) = launch.named(UNREADABLE)
    assert note in flag.note
    assert launch.settings == {}


def test_slips_are_told_with_their_place() -> None:
    text = "vllm serve m \\ \n  --port 8111--max-num-seqs 4 \\\n  --max-model-len 8k\n"
    launch = one(text)
    assert {slip.line for slip in launch.slips} == {1, 2}
    assert launch.settings == {"max-model-len": 8000}


def test_variables_that_ollama_does_not_have() -> None:
    launch = one("OLLAMA_NUM_CTX=32768 OLLAMA_FLASH_ATTN=1 OLLAMA_KEEP_ALIVE=5m OLLAMA_NUM_PARALLEL=2 ollama serve")
    assert launch.settings == {"OLLAMA_NUM_PARALLEL": "2"}
    notes = {flag.written: flag.note for flag in launch.named(UNKNOWN)}
    assert "OLLAMA_CONTEXT_LENGTH" in notes["OLLAMA_NUM_CTX"]
    assert "OLLAMA_FLASH_ATTENTION" in notes["OLLAMA_FLASH_ATTN"]


TYPESET = {
    "vllm serve m/x \u2013tensor-parallel-size 2 --max-model-len 4096": {"tensor-parallel-size": 2, "max-model-len": 4096},
    "vllm serve m/x \u2014max-num-seqs 4": {"max-num-seqs": 4},
    "vllm serve\u00a0m/x --max-num-seqs\u00a04": {"max-num-seqs": 4},
    "vllm serve m/x --hf-overrides \u2018{\u201ca\u201d: 1}\u2019": {"hf-overrides": {"a": 1}},
}


@pytest.mark.parametrize("line", TYPESET)
def test_what_a_page_makes_of_a_line(line: str) -> None:
    launch = one(line)
    assert (launch.model, launch.settings) == ("m/x", TYPESET[line])
    assert [slip.line for slip in launch.slips][:1] == [1]


def test_bare_flags_belong_to_the_parser_that_has_them() -> None:
    lines = {
        "--tp_size 8 --kv_cache_free_gpu_memory_fraction 0.8": "tensorrt-llm",
        "-ngl 99 -c 4096 -fa": "llama.cpp",
        "--mem-fraction-static 0.8 --tp 8": "sglang",
        "--max-model-len 4096 --kv-cache-dtype fp8": "vllm",
        "--session-len 4096 --cache-max-entry-count 0.5": "lmdeploy",
    }
    assert {line: one(line).engine for line in lines} == lines
