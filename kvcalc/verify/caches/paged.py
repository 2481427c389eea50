"""The cache in blocks: one pool that all sequences share, and a table that says which block follows which.

A sequence's blocks lie anywhere in the pool (here in shuffled order, on purpose). A sequence that ends gives its blocks
back, and the next one takes them. Sequences with a common beginning hold its blocks together, until one of them writes there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvcalc.verify.caches.base import CapacityError, Held, RowShape, joined, unwritten
from kvcalc.verify.caches.sliding import ring_positions


class BlockTable:
    """Which pool blocks each sequence holds: ``entries[sequence, i]`` is its i-th block, int32, -1 for none.

    ``blocks`` is the number that each sequence holds at its full length. With ``ring_blocks`` a sequence takes that
    many at most and goes round them, as a window allows. All layers that fill their blocks alike share one table.
    ``num_blocks`` is the pool's size where sequences come and go and never all hold their full number at once.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        block_size: int,
        device: torch.device,
        seed: int,
        ring_blocks: int | None = None,
        num_blocks: int | None = None,
    ) -> None:
        self.block_size = block_size
        self.ring_blocks = ring_blocks
        self.num_blocks = sum(blocks) if num_blocks is None else num_blocks
        self.entries = torch.full((len(blocks), max(blocks, default=0)), -1, dtype=torch.int32, device=device)
        self.free = list(range(self.num_blocks))
        random.Random(seed).shuffle(self.free)  # noqa: S311 - a reproducible order, no secret
        self.held: list[list[int]] = [[] for _ in blocks]
        self.holders = [0] * self.num_blocks
        self.copies: list[tuple[int, int]] = []  # (block, its copy): every cache behind this table copies them in turn

    def grow(self, sequence: int, length: int) -> None:
        """Give a sequence the blocks that ``length`` positions need and that it hasn't yet."""
        wanted = -(-length // self.block_size)
        if self.ring_blocks is not None:
            wanted = min(wanted, self.ring_blocks)
        while len(self.held[sequence]) < wanted:
            self.held[sequence].append(-1)
            self._put(sequence, len(self.held[sequence]) - 1, self._take())

    def _take(self) -> int:
        """The next free block. Raises CapacityError where there is none."""
        if not self.free:
            raise CapacityError(f"all {self.num_blocks} blocks are held", fix="end a sequence, or make a larger pool")
        block = self.free.pop()
        self.holders[block] += 1
        return block

    def _put(self, sequence: int, place: int, block: int) -> None:
        self.held[sequence][place] = block
        self.entries[sequence, place] = block

    def own(self, sequence: int, places: Iterable[int]) -> None:
        """Copy on write: blocks about to be written that another sequence holds too are replaced by copies."""
        for place in places:
            block = self.held[sequence][place]
            if self.holders[block] > 1:
                copy = self._take()
                self.holders[block] -= 1
                self.copies.append((block, copy))
                self._put(sequence, place, copy)

    def fork(self, source: int, target: int, length: int) -> None:
        """Let a new sequence begin with the blocks that hold another's first ``length`` positions."""
        for block in self.held[source][: -(-length // self.block_size)]:
            self.holders[block] += 1
            self.held[target].append(block)
            self.entries[target, len(self.held[target]) - 1] = block

    def release(self, sequence: int) -> None:
        """Take a sequence's blocks back; those that nobody else holds are free again."""
        for block in self.held[sequence]:
            self.holders[block] -= 1
            if not self.holders[block]:
                self.free.insert(0, block)
        self.held[sequence] = []
        self.entries[sequence] = -1

    def slots(self, sequence: int) -> int:
        """How many positions the blocks of a sequence can hold."""
        return len(self.held[sequence]) * self.block_size


@dataclass(frozen=True, slots=True)
class HeldBlocks:
    """Rows that are gathered from their blocks only as they are asked for."""

    positions: Tensor
    pool: Tensor  # [heads, blocks, block_size, width]
    blocks: Tensor  # the sequence's, in table order

    @property
    def rows(self) -> Tensor:
        """Gather all."""
        return self.part(0, len(self.positions))

    def part(self, low: int, high: int) -> Tensor:
        """Gather the blocks that hold the rows low … high - 1."""
        size, high = self.pool.shape[2], min(high, len(self.positions))
        first = low // size
        rows = self.pool[:, self.blocks[first : -(-high // size)]].flatten(1, 2)
        return rows[:, low - first * size : high - first * size]


class PagedCache:
    """A pool ``[blocks, heads, block_size, width]``, read through a ``BlockTable``."""

    def __init__(self, shape: RowShape, table: BlockTable, device: torch.device) -> None:
        self.table = table
        self.pool = unwritten(shape, table.num_blocks, slots=table.block_size, device=device)
        self.lengths = [0] * len(table.held)
        self.copied = 0  # how many of the table's copies this pool has made

    def append(self, sequence: int, rows: Tensor) -> None:
        """Write every row at (block of its slot, offset in that block)."""
        start, length = self.lengths[sequence], self.lengths[sequence] + rows.shape[1]
        self.table.grow(sequence, length)
        size = self.table.slots(sequence)
        rows = rows[:, -size:] if rows.shape[1] > size else rows
        start = length - rows.shape[1]
        slots = torch.arange(start, length, device=rows.device) % size if size else torch.arange(0, device=rows.device)
        if size:
            self.table.own(sequence, sorted({place % size // self.table.block_size for place in range(start, length)}))
        self._copy()
        blocks = self.table.entries[sequence, slots // self.table.block_size].long()
        self.pool[blocks, :, slots % self.table.block_size] = rows.transpose(0, 1)
        self.lengths[sequence] = length

    def read(self, sequence: int) -> Held:
        """Name the sequence's blocks in table order."""
        length = self.lengths[sequence]
        positions = ring_positions(length, max(self.table.slots(sequence), 1), self.pool.device)
        count = -(-len(positions) // self.table.block_size)
        return HeldBlocks(positions, self.pool.transpose(0, 1), self.table.entries[sequence, :count].long())

    def extend(self, sequence: int, rows: Tensor) -> Held:
        """As in a ring: a chunk may overwrite rows that its own first query still sees, so those are read first."""
        if self.table.ring_blocks is None or rows.shape[1] == 1:
            self.append(sequence, rows)
            return self.read(sequence)
        held = joined(self.read(sequence), rows, self.lengths[sequence])
        self.append(sequence, rows)
        return held

    def _copy(self) -> None:
        """Make the copies that the table has asked for since this pool was written last."""
        for block, copy in self.table.copies[self.copied :]:
            self.pool[copy] = self.pool[block]
        self.copied = len(self.table.copies)

    def fork(self, target: int, length: int) -> None:
        """A new sequence begins with another's first rows, whose blocks the table shares with it."""
        self.lengths[target] = length

    def end(self, sequence: int) -> None:
        """Forget a sequence; its blocks go back to the table, which other caches share."""
        self.lengths[sequence] = 0

    def tensors(self) -> list[Tensor]:
        """The pool; the table is weighed once for all layers that share it."""
        return [self.pool]
