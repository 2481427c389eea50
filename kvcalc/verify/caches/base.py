"""What every cache of rows can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kvcalc.errors import UnsupportedError


class CapacityError(UnsupportedError):
    """More rows than a cache was made for."""

    code = "capacity"


@dataclass(frozen=True, slots=True)
class RowShape:
    """One position's stored row: ``heads`` vectors of ``width`` elements of ``dtype``."""

    heads: int
    width: int
    dtype: torch.dtype


class Held(Protocol):
    """What a cache holds of a sequence: m rows, and the position of each."""

    @property
    def positions(self) -> Tensor:
        """Give the m positions."""

    @property
    def rows(self) -> Tensor:
        """Give all rows, ``[heads, m, width]``."""

    def part(self, low: int, high: int) -> Tensor:
        """Give the rows low … high - 1."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows that lie side by side."""

    rows: Tensor
    positions: Tensor

    def part(self, low: int, high: int) -> Tensor:
        """Some of the rows."""
        return self.rows[:, low:high]


class RowCache(Protocol):
    """One array of several sequences."""

    def append(self, sequence: int, rows: Tensor) -> None:
        """Take the next rows of a sequence, ``[heads, n, width]``."""

    def read(self, sequence: int) -> Held:
        """Give what the cache holds of a sequence."""

    def extend(self, sequence: int, rows: Tensor) -> Held:
        """Append, and give what the new positions' queries may need: what was held, and the new rows."""

    def tensors(self) -> list[Tensor]:
        """Name everything that takes memory."""


def unwritten(shape: RowShape, *lead: int, slots: int, device: torch.device) -> Tensor:
    """``[*lead, heads, slots, width]`` with every bit set, NaN in a float: reading what was never written shows."""
    made = torch.empty(*lead, shape.heads, slots, shape.width, dtype=shape.dtype, device=device)
    made.view(torch.uint8).fill_(255)
    return made


def span(start: int, stop: int, device: torch.device) -> Tensor:
    """Positions start … stop - 1."""
    return torch.arange(start, stop, device=device)


def joined(held: Held, rows: Tensor, start: int) -> HeldRows:
    """What was held, and ``rows`` at the positions from ``start`` on."""
    new = span(start, start + rows.shape[1], rows.device)
    return HeldRows(torch.cat((held.rows, rows), dim=1), torch.cat((held.positions, new)))
