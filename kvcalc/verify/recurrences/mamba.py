"""State space models: Mamba, Mamba-2, and the gated linear recurrence of RecurrentGemma."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from kvcalc.core.layers import Recurrent
from kvcalc.verify.recurrences.base import (
    Draw,
    Given,
    Plain,
    convolve_step,
)

CHANNELS = 256  # whose whole-sequence form is made: channels don't meet, and all of them are stepped


@dataclass(frozen=True)
class Mamba(Plain):
    """h = exp(Δ·A)·h + Δ·u·B, y = h·C, with u = silu(conv(x)); state ``[inner, N]``."""

    inner: int
    states: int
    kernel: int
    what: str = "Mamba steps against the definition"

    @classmethod
    def fitting(cls, part: Recurrent) -> Mamba | None:
        """One convolution of the state's first width."""
        if len(part.convs) != 1 or len(part.states) != 1 or len(part.states[0].shape) != 2:
            return None
        inner, states = part.states[0].shape
        return cls(inner, states, part.convs[0].kernel) if part.convs[0].channels == inner else None

    @property
    def draws(self) -> tuple[Draw, ...]:
        """x, Δ, B, C."""
        return (
            Draw("x", self.inner, stored=True, positive=True),
            Draw("delta", self.inner, 0.05, 0.5),
            Draw("B", self.states, positive=True),
            Draw("C", self.states, positive=True),
        )

    @property
    def weights(self) -> tuple[Draw, ...]:
        """The convolution and A."""
        return Draw("conv", self.inner * self.kernel, positive=True), Draw("A", self.inner * self.states, -1.0, -0.2)

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:
        """One token."""
        u = silu(convolve_step(convs, x["x"], x["conv"].view(self.inner, -1)))
        h = torch.exp(x["delta"][:, None] * x["A"].view(self.inner, -1)) * states[0].float()
        h = h + (x["delta"] * u)[:, None] * x["B"]
        states[0].copy_(h)
        return h @ x["C"]


@dataclass(frozen=True)
class Mamba2(Plain):
    """h = exp(Δ·a)·h + Δ·x⊗B, y = h·C a head, with (x, B, C) = silu(conv(…)); state ``[heads, width, N]``."""

    heads: int
    width: int
    states: int
    groups: int
    kernel: int
    what: str = "Mamba-2 steps against the definition"

    @classmethod
    def fitting(cls, part: Recurrent) -> Mamba2 | None:
        """The channels beyond heads × width are B and C of whole groups."""
        if len(part.convs) != 1 or len(part.states) != 1 or len(part.states[0].shape) != 3:
            return None
        heads, width, states = part.states[0].shape
        groups, rest = divmod(part.convs[0].channels - heads * width, 2 * states)
        fits = rest == 0 and groups > 0 and heads % groups == 0
        return cls(heads, width, states, groups, part.convs[0].kernel) if fits else None

    @property
    def channels(self) -> int:
        """x, B and C side by side."""
        return self.heads * self.width + 2 * self.groups * self.states

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The convolution's columns, and Δ."""
        return Draw("x", self.channels, stored=True, positive=True), Draw("delta", self.heads, 0.05, 0.5)

    @property
    def weights(self) -> tuple[Draw, ...]:
        """The convolution and a."""
        return Draw("conv", self.channels * self.kernel, positive=True), Draw("a", self.heads, -1.0, -0.2)

    def _split(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``[…, channels]`` → x ``[…, heads, width]``, B and C ``[…, heads, N]``."""
        inner, shared = self.heads * self.width, self.groups * self.states
        x, b, c = u[..., :inner], u[..., inner : inner + shared], u[..., inner + shared :]
        lead, each = u.shape[:-1], self.heads // self.groups
        b = b.reshape(*lead, self.groups, self.states).repeat_interleave(each, -2)
        return x.reshape(*lead, self.heads, self.width), b, c.reshape(*lead, self.groups, self.states).repeat_interleave(each, -2)

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:
        """One token."""
        values, b, c = self._split(silu(convolve_step(convs, x["x"], x["conv"].view(self.channels, -1))))
        h = torch.exp(x["delta"] * x["a"])[:, None, None] * states[0].float()
        h = h + (x["delta"][:, None] * values)[:, :, None] * b[:, None]
        states[0].copy_(h)
        return (h @ c[:, :, None]).flatten()


@dataclass(frozen=True)
class RgLru(Plain):
    """h = a·h + √(1 - a²)·i·u with u = conv(x); one number a channel."""

    width: int
    kernel: int
    what: str = "RG-LRU steps against the definition"

    @classmethod
    def fitting(cls, part: Recurrent) -> RgLru | None:
        """One convolution and one row of the same width."""
        if len(part.convs) != 1 or len(part.states) != 1 or part.states[0].shape != (part.convs[0].channels,):
            return None
        return cls(part.convs[0].channels, part.convs[0].kernel)

    @property
    def draws(self) -> tuple[Draw, ...]:
        """x, the decay a and the input gate i."""
        return Draw("x", self.width, stored=True), Draw("a", self.width, 0.6, 0.98), Draw("i", self.width, 0.2, 1.0)

    @property
    def weights(self) -> tuple[Draw, ...]:
        """The convolution."""
        return (Draw("conv", self.width * self.kernel),)

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:
        """One token."""
        u = convolve_step(convs, x["x"], x["conv"].view(self.width, -1))
        h = x["a"] * states[0].float() + torch.sqrt(1 - x["a"] * x["a"]) * x["i"] * u
        states[0].copy_(h)
        return h
