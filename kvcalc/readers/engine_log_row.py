"""Every wording that the log reader knows, as rows: whose line it is, what it tells, and the pattern that finds it.

A row is tried only on lines that hold one of its ``needles``. Group names carry the unit: ``k_mib`` is a size printed
in MiB (whatever the engine calls it: old llama.cpp writes MB, SGLang and LMCache write GB for it), ``total_named`` names
its own unit, other names are counts or words. Patterns are searched for anywhere in a line, so that no time stamp or
process prefix matters, and every repetition in them is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# start: a new load of a model. context: a new cache for the model that was loaded. setting: groups are settings.
# pairs: every key and value of the line. shape, metadata, width: what the engine read of the model.
# statement: what it says of its cache. part: something that the next statement, or the end, completes.
# version: that of a server which starts engines. memory: a statement of what a rank has; one that has spoken before
# speaks of another start.
Role = Literal["start", "context", "setting", "pairs", "shape", "metadata", "width", "statement", "memory", "version", "part"]


@dataclass(frozen=True, slots=True)
class Row:
    """One wording. ``role`` says what becomes of its groups."""

    engine: str
    role: Role
    kind: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]


def row(engine: str, role: Role, kind: str, needles: str | tuple[str, ...], *patterns: str) -> Row:
    """A row; its pattern is that of the parts, end to end."""
    return Row(engine, role, kind, (needles,) if isinstance(needles, str) else needles, re.compile("".join(patterns), re.ASCII))


def count(name: str) -> str:
    """The pattern of a whole number, with or without separators."""
    return rf"\s{{0,40}}(?P<{name}>\d{{1,3}}(?:,\d{{3}}){{1,6}}|\d{{1,18}})"


def size(name: str) -> str:
    """The pattern of a number with decimals."""
    return rf"\s{{0,40}}(?P<{name}>\d{{1,12}}(?:\.\d{{1,9}})?)"


PAIR = r"(?<![\w.])['\"]?(?P<key>{})['\"]?(?:=|: )(?P<value>'[^']{{0,400}}'|[^,'\s)}}\]]{{1,100}})"
WORD = r"\w{1,12}"
UNITS = {"_mib": 2**20, "_gib": 2**30, "_bytes": 1, "_x": 10**6}  # ratios are held in millionths
SUFFIXES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
NAMED_SIZE = rf"\d{{1,9}}(?:\.\d{{1,9}})? (?:{'|'.join(SUFFIXES)})"  # a unit that is none is no size
