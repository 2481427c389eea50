"""The preallocated cache: every array made for ``capacity`` positions before the first token, and written in place.

At any length up to its capacity it holds what the equation says at the capacity. A window that is shorter than the
capacity is allocated as a ring of ``window`` rows; states and the encoder's keys are as they always are.
"""

from __future__ import annotations

from kvcalc.core.counting import tally_layers, total_function
from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines.base import SERVED, Engine, Figure, Serving
from kvcalc.engines.options import Option
from kvcalc.engines.ranks import CountedRankPlan
from kvcalc.engines.releases import Rules, unversioned
from kvcalc.engines.requests import counted_layers, resolve_request
from kvcalc.errors import EngineError


class StaticPlan(CountedRankPlan):
    """Rows at ``capacity`` × bytes a row × sequences, over all layers."""

    def rank_tally(self, model: Model, request: Request) -> Tally:
        """Every layer's arrays at the capacity. Raises EngineError when the tokens don't fit."""
        capacity = _asked(request)
        if request.tokens is None and not request.lengths and capacity is not None:
            request = request.at(capacity)
        filled, types, resolved = resolve_request(model, request)
        longest = max(tokens for tokens, _ in filled.sequences)
        rows, origin = (longest, "default: the tokens") if capacity is None else (capacity, "-o capacity")
        _check(longest, rows)
        sequences = ((rows, sum(count for _, count in filled.sequences)),)
        layers = tally_layers(counted_layers(model, filled), sequences, types)
        return Tally(layers, request={**resolved, "capacity": (rows, origin)}, report={"capacity": rows})

    def rank_counter(self, model: Model, request: Request) -> Figure:
        """The same figure as a function of batch and tokens; it refuses tokens beyond the capacity."""
        filled, types, _ = resolve_request(model, request)
        exact = total_function(counted_layers(model, filled), types)
        capacity = _asked(request)

        def total_bytes(batch_size: int, tokens: int) -> int:
            rows = tokens if capacity is None else capacity
            _check(tokens, rows)
            return exact(batch_size, rows)

        return total_bytes


def _asked(request: Request) -> int | None:
    capacity = request.options.get("capacity")
    return None if capacity is None else int(capacity)


def _check(tokens: int, capacity: int) -> None:
    if tokens > capacity:
        raise EngineError(
            f"a static cache of {capacity:,} positions can't hold {tokens:,} tokens",
            "-o capacity",
            f"give -o capacity={tokens} or more, or fewer --tokens",
        )


class Static(Engine):
    """The preallocated cache of ``kvcalc verify``."""

    name = "static"
    source = "the equation at T = capacity, written in place"
    evidence = "measured: equal to a preallocated cache (kvcalc verify)"
    releases = unversioned("static")
    own_options = (Option("capacity", "count", "positions that every sequence's arrays are made for", "the tokens", minimum=1),)
    excluded = ("weights", "activations and workspace", "allocator overhead")

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Every model whose layers are known."""
        del model, rules
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> StaticPlan:
        """A cache made for the capacity."""
        return StaticPlan(self, model, request, rules)


ENGINE = Static()
