"""Results as tables for people. Every renderable is made here; nothing is printed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeGuard

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvcalc.core.layers import FullAttention
from kvcalc.core.model import Array, LayerTally
from kvcalc.dtypes import find_dtype
from kvcalc.reports.fitting import GAP, FittingTable
from kvcalc.units import format_bytes

if TYPE_CHECKING:
    from kvcalc.engines.estimate import Estimate

BAR = "█"
LABELS = {"batch_size": "B", "tokens": "T", "k_dtype": "K type", "v_dtype": "V type", "encoder_tokens": "E"}


def plain_table(*headings: str, right: Iterable[int] = (), title: str = "", spare: tuple[int, ...] = ()) -> Table:
    """A table without a frame, numbers to the right; ``spare`` columns go first where a terminal is narrow."""
    table = FittingTable(
        box=None,
        title=title or None,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        header_style="bold",
        padding=(0, GAP, 0, 0),
    )
    table.spare = spare
    numeric = set(right)
    for index, heading in enumerate(headings):
        right_side = index in numeric
        table.add_column(heading, justify="right" if right_side else "left", overflow="fold", no_wrap=right_side)
    return table


def estimate_view(found: Estimate, verbose: bool = True) -> RenderableType:
    """The answer to ``estimate``: all of it, or of an engine's what most people read first."""
    brief = not verbose and found.engine.releases.versioned
    parts: list[RenderableType] = [headline(found), ""]
    factors = equation_factors(found)
    if brief:
        parts += [Text(asked_line(found)), ""]
    else:
        parts += [factors_table(factors) if factors else inputs_table(found), ""]
    if not factors:
        parts += [layers_table(found.tally.layers, found.tally.shared), ""]
    parts += list(summary(found, brief))
    return Group(*parts)


def headline(found: Estimate) -> Text:
    """Model, total, engine and ranks; or the refusal in its place."""
    text = Text()
    text.append(f"{found.model.name}: ", style="bold")
    if found.tally.fits:
        text.append(format_bytes(found.total_bytes), style="bold green")
    else:
        text.append("refused", style="bold red")
    text.append(f" ({whose(found)})")
    if found.tally.refusal:
        text.append(f": {found.tally.refusal}", style="red")
    return text


def whose(found: Estimate) -> str:
    """``engine: vllm 0.33.0, one rank of tp 2``: whose rules made a figure, and what part of the cache it is."""
    release = f" {found.release}" if found.engine.releases.versioned else ""
    said = {name: found.tally.request.get(name, (None, ""))[0] for name in RANK_NAMES}
    sizes = [f"{RANK_NAMES[name]} {size}" for name, size in said.items() if isinstance(size, int) and size > 1]
    ranks = f", one rank of {' x '.join(sizes)}" if sizes else ""
    unchecked = ", unchecked" if found.unchecked else ""
    return f"engine: {found.engine.name}{release}{ranks}{unchecked}"


RANK_NAMES = {
    "tp_size": "tp",
    "tensor_parallel_size": "tp",
    "pp_size": "pp",
    "pipeline_parallel_size": "pp",
    "dp_size": "dp",
    "data_parallel_size": "dp",
}


def asked_line(found: Estimate) -> str:
    """``1 sequence of 4,096 tokens, bfloat16 keys and values``."""
    asked = {name: value for name, (value, _) in found.tally.request.items()}
    batch, tokens = asked.get("batch_size"), asked.get("tokens")
    sequences = f"{batch:,} sequence{'' if batch == 1 else 's'}" if isinstance(batch, int) else f"{batch} sequences"
    length = f"{'up to ' if found.request.lengths else ''}{tokens:,} tokens" if isinstance(tokens, int) else f"{tokens} tokens"
    k_dtype, v_dtype = asked.get("k_dtype"), asked.get("v_dtype")
    types = f"{k_dtype} keys and values" if k_dtype == v_dtype else f"{k_dtype} keys, {v_dtype} values"
    return f"{sequences} of {length}, {types}; -v shows the engine's own figures and where each input came from"


Factor = tuple[str, str, str, str]


