"""One array of one layer, and the pool that it belongs to."""

from __future__ import annotations

from kvcalc.core.counting import Slab
from kvcalc.values import value

FULL, WINDOW, STATE, REQUEST, TAIL = "full", "window", "state", "request", "tail"
# DeepSeek V4's, in pages and rings
WINDOW_PAGES, C4_PAGES, C128_PAGES, INDEX_PAGES = "window pages", "c4 pages", "c128 pages", "index pages"
C4_STATES, C128_STATES = "c4 states", "c128 states"
COMPRESSED = frozenset({WINDOW_PAGES, C4_PAGES, C128_PAGES, INDEX_PAGES, C4_STATES, C128_STATES})


@value
class Slot:
    """What a row holds, and what a row counts when the memory is divided; a buffer's row may take something else."""

    pool: str
    slab: Slab
    sized: int
    tokens: int = 1  # that share a row
