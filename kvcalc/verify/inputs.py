"""Seeded numbers, made again whenever they are asked for, so that nothing but the cache grows with the length.

Rows come in blocks of 64 positions, each from its own generator: any position of any array can be had without the ones
before it. The last few blocks are kept, up to a fixed number of bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from kvcalc.verify.codecs import LIMIT, PLAIN

BLOCK = 64
KEPT_BYTES = 50 * 2**20

Key = tuple[object, ...]


class Inputs:
    """All random numbers of one run: equal seeds give equal numbers on the same kind of device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self._blocks: OrderedDict[Key, Tensor] = OrderedDict()
        self._bytes = 0
        self.weights: dict[object, tuple[Tensor, ...]] = {}  # what layers of one kind share, made once

    def generator(self, *key: object) -> torch.Generator:
        """A generator of its own for ``key``."""
        digest = blake2b(repr((self.seed, *key)).encode(), digest_size=8).digest()
        generator = torch.Generator(self.device)
        generator.manual_seed(int.from_bytes(digest) >> 1)
        return generator

    def uniform(self, *key: object, shape: Sequence[int], low: float = -LIMIT, high: float = LIMIT) -> Tensor:
        """float32 numbers in [low, high)."""
        values = torch.empty(tuple(shape), dtype=torch.float32, device=self.device)
        return values.uniform_(low, high, generator=self.generator(*key))

    def block(self, rows: Rows, head: int, index: int) -> Tensor:
        """Block ``index`` of one head of an array, ``[64, width]``, from the kept ones or made anew."""
        key = (*rows.key, rows.heads, rows.width, rows.dtype, head, index)
        if key in self._blocks:
            self._blocks.move_to_end(key)
            return self._blocks[key]
        made = self.uniform(*key, shape=(BLOCK, rows.width)).to(PLAIN[rows.dtype]).float()
        self._blocks[key] = made
        self._bytes += made.nbytes
        while self._bytes > KEPT_BYTES and len(self._blocks) > 1:
            _, gone = self._blocks.popitem(last=False)
            self._bytes -= gone.nbytes
        return made

    def rows(self, *key: object, heads: int, width: int, dtype: str = "float32") -> Rows:
        """An array whose numbers are exact in ``dtype``."""
        return Rows(self, key, heads, width, dtype)


@dataclass(frozen=True)
class Rows:
    """One array of one sequence, ``[heads, positions, width]`` in float32, of any length."""

    inputs: Inputs
    key: Key
    heads: int
    width: int
    dtype: str
    parent: Rows | None = None  # whose first ``shared`` rows these begin with: a forked sequence
    shared: int = 0

    def between(self, start: int, stop: int) -> Tensor:
        """Rows of the positions start … stop - 1."""
        return torch.stack([self.head(head, start, stop) for head in range(self.heads)])

    def head(self, head: int, start: int, stop: int) -> Tensor:
        """One head's rows of the positions start … stop - 1, ``[n, width]``."""
        if self.parent is not None and start < self.shared < stop:
            return torch.cat((self.head(head, start, self.shared), self.head(head, self.shared, stop)))
        if self.parent is not None and start < self.shared:
            return self.parent.head(head, start, stop)
        first, last = start // BLOCK, max(stop - 1, start) // BLOCK
        blocks = [self.inputs.block(self, head, index) for index in range(first, last + 1)]
        whole = blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        return whole[start - first * BLOCK : stop - first * BLOCK]

    def at(self, positions: Sequence[int]) -> Tensor:
        """Rows of a few positions, in their order; each block is made once."""
        found = {position: self.between(position, position + 1)[:, 0] for position in sorted(set(positions))}
        return torch.stack([found[position] for position in positions], dim=1)
