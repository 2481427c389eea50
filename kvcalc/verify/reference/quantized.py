"""What a format's bound on its numbers means for attention's outputs.

Let each score be off by at most d_j = scale·Σ_i |q_i|·e_ij, where e bounds the key's numbers. Weights p_j then lie within
p_j·exp(±d_j)·N^±1 with N = Σ p_j·exp(d_j), so an output moves by at most

    N·Σ_j p_j·exp(d_j)·(|v_j| + e^v_j) - Σ_j p_j·|v_j|
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvcalc.verify.reference.attention import Answer, HeadRows, Sees


def given_attention(
    queries: Tensor, positions: Sequence[int], rows: HeadRows, errors: HeadRows, num_kv_heads: int, scale: float, sees: Sees
) -> Answer:
    """(outputs over the numbers as given, how far outputs over the stored ones may be from them)."""
    group = queries.shape[0] // num_kv_heads
    outputs, bounds = [], []
    for head in range(queries.shape[0]):
        keys, values = (part.to(queries.dtype) for part in rows(head // group))
        key_error, value_error = (part.to(queries.dtype) for part in errors(head // group))
        scores = queries[head] @ keys.T * scale
        weights = torch.softmax(scores.masked_fill(~sees.table(positions, len(keys), queries.device), -torch.inf), dim=1)
        risen = weights * torch.exp(queries[head].abs() @ key_error.T * scale)
        outputs.append(weights @ values)
        grown = risen.sum(1, keepdim=True) * (risen @ (values.abs() + value_error))
        bounds.append(grown - weights @ values.abs())
    return Answer(torch.stack(outputs), torch.stack(bounds))
