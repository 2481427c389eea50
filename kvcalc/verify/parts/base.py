"""What the proofs of all parts share: the run they belong to, the queries that are checked, and the worst error found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from kvcalc.core.counting import Types
from kvcalc.verify.codecs import PLAIN, Codec, codec_of
from kvcalc.verify.device import wide
from kvcalc.verify.inputs import Inputs, Rows
from kvcalc.verify.layouts import Maker
from kvcalc.verify.reference import formats
from kvcalc.verify.results import Measure

QUERY_SLICE = 32  # queries attended at once, and
ATTEND_BLOCK = 4096  # rows: both bound the score array
KEY_BLOCK = 256  # stored rows compared at once


@dataclass
class Context:
    """One run: its numbers, types and lengths, and the positions of each sequence whose outputs are checked."""

    inputs: Inputs
    types: Types
    lengths: tuple[int, ...]
    checked: tuple[tuple[int, ...], ...]  # ascending, for each sequence
    forks: tuple[tuple[int, int] | None, ...] = ()  # for each sequence the one that it begins like, and for how many positions

    @property
    def device(self) -> torch.device:
        """Where everything lies."""
        return self.inputs.device

    @property
    def wide(self) -> torch.dtype:
        """The reference's type."""
        return wide(self.device)

    @property
    def slack(self) -> float:
        """What tolerances are multiplied by: a reference in float32 errs as much as what it is held against."""
        return 1.0 if self.wide == torch.float64 else 2.0

    @property
    def k(self) -> Codec:
        """How keys are stored."""
        return codec_of(self.types.k)

    @property
    def v(self) -> Codec:
        """How values are stored."""
        return codec_of(self.types.v)

    @property
    def quantized(self) -> bool:
        """Whether a side of the cache loses digits."""
        return not {self.types.k.name, self.types.v.name} <= set(PLAIN)

    @property
    def sequences(self) -> range:
        """The sequences' numbers."""
        return range(len(self.lengths))

    def positions(self, sequence: int) -> Tensor:
        """The checked positions as a tensor."""
        return torch.tensor(self.checked[sequence], device=self.device)

    def unchecked(self) -> Context:
        """The same run without checked outputs: rows are stored and compared all the same."""
        return replace(self, checked=((),) * len(self.lengths))

    def rows(self, sequence: int, *key: object, heads: int, width: int, dtype: str = "float32") -> Rows:
        """An array of one sequence; a fork begins with its parent's rows."""
        own = self.inputs.rows(*key, sequence, heads=heads, width=width, dtype=dtype)
        fork = self.forks[sequence] if self.forks else None
        if fork is None:
            return own
        return replace(own, parent=self.rows(fork[0], *key, heads=heads, width=width, dtype=dtype), shared=fork[1])

    def within(self, sequence: int, start: int, stop: int) -> slice:
        """Which of the checked positions lie in start … stop - 1."""
        inside = [index for index, position in enumerate(self.checked[sequence]) if start <= position < stop]
        return slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)


def plain_name(codec: Codec) -> str:
    """The plain type in which a codec's inputs are exact."""
    return codec.name if codec.name in PLAIN else "float32"


def expected_numbers(codec: Codec, rows: Tensor, heads: int) -> Tensor:
    """What stored rows ``[heads or 1, n, …]`` mean by their format's definition, ``[heads, n, width]``."""
    parts = [formats.decode(codec.name, head) for head in rows]
    if len(parts) == heads:
        return torch.stack(parts)
    return parts[0].reshape(len(parts[0]), heads, -1).transpose(0, 1)


def format_bound(codec: Codec, numbers: Tensor) -> Tensor:
    """How far stored numbers may be from ``[heads, n, width]``; plain types hold verify's numbers as they are."""
    if codec.name in PLAIN:
        return torch.zeros_like(numbers)
    whole = numbers.transpose(0, 1).reshape(numbers.shape[1], -1)
    return formats.bound(codec.name, whole).reshape(numbers.shape[1], len(numbers), -1).transpose(0, 1)


