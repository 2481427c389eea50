"""The verb fit, as it is called: answers, exit codes, JSON, and what it refuses."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from kvcalc.cli import main

TOKEN = 2 * 28 * 8 * 128 * 2  # bytes a token of qwen3-0.6b in bfloat16
EQUATION = ["--layers", "2", "--kv-heads", "2", "--head-dim", "4", "--dtype", "fp16"]  # 2 · 2 · 2 · 4 · 2 = 64 bytes a token


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """Exit code and JSON of a call."""
    code = main(["fit", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_largest_length(capsys: pytest.CaptureFixture[str]) -> None:
    """6,400 bytes hold 100 tokens of 64, 6,399 hold 99."""
    for memory, tokens in (("6400", 100), ("6399", 99)):
        code, found = answer(capsys, *EQUATION, "--memory", f"{memory}B")
        assert (code, found["fits"], found["tokens"], found["batch_size"]) == (0, True, tokens, 1)
        assert (found["budget_bytes"], found["total_bytes"]) == (int(memory), tokens * 64)
        assert (found["binding"], found["limit"]) == ("full_attention", "memory")


def test_the_largest_batch(capsys: pytest.CaptureFixture[str]) -> None:
    """Sequences of 10 tokens take 640 bytes: 1,000 GB hold none but for whole ones."""
    code, found = answer(capsys, *EQUATION, "--memory", "2000B", "--tokens", "10")
    assert (code, found["tokens"], found["batch_size"], found["total_bytes"]) == (0, 10, 3, 1920)


def test_what_is_taken_off(capsys: pytest.CaptureFixture[str]) -> None:
    """10,000 · 0.9 − 2,000 − 600 = 6,400."""
    words = ["--memory", "10000B", "--weights", "2000B", "--overhead", "600B", "--utilization", "90%"]
    code, found = answer(capsys, *EQUATION, *words)
    assert (code, found["budget_bytes"], found["tokens"], found["utilization"]) == (0, 6400, 100, 0.9)


def test_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, and the bytes that are missing."""
    code, found = answer(capsys, *EQUATION, "--memory", "63B")
    assert (code, found["fits"], found["tokens"], found["shortfall_bytes"]) == (1, False, 0, 1)
    code, found = answer(capsys, *EQUATION, "--memory", "1279B", "--tokens", "10", "--batch", "2")
    assert (code, found["tokens"], found["batch_size"], found["shortfall_bytes"]) == (1, 10, 2, 1)


def test_the_frontier(capsys: pytest.CaptureFixture[str]) -> None:
    """6,400 bytes: 100 tokens, 2 · 50, 4 · 25, 8 · 12, 16 · 6, 32 · 3, 64 · 1."""
    code, found = answer(capsys, *EQUATION, "--memory", "6400B", "--frontier")
    pairs = [(row["batch_size"], row["tokens"]) for row in found["frontier"]]
    assert (code, pairs) == (0, [(1, 100), (2, 50), (4, 25), (8, 12), (16, 6), (32, 3), (64, 1)])
    assert answer(capsys, *EQUATION, "--memory", "63B", "--frontier")[0] == 1


