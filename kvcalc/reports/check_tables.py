"""``kvcalc check`` as tables: each launch with its settings, then every other flag and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.check.answer import CONTRADICTS, FITS, NO, NO_RULES, OPEN, REFUSED, Answer
from kvcalc.check.cures import Change
from kvcalc.check.question import Question
from kvcalc.escapes import visible
from kvcalc.launch.values import AMBIGUOUS, COUNTED, NAMES_MODEL, NO_EFFECT, REMOVED, UNKNOWN, UNREADABLE, Launch
from kvcalc.reports.fit_view import not_counted
from kvcalc.reports.to_table import plain_table
from kvcalc.units import format_bytes

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
        if flag.verdict not in (NO_EFFECT, NAMES_MODEL):
            verdict = Text("" if flag.verdict == COUNTED else flag.verdict, style=STYLES.get(flag.verdict, ""))
            table.add_row(shown(flag.written), shown(as_text(flag.value)), verdict, shown(flag.note, 300))
    return table


def as_text(held: Any) -> str:
    """A value as it is written: JSON for objects, lists and booleans."""
    return held if isinstance(held, str) else json.dumps(held, ensure_ascii=False, default=str)


def shown(text: str, longest: int = LONGEST) -> str:
    """A text from outside, not without end."""
    return visible(text if len(text) <= longest else text[:longest] + "…")


VERDICT_STYLES = {
    FITS: "bold green",
    NO: "bold red",
    REFUSED: "bold red",
    CONTRADICTS: "bold red",
    NO_RULES: "bold yellow",
    OPEN: "bold yellow",
}


def answers_view(answers: Sequence[Answer]) -> RenderableType:
    """Every launch with its verdict."""
    parts: list[RenderableType] = []
    for number, answer in enumerate(answers):
        parts += [Text()] if number else []
        parts += list(_answer_parts(answer))
    return Group(*parts)


def _answer_parts(answer: Answer) -> Iterator[RenderableType]:
    yield Text.assemble(
        (answer.launch.engine, "bold"), headline(answer.launch), "  ", (answer.verdict, VERDICT_STYLES[answer.verdict])
    )
    for why in answer.why:
        yield Text("  " + shown(why, 500))
    if answer.tally is not None and answer.asked is not None:
        yield Text()
        yield _figures(answer, answer.asked)
    if answer.changes:
        yield Text()
        yield from _diff(answer.changes)
    yield Text()
    yield from _remarks(answer)


def _figures(answer: Answer, asked: Question) -> RenderableType:
    """Rows of name and figure: the cache of a rank, what is left for it, how many sequences that is."""
    table = plain_table("", "bytes", "", right=(1,))
    tally = answer.tally
    if tally is not None:
        what = "all slots" if asked.names.whole else f"one sequence of {answer.tokens or 0:,} tokens"
        rank = " on each rank" if asked.ranks > 1 else ""
        table.add_row(f"cache, {what}{rank}", f"{tally.total_bytes:,}", format_bytes(tally.total_bytes))
    memory = asked.memory
    if memory is not None and answer.budget_bytes is not None:
        sharing = asked.request.tp_size * asked.request.pp_size
        over = f" over {sharing} ranks" if sharing > 1 else ""
        share = f"{float(memory.utilization):g} of {memory.origin}, less {format_bytes(memory.weights)} of weights{over}"
        table.add_row("left for it", f"{max(answer.budget_bytes, 0):,}", share)
    if memory is not None and memory.other is not None:
        table.add_row("what else the engine takes", f"{memory.other_bytes:,}", f"{memory.other.said}: {memory.other.basis}")
    if answer.sequences or answer.at_most:
        more = f"at least; at most {answer.at_most:,}" if (answer.at_most or 0) > (answer.sequences or 0) else "at once"
        table.add_row("sequences of that length", f"{answer.sequences or 0:,}", more)
    return table


def _diff(changes: Sequence[Change]) -> Iterator[Text]:
    """The line's flags as they stand and as they might."""
    yield Text("what to change", style="bold")
    for change in changes:
        sign = "=" if change.flag.isupper() else " "
        before = change.flag if change.before == change.flag else f"{change.flag}{sign}{change.before}"
        if change.before:
            yield Text(f"- {shown(before)}", style="red")
        if change.after:
            yield Text.assemble((f"+ {shown(f'{change.flag}{sign}{change.after}')}", "green"), f"    {shown(change.gives)}")
        else:
            yield Text(f"    without it: {shown(change.gives)}")


def _remarks(answer: Answer) -> Iterator[Text]:
    launch = answer.launch
    for flag in launch.flags:
        if flag.verdict not in (COUNTED, NO_EFFECT, NAMES_MODEL):
            yield Text.assemble(
                (f"{flag.verdict}: ", STYLES[flag.verdict]), shown(f"{flag.written} {as_text(flag.value)}: {flag.note}", 300)
            )
    for slip in launch.slips:
        yield Text.assemble(("slip: ", "bold yellow"), shown(f"line {slip.line}: {slip.text}", 300))
    for note in (*launch.notes, *answer.notes):
        yield Text.assemble(("note: ", "bold"), shown(note, 300))
    if answer.asked is not None:
        rules = f"{answer.asked.engine.name} {answer.asked.engine.releases.find(answer.asked.release).said}"
        yield Text(f"under {rules} rules; not counted: {not_counted(answer.asked.engine, answer.asked.memory)}")
    silent = [flag.written for flag in launch.named(NO_EFFECT)]
    if silent:
        yield Text(shown("without effect on memory: " + ", ".join(dict.fromkeys(silent)), 1000))
