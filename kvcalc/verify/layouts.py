"""Where rows lie: the three layouts that a run can take, each under the engine of ``estimate`` that predicts its bytes.

Rows of a fixed number, an encoder's, are one plain array in all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from kvcalc.core.counting import Reach
from kvcalc.core.model import OptionValue
from kvcalc.verify.caches.base import RowCache, RowShape
from kvcalc.verify.caches.concat import ConcatCache
from kvcalc.verify.caches.paged import BlockTable, PagedCache
from kvcalc.verify.caches.sliding import RingCache
from kvcalc.verify.caches.static import StaticCache
from kvcalc.verify.events import Event


class Maker(Protocol):
    """Makes the cache of one array."""

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """Make the cache of one array whose rows follow ``reach``."""


class Layout(Maker, Protocol):
    """A maker of caches that says which engine, with which options, predicts it."""

    name: str
    engine: str
    device: torch.device

    def options(self) -> Mapping[str, OptionValue]:
        """Give the engine's options for the same rule."""

    def shared_tensors(self) -> list[Tensor]:
        """Name what belongs to no layer."""

    def apply(self, event: Event) -> None:
        """Let a sequence end, or begin like another."""


class Steady:
    """Sequences neither come nor go."""

    def apply(self, event: Event) -> None:
        """Raise: nothing of the kind happens here."""
        raise NotImplementedError(f"{event} in a layout whose sequences stay")


@dataclass
class ConcatLayout(Steady):
    """What the equation counts, appended by concatenation."""

    lengths: Sequence[int]
    device: torch.device
    name: str = "concat"
    engine: str = "exact"

    def options(self) -> Mapping[str, OptionValue]:
        """The equation has none."""
        return {}

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """Concatenate; a cap is a window."""
        if reach.fixed is not None:
            return StaticCache(shape, len(self.lengths), self.device, reach.fixed)
        return ConcatCache(shape, len(self.lengths), self.device, reach.cap)

    def shared_tensors(self) -> list[Tensor]:
        """Nothing is shared."""
        return []


@dataclass
class StaticLayout(Steady):
    """Everything made for ``capacity`` positions at the start."""

    lengths: Sequence[int]
    device: torch.device
    capacity: int
    name: str = "static"
    engine: str = "static"

    def options(self) -> Mapping[str, OptionValue]:
        """The capacity, as the engine calls it."""
        return {"capacity": self.capacity}

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """A plain array, or a ring where a window caps it."""
        rows, sequences = reach.rows(self.capacity), len(self.lengths)
        if reach.cap is None:
            return StaticCache(shape, sequences, self.device, rows)
        return RingCache(shape, sequences, self.device, rows)

    def shared_tensors(self) -> list[Tensor]:
        """Nothing is shared."""
        return []


@dataclass
class PagedLayout(Steady):
    """Whole blocks from pools, one table for all arrays that fill their blocks alike."""

    lengths: Sequence[int]
    device: torch.device
    block_size: int
    seed: int
    name: str = "paged"
    engine: str = "paged"
    tables: dict[Reach, BlockTable] = field(default_factory=dict)

    def options(self) -> Mapping[str, OptionValue]:
        """The block size, as the engine calls it."""
        return {"block-size": self.block_size}

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """A pool behind the table of its reach."""
        if reach.fixed is not None:
            return StaticCache(shape, len(self.lengths), self.device, reach.fixed)
        return PagedCache(shape, self.table(replace(reach, step=self.block_size)), self.device)

    def table(self, reach: Reach) -> BlockTable:
        """The table of all arrays of this reach, made when the first of them asks."""
        if reach not in self.tables:
            blocks = [reach.rows(length) // self.block_size for length in self.lengths]
            ring = None if reach.cap is None else -(-reach.cap // self.block_size)
            table = BlockTable(blocks, self.block_size, self.device, self.seed + len(self.tables), ring)
            self.tables[reach] = table
        return self.tables[reach]

    def shared_tensors(self) -> list[Tensor]:
        """The tables."""
        return [table.entries for table in self.tables.values()]
