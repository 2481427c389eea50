"""Update rules of recurrent layers, token by token over the whole sequence, in exact numbers with their bounds.

Each rule takes its inputs by name, ``[tokens, …]``, its weights, its sizes and which heads (or channels) are wanted: heads don't
meet, so a few stand for all. It gives outputs ``[tokens, wanted · width]`` and a bound on a right step's error. Where a state is
stored in a narrow type, ``unit`` is what one storing rounds off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kvcalc.verify.reference.attention import Answer
from kvcalc.verify.reference.rounding import UNIT, Bounded, gamma, sigmoid, silu

Given = Mapping[str, Tensor]
EPSILON = 1e-6  # under the root of a norm


def collected(steps: list[Bounded]) -> Answer:
    """Every token's output, one row each."""
    rows = [(step.exact.reshape(-1), step.error.reshape(-1)) for step in steps]
    return Answer(torch.stack([exact for exact, _ in rows]), torch.stack([error for _, error in rows]))


def convolved(x: Tensor, weight: Tensor) -> Bounded:
    """A causal convolution: token t's output is Σ_k weight[:, k]·x[t - K + 1 + k], with zeros before the first token."""
    kernel, total, sizes = weight.shape[1], torch.zeros_like(x), torch.zeros_like(x)
    for k in range(kernel):
        back = kernel - 1 - k
        term = torch.zeros_like(x)
        term[back:] = x[: len(x) - back] * weight[:, k]
        total, sizes = total + term, sizes + term.abs()
    return Bounded(total, gamma(kernel) * sizes)


def short_conv(x: Given, wanted: Sequence[int], kernel: int) -> Answer:
    """LFM2: y = c·conv(x)."""
    some = list(wanted)
    u = convolved(x["x"][:, some], x["conv"].reshape(-1, kernel)[some])
    y = Bounded.given(x["c"][:, some]) * u
    return Answer(y.exact, y.error)


def mamba(x: Given, wanted: Sequence[int], states: int, kernel: int, unit: float) -> Answer:
    """H = exp(Δ·A)·h + (Δ·u)·B, y = Σ h·C, u = silu(conv(x)); ``wanted`` are channels."""
    some = list(wanted)
    u = silu(convolved(x["x"][:, some], x["conv"].reshape(-1, kernel)[some]))
    rate, delta = Bounded.given(x["A"].reshape(-1, states)[some]), Bounded.given(x["delta"][:, some])
    h, outputs = Bounded.given(torch.zeros_like(rate.exact)), []
    for t in range(len(x["x"])):
        b, c = (Bounded.given(x[name][t][None]) for name in ("B", "C"))
        step = delta[t].shaped(-1, 1)
        h = (step * rate).exp() * h + (step * u[t].shaped(-1, 1)) * b
        outputs.append((h * c).sum(1))
        h = h.stored(unit)
    return collected(outputs)


def mamba2(x: Given, wanted: Sequence[int], sizes: tuple[int, int, int, int], kernel: int, unit: float) -> Answer:
    """H = exp(Δ·a)·h + Δ·x⊗B, y = h·C; ``sizes`` are heads, width, N, groups; head i takes group i // (heads / groups)."""
    heads, width, states, groups = sizes
    u = silu(convolved(x["x"], x["conv"].reshape(-1, kernel)))
    inner = heads * width
    outputs: list[list[Bounded]] = [[] for _ in x["x"]]
    for head in wanted:
        group = head // (heads // groups)
        rate, h = Bounded.given(x["a"][head]), Bounded.given(x["x"].new_zeros(width, states))
        for t in range(len(x["x"])):
            step, now = Bounded.given(x["delta"][t, head]), u[t]
            b = now[inner + group * states : inner + (group + 1) * states]
            c = now[inner + (groups + group) * states : inner + (groups + group + 1) * states]
            values = step * now[head * width : (head + 1) * width]
            h = (step * rate).exp() * h + values.shaped(-1, 1) * b.shaped(1, -1)
            outputs[t].append((h * c.shaped(1, -1)).sum(1))
            h = h.stored(unit)
    return _side_by_side(outputs)


def _side_by_side(outputs: list[list[Bounded]]) -> Answer:
    exact = torch.stack([torch.cat([head.exact for head in token]) for token in outputs])
    return Answer(exact, torch.stack([torch.cat([head.error for head in token]) for token in outputs]))


def rg_lru(x: Given, wanted: Sequence[int], kernel: int, unit: float) -> Answer:
    """H = a·h + √(1 - a²)·(i·u), u = conv(x); ``wanted`` are channels."""
    some = list(wanted)
    u = convolved(x["x"][:, some], x["conv"].reshape(-1, kernel)[some])
    one, outputs = Bounded.given(torch.ones_like(x["a"][0, some])), []
    h = Bounded.given(torch.zeros_like(one.exact))
    for t in range(len(x["x"])):
        a, gate = Bounded.given(x["a"][t, some]), Bounded.given(x["i"][t, some])
        h = a * h + (one - a * a).root() * gate * u[t]
        outputs.append(h)
        h = h.stored(unit)
    return collected(outputs)


