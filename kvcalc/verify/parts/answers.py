"""Which reference belongs to which update rule, for a few of its heads or channels, and where those lie in a step's output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvcalc.verify.recurrences.base import Rule
from kvcalc.verify.recurrences.delta import DeltaRule
from kvcalc.verify.recurrences.linear import Lightning, MatrixMemory, ShortConv
from kvcalc.verify.recurrences.mamba import Mamba, Mamba2, RgLru
from kvcalc.verify.recurrences.rwkv import Rwkv4, RwkvMatrix
from kvcalc.verify.reference import delta, recurrences
from kvcalc.verify.reference.attention import Answer

Given = Mapping[str, Tensor]
HEADS = 4  # heads don't meet: the reference is made for so many, and all are stepped
CHANNELS = 64


@dataclass(frozen=True)
class Answered:
    """A reference's answer, and which numbers of a step's output it gives."""

    answer: Answer
    columns: list[int]


def some_of(count: int, most: int) -> list[int]:
    """At most ``most`` of ``count``, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]


def _columns(wanted: Sequence[int], width: int) -> list[int]:
    return [head * width + number for head in wanted for number in range(width)]


def _mamba(rule: Mamba, x: Given, unit: float) -> Answered:
    wanted = some_of(rule.inner, CHANNELS)
    return Answered(recurrences.mamba(x, wanted, rule.states, rule.kernel, unit), wanted)


def _mamba2(rule: Mamba2, x: Given, unit: float) -> Answered:
    wanted = some_of(rule.heads, HEADS)
    sizes = (rule.heads, rule.width, rule.states, rule.groups)
    return Answered(recurrences.mamba2(x, wanted, sizes, rule.kernel, unit), _columns(wanted, rule.width))


def _rg_lru(rule: RgLru, x: Given, unit: float) -> Answered:
    wanted = some_of(rule.width, CHANNELS)
    return Answered(recurrences.rg_lru(x, wanted, rule.kernel, unit), wanted)


def _delta(rule: DeltaRule, x: Given, unit: float) -> Answered:
    wanted = some_of(rule.v_heads, HEADS)
    sizes = delta.Sizes(rule.v_heads, rule.v_width, rule.k_width, rule.k_heads, rule.kernel)
    return Answered(delta.delta_rule(x, wanted, sizes, unit), _columns(wanted, rule.v_width))


def _short_conv(rule: ShortConv, x: Given, unit: float) -> Answered:  # noqa: ARG001 - it stores inputs alone
    wanted = some_of(rule.channels, CHANNELS)
    return Answered(recurrences.short_conv(x, wanted, rule.kernel), wanted)


def _lightning(rule: Lightning, x: Given, unit: float) -> Answered:
    wanted = some_of(rule.heads, HEADS)
    return Answered(recurrences.lightning(x, wanted, rule.width, unit), _columns(wanted, rule.width))


def _matrix_memory(rule: MatrixMemory, x: Given, unit: float) -> Answered:
    wanted = some_of(rule.heads, HEADS)
    found = recurrences.matrix_memory(x, wanted, rule.k_width, rule.v_width, unit)
    return Answered(found, _columns(wanted, rule.v_width))


def _rwkv(rule: RwkvMatrix, x: Given, unit: float) -> Answered:
    wanted, hidden = some_of(rule.heads, HEADS), rule.heads * rule.size
    outputs, channel = recurrences.rwkv(x, wanted, rule.size, unit)
    return Answered(_joined(outputs, channel), [*_columns(wanted, rule.size), *range(hidden, 2 * hidden)])


def _rwkv4(rule: Rwkv4, x: Given, unit: float) -> Answered:
    return Answered(_joined(*recurrences.rwkv4(x, unit)), list(range(2 * rule.width)))


def _joined(first: Answer, second: Answer) -> Answer:
    return Answer(torch.cat((first.outputs, second.outputs), 1), torch.cat((first.bound, second.bound), 1))


REFERENCES: dict[type, Callable[..., Answered]] = {
    Mamba: _mamba,
    Mamba2: _mamba2,
    RgLru: _rg_lru,
    DeltaRule: _delta,
    ShortConv: _short_conv,
    Lightning: _lightning,
    MatrixMemory: _matrix_memory,
    RwkvMatrix: _rwkv,
    Rwkv4: _rwkv4,
}


def answer(rule: Rule, x: Given, unit: float) -> Answered:
    """The reference's outputs of some heads, ``[tokens, …]``; ``unit`` is what storing a state rounds off."""
    return next(made(rule, x, unit) for kind, made in REFERENCES.items() if isinstance(rule, kind))
