"""A command as found → a launch as read: wrappers taken off, flags under the engine's parser, variables, the model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvcalc.launch import docker
from kvcalc.launch.env_files import find_file
from kvcalc.launch.flags import LLAMA_NAMES, MODELS, Reading, is_flag, read_words
from kvcalc.launch.names import names_of
from kvcalc.launch.ollama import ollama_launch
from kvcalc.launch.programs import Program, base_of, recognise
from kvcalc.launch.roles import decides, env_counts
from kvcalc.launch.script import commands_of
from kvcalc.launch.tables import table
from kvcalc.launch.values import COUNTED, NO_EFFECT, Command, Flag, Launch, Slip, Word

SHELLS = {"sh", "bash", "zsh", "dash", "ash", "cmd", "powershell", "pwsh"}
HANDS_ON = {"ssh", "tmux", "screen", "eval", "wsl", "su", "sudo", "xargs", "parallel", "nohup", "watch", "env"}
# First words in a container that are programs of their own, and no arguments of the image's server.
NOT_MODELS = {
    "python",
    "python3",
    "set",
    "exec",
    "cp",
    "cd",
    "pip",
    "pip3",
    "uv",
    "sleep",
    "tail",
    "echo",
    "test",
    "true",
    "nginx",
}
_HAS_POSITIONAL = {"vllm", "lmdeploy", "tensorrt-llm", "sglang"}
MAX_DEPTH = 5


def launches_of(command: Command, depth: int = 0) -> Iterator[Launch]:
    """Every engine that a command starts: directly, in a container, or in a shell's -c string."""
    if depth > MAX_DEPTH:
        return
    inner = list(_unwrapped(command))
    for each in inner:
        yield from launches_of(each, depth + 1)
    found = _program(command) if not inner else None
    if found is not None:
        yield _launch(command, found)
    elif not inner and command.words and base_of(command.words[0].text) in HANDS_ON:
        for word in command.words[1:]:
            if " " in word.text.strip():
                yield from launches_of(replace(command, words=(word,)), depth + 1)


def _unwrapped(command: Command) -> Iterator[Command]:
    """The commands inside of ``docker run``, of ``sh -c``, of a lone word that is a whole command line."""
    words = command.words
    inner = _shell_text(words)
    if docker.is_run(words):
        yield docker.in_container(command)
    elif inner is not None:
        yield from _inner(replace(command, engine=""), inner)
    elif len(words) == 1 and any(sign in words[0].text.strip() for sign in " \n"):
        for each in _inner(command, (words[0], ())):
            alone = each.words and is_flag(each.words[0].text)
            yield each if alone else replace(each, engine="")


def _inner(command: Command, shell: tuple[Word, Sequence[Word]]) -> Iterator[Command]:
    text, args = shell
    for each in commands_of(text.text, command.env, command.place, args):
        lines = [replace(word, line=text.line + max(word.line - 1, 0)) for word in each.words]
        slips = tuple(replace(slip, line=text.line + slip.line - 1) for slip in each.slips)
        yield replace(
            command, words=tuple(lines), env=each.env, slips=(*command.slips, *slips), files={**command.files, **each.files}
        )


def _shell_text(words: Sequence[Word]) -> tuple[Word, Sequence[Word]] | None:
    """The script of ``bash -c '…' name args``, wherever in the words it stands."""
    for at, word in enumerate(words[:50]):
        if base_of(word.text) in SHELLS:
            end = at + 1
            while end < len(words) and words[end].text.startswith("-"):
                end += 1
            flags = [each.text for each in words[at + 1 : end]]
            if any(re.fullmatch(r"-\w*c", flag) for flag in flags) and end < len(words):
                return words[end], words[end + 2 :]
    return None


