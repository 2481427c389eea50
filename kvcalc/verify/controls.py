"""Caches broken on purpose. A check that can't fail proves nothing, so each run shows that these are caught.

A control runs one part at a small length, with windows small enough to matter, through the same steps and comparisons
as the run itself; one thing is wrong with its cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvcalc.core.counting import Reach, Types
from kvcalc.core.layers import CompressedAttention, Layer, Part, Recurrent, kind_of
from kvcalc.dtypes import DTYPES, Dtype
from kvcalc.verify.attention import Visibility
from kvcalc.verify.caches.base import Held, RowCache, RowShape
from kvcalc.verify.codecs import CODECS, IntegerCodec
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.layouts import ConcatLayout, Layout, Maker, PagedLayout, StaticLayout
from kvcalc.verify.parts.base import Context, OpenPart, PartProof
from kvcalc.verify.parts.key_value import KeyValueProof
from kvcalc.verify.parts.latent import LatentProof
from kvcalc.verify.parts.recurrent import OpenRecurrent
from kvcalc.verify.plan import Step, shrunk, steps_of
from kvcalc.verify.results import Control, Measure
from kvcalc.verify.runs import proof_of

TOKENS, PROMPT, BLOCK_SIZE = 48, 32, 8
BROKEN_AT = PROMPT - 1  # the last prefilled position: later steps read it back

Break = Callable[[Tensor, int], Tensor]  # (rows of one append [heads, n, width], the broken row's index among them) → rows


class BrokenCache:
    """A cache that stores one row wrongly."""

    def __init__(self, inner: RowCache, position: int, change: Break) -> None:
        self.inner, self.position, self.change = inner, position, change
        self.fed: dict[int, int] = {}

    def _broken(self, sequence: int, rows: Tensor) -> Tensor:
        start = self.fed.get(sequence, 0)
        self.fed[sequence] = start + rows.shape[1]
        index = self.position - start
        return self.change(rows, index) if 0 <= index < rows.shape[1] else rows

    def append(self, sequence: int, rows: Tensor) -> None:
        """Break, then append."""
        self.inner.append(sequence, self._broken(sequence, rows))

    def extend(self, sequence: int, rows: Tensor) -> Held:
        """Break, then extend."""
        return self.inner.extend(sequence, self._broken(sequence, rows))

    def read(self, sequence: int) -> Held:
        """Give what is held."""
        return self.inner.read(sequence)

    def tensors(self) -> list[Tensor]:
        """Name what is held."""
        return self.inner.tensors()


@dataclass
class BrokenLayout:
    """A layout whose first ``count`` caches store one row wrongly."""

    inner: Maker
    change: Break
    count: int

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """Break the first caches; among rows of a fixed number, the last row."""
        made = self.inner.cache(shape, reach)
        if self.count == 0:
            return made
        self.count -= 1
        if reach.fixed is not None:
            return BrokenCache(made, reach.fixed - 1, self.change)
        return BrokenCache(made, BROKEN_AT // reach.ratio, self.change)


def stale_row(rows: Tensor, index: int) -> Tensor:
    """The row before it is still there (a row of zeros where the append has none)."""
    rows = rows.clone()
    rows[:, index] = rows[:, index - 1] if index else 0
    return rows


def dropped_row(rows: Tensor, index: int) -> Tensor:
    """The row never arrives."""
    return torch.cat((rows[:, :index], rows[:, index + 1 :]), dim=1)


def without_scale(dtype: Dtype) -> Break:
    """The row's scale is lost: zero in a ggml block, one for integers."""

    def change(rows: Tensor, index: int) -> Tensor:
        rows, codec = rows.clone(), CODECS[dtype.name]
        if isinstance(codec, IntegerCodec):
            rows[:, index] = torch.round(rows[:, index].float() * codec.step).to(rows.dtype)
        else:
            rows[:, index, :2] = 0  # the first block's d
        return rows

    return change


@dataclass(frozen=True)
class Bench:
    """One part, small, with its reference, ready to be run in any broken way."""

    part: Part
    proof: PartProof
    context: Context
    steps: Sequence[Step]

    def layout(self, name: str) -> Layout:
        """A sound layout."""
        lengths, device = self.context.lengths, self.context.device
        if name == "paged":
            return PagedLayout(lengths, device, BLOCK_SIZE, self.context.inputs.seed)
        return StaticLayout(lengths, device, max(lengths)) if name == "static" else ConcatLayout(lengths, device)

    def run(self, opened: OpenPart, halfway: Callable[[], None] | None = None) -> list[Measure]:
        """Feed all steps; ``halfway`` breaks something after the prefill."""
        for sequence, start, stop in self.steps:
            if halfway is not None and start >= PROMPT:
                halfway()
                halfway = None
            opened.step(sequence, start, stop)
        return opened.measures(0)


def bench_of(part: Part, types: Types, inputs: Inputs) -> Bench | None:
    """A bench for a part; None where nothing is computed from it."""
    tokens = 2 * part.ratio + 8 if isinstance(part, CompressedAttention) and part.ratio > TOKENS // 2 else TOKENS
    small = shrunk((part,), TOKENS)[0]
    lengths = (tokens, tokens - 5)
    checked = tuple(tuple(range(length)) for length in lengths)
    few = replace(types, encoder_tokens=min(types.encoder_tokens, TOKENS))
    context = Context(inputs, few, lengths, checked)
    proof = proof_of(context, small, 0)
    if proof is None:
        return None
    proof.prepare()
    return Bench(small, proof, context, steps_of(lengths, PROMPT, (1, 4)))


