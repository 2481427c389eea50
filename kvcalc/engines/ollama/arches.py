"""Which of ollama's engines runs an architecture in which release, and what its own keeps of a window.

Source: ollama ``fs/ggml/ggml.go`` (OllamaEngineRequired), ``model/models/*/model.go``, ``server/sched.go``, ``llama/compat``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kvcalc.values import value

Windows = Literal["none", "window", "prefix", "whole"]


@value
class Arch:
    """An architecture of ollama's own engine."""

    since: str
    windows: Windows = "none"  # none: every layer keeps the context; prefix: more than the window, for reuse
    padded: bool = True
    single: bool = False  # one sequence, whatever is asked for


# By ollama's own name.
ARCHES: Mapping[str, Arch] = {
    "gemma3": Arch("0.6.0", "window"),
    "mistral3": Arch("0.6.5"),
    "mllama": Arch("0.6.0", padded=False, single=True),
    "llama4": Arch("0.6.7", "whole"),
    "qwen25vl": Arch("0.7.0"),
    "gemma3n": Arch("0.9.3", "window"),
    "gptoss": Arch("0.11.0", "prefix"),
    "deepseek2": Arch("0.12.0"),
    "qwen3": Arch("0.12.0"),
    "qwen3moe": Arch("0.12.0"),
    "qwen3vl": Arch("0.12.7", single=True),
    "qwen3vlmoe": Arch("0.12.7", single=True),
    "deepseekocr": Arch("0.13.0"),
    "olmo3": Arch("0.13.3", "window"),
    "glm4moelite": Arch("0.15.0"),
    "qwen3next": Arch("0.15.5", single=True),
    "lfm2": Arch("0.15.5", single=True),
    "lfm2moe": Arch("0.15.5", single=True),
    "glmocr": Arch("0.15.5"),
    "qwen35": Arch("0.17.0", single=True),
    "qwen35moe": Arch("0.17.0", single=True),
    "nemotron_h": Arch("0.17.0", single=True),
    "nemotron_h_moe": Arch("0.17.0", single=True),
    "gemma4": Arch("0.20.0", "prefix"),
    "laguna": Arch("0.25.0", "window"),
    "nemotron_h_omni": Arch("0.25.0", single=True),
}
# Those that it runs only where OLLAMA_NEW_ENGINE asks for it.
ON_REQUEST: Mapping[str, Arch] = {"llama": Arch("0.6.0"), "qwen2": Arch("0.6.0"), "gemma2": Arch("0.6.0", "window", padded=False)}
# llama.cpp's name → ollama's
_OWN_NAMES: Mapping[str, str] = {
    "gpt-oss": "gptoss",
    "qwen2vl": "qwen25vl",
    "deepseek2-ocr": "deepseekocr",
}
_BY_TYPE: Mapping[str, str] = {
    "glm4_moe_lite": "glm4moelite",
    "olmo3": "olmo3",
    "mllama": "mllama",
    "mllama_text_model": "mllama",
}


def own_name(gguf_name: str, model_type: str) -> str:
    """The name that ollama gives a model's architecture."""
    return _BY_TYPE.get(model_type) or _OWN_NAMES.get(gguf_name, gguf_name)
