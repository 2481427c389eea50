"""Sequences that come and go over one pool: blocks are given back, taken by others and written while the rest go on.

Five sequences share three rows of the table. B ends early; C forks from A, whose blocks it shares until one of them writes; D
takes B's row and blocks, and E those of C. The pool holds what A, C and D need together and no block more, so every later
block is a used one. Windows are small here: rings turn over several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from torch import Tensor

from kvcalc.core.counting import Reach
from kvcalc.core.layers import CompressedAttention, Layer, NoCache, Recurrent, Shared
from kvcalc.verify.caches.base import Held, RowCache, RowShape
from kvcalc.verify.caches.paged import BlockTable, PagedCache
from kvcalc.verify.caches.static import StaticCache
from kvcalc.verify.events import Event
from kvcalc.verify.layouts import PagedLayout
from kvcalc.verify.parts.base import Tracker
from kvcalc.verify.plan import Step

A, B, C, D, E = range(5)
ROWS = (0, 1, 2, 1, 2)  # of the table, by sequence
CHUNKS = (1, 4, 1)
TABLE = "blocks held once, or shared by a fork, or free"


@dataclass(frozen=True)
class Life:
    """Lengths of all five, the fork, what happens in turn, and the lengths that the pool is made for."""

    lengths: tuple[int, ...]
    forks: tuple[tuple[int, int] | None, ...]
    steps: tuple[Step | Event, ...]
    live: tuple[int, ...]


def life_of(block_size: int, forks: bool) -> Life:
    """The story above, in blocks of ``block_size``."""
    begun = 2 * block_size + block_size // 2 + 1  # ends within a block
    shared = begun // block_size * block_size if forks else 0
    lengths = (5 * block_size + 7, 3 * block_size + 3, begun + 2 * block_size + 5, 3 * block_size + 2, 2 * block_size + 1)
    first = [_pieces(A, 0, begun), _pieces(B, 0, lengths[B])]
    start = begun if forks else 0
    second = [_pieces(A, begun, lengths[A] - 2), _pieces(C, start, lengths[C]), _pieces(D, 0, lengths[D] - 2)]
    third = [_pieces(E, 0, lengths[E]), [(A, lengths[A] - 2, lengths[A])], [(D, lengths[D] - 2, lengths[D])]]
    steps: list[Step | Event] = [*_in_turn(first), Event(B)]
    steps += [Event(C, A, begun)] if forks else []
    steps += [*_in_turn(second), Event(C), *_in_turn(third), Event(E), Event(D), Event(A)]
    fork = (A, begun) if forks else None
    return Life(lengths, (None, None, fork, None, None), tuple(steps), (lengths[A], lengths[D], lengths[C] - shared))


def _pieces(sequence: int, start: int, stop: int) -> list[Step]:
    """A prompt of half of it, then a few tokens at a time."""
    prompt = (start + stop + 1) // 2
    found, sizes = [(sequence, start, prompt)] if prompt > start else [], cycle(CHUNKS)
    while prompt < stop:
        end = min(prompt + next(sizes), stop)
        found.append((sequence, prompt, end))
        prompt = end
    return found


def _in_turn(each: Sequence[Sequence[Step]]) -> Iterator[Step]:
    for place in range(max(map(len, each))):
        yield from (steps[place] for steps in each if place < len(steps))


def lives(layer: Layer) -> bool:
    """Whether a layer's rows lie in blocks that sequences can give back: no state, and no compressor's open group."""
    kept = [part for part in layer if not isinstance(part, Shared | NoCache)]
    return bool(kept) and not any(isinstance(part, Recurrent | CompressedAttention) for part in kept)


class RowOf:
    """A cache of three rows, used by five sequences."""

    def __init__(self, inner: RowCache) -> None:
        self.inner = inner

    def append(self, sequence: int, rows: Tensor) -> None:
        """Append to the sequence's row."""
        self.inner.append(ROWS[sequence], rows)

    def extend(self, sequence: int, rows: Tensor) -> Held:
        """Extend the sequence's row."""
        return self.inner.extend(ROWS[sequence], rows)

    def read(self, sequence: int) -> Held:
        """Read the sequence's row."""
        return self.inner.read(ROWS[sequence])

    def tensors(self) -> list[Tensor]:
        """Name what is held."""
        return self.inner.tensors()


@dataclass
class LifeLayout(PagedLayout):
    """Blocks from pools of just the size that ``live`` lengths need; ``lengths`` are those of the table's rows."""

    name: str = "paged, reused"
    life: Life = field(default_factory=lambda: life_of(16, True))
    caches: list[RowCache] = field(default_factory=list)
    audits: Tracker = field(default_factory=lambda: Tracker(TABLE))

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """Make a cache of three rows, and remember it."""
        made = super().cache(shape, reach)
        self.caches.append(made)
        return RowOf(made)

    def table(self, reach: Reach) -> BlockTable:
        """A table for sequences that come and go."""
        if reach not in self.tables:
            rows = max(reach.rows(length) for length in self.life.live) // self.block_size
            pool = sum(reach.rows(length) // self.block_size for length in self.life.live)
            ring = None if reach.cap is None else -(-reach.cap // self.block_size)
            seed = self.seed + len(self.tables)
            self.tables[reach] = BlockTable((rows,) * len(self.lengths), self.block_size, self.device, seed, ring, pool)
        return self.tables[reach]

    def apply(self, event: Event) -> None:
        """End or fork in every table and cache, then count what is wrong with the tables."""
        row = ROWS[event.sequence]
        for table in self.tables.values():
            if event.parent is None:
                table.release(row)
            else:
                table.fork(ROWS[event.parent], row, event.positions)
        for cache in self.caches:
            if isinstance(cache, PagedCache | StaticCache) and event.parent is None:
                cache.end(row)
            elif isinstance(cache, PagedCache):
                cache.fork(row, event.positions)
        wrong = sum(len(problems(table.entries.tolist(), table.free, table.num_blocks)) for table in self.tables.values())
        self.audits.count(wrong)


def problems(entries: Sequence[Sequence[int]], free: Sequence[int], num_blocks: int) -> list[str]:
    """What is wrong with a table: a block free twice, free and held, in two places of one row, or lost."""
    held = [block for row in entries for block in row if block >= 0]
    found = [f"block {block} is free twice" for block in _repeated(free)]
    found += [f"block {block} is free and held" for block in set(free) & set(held)]
    found += [f"block {block} is held twice by one sequence" for row in entries for block in _repeated(row) if block >= 0]
    found += [f"block {block} is lost" for block in set(range(num_blocks)) - set(free) - set(held)]
    places: Mapping[int, set[int]] = {block: {row.index(block) for row in entries if block in row} for block in set(held)}
    return found + [f"block {block} is shared at two places" for block, where in places.items() if len(where) > 1]


def _repeated(blocks: Iterable[int]) -> set[int]:
    return {block for block, count in Counter(blocks).items() if count > 1}
