"""Small text files, read within bounds: size, encoding, nesting, duplicate meaning. No parser sees a gigabyte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kvcalc.errors import ConfigError, InputError

MAX_TEXT_BYTES = 16 * 2**20  # the largest published config.json is under 1 MiB
MAX_DEPTH = 60


def is_folder(path: Path) -> bool:
    """Whether it is one; a name that the system refuses (too long, forbidden) isn't, and reading it says why."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def read_text(path: Path, error: type[InputError] = ConfigError, limit: int = MAX_TEXT_BYTES) -> str:
    """The file as UTF-8 text, with or without a byte-order mark. Raises ``error``."""
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except IsADirectoryError:
        raise error("this is a folder, not a file", str(path), "name the file in it") from None
    except FileNotFoundError:
        raise error("there is no such file", str(path), "check the path") from None
    except (OSError, ValueError) as problem:
        raise error(
            f"the file can't be read: {problem.__class__.__name__}", str(path), "check its permissions and its name"
        ) from None
    if len(raw) > limit:
        raise error(f"the file is over {limit // 2**20} MiB", str(path), "name the file that was meant; none is that long")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise error(
            "the file is not UTF-8 text", str(path), "name the text file that was meant (a GGUF file goes to --gguf)"
        ) from None


def parse_object(text: str, where: str, error: type[InputError] = ConfigError) -> dict[str, object]:
    """A JSON object; bare NaN and Infinity are let through, as in published files. Raises ``error``."""
    if not text.strip():
        raise error("the file is empty", where, "download it again")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        raise error(
            f"this is not JSON: {problem.msg}", f"{where}: line {problem.lineno}, column {problem.colno}", "correct that place"
        ) from None
    except (RecursionError, ValueError):  # nested thousands deep, or an integer of thousands of digits
        raise error(
            "this JSON is nested too deep, or has a number too long to be real", where, "take the published file"
        ) from None
    if not isinstance(value, dict):
        raise error(f"an object is expected, not {_json_name(value)}", where, "take the model's config.json")
    if too_deep(value):
        raise error(f"the JSON is nested deeper than {MAX_DEPTH}", where, "take the published file")
    return value


def _json_name(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "null" if value is None else f"a bare {type(value).__name__}"


def too_deep(value: object) -> bool:
    """Whether objects and lists stand in each other more than MAX_DEPTH times."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return [child for child in value.values() if isinstance(child, dict | list)]
    return [child for child in value if isinstance(child, dict | list)] if isinstance(value, list) else []
