"""GGUF files and llama.cpp on the command line: options, exit codes, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvcalc.cli import main

DEFECTS = Path(__file__).resolve().parents[1] / "data" / "gguf"
DUMP = {
    "general.architecture": "gemma3",
    "gemma3.context_length": 32768,
    "gemma3.embedding_length": 512,
    "gemma3.block_count": 6,
    "gemma3.attention.head_count": 4,
    "gemma3.attention.head_count_kv": 1,
    "gemma3.attention.key_length": 64,
    "gemma3.attention.value_length": 64,
    "gemma3.attention.sliding_window": 512,
}
ROW = 2 * 64 * 2  # K and V of one head of 64, 2 bytes


@pytest.fixture
def dump(tmp_path: Path) -> str:
    path = tmp_path / "gemma.json"
    path.write_text(json.dumps(DUMP))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, object]]:
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_bare_booleans_are_true(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["estimate", "--gguf", dump, "--engine", "llama.cpp", "--tokens", "8k"]
    plain, full = (run(capsys, *base, *extra)[1]["total_bytes"] for extra in ([], ["-o", "swa-full"]))
    assert plain == (8192 + 5 * 1024) * ROW
    assert full == 6 * 8192 * ROW
    assert run(capsys, *base, "-o", "swa-full=false")[1]["total_bytes"] == plain
    report = run(capsys, *base, "-o", "kv-unified")[1]["engine_report"]
    assert isinstance(report, dict)
    assert report["kv_unified"] is True


def test_flags_override_the_files_keys(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(
        capsys,
        "estimate",
        "--gguf",
        dump,
        "--engine",
        "llama.cpp",
        "--tokens",
        "8k",
        "--sliding-window",
        "1024",
        "--kv-heads",
        "2",
    )
    assert (code, found["total_bytes"]) == (0, (8192 + 5 * 1536) * 2 * ROW)


def test_any_gguf_key_can_be_set(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = "gemma3.attention.sliding_window_pattern=2"
    _, found = run(capsys, "estimate", "--gguf", dump, "--engine", "llama.cpp", "--tokens", "8k", "--set", key)
    assert found["total_bytes"] == (3 * 8192 + 3 * 1024) * ROW


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (["--tokens", "1k", "-o", "ctx-size=4k"], 2),
        (["--tokens", "1k", "--batch", "2", "-o", "parallel=3"], 2),
        (["-o", "cache-type-k=q9"], 2),
        (["-o", "parallel=0"], 2),
        (["-o", "kv-unified=maybe"], 2),
        (["-o", "nonsense=1"], 2),
        (["-o", "flash-attn=off", "-o", "cache-type-v=q8_0"], 4),
        (["-o", "release=b1"], 4),
        (["-o", "context-type=mtp"], 4),
        (["-o", "parallel=257"], 4),
        (["--k-dtype", "fp8"], 4),
    ],
)
def test_exit_codes(dump: str, capsys: pytest.CaptureFixture[str], extra: list[str], code: int) -> None:
    found, document = run(capsys, "estimate", "--gguf", dump, "--engine", "llama.cpp", *extra)
    assert found == code
    assert isinstance(document["error"], dict)
    assert document["error"]["fix"]


def test_an_architecture_that_nobody_knows_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"general.architecture": "zebra9", "zebra9.block_count": 4}))
    for engine in ("exact", "llama.cpp"):
        code, document = run(capsys, "estimate", "--gguf", str(path), "--engine", engine)
        assert code == 4
        assert "zebra9" in str(document["error"])


@pytest.mark.parametrize("bad", [{"gemma3.block_count": 0}, {"gemma3.attention.head_count": -1}])
def test_a_value_that_can_t_be_is_bad_input(bad: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**DUMP, **bad}))
    for verb in ("estimate", "inspect"):
        assert run(capsys, verb, "--gguf", str(path))[0] == 3


@pytest.mark.parametrize("path", sorted(DEFECTS.glob("*.gguf")), ids=lambda path: path.stem)
def test_damaged_files_are_bad_input(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(capsys, "estimate", "--gguf", str(path), "--engine", "llama.cpp")
    assert code == 3
    assert "Traceback" not in str(document)


def test_a_release_can_be_named(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["estimate", "--gguf", dump, "--engine", "llama.cpp", "--tokens", "8000", "-o", "flash-attn=off"]
    older = run(capsys, *base, "-o", "release=b5640")[1]
    assert older["total_bytes"] == (8000 + 5 * 1024) * ROW
    assert "'version': 'b5640'" in str(older["engine"])
    assert run(capsys, *base)[1]["total_bytes"] == (8192 + 5 * 1024) * ROW


def test_the_engine_lists_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, "engines", "llama.cpp")
    assert code == 0
    assert all(word in json.dumps(found) for word in ("ctx-size", "kv-unified", "n-rs-seq", "0.5.0-dev", "server"))
