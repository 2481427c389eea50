"""Progress on stderr, for people who wait: only on a terminal, and only where it doesn't run through the answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

STRIDE = 1024  # items between two looks at the clock


def watched() -> bool:
    """Whether somebody looks at stderr while the answer goes elsewhere."""
    return sys.stderr.isatty() and not sys.stdout.isatty()


def tracked(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """The same items, with a bar that counts them."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from kvcalc.cli.output import console

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        for index, item in enumerate(items):
            if index % STRIDE == 0:
                progress.update(task, completed=index)
            yield item