def equation_factors(found: Estimate) -> list[Factor]:
    """The equation's factors, symbol, meaning, value, origin; empty where the model isn't the equation's one kind."""
    tally, model, resolved = found.tally, found.model, found.tally.request
    part = model.layers[0][0]
    simple = len(tally.layers) == 1 and len(model.layers[0]) == 1 and not found.request.lengths and found.engine.name == "exact"
    simple = simple and tally.layers[0].layer == model.layers[0]  # one rank's share is not the model's own heads
    if not simple or not isinstance(part, FullAttention) or part.head_dim != part.v_head_dim or _types_differ(found):
        return []
    dtype = find_dtype(str(resolved["k_dtype"][0]))
    if dtype.block_elements != 1:
        return []
    origin = model.fields.origin
    heads_origin = (
        origin("num_kv_heads")
        if model.fields.raw("num_kv_heads") is not None
        else f"one a query head ({origin('num_attention_heads')})"
    )
    width_origin = origin("head_dim") if model.fields.raw("head_dim") is not None else "hidden_size / num_attention_heads"
    return [
        ("2", "arrays: keys and values", "2", "the equation"),
        ("L", "layers", f"{tally.layers[0].count:,}", origin("num_layers")),
        ("B", "sequences", f"{resolved['batch_size'][0]:,}", resolved["batch_size"][1]),
        ("T", "cached positions of a sequence", f"{resolved['tokens'][0]:,}", resolved["tokens"][1]),
        ("H_kv", "key/value heads", f"{part.num_kv_heads:,}", heads_origin or "the model's rule"),
        ("D_h", "head dimension", f"{part.head_dim:,}", width_origin or "the model's rule"),
        ("s", f"bytes of an element ({dtype})", f"{dtype.block_bytes}", resolved["k_dtype"][1]),
    ]


def _types_differ(found: Estimate) -> bool:
    resolved = found.tally.request
    return bool(resolved["k_dtype"][0] != resolved["v_dtype"][0])


def factors_table(factors: list[Factor]) -> Table:
    """The factors, one a row."""
    table = plain_table("factor", "what it is", "value", "from", right=(2,))
    for row in factors:
        table.add_row(*row)
    return table


def inputs_table(found: Estimate) -> Table:
    """What was asked, and where each value came from."""
    table = plain_table("input", "value", "from", right=(1,))
    for name, (value, origin) in found.tally.request.items():
        shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        table.add_row(name.replace("_", " "), shown, origin)
    return table


def layers_table(layers: Sequence[LayerTally], shared: Sequence[Array] = ()) -> Table:
    """A row for all equal layers, wherever they stand, and one a pool array."""
    table = plain_table("layers", "at", "kind", "positions", "holds", "bytes a layer", "bytes", right=(0, 3, 5, 6), spare=(5,))
    for alike in equal_runs(layers):
        run, count = alike[0], sum(each.count for each in alike)
        kept = kept_positions(run)
        positions = f"{kept:,}" if kept else "-"
        size = f"{run.bytes_per_layer:,}"
        table.add_row(
            str(count),
            spans(alike),
            run.kind.replace("_", " "),
            positions,
            holds(run.arrays),
            size,
            f"{count * run.bytes_per_layer:,}",
        )
    for array in shared:
        table.add_row("", "", array.label, "", array.note or f"{array.rows:,} x {array.row_bytes:,} B", "", f"{array.bytes:,}")
    return table


def kept_positions(run: LayerTally) -> int:
    """Of the longest sequence: never more than the layer has rows."""
    rows = [array.rows for array in run.arrays if array.component in ("kv", "index")]
    return min(run.positions, max(rows, default=run.positions))


def equal_runs(layers: Sequence[LayerTally]) -> list[list[LayerTally]]:
    """Runs that hold the same, in the order in which they first come."""
    found: dict[tuple[object, ...], list[LayerTally]] = {}
    for run in layers:
        found.setdefault((run.layer, run.arrays), []).append(run)
    return list(found.values())


MOST_SPANS = 3


def spans(alike: Sequence[LayerTally]) -> str:
    """``0-4, 6-10 … 60-61``: where layers stand, in a few words."""
    words = [str(run.first) if run.count == 1 else f"{run.first}-{run.first + run.count - 1}" for run in alike]
    if len(words) <= MOST_SPANS:
        return ", ".join(words)
    return f"{words[0]}, {words[1]} … {words[-1]}"


def holds(arrays: Sequence[Array]) -> str:
    """The arrays of a layer in a few words: ``keys and values 8x128 float16``."""
    words: dict[str, list[str]] = {}
    for array in arrays:
        shape = f"{array.heads}x{array.width} {array.dtype}" if array.width else array.dtype
        words.setdefault(shape.strip(), []).append(array.label)
    return ", ".join(f"{' and '.join(dict.fromkeys(labels))} {shape}".strip() for shape, labels in words.items()) or "nothing"


