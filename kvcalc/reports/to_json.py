"""Results as JSON: one versioned schema for every verb.

Top level of an estimate: ``schema_version``, ``engine``, ``model``, ``request``, ``total_bytes``, ``components``
(``kv``, ``index``, ``state``, ``other``: they add up to the total), ``bytes_per_token``, ``fixed_bytes``, ``layers``,
``shared``, ``excluded``, ``warnings``; ``held_bytes`` and ``engine_report`` where an engine has them; ``kept_bytes`` and
``waste_bytes`` for sequences of different lengths. A refusal has ``error`` instead. Keys are only added within a version;
a change of meaning raises ``schema_version``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from fractions import Fraction
from math import isfinite

from kvcalc.core.layers import Layer, runs
from kvcalc.core.model import Array, LayerTally, Model
from kvcalc.engines.base import Engine, Plan
from kvcalc.engines.estimate import Estimate, Refusal
from kvcalc.engines.releases import Rules
from kvcalc.engines.sweep import Grid
from kvcalc.errors import KvcalcError

SCHEMA_VERSION = 1

Document = dict[str, object]


def document(verb: str, **parts: object) -> Document:
    """The envelope of every verb's JSON."""
    return {"schema_version": SCHEMA_VERSION, "verb": verb, **parts}


def error_document(problem: KvcalcError) -> Document:
    """A refusal: what is wrong, where, how to fix it."""
    return {"schema_version": SCHEMA_VERSION, "error": error_part(problem)}


def error_part(problem: KvcalcError) -> Document:
    """The refusal itself."""
    return {
        "code": problem.code,
        "what": problem.what,
        "where": problem.where,
        "fix": problem.fix,
        "exit_code": int(problem.exit_code),
    }


def number(value: Fraction | None) -> int | float | None:
    """A JSON number: an integer where it is one."""
    if value is None:
        return None
    return value.numerator if value.denominator == 1 else float(value)


def estimate_document(found: Estimate, verb: str = "estimate", by_layer: bool = False) -> Document:
    """Everything that an estimate carries."""
    tally = found.tally
    parts: Document = {
        "engine": rules_part(found.engine, found.rules, found.unchecked),
        "model": model_part(found.model),
        "request": request_part(found),
        "total_bytes": tally.total_bytes,
        "components": tally.component_bytes(),
        "bytes_per_token": number(found.bytes_per_token),
        "bytes_per_token_step": found.step,
        "fixed_bytes": found.fixed_bytes,
        "layers": [layer_part(run) for run in _each(tally.layers, by_layer)],
        "shared": [array_part(array) for array in tally.shared],
        "excluded": list(found.excluded),
        "warnings": list(found.warnings),
        "notes": list(tally.notes),
        "fits": tally.fits,
    }
    if found.kept_bytes is not None:
        parts |= {"kept_bytes": found.kept_bytes, "waste_bytes": found.waste_bytes}
    if tally.held_bytes is not None:
        parts["held_bytes"] = tally.held_bytes
    if tally.refusal:
        parts["refusal"] = tally.refusal
    if tally.report:
        parts["engine_report"] = dict(tally.report)
    return document(verb, **parts)


def _each(layers: tuple[LayerTally, ...], by_layer: bool) -> list[LayerTally]:
    if not by_layer:
        return list(layers)
    return [
        LayerTally(run.first + index, 1, run.layer, run.kind, run.arrays, run.positions)
        for run in layers
        for index in range(run.count)
    ]


def engine_part(engine: Engine) -> Document:
    """Whose rules."""
    return {"name": engine.name, "version": engine.version, "source": engine.source, "evidence": engine.evidence}


def rules_part(engine: Engine, rules: Rules, unchecked: str = "") -> Document:
    """Whose rules, and of which release: ``asked_release`` differs from ``rules_release`` where one stands in for another."""
    return {
        **engine_part(engine),
        "version": rules.asked,
        "rules_release": rules.name,
        "asked_release": rules.asked,
        "unchecked": unchecked or None,
    }


