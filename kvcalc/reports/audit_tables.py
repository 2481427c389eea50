"""``audit`` as tables: line by line stated, predicted, the difference, and what explains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kvcalc.audit.findings import Audited, Finding
from kvcalc.core.log_facts import EngineLog
from kvcalc.reports.to_table import plain_table
from kvcalc.units import format_bytes

STYLES = {"exact": "green", "agrees": "green", "differs": "bold red", "unchecked": "yellow"}
MEANINGS = {"exact": "to the byte", "agrees": "as far as it is printed"}


def audit_view(log: EngineLog, audits: list[Audited]) -> RenderableType:
    """Every load of the log."""
    parts: list[RenderableType] = []
    for index, each in enumerate(audits):
        parts += [Text()] if index else []
        parts += list(_load_view(each))
    parts += _notes(log)
    return Group(*parts)


def _load_view(audited: Audited) -> Iterator[RenderableType]:
    yield _headline(audited)
    if audited.used:
        yield Text("settings: " + ", ".join(f"{name} {value} ({origin})" for name, value, origin in audited.used))
    yield Text()
    yield findings_table(audited.findings)
    for text in audited.missing:
        if audited.model is None:
            yield Text.assemble(("unchecked: ", "bold yellow"), text)
    for text in audited.notes:
        yield Text.assemble(("note: ", "bold"), text)
    yield _verdict(audited)


def _headline(audited: Audited) -> Text:
    load = audited.load
    rules = f" (rules of {audited.rules})" if audited.rules else ""
    text = Text.assemble((load.engine, "bold"), f" {load.version}".rstrip(), rules, f", from line {load.line:,} on")
    if audited.model is not None:
        text.append(f", {audited.model.name} ({audited.model.source or 'flags'})")
    return text


def findings_table(findings: Iterable[Finding]) -> Table:
    """A row a figure."""
    table = plain_table("line", "figure", "stated", "predicted", "difference", "", "why", right=(0, 2, 3, 4))
    for finding in findings:
        table.add_row(
            f"{finding.line:,}",
            finding.what,
            _stated(finding),
            finding.predicted_text,
            finding.difference_text,
            Text(_word(finding), style=STYLES[finding.verdict]),
            finding.why or _meaning(finding),
        )
    return table


def _stated(finding: Finding) -> str:
    """As printed; tokens also as bytes."""
    return finding.stated if finding.note_bytes is None else f"{finding.stated} = {format_bytes(finding.note_bytes)}"


def _word(finding: Finding) -> str:
    return "restates" if finding.restates and finding.verdict in MEANINGS else finding.verdict


def _meaning(finding: Finding) -> str:
    if finding.restates and finding.verdict in MEANINGS:
        return f"follows from line {finding.restates:,}: no second proof"
    return MEANINGS.get(finding.verdict, "") if finding.unit == "bytes" else ""


def _verdict(audited: Audited) -> Text:
    differing = [finding for finding in audited.findings if finding.verdict == "differs"]
    checked = sum(not finding.restates or finding.verdict == "differs" for finding in audited.checked)
    if differing:
        return Text(f"{len(differing)} of {checked} figures differ", style="bold red")
    left, restated = len(audited.findings) - len(audited.checked), len(audited.checked) - checked
    if not checked:
        verb = "follows" if restated == 1 else "follow"
        said = f"{restated} {verb} from other lines of the log, {left} could not be checked" if restated else ""
        return Text(said or "nothing could be checked", style="bold yellow")
    said = "the figure agrees" if checked == 1 else f"all {checked} figures agree"
    if left:
        said = f"{checked} figure{'s' * (checked > 1)} {'agree' if checked > 1 else 'agrees'}, {left} could not be checked"
    return Text(said, style="bold yellow" if left else "bold green")


def _notes(log: EngineLog) -> list[RenderableType]:
    if not log.forgotten:
        return []
    return [Text.assemble(("note: ", "bold"), f"{log.forgotten:,} earlier starts in this log are left out")]
