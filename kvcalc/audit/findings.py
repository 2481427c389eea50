"""One checked figure, and what a whole load comes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from kvcalc.core.log_facts import Figure, Load, Statement
from kvcalc.core.model import Model
from kvcalc.units import format_bytes

Unit = Literal["bytes", "count", "ratio"]  # ratios are held in millionths
RATIO = 10**6


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted figure: one value, or all that the log's own rounding allows."""

    low: int
    high: int

    def meets(self, low: int, high: int) -> bool:
        """Whether the two have a value in common."""
        return self.low <= high and low <= self.high


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure of one line. ``predicted`` is None where nothing could be computed; ``why`` explains either way."""

    line: int
    what: str
    stated: str
    low: int  # what the printed figure can stand for
    high: int
    predicted: Range | None
    unit: Unit
    why: str = ""
    scale: int = 1  # the unit in which it is printed, so that the prediction stands beside it in the same
    restates: int = 0  # the line whose figure this one follows from: no second proof
    note_bytes: int | None = None  # tokens also as bytes

    @property
    def verdict(self) -> str:
        """exact, agrees (within what is printed), differs, or unchecked."""
        if self.predicted is None:
            return "unchecked"
        if not self.predicted.meets(self.low, self.high):
            return "differs"
        return "exact" if self.low == self.high == self.predicted.low == self.predicted.high else "agrees"

    @property
    def difference(self) -> int | None:
        """Stated less predicted, past all rounding; 0 where they agree."""
        if self.predicted is None:
            return None
        if self.low > self.predicted.high:
            return self.low - self.predicted.high
        return min(0, self.high - self.predicted.low)

    @property
    def predicted_text(self) -> str:
        """The prediction, for people."""
        if self.predicted is None:
            return ""
        low, high = (shown(value, self.unit, self.scale) for value in (self.predicted.low, self.predicted.high))
        return low if low == high else f"{low} to {high}"

    @property
    def difference_text(self) -> str:
        """The difference, for people: in the printed unit where it shows there."""
        if not self.difference:
            return "" if self.difference is None else "0"
        size = abs(self.difference)
        text = shown(size, self.unit, self.scale if size * 100 >= self.scale else 1)
        return ("+" if self.difference > 0 else "-") + text


def shown(value: int, unit: Unit, scale: int = 1) -> str:
    """A value of this unit, for people."""
    if unit == "bytes":
        return f"{value / scale:,.2f} {_NAMES[scale]}" if scale > 1 else format_bytes(value)
    return f"{value:,}" if unit == "count" else f"{value / RATIO:,.2f}"


@dataclass(frozen=True, slots=True)
class Audited:
    """One load, checked. ``missing`` says what to add where something stayed unchecked."""

    load: Load
    engine: str
    model: Model | None
    findings: tuple[Finding, ...]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    used: tuple[tuple[str, str, str], ...] = field(default=())  # setting, value, where it came from
    rules: str = ""  # the release whose rules these are

    @property
    def checked(self) -> list[Finding]:
        """The findings with a prediction."""
        return [finding for finding in self.findings if finding.predicted is not None]

    @property
    def agrees(self) -> bool:
        """Whether nothing that was checked differs."""
        return all(finding.verdict != "differs" for finding in self.findings)


def check(
    statement: Statement,
    name: str,
    what: str,
    predicted: int | Range | None,
    why: str = "",
    unit: Unit = "bytes",
    restates: int = 0,
) -> list[Finding]:
    """The finding for the figure called ``name``; none where the line doesn't print it."""
    figure = statement.figure(name)
    if figure is None:
        return []
    text = figure_text(figure, name)
    scale = figure.unit if unit == "bytes" else 1
    found = finding(statement, text, figure.low, figure.high, what, predicted, why, unit, scale)
    return [replace(found, restates=restates if found.predicted else 0)]


def finding(
    statement: Statement,
    text: str,
    low: int,
    high: int,
    what: str,
    predicted: int | Range | None,
    why: str = "",
    unit: Unit = "bytes",
    scale: int = 1,
) -> Finding:
    """A finding for any printed interval."""
    expected = Range(predicted, predicted) if isinstance(predicted, int) else predicted
    return Finding(statement.line, what, text, low, high, expected, unit, why, scale)


def total_of(figures: Iterable[Figure]) -> tuple[int, int]:
    """What figures that are printed one by one can add up to."""
    found = list(figures)
    return sum(figure.low for figure in found), sum(figure.high for figure in found)


_NAMES = {1: "B", 2**10: "KiB", 2**20: "MiB", 2**30: "GiB", 2**40: "TiB", 10**3: "KB", 10**6: "MB", 10**9: "GB"}


def figure_text(figure: Figure, name: str = "") -> str:
    """As printed, with its true unit."""
    if name.endswith("_x"):
        return figure.text
    return (
        f"{figure.text} {_NAMES[figure.unit]}"
        if figure.unit in _NAMES and (figure.unit > 1 or name.endswith("_bytes"))
        else figure.text
    )
