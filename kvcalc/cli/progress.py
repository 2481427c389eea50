"""Progress on stderr, for people who wait: only on a terminal, and only where it doesn't run through the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeVar

T = TypeVar("T")
LARGE_FILE = 64 * 2**20  # from here on reading takes about a second

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


@contextmanager
def read(stream: BinaryIO, total: int, label: str) -> Iterator[Callable[[int], bytes]]:
    """The stream's own reading, with a bar that counts bytes where the file is large and somebody looks."""
    if total < LARGE_FILE or not sys.stderr.isatty():
        yield stream.read
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from kvcalc.cli.output import console

    columns = (TextColumn(label), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)

        def counted(size: int) -> bytes:
            data = stream.read(size)
            progress.advance(task, len(data))
            return data

        yield counted
