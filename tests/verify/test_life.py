"""Sequences that come and go: blocks are given back, taken, shared and copied, and every row stays whose it was."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.verify.caches.base import CapacityError, RowShape
from kvcalc.verify.caches.paged import BlockTable, PagedCache
from kvcalc.verify.caches.static import StaticCache
from kvcalc.verify.events import Event
from kvcalc.verify.life import ROWS, life_of, problems
from verify.verify_helpers import LAYERS, explain, run

CPU = torch.device("cpu")
SHAPE = RowShape(1, 1, torch.float32)


def rows(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)[None, :, None]


def held(cache: PagedCache, sequence: int) -> list[float]:
    return cache.read(sequence).rows.flatten().tolist()


@pytest.mark.parametrize("writer", [0, 1])
def test_whoever_writes_first_into_a_shared_block_gets_a_copy(writer: int) -> None:
    table = BlockTable([3, 3], 4, CPU, 0, num_blocks=4)
    cache = PagedCache(SHAPE, table, CPU)
    cache.append(0, rows(1, 2, 3, 4, 5, 6))
    table.fork(0, 1, 6)
    cache.fork(1, 6)
    assert held(cache, 1) == [1, 2, 3, 4, 5, 6]
    assert len(table.free) == 2
    cache.append(writer, rows(70))
    cache.append(1 - writer, rows(80))
    assert held(cache, writer) == [1, 2, 3, 4, 5, 6, 70]
    assert held(cache, 1 - writer) == [1, 2, 3, 4, 5, 6, 80]
    assert len(table.free) == 1  # one block was copied, the other is written in place by whom it is left to
    assert problems(table.entries.tolist(), table.free, 4) == []


def test_keys_and_values_behind_one_table_are_both_copied() -> None:
    table = BlockTable([2, 2], 4, CPU, 0)
    keys, values = (PagedCache(SHAPE, table, CPU) for _ in range(2))
    for cache, sign in ((keys, 1), (values, -1)):
        cache.append(0, rows(sign, 2 * sign))
    table.fork(0, 1, 2)
    for cache, sign in ((keys, 1), (values, -1)):
        cache.fork(1, 2)
        cache.append(1, rows(9 * sign))
        cache.append(0, rows(7 * sign))
    assert (held(keys, 0), held(keys, 1)) == ([1, 2, 7], [1, 2, 9])
    assert (held(values, 0), held(values, 1)) == ([-1, -2, -7], [-1, -2, -9])


def test_a_shared_block_is_free_when_its_last_holder_ends() -> None:
    table = BlockTable([1, 1], 4, CPU, 0, num_blocks=1)
    table.grow(0, 3)
    table.fork(0, 1, 3)
    table.release(0)
    assert table.free == []
    table.release(1)
    assert table.free == [0]


def test_a_pool_that_is_full_refuses() -> None:
    table = BlockTable([2, 2], 4, CPU, 0, num_blocks=1)
    table.grow(0, 4)
    with pytest.raises(CapacityError, match="all 1 blocks are held"):
        table.grow(1, 1)


def test_a_static_cache_refuses_what_it_has_no_room_for() -> None:
    cache = StaticCache(SHAPE, 1, CPU, 3)
    cache.append(0, rows(1, 2, 3))
    with pytest.raises(CapacityError, match="4 positions don't fit a capacity of 3"):
        cache.append(0, rows(4))
    assert cache.read(0).rows.flatten().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("entries", "free", "said"),
    [
        ([[0, 1], [2, -1]], [3], []),
        ([[0, 1], [0, 2]], [3], []),  # a fork
        ([[0, 1], [2, -1]], [3, 3], ["block 3 is free twice"]),
        ([[0, 1], [2, -1]], [3, 1], ["block 1 is free and held"]),
        ([[0, 0], [2, 1]], [3], ["block 0 is held twice by one sequence"]),
        ([[0, 1], [-1, -1]], [3], ["block 2 is lost"]),
        ([[0, 1], [1, 2]], [3], ["block 1 is shared at two places"]),
    ],
)
def test_what_is_wrong_with_a_table_is_named(entries: list[list[int]], free: list[int], said: list[str]) -> None:
    assert problems(entries, free, 4) == said


@given(st.integers(1, 40), st.booleans())
def test_every_story_feeds_each_sequence_once_and_ends_it_once(block_size: int, forks: bool) -> None:
    life = life_of(block_size, forks)
    fed = dict.fromkeys(range(5), 0)
    rows_in_use: dict[int, int] = {}
    for step in life.steps:
        if isinstance(step, Event):
            if step.parent is None:
                assert fed[step.sequence] == life.lengths[step.sequence]
                assert rows_in_use.pop(ROWS[step.sequence]) == step.sequence
            else:
                assert fed[step.parent] == step.positions
                fed[step.sequence] = step.positions
            continue
        sequence, start, stop = step
        assert start == fed[sequence] < stop <= life.lengths[sequence]
        assert rows_in_use.setdefault(ROWS[sequence], sequence) == sequence
        fed[sequence] = stop
    assert not rows_in_use


@pytest.mark.parametrize("name", ["full", "sliding", "chunked", "mla", "mla, window", "mla and indexer", "full and cross"])
@pytest.mark.parametrize("block_size", [1, 3, 16, 64])
def test_a_kind_outlives_its_neighbours(name: str, block_size: int) -> None:
    report = run(LAYERS[name], block_size=block_size, controls=False)
    assert report.passed, explain(report)
    reused = [check for check in report.checks if check.implementation in ("paged, forked", "paged, reused")]
    assert len(reused) == 1
    assert reused[0].measures[-1].outputs >= 5
