"""Every answer of ``kvcalc check`` is of the published schema, whatever the verdict."""

from __future__ import annotations

import json

import pytest
from conftest import Cli

from kvcalc.reports.schema import Check

LINES = (
    "vllm serve Qwen/Qwen3-8B --max-model-len 8k --foo 1 --swap-space 4",
    "vllm serve Qwen/Qwen3-8B --max-model-len <n> -tp $TP --port x",
    "vllm serve Qwen/Qwen3-8B -tp 3",
    "CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-8B -tp 2",
    "lmdeploy serve api_server Qwen/Qwen3-8B",
    "llama-server -m qwen3-8b.gguf -c 1m",
    "OLLAMA_NUM_CTX=1 ollama run qwen3:8b",
    "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-draft x",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "more", [["--settings"], ["--memory", "24GiB", "--weights", "16GB"], []], ids=["settings", "card", "no card"]
)
def test_an_answer_is_of_the_schema(cli: Cli, line: str, more: list[str]) -> None:
    ran = cli("check", line, *more, "--json")
    found = json.loads(ran.out)
    if "error" not in found:
        Check.model_validate(found, strict=True)
