"""``kvcalc check`` as tables: each launch with its settings, then every other flag and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.launch.values import AMBIGUOUS, COUNTED, NO_EFFECT, REMOVED, UNKNOWN, UNREADABLE, Launch
from kvcalc.reports.to_table import plain_table

STYLES = {UNKNOWN: "yellow", REMOVED: "yellow", AMBIGUOUS: "bold red", UNREADABLE: "bold red"}
LONGEST = 100


def settings_view(launches: Sequence[Launch]) -> RenderableType:
    """The view of ``--settings``."""
    parts: list[RenderableType] = []
    for number, launch in enumerate(launches):
        parts += [Text()] if number else []
        parts += list(launch_parts(launch))
    return Group(*parts)


def launch_parts(launch: Launch) -> Iterator[RenderableType]:
    """One launch: its headline, its flags, its slips."""
    yield Text.assemble((launch.engine, "bold"), headline(launch))
    if launch.flags:
        yield Text()
        yield _flags(launch)
    silent = [flag.written for flag in launch.named(NO_EFFECT)]
    if silent:
        yield Text(shown("without effect on memory: " + ", ".join(dict.fromkeys(silent)), 1000))
    for slip in launch.slips:
        yield Text.assemble(("slip: ", "bold yellow"), shown(f"line {slip.line}: {slip.text}", 300))
    for note in launch.notes:
        yield Text.assemble(("note: ", "bold"), shown(note, 300))
    for name in launch.asks:
        yield Text.assemble(("not given: ", "bold yellow"), shown(name))


def headline(launch: Launch) -> str:
    """Release, model, place and cards in one line."""
    cards = f"{launch.gpus} x {launch.gpu or 'GPU'}" if launch.gpus else launch.gpu
    copies = f"{launch.replicas} copies" if launch.replicas > 1 else ""
    said = (launch.release, launch.model or "no model named", launch.place, cards, copies)
    return shown("  " + ", ".join(part for part in said if part), 400)


def _flags(launch: Launch) -> RenderableType:
    table = plain_table("flag", "value", "", "note")
    for flag in launch.flags:
        if flag.verdict != NO_EFFECT:
            verdict = Text("" if flag.verdict == COUNTED else flag.verdict, style=STYLES.get(flag.verdict, ""))
            table.add_row(shown(flag.written), shown(as_text(flag.value)), verdict, shown(flag.note, 300))
    return table


def as_text(held: Any) -> str:
    """A value as it is written: JSON for objects, lists and booleans."""
    return held if isinstance(held, str) else json.dumps(held, ensure_ascii=False, default=str)


def shown(text: str, longest: int = LONGEST) -> str:
    """A text from outside without what a terminal would obey, and not without end."""
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "replace").decode("ascii") for char in text[: longest + 1]
    )
    return safe if len(text) <= longest else safe[:longest] + "…"
