"""The search: maximal for any growth, dips up to the window included."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.search import CEILING, largest

sizes = st.lists(st.integers(0, 60), min_size=1, max_size=120)


def growing(steps: list[int]) -> list[int]:
    """Bytes at 1, 2, 3 …: a running sum, which never shrinks."""
    total, found = 0, []
    for step in steps:
        total += step
        found.append(total)
    return found


@given(sizes, st.integers(0, 4000))
def test_largest_of_what_only_grows(steps: list[int], budget: int) -> None:
    """The answer fits, its successor does not, and a plain scan finds the same."""
    table = growing(steps)
    found = largest(lambda n: n <= len(table) and table[n - 1] <= budget)
    assert found.value == max((n for n, size in enumerate(table, 1) if size <= budget), default=0)
    assert not found.unbounded


@given(sizes, st.lists(st.integers(0, 40), min_size=1, max_size=120), st.integers(0, 4000))
def test_largest_where_growth_dips(steps: list[int], dips: list[int], budget: int) -> None:
    """Bytes given back for a while: nothing that fits beyond the answer is missed, as long as no dip exceeds the window."""
    window = 8
    base = growing([step + 12 for step in steps])  # over 8 steps it grows by more than the deepest dip of 40 … 96 > 40
    table = [max(size - dips[n % len(dips)], 0) for n, size in enumerate(base)]
    found = largest(lambda n: n <= len(table) and table[n - 1] <= budget, window)
    assert found.value == max((n for n, size in enumerate(table, 1) if size <= budget), default=0)


def test_a_gap_is_named() -> None:
    """100 bytes a token, but every fourth gives 350 back: 7 tokens do not fit where 8 do."""
    found = largest(lambda n: n * 100 - (350 if n % 4 == 0 else 0) <= 500, window=8)
    assert (found.value, found.gap) == (8, 6)


@given(sizes, sizes, st.integers(0, 4000))
def test_a_rule_that_changes_at_a_length(before: list[int], after: list[int], budget: int) -> None:
    """Two stretches that each grow: the second may begin far below the end of the first."""
    table = growing(before) + growing(after)
    found = largest(lambda n: n <= len(table) and table[n - 1] <= budget, breaks=(len(before) + 1,))
    assert found.value == max((n for n, size in enumerate(table, 1) if size <= budget), default=0)
    assert found.gap is None or table[found.gap - 1] > budget


def test_nothing_fits() -> None:
    """0 is the answer where not even one does."""
    assert largest(lambda _: False).value == 0


def test_what_does_not_grow_is_unbounded() -> None:
    """A recurrent state takes the same at any length."""
    found = largest(lambda _: True)
    assert found.unbounded
    assert found.value == CEILING


def test_few_questions_are_asked() -> None:
    """Each question may cost a whole allocation: doublings and halvings, not a scan."""
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n <= 1_000_003

    assert largest(fits).value == 1_000_003
    assert len(asked) <= 1 + 2 * 21


def test_a_ceiling_is_kept() -> None:
    """No value beyond the ceiling is asked for."""
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n < 40

    assert largest(fits, window=16, ceiling=40).value == 39
    assert max(asked) == 40


def test_what_fits_beyond_a_dip_is_found() -> None:
    """6 to 8 don't fit, 9 and 10 do again: halving stops at 5, the windows after it don't."""
    found = largest(lambda n: n <= 5 or n in (9, 10), window=8)
    assert (found.value, found.gap) == (10, 6)


def test_what_fits_at_the_very_edge_of_the_window_is_found() -> None:
    """The last of the 8 neighbours that are looked at is the only one that fits."""
    found = largest(lambda n: n <= 5 or n == 5 + 8, window=8)
    assert (found.value, found.gap) == (13, 6)


def test_breaks_outside_the_range_play_no_part() -> None:
    assert largest(lambda n: n < 7, ceiling=10, breaks=(-3, 0, 1, 10, 99)).value == 6
