"""Attention by its definition: every query against every position that it may see, weights by softmax, values by weight.

Head h of H reads key head h // (H / H_kv). A query at position p sees the positions j ≤ p; within a window of w those with
p - j < w; within chunks of c those with j // c = p // c; without causality all. A sink is one more score that takes weight and
gives no value.

With exact weights p_j and each weight's relative error at most r_j, outputs are off by Σ p_j·r_j·(v_j - o), which is at most
√(Σ p_j·r_j²)·√(Σ p_j·v_j² - o²), and by the rounding of the sums, whose partial sums are at most √(Σ p_j·v_j²). A score of D
terms is off by what ``product_error`` says of them, and the exponential's argument s_j - max s by one rounding of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvcalc.verify.reference.rounding import LIBRARY, UNIT, gamma, product_error

SCORES = 2**19  # at once: what a pass keeps in memory
RULE = (
    "sqrt(sum p r^2)·sqrt(sum p v^2 - o^2) + gamma(m)·(sqrt(sum p v^2) + |o|) for each output o, with weights p and their errors "
    "r = 6·sqrt(D)·u·(|s| + 2·sqrt(sum (q k)^2)) + u·(|s| + |s - max s|) + 6u; gamma(n) = min(n, 6·sqrt(n))·u, u = 2^-24"
)

HeadRows = Callable[[int], tuple[Tensor, Tensor]]  # key head → keys [m, width], values [m, v_width]


@dataclass(frozen=True, slots=True)
class Sees:
    """Which positions a query may see."""

    window: int | None = None
    chunk: int | None = None
    causal: bool = True

    def table(self, queries: Sequence[int], length: int, device: torch.device) -> Tensor:
        """``[n, length]``, true where query n sees a position."""
        p = torch.tensor(queries, device=device)[:, None]
        j = torch.arange(length, device=device)[None, :]
        if not self.causal:
            return (p >= 0) & (j >= 0)
        seen = j <= p
        if self.window is not None:
            seen = seen & (p - j < self.window)
        if self.chunk is not None:
            seen = seen & (j // self.chunk == p // self.chunk)
        return seen


@dataclass(frozen=True, slots=True)
class Answer:
    """Outputs ``[heads, n, v_width]`` and how far a right step may be from each."""

    outputs: Tensor
    bound: Tensor


def attention(
    queries: Tensor,
    positions: Sequence[int],
    rows: HeadRows,
    num_kv_heads: int,
    scale: float,
    sees: Sees,
    sinks: Tensor | None = None,
) -> Answer:
    """Grouped attention of ``[heads, n, width]`` queries. Each key head's rows are asked for and made wide once."""
    group = queries.shape[0] // num_kv_heads
    found = []
    for kv_head in range(num_kv_heads):
        keys, values = (part.to(queries.dtype) for part in rows(kv_head))
        table = sees.table(positions, len(keys), queries.device)
        error = dot_error(keys, scale)
        for head in range(kv_head * group, (kv_head + 1) * group):
            sink = None if sinks is None else sinks[head]
            found.append(one_head(queries[head], keys, values, scale, table, error, sink))
    return Answer(torch.stack([each.outputs for each in found]), torch.stack([each.bound for each in found]))


ScoreError = Callable[[Tensor, Tensor], Tensor]  # queries [n, width], scores [n, m] → [n, m]
OutputError = Callable[[Tensor, Tensor], Tensor]  # weights [n, m], outputs [n, v_width] → [n, v_width]


def dot_error(keys: Tensor, scale: float) -> ScoreError:
    """Scores that are one product of a query and a key each."""
    squares = keys.square().T
    return lambda queries, scores: product_error(keys.shape[1], scores, queries.square() @ squares * scale**2)


