"""The equation: what must be kept, under no engine's rounding. The concatenated cache of ``verify`` holds just this."""

from __future__ import annotations

from collections.abc import Callable

from kvcalc.core.counting import tally_layers, total_function
from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines.base import Engine, counted_layers, resolve_request
from kvcalc.engines.ranks import by_rank, sharing, total_by_rank


def allocate(model: Model, request: Request) -> Tally:
    """Σ over layers of rows × bytes a row. Raises DtypeError, ConfigError."""
    request, types, resolved = resolve_request(model, request)
    return Tally(tally_layers(counted_layers(model, request), request.sequences, types), request=resolved)


def total(model: Model, request: Request) -> Callable[[int, int], int]:
    """The same figure as a function of batch and tokens."""
    request, types, _ = resolve_request(model, request)
    return total_function(counted_layers(model, request), types)


def step(model: Model, _request: Request) -> int:
    """1, or the longest compression period: DeepSeek V4 adds a row every ``ratio`` tokens."""
    return max((getattr(part, "ratio", 0) or 1 for layer in model.layers for part in layer), default=1)


ENGINE = Engine(
    name="exact",
    version="1",
    source="the equation 2·L·B·T·H_kv·D_h·s, layer by layer",
    evidence="measured: equal to a concatenated cache (kvcalc verify)",
    allocate=by_rank(allocate),
    step=step,
    total=total_by_rank(total),
    ranks=sharing,
    excluded=("weights", "activations and workspace", "padding, blocks and preallocation of any engine", "allocator overhead"),
)
