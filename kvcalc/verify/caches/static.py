"""The preallocated cache: one array made for ``capacity`` positions at the start, and written in place."""

from __future__ import annotations

import torch
from torch import Tensor

from kvcalc.verify.caches.base import Held, HeldRows, RowShape, span, unwritten


class StaticCache:
    """``[sequences, heads, capacity, width]``; a step writes its own rows and moves nothing else."""

    def __init__(self, shape: RowShape, sequences: int, device: torch.device, capacity: int) -> None:
        self.rows = unwritten(shape, sequences, slots=capacity, device=device)
        self.lengths = [0] * sequences

    def append(self, sequence: int, rows: Tensor) -> None:
        """Write behind the last row."""
        start = self.lengths[sequence]
        stop = start + rows.shape[1]
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

    def tensors(self) -> list[Tensor]:
        """The one array."""
        return [self.rows]