def controls_of(layers: Sequence[Layer], types: Types, inputs: Inputs, layouts: Sequence[str]) -> list[Control]:
    """Break the first part of every kind in every way that applies to it."""
    parts: dict[object, Part] = {}
    for layer in layers:
        for part in layer:
            parts.setdefault(part.variant if isinstance(part, Recurrent) else type(part), part)
    found: list[Control] = []
    for part in parts.values():
        bench = bench_of(part, types, inputs)
        if bench is not None:
            found += _broken(bench, layouts)
    return found


def _broken(bench: Bench, layouts: Sequence[str]) -> list[Control]:
    if isinstance(bench.proof.open(bench.layout("concat")), OpenRecurrent):
        return _broken_state(bench, layouts[0])
    first, last = layouts[0], layouts[-1]
    found = [_rows(bench, last, "stale row", stale_row, 1, "one stored row is still its neighbour's")]
    found.append(_rows(bench, first, "dropped position", dropped_row, 99, "one position was never stored"))
    found += _sight(bench, first)
    if "paged" in layouts and isinstance(bench.proof, KeyValueProof | LatentProof):
        found += _swapped(bench)
    return [control for control in found if control is not None]


def _rows(bench: Bench, layout: str, name: str, change: Break, caches: int, what: str) -> Control | None:
    opened = bench.proof.open(BrokenLayout(bench.layout(layout), change, caches))
    return _control(name, bench, layout, what, bench.run(opened))


def _sight(bench: Bench, layout: str) -> list[Control | None]:
    """A mask left out, a window one too long."""
    proof = bench.proof
    if not isinstance(proof, KeyValueProof | LatentProof) or not proof.sight.causal:
        return []
    opened = proof.open(bench.layout(layout))
    opened.sight = Visibility(causal=False)
    found = [_control("chunk without mask", bench, layout, "new tokens of a chunk see each other's future", bench.run(opened))]
    longer = _longer(proof.sight)
    if longer is not None and isinstance(proof, KeyValueProof):
        wide = _WideWindow(bench.layout(layout))
        opened = proof.open(wide)
        opened.sight = longer
        found.append(_control("window one too long", bench, layout, "a query sees one position too many", bench.run(opened)))
    return found


def _longer(sight: Visibility) -> Visibility | None:
    if sight.window is not None:
        return Visibility(window=sight.window + 1)
    return Visibility(chunk=sight.chunk + 1) if sight.chunk is not None else None


@dataclass
class _WideWindow:
    """A layout that keeps one row more of every window."""

    inner: Maker

    def cache(self, shape: RowShape, reach: Reach) -> RowCache:
        """Keep one more."""
        return self.inner.cache(shape, replace(reach, cap=None if reach.cap is None else reach.cap + 1))


def _swapped(bench: Bench) -> list[Control | None]:
    layout = PagedLayout(bench.context.lengths, bench.context.device, BLOCK_SIZE, bench.context.inputs.seed)
    opened = bench.proof.open(layout)
    if not layout.tables:
        return []  # an encoder's rows aren't paged
    table = next(iter(layout.tables.values()))

    def swap() -> None:
        column = BROKEN_AT // BLOCK_SIZE % len(table.held[0])
        table.entries[[0, 1], column] = table.entries[[1, 0], column]

    what = "two sequences' blocks are exchanged in the table"
    return [_control("block table swapped", bench, "paged", what, bench.run(opened, swap))]


def _broken_state(bench: Bench, layout: str) -> list[Control]:
    found = []
    for attribute, name, what in (
        ("skip_state", "state not updated", "one token's state is thrown away"),
        ("skip_conv", "convolution not moved", "one token's column never enters the window"),
    ):
        opened = bench.proof.open(bench.layout(layout))
        if not isinstance(opened, OpenRecurrent):
            continue
        held = opened.states if attribute == "skip_state" else [conv for conv in opened.convs if conv.numel()]
        if held:
            setattr(opened, attribute, BROKEN_AT)
            found.append(_control(name, bench, layout, what, bench.run(opened)))
    return [control for control in found if control is not None]


def scale_control(part: Part, types: Types, inputs: Inputs, name: str) -> Control | None:
    """A quantised cache that loses the scale of one row."""
    dtype = DTYPES[name]
    bench = bench_of(part, replace(types, k=dtype, v=dtype), inputs)
    if bench is None:
        return None
    opened = bench.proof.open(BrokenLayout(bench.layout("concat"), without_scale(dtype), 1))
    return _control("scale lost", bench, "quantized", f"one {name} row has lost its scale", bench.run(opened))


def _control(name: str, bench: Bench, layout: str, what: str, measures: list[Measure]) -> Control | None:
    if not measures:
        return None
    shown = next((measure for measure in measures if not measure.passed), measures[0])
    return Control(name, kind_of((bench.part,)), layout, what, shown.error, shown.tolerance)
