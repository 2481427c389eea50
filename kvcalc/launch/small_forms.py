"""Small forms, neither shell nor YAML: systemd and Quadlet units, Modelfiles, Dockerfiles, .env, INI, Nix, pbtxt, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvcalc.launch.docker import of_image
from kvcalc.launch.env_files import bare, env_file, env_lines
from kvcalc.launch.lexer import Lexer
from kvcalc.launch.roles import decides
from kvcalc.launch.scalars import read_loose
from kvcalc.launch.script import commands_of
from kvcalc.launch.tables import table
from kvcalc.launch.values import Command, Word

Env = Mapping[str, Word]


def commands(text: str, name: str, files: Mapping[str, str], env: Env) -> list[Command] | None:
    """The commands of the first form that takes the text; nothing where none does."""
    for takes, reader in FORMS:
        if takes(text, name):
            found = list(reader(text, files, env))
            if found:
                return found
    return None


def _is_unit(text: str, name: str) -> bool:
    return bool(re.search(r"^\[(Service|Container|Unit|Install)\]", text, re.MULTILINE)) or name.endswith(
        (".service", ".container")
    )


def _unit(text: str, files: Mapping[str, str], env: Env) -> Iterator[Command]:
    """A systemd unit or a Quadlet: ExecStart, Environment, EnvironmentFile where it is at hand; Image and Exec."""
    held: dict[str, Word] = dict(env)
    starts: list[Word] = []
    image = ""
    for line, key, rest in _unit_lines(text):
        if key == "Environment":
            held |= {name: Word(text, line) for name, text in _pairs(rest)}
        elif key == "EnvironmentFile":
            held |= env_file(files, rest.lstrip("-"))
        elif key in ("ExecStart", "Exec"):
            starts.append(Word(rest.lstrip("@-:+!"), line))
        elif key == "Image":
            image = rest
    for start in starts:
        for command in commands_of(start.text, held):
            lines = tuple(replace(word, line=start.line + word.line - 1) for word in command.words)
            found = replace(command, words=lines, place="")
            yield of_image(found, image) if image else found
    if not starts:
        yield from env_only(held)
        yield from commands_of(text, env) if "[" not in text[:1] else ()


def _unit_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, key and value; continued lines joined as they stand."""
    number, lines = 0, text.split("\n")
    while number < len(lines):
        start = number
        match = re.match(r"\s*([A-Za-z]+)\s*=\s*(.*)", lines[number])
        rest = [match.group(2)] if match else []
        while match and rest[-1].rstrip().endswith("\\") and number + 1 < len(lines):
            number += 1
            rest.append(lines[number])
        if match:
            yield start + 1, match.group(1), "\n".join(rest)
        number += 1


def _pairs(text: str) -> list[tuple[str, str]]:
    """NAME=VALUE words, with their quotes taken off."""
    words = [token.text for token in Lexer(text).tokens() if not token.operator]
    return [(name, held) for name, equals, held in (word.partition("=") for word in words) if equals]


def _is_env(text: str, _name: str) -> bool:
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith(("#", ";"))]
    return bool(lines) and all(
        re.match(r"\s*(?:export\s+)?[A-Z][A-Z0-9_]*\s*=\s*\S*", line) and not re.search(r"=\S*\s+[a-z./]", line) for line in lines
    )


def _env(text: str, _files: Mapping[str, str], env: Env) -> Iterator[Command]:
    lines = {
        name: number
        for number, line in enumerate(text.split("\n"), 1)
        for name in re.findall(r"^\s*(?:export\s+)?(\w+)\s*=", line)
    }
    yield from env_only({**env, **{name: Word(held, lines.get(name, 0)) for name, held in env_lines(text)}})


def env_engine(names: Any) -> str:
    """The engine that variables belong to by their names."""
    for start, engine in (("OLLAMA_", "ollama"), ("LLAMA_ARG_", "llama.cpp"), ("VLLM_", "vllm"), ("SGLANG_", "sglang")):
        if any(name.startswith(start) for name in names):
            return engine
    return ""


