"""A sweep as text, one row at a time: a million cells take no more memory than one."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from kvcalc.engines.sweep import Cell, Refused
from kvcalc.escapes import visible_json
from kvcalc.reports.to_json import Document, error_part
from kvcalc.reports.to_table import bar, plain_table
from kvcalc.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PAGE = 400  # rows of one table; a longer sweep goes on with the same columns
BAR_WIDTHS = (8, 20)
NARROW = 100  # columns of a terminal
COLUMNS = Cell._fields
REFUSED = "refused"
MOST_REASONS = 8


def write_csv(cells: Iterable[Cell], stream: TextIO) -> None:
    """RFC 4180 with a heading; integers plain, True and False, nothing where no budget is given."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(cells)


def write_markdown(cells: Iterable[Cell], stream: TextIO) -> None:
    """A pipe table."""
    marks = ("---:" if name in ("batch_size", "tokens", "total_bytes") else "---" for name in COLUMNS)
    stream.write(f"| {' | '.join(COLUMNS)} |\n| {' | '.join(marks)} |\n")
    stream.writelines(f"| {' | '.join(_words(cell))} |\n" for cell in cells)


def _words(cell: Cell) -> Iterator[str]:
    """Its columns; a refused one says so where its bytes would stand."""
    refused = cell.total_bytes is None
    return (REFUSED if refused and name == "total_bytes" else _word(value) for name, value in zip(COLUMNS, cell, strict=True))


def _word(value: object) -> str:
    return (
        {True: "yes", False: "no", None: ""}[value]
        if value is None or isinstance(value, bool)
        else str(value).replace("|", "\\|")
    )


def write_json(head: Document, cells: Iterable[Cell], stream: TextIO) -> None:
    """The envelope, with ``cells`` written one a line as they come."""
    opening = visible_json(json.dumps(head, indent=2, ensure_ascii=False))[:-2]
    stream.write(f'{opening},\n  "cells": [')
    stream.writelines(
        f"{',' if index else ''}\n    {visible_json(json.dumps(_object(cell), ensure_ascii=False))}"
        for index, cell in enumerate(cells)
    )
    stream.write("\n  ]\n}\n")


def _object(cell: Cell) -> Document:
    found: Document = cell._asdict()
    return {**found, "error": error_part(cell.problem)} if isinstance(cell, Refused) else found


def tables(cells: Iterable[Cell], width: int) -> Iterator[RenderableType]:
    """One table with bars, and a line above for what is the same in all rows; beyond ``PAGE`` rows plain lines, as they come."""
    rest = iter(cells)
    page = list(islice(rest, PAGE))
    following = next(rest, None)
    if following is not None:
        yield from _pages(chain(page, [following], rest))
        return
    constant = _constant_columns(page)
    if constant:
        yield Text(_title(page[0], constant), style="bold")
    yield _table(page, constant, BAR_WIDTHS[width >= NARROW])
    yield from _reasons(page)


def _reasons(page: list[Cell]) -> Iterator[Text]:
    """Why cells were refused, each reason once."""
    several = len({cell.model for cell in page}) > 1
    refused = [cell for cell in page if isinstance(cell, Refused)]
    found = list(dict.fromkeys(f"{cell.model + ': ' if several else ''}{cell.problem.what}" for cell in refused))
    for text in found[:MOST_REASONS]:
        yield Text(f"{REFUSED}: {text}", style="red")
    if len(found) > MOST_REASONS:
        yield Text(f"and {len(found) - MOST_REASONS:,} more reasons, which --json holds")


def _pages(cells: Iterator[Cell]) -> Iterator[Text]:
    """Lines of fixed columns: a row's place doesn't depend on the rows to come."""
    heading: tuple[str, ...] = (*_HEADS.values(), "size", "")
    while page := list(islice(cells, PAGE)):
        text = Text(no_wrap=True, overflow="ignore")
        if heading:
            text.append(_line(*heading[:-1], "fits" if any(cell.fits is not None for cell in page) else ""), style="bold")
            heading = ()
        for cell in page:
            marks = (f"{REFUSED}: {cell.problem.what}",) if isinstance(cell, Refused) else _marks(cell)
            text.append(_line(*map(_shown, cell[:6]), _size(cell), *marks), style=_style(cell))
        text.right_crop(1)  # the last line's end comes with printing
        yield text


def _line(*words: str) -> str:
    return _LINE.format(*words[:7], "  ".join(word for word in words[7:] if word)).rstrip() + "\n"


def _marks(cell: Cell) -> tuple[str, str]:
    fits = f"{_word(cell.fits):<4}" if cell.fits is not None else ""
    needed = cell.needed_bytes or 0
    more = f"{format_bytes(needed)} must be free" if needed > (cell.total_bytes or 0) else ""
    beyond = "beyond the model's maximum" if cell.beyond_model_maximum else ""
    return fits, ", ".join(filter(None, (more, beyond)))


def _style(cell: Cell) -> str:
    return "red" if cell.fits is False or cell.total_bytes is None else ""


def _size(cell: Cell) -> str:
    return REFUSED if cell.total_bytes is None else format_bytes(cell.total_bytes)


def _constant_columns(page: list[Cell]) -> frozenset[str]:
    """Columns that say the same in every row: they go into a line above instead."""
    names = ("model", "k_dtype", "v_dtype", "batch_size")
    return frozenset(name for name in names if len({getattr(cell, name) for cell in page}) == 1) if len(page) > 1 else frozenset()


_LINE = "{:<24}  {:<9}  {:<9}  {:>10}  {:>11}  {:>19}  {:>12}  {}"
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


def _table(page: list[Cell], constant: frozenset[str], bar_width: int) -> Table:
    names = [name for name in _HEADS if name not in constant]
    numeric = [index for index, name in enumerate(names) if name in ("batch_size", "tokens", "total_bytes")]
    fits = ["fits"] if any(cell.fits is not None for cell in page) else []
    heads = [*(_HEADS[name] for name in names), "size", *fits, "", ""]
    exact = (names.index("total_bytes"),)
    table = plain_table(*heads, right=[*numeric, len(names)], spare=(len(heads) - 2, *exact))
    table.columns[-1].no_wrap = True
    largest = max(cell.total_bytes or 0 for cell in page)
    for cell in page:
        values = [_shown(getattr(cell, name)) for name in names]
        fit, mark = _marks(cell)
        drawn = bar(cell.total_bytes or 0, largest, bar_width)
        table.add_row(*values, _size(cell), *([fit] if fits else []), drawn, mark, style=_style(cell))
    return table


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)
