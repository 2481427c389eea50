"""The largest number that fits, where growth is not linear and may dip.

A cache grows by blocks, stops at a window, and may give bytes back for a while: transformers' quantised cache packs its
unpacked rows every 128 tokens. What is relied upon is that no dip is longer than the ``window``, which an engine names:
when none of so many neighbours fits, nothing beyond them does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

CEILING = 2**40  # nobody has so many tokens; what still fits there grows with nothing


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a search."""

    value: int  # the largest that fits, 0 where none does
    unbounded: bool = False  # it stopped at the ceiling, not at the budget
    gap: int | None = None  # the smallest that does not fit though the value does


def largest(fits: Callable[[int], bool], window: int = 1, ceiling: int = CEILING, breaks: Iterable[int] = ()) -> Found:
    """The largest n in 1..ceiling that fits; n + 1 does not, nor does anything beyond.

    ``window`` is the length that no dip exceeds: 1 for growth without dips. From each of ``breaks`` on, another rule may
    hold, under which less is taken (a cache that is quantised from some length on): each stretch is searched for itself.
    """
    if fits(ceiling):
        return Found(ceiling, unbounded=True)
    edges = [1, *sorted({edge for edge in breaks if 1 < edge < ceiling}), ceiling]
    for first, beyond in reversed(list(pairwise(edges))):
        value = _within(fits, window, first, beyond)
        if value:
            return Found(value, gap=_gap(fits, value, window, first))
    return Found(0)


def _within(fits: Callable[[int], bool], window: int, first: int, beyond: int) -> int:
    """The largest of first..beyond - 1 that fits, or 0."""

    def shifted(n: int) -> bool:
        return fits(first - 1 + n)

    span = beyond - first + 1  # the first that is not in the stretch
    value = _bisect(shifted, span)
    if window > 1 and _last_fitting(shifted, value + 1, min(value + window, span - 1)):
        value = _by_windows(shifted, window, span - 1)
    return first - 1 + value if value else 0


def _gap(fits: Callable[[int], bool], value: int, window: int, first: int) -> int | None:
    """A smaller n that does not fit, where that is known to happen."""
    near = range(max(first, value - window), value) if window > 1 else ()
    return next((n for n in (*near, *((first - 1,) if first > 1 else ())) if not fits(n)), None)


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
