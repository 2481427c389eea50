"""What the readers of launch lines hand on: words with their place, commands as found, launches as read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kvcalc.errors import InputError
from kvcalc.values import value


class LaunchError(InputError):
    """A launch line, script or manifest in which nothing can be read."""

    code = "launch"


@value
class Word:
    """One word of a command line. ``asks`` names variables in it that the text gives no value for."""

    text: str
    line: int = 0
    asks: tuple[str, ...] = ()
    quoted: bool = False


@value
class Slip:
    """Something in the text that its author hardly meant: where, and what happens."""

    line: int
    text: str


@value
class Command:
    """A program with its words and variables, as a text starts it; ``engine`` where an image or a schema says it."""

    words: tuple[Word, ...] = ()
    env: Mapping[str, Word] = field(default_factory=dict)
    place: str = ""
    engine: str = ""
    release: str = ""
    image: str = ""
    gpus: int | None = None
    gpu: str = ""
    replicas: int = 1
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    slips: tuple[Slip, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)  # engine → the release that an installation in the text pins


COUNTED, NAMES_MODEL, NO_EFFECT, UNKNOWN, REMOVED, AMBIGUOUS, UNREADABLE = (
    "counted",
    "names the model",
    "no effect on memory",
    "unknown",
    "removed",
    "ambiguous",
    "unreadable",
)


@value
class Flag:
    """One flag or variable as written, the option that the engine takes it for, and what becomes of it."""

    written: str
    name: str
    value: Any
    verdict: str
    line: int = 0
    note: str = ""


@value
class Launch:
    """One server as its text starts it: settings by the engine's own option names, every flag accounted for."""

    engine: str
    release: str
    model: str
    settings: Mapping[str, Any]
    flags: tuple[Flag, ...]
    place: str = ""
    program: str = ""
    gpus: int | None = None
    gpu: str = ""
    replicas: int = 1
    asks: tuple[str, ...] = ()
    slips: tuple[Slip, ...] = ()
    notes: tuple[str, ...] = ()
    image: str = ""

    def named(self, *verdicts: str) -> tuple[Flag, ...]:
        """The flags with one of these verdicts."""
        return tuple(flag for flag in self.flags if flag.verdict in verdicts)
