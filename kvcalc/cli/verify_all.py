"""``kvcalc verify --all-presets``: one layer of each shape that any preset has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.core.model import Model
from kvcalc.reports.to_json import Document, document
from kvcalc.reports.to_table import plain_table

if TYPE_CHECKING:
    from kvcalc.verify.all_presets import ShapeResult

NAMES_SHOWN = 2


def shipped_models() -> Iterator[Model]:
    """Every preset's model."""
    from kvcalc.readers.presets import model_in, preset_paths

    for path in preset_paths():
        yield model_in(path)


def all_document(results: list[ShapeResult], models: int, began: float) -> Document:
    """``passed``, ``presets``, and a row for each shape."""
    rows = [_row(result) for result in results]
    passed, seconds = all(result.passed for result in results), round(time.monotonic() - began, 3)
    return document("verify", passed=passed, presets=models, shapes=rows, seconds=seconds)


def _row(result: ShapeResult) -> Document:
    row: Document = {"kind": result.kind, "shape": result.shape, "presets": list(result.names), "passed": result.passed}
    row["not_run"] = result.not_run
    if result.checks:
        shown = result.shown.shown
        row |= {"outputs": sum(check.outputs for check in result.checks), "error": shown.error, "tolerance": shown.tolerance}
    return row


def all_view(results: list[ShapeResult], models: int, began: float) -> RenderableType:
    """A row a shape, the verdict last."""
    table = plain_table("kind", "shape", "presets", "outputs", "error", "tolerance", "", right=(3, 4, 5))
    for result in results:
        table.add_row(*_cells(result))
    failed = [result for result in results if not result.passed]
    run = sum(1 for result in results if result.checks and not result.not_run)
    said = f"{models} presets have layers of {len(results)} shapes; {run} were run under concat, static and paged"
    verdict = Text(f"failed: {len(failed)} shapes", style="bold red") if failed else Text("passed", style="bold green")
    note = Text("layers of equal shapes prove the same thing: each is run once, windows cut to 32 positions", style="dim")
    return Group(table, "", Text(f"{said}, in {time.monotonic() - began:.0f} s"), note, verdict)


def _cells(result: ShapeResult) -> list[RenderableType]:
    names = ", ".join(result.names[:NAMES_SHOWN])
    more = len(result.names) - NAMES_SHOWN
    shown = f"{names} and {more} more" if more > 0 else names
    first: list[RenderableType] = [result.kind.replace("_", " "), result.shape, shown]
    if result.not_run or not result.checks:
        return [*first, "", "", "", Text(f"not run: {result.not_run}", style="yellow")]
    worst = result.shown.shown
    mark = Text("ok", style="green") if result.passed else Text("FAILED", style="bold red")
    return [*first, f"{sum(c.outputs for c in result.checks):,}", f"{worst.error:.2e}", f"{worst.tolerance:.2e}", mark]
