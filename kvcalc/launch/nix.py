"""NixOS modules: attribute sets of strings, numbers and lists, as far as a service's settings go. Nothing is evaluated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvcalc.launch.script import commands_of
from kvcalc.launch.small_forms import flag_of
from kvcalc.launch.values import Command, LaunchError, Word

_TOKEN = re.compile(r"""#[^\n]*|/\*.*?\*/|''(.*?)''|"((?:[^"\\]|\\.)*)"|([{}\[\]()=;])|([^\s{}\[\]()=;"]+)""", re.DOTALL)
MAX_TOKENS, MAX_DEPTH = 20_000, 30
Tree = dict[str, Any]


def commands(text: str, env: Mapping[str, Word]) -> Iterator[Command]:
    """The servers that a module sets up."""
    tokens = [token for token in _tokens(text) if token is not None]
    tree, _ = _set(tokens, 0, 0)
    yield from _services(tree, env, "")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for count, match in enumerate(_TOKEN.finditer(text)):
        if count > MAX_TOKENS:
            raise LaunchError("the module is too long", fix="name the part that sets up the server")
        block, quoted, sign, word = match.groups()
        if block is not None or quoted is not None:
            yield "text", block if block is not None else quoted
        elif sign or word:
            yield ("sign", sign) if sign else ("word", word)


def _set(tokens: list[tuple[str, str]], at: int, depth: int) -> tuple[Tree, int]:
    """An attribute set from ``at`` to its closing brace: dotted names, each with its value."""
    if depth > MAX_DEPTH:
        raise LaunchError("the module is nested too deep", fix="name the part that sets up the server")
    found: Tree = {}
    name: list[str] = []
    while at < len(tokens) and tokens[at] != ("sign", "}"):
        if tokens[at] == ("sign", "="):
            held, at = _value(tokens, at + 1, depth)
            found[(name or [""])[-1]] = held
            name = []
        else:
            name = [*name, tokens[at][1]] if tokens[at][0] != "sign" else []
        at += 1
    return found, at


def _value(tokens: list[tuple[str, str]], at: int, depth: int) -> tuple[Any, int]:
    """A value up to its semicolon: the last attribute set in it, a list, or a scalar."""
    held: Any = ""
    while at < len(tokens) and tokens[at] != ("sign", ";"):
        if tokens[at] == ("sign", "{"):
            held, at = _set(tokens, at + 1, depth + 1)
        elif tokens[at] == ("sign", "["):
            end = next((n for n in range(at, len(tokens)) if tokens[n] == ("sign", "]")), len(tokens) - 1)
            held, at = [word for kind, word in tokens[at + 1 : end] if kind != "sign"], end
        elif tokens[at][0] != "sign" and not isinstance(held, dict):
            held = tokens[at][1]
        at += 1
    return held, at


def _services(tree: Tree, env: Mapping[str, Word], path: str) -> Iterator[Command]:
    for name, held in tree.items():
        here = f"{path}.{name}".strip(".")
        if not isinstance(held, dict):
            continue
        if "llama-cpp" in here and ("settings" in held or "extraFlags" in held):
            yield from _llamacpp(held, env, here)
        elif "ollama" in here and (variables := _variables(held)):
            yield Command((), {**env, **variables}, here, "ollama")
        elif isinstance(held.get("ExecStart"), str):
            yield from commands_of(held["ExecStart"], {**env, **_variables(held)}, here)
        else:
            yield from _services(held, env, here)


def _variables(held: Tree) -> dict[str, Word]:
    """A service's variables: a list of NAME=VALUE, or a set of them."""
    listed, named = held.get("Environment"), held.get("environmentVariables", held.get("environment"))
    found: dict[str, Word] = {}
    for pair in listed if isinstance(listed, list) else []:
        name, equals, text = str(pair).partition("=")
        found |= {name: Word(text)} if equals else {}
    found |= {name: Word(text) for name, text in named.items() if isinstance(text, str)} if isinstance(named, dict) else {}
    deeper = held.get("serviceConfig")
    return {**found, **_variables(deeper)} if isinstance(deeper, dict) else found


def _llamacpp(held: Tree, env: Mapping[str, Word], place: str) -> Iterator[Command]:
    """The settings of all models, and each preset with its own beside them."""
    settings = held.get("settings") if isinstance(held.get("settings"), dict) else {}
    flags = held.get("extraFlags") if isinstance(held.get("extraFlags"), list) else []
    shared = [word for key, item in (settings or {}).items() if isinstance(item, str) for word in flag_of(key, item)]
    shared += [Word(str(flag)) for flag in flags or []]
    shared += [Word("--model"), Word(held["model"])] if isinstance(held.get("model"), str) else []
    presets = [
        (key, item)
        for value in (settings or {}).values()
        if isinstance(value, dict)
        for key, item in value.items()
        if isinstance(item, dict)
    ]
    for name, preset in presets or [("", {})]:
        own = [word for key, item in preset.items() if isinstance(item, str) for word in flag_of(key, item)]
        yield Command((*shared, *own), env, f"{place} {name}".strip(), "llama.cpp")
