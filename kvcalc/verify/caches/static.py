"""The preallocated cache: one array made for ``capacity`` positions at the start, and written in place."""

from __future__ import annotations

import torch
from torch import Tensor

from kvcalc.verify.caches.base import CapacityError, Held, HeldRows, RowShape, span, unwritten


class StaticCache:
    """``[sequences, heads, capacity, width]``; a step writes its own rows and moves nothing else."""

    def __init__(self, shape: RowShape, sequences: int, device: torch.device, capacity: int) -> None:
        self.rows = unwritten(shape, sequences, slots=capacity, device=device)
        self.lengths = [0] * sequences

    def append(self, sequence: int, rows: Tensor) -> None:
        """Write behind the last row. Raises CapacityError where the array ends before the rows do."""
        start = self.lengths[sequence]
        stop = start + rows.shape[1]
        if stop > self.rows.shape[2]:
            raise CapacityError(f"{stop:,} positions don't fit a capacity of {self.rows.shape[2]:,}", fix="make it larger")
        self.rows[sequence, :, start:stop] = rows
        self.lengths[sequence] = stop

    def read(self, sequence: int) -> Held:
        """A view of the rows written so far: nothing is copied."""
        length = self.lengths[sequence]
        return HeldRows(self.rows[sequence, :, :length], span(0, length, self.rows.device))

    def extend(self, sequence: int, rows: Tensor) -> Held:
        """Append, then read."""
        self.append(sequence, rows)
        return self.read(sequence)

    def end(self, sequence: int) -> None:
        """Forget a sequence: its rows stay until the next one overwrites them, and are never read."""
        self.lengths[sequence] = 0

    def tensors(self) -> list[Tensor]:
        """The one array."""
        return [self.rows]
