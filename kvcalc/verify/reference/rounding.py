"""How far float32 may be from the exact answer: running error bounds, made beside the numbers themselves.

u = 2^-24 is half a unit in float32's last place. One operation errs by at most u times its result. A sum of n terms errs by at
most n·u times the sum of their magnitudes, whatever the order; where roundings are independent, 6·√n·u holds with a chance of
failure below 2·n·exp(-18) (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019). Terms of random
signs add up to less on the way than their magnitudes do: partial sums stay within |total| + 2·√(Σ terms²), which takes the
magnitudes' place. exp, log and division of a library are taken to be good to two units in the last place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

UNIT = 2.0**-24
DEVIATIONS = 6.0
LIBRARY = 4 * UNIT  # exp, log, root and division of a vector library


def gamma(terms: float) -> float:
    """The relative error of a sum of ``terms`` products against the sum of their magnitudes."""
    return min(terms, DEVIATIONS * math.sqrt(terms)) * UNIT


def product_error(count: int, total: Tensor, squares: Tensor) -> Tensor:
    """The error of sums of ``count`` products of random signs, from the sums and the sums of the products' squares."""
    return DEVIATIONS * math.sqrt(count) * UNIT * (total.abs() + 2 * squares.sqrt())


@dataclass(frozen=True, slots=True)
class Bounded:
    """Exact numbers, and how far the same numbers made in float32 may be from them."""

    exact: Tensor
    error: Tensor

    @classmethod
    def given(cls, numbers: Tensor) -> Bounded:
        """Numbers that float32 holds as they are."""
        return cls(numbers, torch.zeros_like(numbers))

    def __add__(self, other: Bounded) -> Bounded:
        """Add; one rounding."""
        total = self.exact + other.exact
        return Bounded(total, self.error + other.error + UNIT * total.abs())

    def __sub__(self, other: Bounded) -> Bounded:
        """Take away; one rounding."""
        left = self.exact - other.exact
        return Bounded(left, self.error + other.error + UNIT * left.abs())

    def __mul__(self, other: Bounded) -> Bounded:
        """Multiply; one rounding."""
        product = self.exact * other.exact
        carried = self.exact.abs() * other.error + (other.exact.abs() + other.error) * self.error
        return Bounded(product, carried + UNIT * product.abs())

    def __truediv__(self, other: Bounded) -> Bounded:
        """Divide."""
        ratio = self.exact / other.exact
        size = (other.exact.abs() - other.error).clamp(min=1e-300)
        return Bounded(ratio, (self.error + ratio.abs() * other.error) / size + LIBRARY * ratio.abs())

    def __getitem__(self, where: object) -> Bounded:
        """Some of the numbers."""
        return Bounded(self.exact[where], self.error[where])  # type: ignore[index]

    def shaped(self, *shape: int) -> Bounded:
        """The same numbers in another shape."""
        return Bounded(self.exact.reshape(shape), self.error.reshape(shape))

    def sum(self, axis: int) -> Bounded:
        """Add along an axis, in any order."""
        sizes = (self.exact.abs() + self.error).sum(axis)
        return Bounded(self.exact.sum(axis), self.error.sum(axis) + gamma(self.exact.shape[axis]) * sizes)

    def exp(self) -> Bounded:
        """Raise e to the numbers."""
        found = self.exact.exp()
        return Bounded(found, found * self.error.expm1() + LIBRARY * found)

    def root(self) -> Bounded:
        """Take square roots of numbers that lie well above their errors."""
        found = self.exact.sqrt()
        return Bounded(found, self.error / found.clamp(min=1e-150) + LIBRARY * found)

    def largest(self, other: Bounded) -> Bounded:
        """Take the larger of two."""
        return Bounded(torch.maximum(self.exact, other.exact), torch.maximum(self.error, other.error))

    def stored(self, unit: float) -> Bounded:
        """Round once to a type whose half unit is ``unit``; nothing happens where that is float32."""
        return Bounded(self.exact, self.error + unit * (self.exact.abs() + self.error)) if unit else self


def sigmoid(x: Bounded) -> Bounded:
    """1 / (1 + exp(-x)), whose slope is at most 1/4."""
    found = 1 / (1 + torch.exp(-x.exact))
    return Bounded(found, x.error / 4 + LIBRARY * found)


def silu(x: Bounded) -> Bounded:
    """X / (1 + exp(-x)), whose slope is at most 1.1; its argument's last place counts once more in the exponential."""
    found = x.exact / (1 + torch.exp(-x.exact))
    return Bounded(found, 1.1 * x.error + (2 * LIBRARY + UNIT * x.exact.abs()) * found.abs())
