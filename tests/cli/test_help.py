"""Help at 80 columns, and every example in it, run as written."""

from __future__ import annotations

import json
import shlex
import sys
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from conftest import Cli

from kvcalc import __version__
from kvcalc.cli.app import ABOUT, VERBS

EXAMPLES = [(verb, line) for verb, module in VERBS.items() for line in import_module(module).EXAMPLES]
SLOW = {"verify"}  # runs real caches
LLAMA = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
# 4,096 cells x 32 layers x 8 heads x 128 x 2 bytes = 256 MiB a side
LLAMACPP_LOG = """llama_model_loader: - kv   0: general.architecture str = llama
llama_model_loader: - kv   1: llama.block_count u32 = 32
llama_model_loader: - kv   2: llama.context_length u32 = 8192
llama_model_loader: - kv   3: llama.embedding_length u32 = 4096
llama_model_loader: - kv   4: llama.attention.head_count u32 = 32
llama_model_loader: - kv   5: llama.attention.head_count_kv u32 = 8
llama_context: n_ctx = 4096
llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB
"""
VLLM_LOG = """INFO 01-01 00:00:00 [gpu_worker.py:1] Available KV cache memory: 16.00 GiB
INFO 01-01 00:00:00 [kv_cache_utils.py:1] GPU KV cache size: 131,072 tokens
"""


def test_the_bare_command_asks_three_questions(cli: Cli) -> None:
    ran = cli()
    assert (ran.code, ran.err) == (0, "")
    assert [line.split("kvcalc ")[1].split()[0] for line in ran.out.splitlines()[2:5]] == ["estimate", "fit", "check"]


@pytest.mark.parametrize("words", [("help",), ("help", "fit"), ("version",)], ids=" ".join)
def test_words_instead_of_flags(words: tuple[str, ...], cli: Cli) -> None:
    flags = {("help",): ("--help",), ("help", "fit"): ("fit", "--help"), ("version",): ("--version",)}[words]
    assert cli(*words) == cli(*flags)


@pytest.mark.parametrize(
    "words", [("--help",), ("-h",), *((verb, "--help") for verb in VERBS), *((verb, "-h") for verb in VERBS)], ids=" ".join
)
def test_help_fits_80_columns_and_ends_with_examples(words: tuple[str, ...], cli: Cli) -> None:
    ran = cli(*words)
    assert (ran.code, ran.err) == (0, "")
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    shown = " ".join(ran.out.partition("Examples:")[2].split())
    lines = [line for verb, line in EXAMPLES if verb == words[0]] or ["kvcalc estimate --preset llama-8b"]
    assert 1 <= len(lines) <= 5
    assert all(line in shown for line in lines)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples_and_a_line_about_itself(verb: str, cli: Cli) -> None:
    lines = [line for name, line in EXAMPLES if name == verb]
    assert lines
    assert all(f"kvcalc {verb}" in line for line in lines)
    about = (import_module(VERBS[verb]).command.__doc__ or "").splitlines()[0]
    assert about == ABOUT[verb]
    assert about.split(":")[0].split(",")[0] in " ".join(cli("--help").out.replace("│", " ").split())


@pytest.mark.parametrize(("verb", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_runs_as_written(verb: str, line: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if verb in SLOW:
        pytest.skip("runs real caches: its own tests do")
    if "--plot" in line:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(LLAMA))
    Path("server.log").write_text(VLLM_LOG)
    Path("llama-server.log").write_text(LLAMACPP_LOG)
    Path("compose.yaml").write_text("services: {a: {image: vllm/vllm-openai, command: --model Qwen/Qwen3-8B}}\n")
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(VLLM_LOG.encode())))
    words = shlex.split(line.rpartition("| ")[2])  # what stands before a pipe only feeds it
    assert words[0] == "kvcalc"
    ran = cli(*words[1:])
    assert ran.code in (0, 1), ran.err
    assert "error" not in ran.err
    assert ran.out


def test_the_version(cli: Cli) -> None:
    assert cli("--version")[:2] == (0, f"kvcalc {__version__}\n")


COMPLETIONS = {
    "presets": ("llama-3.1-", "llama-3.1-70b"),
    "dtypes": ("q8", "q8_0"),
    "engines": ("ex", "exact"),
    "models": ("llama-3.1-", "llama-3.1-70b"),
}


@pytest.mark.parametrize("name", COMPLETIONS)
def test_what_the_shell_offers(name: str) -> None:
    completion = import_module("kvcalc.cli.completion")
    start, expected = COMPLETIONS[name]
    offered = getattr(completion, name)(start)
    assert expected in offered
    assert all(word.startswith(start) for word in offered)
    assert getattr(completion, name)("\0no such") == []


def test_files_and_folders_are_offered_as_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvcalc.cli.completion import models

    (tmp_path / "folder").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("")
    assert models(f"{tmp_path}/") == [f"{tmp_path}/config.json", f"{tmp_path}/folder/"]
