"""Tables that stay whole: where a terminal is too narrow for the columns, each row becomes a few lines of its own.

A figure that is cut looks like another figure, and words broken letter by letter can't be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

BAR = "█"
ANY_WIDTH = 10_000


class FittingTable(Table):
    """A table; or, below the width that its figures and longest words take, ``heading  value`` line by line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rows side by side where they fit."""
        least = Measurement.get(console, options.update(max_width=ANY_WIDTH), self).minimum
        if self.row_count == 0 or least <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._records(console)

    def _records(self, console: Console) -> Iterator[RenderableType]:
        if self.title:
            yield Text(str(self.title), style="bold")
        headings = [_plain(console, column.header) if self.show_header else "" for column in self.columns]
        cells = [[_plain(console, cell) for cell in column.cells] for column in self.columns]
        for index in range(self.row_count):
            if index and self.show_header:
                yield Text()
            yield from _record(headings, [column[index] for column in cells])


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
