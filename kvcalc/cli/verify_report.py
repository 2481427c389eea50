"""What ``verify`` found, as tables for people and as JSON under the versioned schema."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.core.model import Model
from kvcalc.reports.to_json import Document, document, model_part
from kvcalc.reports.to_table import plain_table
from kvcalc.verify.results import AgainstReport, AgainstRow, Check, Control, Measure, VerifyReport, Weighing

if TYPE_CHECKING:
    from kvcalc.reports.pictures import Picture
    from kvcalc.verify.timing import TimingReport


def verify_document(report: VerifyReport, times: TimingReport | None, model: Model) -> Document:
    """The whole report: ``passed``, ``checks``, ``totals``, ``controls``, ``against``, ``time``."""
    parts: Document = {
        "model": model_part(model),
        "request": report.request,
        "device": report.device,
        "torch_version": report.torch_version,
        "compute_dtype": report.compute_dtype,
        "reference_dtype": report.reference_dtype,
        "steps": report.steps,
        "passed": report.passed,
        "checks": [check_part(check) for check in report.checks],
        "totals": [weighing_part(weighing) for weighing in report.weighings],
        "controls": [control_part(control) for control in report.controls],
        "tolerance_rules": report.tolerance_rules,
        "notes": list(report.notes),
        "seconds": round(report.seconds, 3),
    }
    if report.against:
        parts["against"] = [against_part(found) for found in report.against]
    if report.tensor_parallel:
        parts["tensor_parallel"] = [check_part(check) for check in report.tensor_parallel]
    if times is not None:
        parts["time"] = times_part(times)
    return document("verify", **parts)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def measure_part(measure: Measure) -> Document:
    """One comparison; an error that is no number is null."""
    return {
        "what": measure.what,
        "outputs": measure.outputs,
        "error": _finite(measure.error),
        "tolerance": _finite(measure.tolerance),
        "passed": measure.passed,
    }


def check_part(check: Check) -> Document:
    """One layer kind under one implementation; ``error`` and ``tolerance``: of what failed, else of the outputs."""
    return {
        "kind": check.kind,
        "shape": check.shape,
        "implementation": check.implementation,
        "engine": check.engine,
        "k_dtype": check.k_dtype,
        "v_dtype": check.v_dtype,
        "layers": check.layers,
        "layers_in_model": check.layers_in_model,
        "error": _finite(check.shown.error),
        "tolerance": _finite(check.shown.tolerance),
        "measures": [measure_part(measure) for measure in check.measures],
        "measured_bytes": check.measured_bytes,
        "predicted_bytes": check.predicted_bytes,
        "difference_bytes": check.measured_bytes - check.predicted_bytes,
        "passed": check.passed,
        "note": check.note,
        "not_run": check.not_run,
    }


def weighing_part(weighing: Weighing) -> Document:
    """One implementation's total."""
    return {
        "implementation": weighing.implementation,
        "engine": weighing.engine,
        "k_dtype": weighing.k_dtype,
        "v_dtype": weighing.v_dtype,
        "measured_bytes": weighing.measured_bytes,
        "predicted_bytes": weighing.predicted_bytes,
        "difference_bytes": weighing.measured_bytes - weighing.predicted_bytes,
        "shared_measured_bytes": weighing.shared_measured,
        "shared_predicted_bytes": weighing.shared_predicted,
        "allocator_before": weighing.allocator_before,
        "allocator_after": weighing.allocator_after,
        "passed": weighing.passed,
    }


def control_part(control: Control) -> Document:
    """One cache that was broken on purpose."""
    return {
        "name": control.name,
        "kind": control.kind,
        "implementation": control.implementation,
        "what": control.what,
        "error": _finite(control.error),
        "tolerance": _finite(control.tolerance),
        "found_by": control.found_by,
        "sound_passed": control.sound,
        "caught": control.caught,
    }


def against_part(found: AgainstReport) -> Document:
    """A library's own cache."""
    return {
        "library": found.library,
        "version": found.version,
        "engine": found.engine,
        "measured_bytes": found.measured_bytes,
        "predicted_bytes": found.predicted_bytes,
        "difference_bytes": found.measured_bytes - found.predicted_bytes,
        "passed": found.passed,
        "layers": [
            {
                "layer": row.layer,
                "kind": row.kind,
                "measured_bytes": row.measured_bytes,
                "predicted_bytes": row.predicted_bytes,
                "note": row.note,
            }
            for row in found.rows
        ],
        "notes": list(found.notes),
    }


def times_part(times: TimingReport) -> Document:
    """A decode step's times."""
    rows = [
        {
            "implementation": timing.implementation,
            "tokens": timing.tokens,
            "seconds": timing.seconds,
            "read_bytes": timing.read_bytes,
            "bytes_per_second": round(timing.bytes_per_second),
            "of_copy": round(timing.bytes_per_second / times.copy_bytes_per_second, 4),
        }
        for timing in times.timings
    ]
    return {"kind": times.kind, "dtype": times.dtype, "copy_bytes_per_second": round(times.copy_bytes_per_second), "steps": rows}


