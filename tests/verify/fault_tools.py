"""What the library of faults is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kvcalc.core.layers import Layer, Shared
from verify.verify_helpers import LAYERS

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and the layers that show it."""

    what: str
    layers: tuple[str, ...]
    broken: Break

    @property
    def model(self) -> tuple[Layer, ...]:
        """The layers themselves; ``shared`` reads the one before it."""
        return tuple((Shared(),) if name == "shared" else LAYERS[name] for name in self.layers)


FAULTS: list[Fault] = []


def fault(what: str, *layers: str) -> Callable[[Break], Break]:
    """Add a fault to the library."""

    def add(broken: Break) -> Break:
        FAULTS.append(Fault(what, layers, broken))
        return broken

    return add


def wrapped(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Put ``change(original, *arguments)`` in the place of a function."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *arguments, **more: change(original, *arguments, **more))
