"""The process's own streams, whatever they are: closed, full, a pipe that nobody reads, or of a small character set."""

from __future__ import annotations

import codecs
import os
import sys
from typing import Any, TextIO

# What kvcalc itself writes beyond ASCII; a name in other letters is escaped.
PLAIN = {
    "█": "#",
    "·": "*",
    "…": "...",
    "–": "-",
    "−": "-",
    "×": "x",
    "µ": "u",
    "≥": ">=",
    "≤": "<=",
    "Σ": "sum",
    "•": "*",
    **dict.fromkeys("─━╭╮╰╯", "-"),
    **dict.fromkeys("│┃", "|"),
}
ERRORS = "kvcalc"


def _replaced(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    found = problem.object[problem.start : problem.end]
    return "".join(PLAIN.get(letter) or _escaped(letter) for letter in found), problem.end


def _escaped(letter: str) -> str:
    """As in JSON, where it stands for the letter itself."""
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def prepare() -> None:
    """Nothing that is written may fail for its letters; a closed stream takes everything and keeps nothing."""
    codecs.register_error(ERRORS, _replaced)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _nowhere())
        elif (reconfigure := getattr(stream, "reconfigure", None)) is not None and stream.errors != ERRORS:
            reconfigure(errors=ERRORS)


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it stands for the stream until the end


def ascii_only(stream: Any) -> bool:
    """Whether the stream takes less than Unicode."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return not encoding.lower().replace("-", "").startswith("utf")


def silence(stream: TextIO | None = None) -> None:
    """The reader has gone, or the disk is full: nothing more is written (stdout by default), nor complained about at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
    except (OSError, ValueError, AttributeError):
        return
