"""What a format's bound on its numbers means for attention's outputs.

Let each score be off by at most δ_j = scale·Σ_i |q_i|·e_ij, where e bounds the key's numbers. Weights p_j = exp(s_j)/Σ
then lie within p_j·exp(±δ_j)·N^±1 with N = Σ p_j·exp(δ_j), so an output moves by at most

    N·Σ_j p_j·exp(δ_j)·|v_j| - Σ_j p_j·|v_j| + max_j e^v_j
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvcalc.verify.attention import Visibility, fold
from kvcalc.verify.codecs import Codec
from kvcalc.verify.inputs import Rows
from kvcalc.verify.reference import KEY_BLOCK, full_attention, masked_scores


def output_bound(
    queries: Tensor, positions: Tensor, keys: Rows, k: Codec, values: Rows, v: Codec, length: int, sight: Visibility, scale: float
) -> tuple[Tensor, Tensor]:
    """(outputs over the numbers as given, how far outputs over the stored ones may be from them)."""

    def given(start: int, stop: int) -> tuple[Tensor, Tensor]:
        return keys.between(start, stop), values.between(start, stop)

    exact = full_attention(queries, positions, given, length, sight, scale)
    grown = spread = torch.zeros((), dtype=queries.dtype, device=queries.device)
    plain, value_error = grown, 0.0
    for start in range(0, length, KEY_BLOCK):
        key, value = given(start, min(start + KEY_BLOCK, length))
        scores = masked_scores(queries, key.to(queries.dtype), positions, start, sight, scale)
        weights = torch.exp(scores - exact.maximum) / exact.total
        off = torch.as_tensor(k.bound(key), dtype=queries.dtype, device=key.device).expand(key.shape)
        error = fold(queries.abs(), key.shape[0]) @ off.transpose(1, 2) * scale
        risen, size = weights * torch.exp(error), value.abs().to(queries.dtype)
        grown, spread, plain = grown + risen @ size, spread + risen.sum(-1, keepdim=True), plain + weights @ size
        value_error = max(value_error, float(torch.as_tensor(v.bound(value)).max()))
    heads, count = queries.shape[:2]
    return exact.outputs, (spread * grown - plain).view(heads, count, -1) + value_error
