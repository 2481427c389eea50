"""``kvcalc estimate``: how big is this cache, term by term."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.model_args import load
from kvcalc.cli.options import Forcing, Naming, OneModel, OneSize, Paging, Rules, Showing, Types
from kvcalc.cli.output import show, write_json
from kvcalc.cli.request_args import engine_and_request
from kvcalc.engines.estimate import estimate
from kvcalc.errors import ExitCode

EXAMPLES = (
    "kvcalc estimate --preset llama-8b",
    "kvcalc estimate gemma-3-4b --tokens 32k --html cache.html",
    "kvcalc estimate gemma-3-27b --tokens 32k --batch 4 --dtype fp8",
    "kvcalc estimate --layers 2 --kv-heads 2 --head-dim 4 --batch 1 --tokens 10 --dtype fp16",
)


@takes_groups
def command(
    one: OneModel,
    naming: Naming,
    size: OneSize,
    types: Types,
    rules: Rules,
    showing: Showing,
    paging: Paging,
    forcing: Forcing,
    verbose: Annotated[
        bool,
        Option("--verbose", "-v", help="Every input with its origin, and all of the engine's figures.", rich_help_panel="Output"),
    ] = False,
) -> int:
    """How big is this cache, term by term."""
    if paging.html is not None:
        from kvcalc.cli.drawing import check_targets

        check_targets(paging, forcing.force)
    engine, request = engine_and_request(types, rules, size)
    found = estimate(load(naming, one.model), request, engine)
    if showing.json:
        from kvcalc.reports.to_json import estimate_document

        write_json(estimate_document(found))
    else:
        from kvcalc.reports.to_table import estimate_view

        show(estimate_view(found, verbose))
    if paging.html is not None:
        from kvcalc.cli.drawing import write_page
        from kvcalc.reports.html import page

        write_page(page([found]), paging, forcing.force)
    return ExitCode.OK if found.tally.fits else ExitCode.NO
