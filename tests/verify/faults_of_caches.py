"""Faults of attention, of stored rows and of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvcalc.core.counting import Reach
from kvcalc.verify import attention
from kvcalc.verify.attention import Visibility
from kvcalc.verify.caches import paged, sliding
from kvcalc.verify.caches.base import RowShape
from kvcalc.verify.caches.concat import ConcatCache
from kvcalc.verify.caches.paged import BlockTable, PagedCache
from kvcalc.verify.caches.sliding import RingCache
from kvcalc.verify.caches.static import StaticCache
from kvcalc.verify.parts import key_value
from kvcalc.verify.parts.key_value import KeyValueProof, OpenKeyValue
from verify.fault_tools import Patch, fault, wrapped

# Attention


def attending(patch: Patch, change: Callable[..., Any]) -> None:
    """Change ``attend_in_blocks(queries, blocks, scale)`` where the steps use it."""
    wrapped(patch, key_value, "attend_in_blocks", change)


@fault("grouped heads are mapped in the interleaved way", "full")
def interleaved(patch: Patch) -> None:
    def fold(queries: Tensor, kv_heads: int) -> Tensor:
        order = torch.arange(queries.shape[0]).view(-1, kv_heads).T.reshape(-1)
        return queries[order].reshape(kv_heads, -1, queries.shape[-1])

    patch.setattr(attention, "fold", fold)


@fault("the score's scale is a thousandth too large", "full")
def scale_up(patch: Patch) -> None:
    attending(patch, lambda original, q, blocks, scale: original(q, blocks, scale * 1.001))


@fault("the score's scale is a thousandth too small", "full")
def scale_down(patch: Patch) -> None:
    attending(patch, lambda original, q, blocks, scale: original(q, blocks, scale * 0.999))


@fault("the scale is of the values' width, not of the keys'", "full, narrow values")
def scale_of_values(patch: Patch) -> None:
    original = KeyValueProof.__init__

    def made(self: KeyValueProof, *arguments: Any) -> None:
        original(self, *arguments)
        self.scale = self.part.v_head_dim**-0.5

    patch.setattr(KeyValueProof, "__init__", made)


@fault("queries are kept in fp8", "full")
def queries_fp8(patch: Patch) -> None:
    attending(patch, lambda original, q, blocks, scale: original(q.to(torch.float8_e4m3fn).float(), blocks, scale))


@fault("queries are kept in bfloat16", "full")
def queries_bf16(patch: Patch) -> None:
    attending(patch, lambda original, q, blocks, scale: original(q.bfloat16().float(), blocks, scale))


@fault("attention is computed in bfloat16", "full")
def computed_bf16(patch: Patch) -> None:
    def change(original: Any, q: Tensor, blocks: Any, scale: float) -> Tensor:
        narrow = ((k.bfloat16(), v.bfloat16(), seen) for k, v, seen in blocks)
        found: Tensor = original(q.bfloat16(), narrow, scale)
        return found.float()

    attending(patch, change)


@fault("the running maximum isn't carried from block to block", "full")
def rescale_lost(patch: Patch) -> None:
    patch.setattr(key_value, "ATTEND_BLOCK", 8)
    wrapped(patch, torch, "exp", lambda original, x: original(x) if x.shape[-1] != 1 else torch.ones_like(x))


@fault("new tokens of one step see each other's future", "full")
def no_triangle(patch: Patch) -> None:
    patch.setattr(Visibility, "mask_or_none", lambda self, queries, keys, alone: None)


@fault("a query doesn't see its own position", "full")
def not_itself(patch: Patch) -> None:
    wrapped(patch, Visibility, "mask", lambda original, self, q, k: original(self, q, k) & ((k < q[:, None]) | (q[:, None] == 0)))


@fault("a window is one too long, in the mask alone", "sliding")
def window_mask_long(patch: Patch) -> None:
    def mask(original: Any, self: Visibility, q: Tensor, k: Tensor) -> Tensor:
        found: Tensor = original(Visibility(window=(self.window or 0) + 1), q, k)
        return found

    wrapped(patch, Visibility, "mask", mask)


@fault("a window is one too short, in the mask alone", "sliding")
def window_mask_short(patch: Patch) -> None:
    wrapped(patch, Visibility, "mask", lambda original, self, q, k: original(Visibility(window=(self.window or 2) - 1), q, k))


@fault("a window is one too short everywhere", "sliding")
def window_short(patch: Patch) -> None:
    patch.setattr(key_value, "sight_of", lambda part: Visibility(window=part.window - 1))


@fault("a window is one too long everywhere", "sliding")
def window_long(patch: Patch) -> None:
    patch.setattr(key_value, "sight_of", lambda part: Visibility(window=part.window + 1))
    patch.setattr(key_value, "reach_of", lambda part, context: Reach(cap=part.window + 1))


@fault("a chunk is taken for a window", "chunked")
def chunk_as_window(patch: Patch) -> None:
    patch.setattr(key_value, "sight_of", lambda part: Visibility(window=part.chunk))


@fault("chunks begin one position late", "chunked")
def chunk_late(patch: Patch) -> None:
    def mask(original: Any, self: Visibility, q: Tensor, k: Tensor) -> Tensor:
        size = self.chunk or 1
        return (k[None, :] <= q[:, None]) & ((k[None, :] + 1) // size == (q[:, None] + 1) // size) | (k[None, :] == q[:, None])

    wrapped(patch, Visibility, "mask", mask)


@fault("cross attention sees only as many rows as tokens", "full and cross")
def cross_causal(patch: Patch) -> None:
    patch.setattr(key_value, "sight_of", lambda part: Visibility())


# Rows


@fault("every cache loses the rows of sequences after the first", "full")
def later_sequences_lost(patch: Patch) -> None:
    for kind in (ConcatCache, StaticCache, PagedCache):
        wrapped(patch, kind, "append", lambda original, self, sequence, rows: original(self, sequence, rows * (sequence == 0)))


@fault("the concatenated cache loses the third sequence", "full")
def third_sequence_lost(patch: Patch) -> None:
    wrapped(patch, ConcatCache, "append", lambda original, self, sequence, rows: original(self, sequence, rows * (sequence < 2)))


@fault("a static cache writes every step one row late", "full")
def static_late(patch: Patch) -> None:
    def append(self: StaticCache, sequence: int, rows: Tensor) -> None:
        start, stop = self.lengths[sequence], self.lengths[sequence] + rows.shape[1]
        self.rows[sequence, :, start + 1 : stop] = rows[:, :-1]
        self.rows[sequence, :, start : start + 1] = rows[:, :1] if start < self.rows.shape[2] else rows[:, :0]
        self.lengths[sequence] = stop

    patch.setattr(StaticCache, "append", append)


@fault("a static cache drops what doesn't fit without a word", "full")
def static_overrun(patch: Patch) -> None:
    def append(self: StaticCache, sequence: int, rows: Tensor) -> None:
        start = self.lengths[sequence]
        stop = min(start + rows.shape[1], self.rows.shape[2])
        self.rows[sequence, :, start:stop] = rows[:, : stop - start]
        self.lengths[sequence] = stop

    patch.setattr(StaticCache, "append", append)


@fault("the last row of a prompt is never stored", "full")
def last_of_prompt(patch: Patch) -> None:
    def append(original: Any, self: StaticCache, sequence: int, rows: Tensor) -> None:
        original(self, sequence, torch.cat((rows[:, :-1], rows[:, -1:] * (rows.shape[1] < 8)), dim=1))

    wrapped(patch, StaticCache, "append", append)


@fault("values are stored where keys belong", "full")
def values_as_keys(patch: Patch) -> None:
    def rows(original: Any, self: OpenKeyValue, *where: int) -> tuple[Tensor, Tensor]:
        k, v = original(self, *where)
        return (v, k) if (v.shape, v.dtype) == (k.shape, k.dtype) else (k, v)

    wrapped(patch, OpenKeyValue, "_rows", rows)


@fault("a ring starts one slot late", "sliding")
def ring_late(patch: Patch) -> None:
    def append(self: RingCache, sequence: int, rows: Tensor) -> None:
        length = self.lengths[sequence] + rows.shape[1]
        rows = rows[:, -self.size :]
        slots = torch.arange(length - rows.shape[1] + 1, length + 1) % self.size
        self.rows[sequence][:, slots] = rows
        self.lengths[sequence] = length

    patch.setattr(RingCache, "append", append)


@fault("a ring's positions are those of its slots", "sliding")
def ring_positions(patch: Patch) -> None:
    patch.setattr(sliding, "ring_positions", lambda length, size, device: torch.arange(min(length, size)))


@fault("a chunk of new tokens overwrites rows that its first query still sees", "sliding")
def ring_overwrites(patch: Patch) -> None:
    def extend(self: RingCache, sequence: int, rows: Tensor) -> Any:
        self.append(sequence, rows)
        return self.read(sequence)

    patch.setattr(RingCache, "extend", extend)


@fault("a window of the concatenated cache drops one row too many", "sliding")
def concat_short(patch: Patch) -> None:
    original = ConcatCache.__init__

    def made(self: ConcatCache, shape: RowShape, sequences: int, device: torch.device, window: int | None = None) -> None:
        original(self, shape, sequences, device, None if window is None else window - 1)

    patch.setattr(ConcatCache, "__init__", made)


# Blocks


@fault("a page is given back while its entries stay", "full")
def entries_stay(patch: Patch) -> None:
    def release(self: BlockTable, sequence: int) -> None:
        self.free[:0] = self.held[sequence]
        self.held[sequence] = []

    patch.setattr(BlockTable, "release", release)


@fault("a block is freed twice", "full")
def double_free(patch: Patch) -> None:
    def release(original: Any, self: BlockTable, sequence: int) -> None:
        blocks = self.held[sequence][:1]
        original(self, sequence)
        self.free += blocks

    wrapped(patch, BlockTable, "release", release)


@fault("a sequence that ends keeps its blocks", "full")
def leaked(patch: Patch) -> None:
    def release(self: BlockTable, sequence: int) -> None:
        self.held[sequence] = []
        self.entries[sequence] = -1

    patch.setattr(BlockTable, "release", release)


@fault("a shared block is free as soon as one of its holders ends", "full")
def freed_while_shared(patch: Patch) -> None:
    def release(self: BlockTable, sequence: int) -> None:
        self.free[:0] = [block for block in self.held[sequence] if block not in self.free]
        self.held[sequence] = []
        self.entries[sequence] = -1

    patch.setattr(BlockTable, "release", release)


@fault("a shared block is written without a copy", "full")
def no_copy_on_write(patch: Patch) -> None:
    patch.setattr(BlockTable, "own", lambda self, sequence, places: None)


@fault("a copied block is left empty", "full")
def empty_copy(patch: Patch) -> None:
    patch.setattr(PagedCache, "_copy", lambda self: None)


@fault("a new sequence goes on where the last one in its row ended", "full")
def stale_length(patch: Patch) -> None:
    patch.setattr(PagedCache, "end", lambda self, sequence: None)


@fault("block and offset are exchanged", "full")
def transposed(patch: Patch) -> None:
    wrapped(patch, PagedCache, "append", lambda original, self, sequence, rows: original(self, sequence, rows.flip(1)))


@fault("the second block of every sequence is its first", "full")
def same_block(patch: Patch) -> None:
    def part(original: Any, self: paged.HeldBlocks, low: int, high: int) -> Tensor:
        blocks = self.blocks.clone()
        blocks[1:2] = blocks[0]
        found: Tensor = original(paged.HeldBlocks(self.positions, self.pool, blocks), low, high)
        return found

    wrapped(patch, paged.HeldBlocks, "part", part)
