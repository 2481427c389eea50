"""From the words of a command line to a Model: one way of naming models for every verb."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kvcalc.cli.options import Described
from kvcalc.core.fields import Field
from kvcalc.core.model import Model
from kvcalc.errors import ConfigError, MissingExtraError, PresetError, UsageError
from kvcalc.units import parse_count
from kvcalc.values import value

DEFAULT_PRESET = "llama-8b"
SHORT_VALUE = 16

# flag → the neutral field that it gives
FLAGS: Mapping[str, str] = {
    "layers": "num_layers",
    "kv_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "v_head_dim": "v_head_dim",
    "heads": "num_attention_heads",
    "hidden_size": "hidden_size",
    "sliding_window": "sliding_window",
}


@value
class Reference:
    """One way of naming one model."""

    kind: str  # preset, config, gguf, hub or equation
    value: str


def load(naming: Described, positional: str | None = None, default: str | None = None) -> Model:
    """The one model that a command line names. Raises UsageError when it names none or two."""
    return load_reference(one_reference(naming, positional, default), naming)


def one_reference(naming: Described, positional: str | None = None, default: str | None = None) -> Reference:
    """How a command line names its one model. Raises UsageError when it names none or two."""
    found = references(naming, [positional] if positional else [])
    if not found and default is not None:
        found = [Reference("preset", default)]
    if not found:
        raise UsageError(
            "no model is named",
            fix=f"name one: --preset {DEFAULT_PRESET}, --config config.json, or --layers --kv-heads --head-dim",
        )
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} models are named: {', '.join(each.value for each in found)}", fix="name one, or use kvcalc compare"
        )
    return found[0]


def load_many(naming: Described, positionals: list[str], default: str | None = None) -> list[Model]:
    """Every model that a command line names. Raises UsageError when it names none."""
    found = references(naming, positionals) or ([Reference("preset", default)] if default else [])
    if not found:
        raise UsageError("no model is named", fix="name some: kvcalc compare llama-8b qwen3-8b")
    return [load_reference(each, naming) for each in found]


def references(naming: Described, positionals: list[str]) -> list[Reference]:
    """Named models in the order given; flags alone are the equation itself."""
    found = [recognise(word) for word in positionals]
    for kind in ("preset", "config", "gguf", "hub"):
        value = getattr(naming, kind)
        if value is not None:
            found.append(Reference(kind, str(value)))
    if not found and getattr(naming, "layers", None) is not None:
        found.append(Reference("equation", "the equation's flags"))
    return found


def recognise(word: str) -> Reference:
    """What a bare word names: a file or folder that is there, a URL, ORG/NAME, else a preset."""
    path = Path(word)
    if " " in word.strip() and not _there(path):
        _refuse_launch_line(word)
    if word.startswith(("http://", "https://")) or word.lower().endswith(".gguf"):
        return Reference("gguf", word)
    if _there(path):
        return Reference("gguf" if _is_gguf(path) else "config", word)
    if word.endswith(".json"):
        return Reference("config", word)
    if word.count("/") == 1 and not word.startswith((".", "/", "~")):
        return Reference("hub", word)
    return Reference("preset", word)


def _refuse_launch_line(word: str) -> None:
    """A whole command line stands where a model's name is expected. Raises UsageError."""
    from kvcalc.launch.forms import read_launches
    from kvcalc.launch.values import LaunchError

    try:
        found = read_launches(word)
    except LaunchError:
        return
    if found:
        raise UsageError(f"this is a launch line of {found[0].engine}, not a model", fix="kvcalc check '…' takes it as it stands")


def _there(path: Path) -> bool:
    from kvcalc.readers.hf_config import config_in

    try:
        return path.is_file() or (path.is_dir() and config_in(path) is not None) or path.is_fifo()
    except (OSError, ValueError):
        return False


