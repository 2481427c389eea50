"""Delta rules: what a key already brings is taken out of the state before the new value is put in.

S = S·decay; S = S + β·(v - S·k)⊗k; o = S·q / √D_k for each value head, whose q and k are those of head h // (H_v / H_k), made
by silu(conv(x)) and scaled to length one: Gated DeltaNet with one decay a head, Kimi delta attention with one a key feature.

The error of a state's row is followed by its length: decay and I - β·k·kᵀ never make it longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvcalc.verify.reference.attention import Answer
from kvcalc.verify.reference.recurrences import EPSILON, Given, convolved
from kvcalc.verify.reference.rounding import UNIT, Bounded, product_error, silu


@dataclass(frozen=True, slots=True)
class Sizes:
    """Heads and widths."""

    v_heads: int
    v_width: int
    k_width: int
    k_heads: int
    kernel: int


def delta_rule(x: Given, wanted: Sequence[int], sizes: Sizes, unit: float) -> Answer:
    """Outputs of the ``wanted`` value heads, one after the other."""
    u = silu(convolved(x["x"], x["conv"].reshape(-1, sizes.kernel)))
    heads = [_one_head(x, head, sizes, u, unit) for head in wanted]
    return Answer(torch.cat([head.outputs for head in heads], 1), torch.cat([head.bound for head in heads], 1))


def _one_head(x: Given, head: int, sizes: Sizes, u: Bounded, unit: float) -> Answer:
    keys, key_head = sizes.k_heads * sizes.k_width, head // (sizes.v_heads // sizes.k_heads)
    q = _unit_length(u[:, key_head * sizes.k_width : (key_head + 1) * sizes.k_width])
    k = _unit_length(u[:, keys + key_head * sizes.k_width : keys + (key_head + 1) * sizes.k_width])
    v = u[:, 2 * keys + head * sizes.v_width : 2 * keys + (head + 1) * sizes.v_width]
    decays = torch.exp(x["log_decay"].reshape(len(x["x"]), sizes.v_heads, -1)[:, head])
    state, error = x["x"].new_zeros(sizes.v_width, sizes.k_width), x["x"].new_zeros(sizes.v_width)
    outputs, bounds = [], []
    for t in range(len(x["x"])):
        beta = x["beta"][t, head]
        state = state * decays[t]
        held = state @ k.exact[t]
        missing = beta * (v.exact[t] - held)
        k_error, length = k.error[t].norm(), state.norm(dim=1)
        off = v.error[t] + length * k_error + 4 * UNIT * (v.exact[t].abs() + held.abs())
        off = beta * (off + product_error(sizes.k_width, held, state.square() @ k.exact[t].square())) + 2 * UNIT * missing.abs()
        state = state + missing[:, None] * k.exact[t]
        error = error * decays[t].max() + off + missing.abs() * (k_error + 2 * UNIT) + 6 * UNIT * length
        error = error + (UNIT + unit) * state.norm(dim=1)
        found = state @ q.exact[t]
        sums = product_error(sizes.k_width, found, state.square() @ q.exact[t].square())
        outputs.append(found / math.sqrt(sizes.k_width))
        bounds.append((error + state.norm(dim=1) * q.error[t].norm() + sums + 4 * UNIT * found.abs()) / math.sqrt(sizes.k_width))
    return Answer(torch.stack(outputs), torch.stack(bounds))


def _unit_length(rows: Bounded) -> Bounded:
    """Rows over their lengths; an error along a row changes its length alone, so it isn't counted twice."""
    length = (rows.exact.square().sum(1, keepdim=True) + EPSILON).sqrt()
    exact = rows.exact / length
    return Bounded(exact, rows.error / length + exact.abs() * (rows.error.norm(dim=1, keepdim=True) / length + 8 * UNIT))
