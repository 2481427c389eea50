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
    "a model that can't be counted unasked": (("llama-8b", "bart-large"), 3),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal(name: str, cli: Cli) -> None:
    words, code = BAD[name]
    ran = cli("compare", *words)
    assert (ran.code, ran.out) == (code, "")
    assert "Traceback" not in ran.err
