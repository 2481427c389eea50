"""Files that are no models: one clear error each, the right exit code, no traceback, and no memory that grows with them."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

Write = Callable[..., Path]
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
}

CONTENTS: dict[str, tuple[str | bytes, int, str]] = {
    "empty": (b"", 3, "the file is empty"),
    "blank": (b" \n\t\n", 3, "the file is empty"),
    "binary": (bytes(range(256)) * 40, 3, "not UTF-8"),
    "utf-16": (json.dumps(LLAMA).encode("utf-16"), 3, "not UTF-8"),
    "latin-1": (b'{"a": "\xe9"}', 3, "not UTF-8"),
    "a gguf file": (b"GGUF\x03\x00\x00\x00" + b"\xff" * 99, 3, "not UTF-8"),
    "cut off": (b'{"model_type": "llama", "num_hid', 3, "not JSON"),
    "yaml": (b"model_type: llama\n", 3, "not JSON"),
    "python": (b"{'model_type': 'llama'}", 3, "not JSON"),
    "html": (b"<!doctype html><html>", 3, "not JSON"),
    "two objects": (b"{}{}", 3, "not JSON"),
    "nested by lists": ("[" * 100_000, 3, "nested too deep"),
    "nested by objects": ('{"a":' * 100_000, 3, "nested too deep"),
    "nested a hundred deep": ('{"a":' * 100 + "1" + "}" * 100, 3, "nested deeper"),
    "an integer of thousands of digits": ('{"a": ' + "9" * 10_000 + "}", 3, "too long"),
    "a list": (b"[]", 3, "an object is expected, not a list"),
    "null": (b"null", 3, "an object is expected, not null"),
    "a number": (b"5", 3, "an object is expected, not a bare int"),
    "a text": (b'"x"', 3, "an object is expected, not a bare str"),
    "an empty object": (b"{}", 4, "names no model_type"),
    "another program's file": (b'{"name": "left-pad", "version": "1.0.0"}', 4, "names no model_type"),
    "a type that nobody knows": (b'{"model_type": "zzz"}', 4, "is not known"),
    "a type of ten thousand letters": (json.dumps({"model_type": "z" * 10_000}), 4, "is not known"),
    "a lone surrogate": (b'{"model_type": "\\ud800"}', 4, "is not known"),
    "letters without an end": (
        json.dumps({"model_type": "nemotron_h", "hybrid_override_pattern": "M" * 10**6, "num_hidden_layers": 2}),
        3,
        "10,000 letters",
    ),
    "a list without an end": (json.dumps({**LLAMA, "layer_types": ["full_attention"] * 10**5}), 3, "list of words"),
    "a state of negative size": (
        json.dumps({"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 64, "expand": -1}),
        3,
        "above 0",
    ),
    "a state of nothing": (
        json.dumps({"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 64, "expand": 1e-30}),
        3,
        "nothing",
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_is_no_model(name: str, cli: Cli, write: Write) -> None:
    content, code, words = CONTENTS[name]
    path = write(content)
    ran = cli("estimate", "--config", path)
    assert ran.code == code, ran.err
    assert words in ran.err
    assert ran.err.startswith("error: ")
    assert str(path) in ran.err or "config.json: " in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err) < 1500
    assert ran.out == ""


@pytest.mark.parametrize(
    "name", sorted(CONTENTS.keys() - {"a gguf file"})
)  # a bare word is looked at first: GGUF goes to its reader
def test_the_same_as_json(name: str, cli: Cli, write: Write) -> None:
    content, code, words = CONTENTS[name]
    ran = cli("estimate", write(content), "--json")
    assert ran.code == code
    error = ran.json["error"]
    assert words in error["what"]
    assert set(error) == {"code", "what", "where", "fix", "exit_code"}
    assert error["exit_code"] == code


def test_a_gigabyte_takes_no_gigabyte(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(2**30)
    tracemalloc.start()
    try:
        ran = cli("estimate", "--config", path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (ran.code, "over 16 MiB" in ran.err) == (3, True)
    assert peak < 2 * 17 * 2**20


def test_endless_zeros(cli: Cli) -> None:
    assert "over 16 MiB" in cli("estimate", "--config", "/dev/zero").err


PLACES: dict[str, tuple[str, int, str]] = {
    "nowhere": ("nowhere.json", 3, "no such file"),
    "a folder without one": ("empty-folder", 3, "no such file"),
    "a folder called config.json": ("folder", 3, "this is a folder"),
    "a link to itself": ("loop", 3, "can't be read"),
    "a name too long": ("x" * 5000, 3, "can't be read"),
    "a file as a folder": ("file/config.json", 3, "can't be read"),
    "a NUL": ("a\0b", 3, "can't be read"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_where_no_file_is(name: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty-folder").mkdir()
    (tmp_path / "folder" / "config.json").mkdir(parents=True)
    (tmp_path / "file").write_text("{}")
    (tmp_path / "loop").symlink_to("loop")
    place, code, words = PLACES[name]
    ran = cli("estimate", "--config", f"{tmp_path}/{place}")
    assert ran.code == code, ran.err
    assert words in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(cli: Cli, write: Write) -> None:
    path = write(LLAMA)
    path.chmod(0)
    assert cli("estimate", "--config", path).code == 3


WORDS = ["[bold]x[/bold]", "[/x]", "[red", "\\[x]", ":smile:", "{0}", "%s", "a\nb", "é", "\x1b[31mred"]


@pytest.mark.parametrize("word", WORDS, ids=repr)
@pytest.mark.parametrize("verb", ["estimate", "inspect"])
def test_a_file_s_own_words_are_shown_as_they_are(word: str, verb: str, cli: Cli, write: Write) -> None:
    path = write({**LLAMA, "torch_dtype": word, "max_position_embeddings": 4096})
    ran = cli(verb, "--config", path)
    assert (ran.code, ran.err) == (0, "")
    named = cli(verb, "--config", path.rename(path.with_name(f"{word.replace('/', '')}.json")))
    assert (named.code, named.err) == (0, "")


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e300, "4096", [1], True, -1], ids=repr)
def test_an_odd_maximum_length_is_still_good_json(value: object, cli: Cli, write: Write) -> None:
    ran = cli("estimate", "--config", write({**LLAMA, "max_position_embeddings": value}), "--json")
    assert ran.code == 0
    assert json.loads(ran.out, parse_constant=pytest.fail)["model"]["max_tokens"] in (
        None,
        int(value) if value == 1e300 else None,
    )
