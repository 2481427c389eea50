"""The run in which sequences come and go: one layer of each kind whose rows lie in blocks, with windows small enough to turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcalc.core.layers import CrossAttention, Layer, kind_of
from kvcalc.verify.caches.base import CapacityError
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.life import LifeLayout, life_of, lives
from kvcalc.verify.parts.base import Context
from kvcalc.verify.plan import Chosen, choose_layers, describe, same_kind, shrunk
from kvcalc.verify.results import Check, Measure, Weighing
from kvcalc.verify.runs import Case, prove, run_layout

if TYPE_CHECKING:
    from kvcalc.verify.run import Plan

MOST_BLOCK = 32  # a larger block would only make the story longer
WINDOW = 32  # what windows are cut down to: they turn over several times


def run_lives(plan: Plan, inputs: Inputs) -> tuple[list[Check], list[Weighing]]:
    """Once with a fork for the layers whose whole past is kept, once without for the others."""
    chosen = _chosen(plan)
    whole = [each for each in chosen if _keeps_all(each.layer)]
    checks: list[Check] = []
    weighings: list[Weighing] = []
    for some, forks in ((whole, True), ([each for each in chosen if each not in whole], False)):
        if some:
            found, weighing = _run(plan, inputs, some, forks)
            checks += found
            weighings.append(weighing)
    return checks, weighings


def _chosen(plan: Plan) -> list[Chosen]:
    """One layer of each kind, small; a layer that reads another's cache comes with that one."""
    found: dict[Layer, Chosen] = {}
    for each in choose_layers(plan.model.layers, 1):
        small = shrunk(each.layer, 2 * WINDOW)
        if lives(small) and not any(reader.source == each.index for reader in plan.chosen):
            found.setdefault(same_kind(small), replace(each, layer=small))
    return list(found.values())


def _name(forks: bool) -> str:
    return "paged, forked" if forks else "paged, reused"


def _keeps_all(layer: Layer) -> bool:
    """Whether a fork can begin with another's rows: no window has dropped some, and no encoder's rows belong to one alone."""
    kept = all(getattr(part, name, None) is None for part in layer for name in ("window", "chunk"))
    return kept and not any(isinstance(part, CrossAttention) for part in layer)


def _run(plan: Plan, inputs: Inputs, chosen: Sequence[Chosen], forks: bool) -> tuple[list[Check], Weighing]:
    life = life_of(min(plan.settings.block_size, MOST_BLOCK), forks)
    layers = tuple(each.layer for each in chosen)
    layout = LifeLayout(
        life.live, plan.device, min(plan.settings.block_size, MOST_BLOCK), plan.settings.seed, _name(forks), life=life
    )
    checked = tuple(tuple(range(length)) for length in life.lengths)
    context = Context(inputs, plan.types, life.lengths, checked, life.forks)
    request = replace(plan.request, lengths=life.live, tokens=None, batch_size=1)
    case = Case(replace(plan.model, layers=layers), request, {}, life.steps)
    proofs = prove(context, chosen)
    try:
        found, weighing = run_layout(case, proofs, layout)
    except CapacityError:
        return [_out_of_blocks(plan, chosen[0], layout)], Weighing(layout.name, layout.engine, "", "", 0, 0)
    audit = layout.audits.measure()
    return [_shown(plan, check, each, audit) for check, each in zip(found, chosen, strict=True)], weighing


def _out_of_blocks(plan: Plan, chosen: Chosen, layout: LifeLayout) -> Check:
    """Blocks that were given back didn't reach those who need them."""
    lost = Measure("blocks enough for all that are alive", float("inf"), 0.0, 1)
    types = plan.types.k.name, plan.types.v.name
    return Check(kind_of(chosen.layer), "", layout.name, layout.engine, *types, 1, 1, (lost,), 0, 0, "the pool ran out of blocks")


def _shown(plan: Plan, check: Check, chosen: Chosen, audit: Measure) -> Check:
    """Under the layer's own name, with the tables' inspections."""
    original = plan.model.layers[chosen.index]
    return replace(
        check,
        shape=describe(original),
        layers_in_model=plan.counts.get(same_kind(original), 1),
        measures=(*check.measures, audit),
    )
