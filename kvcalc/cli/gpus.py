"""``kvcalc gpus``: the cards that --gpu knows, and how much of each a program can use."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from kvcalc.cli import completion
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.options import Showing
from kvcalc.cli.output import show, write_json
from kvcalc.core.gpus import Gpu, cards, find_gpu

EXAMPLES = (
    "kvcalc gpus",
    "kvcalc gpus 4090",
    "kvcalc gpus 'm3 max 64gb'",
)


@takes_groups
def command(
    showing: Showing,
    name: Annotated[
        str | None,
        Argument(help="A card, as a tool prints it or as people type it.", show_default=False, autocompletion=completion.gpus),
    ] = None,
) -> int:
    """List the cards that --gpu knows, and how much of each a program can use."""
    from kvcalc.reports import gpu_tables

    chosen: tuple[Gpu, ...] = cards() if name is None else (find_gpu(name),)
    if showing.json:
        write_json(gpu_tables.gpus_document(chosen))
    else:
        show(gpu_tables.gpus_view(chosen))
    return 0
