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
    parts: list[RenderableType] = [head, "", table if engine.options else Text("no options")]
    if engine.releases.versioned:
        parts += ["", Text("releases, and what changed in each", style="bold"), _releases(engine)]
    return Group(*parts)


def _releases(engine: Engine) -> RenderableType:
    table = plain_table("release", "what changed")
    table.columns[0].no_wrap = True
    oldest = engine.releases.known[0]
    for name, said in engine.releases.brought().items():
        table.add_row(name, Text("\n".join(said) or ("the oldest known" if name == oldest else "nothing of the cache")))
    return table


def engines_document(engines: Sequence[Engine]) -> Document:
    """Engines as JSON."""
    return document("engines", engines=[_part(engine) for engine in engines])


def _part(engine: Engine) -> Document:
    return {**engine_part(engine), "options": _options(engine), "releases": _release_rows(engine)}


def _release_rows(engine: Engine) -> list[Document]:
    """Newest first; one entry where no release can be asked for."""
    return [{"release": name, "changes": list(said)} for name, said in engine.releases.brought().items()]


def _options(engine: Engine) -> list[Document]:
    return [
        {"name": each.name, "kind": each.kind, "choices": list(each.choices), "default": each.default, "help": each.help}
        for each in engine.options
    ]
