"""``kvcalc engines``: whose rules there are, their options, defaults, version and source."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from kvcalc.cli import completion
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.options import Showing
from kvcalc.cli.output import show, write_json
from kvcalc.engines import ENGINES, find_engine

EXAMPLES = (
    "kvcalc engines",
    "kvcalc engines paged",
)


@takes_groups
def command(
    showing: Showing,
    name: Annotated[
        str | None, Argument(help="One engine, with its options.", show_default=False, autocompletion=completion.engines)
    ] = None,
) -> int:
    """Whose rules there are: version, source, options and their defaults."""
    from kvcalc.reports import engine_tables

    chosen = [find_engine(name)] if name else [find_engine(key) for key in ENGINES]
    if showing.json:
        write_json(engine_tables.engines_document(chosen))
    elif name:
        show(engine_tables.engine_view(chosen[0]))
    else:
        show(engine_tables.engines_view(chosen))
    return 0
