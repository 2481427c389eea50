"""The largest number that fits, where growth is not linear and may dip.

A cache grows by blocks, stops at a window, and may give bytes back for a while: transformers' quantised cache packs its
unpacked rows every 128 tokens. What is relied upon is that no dip is longer than the ``window``, which an engine names:
when none of so many neighbours fits, nothing beyond them does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

CEILING = 2**40  # nobody has so many tokens; what still fits there grows with nothing


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a search."""

    value: int  # the largest that fits, 0 where none does
    unbounded: bool = False  # it stopped at the ceiling, not at the budget
    gap: int | None = None  # the smallest that does not fit though the value does


def largest(fits: Callable[[int], bool], window: int = 1, ceiling: int = CEILING) -> Found:
    """The largest n in 1..ceiling that fits; n + 1 does not, nor does anything beyond.

    ``window`` is the length that no dip exceeds: 1 for growth without dips.
    """
    if fits(ceiling):
        return Found(ceiling, unbounded=True)
    value = _bisect(fits, ceiling)
    if window > 1:
        if _last_fitting(fits, value + 1, min(value + window, ceiling - 1)):
            value = _by_windows(fits, window, ceiling)
        return Found(value, gap=next((n for n in range(max(1, value - window), value) if not fits(n)), None))
    return Found(value)


def _bisect(fits: Callable[[int], bool], beyond: int) -> int:
    """An n that fits with n + 1 that does not: the only one where growth has no dips. Doubles first: answers are small."""
    low, high = 0, 1
    while high < beyond and fits(high):
        low, high = high, high * 2
    high = min(high, beyond)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _last_fitting(fits: Callable[[int], bool], first: int, last: int) -> int:
    """The largest of first..last that fits, or 0."""
    return next((n for n in range(last, first - 1, -1) if fits(n)), 0)


def _by_windows(fits: Callable[[int], bool], window: int, ceiling: int) -> int:
    """Bisection over whole windows: a window counts as fitting when anything in it does."""

    def last_of(index: int) -> int:
        return _last_fitting(fits, (index - 1) * window + 1, min(index * window, ceiling))

    return last_of(_bisect(lambda index: last_of(index) > 0, ceiling // window + 2))
