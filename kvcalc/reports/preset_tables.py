"""Presets as a table, one preset in full, and both as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.reports.to_json import Document, document, plain
from kvcalc.reports.to_table import plain_table

if TYPE_CHECKING:
    from kvcalc.readers.preset_schema import Preset


def presets_view(presets: Sequence[Preset]) -> RenderableType:
    """A row a preset."""
    table = plain_table("name", "model", "type", "checkpoint", "aliases")
    for preset in presets:
        table.add_row(
            preset.name, preset.title, str(preset.config.get("model_type", "")), preset.checkpoint, ", ".join(preset.aliases)
        )
    return Group(table, "", Text(f"{len(presets)} presets; kvcalc presets NAME shows one"))


def preset_view(preset: Preset) -> RenderableType:
    """Everything that one preset holds."""
    table = plain_table("field", "value")
    about = {
        "title": preset.title,
        "family": preset.family,
        "aliases": ", ".join(preset.aliases),
        "checkpoint": preset.checkpoint,
        "read from": " ".join(part for part in (preset.source.repo, preset.source.path, preset.source.commit) if part),
        "source note": preset.source.note,
        "parameters": f"{preset.parameters:,}" if preset.parameters else "",
        "weights dtype": preset.weights_dtype or "",
    }
    for name, value in about.items():
        if value:
            table.add_row(name, Text(value))
    for key, value in preset.config.items():
        table.add_row(f"config.{key}", Text(str(value)))
    return Group(Text(preset.name, style="bold"), "", table)


def presets_document(presets: Sequence[Preset]) -> Document:
    """Presets as JSON."""
    return document("presets", presets=[plain(preset.model_dump()) for preset in presets])
