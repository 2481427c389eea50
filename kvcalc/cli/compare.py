"""``kvcalc compare``: which model is cheap to serve at my lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from typer import Option

from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.model_args import load_many
from kvcalc.cli.options import ManyModels, Naming, Rules, Showing, Types
from kvcalc.cli.output import console, show, write_json
from kvcalc.cli.request_args import engine_and_request
from kvcalc.engines.base import DEFAULT_TOKENS
from kvcalc.engines.estimate import Estimate, estimate
from kvcalc.errors import UsageError
from kvcalc.units import parse_count, parse_counts

EXAMPLES = (
    "kvcalc compare llama-8b qwen3-8b gemma-3-27b",
    "kvcalc compare deepseek-v3 llama-3.1-70b --tokens 8k,32k,128k",
    "kvcalc compare gpt-oss-20b qwen3-8b --tokens 32k --batch 8 --json",
)
MAX_LENGTHS = 12


@takes_groups
def command(
    many: ManyModels,
    naming: Naming,
    types: Types,
    rules: Rules,
    showing: Showing,
    tokens: Annotated[str, Option("--tokens", "-t", help="One length or several: 8k,32k,128k.", rich_help_panel="Request")] = str(
        DEFAULT_TOKENS
    ),
    batch: Annotated[str, Option("--batch", "-b", help="B: sequences.", rich_help_panel="Request")] = "1",
) -> int:
    """Which model is cheap to serve at my lengths."""
    lengths = [value for value, _ in zip(parse_counts(tokens), range(MAX_LENGTHS + 1), strict=False)]
    if len(lengths) > MAX_LENGTHS:
        raise UsageError(f"--tokens names over {MAX_LENGTHS} lengths", fix="kvcalc sweep prints longer tables")
    engine, request = engine_and_request(types, rules)
    asked = replace(request, batch_size=parse_count(batch, "a value of --batch"))
    rows = [[estimate(model, asked.at(length), engine) for length in lengths] for model in load_many(naming, many.models)]
    if showing.json:
        from kvcalc.reports.to_json import compare_document

        write_json(compare_document(rows))
    else:
        _show(rows)
    return 0


def _show(rows: list[list[Estimate]]) -> None:
    from kvcalc.reports.comparison import comparison_view

    show(comparison_view(rows, console().width))
