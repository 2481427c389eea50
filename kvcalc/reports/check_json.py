"""``kvcalc check`` as JSON: every launch with its settings, every flag accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcalc.check.answer import CODES, Answer
from kvcalc.launch.values import AMBIGUOUS, COUNTED, NO_EFFECT, REMOVED, UNKNOWN, UNREADABLE, Flag, Launch
from kvcalc.reports.to_json import document, error_part, model_part


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


def answers_document(answers: Sequence[Answer]) -> Mapping[str, object]:
    """The document of the verb: each launch with its verdict and figures."""
    return document("check", commands=[{**command(each.launch), "answer": _answer(each)} for each in answers])


def _answer(answer: Answer) -> dict[str, Any]:
    asked, memory = answer.asked, answer.asked.memory if answer.asked else None
    return {
        "verdict": answer.verdict,
        "exit_code": int(CODES[answer.verdict]),
        "why": list(answer.why),
        "error": error_part(answer.problem) if answer.problem else None,
        "rules": f"{asked.engine.name} {asked.engine.releases.find(asked.release).said}" if asked else None,
        "model": model_part(asked.model) if asked else None,
        "ranks": asked.ranks if asked else None,
        "tokens": answer.tokens,
        "cache_bytes": answer.tally.total_bytes if answer.tally else None,
        "sequences": answer.sequences,
        "sequences_at_most": answer.at_most if answer.at_most is not None else answer.sequences,
        "budget_bytes": answer.budget_bytes,
        "need_bytes": answer.need_bytes,
        "memory_bytes": memory.device_bytes if memory else None,
        "memory_origin": memory.origin if memory else None,
        "weights_bytes": memory.weights if memory else None,
        "other_low_bytes": memory.other.low if memory and memory.other else None,
        "other_high_bytes": memory.other.high if memory and memory.other else None,
        "other_basis": memory.other.basis if memory and memory.other else None,
        "not_counted": list(asked.engine.excluded) if asked else [],
        "changes": [
            {"flag": change.flag, "before": change.before or None, "after": change.after or None, "gives": change.gives}
            for change in answer.changes
        ],
        "notes": list(answer.notes),
    }
