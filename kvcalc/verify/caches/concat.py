"""The note's cache: every step concatenates, so it holds exactly what it was given, and moves all of it each time."""

from __future__ import annotations

import torch
from torch import Tensor

from kvcalc.verify.caches.base import Held, HeldRows, RowShape, joined, span


class ConcatCache:
    """Rows appended by ``torch.cat``; with a ``window``, only the last ``window`` positions are kept."""

    def __init__(self, shape: RowShape, sequences: int, device: torch.device, window: int | None = None) -> None:
        self.window = window
        self.rows = [torch.empty(shape.heads, 0, shape.width, dtype=shape.dtype, device=device) for _ in range(sequences)]
        self.lengths = [0] * sequences

    def append(self, sequence: int, rows: Tensor) -> None:
        """Copy old and new rows into a new array."""
        kept = self.rows[sequence]
        self.lengths[sequence] += rows.shape[1]
        if self.window is not None:
            first = max(kept.shape[1] + rows.shape[1] - self.window, 0)
            # Rows are dropped before the copy: a slice of the longer result would keep all of it in memory.
            kept, rows = kept[:, first:], rows[:, max(first - kept.shape[1], 0) :]
        self.rows[sequence] = torch.cat((kept, rows), dim=1)

    def read(self, sequence: int) -> Held:
        """All rows, oldest first."""
        rows, length = self.rows[sequence], self.lengths[sequence]
        return HeldRows(rows, span(length - rows.shape[1], length, rows.device))

    def extend(self, sequence: int, rows: Tensor) -> Held:
        """A chunk's first query still sees positions that the window drops once the chunk is in."""
        if self.window is None or rows.shape[1] == 1:
            self.append(sequence, rows)
            return self.read(sequence)
        held = joined(self.read(sequence), rows, self.lengths[sequence])
        self.append(sequence, rows)
        return held

    def tensors(self) -> list[Tensor]:
        """One array a sequence."""
        return self.rows
