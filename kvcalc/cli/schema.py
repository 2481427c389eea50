"""``kvcalc schema``: the JSON Schema of what a verb prints."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from typer import Argument

from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.options import Showing
from kvcalc.cli.output import write_json
from kvcalc.errors import UsageError

EXAMPLES = (
    "kvcalc schema estimate",
    "kvcalc schema fit",
    "kvcalc schema --json",
)


@takes_groups
def command(
    showing: Showing,
    verb: Annotated[str | None, Argument(help="The verb whose answer is described.", show_default=False)] = None,
) -> int:
    """Print the JSON Schema of a verb's --json."""
    from kvcalc.reports.schema import ANSWERS, schema_of
    from kvcalc.reports.to_json import document

    if verb is not None and verb not in ANSWERS:
        raise UsageError(f"no verb is called {verb[:40]!r}", fix=f"one of {', '.join(ANSWERS)}")
    if showing.json:
        write_json(document("schema", schemas={name: schema_of(name) for name in ([verb] if verb else ANSWERS)}))
        return 0
    if verb is None:
        raise UsageError("no verb is named", fix=f"one of {', '.join(ANSWERS)}; --json prints all")
    sys.stdout.write(json.dumps(schema_of(verb), indent=2) + "\n")
    return 0
