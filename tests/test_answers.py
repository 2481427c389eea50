"""The command line's answers from Python: equal to its JSON on whatever is asked."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from kvcalc import api
from kvcalc.errors import KvcalcError, UsageError
from kvcalc.reports.to_json import error_document

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
}
MODELS = ("llama-8b", "gemma-3-4b", "qwen3-8b", "deepseek-v3", "mamba-130m", "qwen3.5-0.8b")
ENGINES = ("exact", "static", "paged", "transformers", "vllm", "sglang", "tensorrt-llm", "llama.cpp")


def requests(count: int) -> list[tuple[str, str, dict[str, str]]]:
    """Seeded: (verb, model, keywords)."""
    draw = random.Random(11)
    found = []
    for _ in range(count):
        verb = draw.choice(("estimate", "fit", "inspect"))
        keywords = {"tokens": str(draw.choice((1, 100, 4096, "8k")))} if verb != "inspect" else {}
        if verb != "inspect":
            keywords |= {"engine": draw.choice(ENGINES), "batch": str(draw.choice((1, 3)))}
        if verb == "fit":
            keywords |= {"memory": "8GiB"}
        found.append((verb, draw.choice(MODELS), keywords))
    return found


def told(cli: Cli, verb: str, model: str, keywords: dict[str, str]) -> Any:
    ran = cli(verb, model, "--json", *(word for name, held in keywords.items() for word in (f"--{name}", held)))
    return json.loads(ran.out)


def estimated(model: str, tokens: str, engine: str, batch: str) -> api.EstimateAnswer:
    """``estimate`` is typed: a number of sequences is a number. Origins say argument where the command line says flag."""
    return api.estimate(model, tokens=tokens, engine=engine, batch_size=int(batch))


def plain(document: Any) -> Any:
    """Without the word for where a value came from: a flag, or an argument."""
    return json.loads(re.sub(r"flag --(tokens|batch)|argument", "said", json.dumps(document)))


@pytest.mark.parametrize(("verb", "model", "keywords"), requests(120))
def test_an_answer_is_the_command_lines(verb: str, model: str, keywords: dict[str, str], cli: Cli) -> None:
    assert plain(answered(verb, model, keywords)) == plain(told(cli, verb, model, keywords))


def answered(verb: str, model: str, keywords: dict[str, str]) -> Any:
    """The answer's JSON, or the refusal's."""
    try:
        found = estimated(model, **keywords) if verb == "estimate" else getattr(api, verb)(model, **keywords)
    except KvcalcError as problem:
        return error_document(problem)
    return found.to_dict()


def test_a_model_by_any_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    sizes = {api.estimate(each, tokens=10).total_bytes for each in (LLAMA, tmp_path, str(tmp_path / "config.json"))}
    assert sizes == {10 * 2 * 2 * 2 * 8 * 2}
    assert api.estimate("llama-8b", tokens="32k").total_bytes == 32768 * 131072
    assert api.fit(LLAMA, memory="1MiB").tokens == 2**20 // (2 * 2 * 2 * 8 * 2)


def test_answers_show_themselves() -> None:
    found = api.fit("llama-8b", memory="24GiB", weights="16GB")
    assert repr(found).startswith("llama-8b: at most 1 sequence of")
    assert found._repr_html_().startswith("<pre>llama-8b: ")
    assert (found.fits, found["fits"], found.exit_code, len(found) > 10) == (True, True, 0, True)
    with pytest.raises(AttributeError, match="this answer has no 'nothing'"):
        _ = found.nothing
    assert repr(api.estimate("llama-8b")).startswith("llama-8b: 512 MiB (engine: exact)")
    assert "<pre>" in api.estimate("llama-8b")._repr_html_()


def test_the_other_verbs(tmp_path: Path) -> None:
    assert [cell["tokens"] for cell in api.sweep("llama-8b", tokens="1k..4k").cells] == [1024, 2048, 4096]
    assert len(api.compare("llama-8b", LLAMA, tokens=1024).estimates) == 2
    assert api.gpus("4090").gpus[0]["name"] == "rtx-4090"
    assert api.presets("llama-8b").presets[0]["name"] == "llama-8b"
    assert api.engines("vllm").engines[0]["releases"]
    checked = api.check("vllm serve Qwen/Qwen3-8B --max-model-len 32768", settings=True)
    assert checked.commands[0]["engine"] == "vllm"
    log = "INFO [gpu_worker.py:1] Available KV cache memory: 16.00 GiB\n"
    log += "INFO [kv_cache_utils.py:1] GPU KV cache size: 131,072 tokens\n"
    path = tmp_path / "server.log"
    path.write_text(log)
    assert api.audit(log, "llama-8b").loads == api.audit(path, "llama-8b").loads


def test_options_and_what_is_no_option() -> None:
    paged = api.fit("llama-8b", engine="paged", options={"block_size": 32}, memory="1GiB")
    assert paged.tokens % 32 == 0
    with pytest.raises(UsageError, match="No such option: --nothing"):
        api.fit("llama-8b", nothing=1)
