"""``kvcalc inspect``: what each layer caches, and which field of the file said so."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.model_args import load
from kvcalc.cli.options import Described, OneModel, OneSize, Rules, Showing, Types
from kvcalc.cli.output import show, write_json
from kvcalc.cli.request_args import engine_and_request
from kvcalc.core.model import Model
from kvcalc.engines.estimate import estimate

EXAMPLES = (
    "kvcalc inspect gemma-3-27b",
    "kvcalc inspect deepseek-v3 --tokens 32k --json",
    "kvcalc inspect jamba-1.5-mini --layers",
)


@takes_groups
def command(
    one: OneModel,
    naming: Described,
    size: OneSize,
    types: Types,
    rules: Rules,
    showing: Showing,
    each: Annotated[bool, Option("--layers", help="One row a layer.", rich_help_panel="Output")] = False,
) -> int:
    """What each layer caches, and which field of the file said so."""
    engine, request = engine_and_request(types, rules, size)
    found = estimate(load(naming, one.model), request, engine)
    if showing.json:
        from kvcalc.reports.to_json import estimate_document, layout_part

        layout = layout_part(found.model.layers)
        write_json({**estimate_document(found, "inspect", by_layer=each), "layout": layout, **_file_part(found.model)})
    else:
        from kvcalc.reports.layout import inspect_view

        show(inspect_view(found, each))
        _show_file(found.model)
    return 0


def _file_part(model: Model) -> dict[str, object]:
    """What only a GGUF file says."""
    if model.format != "gguf":
        return {}
    from kvcalc.reports.gguf_view import gguf_part

    return {"gguf": gguf_part(model)}


def _show_file(model: Model) -> None:
    if model.format == "gguf":
        from kvcalc.reports.gguf_view import gguf_view

        for part in gguf_view(model):
            show(part)
