"""What ``inspect`` adds for a GGUF file, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvcalc.cli import main
from kvcalc.core.gguf import GgufMetadata, TensorInfo
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf
from kvcalc.reports.gguf_view import figures_of, weights_of

DUMP = {
    "general.architecture": "llama",
    "llama.context_length": 8192,
    "llama.embedding_length": 512,
    "llama.block_count": 2,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
}


def test_weights_are_added_by_type() -> None:
    tensors = (
        TensorInfo("a", (256, 2), 12, 0),
        TensorInfo("b", (256, 4), 12, 0),
        TensorInfo("c", (8,), 0, 0),
        TensorInfo("d", (9,), 99, 0),
    )
    model = model_of_gguf(GgufFile(GgufMetadata(DUMP, {}, tensors), "m.gguf"), {})
    rows = {row.type_name: (row.tensors, row.elements, row.bytes) for row in weights_of(model) or []}
    assert rows == {"q4_K": (2, 1536, 6 * 144), "f32": (1, 8, 32), "type 99": (1, 9, None)}


def test_a_dump_has_no_weights() -> None:
    assert weights_of(model_of_gguf(GgufFile(GgufMetadata(DUMP), "m.json"), {})) is None


def test_cache_types_stand_side_by_side_at_the_files_own_length() -> None:
    figures = figures_of(model_of_gguf(GgufFile(GgufMetadata(DUMP), "m.json"), {}))
    cell = 2 * 2 * 2 * 64  # elements: two layers, K and V, two heads of 64
    assert [(row.engine, row.cache_type, row.total_bytes) for row in figures if row.engine == "llama.cpp"] == [
        ("llama.cpp", "f16", 8192 * cell * 2),
        ("llama.cpp", "q8_0", 8192 * cell // 32 * 34),
        ("llama.cpp", "q4_0", 8192 * cell // 32 * 18),
    ]


def test_a_type_that_does_not_fit_the_heads_is_refused_by_the_engine_alone() -> None:
    metadata = {**DUMP, "llama.attention.key_length": 80, "llama.attention.value_length": 80}
    figures = figures_of(model_of_gguf(GgufFile(GgufMetadata(metadata), "m.json"), {}))
    refused = [(row.engine, row.cache_type) for row in figures if row.total_bytes is None]
    assert refused == [("llama.cpp", "q8_0"), ("llama.cpp", "q4_0")]


def test_inspect_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(DUMP))
    assert main(["inspect", "--gguf", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "file's own context length of 8,192" in shown
    assert "llama.attention.head_count_kv" in shown
    assert main(["inspect", "--gguf", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["gguf"]
    assert found["weights"] is None
    assert [row["type"] for row in found["cache_types"]] == ["f16", "q8_0", "q4_0"] * 2
