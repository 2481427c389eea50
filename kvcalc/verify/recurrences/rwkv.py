"""RWKV: the last token's two rows (token shift), and a state of matrices (5 and later) or of three rows (4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kvcalc.core.layers import Recurrent
from kvcalc.verify.recurrences.base import Draw, Given, Plain

MIXES = ("r", "k", "v", "channel")


def shift_step(x: Given, last: Tensor) -> dict[str, Tensor]:
    """Each input mixed with the same input of the token before, whose row then makes way for this one's."""
    before = last.float()
    mixed = {name: torch.lerp(before[(name == "channel" and 1) or 0], _own(x, name), x[f"mix_{name}"]) for name in MIXES}
    last[0].copy_(x["x"])
    last[1].copy_(x["z"])
    return mixed


def _own(x: Given, name: str) -> Tensor:
    return x["z"] if name == "channel" else x["x"]


def _shift_draws(hidden: int) -> tuple[Draw, ...]:
    return Draw("x", hidden, stored=True), Draw("z", hidden, stored=True)


def _shift_weights(hidden: int) -> tuple[Draw, ...]:
    return tuple(Draw(f"mix_{name}", hidden, 0.1, 0.9) for name in MIXES)


class TokenShift(Plain):
    """The first state is the last token's inputs."""

    exact_states: ClassVar[tuple[int, ...]] = (0,)


@dataclass(frozen=True)
class RwkvMatrix(TokenShift):
    """o = r·(S + u∘k⊗v), S = decay∘S + k⊗v; state ``[heads, size, size]``, and the rows of time mix and channel mix."""

    heads: int
    size: int
    what: str = "RWKV steps against the definition"

    @classmethod
    def fitting(cls, part: Recurrent) -> RwkvMatrix | None:
        """Two rows of the width of all heads, and a square matrix a head."""
        shapes = [state.shape for state in part.states]
        if part.convs or len(shapes) != 2 or len(shapes[1]) != 3:
            return None
        heads, rows, columns = shapes[1]
        return cls(heads, rows) if rows == columns and shapes[0] == (2, heads * rows) else None

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The inputs of time mix and channel mix."""
        return _shift_draws(self.heads * self.size)

    @property
    def weights(self) -> tuple[Draw, ...]:
        """The mixes, the bonus u and the decay."""
        hidden = self.heads * self.size
        return *_shift_weights(hidden), Draw("u", hidden), Draw("log_decay", hidden, -0.5, -0.05)

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:  # noqa: ARG002 - it has none
        """One token."""
        mixed = shift_step(x, states[0])
        r, k, v, u, log_decay = (part.view(self.heads, self.size) for part in self._parts(mixed, x))
        state, now = states[1].float(), k[:, :, None] * v[:, None]
        output = (r[:, None] @ (state + u[:, :, None] * now))[:, 0]
        states[1].copy_(torch.exp(log_decay)[:, :, None] * state + now)
        return torch.cat((output.flatten(), mixed["channel"]))

    def _parts(self, mixed: dict[str, Tensor], x: Given) -> tuple[Tensor, ...]:
        return mixed["r"], mixed["k"], mixed["v"], x["u"], x["log_decay"]


@dataclass(frozen=True)
class Rwkv4(TokenShift):
    """A decayed average of values weighted by exp(k), kept as numerator, denominator and running maximum."""

    width: int
    what: str = "RWKV-4 steps against the definition"

    @classmethod
    def fitting(cls, part: Recurrent) -> Rwkv4 | None:
        """Two rows of token shift and three of the average, of one width."""
        shapes = [state.shape for state in part.states]
        if part.convs or len(shapes) != 2 or len(shapes[0]) != 2:
            return None
        return cls(shapes[0][1]) if shapes[0][0] == 2 and shapes[1] == (3, shapes[0][1]) else None

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The inputs of time mix and channel mix."""
        return _shift_draws(self.width)

    @property
    def weights(self) -> tuple[Draw, ...]:
        """The mixes, the bonus u and the decay."""
        return *_shift_weights(self.width), Draw("u", self.width), Draw("log_decay", self.width, -0.5, -0.05)

    def start(self, states: list[Tensor]) -> None:
        """No weight yet: the maximum is as low as it gets."""
        states[1][2].fill_(-1e38)

    def step(self, x: Given, convs: list[Tensor], states: list[Tensor]) -> Tensor:  # noqa: ARG002 - it has none
        """One token."""
        mixed = shift_step(x, states[0])
        above, below, top = states[1].float()
        k, v = mixed["k"], mixed["v"]
        output = _weighted(above, below, top, x["u"] + k, v)
        largest = torch.maximum(top + x["log_decay"], k)
        old, new = torch.exp(top + x["log_decay"] - largest), torch.exp(k - largest)
        states[1].copy_(torch.stack((old * above + new * v, old * below + new, largest)))
        return torch.cat((output * torch.sigmoid(mixed["r"]), mixed["channel"]))


def _weighted(above: Tensor, below: Tensor, top: Tensor, exponent: Tensor, v: Tensor) -> Tensor:
    largest = torch.maximum(top, exponent)
    old, new = torch.exp(top - largest), torch.exp(exponent - largest)
    return (old * above + new * v) / (old * below + new)