def lightning(x: Given, wanted: Sequence[int], width: int, unit: float) -> Answer:
    """S = exp(log_decay)·S + v⊗k, o = S·q, one decay a head."""
    some = list(wanted)
    q, k, v = (Bounded.given(x[name].reshape(len(x[name]), -1, width)[:, some]) for name in ("q", "k", "v"))
    decay = Bounded.given(x["log_decay"][some]).exp().shaped(-1, 1, 1)
    state, outputs = Bounded.given(x["q"].new_zeros(len(some), width, width)), []
    for t in range(len(x["q"])):
        state = decay * state + v[t].shaped(-1, width, 1) * k[t].shaped(-1, 1, width)
        outputs.append((state * q[t].shaped(-1, 1, width)).sum(2))
        state = state.stored(unit)
    return collected(outputs)


def matrix_memory(x: Given, wanted: Sequence[int], k_width: int, v_width: int, unit: float) -> Answer:
    """xLSTM: C = f·C + i·k⊗v, n = f·n + i·k, h = Cᵀq / max(|n·q|, 1), gates given by their logarithms.

    A step keeps C and n divided by exp(m), m the running maximum of the gates' sums: m's own rounding moves both alike.
    """
    some = list(wanted)
    q, k, v = (
        Bounded.given(x[n].reshape(len(x[n]), -1, w)[:, some]) for n, w in (("q", k_width), ("k", k_width), ("v", v_width))
    )
    matrix = Bounded.given(x["q"].new_zeros(len(some), k_width, v_width))
    row, outputs = Bounded.given(x["q"].new_zeros(len(some), k_width)), []
    for t in range(len(x["q"])):
        forget, write = (Bounded.given(x[name][t, some]).exp() for name in ("f", "i"))
        key = write.shaped(-1, 1) * k[t]
        matrix = forget.shaped(-1, 1, 1) * matrix + key.shaped(-1, k_width, 1) * v[t].shaped(-1, 1, v_width)
        row = forget.shaped(-1, 1) * row + key
        dot = (row * q[t]).sum(1)
        weight = Bounded(dot.exact.abs(), dot.error).largest(Bounded.given(torch.ones_like(dot.exact)))
        outputs.append((matrix * q[t].shaped(-1, k_width, 1)).sum(1) / weight.shaped(-1, 1))
        matrix, row = matrix.stored(unit + 4 * UNIT), row.stored(unit + 4 * UNIT)
    return collected(outputs)


def mixed(x: Given, name: str, mix: str) -> Bounded:
    """RWKV's token shift: each input weighed with that of the token before; before the first there are zeros."""
    own = x[name]
    before = torch.zeros_like(own)
    before[1:] = own[:-1]
    exact = before * (1 - x[mix]) + own * x[mix]
    return Bounded(exact, 4 * UNIT * (before.abs() + own.abs()))


def rwkv(x: Given, wanted: Sequence[int], size: int, unit: float) -> tuple[Answer, Answer]:
    """O = r·(S + u∘k⊗v), S = exp(log_decay)∘S + k⊗v; and channel mix's shifted input, whole."""
    some = list(wanted)
    r, k, v = (mixed(x, "x", f"mix_{name}").shaped(len(x["x"]), -1, size)[:, some] for name in ("r", "k", "v"))
    bonus = Bounded.given(x["u"].reshape(-1, size)[some]).shaped(-1, size, 1)
    decay = Bounded.given(x["log_decay"].reshape(-1, size)[some]).exp().shaped(-1, size, 1)
    state, outputs = Bounded.given(x["x"].new_zeros(len(some), size, size)), []
    for t in range(len(x["x"])):
        now = k[t].shaped(-1, size, 1) * v[t].shaped(-1, 1, size)
        outputs.append((r[t].shaped(-1, size, 1) * (state + bonus * now)).sum(1))
        state = (decay * state + now).stored(unit)
    channel = mixed(x, "z", "mix_channel")
    return collected(outputs), Answer(channel.exact, channel.error)


def rwkv4(x: Given, unit: float) -> tuple[Answer, Answer]:
    """σ(r)·(Σ_s exp(w·(t - 1 - s) + k_s)·v_s + exp(u + k_t)·v_t) / (the same without v); and channel mix's shifted input.

    A step keeps both sums divided by the largest exponential so far, whose logarithm it stores too: each of a token's
    updates rounds that once.
    """
    r, k, v = (mixed(x, "x", f"mix_{name}") for name in ("r", "k", "v"))
    outputs = []
    for t in range(len(x["x"])):
        ages = torch.arange(t, 0, -1, device=k.exact.device, dtype=k.exact.dtype)[:, None] - 1
        powers = torch.cat((x["log_decay"] * ages + k.exact[:t], (x["u"] + k.exact[t])[None]))
        weights = torch.softmax(powers, 0)
        average = (weights * v.exact[: t + 1]).sum(0)
        rounds = torch.cat((ages + 4, torch.full_like(k.exact[:1, :1], 4)))
        off = k.error[: t + 1] + (powers.abs() + 12) * UNIT + rounds * (k.exact.abs().amax() + 8) * (UNIT + unit)
        error = (weights * off * (v.exact[: t + 1] - average).abs()).sum(0) + (weights * v.error[: t + 1]).sum(0)
        error = error + (gamma(t + 1) + 8 * UNIT) * (weights * v.exact[: t + 1].abs()).sum(0)
        outputs.append(Bounded(average, error) * sigmoid(r[t]))
    channel = mixed(x, "z", "mix_channel")
    return collected(outputs), Answer(channel.exact, channel.error)