def plan_part(plan: Plan) -> Document:
    """The same of a plan."""
    return rules_part(plan.engine, plan.rules, plan.serving.unchecked)


def model_part(model: Model) -> Document:
    """Which model, and where its fields came from."""
    return {
        "name": model.name,
        "model_type": model.model_type,
        "source": model.source,
        "format": model.format,
        "num_layers": len(model.layers),
        "max_tokens": model.max_tokens,
        "dtype": model.dtype,
        "draft_layers": len(model.draft_layers),
        "assumed": model.assumed or None,
        "fields": {
            name: {"value": plain(field.value), "origin": field.origin} for name, field in sorted(model.fields.used.items())
        },
    }


def plain(value: object) -> object:
    """A file's own value as JSON has it: NaN, Infinity and what only YAML knows (dates, sets) as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    finite = isinstance(value, float) and isfinite(value)
    return value if finite or value is None or isinstance(value, str | int) else str(value)


def request_part(found: Estimate) -> Document:
    """What was asked, as the engine took it, and the origin of each value."""
    resolved = found.tally.request
    values = {name: value for name, (value, _) in resolved.items()}
    extra: Document = {"lengths": list(found.request.lengths)} if found.request.lengths else {}
    return {
        **values,
        "tp_size": found.request.tp_size,
        "pp_size": found.request.pp_size,
        "dp_size": found.request.dp_size,
        "draft": found.request.draft,
        **extra,
        "options": dict(found.request.options),
        "origins": {name: origin for name, (_, origin) in resolved.items()},
    }


def layer_part(run: LayerTally) -> Document:
    """A run of equal layers."""
    return {
        "kind": run.kind,
        "first": run.first,
        "count": run.count,
        "bytes": run.bytes,
        "bytes_per_layer": run.bytes_per_layer,
        "positions": run.positions,
        "arrays": [array_part(array) for array in run.arrays],
    }


def array_part(array: Array) -> Document:
    """One array of a layer, or of the pool."""
    part: Document = {
        "component": array.component,
        "label": array.label,
        "rows": array.rows,
        "row_bytes": array.row_bytes,
        "heads": array.heads,
        "width": array.width,
        "dtype": array.dtype,
        "bytes": array.bytes,
    }
    return {**part, "note": array.note} if array.note else part


def layout_part(layers: tuple[Layer, ...]) -> list[Mapping[str, object]]:
    """The layers themselves, before any request."""
    return [
        {"first": first, "count": count, "parts": [{"kind": part.kind, **_slots(part)} for part in layer]}
        for first, count, layer in runs(layers)
    ]


def _slots(part: object) -> dict[str, object]:
    return {name: _plain(held) for name, held in vars(part).items()}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _slots(value) if is_dataclass(value) else value


def sweep_head(grid: Grid) -> Document:
    """A sweep's envelope; its ``cells`` follow one by one."""
    request: Document = {
        "batch_sizes": list(grid.batches),
        "types": [[k and k.name, v and v.name] for k, v in grid.types],
        "options": dict(grid.request.options),
        "memory_bytes": grid.memory,
    }
    return document(
        "sweep", engine=engine_part(grid.engine), models=[model_part(model) for model in grid.models], request=request
    )


def compare_document(rows: list[list[Estimate | Refusal]]) -> Document:
    """Every model at every length, each a whole estimate; a refused one has an ``error``, and no bytes."""
    estimates = [
        estimate_document(found) if isinstance(found, Estimate) else refusal_document(found) for row in rows for found in row
    ]
    return document("compare", engine=engine_part(rows[0][0].engine), estimates=estimates)


def refusal_document(found: Refusal) -> Document:
    """An estimate that is refused, among others that are not."""
    return document(
        "estimate",
        engine=engine_part(found.engine),
        model=model_part(found.model),
        request={"batch_size": found.request.batch_size, "tokens": found.tokens},
        total_bytes=None,
        error=error_part(found.problem),
    )
