"""A table whose rows are JSON text until they are asked for: hundreds of rows cost a start-up nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class Rows(Mapping[str, Mapping[str, Any]]):
    """Name → row, each row parsed when it is first read."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._parsed: dict[str, Mapping[str, Any]] = {}

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        if name not in self._parsed:
            self._parsed[name] = json.loads(self._texts[name])
        return self._parsed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
