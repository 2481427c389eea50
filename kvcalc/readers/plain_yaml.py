"""The plainest YAML, read without a YAML library: a block of ``key: value`` lines, as the shipped presets have it.

Importing the library takes a tenth of a whole ``estimate``, for nine lines of a file that ships with the program. Anything that
isn't surely the same under both is left to the library: the tests hold every shipped preset against it.
"""

from __future__ import annotations

import json
import re

_LINE = re.compile(r"  ([A-Za-z_][A-Za-z0-9_]*): (\S.*)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# Words that YAML 1.1 takes for something else than text.
_NOT_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def block_of(text: str, name: str) -> dict[str, object] | None:
    """The mapping under ``name:`` at the left margin, up to the file's end; None where a line isn't of the plainest kind."""
    _, found, block = text.partition(f"\n{name}:\n")
    lines = block.splitlines() if found else []
    matches = [_LINE.fullmatch(line) for line in lines]
    pairs = [(match[1], _scalar(match[2])) for match in matches if match is not None]
    values = {key: held[0] for key, held in pairs if held is not None}
    return values if values and len(values) == len(lines) else None


def _scalar(text: str) -> tuple[object] | None:
    """A whole number, a word or a constant, in a tuple; None for what only the library reads."""
    if _WHOLE.fullmatch(text):
        return (int(text),)
    if text in ("true", "false", "null"):
        return (json.loads(text),)
    return (text,) if _WORD.fullmatch(text) and text.lower() not in _NOT_TEXT else None
