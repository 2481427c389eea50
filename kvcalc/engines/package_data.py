"""Tables of the engines' releases, beside the code as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcalc.engines.releases import number_of
from kvcalc.tables import read_table


def table(name: str) -> Any:
    """The table ``data/NAME.json``."""
    return read_table("kvcalc.engines", name)


def value_at(spans: Sequence[Sequence[Any]], release: str) -> Any:
    """What holds in ``release``: ``spans`` are (since, value), oldest first; None before the first."""
    number = number_of(release)
    return next((value for since, value in reversed(spans) if number_of(since) <= number), None)
