"""What word processors and web pages make of a launch line: read as it was meant, and told, since no shell reads it so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kvcalc.launch.values import Launch, Slip

_QUOTES = {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\u201a": "'"}
_BLANKS = dict.fromkeys("\u00a0\u2007\u202f\u3000", " ")
_SIGNS = str.maketrans({**_QUOTES, **_BLANKS})
_DASHES = re.compile(r"(?<![^\s\"'\[])[\u2010-\u2015\u2212]-?(?=[a-z][a-z_-]{2,})")
_NAMES = ((_QUOTES, "typographic quotes"), (_BLANKS, "blanks that are none to a shell (no-break spaces)"))


def tidied(text: str) -> tuple[str, list[Slip]]:
    """The text with plain quotes, blanks and dashes, and where others stood."""
    slips: list[Slip] = []
    for number, line in enumerate(text.split("\n"), 1):
        slips += [Slip(number, said) for signs, said in _NAMES if signs.keys() & set(line)]
        slips += [Slip(number, "a typographic dash in place of --")] if _DASHES.search(line) else []
    return (_DASHES.sub("--", text.translate(_SIGNS)) if slips else text), slips


def told(launches: list[Launch], slips: Sequence[Slip]) -> list[Launch]:
    """The launches with the slips that stand in their lines; a single launch with all of them."""
    found = []
    for launch in launches:
        lines = [flag.line for flag in launch.flags if flag.line]
        near = [slip for slip in slips if len(launches) == 1 or (lines and min(lines) <= slip.line <= max(lines))]
        found.append(replace(launch, slips=(*launch.slips, *near)) if near else launch)
    return found
