"""A model's GGUF keys: those of its file, or those that llama.cpp's converter would write for it."""

from __future__ import annotations

from collections.abc import Mapping

from kvcalc.core.model import Model
from kvcalc.errors import EngineError


def metadata_of(model: Model) -> tuple[str, Mapping[str, object]]:
    """The architecture's GGUF name, and the keys. Raises EngineError."""
    if model.format == "gguf":
        return str(model.metadata.get("general.architecture", "")), model.metadata
    raise EngineError(f"llama.cpp's rules need a GGUF file; {model.name} is given otherwise", model.source, "give it with --gguf")
