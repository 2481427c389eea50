"""Tables that ship inside the package as JSON: parsed when they are first asked for, once."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def read_table(package: str, name: str) -> Any:
    """``data/NAME.json`` of a package."""
    return json.loads((files(package) / "data" / f"{name}.json").read_text(encoding="utf-8"))
