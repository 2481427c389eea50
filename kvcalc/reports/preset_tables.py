"""Presets as a table, one preset in full, and both as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.reports.to_json import Document, document, plain
from kvcalc.reports.to_table import plain_table

Preset = Mapping[str, Any]  # a preset's fields by name, as its file has them


def presets_view(presets: Sequence[Preset]) -> RenderableType:
    """A row a preset."""
    table = plain_table("name", "model", "type", "checkpoint", "aliases")
    for preset in presets:
        kind, aliases = preset["config"].get("model_type", ""), ", ".join(preset["aliases"])
        table.add_row(preset["name"], preset["title"], str(kind), preset["checkpoint"], aliases)
    return Group(table, "", Text(f"{len(presets)} presets; kvcalc presets NAME shows one"))


def preset_view(preset: Preset) -> RenderableType:
    """Everything that one preset holds."""
    table = plain_table("field", "value")
    source = preset["source"]
    about = {
        "title": preset["title"],
        "family": preset["family"],
        "aliases": ", ".join(preset["aliases"]),
        "checkpoint": preset["checkpoint"],
        "read from": " ".join(part for part in (source["repo"], source["path"], source["commit"]) if part),
        "source note": source["note"],
        "parameters": f"{preset['parameters']:,}" if preset["parameters"] else "",
        "weights dtype": preset["weights_dtype"] or "",
    }
    for name, value in about.items():
        if value:
            table.add_row(name, Text(value))
    for key, value in preset["config"].items():
        table.add_row(f"config.{key}", Text(str(value)))
    return Group(Text(preset["name"], style="bold"), "", table)


def presets_document(presets: Sequence[Preset]) -> Document:
    """Presets as JSON."""
    return document("presets", presets=[plain(preset) for preset in presets])
