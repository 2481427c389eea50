"""Multi-head latent attention: the cache keeps one compressed row a position, and a step never expands it.

With a row [c; r] (kv_lora_rank numbers, and the rope part that all heads share), head h's key is [U_h·c; r] and its
value W_h·c. Full attention expands both. A decode step turns to the query instead, q·U_h·c = (U_hᵀq)·c, attends over the
rows themselves, and applies W_h to the weighted sum of latents: *absorbed* decode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvcalc.core.counting import Reach
from kvcalc.core.layers import LatentAttention
from kvcalc.verify.attention import Visibility
from kvcalc.verify.codecs import LIMIT
from kvcalc.verify.inputs import Rows
from kvcalc.verify.layouts import Maker
from kvcalc.verify.parts.base import QUERY_SLICE, Context, Tracker, anchored, expected_numbers, plain_name
from kvcalc.verify.parts.key_value import OUTPUTS, ROWS, STORED, Probe, anchor_choices, check_rows
from kvcalc.verify.reference.attention import Sees, latent_attention
from kvcalc.verify.results import Measure

UNKNOWN_HEADS, UNKNOWN_WIDTH = 4, 32  # where a file doesn't say: what is kept doesn't depend on them


class Weights(NamedTuple):
    """``up`` U ``[heads, nope, rank]`` and ``out`` W ``[heads, v, rank]``, as they are and wide."""

    up: Tensor
    out: Tensor
    wide_up: Tensor
    wide_out: Tensor


class LatentProof:
    """One layer's latent rows, absorbed against expanded."""

    def __init__(self, context: Context, part: LatentAttention, layer: int, readers: Sequence[int] = ()) -> None:
        self.context, self.part, self.layer = context, part, layer
        self.queriers = (layer, *readers)
        self.heads = part.num_heads or UNKNOWN_HEADS
        self.nope = part.nope_dim or UNKNOWN_WIDTH
        self.v_width = part.v_head_dim or UNKNOWN_WIDTH
        self.scale = (self.nope + part.rope_dim) ** -0.5
        self.sight = Visibility(window=part.window)
        self.probes: dict[tuple[int, int], Probe] = {}

    def rows(self, sequence: int) -> Rows:
        """The latent rows that are fed."""
        name = plain_name(self.context.k)
        return self.context.rows(sequence, "latent", self.layer, heads=1, width=self.part.row_width, dtype=name)

    def weights(self) -> Weights:
        """One set for all layers of the kind."""
        kept, rank = self.context.inputs.weights, self.part.kv_lora_rank
        if self.part not in kept:
            limit = LIMIT * rank**-0.5
            up = self.context.inputs.uniform("up", shape=(self.heads, self.nope, rank), low=-limit, high=limit)
            out = self.context.inputs.uniform("out", shape=(self.heads, self.v_width, rank), low=-limit, high=limit)
            wide = self.context.wide
            kept[self.part] = (up, out, up.to(wide), out.to(wide))
        return Weights(*kept[self.part])

    def keys(self, rows: Tensor, up: Tensor) -> Tensor:
        """Expand ``[1, m, rank + rope]`` into every head's keys."""
        latent, rope = rows[0, :, : self.part.kv_lora_rank], rows[:, :, self.part.kv_lora_rank :]
        return torch.cat((latent @ up.transpose(1, 2), rope.expand(self.heads, -1, -1)), dim=2)

    def prepare(self) -> None:
        """Expanded full attention for every checked query."""
        for sequence in self.context.sequences:
            if self.context.checked[sequence]:
                given = self.rows(sequence).between(0, self.context.lengths[sequence])
                stored = expected_numbers(self.context.k, self.context.k.encode(given), 1)[0].to(self.context.wide)
                for layer in self.queriers:
                    self.probes[layer, sequence] = self._probe(layer, sequence, stored)

    def _probe(self, layer: int, sequence: int, stored: Tensor) -> Probe:
        context, weights, queries = self.context, self.weights(), self._queries(layer, sequence)
        scale, sees = 1 / math.sqrt(self.nope + self.part.rope_dim), Sees(window=self.part.window)
        wide, positions = queries.to(context.wide), context.checked[sequence]
        answer = latent_attention(wide, positions, stored, weights.wide_up, weights.wide_out, scale, sees)
        turned = torch.cat((queries[:, :, : self.nope] @ weights.up, queries[:, :, self.nope :]), dim=2)
        return Probe(turned, answer.outputs, answer.bound * context.slack)

    def _queries(self, layer: int, sequence: int) -> Tensor:
        context, positions = self.context, self.context.checked[sequence]
        shape = (self.heads, len(positions), self.nope + self.part.rope_dim)
        base = context.inputs.uniform("q", layer, sequence, shape=shape)
        spans = [(self.sight.first(position), position + 1) for position in positions]
        choices = anchor_choices(spans, context.lengths[sequence], f"{context.inputs.seed} {layer} {sequence}")
        up = self.weights().up
        seen = [stop - start for start, stop in spans]
        return anchored(base, choices, lambda wanted: self.keys(self.rows(sequence).at(wanted), up), self.scale, seen)

    def open(self, layout: Maker) -> OpenLatent:
        """Make the cache of the rows."""
        return OpenLatent(self, layout)


