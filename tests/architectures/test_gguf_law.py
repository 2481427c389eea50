"""One model counts the same in either form: from its config.json, and from the GGUF file that the converter makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.gguf import GgufMetadata
from kvcalc.core.layers import SlidingAttention
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines.exact import ENGINE
from kvcalc.engines.llamacpp.metadata import GGUF_NAMES, metadata_of
from kvcalc.errors import KvcalcError
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf
from kvcalc.readers.hf_config import model_of

DATA = Path(__file__).resolve().parents[1] / "data"
BF16 = find_dtype("bf16")
# llama.cpp has no windows for these: their files don't say which layers slide
NO_WINDOWS = frozenset({"qwen2", "qwen2vl", "qwen2moe", "qwen3", "qwen3moe", "smollm3", "dots1"})
OTHERWISE = frozenset({"minicpm3", "gpt2"})  # spread over the heads again; its cross-attention, where added, is not converted


def configs() -> list[dict[str, Any]]:
    found = []
    for name in ("architectures.jsonl", "architectures_shown.jsonl", "published.jsonl"):
        found += [json.loads(text)["config"] for text in (DATA / name).read_text("utf-8").splitlines()]
    return found


def converted(config: dict[str, Any]) -> tuple[Model, Model] | None:
    """A model and its GGUF file's; None where no such file can be made."""
    try:
        model = model_of(config, "config.json", "model")
        if model.model_type not in GGUF_NAMES or not model.layers:
            return None
        model = replace(model, max_tokens=model.max_tokens or 4096)
        _, keys = metadata_of(model)
    except KvcalcError:
        return None
    return model, model_of_gguf(GgufFile(GgufMetadata(keys), "made.gguf"), {})


PAIRS = [pair for pair in map(converted, configs()) if pair]


def test_each_architecture_that_is_converted_has_a_pair() -> None:
    assert len(PAIRS) > 300
    assert set(GGUF_NAMES.values()) - {file.model_type for _, file in PAIRS} == set()


def slides(model: Model) -> bool:
    return any(isinstance(part, SlidingAttention) for layer in model.layers for part in layer)


@pytest.mark.parametrize(("model", "file"), PAIRS, ids=[model.model_type for model, _ in PAIRS])
def test_a_file_keeps_what_its_config_says(model: Model, file: Model) -> None:
    if file.model_type in OTHERWISE:
        return
    if file.model_type in NO_WINDOWS and slides(model):
        assert not slides(file)
        return
    for tokens in (100, 5000):
        request = Request(tokens=tokens, k_dtype=BF16, v_dtype=BF16, encoder_tokens=10)
        own, found = (ENGINE.allocate(given, request).component_bytes() for given in (model, file))
        assert found == own
