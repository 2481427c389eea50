"""Sizes and counts as people write them, in and out. Integers inside, always.

Token counts are binary (``4k`` is 4,096, as context lengths are). Memory takes both families and keeps them
apart: ``24GiB`` is 24·2^30, ``24GB`` is 24·10^9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from kvcalc.errors import UsageError

MAX_COUNT = 2**53  # beyond this a JSON reader elsewhere would round the number

_BINARY = {"": 1, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_COUNT_SUFFIX = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
# No leading zero: in a list, "1,024" would be 1 and 24.
_NUMBER = re.compile(r"(?!0\d)(\d{1,20}|[1-9]\d{0,2}(?:[,_]\d{3}){1,6})(?:\.(\d{1,12}))?\s*([A-Za-z]*)", re.ASCII)
_RANGE_STEPS_MAX = 10**7


def ceil_div(value: int, step: int) -> int:
    """The smallest n with n·step ≥ value."""
    return -(-value // step)


def round_up(value: int, step: int) -> int:
    """The smallest multiple of ``step`` that is at least ``value``."""
    return ceil_div(value, step) * step


def _scaled(text: str, suffixes: dict[str, int], what: str, example: str) -> Fraction:
    match = _NUMBER.fullmatch(text.strip())
    suffix = match.group(3).lower() if match else ""
    if match is None or suffix not in suffixes:
        raise UsageError(f"{text[:40]!r} is not {what}", fix=f"write it like {example}")
    whole, decimals, _ = match.groups()
    value = Fraction(f"{whole.replace(',', '').replace('_', '')}.{decimals or 0}") * suffixes[suffix]
    if not 1 <= value <= MAX_COUNT:
        raise UsageError(f"{text[:40]!r} is out of range", fix=f"{what} lies between 1 and 2^53")
    return value


def parse_count(text: str, what: str = "a count") -> int:
    """``4096``, ``4k`` (4,096), ``1.5k``, ``1m``: a positive integer. Raises UsageError."""
    value = _scaled(text, _COUNT_SUFFIX, what, "4096, 32k or 1m")
    if value.denominator != 1:
        raise UsageError(f"{text[:40]!r} is no whole number", fix=f"{what} is counted in ones: 4096, 32k or 1m")
    return value.numerator


def parse_bytes(text: str) -> int:
    """``24GiB``, ``24GB``, ``1073741824``: whole bytes, rounded down. Raises UsageError."""
    suffixes = {unit + b: factor for family in (_BINARY, _DECIMAL) for unit, factor in family.items() for b in ("", "b")}
    return int(_scaled(text, suffixes, "a memory size", "24GiB, 24GB or 25769803776"))


def parse_memory(text: str) -> int:
    """The same for the size of a device or of weights: a bare number below a MiB is a unit forgotten. Raises UsageError."""
    size, bare = parse_bytes(text), text.strip()
    if bare.isascii() and bare.isdigit() and 0 < size < 2**20:
        raise UsageError(f"{bare} bytes?", fix=f"write {bare}GiB, or {bare}B where bytes are meant")
    return size


def parse_counts(text: str, what: str = "a length") -> Iterator[int]:
    """A list of counts: ``1k..32k`` doubles, ``1k..32k:4k`` steps, ``1k,3000,32k`` lists. Raises UsageError.

    The whole text is checked before the first value comes; values come one at a time, so a range of a million
    takes no memory.
    """
    parts = [_parse_part(part, what) for part in text.split(",")]
    return (value for part in parts for value in _expand(*part))


def _parse_part(part: str, what: str) -> tuple[int, int, int]:
    """(first, last, step); step 0 doubles."""
    low, dots, rest = part.partition("..")
    if not dots:
        value = parse_count(part, what)
        return value, value, 0
    high, colon, step_text = rest.partition(":")
    first, last = parse_count(low, what), parse_count(high, what)
    step = parse_count(step_text, what) if colon else 0
    if last < first:
        raise UsageError(f"the range {part[:40]!r} runs backwards", fix="write the smaller end first: 1k..32k")
    if step and (last - first) // step > _RANGE_STEPS_MAX:
        raise UsageError(f"the range {part[:40]!r} has over {_RANGE_STEPS_MAX:,} steps", fix="take a larger step")
    return first, last, step


def _expand(first: int, last: int, step: int) -> Iterator[int]:
    value = first
    while value <= last:
        yield value
        value = value + step if step else value * 2
    if not step and first < last and value // 2 != last:
        yield last


def format_bytes(count: int) -> str:
    """A byte count in the largest binary unit that keeps it at or above 1: ``512 MiB``, ``1.25 GiB``."""
    sign, size = ("-", -count) if count < 0 else ("", count)
    unit, factor = "B", 1
    for name, step in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40), ("PiB", 2**50)):
        if size >= step:
            unit, factor = name, step
    if size % factor == 0:
        return f"{sign}{size // factor:,} {unit}"
    return f"{sign}{size / factor:,.2f} {unit}"


def format_count(count: int) -> str:
    """A token count as people write it, when that is exact: ``32k``, ``1m``, else the integer."""
    for suffix, factor in (("m", 2**20), ("k", 2**10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{suffix}"
    return f"{count:,}"
