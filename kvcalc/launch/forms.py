"""A text of any form → its launches: which form it is, and who reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from kvcalc.launch.ollama import client_launch, options_of_request, repl_launch
from kvcalc.launch.programs import base_of, pinned
from kvcalc.launch.reading import launches_of
from kvcalc.launch.script import commands_of, environment_of
from kvcalc.launch.typography import tidied, told
from kvcalc.launch.values import Command, Launch, LaunchError, Word

MAX_BYTES = 2_000_000
Files = Mapping[str, str]


def read_launches(text: str, name: str = "", files: Files | None = None, env: Mapping[str, str] | None = None) -> list[Launch]:
    """Every engine that the text starts. ``files`` are others at hand, by name. Raises LaunchError."""
    if len(text) > MAX_BYTES:
        raise LaunchError("the text is over 2 MB", name, "name the launch line, script or manifest that was meant")
    if "\0" in text:
        raise LaunchError("this is no text", name, "name a script, a manifest or a launch line")
    at_hand = dict(files or {})
    given = {key: Word(held) for key, held in (env or {}).items()}
    plain, slips = tidied(text.replace("\r\n", "\n"))
    return told(_merged(list(_launches(plain, name, at_hand, given))), slips)


# A code block of a Markdown page, its language left out.
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)


def _launches(text: str, name: str, files: Files, env: Mapping[str, Word]) -> Iterator[Launch]:
    from kvcalc.launch import manifests, python_calls, small_forms

    blocks = [match.group(1) for match in _FENCED.finditer(text)] if "```" in text else []
    if blocks:
        for block in blocks:
            with suppress(LaunchError):  # a page shows other things too
                yield from _launches(block, "", files, env)
        return
    pins = pinned(text)
    for reader in (small_forms.commands, python_calls.commands, manifests.commands):
        commands = reader(text, name, files, env)
        if commands is not None:
            yield from of_commands(commands, pins)
            return
    shell, trailing = split_yaml(text)
    hand = {**files, **trailing}
    found = [replace(each, files={**hand, **each.files}) for each in commands_of(shell, env)]
    found += [each for text in _written(found) for each in manifests.started(text, files, env)]
    launches = list(of_commands(found, pins))
    yield from launches or of_commands(small_forms.env_only(environment_of(shell, env)), pins)


def _written(commands: Iterable[Command]) -> list[str]:
    """The texts that a script writes to files, or pipes into a program: manifests may be among them."""
    texts = {text: None for command in commands for text in command.files.values() if ":" in text}
    return list(texts)


def of_commands(commands: Iterable[Command], pins: Mapping[str, str]) -> Iterator[Launch]:
    """The launches of these commands; a client's request to Ollama counts as one."""
    model = ""
    for command in commands:
        pinned_command = replace(command, pins=pins)
        for launch in launches_of(pinned_command):
            model = launch.model if launch.engine == "ollama" else ""
            yield launch
        for launch in _requests(pinned_command):
            yield launch if launch.model or launch.program != "ollama run" else replace(launch, model=model)


def _requests(command: Command) -> Iterator[Launch]:
    words = command.words
    base = words[0].text if words and words[0].text == "/set" else base_of(words[0].text) if words else ""
    if base == "llm":
        found = client_launch(words, command)
        yield from [found] if found else []
    if base == "/set" or [word.text for word in words[:2]] == [">>>", "/set"]:
        found = repl_launch(words, command)
        yield from [found] if found else []
    if base in ("curl", "http", "xh"):
        for word in words:
            if word.text[:1] == "{":
                try:
                    body = json.loads(word.text)
                except (ValueError, RecursionError):
                    continue
                found = options_of_request(body, command) if isinstance(body, dict) else None
                yield from [found] if found else []


_KEY_LINE = re.compile(r"^[A-Za-z_][\w-]*:(\s|$)")
_FILE_COMMENT = re.compile(r"^#+\s*([\w./-]+\.ya?ml)\s*:?\s*$")


def split_yaml(text: str) -> tuple[str, dict[str, str]]:
    """A text that shows a command and then the YAML that it names: the command, and the file by its name."""
    lines = text.split("\n")
    start = next((n for n, line in enumerate(lines) if _KEY_LINE.match(line)), None)
    if start is None or "<<" in text:
        return text, {}
    named = next(
        (match.group(1) for line in reversed(lines[:start]) if (match := _FILE_COMMENT.match(line.strip()))), "config.yaml"
    )
    return "\n".join(lines[:start]), {named: "\n".join(lines[start:])}


def _merged(found: list[Launch]) -> list[Launch]:
    """Each launch once."""
    seen: dict[str, Launch] = {}
    for launch in found:
        key = json.dumps([launch.engine, launch.model, launch.release, launch.settings, launch.gpus], default=str, sort_keys=True)
        seen.setdefault(key, launch)
    return list(seen.values())
