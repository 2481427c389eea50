"""One load of a log, under the rules of the engine that wrote it."""

from __future__ import annotations

from kvcalc.audit.findings import Audited, Finding
from kvcalc.audit.llamacpp import audit_llamacpp
from kvcalc.audit.ollama import audit_ollama
from kvcalc.audit.pools import audit_pools
from kvcalc.audit.settings import Given, Settings
from kvcalc.audit.vllm import audit_vllm
from kvcalc.core.log_facts import Load
from kvcalc.core.model import Model

_AUDITORS = {"llama.cpp": audit_llamacpp, "vllm": audit_vllm, "ollama": audit_ollama}
NAME_IT = "name the model: kvcalc audit LOG MODEL (a preset, --config, --gguf, or --layers --kv-heads --head-dim)"


def audit(load: Load, model: Model | None, given: Given) -> Audited:
    """Every figure of ``load`` with its prediction."""
    settings = Settings(load, given, model)
    findings = _AUDITORS.get(load.engine, audit_pools)(load, model, settings)
    differs = any(finding.verdict == "differs" for finding in findings)
    notes = (*settings.notes, *_notes(load, model if differs else None))
    missing = _missing(findings, model)
    return Audited(load, load.engine, model, tuple(findings), missing, notes, settings.lines(), settings.rules)


def _missing(findings: list[Finding], model: Model | None) -> tuple[str, ...]:
    unchecked = [finding for finding in findings if finding.verdict == "unchecked"]
    if not unchecked:
        return ()
    if model is None:
        return (NAME_IT,)
    return tuple(dict.fromkeys(finding.why for finding in unchecked if finding.why))


def _notes(load: Load, differing: Model | None) -> tuple[str, ...]:
    found = [f"{load.dropped:,} further lines of this start are not shown"] if load.dropped else []
    named = load.setting("model", "model_path")
    if differing is not None and named and not _same_name(named, differing.name):
        found.append(f"the log is of {named}; the prediction is of {differing.name}")
    return tuple(found)


def _same_name(one: str, other: str) -> bool:
    """``Qwen/Qwen3-32B-FP8`` and ``qwen3-32b`` are the same model."""
    names = ["".join(filter(str.isalnum, name.rstrip("/").rsplit("/", 1)[-1].lower())) for name in (one, other)]
    return names[0].startswith(names[1]) or names[1].startswith(names[0])
