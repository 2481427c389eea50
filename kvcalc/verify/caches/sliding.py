"""The ring: ``size`` slots, position p in slot p mod size, so that a new row takes the place of the one that left."""

from __future__ import annotations

import torch
from torch import Tensor

from kvcalc.verify.caches.base import Held, HeldRows, RowShape, joined, unwritten


def ring_positions(length: int, size: int, device: torch.device) -> Tensor:
    """The position in each filled slot after ``length`` positions: the last p < length with p mod size = slot."""
    slots = torch.arange(min(length, size), device=device)
    return slots + (length - 1 - slots) // size * size


class RingCache:
    """``[sequences, heads, size, width]`` for sliding windows, and for chunked attention with size = chunk.

    After one-token steps the ring holds just what the next query may see, in another order: attention doesn't mind,
    since a row's position was given to its key before it was stored.
    """

    def __init__(self, shape: RowShape, sequences: int, device: torch.device, size: int) -> None:
        self.size = size
        self.rows = unwritten(shape, sequences, slots=size, device=device)
        self.lengths = [0] * sequences

    def append(self, sequence: int, rows: Tensor) -> None:
        """Write each row into its slot; of more rows than slots only the last are written."""
        length = self.lengths[sequence] + rows.shape[1]
        rows = rows[:, -self.size :]
        slots = torch.arange(length - rows.shape[1], length, device=rows.device) % self.size
        self.rows[sequence][:, slots] = rows
        self.lengths[sequence] = length

    def read(self, sequence: int) -> Held:
        """The filled slots, in slot order: nothing is copied."""
        positions = ring_positions(self.lengths[sequence], self.size, self.rows.device)
        return HeldRows(self.rows[sequence, :, : len(positions)], positions)

    def extend(self, sequence: int, rows: Tensor) -> Held:
        """A chunk overwrites rows that its own first query still sees, so those are read first."""
        if rows.shape[1] == 1:
            self.append(sequence, rows)
            return self.read(sequence)
        held = joined(self.read(sequence), rows, self.lengths[sequence])
        self.append(sequence, rows)
        return held

    def tensors(self) -> list[Tensor]:
        """The one array."""
        return [self.rows]
