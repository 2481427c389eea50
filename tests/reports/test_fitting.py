"""A table at any width: no figure is ever cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from kvcalc.reports.fitting import FittingTable, shared_widths
from kvcalc.reports.to_table import plain_table

FIGURES = ("25,769,803,776", "1,234", "512.00 MiB")


def table() -> FittingTable:
    found = plain_table("model", "bytes", "size", "", "why", right=(1, 2), title="a title")
    found.add_row("a-model-of-some-length", FIGURES[0], FIGURES[2], "█████", "[as it stands]")
    found.add_row("another", FIGURES[1], "", "", Text("styled", style="red"))
    assert isinstance(found, FittingTable)
    return found


def shown(width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(table())
    return out.getvalue()


@pytest.mark.parametrize("width", [16, 20, 30, 40, 60, 80, 200])
def test_every_figure_is_whole(width: int) -> None:
    out = shown(width)
    assert all(figure in " ".join(out.split()) for figure in FIGURES)
    assert max(len(line) for line in out.splitlines()) <= width
    assert "[as it stands]" in " ".join(out.split())


def test_wide_terminals_get_columns_and_narrow_ones_get_lines() -> None:
    assert len(shown(200).splitlines()) == 4  # title, heading, two rows
    assert shown(40).splitlines()[:4] == [
        "a title",
        "model  a-model-of-some-length",
        "  bytes  25,769,803,776",
        "  size  512.00 MiB",
    ]
    assert "█" not in shown(40)


def test_a_table_without_headings_keeps_a_line_a_row() -> None:
    rows = plain_table("", "", right=(1,))
    rows.show_header = False
    rows.add_row("a long word of many", "123,456,789,012")
    out = io.StringIO()
    Console(file=out, width=20).print(rows)
    assert out.getvalue().split() == ["a", "long", "word", "of", "many", "123,456,789,012"]


def test_a_heading_wraps_before_a_figure_does() -> None:
    rows = plain_table("model", "bytes of a further token", right=(1,))
    rows.add_row("toy", "1,234,567")
    for width, lines in ((60, 2), (20, 3), (60, 2)):  # "bytes of a" above "further token"
        out = io.StringIO()
        Console(file=out, width=width).print(rows)
        assert len(out.getvalue().splitlines()) == lines
        assert "1,234,567" in out.getvalue()


@pytest.mark.parametrize(
    ("needs", "room", "widths"),
    [
        ([(3, 3), (4, 90)], 50, [3, 47]),
        ([(20, 30), (5, 100)], 40, [20, 20]),  # the wider one gives way, no further than its longest word
        ([(20, 30), (5, 100)], 25, [20, 5]),
        ([(3, 4), (5, 6)], 40, [4, 6]),
    ],
)
def test_columns_share_what_room_there_is(needs: list[tuple[int, int]], room: int, widths: list[int]) -> None:
    assert shared_widths(needs, room) == widths


def test_spare_columns_go_before_a_row_is_taken_apart() -> None:
    rows = plain_table("model", "bytes", "size", "", right=(1, 2), spare=(3, 1))
    rows.add_row("a-model", FIGURES[0], FIGURES[2], "█████")
    widths = {
        80: ["a-model", FIGURES[0], "512.00", "MiB", "█████"],
        35: ["a-model", FIGURES[0], "512.00", "MiB"],
        20: ["a-model", "512.00", "MiB"],
    }
    for width, words in widths.items():
        out = io.StringIO()
        Console(file=out, width=width).print(rows)
        assert out.getvalue().splitlines()[1].split() == words
