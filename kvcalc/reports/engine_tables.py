"""Engines and their options, as tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.engines.base import Engine
from kvcalc.reports.to_json import Document, document, engine_part
from kvcalc.reports.to_table import plain_table


def engines_view(engines: Sequence[Engine]) -> RenderableType:
    """A row an engine."""
    table = plain_table("engine", "version", "evidence", "options")
    for engine in engines:
        table.add_row(engine.name, engine.version, engine.evidence, ", ".join(option.name for option in engine.options) or "none")
    return Group(table, "", Text("kvcalc engines NAME shows one engine's options"))


def engine_view(engine: Engine) -> RenderableType:
    """One engine in full."""
    head = Text.assemble(
        (engine.name, "bold"), f"  {engine.version}\nrules read from: {engine.source}\nevidence: {engine.evidence}"
    )
    table = plain_table("-o option", "value", "default", "what it does")
    table.columns[0].no_wrap = True  # a name is copied whole
    for option in engine.options:
        values = ", ".join(option.choices) if option.choices else option.kind
        table.add_row(option.name, Text(values), option.default, option.help)
    return Group(head, "", table if engine.options else Text("no options"))


def engines_document(engines: Sequence[Engine]) -> Document:
    """Engines as JSON."""
    return document("engines", engines=[{**engine_part(engine), "options": _options(engine)} for engine in engines])


def _options(engine: Engine) -> list[Document]:
    return [
        {"name": each.name, "kind": each.kind, "choices": list(each.choices), "default": each.default, "help": each.help}
        for each in engine.options
    ]