def _waste_row(rows: Table, found: Estimate) -> None:
    if found.waste_bytes:
        less = found.waste_bytes < 0  # only whole chunks are stored
        label = "not stored" if less else "allocation overhead"
        share = Fraction(100 * found.waste_bytes, found.total_bytes) if found.total_bytes else None
        rows.add_row(label, f"{abs(found.waste_bytes):,} bytes", "" if less or share is None else f"{share:.1f}% of the total")


def summary(found: Estimate, brief: bool = False) -> Iterable[RenderableType]:
    """Total, growth, what is held, what is left out, and whatever must be said."""
    rows = plain_table("", "", "", right=(1,))
    rows.show_header = False
    rows.add_row("total", f"{found.total_bytes:,} bytes", format_bytes(found.total_bytes), style="bold")
    if found.tally.held_bytes is not None:
        rows.add_row(
            "held by the allocator",
            f"{found.tally.held_bytes:,} bytes",
            f"{format_bytes(found.tally.held_bytes)}: fit memory by this",
        )
    _waste_row(rows, found)
    if found.bytes_per_token is not None:
        rows.add_row("per additional token", f"{exact_number(found.bytes_per_token)} bytes", _growth(found))
    if found.fixed_bytes:
        rows.add_row("fixed", f"{found.fixed_bytes:,} bytes", format_bytes(found.fixed_bytes))
    split = {name: size for name, size in found.tally.component_bytes().items() if size}
    if len(split) > 1 and not brief:
        for name, size in split.items():
            rows.add_row(f"of which {COMPONENT_NAMES[name]}", f"{size:,} bytes", format_bytes(size))
    yield rows
    yield from _log_line(found) if brief else _report(found)
    yield Text.assemble(("not counted: ", "bold"), "; ".join(found.excluded))
    for note in found.tally.notes:
        yield Text.assemble(("note: ", "bold"), note)
    for note in () if brief else _row_notes(found.tally.layers):
        yield Text.assemble(("note: ", "bold"), note)
    for warning in found.warnings:
        yield Text.assemble(("warning: ", "bold yellow"), warning)
    if found.tally.refusal:
        yield Text.assemble(("refused: ", "bold red"), found.tally.refusal)


COMPONENT_NAMES = {"kv": "keys and values", "index": "index keys", "state": "recurrent state", "other": "padding, tables, pool"}


def _row_notes(layers: Sequence[LayerTally]) -> list[str]:
    return list(
        dict.fromkeys(f"{run.kind.replace('_', ' ')}: {array.note}" for run in layers for array in run.arrays if array.note)
    )


def _growth(found: Estimate) -> str:
    size = format_bytes(round(found.bytes_per_token)) if found.bytes_per_token else "none"
    return size if found.step == 1 else f"{size}, in steps of {found.step:,} tokens"


def exact_number(value: Fraction) -> str:
    """A fraction of bytes: the integer where it is one."""
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.2f}"


LONG_FIGURE = 32


def _report(found: Estimate) -> Iterable[RenderableType]:
    """The engine's figures, then what is too long to stand beside them: its log line, its lists of equal things."""
    figures = {name: value for name, value in found.tally.report.items() if value is not None}
    nested = {name: rows for name, rows in figures.items() if _is_table(rows)}
    shown = {name.replace("_", " "): _shown(value) for name, value in figures.items() if name not in nested}
    long = {name: text for name, text in shown.items() if " " in text and len(text) > LONG_FIGURE}
    if len(shown) > len(long):
        table = plain_table("engine's own figure", "value", right=(1,))
        for name, text in shown.items():
            if name not in long:
                table.add_row(name, text)
        yield Padding(table, (1, 0, 1, 0))
    for name, text in long.items():
        yield Padding(Text.assemble((f"{name}: ", "bold"), text), (0, 0, 1, 0))
    yield from (Padding(_rows_table(rows), (0, 0, 1, 0)) for rows in nested.values())


def _log_line(found: Estimate) -> Iterable[RenderableType]:
    """What the engine itself would print, where it prints a figure."""
    line = found.tally.report.get("log_line")
    if isinstance(line, str):
        yield Text.assemble(("its log would say: ", "bold"), line)


def _is_table(value: object) -> TypeGuard[list[dict[str, object]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _rows_table(rows: list[dict[str, object]]) -> Table:
    """A list of equal things that an engine reports: its caches, its pools."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = plain_table(*(name.replace("_", " ") for name in columns), right=tuple(range(1, len(columns))))
    for row in rows:
        cells = [row.get(name, "") for name in columns]
        table.add_row(*map(_shown, cells))
    return table


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def bar(value: int, largest: int, width: int) -> str:
    """A bar of at most ``width`` cells."""
    if not largest or not value:
        return ""
    return BAR * max(1, value * width // largest)
