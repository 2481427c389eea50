"""YAML within bounds: size, depth and the number of nodes that aliases may unfold to. Scalars stay the text that was written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kvcalc.launch.values import LaunchError, Word

MAX_YAML, MAX_NODES, MAX_DEPTH = 1_000_000, 60_000, 40
_TEMPLATE_LINE = re.compile(r"^[ \t]*\{\{-?.*?-?\}\}[ \t]*$\n?", re.MULTILINE)
_TEMPLATE = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")


class Text(str):
    """A scalar as written, with its line and the type that YAML makes of it."""

    __slots__ = ("line", "plain", "tag")
    line: int
    plain: bool
    tag: str

    def __new__(cls, text: str, line: int = 0, tag: str = "str", plain: bool = True) -> Text:
        """The text with its place."""
        made = super().__new__(cls, text)
        made.line, made.tag, made.plain = line, tag, plain
        return made


def documents(text: str) -> list[Any]:
    """The documents of a text as mappings, lists and Text. Raises LaunchError."""
    if len(text) > MAX_YAML:
        raise LaunchError("the YAML is over 1 MB", fix="name the file that was meant")
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if "{{" in text:
        text = _TEMPLATE.sub(r"<\1>", _TEMPLATE_LINE.sub(lambda match: "\n" * match.group().count("\n"), text))
    try:
        return [Unfolding().value(node) for node in yaml.compose_all(text, Loader=loader) if node is not None]
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        raise LaunchError(
            f"this is not YAML: {getattr(problem, 'problem', None) or 'it breaks off'}",
            f"line {mark.line + 1}, column {mark.column + 1}" if mark else "",
            "correct that place",
        ) from None
    except (RecursionError, ValueError):
        raise LaunchError("this YAML is nested too deep", fix="name the file that was meant") from None


class Unfolding:
    """Nodes → values; ``count`` stops a few aliases from becoming a billion."""

    def __init__(self) -> None:
        self.count = 0

    def value(self, node: Any, depth: int = 0) -> Any:
        """One node and what is in it. Raises LaunchError."""
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            raise LaunchError("this YAML unfolds to more than any manifest holds", fix="write its aliases out")
        if isinstance(node.value, str):
            return _text(node)
        if node.tag.endswith(":map"):
            return self._mapping(node, depth)
        return [self.value(item, depth + 1) for item in node.value if not isinstance(item, tuple)]

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, item in node.value:
            name, held = key.value if isinstance(key.value, str) else "", self.value(item, depth + 1)
            if name == "<<":
                for each in held if isinstance(held, list) else [held]:
                    merged |= each if isinstance(each, dict) else {}
            elif name:
                own[name] = held
        return {**merged, **own}


def _text(node: Any) -> Text:
    below = node.style in ("|", ">")  # a block starts under its sign
    return Text(node.value, node.start_mark.line + 1 + below, node.tag.rsplit(":", 1)[-1], node.style is None)


def plain(held: Any) -> Any:
    """Texts as the values that YAML makes of them: numbers, booleans, nothing."""
    if isinstance(held, dict):
        return {key: plain(item) for key, item in held.items()}
    if isinstance(held, list):
        return [plain(item) for item in held]
    return scalar(held) if isinstance(held, Text) else held


def scalar(text: Text) -> Any:
    """One scalar's value."""
    if text.tag == "null":
        return None
    if text.tag == "bool":
        return text.lower() in ("true", "yes", "on", "y")
    try:
        if text.tag == "int" and len(text) < 30:
            return int(text.replace("_", ""), 0)
        if text.tag == "float":
            found = float(text.replace("_", ""))
            return found if found == found and abs(found) != float("inf") else str(text)
    except ValueError:
        pass
    return str(text)


def plain_mapping(text: str) -> dict[str, Any]:
    """The first document where it is a mapping; nothing else."""
    found = documents(text)
    return plain(found[0]) if found and isinstance(found[0], dict) else {}


def flag_words(text: str) -> Iterator[Word]:
    """A --config file as the flags that its keys stand for: true is a bare flag, false none, lists and mappings their own way."""
    found = documents(text)
    if not found or not isinstance(found[0], dict):
        return
    for key, held in found[0].items():
        line = getattr(held, "line", 0)
        if isinstance(held, Text) and held.tag == "bool":
            if scalar(held):
                yield Word(f"--{key}", line)
        elif isinstance(held, list):
            yield Word(f"--{key}", line)
            yield from (Word(str(item), getattr(item, "line", line)) for item in held if isinstance(item, str))
        elif isinstance(held, dict):
            yield Word(f"--{key}", line)
            yield Word(json.dumps(plain(held)), line, quoted=True)
        elif not (isinstance(held, Text) and held.tag == "null"):
            yield Word(f"--{key}", line)
            yield Word(str(held), line, quoted=True)