def one_head(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    table: Tensor,
    error: ScoreError,
    sink: Tensor | None = None,
    more: OutputError | None = None,
) -> Answer:
    """Attention of ``[n, width]`` over ``[m, …]``, a few queries at a time."""
    each = max(SCORES // max(len(keys), 1), 1)
    squares = values.square()
    parts = []
    for low in range(0, len(queries), each):
        some, seen = queries[low : low + each], table[low : low + each]
        scores = some @ keys.T * scale
        weights, off = softmax(scores.masked_fill(~seen, -torch.inf), error(some, scores), sink)
        outputs = weights @ values
        bound = output_bound(weights, off, outputs, weights @ squares)
        parts.append(Answer(outputs, bound if more is None else bound + more(weights, outputs)))
    return Answer(torch.cat([part.outputs for part in parts]), torch.cat([part.bound for part in parts]))


def softmax(scores: Tensor, error: Tensor, sink: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(weights of ``[n, m]`` scores, each weight's relative error when the scores are off by ``error``)."""
    top = scores.amax(1, keepdim=True)
    if sink is not None:
        top = torch.maximum(top, sink)
    weights = torch.exp(scores - top)
    total = weights.sum(1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink - top)
    reach = (scores.abs() + (scores - top).abs()).nan_to_num_(posinf=0.0)  # nothing of what isn't seen
    return weights / total, torch.expm1(error + UNIT * reach + LIBRARY + 2 * UNIT)


def output_bound(weights: Tensor, off: Tensor, outputs: Tensor, square: Tensor) -> Tensor:
    """See the head of this file; ``off`` is each weight's relative error, ``square`` the weighted squares of the values.

    A sink takes part with a value of zero: what weights lack to one is its share.
    """
    spread = (square - outputs.square()).clamp(min=0) + 2.0**-44 * square
    moved = (weights * off.square()).sum(1, keepdim=True)
    rest = (1 - weights.sum(1, keepdim=True)).clamp(min=0) * off.amax(1, keepdim=True).square()
    sums = (gamma(weights.shape[1]) + 4 * UNIT) * (square.sqrt() + outputs.abs())
    return ((moved + rest) * spread).sqrt() * (1 + off.amax(1, keepdim=True)) + sums


def latent_attention(
    queries: Tensor, positions: Sequence[int], rows: Tensor, up: Tensor, out: Tensor, scale: float, sees: Sees
) -> Answer:
    """Multi-head latent attention with every head's keys and values expanded.

    ``queries`` are ``[heads, n, nope + rope]``, ``rows`` ``[m, rank + rope]``, ``up`` ``[heads, nope, rank]``, ``out``
    ``[heads, v, rank]``. The bound is that of absorbed steps: they turn the query by ``up``, and the weighted latent by ``out``.
    """
    rank = up.shape[2]
    latent, rope = rows[:, :rank], rows[:, rank:]
    table = sees.table(positions, len(rows), queries.device)
    squares = rows.square().T
    found = []
    for head in range(len(queries)):
        keys = torch.cat((latent @ up[head].T, rope), dim=1)
        error = _absorbed_error(up[head], squares, scale)
        more = _projection_error(latent, out[head])
        found.append(one_head(queries[head], keys, latent @ out[head].T, scale, table, error, more=more))
    return Answer(torch.stack([each.outputs for each in found]), torch.stack([each.bound for each in found]))


def _absorbed_error(up: Tensor, squares: Tensor, scale: float) -> ScoreError:
    """The turned query errs in each of its numbers, independently, and its product with a row as every product does."""
    nope, rank = up.shape

    def error(queries: Tensor, scores: Tensor) -> Tensor:
        q, rope = queries[:, :nope], queries[:, nope:]
        turned = q @ up
        off = product_error(nope, turned, q.square() @ up.square())
        carried = 3 * (off.square() @ squares[:rank]).sqrt() * scale
        both = torch.cat((turned, rope), dim=1)
        return carried + product_error(len(squares), scores, both.square() @ squares * scale**2)

    return error


def _projection_error(latent: Tensor, out: Tensor) -> OutputError:
    """What the weighted latent's own sums add, seen through ``out``, and the sum over the rank."""
    squares, seen = latent.square(), out.square().T

    def error(weights: Tensor, outputs: Tensor) -> Tensor:
        square = weights @ squares
        sums = (gamma(len(latent)) + 4 * UNIT) * 3 * (square @ seen).sqrt()
        return sums + product_error(latent.shape[1], outputs, (weights @ latent).square() @ seen)

    return error


def index_scores(query: Tensor, weight: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sparse attention's indexer: Σ_j w_j·max(q_j·k, 0) for every key, and how far a right step may be."""
    total = torch.zeros(len(keys), dtype=keys.dtype, device=keys.device)
    error, size = torch.zeros_like(total), torch.zeros_like(total)
    for head in range(len(query)):
        terms = keys * query[head]
        dots = terms.sum(1)
        error = error + weight[head].abs() * product_error(keys.shape[1], dots, terms.square().sum(1))
        dots = torch.where(dots > 0, dots, torch.zeros_like(dots))
        total = total + weight[head] * dots
        size = size + weight[head].abs() * dots
    return total, error + (len(query) + 2) * UNIT * size
