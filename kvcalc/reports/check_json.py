"""``kvcalc check`` as JSON: every launch with its settings, every flag accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcalc.launch.values import AMBIGUOUS, COUNTED, NO_EFFECT, REMOVED, UNKNOWN, UNREADABLE, Flag, Launch
from kvcalc.reports.to_json import document


def settings_document(launches: Sequence[Launch]) -> Mapping[str, object]:
    """The document of ``--settings``."""
    return document("check", commands=[command(launch) for launch in launches])


def command(launch: Launch) -> dict[str, Any]:
    """One launch: ``settings`` by the engine's own option names, the other flags by what becomes of them."""
    return {
        "engine": launch.engine,
        "release": launch.release or None,
        "program": launch.program or None,
        "model": launch.model or None,
        "place": launch.place or None,
        "gpu": launch.gpu or None,
        "gpus": launch.gpus,
        "replicas": launch.replicas,
        "settings": dict(launch.settings),
        "unrelated": [flag.written for flag in launch.named(NO_EFFECT)],
        "unknown": [_said(flag) for flag in launch.named(UNKNOWN)],
        "removed": [_said(flag) for flag in launch.named(REMOVED)],
        "ambiguous": [_said(flag) for flag in launch.named(AMBIGUOUS)],
        "unreadable": [_said(flag) for flag in launch.named(UNREADABLE)],
        "notes": [f"{flag.written}: {flag.note}" for flag in launch.named(COUNTED) if flag.note] + list(launch.notes),
        "slips": [{"line": slip.line, "text": slip.text} for slip in launch.slips],
        "asks": list(launch.asks),
    }


def _said(flag: Flag) -> dict[str, Any]:
    return {"flag": flag.written, "value": flag.value, "line": flag.line, "note": flag.note}
