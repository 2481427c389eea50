"""What a log leaves unsaid, taken in every way that there is: one under which all figures agree is the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kvcalc.audit.findings import Finding

Way = TypeVar("Way")


def best(ways: Iterable[Way], findings: Callable[[Way], list[Finding]]) -> tuple[Way, list[Finding], list[list[Finding]]]:
    """The first way under which nothing differs, else that under which least does; its findings, and those of all tried."""
    tried: list[tuple[int, Way, list[Finding]]] = []
    for way in ways:
        found = findings(way)
        off = sum(each.verdict == "differs" for each in found)
        tried.append((off, way, found))
        if not off:
            break
    _, way, found = min(tried, key=lambda each: each[0])
    return way, found, [each for _, _, each in tried]


def hangs(finding: Finding, at: int, others: Iterable[list[Finding]]) -> bool:
    """Whether another way predicts this figure otherwise."""
    return any(at < len(other) and other[at].predicted not in (None, finding.predicted) for other in others)
