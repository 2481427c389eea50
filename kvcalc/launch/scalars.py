"""A flag's text → its value, as the engine's own parser reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isfinite
from typing import Any

# A small letter multiplies by a power of 1000 and takes a fraction; a capital by a power of 1024, whole numbers only.
_POWERS = {letter: power for power, letter in enumerate("kmgt", 1)}
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?([kmgtKMGT])", re.ASCII)
_INT = re.compile(r"[+-]?\d+(_\d+)*", re.ASCII)
_PLACEHOLDER = re.compile(r"<[^<>]*>|\[[A-Z][\w -]*\]|\{\{.*\}\}|\.\.\.|…")
MAX_JSON, MAX_DEPTH = 100_000, 40


class UnreadableError(ValueError):
    """A value that its engine's parser refuses; the message says why."""


def is_placeholder(text: str) -> bool:
    """Whether a text stands for a value that its author left out: ``<N>``, ``{{ .Values.x }}``, ``...``."""
    return bool(_PLACEHOLDER.fullmatch(text.strip()))


def holds_placeholder(text: str) -> bool:
    """Whether a text has such a stand-in somewhere in it."""
    return is_placeholder(text) or bool(re.search(r"<[A-Za-z][\w -]{0,60}>", text))


def read_size(text: str) -> int | str:
    """A size as vLLM reads it: 25.6k = 25,600, 1M = 1,048,576, and ``auto``. Raises UnreadableError."""
    match = _SIZE.fullmatch(text.strip())
    if match:
        whole, part, letter = match.groups()
        if letter.isupper():
            if part:
                raise UnreadableError(f"{text}: capital suffixes take whole numbers only (write 1{letter.lower()} for thousands)")
            return int(int(whole) * 1024 ** _POWERS[letter.lower()])
        scale = 10 ** len(part or "")
        return int((int(whole) * scale + int(part or 0)) * 1000 ** _POWERS[letter] // scale)
    return "auto" if text.strip().lower() == "auto" else read_int(text)


def read_int(text: str) -> int:
    """Python's ``int()``. Raises UnreadableError."""
    if not _INT.fullmatch(text.strip()) or len(text) > 30:
        raise UnreadableError(f"{text[:60]!r} is no whole number")
    return int(text)


def read_float(text: str) -> float | int:
    """A number; whole ones stay whole. Raises UnreadableError."""
    try:
        found = float(text)
    except ValueError:
        raise UnreadableError(f"{text[:60]!r} is no number") from None
    if found != found or found in (float("inf"), float("-inf")):
        raise UnreadableError(f"{text[:60]!r} is no number")
    return int(found) if found.is_integer() and re.fullmatch(r"[+-]?\d+", text.strip()) else found


def read_json(text: str) -> Any:
    """A JSON value. Raises UnreadableError with the column."""
    if len(text) > MAX_JSON:
        raise UnreadableError("a JSON value of this length is no setting")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as problem:
        raise UnreadableError(f"no JSON: {problem.msg} at column {problem.colno}") from None
    except (RecursionError, ValueError):
        raise UnreadableError("JSON nested too deep, or with a number too long to be real") from None
    _check(found)
    return found


def _check(held: Any) -> None:
    """Raises UnreadableError for what is nested too deep, and for numbers that are none (NaN, 1e999)."""
    level = [held]
    for _ in range(MAX_DEPTH):
        if any(isinstance(each, float) and not isfinite(each) for each in level):
            raise UnreadableError("a number of the JSON is none: NaN or infinite")
        level = [
            item
            for each in level
            for item in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
        if not level:
            return
    raise UnreadableError(f"JSON nested deeper than {MAX_DEPTH}")


def read_loose(text: str) -> Any:
    """A value of a dotted flag: JSON, else a size, else Python's True and False, else the text."""
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    for reader in (read_json, read_size):
        try:
            return reader(text)
        except UnreadableError:
            continue
    return text


def _json_or_text(text: str) -> Any:
    """JSON where the text means to be some; a name (``-cc 3``, ``eagle``) otherwise."""
    if text.strip()[:1] in ("{", "[", '"') or _INT.fullmatch(text.strip()):
        return read_json(text)
    if "=" in text and re.fullmatch(r"\w+=[^,]+(,\w+=[^,]+)*", text):  # image=2,video=0: the spelling of 2024
        return {key: read_loose(held) for key, _, held in (pair.partition("=") for pair in text.split(","))}
    return text


READERS: dict[str, Callable[[str], Any]] = {"int": read_int, "size": read_size, "float": read_float, "json": _json_or_text}


def read_scalar(kind: str, text: str) -> Any:
    """A flag's value by its kind. Raises UnreadableError."""
    if is_placeholder(text) and kind != "text":
        raise UnreadableError(f"{text[:60]} stands for a value that isn't given")
    reader = READERS.get(kind)
    return reader(text) if reader else text