def _program(command: Command) -> Program | None:
    """The engine's program: named in the words, else the one that the image runs."""
    words = command.words
    found = recognise(words)
    if found is not None or not command.engine:
        return found or (_by_flags(words) if words and is_flag(words[0].text) else None)
    if command.engine == "ollama":
        return Program("ollama", "ollama", "ollama " + (words[0].text if words else "serve"), tuple(words[1:]))
    rest = words
    if rest and base_of(rest[0].text) in NOT_MODELS | SHELLS:
        return None
    if rest and not is_flag(rest[0].text) and base_of(rest[0].text) in ("serve", "server", "--server"):
        rest = rest[1:]
    return Program(command.engine, command.engine, "image" if rest else "", tuple(rest))


def _by_flags(words: Sequence[Word]) -> Program | None:
    """The engine whose parser knows the most of a bare list of flags."""
    flags = [word.text.partition("=")[0] for word in words if is_flag(word.text)]
    best, score = "", 0.0
    for engine in ("vllm", "sglang", "llama.cpp", "lmdeploy", "tensorrt-llm", "mlx-lm"):
        known = table(engine)
        now, ever = names_of(engine, ""), known.owners
        bare = [flag.split(".")[0].replace("_", "-") if engine == "vllm" else flag for flag in flags]
        found = sum(1.0 if flag in now else 0.9 if flag in ever or _begins(engine, flag, now) else 0 for flag in bare)
        if found > score and found * 2 > len(flags):
            best, score = engine, found
    return Program(best, best, "", tuple(words)) if best else None


def _begins(engine: str, flag: str, names: Mapping[str, Any]) -> bool:
    return engine != "llama.cpp" and len(flag) > 3 and any(name.startswith(flag) for name in names)


def _launch(command: Command, program: Program) -> Launch:
    command = _with_prefixes(command, program)
    release = command.release or command.pins.get(program.engine, "")
    if program.engine == "ollama":
        return ollama_launch(command, program)
    reading = Reading(program.engine, program.table, release)
    words, spliced = _with_config(program, command.files)
    words = tuple(_llama_cpp_python(words)) if program.name == "llama_cpp.server" else words
    read_words(reading, words)
    _variables(reading, command.env)
    _overrides(reading, program, command.files)
    for name, held in command.settings.items():
        take_setting(reading, name, held)
    model = command.model or _model(reading)
    slips = [*command.slips, *_glued(words), *_extra(reading, program)] if program.name else []
    counted = {flag.written for flag in reading.flags}
    asks = [ask for word in (*words, *(held for name, held in command.env.items() if name in counted)) for ask in word.asks]
    return Launch(
        program.engine,
        release,
        model,
        reading.settings,
        tuple(reading.flags),
        command.place or (f"line {command.words[0].line}" if command.words else ""),
        program.name,
        command.gpus,
        command.gpu,
        command.replicas,
        tuple(dict.fromkeys(asks)),
        tuple(slips),
        tuple(spliced),
        command.image,
    )


def _with_prefixes(command: Command, program: Program) -> Command:
    """With the variables that ``env X=Y`` gives before the program's own words."""
    before = command.words[: max(len(command.words) - len(program.rest), 0)]
    pairs = [(word, re.fullmatch(r"([A-Z_]\w*)=(.*)", word.text, re.DOTALL)) for word in before]
    found = {match.group(1): replace(word, text=match.group(2)) for word, match in pairs if match}
    return replace(command, env={**command.env, **found}) if found else command


def _llama_cpp_python(words: Sequence[Word]) -> Iterator[Word]:
    """llama-cpp-python's server names its options by the library's arguments: ``--n_ctx``."""
    for word in words:
        name, equals, rest = word.text.partition("=")
        own = LLAMA_NAMES.get(name.lstrip("-").replace("-", "_"))
        yield replace(word, text=f"--{own}{equals}{rest}") if own and name.startswith("--") else word


