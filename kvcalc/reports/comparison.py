"""``compare``: models side by side, with bars."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.engines.estimate import Estimate, Refusal, counted
from kvcalc.reports.to_table import bar, exact_number, plain_table
from kvcalc.units import format_bytes, format_count

NARROW = 90
BARS = (12, 28)
REFUSED, UNKNOWN = "refused", "?"
Rows = list[list[Estimate | Refusal]]


def comparison_view(rows: Rows, width: int) -> RenderableType:
    """A row a model, a column a length, and a bar for the longest; what is refused says so, and why below."""
    longest = format_count(rows[0][-1].tokens)
    several = len(rows[0]) > 1
    growth, fixed = (f"{name} at {longest}" if several else name for name in ("bytes/token", "fixed"))
    heads = ["model", "layers", growth, fixed, *(f"at {format_count(found.tokens)}" for found in rows[0]), ""]
    table = plain_table(*heads, right=range(2, 4 + len(rows[0])), spare=(len(heads) - 1, 3, 1))
    largest = max(map(_last_bytes, rows))
    for row in sorted(rows, key=lambda each: (not _held(each[-1]), _last_bytes(each))):
        drawn = bar(_last_bytes(row), largest, BARS[width >= NARROW])
        table.add_row(row[0].model.name, _kinds_of(row), _growth(row[-1]), _fixed(row[-1]), *map(_size, row), drawn)
    return Group(table, "", Text(_asked(rows)), *(Text(line) for line in _lines(rows)))


def _held(found: Estimate | Refusal) -> bool:
    return isinstance(found, Estimate) and found.tally.fits


def _last_bytes(row: list[Estimate | Refusal]) -> int:
    last = row[-1]
    return last.total_bytes if isinstance(last, Estimate) and last.tally.fits else 0


def _kinds_of(row: list[Estimate | Refusal]) -> str:
    known = counted(row)
    return kinds(known[-1]) if known else ""


def _size(found: Estimate | Refusal) -> str:
    if not isinstance(found, Estimate) or not found.tally.fits:
        return REFUSED
    return format_bytes(found.total_bytes) + ("*" if _beyond(found) else "")


def _growth(found: Estimate | Refusal) -> str:
    if not isinstance(found, Estimate) or not found.tally.fits:
        return REFUSED
    return UNKNOWN if found.bytes_per_token is None else exact_number(found.bytes_per_token)


def _fixed(found: Estimate | Refusal) -> str:
    if not isinstance(found, Estimate) or not found.tally.fits:
        return REFUSED
    if found.fixed_bytes is None:
        return UNKNOWN
    return format_bytes(found.fixed_bytes) if found.fixed_bytes else "-"


def _asked(rows: Rows) -> str:
    first = next(found for row in rows for found in counted(row))
    return f"engine {first.engine.name} {first.release}, batch {first.tally.request['batch_size'][0]}; smallest first"


def _lines(rows: Rows) -> list[str]:
    """What the marks mean, then what was said of each model."""
    every = [found for row in rows for found in row]
    lines = ["* beyond the model's own maximum"] if any(_beyond(found) for found in counted(every)) else []
    if any(_growth(row[-1]) == UNKNOWN for row in rows):
        lines.append(f"{UNKNOWN} not known: the engine takes nothing longer than this length")
    refused = dict.fromkeys(f"{found.model.name}: {REFUSED}: {_reason(found)}" for found in every if not _held(found))
    known = [row[-1] for row in map(counted, rows) if row]
    return [*lines, *refused, *dict.fromkeys(f"{found.model.name}: {text}" for found in known for text in found.warnings)]


def _reason(found: Estimate | Refusal) -> str:
    return found.tally.refusal if isinstance(found, Estimate) else found.problem.what


def _beyond(found: Estimate) -> bool:
    return found.model.max_tokens is not None and found.tokens > found.model.max_tokens


def kinds(found: Estimate) -> str:
    """``10 full, 52 sliding``: how many layers of each kind."""
    counts: dict[str, int] = {}
    for run in found.tally.layers:
        name = run.kind.replace("_attention", "").replace("_", " ")
        counts[name] = counts.get(name, 0) + run.count
    return ", ".join(f"{count} {name}" for name, count in counts.items())
