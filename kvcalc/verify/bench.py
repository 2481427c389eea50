"""One part of a layer, small, with its reference: the sound cache first, then the same cache broken in any way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kvcalc.core.counting import Types
from kvcalc.core.layers import CompressedAttention, Part, kind_of
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.layouts import ConcatLayout, Layout, Maker, PagedLayout, StaticLayout
from kvcalc.verify.parts.base import Context, OpenPart, PartProof
from kvcalc.verify.plan import Step, shrunk, steps_of
from kvcalc.verify.results import Control, Measure
from kvcalc.verify.runs import proof_of

TOKENS, PROMPT, BLOCK_SIZE = 48, 32, 8
SHORTER = (0, 5, 9)  # three sequences of unequal lengths
READER = 1  # a layer that keeps nothing and reads this one's cache


@dataclass(frozen=True)
class Bench:
    """A part, ready to be run: ``reads`` tells whether another layer reads its cache too."""

    part: Part
    proof: PartProof
    context: Context
    steps: Sequence[Step]
    reads: bool = False
    passed: dict[str, bool] = field(default_factory=dict)  # by layout: whether the sound cache passes

    def layout(self, name: str) -> Layout:
        """A sound layout."""
        lengths, device = self.context.lengths, self.context.device
        if name == "paged":
            return PagedLayout(lengths, device, BLOCK_SIZE, self.context.inputs.seed)
        return StaticLayout(lengths, device, max(lengths)) if name == "static" else ConcatLayout(lengths, device)

    def open(self, layout: Maker) -> OpenPart:
        """The part's caches under a layout."""
        return self.proof.open(layout)

    def run(self, opened: OpenPart, halfway: Callable[[], None] | None = None) -> list[Measure]:
        """Feed all steps; ``halfway`` breaks something after the prefill."""
        for sequence, start, stop in self.steps:
            if halfway is not None and start >= PROMPT:
                halfway()
                halfway = None
            opened.step(sequence, start, stop)
        return [*opened.measures(0), *(opened.measures(READER) if self.reads else [])]

    def sound(self, name: str) -> bool:
        """Whether the unbroken cache passes every comparison, and there is one."""
        if name not in self.passed:
            measures = self.run(self.open(self.layout(name)))
            self.passed[name] = bool(measures) and all(measure.passed for measure in measures)
        return self.passed[name]

    def control(
        self,
        name: str,
        layout: str,
        what: str,
        opened: OpenPart,
        halfway: Callable[[], None] | None = None,
        shown: str = "",
        reader: bool = False,
    ) -> Control:
        """Run a broken cache where the sound one has just passed; ``reader``: only the other layer's outputs count."""
        sound, measures = self.sound(layout), self.run(opened, halfway)
        measures = opened.measures(READER) if reader else measures
        worst = next((measure for measure in measures if not measure.passed), None)
        found = worst or max(measures, key=lambda measure: measure.ratio, default=Measure("nothing"))
        by = worst.what if worst else ""
        kind = "shared" if reader else kind_of((self.part,))
        return Control(name, kind, shown or layout, what, found.error, found.tolerance, by, sound)


def bench_of(part: Part, types: Types, inputs: Inputs, reads: bool = False) -> Bench | None:
    """A bench for a part; None where nothing is computed from it."""
    tokens = 2 * part.ratio + 8 if isinstance(part, CompressedAttention) and part.ratio > TOKENS // 2 else TOKENS
    small = shrunk((part,), TOKENS)[0]
    lengths = tuple(tokens - less for less in SHORTER)
    checked = tuple(tuple(range(length)) for length in lengths)
    few = replace(types, encoder_tokens=min(types.encoder_tokens, TOKENS))
    context = Context(inputs, few, lengths, checked)
    proof = proof_of(context, small, 0, [READER] if reads else [])
    if proof is None:
        return None
    proof.prepare()
    bench = Bench(small, proof, context, steps_of(lengths, (PROMPT,) * len(lengths), (1, 4)), reads)
    return bench if bench.run(bench.open(bench.layout("concat"))) else None
