"""Where rows lie: every cache gives back the rows that it was fed, at their positions, whatever the order of appends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.verify.caches.base import Held, RowCache, RowShape
from kvcalc.verify.caches.concat import ConcatCache
from kvcalc.verify.caches.paged import BlockTable, PagedCache
from kvcalc.verify.caches.sliding import RingCache, ring_positions
from kvcalc.verify.caches.static import StaticCache
from kvcalc.verify.runs import storage_bytes

CPU = torch.device("cpu")
SHAPE = RowShape(2, 3, torch.float32)

appends = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=12)  # (sequence, rows)


def rows_of(sequence: int, start: int, stop: int) -> torch.Tensor:
    """Rows that say whose they are: 1000·sequence + position in every element."""
    return (torch.arange(start, stop, dtype=torch.float32) + 1000 * sequence)[None, :, None].expand(2, -1, 3)


def check(held: Held, sequence: int, wanted: set[int]) -> None:
    positions = held.positions.tolist()
    assert wanted <= set(positions)
    assert len(set(positions)) == len(positions)
    for index, position in enumerate(positions):
        assert torch.equal(held.rows[:, index], rows_of(sequence, position, position + 1)[:, 0])


def lengths_of(steps: list[tuple[int, int]]) -> list[int]:
    return [sum(count for who, count in steps if who == sequence) for sequence in range(3)]


Make = Callable[[list[int]], RowCache]
ALL: dict[str, Make] = {
    "concat": lambda lengths: ConcatCache(SHAPE, 3, CPU),
    "static": lambda lengths: StaticCache(SHAPE, 3, CPU, max(lengths)),
    "paged": lambda lengths: PagedCache(SHAPE, BlockTable([-(-n // 4) for n in lengths], 4, CPU, 1), CPU),
}


@pytest.mark.parametrize("name", ALL)
@given(steps=appends)
def test_all_rows_come_back(name: str, steps: list[tuple[int, int]]) -> None:
    cache, fed = ALL[name](lengths_of(steps)), [0, 0, 0]
    for sequence, count in steps:
        start, fed[sequence] = fed[sequence], fed[sequence] + count
        check(cache.extend(sequence, rows_of(sequence, start, fed[sequence])), sequence, set(range(fed[sequence])))
        for other in range(3):
            check(cache.read(other), other, set(range(fed[other])))


def windowed(kind: str, window: int, lengths: list[int], block_size: int) -> RowCache:
    if kind == "concat":
        return ConcatCache(SHAPE, 3, CPU, window)
    if kind == "ring":
        return RingCache(SHAPE, 3, CPU, window)
    ring = -(-window // block_size)
    return PagedCache(SHAPE, BlockTable([min(-(-n // block_size), ring) for n in lengths], block_size, CPU, 1, ring), CPU)


@pytest.mark.parametrize("kind", ["concat", "ring", "paged"])
@given(steps=appends, window=st.integers(1, 12), block_size=st.integers(1, 5))
def test_a_window_keeps_the_last_positions(kind: str, steps: list[tuple[int, int]], window: int, block_size: int) -> None:
    cache, fed = windowed(kind, window, lengths_of(steps), block_size), [0, 0, 0]
    for sequence, count in steps:
        start, fed[sequence] = fed[sequence], fed[sequence] + count
        held = cache.extend(sequence, rows_of(sequence, start, fed[sequence]))
        check(held, sequence, set(range(max(start + 1 - window, 0), fed[sequence])))
        check(cache.read(sequence), sequence, set(range(max(fed[sequence] - window, 0), fed[sequence])))


@given(st.integers(0, 60), st.integers(1, 20))
def test_a_rings_slots_hold_the_last_positions(length: int, size: int) -> None:
    positions = ring_positions(length, size, CPU).tolist()
    assert sorted(positions) == list(range(max(length - size, 0), length))
    assert all(position % size == slot for slot, position in enumerate(positions))


def test_concatenation_keeps_nothing_of_what_it_dropped() -> None:
    cache = ConcatCache(SHAPE, 1, CPU, window=4)
    cache.append(0, rows_of(0, 0, 50))
    assert storage_bytes(cache.tensors()) == 4 * 2 * 3 * 4


def test_blocks_lie_in_shuffled_order_and_are_used_again() -> None:
    table = BlockTable([8], 4, CPU, seed=0)
    table.grow(0, 32)
    first = table.entries[0].tolist()
    assert sorted(first) == list(range(8))
    assert first != list(range(8))
    table.release(0)
    assert table.entries[0].tolist() == [-1] * 8
    table.grow(0, 32)
    assert sorted(table.entries[0].tolist()) == list(range(8))


def test_a_table_takes_blocks_only_as_they_are_needed() -> None:
    table = BlockTable([3, 3], 4, CPU, seed=0)
    table.grow(0, 5)
    assert len(table.free) == 4
    table.grow(0, 8)
    assert len(table.free) == 4


def test_a_sequence_that_ends_leaves_its_blocks_to_the_next() -> None:
    cache = PagedCache(SHAPE, BlockTable([2, 0], 4, CPU, 0), CPU)
    cache.append(0, rows_of(0, 0, 8))
    cache.end(0)
    cache.append(0, rows_of(0, 0, 7))
    check(cache.read(0), 0, set(range(7)))


def test_what_was_never_written_is_no_number() -> None:
    cache = StaticCache(SHAPE, 1, CPU, 5)
    cache.append(0, rows_of(0, 0, 2))
    assert cache.rows[0, :, 2:].isnan().all()
