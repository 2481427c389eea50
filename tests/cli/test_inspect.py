"""``kvcalc inspect``: what each layer caches, and the key behind it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli

KINDS = {
    "llama-8b": {"full attention"},
    "gemma-3-27b": {"full attention", "sliding attention"},
    "llama-4-scout": {"full attention", "chunked attention"},
    "deepseek-v3": {"mla"},
    "deepseek-v3.2": {"mla", "indexer"},
    "deepseek-v4-flash": {"compressed attention"},
    "qwen3-next-80b": {"full attention", "gated_delta_net"},
    "jamba-1.5-mini": {"full attention", "mamba"},
    "gemma-3n-e4b": {"full attention", "sliding attention", "shared"},
    "whisper-tiny": {"full attention", "cross attention"},
    "nemotron-h-56b": {"mamba2", "full attention", "no attention"},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_has_its_rows(name: str, cli: Cli) -> None:
    ran = cli("inspect", name)
    assert (ran.code, ran.err) == (0, "")
    assert all(kind in ran.out for kind in KINDS[name])


def test_a_row_shows_heads_widths_positions_bytes_and_keys(cli: Cli) -> None:
    out = cli("inspect", "gemma-3-27b").out
    sliding = next(line for line in out.splitlines() if "sliding attention" in line)
    assert " ".join(sliding.split()) == f"0-4, 6-10 … 60-61 sliding attention 16 128 128 last 1,024 {2 * 16 * 128 * 2:,}"
    # A row is one that starts at the edge, with those below it that its words were wrapped to.
    fields = {row.split()[0]: row for row in re.split(r"\n(?=\S)", out.partition("field ")[2])}
    assert "text_config.num_key_value_heads" in fields["num_kv_heads"]
    assert "text_config.sliding_window" in fields["sliding_window"]
    assert "sliding attention" in fields["sliding_window"]


def test_one_row_a_layer_on_request(cli: Cli) -> None:
    lines = cli("inspect", "llama-8b", "--layers").out.splitlines()
    assert [line.split()[0] for line in lines if line.split()[1:3] == ["full", "attention"]] == [
        str(index) for index in range(32)
    ]
    found = cli("inspect", "llama-8b", "--layers", "--json").json
    assert [(run["first"], run["count"]) for run in found["layers"]] == [(index, 1) for index in range(32)]


def test_json_adds_the_layout_itself(cli: Cli) -> None:
    found = cli("inspect", "deepseek-v3.2", "--json").json
    (run,) = found["layout"]
    assert (run["first"], run["count"]) == (0, 61)
    latent, indexer = run["parts"]
    assert (latent["kind"], latent["kv_lora_rank"], latent["rope_dim"]) == ("mla", 512, 64)
    assert (indexer["kind"], indexer["index_head_dim"]) == ("indexer", 128)


def test_a_state_s_layout_is_plain_json(cli: Cli) -> None:
    found = cli("inspect", "jamba-1.5-mini", "--json").json
    mamba = next(part for run in found["layout"] for part in run["parts"] if part["kind"] == "recurrent")
    assert mamba["variant"] == "mamba"
    assert mamba["states"][0]["dtype"] == "float32"
    assert all(isinstance(width, int) for width in mamba["states"][0]["shape"])


def test_every_field_that_decided_is_named_with_its_place(cli: Cli, write: Callable[..., Path]) -> None:
    config = {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64},
    }
    fields = cli("inspect", write(config), "--json").json["model"]["fields"]
    assert fields["num_layers"] == {"value": 2, "origin": "config.json: text_config.num_hidden_layers"}


@pytest.mark.parametrize(
    ("words", "code"), [((), 2), (("nope",), 3), (("llama-8b", "--tokens", "0"), 2), (("a", "b"), 2)], ids=str
)
def test_a_refusal(words: tuple[str, ...], code: int, cli: Cli) -> None:
    ran = cli("inspect", *words)
    assert (ran.code, ran.out) == (code, "")
