"""Published config.json files, whole, against the bytes that a cache of theirs must keep (bfloat16, one sequence)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from kvcalc import estimate, load_model
from kvcalc.errors import ArchitectureError

ROWS: dict[str, dict[str, Any]] = {
    row["id"]: row
    for row in map(json.loads, (Path(__file__).parents[1] / "data" / "published.jsonl").read_text("utf-8").splitlines())
}
CASES = {f"{name} T={at[0]}": (name, *at) for name, row in ROWS.items() for at in row["bytes"] if at[1] is not None}
REFUSED = [name for name, row in ROWS.items() if row["bytes"][0][1] is None]


def test_the_files_are_those_that_were_published() -> None:
    assert len(ROWS) >= 150
    assert all(row["source"] and row["config"] for row in ROWS.values())


@pytest.mark.parametrize("case", CASES)
def test_the_bytes_that_must_be_kept(case: str) -> None:
    name, tokens, kv, index, state = CASES[case]
    row = ROWS[name]
    model = load_model(config=row["config"])
    found = estimate(model, tokens=tokens, dtype="bf16", encoder_tokens=row["encoder_tokens"])
    split = found.tally.component_bytes()
    assert (split["kv"], split["index"], split["state"], split["other"]) == (kv, index, state, 0)
    assert found.total_bytes == kv + index + state


@pytest.mark.parametrize("name", ROWS)
def test_the_command_line_gives_the_same_or_refuses_with_exit_4(name: str, cli: Cli, write: Callable[..., Path]) -> None:
    row = ROWS[name]
    tokens, kv, index, _ = row["bytes"][1]
    encoder = ("--encoder-tokens", row["encoder_tokens"]) if row["encoder_tokens"] else ()
    ran = cli("estimate", "--config", write(row["config"]), "--tokens", tokens, "--dtype", "bf16", *encoder, "--json")
    if kv is None:
        assert ran.code == 4
        assert ran.json["error"]["fix"]
        return
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json["components"]["kv"], ran.json["components"]["index"]) == (kv, index)


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_describes_no_layers_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(ArchitectureError, match="quantisation settings only"):
        load_model(config=ROWS[name]["config"])


def test_whisper_s_encoder_length_is_the_file_s_own() -> None:
    row = ROWS["openai--whisper-large-v3-turbo"]
    assert estimate(load_model(config=row["config"])).tally.request["encoder_tokens"][0] == row["encoder_tokens"] == 1500
