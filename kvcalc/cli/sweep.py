"""``kvcalc sweep``: a table over lengths, and batches, types and models."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from io import TextIOWrapper
from itertools import chain, islice
from typing import Annotated, TextIO

from typer import Option

from kvcalc.cli import progress
from kvcalc.cli.drawing import check_targets, write_page, write_picture
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.model_args import DEFAULT_PRESET, load_many, references
from kvcalc.cli.options import Drawing, ManyModels, Naming, Rules, Showing, Types, Writing
from kvcalc.cli.output import console, warn
from kvcalc.cli.request_args import MAX_AXIS, engine_and_request, type_axis
from kvcalc.engines.estimate import Estimate, attempt, counted
from kvcalc.engines.sweep import Cell, Grid, Refused, cells, size_of
from kvcalc.errors import UsageError
from kvcalc.escapes import text_cell
from kvcalc.units import parse_counts, parse_memory

EXAMPLES = (
    "kvcalc sweep --tokens 1k..32k",
    "kvcalc sweep gemma-3-27b llama-8b --tokens 8k,32k,128k --dtype bf16,q8_0 --memory 24GiB",
    "kvcalc sweep qwen3-8b --tokens 1k..128k:1k --batch 1,8,32 --format csv",
    "kvcalc sweep gemma-3-4b --tokens 4k..128k:4k --memory 2GiB --plot gemma.svg",
)
DEFAULT_TOKENS = "1k..32k"


class Format(StrEnum):
    """How the rows are written."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


@takes_groups
def command(
    many: ManyModels,
    naming: Naming,
    types: Types,
    rules: Rules,
    showing: Showing,
    writing: Writing,
    drawing: Drawing,
    tokens: Annotated[
        str, Option("--tokens", "-t", help="1k..32k doubles, 1k..32k:4k steps, 1k,3000,32k lists.", rich_help_panel="Request")
    ] = DEFAULT_TOKENS,
    batch: Annotated[
        str | None,
        Option("--batch", "-b", help="Batches: 1 unless said.", rich_help_panel="Request", show_default=False),
    ] = None,
    memory: Annotated[
        str | None, Option("--memory", help="Mark which cells fit: 24GiB, 24GB.", rich_help_panel="Request", show_default=False)
    ] = None,
    form: Annotated[Format, Option("--format", "-f", help="How the rows are written.", rich_help_panel="Output")] = Format.table,
) -> int:
    """A table over lengths, and batches, types and models."""
    check_targets(drawing, writing.force)
    budget = parse_memory(memory) if memory is not None else None
    grid = replace(_grid(many, naming, types, rules, tokens, batch), memory=budget)
    if form is Format.csv and not showing.json:  # a spreadsheet takes what starts like a formula for one
        grid = replace(grid, models=tuple(replace(model, name=text_cell(model.name)) for model in grid.models))
    found = _checked(grid)
    if (writing.output is not None and sys.stderr.isatty()) or progress.watched():
        found = progress.tracked(found, size_of(grid), "cells")
    refusals = _Refusals()
    with _stream(writing) as stream:
        _write(Format.json if showing.json else form, grid, refusals.among(found), stream)
    refusals.tell()
    _draw(grid, drawing, writing.force)
    return 0


def _draw(grid: Grid, drawing: Drawing, force: bool) -> None:
    """The cells are counted once more: a table of millions is never held."""
    if drawing.plot is not None:
        from kvcalc.reports.pictures import sweep_chart

        write_picture(sweep_chart(grid, cells(grid)), drawing, force)
    if drawing.html is not None:
        from kvcalc.reports.html import page

        write_page(page(*_page_parts(grid), budget=grid.memory), drawing, force)


def _page_parts(grid: Grid) -> tuple[list[Estimate], list[int]]:
    """Each model under each type, at the first length and batch; and the lengths."""
    lengths = [tokens for tokens, _ in zip(grid.lengths(), range(MAX_AXIS), strict=False)]
    for tokens, batch in ((lengths[0], grid.batches[0]), (min(lengths), min(grid.batches))):
        asked = replace(grid.request, tokens=tokens, batch_size=batch)
        found = [
            attempt(model, replace(asked, k_dtype=k_dtype, v_dtype=v_dtype), grid.engine)
            for model in grid.models
            for k_dtype, v_dtype in grid.types
        ]
        if counted(found):
            return counted(found), lengths
    raise UsageError("a page needs a figure at the shortest length, and all are refused there", fix="leave out --html")


def _grid(many: ManyModels, naming: Naming, types: Types, rules: Rules, tokens: str, batch: str | None) -> Grid:
    parse_counts(tokens)  # the whole text is checked before anything is read
    batches = tuple(islice(parse_counts(batch, "a batch"), MAX_AXIS + 1)) if batch is not None else ()
    if len(batches) > MAX_AXIS:
        raise UsageError(f"--batch names over {MAX_AXIS:,} values", fix="take a larger step")
    pairs = type_axis(types)
    engine, request = engine_and_request(Types(), rules)
    if len(batches) == 1:
        engine.with_sequences(replace(request, batch_size=batches[0], origins={**request.origins, "batch_size": "flag --batch"}))
    batches = batches or (request.batch_size,)
    models = load_many(naming, many.models, DEFAULT_PRESET)
    if not references(naming, many.models):
        warn(f"no model is named: {DEFAULT_PRESET} is taken")
    return Grid(tuple(models), pairs, batches, lambda: parse_counts(tokens), engine, request)


def _checked(grid: Grid) -> Iterator[Cell]:
    """The cells, once it is known that one is counted, so that a refusal of all comes before any output."""
    found = cells(grid)
    first = next(found, None)
    if not isinstance(first, Refused):
        return chain([first] if first is not None else [], found)
    if all(isinstance(cell, Refused) for cell in found):
        raise first.problem
    return cells(grid)  # walked anew: refused cells may be many, and are not held


class _Refusals:
    """The first of the refused cells that went by, and how many there were."""

    def __init__(self) -> None:
        self.first: Refused | None = None
        self.count = 0

    def among(self, found: Iterable[Cell]) -> Iterator[Cell]:
        """The same cells."""
        for cell in found:
            if cell.total_bytes is None and isinstance(cell, Refused):
                self.first = self.first or cell
                self.count += 1
            yield cell

    def tell(self) -> None:
        """What was refused, on stderr."""
        if self.first is None:
            return
        cell, verb = self.first, "cell is" if self.count == 1 else "cells are"
        which = f"{cell.model} at batch {cell.batch_size:,}, {cell.tokens:,} tokens"
        warn(f"{self.count:,} {verb} refused; the first, {which}: {cell.problem.what}")


@contextmanager
def _stream(writing: Writing) -> Iterator[TextIO]:
    if writing.output is None:
        yield sys.stdout
        return
    from kvcalc.reports.files import atomic_file

    with atomic_file(writing.output, force=writing.force) as raw:
        text = TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="\n")
        yield text
        text.flush()
        text.detach()


def _write(form: Format, grid: Grid, found: Iterable[Cell], stream: TextIO) -> None:
    from kvcalc.reports import sweep_rows

    if form is Format.csv:
        sweep_rows.write_csv(found, stream)
    elif form is Format.markdown:
        sweep_rows.write_markdown(found, stream)
    elif form is Format.json:
        from kvcalc.reports.to_json import sweep_head

        sweep_rows.write_json(sweep_head(grid), found, stream)
    else:
        out = console(stream=stream)
        for table in sweep_rows.tables(found, out.width):
            out.print(table)
