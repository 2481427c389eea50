"""A model's fields under neutral names, each with the place it came from.

Every reader (config.json, GGUF, presets, flags) ends here, so that one rule serves all formats and every figure can
say which key of which file decided it. Names are the field's own: ``num_layers``, ``num_attention_heads``,
``num_kv_heads``, ``head_dim``, ``hidden_size``; rarer keys keep their Hugging Face name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kvcalc.errors import ConfigError
from kvcalc.values import value

Integer = int  # inside Fields, ``int`` is a method

MAX_FIELD = 2**40  # no real dimension comes near; keeps products far from absurd
MAX_LAYERS = 10_000


@value
class Field:
    """A value as the source gave it (None is an explicit null) and where it stands, for people."""

    value: object
    origin: str


class Fields(Mapping[str, Field]):
    """Read-only fields that remember which of them were asked for.

    ``where`` names the file for errors. A missing name and an explicit null both read as None; use ``in`` to
    tell them apart.
    """

    def __init__(self, values: Mapping[str, Field], where: str = "") -> None:
        self._values = dict(values)
        self.where = where
        self.used: dict[str, Field] = {}

    def __getitem__(self, name: str) -> Field:
        field = self._values[name]
        self.used[name] = field
        return field

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> Integer:
        return len(self._values)

    def with_values(self, values: Mapping[str, Field]) -> Fields:
        """A copy in which ``values`` stand instead of, or beside, what was there; what either is asked for, both remember."""
        copy = Fields({**self._values, **values}, self.where)
        copy.used = self.used
        return copy

    def raw(self, name: str) -> object:
        """The value as it stands, or None."""
        return self[name].value if name in self._values else None

    def origin(self, name: str) -> str:
        """Where ``name`` came from, or an empty string."""
        return self._values[name].origin if name in self._values else ""

    def at(self, name: str) -> str:
        """``file: key`` for an error about ``name``."""
        return self.origin(name) or f"{self.where}: {name}"

    def int_or_none(self, name: str, minimum: Integer = 1) -> Integer | None:
        """An integer ≥ ``minimum``, or None when missing or null. Raises ConfigError."""
        value = self.raw(name)
        return None if value is None else self._checked(name, value, minimum)

    def int(self, name: str, default: Integer | None = None, minimum: Integer = 1) -> Integer:
        """An integer ≥ ``minimum``. Raises ConfigError when it is missing and there is no default."""
        value = self.int_or_none(name, minimum)
        if value is not None:
            return value
        if default is None:
            raise ConfigError(f"{name} is missing", self.where, _how_to_give(name))
        return default

    def int_of(self, names: Iterable[str], default: Integer | None = None, minimum: Integer = 1) -> Integer:
        """The first of ``names`` that is there and not null."""
        names = tuple(names)
        for name in names:
            value = self.int_or_none(name, minimum)
            if value is not None:
                return value
        return self.int(names[0], default, minimum)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean; missing or null is ``default``. Raises ConfigError."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, not {value!r:.40}", self.at(name))
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string; missing or null is ``default``. Raises ConfigError."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be text, not {value!r:.40}", self.at(name))
        return value

    def number(self, name: str, default: float) -> float:
        """A number above 0; missing or null is ``default``. Raises ConfigError."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_FIELD:
            raise ConfigError(f"{name} must be a number above 0, not {value!r:.40}", self.at(name))
        return value

    def texts(self, name: str) -> list[str] | None:
        """A list of strings, or None when missing or null. Raises ConfigError."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value) or len(value) > MAX_LAYERS:
            raise ConfigError(f"{name} must be a list of words", self.at(name))
        return list(value)

    def ints(self, name: str, minimum: Integer = 0) -> list[Integer] | None:
        """A list of integers, or None when missing or null. Raises ConfigError."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) > MAX_LAYERS:
            raise ConfigError(f"{name} must be a list of integers", self.at(name))
        return [self._checked(f"{name}[{index}]", item, minimum, name) for index, item in enumerate(value)]

    def per_layer(self, name: str, num_layers: Integer, default: Integer | None = None, minimum: Integer = 0) -> list[Integer]:
        """One integer a layer: a list of that length, or a number for all. Raises ConfigError."""
        if isinstance(self.raw(name), list | tuple):
            values = self.ints(name, minimum) or []
            if len(values) < num_layers:
                raise ConfigError(f"{name} has {len(values)} entries for {num_layers} layers", self.at(name))
            return values[:num_layers]
        return [self.int(name, default, minimum)] * num_layers

    def mapping(self, name: str) -> Fields:
        """A nested object as fields of its own; empty when missing or null. Raises ConfigError."""
        value = self.raw(name)
        if value is None:
            return Fields({}, self.at(name))
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} must be an object", self.at(name))
        origin = self.at(name)
        return Fields({str(key): Field(item, f"{origin}.{key}") for key, item in value.items()}, origin)

    def _checked(self, label: str, value: object, minimum: Integer, name: str | None = None) -> Integer:
        if isinstance(value, float) and value.is_integer() and abs(value) < MAX_FIELD:
            value = int(value)  # some writers print 128.0
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{label} must be an integer, not {value!r:.40}", self.at(name or label))
        if not minimum <= value <= MAX_FIELD:
            raise ConfigError(
                f"{label} is {value if abs(value) < 10**18 else 'huge'}, outside {minimum} to 2^40", self.at(name or label)
            )
        return value


_FLAGS = {
    "num_layers": "--layers",
    "num_attention_heads": "--heads",
    "num_kv_heads": "--kv-heads",
    "head_dim": "--head-dim",
    "hidden_size": "--hidden-size",
    "sliding_window": "--sliding-window",
}


def _how_to_give(name: str) -> str:
    flag = _FLAGS.get(name)
    return f"give it with {flag}, or take the model's complete file" if flag else "take the model's complete file"
