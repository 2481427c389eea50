"""What Ollama (0.30 and newer) starts llama.cpp's server with: length, slots and batches from its settings and the card.

Read from Ollama's llm/llama_server.go, server/sched.go and server/routes.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_GIB = 2**30
SINCE = "0.30"  # before it, Ollama had a runner of its own
# A card's bytes → the length that stands where none is said.
_LENGTHS = ((47 * _GIB, 262_144), (23 * _GIB, 32_768), (0, 4096))
# Tokens of all slots → the batch, both logical and physical.
_BATCHES = ((32_768, 2048), (4096, 1024), (0, 512))
# Types that get one slot, whatever is asked for.
_ONE_SLOT = ("mllama", "qwen3_vl", "qwen3vl", "qwen3_5", "qwen35", "qwen3_next", "qwen3next", "lfm2", "nemotron_h")


def arguments(settings: Mapping[str, Any], model_type: str, longest: int | None, memory: int | None) -> dict[str, str]:
    """Options of llama.cpp's engine. ``longest`` is the file's own length, ``memory`` the card's bytes where one is named."""
    length = _number(settings, "num_ctx") or _number(settings, "OLLAMA_CONTEXT_LENGTH")
    length = length or next(tokens for least, tokens in _LENGTHS if (memory or 0) >= least)
    length = min(length, longest) if longest else length
    slots = 1 if model_type.startswith(_ONE_SLOT) else _number(settings, "OLLAMA_NUM_PARALLEL") or 1
    batch = _number(settings, "num_batch") or next(size for above, size in _BATCHES if length * slots > above)
    found = {"ctx-size": length * slots, "parallel": slots, "batch-size": batch, "ubatch-size": batch}
    return {name: str(held) for name, held in found.items()}


def _number(settings: Mapping[str, Any], name: str) -> int | None:
    held = settings.get(name)
    if isinstance(held, str) and held.isdigit():
        held = int(held)
    return held if isinstance(held, int) and held > 0 else None
