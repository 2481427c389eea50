"""A console on which text from outside can't steer the terminal, whatever table, heading or error it stands in."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from kvcalc.escapes import visible


class SafeConsole(Console):
    """Escapes the text of everything that it renders; colours and cursor movements of its own are no text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, each text made visible."""
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control or segment.text.isprintable()
                else segment._replace(text=visible(segment.text, lines=True))
            )
