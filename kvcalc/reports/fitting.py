"""Tables that stay whole: where a terminal is too narrow for the columns, each row becomes a few lines of its own.

A figure that is cut looks like another figure, and words broken letter by letter can't be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

BAR = "█"
GAP = 2  # blanks between columns


class FittingTable(Table):
    """A table; or, below the width that its figures and longest words take, ``heading  value`` line by line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rows side by side where they fit."""
        needs = [self._need(console, column) for column in self.columns]
        room = options.max_width - GAP * (len(needs) - 1)
        if self.row_count == 0 or sum(least for least, _ in needs) <= room:
            for column, width in zip(self.columns, shared_widths(needs, room), strict=True):
                column.width = width
            yield from super().__rich_console__(console, options)
        else:
            yield from self._records(console)

    def _need(self, console: Console, column: Column) -> tuple[int, int]:
        """(narrowest, widest): a figure is one piece, other text its longest word."""
        shown = [column.header] if self.show_header else []
        lines = [line for cell in (*shown, *column.cells) for line in _plain(console, cell).splitlines()]
        widest = max(map(cell_len, lines), default=0)
        words = (cell_len(word) for line in lines for word in line.split())
        return (widest if column.no_wrap else max(words, default=0)), widest

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