def env_only(held: Mapping[str, Word]) -> Iterator[Command]:
    """Variables alone, where they are an engine's."""
    engine = env_engine(held)
    if engine:
        yield Command((), held, "variables", engine)


_DIRECTIVE = re.compile(
    r"^\s*(FROM|PARAMETER|TEMPLATE|SYSTEM|ADAPTER|LICENSE|MESSAGE|RENDERER|PARSER|REQUIRES|DRAFT)\s+(.*)$", re.IGNORECASE
)
_BUILDS = re.compile(r"^\s*(RUN|CMD|ENTRYPOINT|COPY|ADD|WORKDIR|ENV|ARG|EXPOSE|USER|LABEL)\s", re.MULTILINE)


def _is_modelfile(text: str, name: str) -> bool:
    first = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    if not re.match(r"\s*FROM\s+\S", first, re.IGNORECASE) or _BUILDS.search(text):
        return False
    return "modelfile" in name.lower() or bool(
        re.search(r"^\s*(PARAMETER|SYSTEM|TEMPLATE|ADAPTER|MESSAGE)\s", text, re.MULTILINE | re.IGNORECASE)
    )


def _modelfile(text: str, _files: Mapping[str, str], env: Env) -> Iterator[Command]:
    model, settings = "", {}
    for line in text.split("\n"):
        match = _DIRECTIVE.match(line)
        word = match.group(1).upper() if match else ""
        if match and word == "FROM":
            model = match.group(2).strip()
        elif match and word == "PARAMETER":
            name, _, held = match.group(2).strip().partition(" ")
            settings[name] = read_loose(bare(held.strip()))
    yield Command((), env, "Modelfile", "ollama", model=model, settings=settings)


def _is_dockerfile(text: str, name: str) -> bool:
    return bool(re.search(r"^\s*FROM\s+\S", text, re.MULTILINE) and (_BUILDS.search(text) or "dockerfile" in name.lower()))


def _dockerfile(text: str, _files: Mapping[str, str], env: Env) -> Iterator[Command]:
    """FROM names the image, ENV the variables; ENTRYPOINT and CMD make the command."""
    image, held = "", dict(env)
    parts: dict[str, tuple[Word, ...]] = {}
    joined = re.sub(r"\\[ \t]*\n", lambda _: " ", text)
    for line in joined.split("\n"):
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "FROM":
            image, parts = rest.split()[0] if rest.split() else "", {}
        elif word.upper() in ("ENV", "ARG"):
            name, _, plain = rest.strip().partition(" ")
            held |= {key: Word(text) for key, text in _pairs(rest) or ([(name, plain.strip())] if plain else [])}
        elif word.upper() in ("CMD", "ENTRYPOINT"):
            parts[word.upper()] = _docker_words(rest.strip())
    words = (*parts.get("ENTRYPOINT", ()), *parts.get("CMD", ()))
    if words:
        yield of_image(Command(words, held, "Dockerfile"), image)


def _docker_words(rest: str) -> tuple[Word, ...]:
    if rest.startswith("["):
        try:
            held = json.loads(rest)
            return tuple(Word(str(item), quoted=True) for item in held) if isinstance(held, list) else ()
        except (ValueError, RecursionError):
            return ()
    return (Word("sh"), Word("-c"), Word(rest))


def _is_ini(text: str, name: str) -> bool:
    """Sections and keys alone, most of the keys llama.cpp's own."""
    lines = [line.strip() for line in text.split("\n") if line.strip() and not line.strip().startswith(("#", ";"))]
    pairs = [line for line in lines if re.match(r"[\w-]+\s*=", line)]
    if not pairs or not all(line in pairs or re.fullmatch(r"\[[^\]]+\]", line) for line in lines):
        return False
    known = table("llama.cpp").owners
    own = [line for line in pairs if _llamacpp_flag(re.split(r"\s*=", line)[0]) in known]
    return bool(own) and (name.endswith(".ini") or 2 * len(own) >= len(pairs))


