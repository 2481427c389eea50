"""What an update rule is: its inputs, its step over held state, and the same thing for a whole sequence at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from kvcalc.core.layers import Recurrent
from kvcalc.verify.codecs import LIMIT
from kvcalc.verify.tolerance import UNIT, gamma

Given = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Draw:
    """One input: ``width`` numbers a token, uniform in [low, high).

    ``stored`` ones are exact in the model's type, since a convolution window keeps them. ``positive`` takes magnitudes:
    sums whose terms don't cancel are as large as the bound on their error assumes, so a wrong one stands out.
    """

    name: str
    width: int
    low: float = -LIMIT
    high: float = LIMIT
    stored: bool = False
    positive: bool = False

    def moved(self, numbers: Tensor) -> Tensor:
        """Numbers of [-LIMIT, LIMIT) into [low, high)."""
        if self.positive:
            return numbers.abs()
        if self.low == -LIMIT and self.high == LIMIT:
            return numbers
        return self.low + (numbers + LIMIT) * ((self.high - self.low) / (2 * LIMIT))


class Rule(Protocol):
    """One update rule with the sizes of one layer."""

    @property
    def what(self) -> str:
        """Say what is compared with what."""

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Name the inputs of a token."""

    @property
    def weights(self) -> tuple[Draw, ...]:
        """Name the weights of a layer."""

    @property
    def exact_states(self) -> tuple[int, ...]:
        """Name the states that only keep inputs, which are exact in the model's type."""

    @classmethod
    def fitting(cls, part: Recurrent) -> Rule | None:
        """Make the rule for a part's shapes, or None where they aren't this rule's."""

    def start(self, states: list[Tensor]) -> None:
        """Set states that don't start at zero."""

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:
        """One token: update windows and states in place, give the output ``[width]``."""

    def compared(self, output: Tensor) -> Tensor:
        """The part of an output that ``whole`` gives."""

    def whole(self, x: Given, state_unit: float) -> tuple[Tensor, Tensor]:
        """All tokens at once: outputs and how far a step's may be off, both ``[tokens, width]``."""


class Plain:
    """The usual answers: every state is computed, states start at zero, outputs are compared whole."""

    exact_states: ClassVar[tuple[int, ...]] = ()

    def start(self, states: list[Tensor]) -> None:
        """Zeros, as they were made."""

    def compared(self, output: Tensor) -> Tensor:
        """All of it."""
        return output


def convolve_step(windows: list[Tensor], column: Tensor, weight: Tensor) -> Tensor:
    """A causal convolution's next output: past columns and the new one, weighted; the windows move on by one.

    ``windows`` split the channels between them; ``weight`` is ``[channels, kernel]``.
    """
    found, first = [], 0
    for window in windows:
        last = first + window.shape[0]
        columns = torch.cat((window.float(), column[first:last, None]), dim=1)
        found.append((columns * weight[first:last]).sum(1))
        window.copy_(columns[:, 1:])
        first = last
    return torch.cat(found)


def convolve_all(columns: Tensor, weight: Tensor) -> Tensor:
    """The same for all tokens: ``[tokens, channels]`` padded with zeros on the left."""
    kernel = weight.shape[1]
    padded = torch.cat((columns.new_zeros(kernel - 1, columns.shape[1]), columns))
    return torch.stack([padded[k : k + len(columns)] * weight[:, k] for k in range(kernel)]).sum(0)


def convolution_size(columns: Tensor, weight: Tensor) -> Tensor:
    """Sum of the magnitudes of a convolution's terms: what its rounding error, and silu's after it, is measured by."""
    return convolve_all(columns.abs(), weight.abs())


def scan(decay: Tensor, given: Tensor) -> Tensor:
    """h_t = decay_t·h_(t-1) + given_t along the first axis, in log2(tokens) doublings instead of steps."""
    shift = 1
    while shift < len(given):
        given = torch.cat((given[:shift], given[shift:] + decay[shift:] * given[:-shift]))
        decay = torch.cat((decay[:shift], decay[shift:] * decay[:-shift]))
        shift *= 2
    return given


def lags(tokens: int, like: Tensor) -> Tensor:
    """``[t, s]``: t - s + 1 where s ≤ t, else 0: how many updates a token's share of the state has been through."""
    t = torch.arange(tokens, device=like.device)
    return (t[:, None] - t[None, :] + 1).clamp(min=0).to(like.dtype)


def term_error(tokens: int, width: int, state_unit: float, like: Tensor) -> Tensor:
    """``[t, s]``: the relative error of token s's share in output t.

    gamma(width) for sums and products within a step, and for each update since 6 roundings of float32 and the storing.
    """
    return gamma(width + 16) + lags(tokens, like) * (6 * UNIT + state_unit)
