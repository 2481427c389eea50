"""Files of ollama's registry with an architecture's name of its own, as upstream names it.

Source: ollama ``llama/compat`` (what llama.cpp's loader is told), ``convert/convert_*.go``.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvcalc.core.gguf import GgufMetadata

ARCHITECTURE = "general.architecture"
UPSTREAM: Mapping[str, str] = {
    "gptoss": "gpt-oss",
    "qwen25vl": "qwen2vl",
    "glm4moelite": "deepseek2",
    "deepseekocr": "deepseek2-ocr",
    "olmo3": "olmo2",
    "nemotron_h_omni": "nemotron_h_moe",
    "glmocr": "glm4",
}


def upstream(metadata: GgufMetadata) -> GgufMetadata:
    """The keys under upstream's name of the architecture; the same where the file has that already."""
    own = metadata.get(ARCHITECTURE)
    name = UPSTREAM.get(own) if isinstance(own, str) else None
    if name is None:
        return metadata
    values = {_renamed(key, f"{own}.", f"{name}."): value for key, value in metadata.items()} | {ARCHITECTURE: name}
    if name == "deepseek2":
        values |= _latent(values)
    types = {_renamed(key, f"{own}.", f"{name}."): kind for key, kind in metadata.types.items()}
    return GgufMetadata(values, {key: kind for key, kind in types.items() if key in metadata.types}, metadata.tensors)


def _renamed(key: str, own: str, name: str) -> str:
    return name + key.removeprefix(own) if key.startswith(own) else key


def _latent(values: Mapping[str, object]) -> dict[str, object]:
    """Widths of a head become those of the latent: rank + rope of keys, the rank of values, one head."""
    known = {key: values.get(f"deepseek2.{key}") for key in ("attention.kv_lora_rank", "rope.dimension_count")}
    rank, rope = (value if isinstance(value, int) else 0 for value in known.values())
    if not rank or "deepseek2.attention.key_length_mla" in values:
        return {}
    widths = {
        f"deepseek2.attention.{side}_length_mla": values.get(f"deepseek2.attention.{side}_length") for side in ("key", "value")
    }
    return {
        **{key: width for key, width in widths.items() if width is not None},
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.key_length": rank + rope,
        "deepseek2.attention.value_length": rank,
    }
