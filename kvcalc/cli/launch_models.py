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
    if not name and not _is_here(given):
        found = _by_checkpoint(given, overrides)
        if found is not None:
            said = tuple(note for note in found.notes if "--weights" not in note)
            return found if not weights else replace(found, weights=(parse_bytes(weights), "flag --weights"), notes=said)
        if not hub:
            raise UsageError(
                f"no preset is made from {given[:80]}",
                launch.place,
                "name the model: --model PRESET|config.json, or look it up: --hub",
            )
    reference = recognise(given)
    model = load_reference(reference, Naming())
    return Known(model, (parse_bytes(weights), "flag --weights") if weights else _weights(reference.kind, reference.value, model))


def _is_here(name: str) -> bool:
    try:
        return len(name) < 4096 and Path(name).exists()
    except (OSError, ValueError):
        return False


def _by_checkpoint(name: str, overrides: Mapping[str, Field]) -> Known | None:
    from kvcalc.readers.checkpoints import find_checkpoint, format_in
    from kvcalc.readers.presets import model_in
    from kvcalc.readers.weights import weights_of_preset

    found = find_checkpoint(name)
    if found is None:
        return None
    notes = () if found.exact else (f"taken for {found.checkpoint} by its name: the cache is the same where the architecture is",)
    model = model_in(found.path, overrides)
    if not found.exact and format_in(name):
        return Known(model, None, (*notes, f"weights in {format_in(name)} are not counted: --weights says them"))
    try:
        return Known(model, weights_of_preset(found.path.stem, None), notes)
    except KvcalcError:
        return Known(model, None, (*notes, "the weights are not known: --weights says them"))


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
