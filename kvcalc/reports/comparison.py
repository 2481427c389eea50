"""``compare``: models side by side, with bars."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.engines.estimate import Estimate
from kvcalc.reports.to_table import bar, exact_number, plain_table
from kvcalc.units import format_bytes, format_count

NARROW = 90
BARS = (12, 28)


def comparison_view(rows: list[list[Estimate]], width: int) -> RenderableType:
    """A row a model, a column a length, and a bar for the longest."""
    lengths = [found.tokens for found in rows[0]]
    heads = ["model", "layers", "bytes/token", "fixed", *(f"at {format_count(length)}" for length in lengths), ""]
    table = plain_table(*heads, right=range(2, 4 + len(lengths)))
    largest = max(row[-1].total_bytes for row in rows)
    bar_width = BARS[width >= NARROW]
    for row in sorted(rows, key=lambda each: each[-1].total_bytes):
        last = row[-1]
        growth = exact_number(last.bytes_per_token) if last.bytes_per_token is not None else "-"
        sizes = [format_bytes(found.total_bytes) + ("*" if _beyond(found) else "") for found in row]
        fixed = format_bytes(last.fixed_bytes) if last.fixed_bytes else "-"
        table.add_row(last.model.name, kinds(last), growth, fixed, *sizes, bar(last.total_bytes, largest, bar_width))
    first = rows[0][0]
    asked = f"engine {first.engine.name} {first.engine.version}, batch {first.tally.request['batch_size'][0]}; smallest first"
    notes = [
        f"{name}: {text}" for name, text in dict.fromkeys((row[-1].model.name, text) for row in rows for text in row[-1].warnings)
    ]
    marks = ["* beyond the model's own maximum"] if any(_beyond(found) for row in rows for found in row) else []
    return Group(table, "", Text(asked), *(Text(line) for line in (*marks, *notes)))


def _beyond(found: Estimate) -> bool:
    return found.model.max_tokens is not None and found.tokens > found.model.max_tokens


def kinds(found: Estimate) -> str:
    """``10 full, 52 sliding``: how many layers of each kind."""
    counts: dict[str, int] = {}
    for run in found.tally.layers:
        name = run.kind.replace("_attention", "").replace("_", " ")
        counts[name] = counts.get(name, 0) + run.count
    return ", ".join(f"{count} {name}" for name, count in counts.items())