@dataclass
class Tracker:
    """Remembers the output that comes nearest to its tolerance."""

    what: str
    error: float = 0.0
    tolerance: float = 0.0
    outputs: int = 0
    _ratio: float = -1.0

    def add(self, found: Tensor, expected: Tensor, tolerance: Tensor | float, outputs: int | None = None) -> None:
        """Compare; NaN, infinity and rows that are missing count as infinitely far. A float tolerance fits any shape."""
        self.outputs += found.shape[-2] if outputs is None else outputs
        if found.shape != expected.shape:
            self._keep(math.inf, 0.0)
            return
        error = (found.to(expected.dtype) - expected).abs()
        if error.numel() == 0:
            return
        if isinstance(tolerance, Tensor):
            ratio = torch.where(error == 0, error, error / tolerance).nan_to_num(nan=math.inf).flatten()
            worst = int(ratio.argmax())
            self._keep(float(error.flatten()[worst]), float(tolerance.expand_as(error).flatten()[worst]))
        else:
            self._keep(float(error.max()), tolerance)

    def same(self, outputs: int) -> None:
        """Count what was found equal to the bit."""
        self.outputs += outputs
        self._keep(0.0, 0.0)

    def count(self, wrong: int) -> None:
        """Take one inspection that found so many things wrong."""
        self.outputs += 1
        self._keep(float(wrong), 0.0)

    def _keep(self, error: float, tolerance: float) -> None:
        error = error if error == error else math.inf  # NaN differs from itself
        ratio = error / tolerance if tolerance > 0 else math.inf if error > 0 else 0.0
        if ratio > self._ratio:
            self._ratio, self.error, self.tolerance = ratio, error, tolerance

    def measure(self) -> Measure:
        """What was found."""
        return Measure(self.what, self.error, self.tolerance, self.outputs)


class OpenPart(Protocol):
    """A part with its caches made under one layout."""

    def step(self, sequence: int, start: int, stop: int) -> None:
        """Feed the positions start … stop - 1 and check the outputs among them."""

    def tensors(self) -> list[Tensor]:
        """Name everything that the caches hold."""

    def measures(self, layer: int) -> list[Measure]:
        """Say what was found for a layer: the part's own, or one that reads its cache."""


class PartProof(Protocol):
    """A part of one layer with its inputs and reference."""

    def prepare(self) -> None:
        """Compute the reference; done once, for all layouts."""

    def open(self, layout: Maker) -> OpenPart:
        """Make its caches."""


def anchored(
    base: Tensor, choices: Sequence[Sequence[int]], key_rows: Callable[[Sequence[int]], Tensor], scale: float, seen: Sequence[int]
) -> Tensor:
    """Queries that hang on single positions, so that one wrong row shows.

    Attention over random keys averages them, and a wrong one among thousands would drown in rounding. So query n of
    head h is turned towards the key at one of ``choices[n]`` until that key alone has about e² times the weight of
    the ``seen[n]`` others together. ``base`` is ``[heads, n, width]``; ``key_rows(positions)`` gives
    ``[kv_heads or heads, positions, width]``.
    """
    heads, count, _ = base.shape
    wanted = sorted({position for options in choices for position in options})
    rows = key_rows(wanted)
    place = {position: index for index, position in enumerate(wanted)}
    picked = [[place[options[(head + n) % len(options)]] for n, options in enumerate(choices)] for head in range(heads)]
    index = torch.tensor(picked, device=base.device)[:, :, None].expand(heads, count, rows.shape[2])
    keys = rows.repeat_interleave(heads // rows.shape[0], 0).gather(1, index)
    pull = torch.tensor([math.log(m) + 2 for m in seen], device=base.device)[None, :, None]
    return base + pull / scale * keys / keys.square().sum(-1, keepdim=True)