def test_a_sample(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file of lengths: how many of the first fit at once."""
    sample = tmp_path / "lengths.txt"
    sample.write_text("10\n20\n30\n")
    code, found = answer(capsys, *EQUATION, "--memory", f"{59 * 64}B", "--lengths", str(sample))
    assert (code, found["batch_size"], found["lengths"], found["tokens"]) == (0, 2, 3, 20)


def test_a_card_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """79.18 GiB usable of an H100, of which vLLM takes 0.92 by its own default; --memory is taken as it is."""
    usable = 7918 * 2**30 // 100
    words = ("qwen3-0.6b", "--gpu", "NVIDIA H100 80GB", "--engine", "vllm", "--tokens", "1k", "--overhead", "0")
    code, found = answer(capsys, *words)
    assert (code, found["memory_bytes"], found["budget_bytes"]) == (0, usable, usable * 92 // 100 - 16 * TOKEN)
    assert found["held_back_bytes"] == 16 * TOKEN
    _, found = answer(capsys, "qwen3-0.6b", "--memory", "1GiB", "--engine", "vllm")
    assert found["budget_bytes"] == 2**30 - 16 * TOKEN


def test_what_else_the_engine_takes_is_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    """The certain answer counts its upper end, the other one its lower; --overhead stands instead."""
    words = ("llama-8b", "--gpu", "rtx-3090", "--weights", "15GiB", "--engine", "vllm")
    code, found = answer(capsys, *words)
    low, high = found["other_low_bytes"], found["other_high_bytes"]
    assert (code, found["certain"], found["may_fit"]) == (0, False, True)
    assert 0 < low < high <= low + 2**31
    assert found["tokens"] < found["at_most"]["tokens"]
    for end, tokens in ((low, found["at_most"]["tokens"]), (high, found["tokens"])):
        _, exact = answer(capsys, *words, "--overhead", str(end))
        assert (exact["tokens"], exact["certain"], exact["at_most"]) == (tokens, True, None)


def test_an_answer_on_an_interval_is_never_green(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "llama-8b", "--gpu", "rtx-3090", "--weights", "15GiB", "--engine", "vllm"]) == 0
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("at least", "at most", "rule of vLLM"))
    assert main(["fit", "llama-8b", "--gpu", "rtx-3090", "--weights", "15GiB", "--engine", "mlx-lm"]) == 0
    assert "not covered" in capsys.readouterr().out


def test_weights_that_alone_exceed_the_card(capsys: pytest.CaptureFixture[str]) -> None:
    """140 GB over 23.52 GiB · 0.92 a card: seven of them."""
    code, found = answer(capsys, "llama-3-70b", "--gpu", "4090", "--weights", "140GB", "--engine", "vllm")
    assert code == 1
    assert "at least 7 cards" in found["weights_alone"]


def test_copies_share_the_routed_experts(capsys: pytest.CaptureFixture[str]) -> None:
    """Qwen3-30B-A3B: 48 layers of 128 experts of 3 · 2,048 · 768; two copies of vLLM hold half of them each."""
    words = ("qwen3-30b-a3b", "--memory", "80GiB", "--weights", "auto", "--tokens", "1k", "--overhead", "0")
    experts = 2 * 48 * 128 * 3 * 2048 * 768
    whole = 2 * 30_532_122_624
    _, found = answer(capsys, *words, "--engine", "vllm", "--dp", "2")
    rest = 80 * 2**30 - found["held_back_bytes"] - found["budget_bytes"]
    assert abs(rest - (whole - experts // 2)) <= 2
    _, dense = answer(capsys, "qwen3-8b", *words[1:], "--engine", "vllm", "--dp", "2")
    assert 80 * 2**30 - dense["held_back_bytes"] - dense["budget_bytes"] == 2 * 8_190_735_360


def test_several_cards_are_as_many_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("qwen3-0.6b", "--engine", "vllm", "--tokens", "1k")
    code, found = answer(capsys, *words, "--gpu", "2x4090")
    assert (code, found["ranks"], found["memory_bytes"]) == (0, 2, 24080 * 2**20)
    _, named = answer(capsys, *words, "--gpu", "8xh100", "--tp", "4")
    assert named["ranks"] == 4  # ranks that are named stand


NVIDIA = "#!/bin/sh\nprintf 'NVIDIA GeForce RTX 4090, 24564\\nNVIDIA GeForce RTX 4090, 24564\\n'\n"
AMD = """#!/bin/sh
printf 'GPU[0]: Card Series: AMD Instinct MI300X\\nGPU[0]: VRAM Total Memory (B): 206141652992\\n'
"""
TOOLS = {"nvidia-smi": (NVIDIA, 24080 * 2**20, 2), "rocm-smi": (AMD, 206141652992, 1)}


@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_card_this_machines_are_taken(
    tool: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, size, ranks = TOOLS[tool]
    (tmp_path / tool).write_text(text)
    (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    code, found = answer(capsys, "qwen3-0.6b", "--engine", "vllm")
    assert (code, found["memory_bytes"], found["ranks"]) == (0, size, ranks)
    assert found["memory_origin"].startswith("this machine")


def test_without_any_card_main_memory_is_taken(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, found = answer(capsys, "qwen3-0.6b")
    assert (code, found["memory_bytes"]) == (0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    assert "main memory" in found["memory_origin"]


def test_weights_of_an_index(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """auto reads the safetensors index beside the config."""
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_size": 8, "torch_dtype": "float16"}))
    words = ["--config", str(tmp_path), "--memory", "10000B", "--weights", "auto"]
    assert answer(capsys, *words)[0] == 3  # nothing there says how big they are
    header = json.dumps({"__metadata__": {}, "a": {"dtype": "F16", "shape": [300], "data_offsets": [0, 600]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert answer(capsys, *words)[1]["budget_bytes"] == 9400
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 3600}}')
    code, found = answer(capsys, *words)
    assert (code, found["weights_bytes"], found["tokens"]) == (0, 3600, 100)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--memory", "1GiB", "--gpu", "h100"], 2),
        (["--gpu", "a100"], 2),
        (["--gpu", "nothing like it"], 2),
        (["--memory", "1GiB", "--utilization", "1.2"], 2),
        (["--memory", "1GiB", "--utilization", "nan"], 2),
        (["--memory", "1GiB", "--frontier", "--tokens", "4k"], 2),
        (["--memory", "1GiB", "--weights", "auto"], 2),
        (["--memory", "1GiB", "--engine", "vllm", "-o", "available-bytes=1GiB"], 2),
        (["--device", "cuda:99"], 5),
        (["--device", "abacus"], 5),
    ],
)
def test_what_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], code: int) -> None:
    """One clear error each, with what to do."""
    got, found = answer(capsys, *EQUATION, *words)
    assert (got, bool(found["error"]["fix"])) == (code, True)


@pytest.mark.parametrize(
    "words",
    [
        ["llama-8b", "--memory", "24GiB", "--weights", "16GB"],
        ["llama-8b", "--memory", "24GiB", "--weights", "16GB", "--tokens", "1m"],
        ["llama-8b", "--memory", "24GiB", "--lengths", "512,8k,32k", "--engine", "static"],
        ["qwen3-0.6b", "--gpu", "h100", "--engine", "vllm", "--frontier", "--tp", "2"],
        ["mamba-130m", "--memory", "1GiB"],
    ],
)
def test_people_get_a_page(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """The answer first, then memory, what binds, what would change it; nothing on stderr."""
    code = main(["fit", *words])
    out, problems = capsys.readouterr()
    assert code in (0, 1)
    assert not problems
    assert "(engine: " in out.splitlines()[0]
    assert "for the cache" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--memory", "8PiB"], "1 sequence of 1,099,511,627,776 tokens, and more than is searched"),
        (["--memory", "63B", "-t", "1", "-b", "1"], "1 sequence of 1 token does not fit: 1 byte (1 B) is missing"),
        (["--memory", "64B", "-t", "2", "-b", "3"], "3 sequences of 2 tokens do not fit: 320 bytes (320 B) are missing"),
        (["--memory", "1KiB", "-e", "static", "-o", "capacity=5"], "at most 1 sequence of 5 tokens: the limit of an option"),
    ],
)
def test_the_answer_in_words(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    main(["fit", *EQUATION, *words])
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("card", "most"), [("rtx-4090", "256"), ("h100", "1,024")])
def test_a_card_decides_how_many_run_at_once(capsys: pytest.CaptureFixture[str], card: str, most: str) -> None:
    """Below 70 GiB vLLM's default is 256 sequences, above it 1,024."""
    _, found = answer(capsys, "smollm-135m", "--gpu", card, "-e", "vllm", "-t", "100")
    assert found["notes"][0].startswith(f"{most} sequences run at once")


def test_a_frontier_that_ends_with_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    """A state takes the same at any length: what is searched ends, what fits doesn't."""
    main(["fit", "mamba-130m", "--memory", "1GiB", "--frontier"])
    out = capsys.readouterr().out
    assert "1,099,511,627,776+" in out
    assert "+ and more than is searched" in out
