"""What a preset may hold, checked with pydantic.

Unknown keys are refused, inside ``config`` too: a typo there would
silently become a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from kvcalc.architectures.aliases import NESTED_KEYS
from kvcalc.architectures.lookup import config_keys
from kvcalc.errors import PresetError
from kvcalc.readers.files import too_deep

_TOO_LARGE = 2**64
_MOST_TOLD = 12
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,80}$")]
Text = Annotated[str, StringConstraints(max_length=2000)]


class Source(BaseModel):
    """Where the fields were read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    repo: Text
    path: Text = ""
    commit: Text = ""
    note: Text = ""


class Preset(BaseModel):
    """One model. ``parameters`` are those of the published file's class, ties counted once (tests/tools/count_parameters.py)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Name
    title: Text
    family: Name
    aliases: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    checkpoint: Text = ""
    source: Source
    parameters: Annotated[int, Field(gt=0, lt=2**53)] | None = None
    weights_dtype: Text | None = None
    weights_bytes: Annotated[int, Field(gt=0, lt=2**53)] | None = None  # of a checkpoint in more types than one
    weights_format: Text | None = None  # the format of that checkpoint: fp8, mxfp4 …
    config: dict[str, Any]


def validate(value: object, path: Path) -> Preset:
    """A parsed preset file as a Preset. Raises PresetError that names file and key."""
    if not isinstance(value, dict):
        raise PresetError("a preset is a mapping with name, source and config", str(path), _example(path))
    try:
        preset = Preset.model_validate(value)
    except ValidationError as problem:
        raise _told(problem, path) from None
    if preset.name != path.stem:
        raise PresetError(f"name is {preset.name!r}, the file is called {path.name!r}", f"{path}: name", "make them equal")
    _check_values(preset.config, path)
    _check_keys(preset.config, path)
    return preset


def _example(path: Path) -> str:
    name = "qwen3-8b" if path.stem == "llama-8b" else "llama-8b"  # not the broken one itself
    return f"compare it with a shipped one: kvcalc presets {name} --yaml"


def _told(problem: ValidationError, path: Path) -> PresetError:
    """Everything that is wrong, in one error."""
    found = {
        ".".join(map(str, each["loc"])): each["msg"].lower() for each in problem.errors(include_url=False, include_input=False)
    }
    what = "; ".join(f"{key}: {message}" for key, message in list(found.items())[:_MOST_TOLD])
    return PresetError(what, f"{path}: {next(iter(found))}" if len(found) == 1 else str(path), _example(path))


def _check_keys(config: Mapping[str, object], path: Path) -> None:
    known = config_keys()
    unknown = [(where, key) for where, key in _keys(config, "config") if key not in known]
    if len(unknown) > 1:
        names = ", ".join(where for where, _ in unknown[:_MOST_TOLD])
        raise PresetError(f"{names} are not keys that can change a cache", str(path), "correct them, or leave them out")
    for where, key in unknown:
        near = get_close_matches(key, known, n=3, cutoff=0.6)
        hint = f"did you mean {', '.join(near)}?" if near else "leave out keys that can't change the cache"
        raise PresetError(f"{where} is not a key that can change a cache", f"{path}: {where}", hint)


def _check_values(config: Mapping[str, object], path: Path) -> None:
    """Only what a config.json could hold: YAML knows dates, sets and bytes, and integers without an end."""
    for key, value in config.items():
        if too_deep(value):
            raise PresetError(f"config.{key} is nested too deep", f"{path}: config.{key}", "write it as config.json has it")
        if not _plain(value):
            raise PresetError(
                f"config.{key} has a value that no config.json can have",
                f"{path}: config.{key}",
                "write it as config.json has it",
            )


def _plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) < _TOO_LARGE)


def _keys(config: Mapping[str, object], path: str) -> Iterator[tuple[str, str]]:
    """Each key with its path, inside nested decoders too."""
    for key, value in config.items():
        yield f"{path}.{key}", str(key)
        if key in NESTED_KEYS and isinstance(value, Mapping):
            yield from _keys(value, f"{path}.{key}")
