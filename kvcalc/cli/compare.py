"""``kvcalc compare``: which model is cheap to serve at my lengths."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Annotated

from typer import Option

from kvcalc.cli.drawing import check_targets, write_page, write_picture
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.model_args import load_many
from kvcalc.cli.options import Drawing, Forcing, ManyModels, Naming, Rules, Showing, Types
from kvcalc.cli.output import console, show, warn, write_json
from kvcalc.cli.request_args import engine_and_request
from kvcalc.engines.estimate import Estimate, Refusal, attempt, counted
from kvcalc.engines.requests import DEFAULT_TOKENS
from kvcalc.errors import ExitCode, UsageError
from kvcalc.units import parse_count, parse_counts

EXAMPLES = (
    "kvcalc compare llama-8b qwen3-8b gemma-3-27b",
    "kvcalc compare deepseek-v3 llama-3.1-70b --tokens 8k,32k,128k",
    "kvcalc compare gpt-oss-20b qwen3-8b --tokens 32k --batch 8 --json",
    "kvcalc compare gemma-3-4b llama-8b qwen3.5-27b --tokens 32k --plot models.png --html models.html",
)
MAX_LENGTHS = 12
Rows = list[list[Estimate | Refusal]]


@takes_groups
def command(
    many: ManyModels,
    naming: Naming,
    types: Types,
    rules: Rules,
    showing: Showing,
    drawing: Drawing,
    forcing: Forcing,
    tokens: Annotated[
        str | None,
        Option(
            "--tokens",
            "-t",
            help=f"One length or several: 8k,32k,128k; {DEFAULT_TOKENS} unless said.",
            rich_help_panel="Request",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        str | None, Option("--batch", "-b", help="B: sequences; 1 unless said.", rich_help_panel="Request", show_default=False)
    ] = None,
) -> int:
    """Which model is cheap to serve at my lengths."""
    check_targets(drawing, forcing.force)
    lengths = list(islice(parse_counts(str(DEFAULT_TOKENS) if tokens is None else tokens), MAX_LENGTHS + 1))
    if len(lengths) > MAX_LENGTHS:
        raise UsageError(f"--tokens names over {MAX_LENGTHS} lengths", fix="kvcalc sweep prints longer tables")
    engine, asked = engine_and_request(types, rules)
    if batch is not None:
        origins = {**asked.origins, "batch_size": "flag --batch"}
        asked = engine.with_sequences(replace(asked, batch_size=parse_count(batch, "a value of --batch"), origins=origins))
    models = load_many(naming, many.models)
    if tokens is None:
        asked = replace(asked, origins={**asked.origins, "tokens": "default"})
    rows = [[attempt(model, asked.at(length), engine) for length in lengths] for model in models]
    refused = [found for row in rows for found in row if isinstance(found, Refusal)]
    if refused and not any(map(counted, rows)):
        raise refused[0].problem
    if showing.json:
        from kvcalc.reports.to_json import compare_document

        write_json(compare_document(rows))
    else:
        _show(rows)
    if refused:
        warn(f"{refused[0].model.name} is refused at {refused[0].tokens:,} tokens: {refused[0].problem.what}")
    _draw(rows, drawing, forcing.force)
    return ExitCode.OK if any(found.tally.fits for row in rows for found in counted(row)) else ExitCode.NO


def _draw(rows: Rows, drawing: Drawing, force: bool) -> None:
    if drawing.plot is not None:
        from kvcalc.reports.pictures import compare_chart

        write_picture(compare_chart(rows), drawing, force)
    if drawing.html is not None:
        from kvcalc.reports.html import page

        shown = [row for row in map(counted, rows) if row]
        lengths = sorted({found.tokens for row in shown for found in row})
        write_page(page([row[-1] for row in shown], lengths), drawing, force)


def _show(rows: Rows) -> None:
    from kvcalc.reports.comparison import comparison_view

    show(comparison_view(rows, console().width))