def take_setting(reading: Reading, name: str, held: Any) -> None:
    """A setting that a schema names (Helm's values, an engine's keyword arguments) instead of a flag."""
    verdict = COUNTED if decides(reading.engine, name) or "." in name or name in ("v0", "v1") else NO_EFFECT
    reading.flags.append(Flag(name, name, held, verdict))
    if verdict == COUNTED:
        reading.settings[name] = held
    reading.held[name] = held


def _model(reading: Reading) -> str:
    for name in MODELS[reading.engine]:
        held = reading.held.get(name)
        if isinstance(held, str) and held:
            return held
    if reading.engine in _HAS_POSITIONAL and reading.positionals:
        return reading.positionals[0].text
    return ""


def _extra(reading: Reading, program: Program) -> Iterator[Slip]:
    """Words that no flag takes and that are no model."""
    taken = 1 if program.engine in _HAS_POSITIONAL else 0
    for word in reading.positionals[taken:]:
        if word.asks:
            continue  # a variable that may hold flags, or nothing
        yield Slip(word.line, f"{word.text[:60]!r} belongs to no flag")


def _glued(words: Sequence[Word]) -> Iterator[Slip]:
    """A flag that no blank separates from the value before it."""
    for word in words:
        match = re.fullmatch(r"([\w./:-]*?[\w.])(--[a-z][a-z-]{3,})(=.*)?", word.text)
        if match and not word.quoted and not word.text.startswith("-"):
            yield Slip(word.line, f"no blank between {match.group(1)} and {match.group(2)}: the engine reads one word")


def _variables(reading: Reading, env: Mapping[str, Word]) -> None:
    """Variables that the engine reads; a flag beats the variable of the same option."""
    by_env = {option.env: option for option in table(reading.table).options.values() if option.env}
    for name, word in env.items():
        option = by_env.get(name)
        if option is not None:
            long = [each.text for each in option.names if each.text.startswith("--") and each.text not in option.negative]
            for_flag = Reading(reading.engine, reading.table, reading.release)
            values = [] if option.kind == "switch" and word.text.lower() in ("1", "true", "on") else [word]
            read_words(for_flag, [Word(long[-1] if long else option.names[0].text, word.line), *values])
            for flag in for_flag.flags:
                if flag.name not in reading.held:
                    reading.note(replace(flag, written=name))
        elif env_counts(reading.engine, name):
            reading.settings[f"env:{name}"] = word.text
            reading.flags.append(Flag(name, f"env:{name}", word.text, COUNTED, word.line))


def _with_config(program: Program, files: Mapping[str, str]) -> tuple[tuple[Word, ...], list[str]]:
    """VLLM and SGLang put a --config file's keys before the command line's own flags, which win."""
    named = _file_named(program.rest, ("--config",)) if program.engine in ("vllm", "sglang") else None
    if named is None:
        return program.rest, []
    text = find_file(files, named.text)
    if text is None:
        return program.rest, [f"{named.text} is not among the files given: what it sets is not read"]
    from kvcalc.launch.yaml_tree import flag_words

    head = program.rest[:1] if program.rest and not is_flag(program.rest[0].text) else ()
    return (*head, *flag_words(text), *program.rest[len(head) :]), []


def _file_named(words: Sequence[Word], flags: Sequence[str]) -> Word | None:
    for at, word in enumerate(words):
        name, equals, given = word.text.partition("=")
        if name in flags:
            return Word(given, word.line, word.asks) if equals else words[at + 1] if at + 1 < len(words) else None
    return None


def _overrides(reading: Reading, program: Program, files: Mapping[str, str]) -> None:
    """TensorRT-LLM's file of options, whose keys beat the flags."""
    if program.engine != "tensorrt-llm":
        return
    named = _file_named(program.rest, ("--extra_llm_api_options", "--config"))
    text = find_file(files, named.text) if named is not None else None
    if text is None:
        return
    from kvcalc.launch.yaml_tree import plain_mapping

    for name, held in plain_mapping(text).items():
        take_setting(reading, name, held)
