"""The equation: what must be kept, under no engine's rounding. The concatenated cache of ``verify`` holds just this."""

from __future__ import annotations

from kvcalc.core.counting import tally_layers, total_function
from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines.base import SERVED, Engine, Figure, Serving
from kvcalc.engines.ranks import CountedRankPlan
from kvcalc.engines.releases import Rules, unversioned
from kvcalc.engines.requests import counted_layers, resolve_request


class ExactPlan(CountedRankPlan):
    """Σ over layers of rows × bytes a row."""

    def rank_tally(self, model: Model, request: Request) -> Tally:
        """Every layer's arrays. Raises DtypeError, ConfigError."""
        request, types, resolved = resolve_request(model, request)
        return Tally(tally_layers(counted_layers(model, request), request.sequences, types), request=resolved)

    def rank_counter(self, model: Model, request: Request) -> Figure:
        """The same figure as a function of batch and tokens."""
        request, types, _ = resolve_request(model, request)
        return total_function(counted_layers(model, request), types)

    @property
    def step(self) -> int:
        """1, or the longest compression period: DeepSeek V4 adds a row every ``ratio`` tokens."""
        return max((getattr(part, "ratio", 0) or 1 for layer in self.model.layers for part in layer), default=1)


class Exact(Engine):
    """The equation, whatever engine runs the model."""

    name = "exact"
    source = "the equation 2·L·B·T·H_kv·D_h·s, layer by layer"
    evidence = "measured: equal to a concatenated cache (kvcalc verify)"
    releases = unversioned("exact")
    excluded = ("weights", "activations and workspace", "padding, blocks and preallocation of any engine", "allocator overhead")

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Every model whose layers are known."""
        del model, rules
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> ExactPlan:
        """The equation for a request."""
        return ExactPlan(self, model, request, rules)


ENGINE = Exact()