class OpenLatent:
    """The rows' cache, stepped by absorbed decode."""

    def __init__(self, proof: LatentProof, layout: Maker) -> None:
        self.proof, self.context = proof, proof.context
        self.sight, self.scale = proof.sight, proof.scale
        self.cache = layout.cache(self.context.k.shape(1, proof.part.row_width), Reach(cap=proof.part.window))
        what = STORED if self.context.quantized else OUTPUTS
        self.outputs = {layer: Tracker(f"{what}, expanded") for layer in proof.queriers}
        self.rows = Tracker(ROWS)

    def step(self, sequence: int, start: int, stop: int) -> None:
        """Store the new rows; attend from the checked queries among the new positions."""
        inside = self.context.within(sequence, start, stop)
        rows = self.context.k.encode(self.proof.rows(sequence).between(start, stop))
        if inside.start == inside.stop:
            self.cache.append(sequence, rows)
        else:
            held = self.cache.extend(sequence, rows)
            self._check(sequence, inside, stop - start == 1, self.context.k.decode(held.rows, 1), held.positions)
        if stop == self.context.lengths[sequence]:
            check_rows(self.rows, self.cache, sequence, self.context.k, 1, self.proof.rows(sequence))

    def _check(self, sequence: int, inside: slice, alone: bool, rows: Tensor, held: Tensor) -> None:
        positions = self.context.positions(sequence)
        for low in range(inside.start, inside.stop, QUERY_SLICE):
            part = slice(low, min(low + QUERY_SLICE, inside.stop))
            seen = self.sight.mask_or_none(positions[part], held, alone)
            for layer in self.proof.queriers:
                probe = self.proof.probes[layer, sequence]
                found = self._absorbed(probe.queries[:, part], rows[0], seen)
                self.outputs[layer].add(found, probe.expected[:, part], probe.tolerance[:, part])

    def _absorbed(self, queries: Tensor, rows: Tensor, seen: Tensor | None) -> Tensor:
        """Turned queries, ``[heads, n, rank + rope]``, over the rows themselves; then each head's W."""
        proof = self.proof
        scores = queries @ rows.T * self.scale
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        latents = scores.softmax(-1) @ rows[:, : proof.part.kv_lora_rank]
        outputs: Tensor = latents @ proof.weights().out.transpose(1, 2)
        return outputs

    def tensors(self) -> list[Tensor]:
        """The rows: there is no second array."""
        return self.cache.tensors()

    def measures(self, layer: int) -> list[Measure]:
        """Outputs, and for the layer that keeps them its rows."""
        trackers = [self.outputs[layer], *([self.rows] if layer == self.proof.layer else [])]
        return [tracker.measure() for tracker in trackers if tracker.outputs]
