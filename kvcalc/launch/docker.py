"""``docker run`` and its likes: which words are the container's, and which are the image's program's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kvcalc.launch.env_files import env_file
from kvcalc.launch.programs import base_of, engine_of_image, release_of_image
from kvcalc.launch.values import Command, Word

RUNNERS = {"docker", "podman", "nerdctl", "nvidia-docker"}
_SWITCHES = {"rm", "privileged", "init", "detach", "interactive", "tty", "read-only", "publish-all", "no-healthcheck", "quiet"}
_SWITCHES |= {"oom-kill-disable", "sig-proxy", "replace", "disable-content-trust", "help", "use-api-socket"}
_SHORT_SWITCHES = set("ditPqh")


def is_run(words: Sequence[Word]) -> bool:
    """Whether a command starts a container."""
    texts = [word.text for word in words[:6]]
    at = next((n for n, text in enumerate(texts) if base_of(text) in RUNNERS), -1)
    return at >= 0 and any(text in ("run", "create") for text in texts[at + 1 : at + 3])


def in_container(command: Command) -> Command:
    """The program's own command: image, variables and cards read from the container's flags."""
    words = list(command.words)
    start = next(n for n, word in enumerate(words) if word.text in ("run", "create"))
    at, entry = start + 1, ""
    env: dict[str, Word] = {}
    gpus: int | None = None
    while at < len(words) and words[at].text.startswith("-"):
        name, equals, given = words[at].text.partition("=")
        takes = not equals and _takes_value(name)
        value = (
            Word(given, words[at].line, words[at].asks) if equals else words[at + 1] if takes and at + 1 < len(words) else None
        )
        if value is not None and name in ("-e", "--env"):
            key, _, held = value.text.partition("=")
            env[key] = Word(held, value.line, value.asks)
        elif value is not None and name == "--env-file":
            env |= env_file(command.files, value.text)
        entry = value.text if value is not None and name == "--entrypoint" else entry
        gpus = cards_of(value.text) if value is not None and name == "--gpus" else gpus
        at += 1 + takes
    if at >= len(words):
        return replace(command, words=())
    image = words[at].text
    rest = [Word(entry, words[at].line), *words[at + 1 :]] if entry else words[at + 1 :]
    return of_image(replace(command, words=tuple(rest), env=env, gpus=gpus), image)


def of_image(command: Command, image: str) -> Command:
    """The command with what its image says: the engine and its release."""
    engine = engine_of_image(image)
    if not engine:
        return replace(command, image=image)
    return replace(command, image=image, engine=engine, release=release_of_image(image, engine) or command.release)


def _takes_value(name: str) -> bool:
    if name.startswith("--"):
        return name[2:] not in _SWITCHES
    return not set(name[1:]) <= _SHORT_SWITCHES


def cards_of(text: str) -> int | None:
    """How many cards ``--gpus`` names: 2, "device=0,1"; nothing for all."""
    bare = text.strip("\"' ")
    if bare.isdecimal() and len(bare) < 7:
        return int(bare)
    match = re.fullmatch(r"\"?device=([\w,:.-]+)\"?", bare)
    return len(match.group(1).split(",")) if match else None
