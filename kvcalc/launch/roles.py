"""Which options decide cache, capacity or weights. What an engine's table has beside these has no effect on memory."""

from __future__ import annotations

import re
from functools import cache

from kvcalc.tables import read_table

_SPEAKS = re.compile(
    r"(?:^|[-_.])(kv|cache|ctx|context|mem|memory|vram|moe|experts?|gpu|gpulayers|offload|layers|parallel|batch|draft|spec|"
    r"contextsize|quant|tokens?|nsa|dsa|mamba|swa|window|blocks?|graph|engram)(?=$|[-_.])|cpu_offload",
    re.IGNORECASE,
)
_ENV = {
    "vllm": re.compile(r"VLLM_\w+|PYTORCH_CUDA_ALLOC_CONF|LMCACHE_\w+"),
    "sglang": re.compile(r"SGLANG_\w+|SGL_\w+|PYTORCH_CUDA_ALLOC_CONF"),
    "llama.cpp": re.compile(r"GGML_\w+|LLAMA_(?!ARG_)\w+"),
    "tensorrt-llm": re.compile(r"TRTLLM_\w+|TLLM_\w+"),
    "lmdeploy": re.compile(r"LMDEPLOY_\w+"),
    "mlx-lm": re.compile(r"MLX_\w+"),
}
_SILENT_ENV = re.compile(
    r"\w*(HOST|PORT|API_KEY|LOG\w*|TOKEN|ADDR|USAGE_STATS|DEBUG|TIMEOUT\w*|CACHE_ROOT|CACHE_DIR|MODELSCOPE|ENDPOINT|KEEP_ALIVE|ORIGINS)"
)


@cache
def names(role: str) -> frozenset[str]:
    """The names that a list in ``data/roles.json`` holds: an engine's options that decide, or Ollama's without effect."""
    return frozenset(read_table("kvcalc.launch", "roles")[role])


def decides(engine: str, name: str) -> bool:
    """Whether an option counts for cache, capacity or weights."""
    return (name if engine == "ollama" else name.replace("_", "-")) in names(engine)


def speaks_of_memory(name: str, held: object = "") -> bool:
    """Whether the name of an option that no table has speaks of memory."""
    return bool(_SPEAKS.search(name)) or (isinstance(held, dict) and any(speaks_of_memory(str(key)) for key in held))


def env_counts(engine: str, name: str) -> bool:
    """Whether a variable is handed on as a setting: the visible cards, and switches of the engine itself."""
    if name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        return True
    pattern = _ENV.get(engine)
    return bool(pattern and pattern.fullmatch(name) and not _SILENT_ENV.fullmatch(name))
