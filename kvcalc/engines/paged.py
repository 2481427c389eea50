"""The cache in blocks: every sequence takes whole blocks of ``block-size`` positions, found through a block table.

- An array that grows takes ceil(rows / block-size) blocks a sequence.
- A window takes at most ceil(window / block-size): its blocks are used as a ring, position p standing in block
  (p // block-size) mod that number. A ring of whole blocks is never shorter than the window.
- A convolution window, a state and the encoder's keys don't grow and stay as they are, outside the blocks.
- Arrays that fill their blocks alike (all full-attention layers, say) share one table: int32 entries, sequences × the
  blocks of the longest sequence. Tables belong to no layer and count as ``other``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kvcalc.core.counting import Reach, Slab, SlabRule, Types, slabs_of, tally_layers, total_function
from kvcalc.core.layers import Layer, Part, runs
from kvcalc.core.model import Array, Model, Request, Tally
from kvcalc.engines.base import SERVED, Engine, Figure, Serving
from kvcalc.engines.options import Option
from kvcalc.engines.ranks import CountedRankPlan
from kvcalc.engines.releases import Rules, unversioned
from kvcalc.engines.requests import counted_layers, resolve_request

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


class PagedPlan(CountedRankPlan):
    """Whole blocks of every layer, and the tables."""

    def rank_tally(self, model: Model, request: Request) -> Tally:
        """Every layer's blocks, and one table for each reach. Raises DtypeError, ConfigError."""
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

    def rank_counter(self, model: Model, request: Request) -> Figure:
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

    @property
    def step(self) -> int:
        """A block, the smallest growth of any layer that grows."""
        return _block_size(self.request)


def _table(reach: Reach, block_size: int, request: Request) -> Array:
    sequences = sum(count for _, count in request.sequences)
    columns = max(reach.rows(tokens) for tokens, _ in request.sequences) // block_size
    return Array("other", "block table", sequences, TABLE_ENTRY_BYTES * columns, 1, columns, "int32", _whose(reach))


def _whose(reach: Reach) -> str:
    if reach.cap is not None:
        return f"of windows of {reach.cap:,}"
    return "of the whole length" if reach.ratio == 1 else f"of a row for every {reach.ratio:,} tokens"


def _rule(block_size: int) -> SlabRule:
    return partial(paged_slabs, block_size=block_size)


def _block_size(request: Request) -> int:
    return int(request.options.get("block-size", DEFAULT_BLOCK_SIZE))


class Paged(Engine):
    """The cache in blocks of ``kvcalc verify``."""

    name = "paged"
    source = "whole blocks of block-size positions a sequence, and an int32 block table"
    evidence = "measured: equal to a cache in blocks (kvcalc verify)"
    releases = unversioned("paged")
    own_options = (Option("block-size", "count", "positions a block holds", str(DEFAULT_BLOCK_SIZE), minimum=1),)
    excluded = ("weights", "activations and workspace", "blocks that no sequence holds", "allocator overhead")

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Every model whose layers are known."""
        del model, rules
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> PagedPlan:
        """A cache in blocks."""
        return PagedPlan(self, model, request, rules)


ENGINE = Paged()
