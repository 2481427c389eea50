"""Ollama: variables of the server, parameters of a Modelfile or a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from kvcalc.launch.programs import Program
from kvcalc.launch.roles import decides, names
from kvcalc.launch.scalars import read_loose
from kvcalc.launch.values import COUNTED, NO_EFFECT, UNKNOWN, Command, Flag, Launch, Word

WITHOUT_EFFECT = "ollama without effect"


def _known() -> list[str]:
    return sorted(names("ollama") | names(WITHOUT_EFFECT))


def variable(name: str, word: Word) -> Flag | None:
    """A variable accounted for: one that decides, one that doesn't, one that Ollama doesn't have."""
    if decides("ollama", name) and name.isupper():
        return Flag(name, name, word.text, COUNTED, word.line)
    if name in names(WITHOUT_EFFECT):
        return Flag(name, name, word.text, NO_EFFECT, word.line)
    if name.startswith("OLLAMA_"):
        near = get_close_matches(name, [each for each in _known() if each.isupper()], n=1, cutoff=0.6)
        near = ["OLLAMA_CONTEXT_LENGTH"] if name in ("OLLAMA_NUM_CTX", "OLLAMA_CTX", "OLLAMA_CONTEXT_SIZE") else near
        note = "Ollama reads no such variable, and says nothing" + (f"; the nearest is {near[0]}" if near else "")
        return Flag(name, name, word.text, UNKNOWN, word.line, note)
    return None


def parameter(name: str, held: Any, line: int = 0) -> Flag:
    """A Modelfile's or a request's parameter accounted for."""
    if decides("ollama", name):
        return Flag(name, name, held, COUNTED, line)
    if name in names(WITHOUT_EFFECT):
        return Flag(name, name, held, NO_EFFECT, line)
    near = get_close_matches(name, _known(), n=1, cutoff=0.6)
    return Flag(name, name, held, UNKNOWN, line, "no such parameter" + (f"; the nearest is {near[0]}" if near else ""))


def built(command: Command, model: str, flags: Iterable[Flag | None], program: str) -> Launch:
    """The launch that these flags make."""
    kept = tuple(flag for flag in flags if flag is not None)
    settings = {flag.name: flag.value for flag in kept if flag.verdict == COUNTED}
    place = command.place or (f"line {command.words[0].line}" if command.words else "")
    return Launch(
        "ollama",
        command.release or command.pins.get("ollama", ""),
        model,
        settings,
        kept,
        place,
        program,
        command.gpus,
        command.gpu,
        command.replicas,
        slips=command.slips,
    )


def ollama_launch(command: Command, program: Program) -> Launch:
    """``ollama serve``, ``ollama run MODEL``, with the variables around it."""
    flags = [variable(name, word) for name, word in command.env.items()]
    flags += [parameter(name, held) for name, held in command.settings.items()]
    words = [word for word in program.rest if not word.text.startswith("-")]
    runs = program.name.split()[-1] in ("run", "create", "pull", "start")
    model = command.model or (words[0].text if runs and words and not program.name.endswith("start") else "")
    return built(command, model, flags, program.name)


def options_of_request(body: Mapping[str, Any], command: Command) -> Launch | None:
    """A request to Ollama's API: its model and its options."""
    options = body.get("options")
    if not isinstance(options, Mapping):
        return None
    model = body.get("model") or body.get("name")
    flags = [parameter(str(name), held) for name, held in options.items()]
    return built(command, model if isinstance(model, str) else "", flags, "request")


def repl_launch(words: tuple[Word, ...], command: Command) -> Launch | None:
    """A line of Ollama's prompt: ``/set parameter num_ctx 8192``."""
    texts = [word.text for word in words if word.text != ">>>"]
    if texts[:2] != ["/set", "parameter"] or len(texts) < 4:
        return None
    return built(command, command.model, [parameter(texts[2], read_loose(texts[3]), words[0].line)], "ollama run")


def client_launch(words: tuple[Word, ...], command: Command) -> Launch | None:
    """A client that hands options through: ``llm -m MODEL -o num_ctx 256000``."""
    texts = [word.text for word in words]
    flags: list[Flag | None] = []
    for at, text in enumerate(texts):
        if text in ("-o", "--option") and at + 2 < len(texts):
            flags.append(parameter(texts[at + 1], read_loose(texts[at + 2]), words[at].line))
    model = next((texts[at + 1] for at, text in enumerate(texts[:-1]) if text in ("-m", "--model")), "")
    return built(command, model, flags, "llm") if any(flag and flag.verdict == COUNTED for flag in flags) else None
