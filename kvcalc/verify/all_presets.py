"""One layer of each kind of many models: layers of equal shapes prove the same thing, so each shape is run once.

Windows and chunks are cut down to a few dozen positions, so that they turn over several times in a short run; layers that
differ in nothing but their window are then one shape too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvcalc.core.layers import FullAttention, Layer, NoCache, Shared, kind_of
from kvcalc.core.model import Model, Request
from kvcalc.verify.plan import describe, same_kind, shrunk
from kvcalc.verify.results import Check, Settings
from kvcalc.verify.run import verify
from kvcalc.verify.runs import Tick, no_tick

WINDOW_TOKENS = 64  # windows are cut down to half of it
ENCODER_TOKENS = 64
SOURCE: Layer = (FullAttention(2, 64, 64, 4),)  # what a layer that keeps nothing reads


@dataclass(frozen=True)
class Shape:
    """A layer, and the models that have one of its shape."""

    layer: Layer
    model: Model  # the first of them
    names: tuple[str, ...]


@dataclass(frozen=True)
class ShapeResult:
    """What its run found."""

    kind: str
    shape: str
    names: tuple[str, ...]
    checks: tuple[Check, ...]
    not_run: str = ""

    @property
    def passed(self) -> bool:
        """Every check, or nothing that could be checked."""
        return bool(self.not_run) or (bool(self.checks) and all(check.passed and check.outputs for check in self.checks))

    @property
    def shown(self) -> Check:
        """The check that comes nearest to its tolerance."""
        return max(self.checks, key=lambda check: check.shown.ratio)


def shapes_of(models: Iterable[Model]) -> list[Shape]:
    """Every shape once, with the names of all models that have it."""
    found: dict[Layer, tuple[Model, dict[str, None]]] = {}
    for model in models:
        for layer in dict.fromkeys((*model.layers, *model.draft_layers)):
            small = shrunk(same_kind(layer), WINDOW_TOKENS)
            found.setdefault(small, (model, {}))[1][model.name] = None
    return [Shape(layer, model, tuple(names)) for layer, (model, names) in found.items()]


def verify_shapes(shapes: Sequence[Shape], settings: Settings, tick: Tick = no_tick) -> Iterator[ShapeResult]:
    """Run each shape under concat, static and paged; three sequences, without controls."""
    for shape in shapes:
        yield _run(shape, settings)
        tick(kind_of(shape.layer), 1)


def _run(shape: Shape, settings: Settings) -> ShapeResult:
    kind, said = kind_of(shape.layer), describe(shape.layer)
    if all(isinstance(part, NoCache) for part in shape.layer):
        return ShapeResult(kind, said, shape.names, (), "it keeps nothing")
    shares = any(isinstance(part, Shared) for part in shape.layer)
    model = replace(shape.model, layers=(SOURCE, shape.layer) if shares else (shape.layer,), draft_layers=())
    few = replace(settings, cache=("concat", "static", "paged"), controls=False)
    report = verify(model, Request(encoder_tokens=ENCODER_TOKENS), few)
    checks = tuple(check for check in report.checks if check.kind == kind)
    unchecked = next((check.not_run for check in checks if check.not_run and not check.outputs), "")
    return ShapeResult(kind, said, shape.names, checks, unchecked)
