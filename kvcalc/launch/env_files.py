"""``.env`` files, and files at hand by the name that a text calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvcalc.launch.values import Word


def env_lines(text: str) -> list[tuple[str, str]]:
    """The NAME=VALUE lines of an .env file; blanks around = are let through, quotes taken off."""
    found = re.findall(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$", text, re.MULTILINE)
    return [(name, bare(held)) for name, held in found]


def bare(text: str) -> str:
    """A value without the quotes around it, or the comment after it."""
    text = text.rstrip(";,").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return re.sub(r"\s+#.*$", "", text)


def env_file(files: Mapping[str, str], name: str) -> dict[str, Word]:
    """The variables of an .env file where it is at hand."""
    text = find_file(files, name.strip())
    return {key: Word(held) for key, held in env_lines(text)} if text is not None else {}


def find_file(files: Mapping[str, str], name: str) -> str | None:
    """A file by its name among those at hand: by path, else by the last part of it, else the only one for a variable."""
    if name in files:
        return files[name]
    last = name.rsplit("/", 1)[-1]
    for path, text in files.items():
        if path.rsplit("/", 1)[-1] == last:
            return text
    return next(iter(files.values())) if len(files) == 1 and "$" in name else None
