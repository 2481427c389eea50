"""Engines: whose allocation rules count. One file each, or a folder; this table is the index.

A module is imported only when its engine is asked for.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module

from kvcalc.core.model import OptionValue
from kvcalc.engines.base import Engine
from kvcalc.errors import EngineError

ENGINES: dict[str, str] = {
    "exact": "kvcalc.engines.exact",
    "static": "kvcalc.engines.static",
    "paged": "kvcalc.engines.paged",
    "llama.cpp": "kvcalc.engines.llamacpp.engine",
    "transformers": "kvcalc.engines.transformers.engine",
    "vllm": "kvcalc.engines.vllm.engine",
    "sglang": "kvcalc.engines.sglang.engine",
    "tensorrt-llm": "kvcalc.engines.tensorrt_llm",
    "mlx-lm": "kvcalc.engines.mlx_lm.engine",
    "lmcache": "kvcalc.engines.lmcache",
    "ollama": "kvcalc.engines.ollama.engine",
}
ALIASES: dict[str, str] = {
    "equation": "exact",
    "logical": "exact",
    "tensorrt_llm": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "mlx": "mlx-lm",
    "mlx_lm": "mlx-lm",
    "trt": "tensorrt-llm",
    **dict.fromkeys(
        ("llamacpp", "llama-cpp", "llama_cpp", "llama-server", "llama", "koboldcpp", "lmstudio", "lm-studio"), "llama.cpp"
    ),
}
# Programs around an engine, whose own defaults differ from its: KoboldCpp and LM Studio keep sliding caches at full length.
OWN_DEFAULTS: dict[str, dict[str, OptionValue]] = {key: {"swa-full": True} for key in ("koboldcpp", "lmstudio", "lm-studio")}


def defaults_of(name: str) -> dict[str, OptionValue]:
    """Options that a program named instead of its engine sets by itself."""
    return OWN_DEFAULTS.get(name.strip().lower(), {})


def find_engine(name: str) -> Engine:
    """The engine called ``name``. Raises EngineError with near matches."""
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    if key not in ENGINES:
        near = get_close_matches(key, [*ENGINES, *ALIASES], n=3, cutoff=0.6)
        hint = f"did you mean {', '.join(near)}?" if near else f"known engines: {', '.join(ENGINES)}"
        raise EngineError(f"unknown engine {name[:40]!r}", fix=hint)
    engine: Engine = import_module(ENGINES[key]).ENGINE
    return engine
