"""DeepSeek V4's rows: every ``ratio`` tokens become one, by a softmax over their gates, number by number.

With overlap each token brings a first and a second half of numbers and gates: row w is made of the first halves of the tokens
of group w - 1 and the second halves of those of group w; before the first group there is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvcalc.verify.reference.attention import Answer, dot_error, one_head
from kvcalc.verify.reference.rounding import LIBRARY, UNIT, gamma


def compressed_rows(numbers: Tensor, gates: Tensor, ratio: int, width: int) -> tuple[Tensor, Tensor]:
    """``[tokens, width or 2·width]`` → ``[tokens // ratio, width]``, and how far a right step may be from each number."""
    rows, errors = [], []
    overlap = numbers.shape[1] == 2 * width
    for group in range(len(numbers) // ratio):
        own = slice(group * ratio, (group + 1) * ratio)
        members, weights = numbers[own, -width:], gates[own, -width:]
        if overlap and group:
            before = slice((group - 1) * ratio, group * ratio)
            members = torch.cat((numbers[before, :width], members))
            weights = torch.cat((gates[before, :width], weights))
        weights = torch.exp(weights - weights.amax(0))
        weights = weights / weights.sum(0)
        rows.append((weights * members).sum(0))
        errors.append((gamma(2 * len(members)) + 2 * LIBRARY + 8 * UNIT) * (weights * members.abs()).sum(0) * 2)
    empty = numbers.new_zeros(0, width)
    return (torch.stack(rows), torch.stack(errors)) if rows else (empty, empty)


def seen_rows(position: int, window: int, ratio: int) -> tuple[int, int]:
    """(the first position of the window, how many compressed rows are whole) for the query at ``position``."""
    return max(position - window + 1, 0), (position + 1) // ratio if ratio else 0


def shared_row_attention(queries: Tensor, rows: Tensor, scale: float, sinks: Sequence[float] | Tensor) -> Answer:
    """One position's ``[heads, width]`` queries over rows ``[m, width]`` that are keys and values at once, with a sink a head."""
    table = torch.ones(1, len(rows), dtype=torch.bool, device=rows.device)
    error, wide = dot_error(rows, scale), torch.as_tensor(sinks, dtype=rows.dtype, device=rows.device)
    found = [one_head(queries[head, None], rows, rows, scale, table, error, wide[head]) for head in range(len(queries))]
    return Answer(torch.cat([each.outputs for each in found]), torch.cat([each.bound for each in found]))
