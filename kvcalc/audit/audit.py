"""One load of a log, under the rules of the engine that wrote it."""

from __future__ import annotations

from kvcalc.audit.findings import Audited, Finding
from kvcalc.audit.llamacpp import audit_llamacpp
from kvcalc.audit.pools import audit_pools
from kvcalc.audit.settings import Given, Settings
from kvcalc.audit.vllm import audit_vllm
from kvcalc.core.log_facts import Load
from kvcalc.core.model import Model

_AUDITORS = {"llama.cpp": audit_llamacpp, "vllm": audit_vllm}
NAME_IT = "name the model: kvcalc audit LOG MODEL (a preset, --config, --gguf, or --layers --kv-heads --head-dim)"


def audit(load: Load, model: Model | None, given: Given) -> Audited:
    """Every figure of ``load`` with its prediction."""
    settings = Settings(load, given, model)
    findings = _AUDITORS.get(load.engine, audit_pools)(load, model, settings)
    return Audited(load, load.engine, model, tuple(findings), _missing(findings, model), _notes(load), settings.lines())


def _missing(findings: list[Finding], model: Model | None) -> tuple[str, ...]:
    unchecked = [finding for finding in findings if finding.verdict == "unchecked"]
    if not unchecked:
        return ()
    if model is None:
        return (NAME_IT,)
    return tuple(dict.fromkeys(finding.why for finding in unchecked if finding.why))


def _notes(load: Load) -> tuple[str, ...]:
    return (f"{load.dropped:,} further lines of this start are not shown",) if load.dropped else ()
