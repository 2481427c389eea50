"""Tables that ship beside the code as JSON, read when an engine first asks for one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from kvcalc.engines.releases import number_of


@cache
def table(name: str) -> Any:
    """The table ``data/NAME.json``, parsed once."""
    return json.loads((files("kvcalc.engines") / "data" / f"{name}.json").read_text(encoding="utf-8"))


def value_at(spans: Sequence[Sequence[Any]], release: str) -> Any:
    """What holds in ``release``: ``spans`` are (since, value), oldest first; None before the first."""
    number = number_of(release)
    return next((value for since, value in reversed(spans) if number_of(since) <= number), None)
