"""What the rules ask, and what they answer."""

from __future__ import annotations

from kvcalc.core.model import Request
from kvcalc.engines.other_memory.sizes import Sizes
from kvcalc.engines.releases import Rules
from kvcalc.units import format_bytes
from kvcalc.values import value

GIB = 2**30
UNIFIED = ("gb10", "strix", "8060s", "jetson", "gh200", "thor")  # the card's memory is the system's


@value
class Card:
    """The card that is asked about. Sizes are bytes."""

    bytes: int  # what a program can use
    name: str = ""
    architecture: str = ""  # sm89, gfx1100, metal; empty where unknown
    driver_bytes: int | None = None

    @property
    def unified(self) -> bool:
        """Whether it shares the system's memory."""
        return self.architecture == "metal" or any(word in self.name.lower() for word in UNIFIED)

    @property
    def cuda(self) -> bool:
        """Whether it is one of NVIDIA's, as far as is known."""
        return not self.architecture or self.architecture.startswith("sm")


@value
class Facts:
    """One start: the model's sizes, the request, the release's rules and the card."""

    sizes: Sizes
    request: Request
    rules: Rules
    card: Card

    def number(self, option: str, default: int) -> int:
        """A whole number among the engine's options."""
        found = self.request.options.get(option)
        return found if isinstance(found, int) and not isinstance(found, bool) else default

    def flag(self, option: str) -> bool | None:
        """A switch among the engine's options; None where it is unsaid."""
        found = self.request.options.get(option)
        return found if isinstance(found, bool) else None


@value
class Other:
    """Bytes of each card that neither weights nor cache get: an interval, and what it rests on."""

    low: int
    high: int | None  # None: nothing bounds it
    basis: str
    advice: str = ""  # what would make it less

    @property
    def said(self) -> str:
        """The interval, for people."""
        if self.high is None:
            return f"at least {format_bytes(self.low)}" if self.low else "not known"
        return f"{format_bytes(self.low)} to {format_bytes(self.high)}"


def gib(low: float, high: float | None, basis: str, advice: str = "") -> Other:
    """The same from figures in GiB."""
    return Other(round(low * GIB), None if high is None else round(high * GIB), basis, advice)


def not_covered(why: str, low: float = 0.0) -> Other:
    """No figure bounds it, so that no length is certain."""
    return gib(low, None, f"not covered ({why}): give --overhead")