def verify_view(report: VerifyReport, times: TimingReport | None) -> RenderableType:
    """The report for people, the verdict last."""
    parts: list[RenderableType] = [_head(report), ""]
    if report.checks:
        parts += [*checks_tables(report.checks), totals_table(report.weighings), ""]
        parts += [Text(f"tolerance, {name}: {rule}", style="dim") for name, rule in report.tolerance_rules.items()]
    if report.tensor_parallel:
        parts += ["", *checks_tables(report.tensor_parallel)]
    if report.controls:
        parts += ["", controls_table(report.controls)]
    for found in report.against:
        parts += [against_table(found), *[Text(f"note: {note}") for note in found.notes]]
    if times is not None:
        parts += ["", times_table(times)]
    parts += [Text(f"note: {note}") for note in (*report.notes, *_not_run(report))]
    return Group(*parts, "", _verdict(report))


def _head(report: VerifyReport) -> Text:
    text = Text.assemble((report.model, "bold"), f"  from {report.source}\n" if report.source else "\n")
    if not report.torch_version:
        return text
    request, device = report.request, f"{report.device}, torch {report.torch_version}"
    text.append(f"{device}; K {request['k_dtype']}, V {request['v_dtype']}, ")
    text.append(f"computed in {report.compute_dtype}, reference in {report.reference_dtype}; seed {request['seed']}\n")
    text.append(f"{_sequences(request)}, {request['layers']} of {request['layers_in_model']} layers")
    text.append(f"; {report.steps}")
    return text


def _sequences(request: dict[str, object]) -> str:
    lengths = request["lengths"]
    if isinstance(lengths, list) and 1 < len(lengths) <= 8:
        return f"{len(lengths)} sequences of {', '.join(f'{length:,}' for length in lengths)} tokens"
    return f"{request['batch_size']} x {request['tokens']:,} tokens"


def _not_run(report: VerifyReport) -> list[str]:
    """What nothing was computed from, each once."""
    found = dict.fromkeys((check.kind.replace("_", " "), check.not_run) for check in report.checks if check.not_run)
    return [f"not run: {kind}: {reason}" for kind, reason in found]


def _verdict(report: VerifyReport) -> Text:
    if report.passed:
        outputs = "every output within its tolerance, " if report.checks or report.tensor_parallel else ""
        caught = f", {len(report.controls)} broken caches caught" if report.controls else ""
        return Text(f"passed: {outputs}every byte as predicted{caught}", style="bold green")
    failed = [f"{check.kind} {check.implementation}" for check in report.checks if not check.passed]
    failed += [] if any(check.outputs for check in report.checks) or not report.checks else ["no output was checked"]
    failed += [f"total of {weighing.implementation}" for weighing in report.weighings if not weighing.passed]
    failed += [f"control {control.name} was not caught" for control in report.controls if not control.caught]
    failed += [f"{found.library} differs" for found in report.against if not found.passed]
    failed += [f"rank {check.kind}" for check in report.tensor_parallel if not check.passed]
    return Text(f"failed: {'; '.join(failed)}", style="bold red")


def checks_tables(checks: tuple[Check, ...]) -> list[RenderableType]:
    """A table a layer kind, a row an implementation."""
    found: list[RenderableType] = []
    for kind, shape in dict.fromkeys((check.kind, check.shape) for check in checks):
        title = f"{kind.replace('_', ' ')}, {shape}" if shape else kind.replace("_", " ")
        headings = ("cache", "layers", "outputs", "error", "tolerance", "bytes", "off by", "")
        table = plain_table(*headings, title=title, right=range(1, 7))
        for check in checks:
            if (check.kind, check.shape) == (kind, shape):
                table.add_row(*_check_row(check))
        found += [table, ""]
    return found


def _check_row(check: Check) -> list[RenderableType]:
    shown = check.shown
    return [
        _cache_name(check),
        f"{check.layers}" if check.layers == check.layers_in_model else f"{check.layers} of {check.layers_in_model}",
        f"{shown.outputs:,}",
        f"{shown.error:.2e}",
        f"{shown.tolerance:.2e}",
        f"{check.measured_bytes:,}",
        f"{check.measured_bytes - check.predicted_bytes:,}",
        _mark(check.passed) if check.outputs or not check.passed else Text("not run", style="yellow"),
    ]


def _cache_name(found: Check | Weighing) -> str:
    types = found.k_dtype if found.k_dtype == found.v_dtype else f"{found.k_dtype}/{found.v_dtype}"
    return types if found.implementation == "quantized" else f"{found.implementation} {types}"


