"""``kvcalc compare``: models side by side."""

from __future__ import annotations

import pytest
from conftest import EQUATION, Cli


def test_a_row_a_model_smallest_first_with_bars(cli: Cli) -> None:
    ran = cli("compare", "llama-2-7b", "llama-8b", "gemma-3-27b", "--tokens", "8k,32k")
    assert (ran.code, ran.err) == (0, "")
    rows = {line.split()[0]: line for line in ran.out.splitlines() if "█" in line}
    assert list(rows) == ["gemma-3-27b", "llama-8b", "llama-2-7b"]  # at 32k, the last length
    assert "1 GiB" in rows["llama-8b"]
    assert "4 GiB" in rows["llama-8b"]
    assert rows["llama-8b"].count("█") < rows["llama-2-7b"].count("█")
    assert "52 sliding, 10 full" in rows["gemma-3-27b"]
    assert "* beyond the model's own maximum" in ran.out  # Llama 2 ends at 4,096


def test_json_holds_a_whole_estimate_of_each_cell(cli: Cli) -> None:
    found = cli("compare", "llama-8b", "qwen3-8b", "--tokens", "1k,4k", "--batch", 3, "--json").json
    pairs = [(each["model"]["name"], each["request"]["tokens"]) for each in found["estimates"]]
    assert pairs == [("llama-8b", 1024), ("llama-8b", 4096), ("qwen3-8b", 1024), ("qwen3-8b", 4096)]
    for each in found["estimates"]:
        alone = cli("estimate", each["model"]["name"], "--tokens", each["request"]["tokens"], "--batch", 3, "--json").json
        assert each["total_bytes"] == alone["total_bytes"]
        assert each["components"] == alone["components"]


def test_files_flags_and_presets_mix(cli: Cli) -> None:
    assert cli("compare", "llama-8b", "--preset", "qwen3-8b", "--json").code == 0
    assert len(cli("compare", *EQUATION, "--json").json["estimates"]) == 1


BAD: dict[str, tuple[tuple[str, ...], int]] = {
    "no model": ((), 2),
    "an unknown one": (("llama-8b", "nope"), 3),
    "too many lengths": (("llama-8b", "--tokens", "1..99:1"), 2),
    "no length": (("llama-8b", "--tokens", ""), 2),
    "several batches": (("llama-8b", "--batch", "1,2"), 2),
    "no batch": (("llama-8b", "--batch", "0"), 2),
    "models that can't be counted unasked": (("bart-base", "bart-large"), 3),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal(name: str, cli: Cli) -> None:
    words, code = BAD[name]
    ran = cli("compare", *words)
    assert (ran.code, ran.out) == (code, "")
    assert "Traceback" not in ran.err


def test_a_refused_figure_stands_beside_the_others(cli: Cli) -> None:
    """vLLM serves opt-125m at 2,048 tokens and no more: known there, but not what a further token would take."""
    ran = cli("compare", "opt-125m", "llama-8b", "--engine", "vllm", "--tokens", "2k,4k")
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines() if line}
    assert (ran.code, rows["opt-125m"].count("refused")) == (0, 3)
    assert "72 MiB" in " ".join(rows["opt-125m"])
    assert "opt-125m: refused: 4,096 tokens are more than the 2,048 that opt-125m was made for" in ran.out
    assert ran.err.startswith("note: opt-125m is refused at 4,096 tokens: ")
    found = cli("compare", "opt-125m", "llama-8b", "--engine", "vllm", "--tokens", "2k,4k", "--json").json["estimates"]
    assert [each["total_bytes"] is None for each in found] == [False, True, False, False]
    assert found[1]["error"]["exit_code"] == 4


def test_refused_altogether_names_the_default_length(cli: Cli) -> None:
    ran = cli("compare", "opt-125m", "--engine", "vllm")
    assert (ran.code, ran.out) == (4, "")
    assert "4,096 tokens is the default" in ran.err
    assert "default" not in cli("compare", "opt-125m", "--engine", "vllm", "--tokens", "4k").err


def test_what_is_not_known_differs_from_none(cli: Cli) -> None:
    """No layer of Llama stops growing; nothing is known of opt-125m beyond 2,048 tokens."""
    out = cli("compare", "opt-125m", "llama-8b", "--engine", "vllm", "--tokens", "2k").out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert rows["opt-125m"][3:5] == ["?", "?"]
    assert rows["llama-8b"][3:5] == ["131,072", "-"]
    assert "? not known: the engine takes nothing longer than this length" in out


def test_what_no_longer_grows_names_its_length(cli: Cli) -> None:
    """It may be more than the whole at a shorter one."""
    assert "fixed at 32k" in cli("compare", "llama-4-scout", "--tokens", "4k,32k").out


def test_a_capped_pool_refuses(cli: Cli) -> None:
    words = ("compare", "llama-8b", "--engine", "sglang", "-o", "max-total-tokens=100", "--tokens")
    assert "refused: one sequence of 4,096 tokens" in cli(*words, "50,4k").out
    assert [cli(*words, tokens).code for tokens in ("50,4k", "4k")] == [0, 1]
