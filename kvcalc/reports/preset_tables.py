"""Presets as a table, one preset in full, and both as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.core.model import Model, Request
from kvcalc.engines import exact
from kvcalc.engines.estimate import Refusal, attempt
from kvcalc.reports.to_json import Document, document, plain
from kvcalc.reports.to_table import plain_table

LENGTH = 32768  # past every common window
Preset = Mapping[str, Any]  # a preset's fields by name, as its file has them


def presets_view(presets: Sequence[Preset], models: Sequence[Model]) -> RenderableType:
    """A row a preset, families together, numbers in names sorted as people count."""
    table = plain_table("name", "title", "layers", "KiB/token", right=(2, 3))
    table.columns[0].no_wrap = True  # a name is copied whole
    pairs = zip(presets, models, strict=True)
    for preset, model in sorted(pairs, key=lambda pair: (pair[0]["family"], _counted(pair[0]["name"]))):
        table.add_row(preset["name"], preset["title"], str(len(model.layers)), _growth(model))
    note = "KiB per additional token at 32k tokens, one sequence, the model's own type; kvcalc presets NAME shows one"
    return Group(table, "", Text(f"{len(presets)} presets. {note}"))


_SIZES = {"m": 0.001, "b": 1.0}


def _counted(name: str) -> tuple[tuple[bool, float, str], ...]:
    """A name as it sorts: qwen3-8b before qwen3-14b, 560m before 3b."""
    pieces = re.findall(r"(\d+(?:\.\d+)?)([mb]?)|(\D+)", name)
    return tuple((bool(word), float(number or 0) * _SIZES.get(unit, 1.0), word) for number, unit, word in pieces)


def _growth(model: Model) -> str:
    """KiB of one more token; empty where the figure needs more than the file says."""
    found = attempt(model, Request(tokens=LENGTH), exact.ENGINE)
    if isinstance(found, Refusal) or found.bytes_per_token is None:
        return ""
    return f"{float(found.bytes_per_token) / 1024:,.5g}"


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
