"""What an engine's log says, once its lines are understood: settings, a model's shape, and statements about the cache.

A figure keeps how it was printed: ``102.00`` MiB stands for every byte count that prints so, and a prediction agrees
when it lies in that interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as printed, in units of ``unit`` (bytes for sizes, 1 for counts)."""

    text: str
    unit: int = 1

    @property
    def _parts(self) -> tuple[Fraction, Fraction]:
        digits = self.text.replace(",", "")
        decimals = len(digits.partition(".")[2])
        return Fraction(digits) * self.unit, Fraction(self.unit, 10**decimals) if decimals or self.unit > 1 else Fraction(0)

    @property
    def exact_value(self) -> Fraction:
        """The printed number itself, in bytes or counts."""
        return self._parts[0]

    @property
    def value(self) -> int:
        """The printed number, in whole units of bytes or counts."""
        return int(self._parts[0])

    @property
    def low(self) -> int:
        """The smallest count that prints so; half a last digit below."""
        value, step = self._parts
        return max(0, -int(-(value - step / 2) // 1))

    @property
    def high(self) -> int:
        """The largest count that prints so; half a last digit above."""
        value, step = self._parts
        return int((value + step / 2) // 1)

    @property
    def exact(self) -> bool:
        """Whether it stands for one count only."""
        return self.low == self.high

    def covers(self, count: int) -> bool:
        """Whether ``count`` prints like this."""
        return self.low <= count <= self.high


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as the log states it, and the line that does."""

    value: str
    line: int


Value = Figure | str


@dataclass(frozen=True, slots=True)
class Statement:
    """One line, or one group of lines, about the cache. ``values`` are named by the row that recognised it."""

    kind: str
    line: int
    text: str
    values: Mapping[str, Value]
    rank: str = ""

    def figure(self, name: str) -> Figure | None:
        """The figure called ``name``, or None."""
        value = self.values.get(name)
        return value if isinstance(value, Figure) else None

    def count(self, name: str) -> int | None:
        """The whole number called ``name``, or None."""
        figure = self.figure(name)
        return None if figure is None else figure.value

    def word(self, name: str) -> str:
        """The text called ``name``, or an empty string."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Beginning:
    """An array that the log cuts short: its length, and the items that it shows."""

    length: int
    items: tuple[object, ...] = ()


@dataclass(slots=True)
class Load:
    """One start of one engine: what it was told, which model it read, and what it said of its cache."""

    engine: str
    line: int
    version: str = ""
    settings: dict[str, Setting] = field(default_factory=dict)
    shape: dict[str, Setting] = field(default_factory=dict)  # the engine's own print-out of the model's dimensions
    metadata: dict[str, object] = field(default_factory=dict)  # GGUF keys that the log dumps
    clipped: dict[str, Beginning] = field(default_factory=dict)  # GGUF keys whose values the log cuts short
    layer_widths: dict[int, tuple[int, int]] = field(default_factory=dict)  # layer → K and V elements a position
    statements: list[Statement] = field(default_factory=list)
    dropped: int = 0  # statements beyond the number that is kept

    def setting(self, *names: str) -> str | None:
        """The first of ``names`` that the log states."""
        return next((self.settings[name].value for name in names if name in self.settings), None)

    def of_kind(self, *kinds: str) -> list[Statement]:
        """The statements of these kinds, in the order of the log."""
        return [statement for statement in self.statements if statement.kind in kinds]


@dataclass(frozen=True, slots=True)
class EngineLog:
    """A whole log: its loads that state something, and how much was read."""

    loads: tuple[Load, ...]
    lines: int
    source: str = ""
    forgotten: int = 0  # earlier loads beyond the number that is kept
