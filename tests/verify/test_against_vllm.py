"""vLLM's own pool: the way there, with a stand-in for the library, and the refusal without it."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kvcalc.core.layers import FullAttention
from kvcalc.core.model import Request
from kvcalc.engines import find_engine
from kvcalc.errors import EngineError, MissingExtraError, UsageError
from kvcalc.readers.presets import preset_model
from kvcalc.verify.against import compare_with
from kvcalc.verify.results import Settings
from verify.verify_helpers import model_of

BLOCK = 128 * 2 * 28 * 8 * 128 * 2  # 128 tokens a block on the CPU


def library(blocks: int, extra: int = 0, fails: str = "") -> tuple[ModuleType, list[dict[str, Any]]]:
    """A module called vllm whose engine says that it has so many blocks."""
    calls: list[dict[str, Any]] = []

    def start(**given: Any) -> SimpleNamespace:
        calls.append(given)
        if fails:
            raise ValueError(fails)
        pool = torch.empty(blocks * BLOCK + extra, dtype=torch.int8, device="meta")
        tensor = SimpleNamespace(untyped_storage=lambda: Stored(pool))
        worker = SimpleNamespace(model_runner=SimpleNamespace(kv_caches={"a": [tensor]}))
        config = SimpleNamespace(num_blocks=blocks, kv_cache_groups=[1])
        core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=SimpleNamespace(kv_cache_config=config)))
        return SimpleNamespace(llm_engine=SimpleNamespace(engine_core=core), collective_rpc=lambda ask: [ask(worker)])

    module = ModuleType("vllm")
    module.LLM = start  # type: ignore[attr-defined]
    module.__version__ = "0.32.0"  # type: ignore[attr-defined]
    return module, calls


class Stored:
    """A tensor's storage, without the memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.size = tensor.numel()

    def data_ptr(self) -> int:
        return 1

    def nbytes(self) -> int:
        return self.size


REQUEST = Request(tokens=1000, options={"available-bytes": 10 * BLOCK, "platform": "cpu"})


@pytest.mark.parametrize(("blocks", "extra", "passed"), [(10, 0, True), (10, 1, False), (11, 0, False)])
def test_the_pool_is_weighed(monkeypatch: pytest.MonkeyPatch, blocks: int, extra: int, passed: bool) -> None:
    """10 blocks are predicted; a byte or a block more is a difference."""
    module, calls = library(blocks, extra)
    monkeypatch.setitem(sys.modules, "vllm", module)
    found = compare_with("vllm", preset_model("qwen3-0.6b"), REQUEST, Settings())
    assert (found.passed, found.predicted_bytes) == (passed, 10 * BLOCK)
    (given,) = calls
    assert (given["load_format"], given["max_model_len"], given["kv_cache_memory_bytes"]) == ("dummy", 1000, 10 * BLOCK)


def test_memory_is_what_the_request_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsaid: eight blocks for 1,000 tokens and the one that is held back."""
    module, calls = library(9)
    monkeypatch.setitem(sys.modules, "vllm", module)
    request = Request(tokens=1000, options={"platform": "cpu"})
    assert compare_with("vllm", preset_model("qwen3-0.6b"), request, Settings()).passed
    assert calls[0]["kv_cache_memory_bytes"] == 9 * BLOCK


def test_what_vllm_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last line, as a refusal of the engine's."""
    module, _ = library(10, fails="first\nthe model class is not there")
    monkeypatch.setitem(sys.modules, "vllm", module)
    with pytest.raises(EngineError, match="the model class is not there"):
        compare_with("vllm", preset_model("qwen3-0.6b"), REQUEST, Settings())


def test_a_model_without_a_file_is_refused() -> None:
    """Flags alone are no config.json."""
    with pytest.raises(UsageError, match=r"config\.json"):
        compare_with("vllm", model_of((FullAttention(2, 16, 16, 4),)), REQUEST, Settings())


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_the_library() -> None:
    """Exactly what is missing."""
    with pytest.raises(MissingExtraError, match="vllm isn't installed"):
        compare_with("vllm", preset_model("qwen3-0.6b"), REQUEST, Settings())


@pytest.mark.engines
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM isn't installed")
def test_the_library_itself() -> None:
    """A small model's pool, equal to the byte."""
    found = compare_with("vllm", preset_model("qwen3-0.6b"), Request(tokens=1000), Settings())
    assert found.passed
    assert find_engine("vllm").version
