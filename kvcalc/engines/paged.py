"""The cache in blocks: every sequence takes whole blocks of ``block-size`` positions, found through a block table.

- An array that grows takes ceil(rows / block-size) blocks a sequence.
- A window takes at most ceil(window / block-size): its blocks are used as a ring, position p standing in block
  (p // block-size) mod that number. A ring of whole blocks is never shorter than the window.
- A convolution window, a state and the encoder's keys don't grow and stay as they are, outside the blocks.
- Arrays that fill their blocks alike (all full-attention layers, say) share one table: int32 entries, sequences × the
  blocks of the longest sequence. Tables belong to no layer and count as ``other``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from kvcalc.core.counting import Reach, Slab, SlabRule, Types, slabs_of, tally_layers, total_function
from kvcalc.core.layers import Layer, Part, runs
from kvcalc.core.model import Array, Model, Request, Tally
from kvcalc.engines.base import Engine, Option, counted_layers, resolve_request
from kvcalc.engines.ranks import by_rank, sharing, total_by_rank

DEFAULT_BLOCK_SIZE = 16
TABLE_ENTRY_BYTES = 4  # int32


def paged_slabs(part: Part, types: Types, block_size: int) -> tuple[Slab, ...]:
    """The exact slabs with every reach that grows rounded up to whole blocks."""
    return tuple(
        slab if slab.reach.fixed is not None else replace(slab, reach=replace(slab.reach, step=block_size))
        for slab in slabs_of(part, types)
    )


def table_reaches(layers: tuple[Layer, ...], types: Types, block_size: int) -> tuple[Reach, ...]:
    """One reach for every block table: arrays that fill their blocks alike share one."""
    slabs = (slab for _, _, layer in runs(layers) for part in layer for slab in paged_slabs(part, types, block_size))
    return tuple(dict.fromkeys(slab.reach for slab in slabs if slab.reach.fixed is None))


def allocate(model: Model, request: Request) -> Tally:
    """Whole blocks of every layer, and the tables. Raises DtypeError, ConfigError."""
    block_size = _block_size(request)
    filled, types, resolved = resolve_request(model, request)
    layers = counted_layers(model, filled)
    tables = tuple(_table(reach, block_size, filled) for reach in table_reaches(layers, types, block_size))
    origin = "-o block-size" if "block-size" in request.options else "default"
    return Tally(
        tally_layers(layers, filled.sequences, types, _rule(block_size)),
        shared=tables,
        request={**resolved, "block_size": (block_size, origin)},
        report={"block_size": block_size, "tables": len(tables), "table_bytes": sum(table.bytes for table in tables)},
    )


def _table(reach: Reach, block_size: int, request: Request) -> Array:
    sequences = sum(count for _, count in request.sequences)
    columns = max(reach.rows(tokens) for tokens, _ in request.sequences) // block_size
    return Array("other", "block table", sequences, TABLE_ENTRY_BYTES * columns, 1, columns, "int32", _whose(reach))


def _whose(reach: Reach) -> str:
    if reach.cap is not None:
        return f"of windows of {reach.cap:,}"
    return "of the whole length" if reach.ratio == 1 else f"of a row for every {reach.ratio:,} tokens"


def total(model: Model, request: Request) -> Callable[[int, int], int]:
    """The same figure as a function of batch and tokens."""
    block_size = _block_size(request)
    filled, types, _ = resolve_request(model, request)
    layers = counted_layers(model, filled)
    blocks = total_function(layers, types, _rule(block_size))
    reaches = table_reaches(layers, types, block_size)

    def total_bytes(batch_size: int, tokens: int) -> int:
        columns = sum(reach.rows(tokens) // block_size for reach in reaches)
        return blocks(batch_size, tokens) + batch_size * TABLE_ENTRY_BYTES * columns

    return total_bytes


def step(model: Model, request: Request) -> int:  # noqa: ARG001 - the signature of every engine's step
    """A block, the smallest growth of any layer that grows."""
    return _block_size(request)


def _rule(block_size: int) -> SlabRule:
    return partial(paged_slabs, block_size=block_size)


def _block_size(request: Request) -> int:
    return int(request.options.get("block-size", DEFAULT_BLOCK_SIZE))


ENGINE = Engine(
    name="paged",
    version="1",
    source="whole blocks of block-size positions a sequence, and an int32 block table",
    evidence="measured: equal to a cache in blocks (kvcalc verify)",
    allocate=by_rank(allocate),
    options=(Option("block-size", "count", "positions a block holds", str(DEFAULT_BLOCK_SIZE), minimum=1),),
    step=step,
    total=total_by_rank(total),
    ranks=sharing,
    excluded=("weights", "activations and workspace", "blocks that no sequence holds", "allocator overhead"),
)
