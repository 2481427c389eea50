"""Full attention over all positions, without a cache, in float64 where the device has it, in blocks of keys.

The softmax runs along the blocks: a running maximum, the sum of exponentials and the weighted values are rescaled
whenever the maximum grows, so memory is that of one block, whatever the length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvcalc.verify.attention import Visibility, fold

KEY_BLOCK = 256

KeyValueBlock = Callable[[int, int], tuple[Tensor, Tensor]]  # (start, stop) → keys, values [kv_heads, n, …]


def wide(device: torch.device) -> torch.dtype:
    """The type that the reference works in."""
    return torch.float32 if device.type == "mps" else torch.float64


@dataclass(frozen=True, slots=True)
class Softmax:
    """Outputs ``[heads, n, v_width]``, and each row's maximum and sum of exponentials, folded ``[kv_heads, rows, 1]``."""

    outputs: Tensor
    maximum: Tensor
    total: Tensor


def full_attention(
    queries: Tensor, positions: Tensor, block: KeyValueBlock, length: int, sight: Visibility, scale: float
) -> Softmax:
    """Attention of ``queries`` ``[heads, n, width]`` at ``positions`` over positions 0 … length - 1."""
    heads, count = queries.shape[:2]
    state: Softmax | None = None
    start = min((sight.first(position) for position in positions.tolist()), default=0) if sight.causal else 0
    stop = min(int(positions.max()) + 1, length) if sight.causal else length
    for low in range(start // KEY_BLOCK * KEY_BLOCK, stop, KEY_BLOCK):
        high = min(low + KEY_BLOCK, stop)
        keys, values = (part.to(queries.dtype) for part in block(low, high))
        scores = masked_scores(queries, keys, positions, low, sight, scale)
        state = _merge(state, scores, values)
    if state is None:
        raise ValueError("no positions to attend to")
    outputs = (state.outputs / state.total).view(heads, count, -1)
    return Softmax(outputs, state.maximum, state.total)


def masked_scores(queries: Tensor, keys: Tensor, positions: Tensor, start: int, sight: Visibility, scale: float) -> Tensor:
    """``[kv_heads, group · n, m]`` scores of keys at ``start`` …, -inf where a query can't see."""
    scores = fold(queries, keys.shape[0]) @ keys.transpose(1, 2) * scale
    seen = sight.mask(positions, torch.arange(start, start + keys.shape[1], device=keys.device))
    shape = scores.shape
    return scores.view(shape[0], -1, len(positions), shape[2]).masked_fill(~seen, -torch.inf).view(shape)


def _merge(state: Softmax | None, scores: Tensor, values: Tensor) -> Softmax:
    maximum = scores.amax(-1, keepdim=True)
    if state is not None:
        maximum = torch.maximum(maximum, state.maximum)
    safe = torch.where(maximum == -torch.inf, torch.zeros_like(maximum), maximum)  # a row that has seen nothing yet
    weights = torch.exp(scores - safe)
    outputs, total = weights @ values, weights.sum(-1, keepdim=True)
    if state is not None:
        old = torch.exp(state.maximum - safe)
        outputs, total = outputs + old * state.outputs, total + old * state.total
    return Softmax(outputs, maximum, total)
