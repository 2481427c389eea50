"""One engine option: its kind, its default for people, and how its text is read."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from kvcalc.core.model import OptionValue
from kvcalc.errors import UsageError
from kvcalc.units import parse_bytes, parse_count
from kvcalc.values import value


@value
class Option:
    """One ``-o name=value``. ``kind`` is int, count (4k), bytes (24GiB), bool, text or choice."""

    name: str
    kind: str
    help: str
    default: str = ""  # for people
    choices: tuple[str, ...] = ()
    minimum: int = 0
    short: tuple[str, ...] = ()  # the engine's own short names for it

    def parse(self, text: str | None) -> OptionValue:
        """The value of ``text``; a bare name (None) is true for a bool. Raises UsageError."""
        if self.kind == "bool":
            return self._bool(text)
        if text is None or text == "":
            raise UsageError(f"-o {self.name} needs a value", fix=f"write -o {self.name}=…")
        if self.kind == "bytes":
            return parse_bytes(text)
        if self.kind in ("int", "count"):
            return self._int(text)
        if self.kind == "choice" and text not in self.choices:
            raise UsageError(f"-o {self.name}={text[:40]} is none of its values", fix=f"one of {', '.join(self.choices)}")
        return text

    def _bool(self, text: str | None) -> bool:
        if text is None or text.lower() in ("true", "1", "on", "yes"):
            return True
        if text.lower() in ("false", "0", "off", "no"):
            return False
        raise UsageError(
            f"-o {self.name}={text[:40]} is neither true nor false", fix=f"write -o {self.name} or -o {self.name}=false"
        )

    def _int(self, text: str) -> int:
        bare = text.removeprefix("-")
        if bare.isascii() and bare.isdigit() and len(bare) <= 16:
            value = int(text)
        else:
            value = parse_count(text, f"a value of -o {self.name}")
        if value < self.minimum:
            raise UsageError(f"-o {self.name}={text[:40]} is below {self.minimum}", fix=f"give {self.minimum} or more")
        return value


def parse_options(engine: str, options: Sequence[Option], texts: Sequence[str]) -> dict[str, OptionValue]:
    """``["block-size=32", "kv-unified"]`` → values by option name. Raises UsageError."""
    known = {option.name: option for option in options}
    short = {word: option.name for option in options for word in option.short}
    values: dict[str, OptionValue] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().lstrip("-").replace("_", "-")
        name = short.get(name, name)
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"its options: {', '.join(known) or 'none'}"
            raise UsageError(f"engine {engine} has no option {name[:40]!r}", fix=hint)
        if name in values:
            raise UsageError(f"-o {name} is given twice", fix="give it once")
        values[name] = known[name].parse(value.strip() if equals else None)
    return values
