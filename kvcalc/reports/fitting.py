"""Tables that stay whole: where a terminal is too narrow, spare columns go first, and then each row takes a few lines.

A figure that is cut looks like another figure, and words broken letter by letter can't be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

BAR = "█"
GAP = 2  # blanks between columns


class FittingTable(Table):
    """A table; or, below the width that its figures and longest words take, ``heading  value`` line by line.

    ``spare`` are columns that say again what others say (a bar, exact bytes beside a size): they are left out first, in order.
    """

    spare: tuple[int, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rows side by side where they fit."""
        needs = [self._need(console, column) for column in self.columns]
        kept = self._kept([least for least, _ in needs], options.max_width)
        if kept is None and self.row_count:
            yield from self._records(console)
            return
        shown = self if kept is None or len(kept) == len(needs) else self._of(kept)
        needs = [needs[index] for index in kept or range(len(needs))]
        yield from shown.side_by_side(console, options, shared_widths(needs, options.max_width - GAP * (len(needs) - 1)))

    def _kept(self, least: Sequence[int], width: int) -> list[int] | None:
        """The columns that have room side by side: all, or all but some of the spare ones; None where they don't."""
        kept = list(range(len(least)))
        for index in (None, *self.spare):
            kept = [each for each in kept if each != index]
            if sum(least[each] for each in kept) + GAP * (len(kept) - 1) <= width:
                return kept
        return None

    def _of(self, kept: Sequence[int]) -> FittingTable:
        """The same rows with some of the columns."""
        found = copy(self)
        found.columns = [replace(self.columns[index], _index=place) for place, index in enumerate(kept)]
        return found

    def side_by_side(self, console: Console, options: ConsoleOptions, widths: Sequence[int]) -> RenderResult:
        """Every cell has the room that it needs, so that only headings are left to wrap in a column of figures."""
        whole = [column.no_wrap for column in self.columns]
        for column, width in zip(self.columns, widths, strict=True):
            column.width, column.no_wrap = width, False
        shown = list(super().__rich_console__(console, options))
        for column, figures in zip(self.columns, whole, strict=True):
            column.no_wrap = figures
        yield from shown

    def _need(self, console: Console, column: Column) -> tuple[int, int]:
        """(narrowest, widest): a figure is one piece; other text, and a heading, its longest word."""
        heading = _plain(console, column.header) if self.show_header else ""
        lines = [line for cell in column.cells for line in _plain(console, cell).splitlines()]
        words = [cell_len(word) for line in (heading, *([] if column.no_wrap else lines)) for word in line.split()]
        figures = [cell_len(line) for line in lines if column.no_wrap]
        return max((*words, *figures), default=0), max(map(cell_len, (heading, *lines)), default=0)

    def _records(self, console: Console) -> Iterator[RenderableType]:
        if self.title:
            yield Text(str(self.title), style="bold")
        headings = [_plain(console, column.header) if self.show_header else "" for column in self.columns]
        cells = [[_plain(console, cell) for cell in column.cells] for column in self.columns]
        for index in range(self.row_count):
            if index and self.show_header:
                yield Text()
            yield from _record(headings, [column[index] for column in cells])


def shared_widths(needs: Sequence[tuple[int, int]], room: int) -> list[int]:
    """A width for each (narrowest, widest) column: what it wants, less what the widest can spare where room is short."""
    widths = [max(least, min(widest, room)) for least, widest in needs]
    while sum(widths) > room:
        spare = [index for index, (least, _) in enumerate(needs) if widths[index] > least]
        if not spare:
            break
        widths[max(spare, key=lambda index: widths[index])] -= 1
    return widths


def _record(headings: list[str], values: list[str]) -> Iterator[Text]:
    """The first value stands alone; a bar has no place here."""
    shown = [(heading, value) for heading, value in zip(headings, values, strict=True) if value and BAR not in value]
    if not any(headings):
        yield Text("  ".join(value for _, value in shown))
        return
    for place, (heading, value) in enumerate(shown):
        yield Text(f"{'  ' if place else ''}{heading}{'  ' if heading else ''}{value}")


def _plain(console: Console, cell: RenderableType) -> str:
    if isinstance(cell, str):
        return console.render_str(cell, markup=None).plain if cell else ""
    return cell.plain if isinstance(cell, Text) else str(cell)