def _llamacpp_flag(key: str) -> str:
    key = key.strip()
    return f"--{key}" if len(key) > 3 or f"-{key}" not in table("llama.cpp").owners else f"-{key}"


def _ini(text: str, _files: Mapping[str, str], env: Env) -> Iterator[Command]:
    """llama.cpp's router presets: a section a model, [*] for all of them, keys as long flags."""
    sections: dict[str, list[Word]] = {"*": []}
    current = "*"
    for number, line in enumerate(text.split("\n"), 1):
        head = re.fullmatch(r"\s*\[([^\]]+)\]\s*", line)
        match = re.match(r"\s*([\w-]+)\s*=\s*(.*?)\s*$", line)
        if head:
            current = head.group(1)
            sections.setdefault(current, [])
        elif match and match.group(1) != "version":
            sections[current] += flag_of(match.group(1), bare(match.group(2)), number)
    shared = sections.pop("*")
    for name, words in sections.items() or {"": []}.items():
        own = "" if any(word.text in ("--model", "-m", "--hf-repo", "-hf") for word in (*shared, *words)) else name
        yield Command((*shared, *words), env, f"[{name or '*'}]", "llama.cpp", model=own)


def flag_of(key: str, held: Any, line: int = 0) -> list[Word]:
    """A key of a settings file as llama.cpp's flag: true is a bare switch, false leaves it out."""
    flag = _llamacpp_flag(key)
    owners = table("llama.cpp").owners.get(flag)
    switch = owners is not None and owners[0][1].kind == "switch"
    text = str(held)
    if switch and text.lower() in ("true", "1", "on", "yes"):
        return [Word(flag, line)]
    if switch and text.lower() in ("false", "0", "off", "no"):
        return []
    return [Word(flag, line), Word(text, line, quoted=True)]


def _is_pbtxt(text: str, _name: str) -> bool:
    return bool(re.search(r"parameters\s*:?\s*\{\s*key\s*:", text))


def _pbtxt(text: str, _files: Mapping[str, str], env: Env) -> Iterator[Command]:
    pairs = re.findall(r'key\s*:\s*"([^"]+)"\s*,?\s*value\s*:?\s*\{\s*string_value\s*:\s*"([^"]*)"', text)
    if any(decides("tensorrt-llm", name) for name, _ in pairs):
        yield Command((), env, "config.pbtxt", "tensorrt-llm", settings=dict(pairs))


def _is_json(text: str, _name: str) -> bool:
    return text.lstrip()[:1] == "{" and '"' in text[:4000]


def _json(text: str, _files: Mapping[str, str], env: Env) -> Iterator[Command]:
    """A request to Ollama's API."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return
    options = held.get("options") if isinstance(held, dict) else None
    if isinstance(options, dict) and any(name in options for name in ("num_ctx", "num_gpu", "num_batch")):
        yield Command((), env, "request", "ollama", model=str(held.get("model", "")), settings=options)


def _is_nix(text: str, name: str) -> bool:
    return name.endswith(".nix") or bool(
        re.search(r"=\s*\{\s*$", text, re.MULTILINE) and re.search(r"[\]}]\s*;\s*$", text.rstrip())
    )


def _nix(text: str, _files: Mapping[str, str], env: Env) -> Iterator[Command]:
    from kvcalc.launch import nix

    yield from nix.commands(text, env)


Takes = Callable[[str, str], bool]
Reader = Callable[[str, Mapping[str, str], Env], Iterator[Command]]
FORMS: tuple[tuple[Takes, Reader], ...] = (
    (_is_unit, _unit),
    (_is_modelfile, _modelfile),
    (_is_dockerfile, _dockerfile),
    (_is_pbtxt, _pbtxt),
    (_is_json, _json),
    (_is_nix, _nix),
    (_is_env, _env),
    (_is_ini, _ini),
)
