"""``audit`` as JSON: every figure with what it can stand for, what was predicted, and why they differ."""

from __future__ import annotations

from kvcalc.audit.findings import Audited, Finding
from kvcalc.core.log_facts import EngineLog
from kvcalc.reports.to_json import Document, document, model_part


def audit_document(log: EngineLog, audits: list[Audited]) -> Document:
    """The whole log. Sizes are bytes; ratios (concurrency) are millionths."""
    return document(
        "audit",
        log={"source": log.source, "lines": log.lines, "earlier_loads_left_out": log.forgotten},
        agrees=all(each.agrees for each in audits),
        checked=sum(len(each.checked) for each in audits),
        restated=sum(bool(finding.restates) for each in audits for finding in each.checked),
        loads=[_load(each) for each in audits],
    )


def _load(audited: Audited) -> Document:
    load = audited.load
    return {
        "engine": load.engine,
        "version": load.version or None,
        "rules": audited.rules or None,
        "line": load.line,
        "model": model_part(audited.model) if audited.model else None,
        "settings": [{"name": name, "value": value, "origin": origin} for name, value, origin in audited.used],
        "agrees": audited.agrees,
        "findings": [_finding(finding) for finding in audited.findings],
        "missing": list(audited.missing),
        "notes": list(audited.notes),
    }


def _finding(finding: Finding) -> Document:
    predicted = finding.predicted
    return {
        "line": finding.line,
        "what": finding.what,
        "stated": finding.stated,
        "stated_low": finding.low,
        "stated_high": finding.high,
        "predicted_low": predicted.low if predicted else None,
        "predicted_high": predicted.high if predicted else None,
        "unit": finding.unit,
        "difference": finding.difference,
        "bytes": finding.note_bytes,
        "verdict": finding.verdict,
        "restates_line": finding.restates or None,
        "why": finding.why,
    }