def _mark(good: bool, yes: str = "ok", no: str = "FAILED") -> Text:
    return Text(yes, style="green") if good else Text(no, style="bold red")


def totals_table(weighings: tuple[Weighing, ...]) -> RenderableType:
    """A row an implementation."""
    allocator = any(weighing.allocator_after is not None for weighing in weighings)
    headings = ["total of", "engine", "measured bytes", "predicted", "off by", ""]
    table = plain_table(*headings, *(["allocator before", "after"] if allocator else []), right=(2, 3, 4, 6, 7))
    for weighing in weighings:
        row: list[RenderableType] = [
            _cache_name(weighing),
            weighing.engine,
            f"{weighing.measured_bytes:,}",
            f"{weighing.predicted_bytes:,}",
            f"{weighing.measured_bytes - weighing.predicted_bytes:,}",
            _mark(weighing.passed),
        ]
        extra = [f"{weighing.allocator_before or 0:,}", f"{weighing.allocator_after or 0:,}"] if allocator else []
        table.add_row(*row, *extra)
    return table


def controls_table(controls: tuple[Control, ...]) -> RenderableType:
    """A row a broken cache: what was broken, where, and what came of it."""
    table = plain_table("broken on purpose", "where", "kind", "cache", "error", "tolerance", "", right=(4, 5))
    for control in controls:
        table.add_row(
            control.name,
            control.what,
            control.kind.replace("_", " "),
            control.implementation,
            f"{control.error:.2e}",
            f"{control.tolerance:.2e}",
            _mark(control.caught, "caught", "NOT CAUGHT" if control.sound else "SOUND FAILED"),
        )
    return table


def against_table(found: AgainstReport) -> RenderableType:
    """A row a layer of the library's cache, equal neighbours together."""
    title = f"{found.library} {found.version} against engine {found.engine}"
    table = plain_table("layers", "kind", "measured bytes", "predicted", "difference", "", right=(2, 3, 4), title=title)
    rows = list(found.rows)
    while rows:
        first = rows[0]
        same = [
            row
            for row in rows
            if (row.kind, row.measured_bytes, row.predicted_bytes) == (first.kind, first.measured_bytes, first.predicted_bytes)
        ]
        count = next((index for index, row in enumerate(rows) if row not in same), len(rows))
        span = str(first.layer) if count == 1 else f"{first.layer}-{rows[count - 1].layer}"
        difference = first.measured_bytes - first.predicted_bytes
        table.add_row(
            span, first.kind, f"{first.measured_bytes:,}", f"{first.predicted_bytes:,}", f"{difference:,}", _mark(difference == 0)
        )
        rows = rows[count:]
    difference = found.measured_bytes - found.predicted_bytes
    table.add_row("total", "", f"{found.measured_bytes:,}", f"{found.predicted_bytes:,}", f"{difference:,}", _mark(found.passed))
    return table


def _row_facts(row: AgainstRow) -> tuple[str, int, int]:
    return row.kind, row.measured_bytes, row.predicted_bytes


def times_table(times: TimingReport) -> RenderableType:
    """A row a length: one layer's step under each implementation, and its share of the device's copying speed."""
    names = tuple(dict.fromkeys(timing.implementation for timing in times.timings))
    title = f"a decode step of one {times.kind.replace('_', ' ')} layer in {times.dtype}"
    headings = [heading for name in names for heading in (f"{name} ms", "GB/s")]
    table = plain_table("tokens", *headings, title=title, right=range(1 + 2 * len(names)))
    for tokens in dict.fromkeys(timing.tokens for timing in times.timings):
        row = {timing.implementation: timing for timing in times.timings if timing.tokens == tokens}
        cells = [text for name in names for text in (f"{row[name].seconds * 1e3:.3f}", f"{row[name].bytes_per_second / 1e9:.2f}")]
        table.add_row(f"{tokens:,}", *cells)
    copy = Text(f"a plain copy moves {times.copy_bytes_per_second / 1e9:.2f} GB/s, read and written", style="dim")
    return Group(table, copy)


def times_picture(times: TimingReport) -> Picture:
    """Times over lengths, a line an implementation."""
    from kvcalc.reports.pictures import Picture, Series

    xs = tuple(dict.fromkeys(timing.tokens for timing in times.timings))
    names = dict.fromkeys(timing.implementation for timing in times.timings)
    lines = tuple(
        Series(name, tuple(round(t.seconds * 1e9) for t in times.timings if t.implementation == name)) for name in names
    )
    note = f"{times.kind.replace('_', ' ')}, {times.dtype}; a copy moves {times.copy_bytes_per_second / 1e9:.1f} GB/s"
    return Picture("One layer's decode step", xs, lines, note=note, x_label="cached tokens", y_label="step", y_unit="seconds")
