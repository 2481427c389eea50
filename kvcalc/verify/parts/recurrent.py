"""Layers with a state instead of a cache: the step form, which holds state and convolution window, against its definition.

What such a layer holds doesn't depend on the length, so at most ``MOST_STEPS`` positions are run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kvcalc.core.layers import Recurrent
from kvcalc.verify.codecs import PLAIN
from kvcalc.verify.inputs import Rows
from kvcalc.verify.layouts import Maker
from kvcalc.verify.parts.answers import answer
from kvcalc.verify.parts.base import Context, Tracker
from kvcalc.verify.recurrences import RULES
from kvcalc.verify.recurrences.base import Draw, Rule
from kvcalc.verify.results import Measure

UNITS = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # what storing a number rounds off, relative
MOST_STEPS = 64
MOST_OUTPUTS = 16  # checked positions a sequence


def rule_of(part: Recurrent) -> Rule | None:
    """The update rule of a part, or None where its name or its shapes aren't known here."""
    for rule in RULES.get(part.variant, ()):
        made = rule.fitting(part)
        if made is not None:
            return made
    return None


@dataclass(frozen=True)
class Expected:
    """The reference's outputs ``[n, compared]`` at the checked positions, and how far a step may be off."""

    positions: tuple[int, ...]
    columns: Tensor  # which numbers of a step's output they are
    outputs: Tensor
    tolerance: Tensor


class RecurrentProof:
    """One recurrent layer."""

    def __init__(self, context: Context, part: Recurrent, layer: int, rule: Rule) -> None:
        self.context, self.part, self.layer, self.rule = context, part, layer, rule
        self.own = context.types.model.name  # the type of convolution windows, and of states that name none
        self.expected: list[Expected] = []

    def tokens(self, sequence: int) -> int:
        """How many positions are run."""
        return min(self.context.lengths[sequence], MOST_STEPS)

    def rows(self, draw: Draw, sequence: int) -> Rows:
        """One input's numbers, before they are moved into its range."""
        dtype = self.own if draw.stored else "float32"
        return self.context.rows(sequence, draw.name, self.layer, heads=1, width=draw.width, dtype=dtype)

    def inputs(self, sequence: int, start: int, stop: int) -> dict[str, Tensor]:
        """All inputs of the positions start … stop - 1, ``[n, width]``."""
        return {draw.name: draw.moved(self.rows(draw, sequence).between(start, stop)[0]) for draw in self.rule.draws}

    def weights(self) -> dict[str, Tensor]:
        """The weights, one set for all layers of the kind."""
        kept, names = self.context.inputs.weights, [weight.name for weight in self.rule.weights]
        if self.part not in kept:
            uniform = self.context.inputs.uniform
            kept[self.part] = tuple(
                weight.moved(uniform(weight.name, self.part.variant, shape=(weight.width,))) for weight in self.rule.weights
            )
        return dict(zip(names, kept[self.part], strict=True))

    def state_unit(self) -> float:
        """What storing a state rounds off: nothing beyond float32's own where states are float32."""
        computed = (state for index, state in enumerate(self.part.states) if index not in self.rule.exact_states)
        units = [UNITS[state.dtype or self.own] for state in computed]
        return max((unit for unit in units if unit > UNITS["float32"]), default=0.0)

    def chosen(self, sequence: int) -> tuple[int, ...]:
        """Which positions are checked: the first, the last, and some of the run's."""
        if not self.context.checked[sequence]:
            return ()
        last = self.tokens(sequence) - 1
        inside = [position for position in self.context.checked[sequence] if position < last]
        return tuple(sorted({0, last, *inside[:: -max(len(inside) // MOST_OUTPUTS, 1)][:MOST_OUTPUTS]}))

    def prepare(self) -> None:
        """The whole sequence by the rule's definition, in the wide type."""
        for sequence in self.context.sequences:
            chosen = self.chosen(sequence)
            if not chosen:
                none = torch.empty(0)
                self.expected.append(Expected((), none, none, none))
                continue
            given = self.inputs(sequence, 0, self.tokens(sequence)) | self.weights()
            found = answer(self.rule, {name: x.to(self.context.wide) for name, x in given.items()}, self.state_unit())
            columns = torch.tensor(found.columns, device=self.context.device)
            picked = list(chosen)
            tolerance = found.answer.bound[picked] * self.context.slack
            self.expected.append(Expected(chosen, columns, found.answer.outputs[picked], tolerance))

    def open(self, layout: Maker) -> OpenRecurrent:  # noqa: ARG002 - the same in every layout
        """Make windows and states."""
        return OpenRecurrent(self)


class OpenRecurrent:
    """Windows ``[sequences, channels, kernel - 1]`` and states ``[sequences, …]``, stepped token by token."""

    def __init__(self, proof: RecurrentProof) -> None:
        self.proof, self.context = proof, proof.context
        part, own, device = proof.part, PLAIN[proof.own], self.context.device
        count = len(self.context.lengths)
        self.convs = [
            torch.zeros(count, conv.channels, conv.kernel - 1, dtype=PLAIN[conv.dtype] if conv.dtype else own, device=device)
            for conv in part.convs
        ]
        self.states = [
            torch.zeros(count, *state.shape, dtype=PLAIN[state.dtype] if state.dtype else own, device=device)
            for state in part.states
        ]
        for sequence in range(count):
            proof.rule.start([state[sequence] for state in self.states])
        self.skip_state = self.skip_conv = (-1, -1)  # the sequence and position whose update is left out, on purpose
        self.outputs = Tracker(proof.rule.what)

    def step(self, sequence: int, start: int, stop: int) -> None:
        """Update window and state with each token, and compare its output."""
        stop = min(stop, self.proof.tokens(sequence))
        if start >= stop:
            return
        expected = self.proof.expected[sequence]
        given, weights = self.proof.inputs(sequence, start, stop), self.proof.weights()
        for position in range(start, stop):
            found = self._token(sequence, position, {name: x[position - start] for name, x in given.items()} | weights)
            if position in expected.positions:
                index = expected.positions.index(position)
                self.outputs.add(found[expected.columns], expected.outputs[index], expected.tolerance[index], outputs=1)

    def _token(self, sequence: int, position: int, given: dict[str, Tensor]) -> Tensor:
        convs = [window[sequence] for window in self.convs]
        states = [state[sequence] for state in self.states]
        kept_states = [state.clone() for state in states] if (sequence, position) == self.skip_state else []
        kept_convs = [window.clone() for window in convs] if (sequence, position) == self.skip_conv else []
        found = self.proof.rule.step(given, convs, states)
        for kept, now in (*zip(kept_states, states, strict=False), *zip(kept_convs, convs, strict=False)):
            now.copy_(kept)
        return found

    def tensors(self) -> list[Tensor]:
        """All windows and states; one without elements takes nothing."""
        return [*self.convs, *self.states]

    def measures(self, layer: int) -> list[Measure]:
        """Outputs, of the layer itself."""
        return [self.outputs.measure()] if layer == self.proof.layer else []
