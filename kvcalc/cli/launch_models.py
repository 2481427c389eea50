"""The model of a launch: by the checkpoint of a preset, a file that is here, or the hub where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvcalc.check.question import Known
from kvcalc.core.fields import Field
from kvcalc.core.model import Model
from kvcalc.errors import KvcalcError, UsageError
from kvcalc.launch.values import Launch
from kvcalc.units import parse_bytes


def known_model(launch: Launch, name: str, hub: bool, weights: str) -> Known:
    """The model of a launch: what ``name`` says, else the line's own. Raises UsageError, ConfigError, HubError …"""
    from kvcalc.cli.model_args import load_reference, recognise
    from kvcalc.cli.options import Naming

    given = name or launch.model
    if not given:
        raise UsageError("the line names no model", launch.place, "name it: --model qwen3-8b, or a config.json")
    overrides = _overrides(launch)
    quantised = str(launch.settings.get("quantization", "")).lower()  # while loading: --quantization fp8
    if not name and not _is_here(given):
        found = _by_checkpoint(given, overrides, weights if _is_format(weights) else quantised if quantised == "fp8" else "")
        if found is not None:
            return found if not weights or _is_format(weights) else _with_weights(found, weights)
        if not hub:
            raise UsageError(
                f"no preset is made from {given[:80]}",
                launch.place,
                "name the model: --model PRESET|config.json, or look it up: --hub",
            )
    reference = recognise(given)
    model = load_reference(reference, Naming())
    if _is_format(weights) and reference.kind == "preset":
        return _in_format(model, reference.value, weights.strip().lower(), ())
    return Known(model, (parse_bytes(weights), "flag --weights") if weights else _weights(reference.kind, reference.value, model))


def _is_format(weights: str) -> bool:
    """Whether --weights names a format, and not a size."""
    return bool(weights) and not (weights.strip()[:1].isdigit() or weights.strip()[:1] == ".")


def _with_weights(found: Known, weights: str) -> Known:
    said = tuple(note for note in found.notes if "--weights" not in note)
    return replace(found, weights=(parse_bytes(weights), "flag --weights"), notes=said)


def _is_here(name: str) -> bool:
    try:
        return len(name) < 4096 and Path(name).exists()
    except (OSError, ValueError):
        return False


# Words in names → the formats whose bytes are known.
_FORMATS = {
    "4bit": "q4_0",
    "8bit": "q8_0",
    "fp4": "nvfp4",
    "int4": "gptq",
    "w4a16": "gptq",
    "w8a8": "int8",
    "w8a16": "int8",
    "f16": "fp16",
}


def _by_checkpoint(name: str, overrides: Mapping[str, Field], form: str) -> Known | None:
    """The preset of a checkpoint, with its weights as published, or in the format that is named. Raises UsageError."""
    from kvcalc.readers.checkpoints import find_checkpoint, format_in
    from kvcalc.readers.presets import model_in
    from kvcalc.readers.weights import weights_of_preset

    found = find_checkpoint(name)
    if found is None:
        return None
    notes = () if found.exact else (f"taken for {found.checkpoint} by its name: the cache is the same where the architecture is",)
    model = model_in(found.path, overrides)
    form = form or ("" if found.exact else format_in(name))
    if form:
        return _in_format(model, found.path.stem, form, notes)
    try:
        return Known(model, weights_of_preset(found.path.stem, None), notes)
    except KvcalcError:
        return Known(model, None, (*notes, "the weights are not known: --weights says them"))


def _in_format(model: Model, preset: str, form: str, notes: tuple[str, ...]) -> Known:
    """With the weights of a format reckoned from the parameters; without any where the format's bytes are not known."""
    from kvcalc.engines.weight_formats import bytes_in_format
    from kvcalc.readers.weights import parameters_of_preset

    try:
        weights = bytes_in_format(_FORMATS.get(form, form), parameters_of_preset(preset, None), model)
    except KvcalcError:
        return Known(model, None, (*notes, f"weights in {form} are not counted: --weights says them"))
    return Known(model, weights, (*notes, f"weights {weights[1]}: --weights says them exactly"))


def _weights(kind: str, held: str, model: Model) -> tuple[int, str] | None:
    from kvcalc.readers import weights

    try:
        if model.format == "gguf":
            return weights.weights_of_gguf(model)
        if kind == "config":
            return weights.weights_of_folder(Path(held))
        return weights.weights_of_preset(held, None) if kind == "preset" else weights.weights_of_hub(held, None)
    except KvcalcError:
        return None


def _overrides(launch: Launch) -> dict[str, Field]:
    """Fields of the model's file that a flag stands for: --hf-overrides, --json-model-override-args, --rope-scaling."""
    found: dict[str, Any] = {}
    for name in ("hf-overrides", "json-model-override-args"):
        held = launch.settings.get(name)
        if isinstance(held, dict):
            inner = held.get("text_config")
            found |= {key: item for key, item in held.items() if key != "text_config"}
            found |= inner if isinstance(inner, dict) else {}
    rope = launch.settings.get("rope-scaling")
    found |= {"rope_scaling": rope} if isinstance(rope, dict) else {}
    return {name: Field(held, "the line's override") for name, held in found.items()}
