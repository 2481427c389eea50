"""What happens to sequences between steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """A sequence ends, or a new one begins with another's first ``positions``."""

    sequence: int
    parent: int | None = None  # None: it ends
    positions: int = 0
