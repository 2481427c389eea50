"""Blocks given back wrongly, on purpose: each must show in the outputs, or in the inspection of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcalc.core.counting import Types
from kvcalc.core.layers import FullAttention, LatentAttention, Layer, Part, SlidingAttention, kind_of
from kvcalc.verify.caches.base import CapacityError, RowShape
from kvcalc.verify.caches.paged import BlockTable
from kvcalc.verify.caches.static import StaticCache
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.life import LifeLayout, life_of
from kvcalc.verify.parts.base import Context
from kvcalc.verify.plan import Chosen, shrunk
from kvcalc.verify.results import Control, Measure
from kvcalc.verify.runs import feed, measures_of, open_layers, prove

BLOCK_SIZE = 4

Spoil = Callable[[BlockTable], None]


def stays(table: BlockTable) -> None:
    """A sequence that ends leaves its entries behind."""
    sound = table.release

    def release(sequence: int) -> None:
        kept = table.entries[sequence].clone()
        sound(sequence)
        table.entries[sequence] = kept

    table.release = release  # type: ignore[method-assign]


def freed_twice(table: BlockTable) -> None:
    """The first block of a sequence that ends is given back twice."""
    sound = table.release

    def release(sequence: int) -> None:
        first = table.held[sequence][:1]
        sound(sequence)
        table.free += first

    table.release = release  # type: ignore[method-assign]


def written_together(table: BlockTable) -> None:
    """A block that two sequences hold is written without being copied first."""
    table.own = lambda sequence, places: None  # type: ignore[method-assign]  # noqa: ARG005 - that is the fault


FAULTS: tuple[tuple[str, str, Spoil], ...] = (
    ("entries stay", "a sequence ends and its table entries stay", stays),
    ("double free", "a block of a sequence that ends is given back twice", freed_twice),
    ("no copy on write", "a fork writes into a block that its parent reads", written_together),
)


def life_controls(layers: Sequence[Layer], types: Types, inputs: Inputs) -> list[Control]:
    """Break the first part that lies in blocks, and let a static cache run over."""
    part = next((p for layer in layers for p in layer if isinstance(p, FullAttention | LatentAttention | SlidingAttention)), None)
    if part is None or getattr(part, "num_kv_heads", 1) == 0:
        return []
    return [*_spoilt(part, types, inputs), overrun(part, inputs)]


def _spoilt(part: Part, types: Types, inputs: Inputs) -> list[Control]:
    """The sound table first, then each broken one, through the whole story."""
    small, found = shrunk((part,), 6 * BLOCK_SIZE), []
    forks = getattr(part, "window", None) is None
    sound = all(measure.passed for measure in run_story(small, types, inputs, forks))
    for name, what, spoil in FAULTS:
        if spoil is written_together and not forks:
            continue
        measures = run_story(small, types, inputs, forks, spoil)
        worst = next((measure for measure in measures if not measure.passed), Measure("nothing"))
        found.append(Control(name, kind_of(small), "paged, reused", what, worst.error, worst.tolerance, worst.what, sound))
    return found


def run_story(layer: Layer, types: Types, inputs: Inputs, forks: bool, spoil: Spoil | None = None) -> list[Measure]:
    """All comparisons of a layer while sequences come and go. Running out of blocks counts as infinitely far."""
    life = life_of(BLOCK_SIZE, forks)
    layout = LifeLayout(life.live, inputs.device, BLOCK_SIZE, inputs.seed, life=life)
    checked = tuple(tuple(range(length)) for length in life.lengths)
    proofs = prove(Context(inputs, types, life.lengths, checked, life.forks), [Chosen(0, layer)])
    opened = open_layers(proofs, layout)
    if spoil is not None:
        for table in layout.tables.values():
            spoil(table)
    try:
        feed(opened, life.steps, layout)
    except CapacityError:
        return [Measure("blocks enough", float("inf"), 0.0, 1)]
    return [*measures_of(opened, 0), layout.audits.measure()]


def overrun(part: Part, inputs: Inputs) -> Control:
    """One position more than a static cache was made for must be refused, not lost."""
    name, what = "overrun", "one row more than the capacity is stored"
    rows = inputs.uniform("overrun", shape=(1, 3, 2))
    cache = StaticCache(RowShape(1, 2, rows.dtype), 1, inputs.device, 3)
    cache.append(0, rows)
    try:
        cache.append(0, rows[:, :1])
    except CapacityError:
        return Control(name, kind_of((part,)), "static", what, float("inf"), 0.0, "refused")
    return Control(name, kind_of((part,)), "static", what, 0.0, 0.0)
