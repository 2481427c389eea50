"""A sweep as text, one row at a time: a million cells take no more memory than one."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from kvcalc.engines.sweep import Cell
from kvcalc.reports.to_json import Document
from kvcalc.reports.to_table import bar, plain_table
from kvcalc.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PAGE = 400  # rows of one table; a longer sweep goes on with the same columns
BAR_WIDTHS = (8, 20)
NARROW = 100  # columns of a terminal
COLUMNS = Cell._fields


def write_csv(cells: Iterable[Cell], stream: TextIO) -> None:
    """RFC 4180 with a heading; integers plain, True and False, nothing where no budget is given."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(cells)


def write_markdown(cells: Iterable[Cell], stream: TextIO) -> None:
    """A pipe table."""
    marks = ("---:" if name in ("batch_size", "tokens", "total_bytes") else "---" for name in COLUMNS)
    stream.write(f"| {' | '.join(COLUMNS)} |\n| {' | '.join(marks)} |\n")
    stream.writelines(f"| {' | '.join(_word(value) for value in cell)} |\n" for cell in cells)


def _word(value: object) -> str:
    return (
        {True: "yes", False: "no", None: ""}[value]
        if value is None or isinstance(value, bool)
        else str(value).replace("|", "\\|")
    )


def write_json(head: Document, cells: Iterable[Cell], stream: TextIO) -> None:
    """The envelope, with ``cells`` written one a line as they come."""
    opening = json.dumps(head, indent=2, ensure_ascii=False)[:-2]
    stream.write(f'{opening},\n  "cells": [')
    stream.writelines(
        f"{',' if index else ''}\n    {json.dumps(cell._asdict(), ensure_ascii=False)}" for index, cell in enumerate(cells)
    )
    stream.write("\n  ]\n}\n")


def tables(cells: Iterable[Cell], width: int) -> Iterator[RenderableType]:
    """Tables of up to ``PAGE`` rows; bars, and a line above for what is the same in all rows, only where one holds everything."""
    rest = iter(cells)
    page = list(islice(rest, PAGE))
    following = next(rest, None)
    if following is not None:
        rest = chain([following], rest)
    constant = _constant_columns(page) if following is None else frozenset()
    if constant:
        yield Text(_title(page[0], constant), style="bold")
    bars = BAR_WIDTHS[width >= NARROW] if following is None else 0
    yield _table(page, constant, bars, heading=True)
    while page := list(islice(rest, PAGE)):
        yield _table(page, constant, 0, heading=False)


def _constant_columns(page: list[Cell]) -> frozenset[str]:
    """Columns that say the same in every row: they go into a line above instead."""
    names = ("model", "k_dtype", "v_dtype", "batch_size")
    return frozenset(name for name in names if len({getattr(cell, name) for cell in page}) == 1) if len(page) > 1 else frozenset()


_WIDTHS = {"model": 24, "k_dtype": 9, "v_dtype": 9, "batch_size": 10, "tokens": 11, "total_bytes": 19}
_HEADS = {
    "model": "model",
    "k_dtype": "K type",
    "v_dtype": "V type",
    "batch_size": "batch",
    "tokens": "tokens",
    "total_bytes": "bytes",
}


def _title(cell: Cell, names: frozenset[str]) -> str:
    return "  ".join(f"{_HEADS[name]} {getattr(cell, name)}" for name in _HEADS if name in names)


def _table(page: list[Cell], constant: frozenset[str], bar_width: int, heading: bool) -> Table:
    names = [name for name in _HEADS if name not in constant]
    first = page[0]
    numeric = [index for index, name in enumerate(names) if name in ("batch_size", "tokens", "total_bytes")]
    heads = [
        *(_HEADS[name] for name in names),
        "size",
        *(["fits"] if first.fits is not None else []),
        "",
        *([""] if bar_width else []),
    ]
    table = plain_table(*heads, right=[*numeric, len(names)])
    table.show_header = heading
    if not bar_width:
        for name, column in zip(names, table.columns, strict=False):
            column.min_width = _WIDTHS[name]
    largest = max(cell.total_bytes for cell in page)
    for cell in page:
        values = [_shown(getattr(cell, name)) for name in names]
        fits = [_word(cell.fits)] if cell.fits is not None else []
        mark = "beyond the model's maximum" if cell.beyond_model_maximum else ""
        tail = [bar(cell.total_bytes, largest, bar_width)] if bar_width else []
        table.add_row(*values, format_bytes(cell.total_bytes), *fits, *tail, mark, style="red" if fits == ["no"] else None)
    return table


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
