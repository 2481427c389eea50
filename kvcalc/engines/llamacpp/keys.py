"""How llama.cpp reads a key: 32-bit unsigned numbers, per-layer arrays of the right length, or it refuses the file.

Source: llama.cpp 0.5.0-dev, ``src/llama-model-loader.cpp`` (get_key, get_arr, get_key_or_arr).
"""

from __future__ import annotations

from collections.abc import Mapping

from kvcalc.core.gguf import GgufMetadata, Skipped
from kvcalc.engines.llamacpp.arches import MAX_LAYERS
from kvcalc.errors import EngineError

_ARRAY_TYPES = ("u32", "i32", "bool")
_LARGEST = 2**32 - 1


class Keys:
    """The keys of one architecture, read as the engine reads them."""

    def __init__(self, metadata: Mapping[str, object], arch: str, where: str = "") -> None:
        self._metadata = metadata
        self._types = metadata.types if isinstance(metadata, GgufMetadata) else {}
        self.arch = arch
        self.where = where

    def refuse(self, name: str, what: str) -> EngineError:
        """The engine's refusal of this file, at a key."""
        return EngineError(f"llama.cpp refuses this file: {what}", f"{self.where}: {self.arch}.{name}", "convert the model anew")

    def is_array(self, name: str) -> bool:
        """Whether the key holds an array."""
        return isinstance(self._value(name), list | tuple | Skipped)

    def _value(self, name: str) -> object:
        return self._metadata.get(f"{self.arch}.{name}")

    def number(self, name: str, default: int | None = None) -> int:
        """A u32; without ``default`` the key is required. Raises EngineError."""
        value = self._value(name)
        if value is None:
            if default is None:
                raise self.refuse(name, "the key is missing")
            return default
        kind = self._types.get(f"{self.arch}.{name}", "u32")
        if kind != "u32":
            raise self.refuse(name, f"it is {kind}, and the engine reads a u32 there")
        return self._checked(name, value)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean. Raises EngineError."""
        value = self._value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, "it is no boolean")
        return value

    def _checked(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise self.refuse(name, f"{str(value)[:30]} is no number from 0 to 2^32-1")
        return value

    def array(self, name: str, layers: int, required: bool = False) -> list[int] | None:
        """An array of any length, cut or filled with 0 to ``layers``; None where the key is missing or a number."""
        value = self._value(name)
        if value is None or not self.is_array(name):
            if required:
                raise self.refuse(name, "an array with a value for each layer is required there")
            return None
        found = self._elements(name, value)
        return (found + [0] * layers)[:layers]

    def _elements(self, name: str, value: object) -> list[int]:
        kind = self._types.get(f"{self.arch}.{name}", "array of u32").removeprefix("array of ")
        if kind not in _ARRAY_TYPES:
            raise self.refuse(name, f"it is an array of {kind}, and the engine reads u32, i32 or bool there")
        if not isinstance(value, list | tuple) or len(value) > MAX_LAYERS:
            raise self.refuse(name, f"the array has over {MAX_LAYERS} entries")
        return [int(item) if isinstance(item, bool) else self._checked(name, item) for item in value]

    def length(self, name: str) -> int:
        """How many entries an array has."""
        value = self._value(name)
        return len(value) if isinstance(value, list | tuple) else 0

    def per_layer(self, name: str, layers: int) -> list[int] | None:
        """An array of exactly ``layers`` entries, or a number for all; None where the key is missing. Raises EngineError."""
        value = self._value(name)
        if value is None:
            return None
        if not self.is_array(name):
            return [self.number(name)] * layers
        found = self._elements(name, value)
        if len(found) != layers:
            raise self.refuse(name, f"the array has {len(found)} entries, and the engine wants {layers}")
        return found

    def has_tensor(self, name: str) -> bool | None:
        """Whether the file holds a tensor; None where its tensor table is unknown."""
        return self._metadata.has_tensor(name) if isinstance(self._metadata, GgufMetadata) else None
