"""Attention over what a cache holds, and which positions a query may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

LOWEST = -1e30  # below every score: what a row's maximum is before it has seen anything


@dataclass(frozen=True, slots=True)
class Visibility:
    """The positions that a query at position p may see: those up to p, within a window or p's own chunk."""

    window: int | None = None  # the last ``window`` positions, p's own among them
    chunk: int | None = None  # the positions from chunk · (p // chunk) on
    causal: bool = True  # False: everything (an encoder's positions)

    def first(self, position: int) -> int:
        """The first visible position."""
        if self.window is not None:
            return max(position - self.window + 1, 0)
        if self.chunk is not None:
            return position // self.chunk * self.chunk
        return 0

    def mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        """``[n, m]``, true where query n may see key m."""
        q, k = queries[:, None], keys[None, :]
        if not self.causal:
            return torch.ones(len(queries), len(keys), dtype=torch.bool, device=keys.device)
        seen = k <= q
        if self.window is not None:
            seen &= k > q - self.window
        if self.chunk is not None:
            seen &= k // self.chunk == q // self.chunk
        return seen

    def mask_or_none(self, queries: Tensor, keys: Tensor, alone: bool) -> Tensor | None:
        """No mask where none is needed.

        A single new token sees everything that a full cache, or a ring of just its window, holds: every cached position
        is past or present. Several new tokens need the triangle; a chunk, or a ring of more than the window, its edge.
        """
        if not self.causal or (alone and self.window is None and self.chunk is None):
            return None
        if alone and self.window is not None and len(keys) <= self.window:
            return None
        return self.mask(queries, keys)


def fold(queries: Tensor, kv_heads: int) -> Tensor:
    """``[heads, n, width]`` → ``[kv_heads, group · n, width]``: a group's queries as rows of one product with its key head.

    Repeating each key for its group instead would copy the cache; this reads it once.
    """
    return queries.reshape(kv_heads, -1, queries.shape[-1])


def attend(queries: Tensor, keys: Tensor, values: Tensor, scale: float, seen: Tensor | None = None) -> Tensor:
    """Softmax attention of ``[heads, n, width]`` queries over ``[kv_heads, m, …]`` keys and values.

    ``seen`` is ``[n, m]``; None sees everything.
    """
    heads, count = queries.shape[:2]
    scores = fold(queries, keys.shape[0]) @ keys.transpose(1, 2) * scale
    if seen is not None:
        shape = scores.shape
        scores = scores.view(shape[0], -1, count, shape[2]).masked_fill(~seen, -torch.inf).view(shape)
    return (scores.softmax(-1) @ values).reshape(heads, count, values.shape[-1])


def attend_in_blocks(queries: Tensor, blocks: Iterable[tuple[Tensor, Tensor, Tensor | None]], scale: float) -> Tensor:
    """The same over (keys, values, seen) a block at a time: no array is as long as the cache but the cache itself.

    The running maximum, sum and output are rescaled whenever a block raises the maximum.
    """
    heads, count = queries.shape[:2]
    top: Tensor | float = LOWEST
    total: Tensor | float = 0.0
    output: Tensor | float = 0.0
    for keys, values, seen in blocks:
        scores = fold(queries, keys.shape[0]) @ keys.transpose(1, 2) * scale
        if seen is not None:
            shape = scores.shape
            scores = scores.view(shape[0], -1, count, shape[2]).masked_fill(~seen, -torch.inf).view(shape)
        peak = scores.amax(-1, keepdim=True).clamp(min=LOWEST).maximum(torch.as_tensor(top, device=scores.device))
        weights, kept = torch.exp(scores - peak), torch.exp(top - peak)
        total = total * kept + weights.sum(-1, keepdim=True)
        output = output * kept + weights @ values
        top = peak
    return torch.as_tensor(output / total).reshape(heads, count, -1)
