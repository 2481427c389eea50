"""Ways to break a cache: wrong rows, rows of one sequence, wrong blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from kvcalc.core.counting import Reach
from kvcalc.dtypes import Dtype
from kvcalc.verify.caches.base import Held, RowCache, RowShape
from kvcalc.verify.codecs import CODECS, IntegerCodec
from kvcalc.verify.layouts import Maker

Break = Callable[[Tensor, int], Tensor]  # (rows of one append [heads, n, width], the broken row's index among them) → rows
Place = Callable[[Reach], int]  # which row of an array of this reach


class BrokenCache:
    """A cache that stores one row of one sequence wrongly."""

    def __init__(self, inner: RowCache, sequence: int, position: int, change: Break) -> None:
        self.inner, self.sequence, self.position, self.change = inner, sequence, position, change
        self.fed: dict[int, int] = {}

    def _broken(self, sequence: int, rows: Tensor) -> Tensor:
        start = self.fed.get(sequence, 0)
        self.fed[sequence] = start + rows.shape[1]
        index = self.position - start
        return self.change(rows, index) if sequence == self.sequence and 0 <= index < rows.shape[1] else rows

    def append(self, sequence: int, rows: Tensor) -> None:
        """Break, then append."""
        self.inner.append(sequence, self._broken(sequence, rows))

    def extend(self, sequence: int, rows: Tensor) -> Held:
        """Break, then extend."""
        return self.inner.extend(sequence, self._broken(sequence, rows))

    def read(self, sequence: int) -> Held:
        """Give what is held."""
        return self.inner.read(sequence)

    def tensors(self) -> list[Tensor]:
        """Name what is held."""
        return self.inner.tensors()


@dataclass
class BrokenLayout:
    """A layout one of whose caches (None: all of them) stores one row wrongly."""

    inner: Maker
    change: Break
    sequence: int
    place: Place
    which: int | None = None
    made: int = field(default=0)

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """Make caches in turn, and break the one that is meant."""
        made, number = self.inner.cache(shape, reach), self.made
        self.made += 1
        if self.which is not None and number != self.which:
            return made
        return BrokenCache(made, self.sequence, self.place(reach), self.change)


@dataclass
class OtherWindow:
    """A layout that keeps ``more`` rows of every window."""

    inner: Maker
    more: int

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """Keep more, or fewer."""
        return self.inner.cache(shape, replace(reach, cap=None if reach.cap is None else reach.cap + self.more))


def stale_row(rows: Tensor, index: int) -> Tensor:
    """The row before it is still there (a row of zeros where the append has none)."""
    rows = rows.clone()
    rows[:, index] = rows[:, index - 1] if index else 0
    return rows


def columns(first: int, last: int | None, head: int = -1) -> Break:
    """Some numbers of one head's row are its neighbour's, or nothing."""

    def change(rows: Tensor, index: int) -> Tensor:
        rows = rows.clone()
        rows[head, index, first:last] = rows[head, index - 1, first:last] if index else 0
        return rows

    return change


def dropped_row(rows: Tensor, index: int) -> Tensor:
    """The row never arrives."""
    return torch.cat((rows[:, :index], rows[:, index + 1 :]), dim=1)


def without_scale(dtype: Dtype) -> Break:
    """The row's first scale is lost: zero in a ggml block, one for integers."""

    def change(rows: Tensor, index: int) -> Tensor:
        rows, codec = rows.clone(), CODECS[dtype.name]
        if isinstance(codec, IntegerCodec):
            rows[:, index] = torch.round(rows[:, index].float() * codec.step).to(rows.dtype)
        else:
            rows[:, index, :2] = 0  # the first block's d
        return rows

    return change
