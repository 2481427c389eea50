"""Linear attention and its kin: lightning attention, RWKV's matrix state, xLSTM's matrix memory; and a bare convolution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kvcalc.core.layers import Recurrent
from kvcalc.verify.recurrences.base import (
    Draw,
    Given,
    Plain,
    convolve_step,
)


@dataclass(frozen=True)
class ShortConv(Plain):
    """y = c·conv(x) (LFM2): no state beside the window."""

    channels: int
    kernel: int
    what: str = "short convolution steps against the definition"

    @classmethod
    def fitting(cls, part: Recurrent) -> ShortConv | None:
        """One convolution, no state."""
        return cls(part.convs[0].channels, part.convs[0].kernel) if len(part.convs) == 1 and not part.states else None

    @property
    def draws(self) -> tuple[Draw, ...]:
        """X and the gate c."""
        return Draw("x", self.channels, stored=True), Draw("c", self.channels)

    @property
    def weights(self) -> tuple[Draw, ...]:
        """The convolution."""
        return (Draw("conv", self.channels * self.kernel),)

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:  # noqa: ARG002 - it has none
        """One token."""
        return x["c"] * convolve_step(convs, x["x"], x["conv"].view(self.channels, -1))


@dataclass(frozen=True)
class Lightning(Plain):
    """S = decay·S + v⊗k, o = S·q, one fixed decay a head; state ``[heads, width, width]``."""

    heads: int
    width: int
    what: str = "lightning attention steps against the definition"

    @classmethod
    def fitting(cls, part: Recurrent) -> Lightning | None:
        """A square matrix a head and no convolution."""
        if part.convs or len(part.states) != 1 or len(part.states[0].shape) != 3:
            return None
        heads, rows, columns = part.states[0].shape
        return cls(heads, rows) if rows == columns else None

    @property
    def draws(self) -> tuple[Draw, ...]:
        """q, k, v."""
        return tuple(Draw(name, self.heads * self.width) for name in ("q", "k", "v"))

    @property
    def weights(self) -> tuple[Draw, ...]:
        """The logarithm of each head's decay."""
        return (Draw("log_decay", self.heads, -0.5, -0.02),)

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:  # noqa: ARG002 - it has none
        """One token."""
        q, k, v = (x[name].view(self.heads, self.width) for name in ("q", "k", "v"))
        state = torch.exp(x["log_decay"])[:, None, None] * states[0].float() + v[:, :, None] * k[:, None]
        states[0].copy_(state)
        return (state @ q[:, :, None]).flatten()


@dataclass(frozen=True)
class MatrixMemory(Plain):
    """xLSTM: C = f·C + i·k⊗v, n = f·n + i·k, h = Cᵀ·q / max(|n·q|, 1), kept scaled by exp(-m) with a running maximum m.

    States ``[heads, k_width, v_width]``, ``[heads, k_width]``, ``[heads]``.
    """

    heads: int
    k_width: int
    v_width: int
    what: str = "xLSTM steps against the definition"

    @classmethod
    def fitting(cls, part: Recurrent) -> MatrixMemory | None:
        """Matrix, row and number a head."""
        shapes = [state.shape for state in part.states]
        if part.convs or len(shapes) != 3 or len(shapes[0]) != 3:
            return None
        heads, k_width, v_width = shapes[0]
        return cls(heads, k_width, v_width) if shapes[1:] == [(heads, k_width), (heads,)] else None

    @property
    def draws(self) -> tuple[Draw, ...]:
        """q, k, v, and the logarithms of input and forget gates."""
        keys, values = self.heads * self.k_width, self.heads * self.v_width
        gates = Draw("i", self.heads), Draw("f", self.heads, -0.5, -0.02)
        return Draw("q", keys), Draw("k", keys), Draw("v", values), *gates

    @property
    def weights(self) -> tuple[Draw, ...]:
        """None."""
        return ()

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:  # noqa: ARG002 - it has none
        """One token."""
        q, k = (x[name].view(self.heads, self.k_width) for name in ("q", "k"))
        v, (matrix, row, top) = x["v"].view(self.heads, self.v_width), (state.float() for state in states)
        largest = torch.maximum(x["f"] + top, x["i"])
        forget, write = torch.exp(x["f"] + top - largest), torch.exp(x["i"] - largest)
        matrix = forget[:, None, None] * matrix + write[:, None, None] * k[:, :, None] * v[:, None]
        row = forget[:, None] * row + write[:, None] * k
        for state, now in zip(states, (matrix, row, largest), strict=True):
            state.copy_(now)
        weight = torch.maximum((row * q).sum(1).abs(), torch.exp(-largest))
        return ((q[:, None] @ matrix)[:, 0] / weight[:, None]).flatten()
