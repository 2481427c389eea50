"""``fit --log`` and ``audit --follow``: what a log answers besides itself."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kvcalc.cli import audit as verb
from kvcalc.cli import main

VLLM = """INFO Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-32B', dtype=torch.bfloat16, \
max_seq_len=40960, tensor_parallel_size=2, kv_cache_dtype=auto
INFO Available KV cache memory: 33.66 GiB
INFO GPU KV cache size: 275,760 tokens
INFO Maximum concurrency for 40,960 tokens per request: 6.73x
"""
TOKEN = 64 * 8 // 2 * 128 * 2 * 2  # bytes of a token of Qwen3-32B on one of two ranks
AVAILABLE = 33.655 * 2**30  # the least that prints so


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(VLLM)
    return path


def fitted(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["fit", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize(
    ("words", "token", "sequences"),
    [
        ((), TOKEN, 6),  # the log's own 6.73, whole
        (("--dtype", "fp8"), TOKEN // 2, 13),
        (("--tp", "4"), TOKEN // 2, 13),
        (("-o", "kv-cache-dtype=fp8", "--tp", "8"), TOKEN // 8, 53),
    ],
)
def test_the_same_server_asked_otherwise(
    words: tuple[str, ...], token: int, sequences: int, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert AVAILABLE // (token * 40_960) == sequences
    found = fitted(capsys, "--log", str(log), "qwen3-32b", "--tokens", "40960", *words)
    assert found["batch_size"] == sequences


def test_the_model_is_the_one_that_the_log_names(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = fitted(capsys, "--log", str(log), "--tokens", "8192")
    assert found["batch_size"] == AVAILABLE // (TOKEN * 8192)
    assert found["model"]["name"] == "qwen3-32b"


def test_the_cache_of_a_llama_cpp_log_is_its_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """512 MiB of f16 hold twice the context in half the bytes, but for the scales of q8_0."""
    keys = {"general.architecture str": "llama", "llama.block_count u32": "32", "llama.context_length u32": "131072"}
    keys |= {"llama.embedding_length u32": "4096", "llama.attention.head_count u32": "32"}
    keys |= {"llama.attention.head_count_kv u32": "8"}
    dump = [f"llama_model_loader: - kv {i:3d}: {key} = {value}" for i, (key, value) in enumerate(keys.items())]
    size = "size = 512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16): 256.00 MiB, V (f16): 256.00 MiB"
    lines = [*dump, "llama_context: n_ctx = 4096", "llama_context: n_seq_max = 1", f"llama_kv_cache: {size}"]
    path = tmp_path / "llama.log"
    path.write_text("\n".join(lines))
    assert fitted(capsys, "--log", str(path))["tokens"] == 4096
    assert fitted(capsys, "--log", str(path), "--dtype", "q8_0")["tokens"] == 4096 * 32 // 17 // 256 * 256


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--memory", "24GiB"), 2, "--log says what memory there is"),
        (("--engine", "llama.cpp"), 2, "the log is vllm's"),
        (("a", "--preset", "b"), 2, "2 models are named"),
    ],
)
def test_what_contradicts_the_log_is_refused(
    words: tuple[str, ...], code: int, said: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--log", str(log), *words]) == code
    assert said in capsys.readouterr().err


def test_a_log_without_its_memory_says_what_to_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    path.write_text("GPU KV cache size: 275,760 tokens\n")
    assert main(["fit", "--log", str(path), "qwen3-32b"]) == 3
    assert "--memory" in capsys.readouterr().err


def test_a_model_that_is_no_preset_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    path.write_text(VLLM.replace("Qwen/Qwen3-32B", "/models/mine"))
    assert main(["fit", "--log", str(path)]) == 2
    assert "kvcalc fit --log FILE MODEL" in capsys.readouterr().err


# A log that grows


def test_a_log_that_grows_is_followed_until_it_states_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, lines, told = tmp_path / "a.log", VLLM.splitlines(keepends=True), threading.Event()

    def write_a_line(_seconds: float) -> None:
        if lines:
            with path.open("a") as file:
                file.write(lines.pop(0))
        else:
            told.set()

    monkeypatch.setattr(verb, "sleep", write_a_line)
    assert main(["audit", str(path), "qwen3-32b", "--follow", "--json"]) == 0
    assert told.is_set()
    assert len(json.loads(capsys.readouterr().out)["loads"][0]["findings"]) == 2


def test_a_pipe_is_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "-", "--follow"]) == 2
    assert "--follow needs a file" in capsys.readouterr().err
