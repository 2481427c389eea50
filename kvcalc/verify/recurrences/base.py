"""What an update rule is: its inputs, its weights, and its step over held state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from kvcalc.core.layers import Recurrent
from kvcalc.verify.codecs import LIMIT

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


class Plain:
    """The usual answers: every state is computed, states start at zero."""

    exact_states: ClassVar[tuple[int, ...]] = ()

    def start(self, states: list[Tensor]) -> None:
        """Zeros, as they were made."""


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