def _is_gguf(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def load_reference(reference: Reference, naming: Described) -> Model:
    """Read the model, and mark it where flags changed it.

    Raises UsageError, ConfigError, PresetError, GgufError, HubError, ArchitectureError.
    """
    if reference.kind != "hub" and (naming.file or naming.revision):
        name = "--file" if naming.file else "--revision"
        raise UsageError(
            f"{name} belongs to a repository of the hub, and {reference.value[:60]!r} is none", fix="add --hub ORG/NAME"
        )
    model = _read(reference, naming)
    changed = list({field.origin: name for name, field in model.fields.used.items() if field.origin.startswith("flag ")}.values())
    if reference.kind == "equation" or not changed:
        return model
    what = f"{changed[0]} {_short(model.fields[changed[0]].value)}" if len(changed) == 1 else f"{len(changed)} fields changed"
    return replace(model, name=f"{model.name} with {what}")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHORT_VALUE and "," not in text else "changed"


def _read(reference: Reference, naming: Described) -> Model:
    overrides, assume = flag_fields(naming), naming.assume or ""
    if reference.kind == "preset":
        return _preset(reference.value, naming, overrides, assume)
    if reference.kind == "config":
        from kvcalc.readers.hf_config import read_config

        return read_config(Path(reference.value), overrides, assume)
    if reference.kind == "hub" and not naming.file:
        return _hub(reference.value, naming, overrides, assume)
    if reference.kind in ("gguf", "hub"):
        from kvcalc.readers.gguf_model import read_gguf_model

        return read_gguf_model(reference.value, naming.file, naming.revision, overrides, assume)
    return _equation(overrides, assume)


def _hub(repository: str, naming: Described, overrides: Mapping[str, Field], assume: str) -> Model:
    """The hub's file; without the hub's package, the preset that was made of that very checkpoint, which is said."""
    from kvcalc.readers.hub import read_hub

    try:
        return read_hub(repository, naming.revision, overrides, assume)
    except MissingExtraError as problem:
        path = None if naming.revision else made_of(repository, naming.presets_dir)
        if path is None:
            raise
        from kvcalc.cli.output import warn
        from kvcalc.readers.presets import model_in

        warn(f"{problem.what}: the preset {path.stem} answers, which was made of {repository}")
        return model_in(path, overrides, assume)


def made_of(repository: str, extra: Path | None) -> Path | None:
    """The preset whose checkpoint is ORG/NAME itself, if there is one."""
    from kvcalc.readers.checkpoints import find_checkpoint

    found = find_checkpoint(repository, extra)
    return found.path if found is not None and found.exact else None


def _preset(name: str, naming: Described, overrides: Mapping[str, Field], assume: str) -> Model:
    from kvcalc.readers.presets import find_preset, model_in, shadowed

    try:
        path = find_preset(name, naming.presets_dir)
        shipped = shadowed(name, path)
        if shipped is not None:
            from kvcalc.cli.output import warn

            warn(f"{name} is your own preset {path}, not {shipped.stem} as it ships with kvcalc")
        return model_in(path, overrides, assume)
    except PresetError as problem:
        if "/" not in name or "there is no preset" not in problem.what:
            raise
        raise ConfigError(f"{name[:80]!r} is no file, no folder with a config.json, and no preset", fix=problem.fix) from None


def _equation(overrides: Mapping[str, Field], assume: str) -> Model:
    from kvcalc.readers.hf_config import model_of

    return model_of({"model_type": "equation"}, "", "the equation", overrides, assume, "flags")


def flag_fields(naming: Described) -> dict[str, Field]:
    """The fields that flags give, each with its flag as origin. Raises UsageError."""
    found = {}
    for flag, name in FLAGS.items():
        text = getattr(naming, flag, None)
        if text is not None:
            option = f"--{flag.replace('_', '-')}"
            found[name] = Field(parse_count(text, f"a value of {option}"), f"flag {option}")
    for text in naming.set_:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {text[:40]!r} is not KEY=VALUE", fix="write --set index_head_dim=128")
        name, said = key.strip(), Field(_json_value(value, text), f"flag --set {key.strip()}")
        if found.get(name, said).value != said.value:
            raise UsageError(f"--set {name[:40]} is given twice, with two values", fix="give it once")
        found[name] = said
    return found


def _constant(word: str) -> float:
    """Infinity, as published files have it. Raises UsageError for NaN, which equals nothing, itself included."""
    if word == "NaN":
        raise UsageError("NaN is no value of a field", fix="write --set KEY=VALUE with a number, a word or JSON")
    return float(word)


def _json_value(value: str, text: str) -> object:
    try:
        return json.loads(value, parse_constant=_constant)
    except (ValueError, RecursionError):
        if value.replace("_", "").replace("-", "").isalnum():
            return value
        raise UsageError(
            f"--set {text[:60]!r} is neither JSON nor a word", fix="write --set layer_types='[\"full_attention\"]'"
        ) from None
