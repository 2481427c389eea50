"""Delta rules: the gated delta net (Qwen3-Next) and Kimi delta attention, which decays each key feature by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import silu

from kvcalc.core.layers import Recurrent
from kvcalc.verify.recurrences.base import Draw, Given, Plain, convolve_step

EPSILON = 1e-6  # under the root of a norm


@dataclass(frozen=True)
class DeltaRule(Plain):
    """S = S·decay; S = S + β·(v - S·k)⊗k; o = S·q / √D_k; state ``[v_heads, v_width, k_width]``.

    q, k, v come from silu(conv(x)); q and k are scaled to length one.
    """

    v_heads: int
    v_width: int
    k_width: int
    k_heads: int
    kernel: int
    vector_decay: bool
    what: str = "delta rule steps against the definition"

    @classmethod
    def of(cls, part: Recurrent, vector_decay: bool) -> Self | None:
        """Sizes from the state and the channels, or None where they don't belong together."""
        kernels = {conv.kernel for conv in part.convs}
        if len(kernels) != 1 or len(part.states) != 1 or len(part.states[0].shape) != 3:
            return None
        v_heads, v_width, k_width = part.states[0].shape
        channels = sum(conv.channels for conv in part.convs)
        k_heads, rest = divmod(channels - v_heads * v_width, 2 * k_width)
        fits = rest == 0 and k_heads > 0 and v_heads % k_heads == 0
        return cls(v_heads, v_width, k_width, k_heads, kernels.pop(), vector_decay) if fits else None

    @property
    def channels(self) -> int:
        """q, k and v side by side."""
        return 2 * self.k_heads * self.k_width + self.v_heads * self.v_width

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The convolution's columns, β, and the logarithm of the decay."""
        decays = self.v_heads * (self.k_width if self.vector_decay else 1)
        return (
            Draw("x", self.channels, stored=True),
            Draw("beta", self.v_heads, 0.1, 0.9),
            Draw("log_decay", decays, -0.2, -0.02),
        )

    @property
    def weights(self) -> tuple[Draw, ...]:
        """The convolution."""
        return (Draw("conv", self.channels * self.kernel),)

    def _split(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``[…, channels]`` → q, k ``[…, v_heads, k_width]`` before scaling, v ``[…, v_heads, v_width]``."""
        keys = self.k_heads * self.k_width
        q, k, v = u[..., :keys], u[..., keys : 2 * keys], u[..., 2 * keys :]
        lead, each = u.shape[:-1], self.v_heads // self.k_heads
        q, k = (part.reshape(*lead, self.k_heads, self.k_width).repeat_interleave(each, -2) for part in (q, k))
        return q, k, v.reshape(*lead, self.v_heads, self.v_width)

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:
        """One token."""
        q, k, v = self._split(silu(convolve_step(convs, x["x"], x["conv"].view(self.channels, -1))))
        q, k = _unit(q), _unit(k)
        state = states[0].float() * torch.exp(x["log_decay"]).view(self.v_heads, 1, -1)
        missing = x["beta"][:, None] * (v - (state @ k[:, :, None])[:, :, 0])
        state = state + missing[:, :, None] * k[:, None]
        states[0].copy_(state)
        output: Tensor = (state @ q[:, :, None]).flatten() * self.k_width**-0.5
        return output


class GatedDeltaNet(DeltaRule):
    """One decay a head."""

    @classmethod
    def fitting(cls, part: Recurrent) -> Self | None:
        """Sizes from the state and the convolution's channels."""
        return cls.of(part, vector_decay=False)


class KimiDelta(DeltaRule):
    """One decay a key feature."""

    @classmethod
    def fitting(cls, part: Recurrent) -> Self | None:
        """Sizes from the state and the channels of all three convolutions."""
        return cls.of(part, vector_decay=True)


def _unit(rows: Tensor) -> Tensor:
    return rows * torch.rsqrt(rows.square().sum(-1, keepdim=True) + EPSILON)
