"""Keys and values of grouped heads: full, sliding, chunked and cross attention, and layers that read another's cache."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvcalc.core.counting import ALL, Reach
from kvcalc.core.layers import ChunkedAttention, CrossAttention, HeadedAttention, SlidingAttention
from kvcalc.verify.attention import Visibility, attend_in_blocks
from kvcalc.verify.caches.base import Held, RowCache
from kvcalc.verify.codecs import PLAIN, Codec
from kvcalc.verify.inputs import Rows
from kvcalc.verify.layouts import Maker
from kvcalc.verify.parts.base import (
    ATTEND_BLOCK,
    KEY_BLOCK,
    QUERY_SLICE,
    Context,
    Tracker,
    anchored,
    expected_numbers,
    format_bound,
    plain_name,
)
from kvcalc.verify.reference.attention import HeadRows, Sees, attention
from kvcalc.verify.reference.quantized import given_attention
from kvcalc.verify.results import FULL, Measure

OUTPUTS = FULL
STORED = "outputs against attention over the stored numbers"
ROWS = "stored rows against what was given"
GENTLE = 0.25  # quantised keys: smaller queries keep the format's bound on a score, and so on the softmax, small


@dataclass(frozen=True, slots=True)
class Probe:
    """The checked queries of one sequence and what they must give."""

    queries: Tensor  # [heads, n, width]
    expected: Tensor  # [heads, n, v_width]
    tolerance: Tensor  # for each output
    exact: Tensor | None = None  # over the numbers before they were quantised
    exact_tolerance: Tensor | None = None


class KeyValueProof:
    """One layer's keys and values; ``readers`` are layers that keep nothing and attend to these."""

    def __init__(self, context: Context, part: HeadedAttention, layer: int, readers: Sequence[int] = ()) -> None:
        self.context, self.part, self.layer = context, part, layer
        self.queriers = (layer, *readers)
        self.heads = query_heads(part)
        self.scale = part.head_dim**-0.5
        self.sight = sight_of(part)
        self.reach = reach_of(part, context)
        self.probes: dict[tuple[int, int], Probe] = {}

    def length(self, sequence: int) -> int:
        """How many positions are stored: the sequence's, or the encoder's."""
        return self.context.lengths[sequence] if self.reach.fixed is None else self.reach.fixed

    def keys(self, sequence: int) -> Rows:
        """The keys that are fed."""
        part, name = self.part, plain_name(self.context.k)
        return self.context.rows(sequence, "k", self.layer, heads=part.num_kv_heads, width=part.head_dim, dtype=name)

    def values(self, sequence: int) -> Rows:
        """The values that are fed."""
        part, name = self.part, plain_name(self.context.v)
        return self.context.rows(sequence, "v", self.layer, heads=part.num_kv_heads, width=part.v_head_dim, dtype=name)

    def prepare(self) -> None:
        """Full attention for every checked query of every layer that reads these keys."""
        for sequence in self.context.sequences:
            if self.length(sequence) and self.context.checked[sequence]:
                stored = stored_heads(
                    (self.keys(sequence), self.context.k), (self.values(sequence), self.context.v), self.length(sequence)
                )
                for layer in self.queriers:
                    self.probes[layer, sequence] = self._probe(layer, sequence, stored)

    def _probe(self, layer: int, sequence: int, stored: HeadRows) -> Probe:
        context, positions = self.context, self.context.checked[sequence]
        queries = self._queries(layer, sequence)
        wide, scale = queries.to(context.wide), 1 / math.sqrt(self.part.head_dim)
        answer = attention(wide, positions, stored, self.part.num_kv_heads, scale, sees_of(self.part))
        tolerance = answer.bound * context.slack
        if not context.quantized:
            return Probe(queries, answer.outputs, tolerance)
        given, errors = self._given(sequence)
        exact = given_attention(wide, positions, given, errors, self.part.num_kv_heads, scale, sees_of(self.part))
        return Probe(queries, answer.outputs, tolerance, exact.outputs, exact.bound + tolerance)

    def _given(self, sequence: int) -> tuple[HeadRows, HeadRows]:
        """The numbers before they are stored, and how far each may be from what is stored."""
        length = self.length(sequence)
        keys, values = self.keys(sequence).between(0, length), self.values(sequence).between(0, length)
        key_error, value_error = format_bound(self.context.k, keys), format_bound(self.context.v, values)
        return lambda head: (keys[head], values[head]), lambda head: (key_error[head], value_error[head])

    def _queries(self, layer: int, sequence: int) -> Tensor:
        context, positions = self.context, self.context.checked[sequence]
        shape = (self.heads, len(positions), self.part.head_dim)
        base = context.inputs.uniform("q", layer, sequence, shape=shape)
        if context.quantized:
            return base * GENTLE
        spans = [self._seen(position, sequence) for position in positions]
        choices = anchor_choices(spans, self.length(sequence), f"{context.inputs.seed} {layer} {sequence}")
        return anchored(base, choices, self.keys(sequence).at, self.scale, [stop - start for start, stop in spans])

    def _seen(self, position: int, sequence: int) -> tuple[int, int]:
        if not self.sight.causal:
            return 0, self.length(sequence)
        return self.sight.first(position), position + 1

    def open(self, layout: Maker) -> OpenKeyValue:
        """Make a cache for the keys and one for the values."""
        return OpenKeyValue(self, layout)


class OpenKeyValue:
    """The two caches, stepped."""

    def __init__(self, proof: KeyValueProof, layout: Maker) -> None:
        self.proof, self.context = proof, proof.context
        self.sight, self.attend = proof.sight, attend_in_blocks
        part, reach = proof.part, proof.reach
        self.keys = layout.cache(self.context.k.shape(part.num_kv_heads, part.head_dim), reach)
        self.values = layout.cache(self.context.v.shape(part.num_kv_heads, part.v_head_dim), reach)
        stored = STORED if self.context.quantized else OUTPUTS
        self.stored = {layer: Tracker(stored) for layer in proof.queriers}
        self.exact = {layer: Tracker(OUTPUTS) for layer in proof.queriers}
        self.rows = Tracker(ROWS)

    def step(self, sequence: int, start: int, stop: int) -> None:
        """Store the new rows; attend from the checked queries among the new positions."""
        inside = self.context.within(sequence, start, stop)
        held = self._feed(sequence, start, stop, inside.start < inside.stop)
        if held is not None:
            self._check(sequence, inside, stop - start == 1, *held)
        if stop == self.context.lengths[sequence]:
            self._check_rows(sequence)

    def _feed(self, sequence: int, start: int, stop: int, wanted: bool) -> tuple[Held, Held] | None:
        if self.proof.reach.fixed is not None:  # the encoder's rows come once, before the first token
            if start == 0 and self.proof.reach.fixed:
                self._append(sequence, 0, self.proof.reach.fixed)
            return (self.keys.read(sequence), self.values.read(sequence)) if wanted and self.proof.reach.fixed else None
        if not wanted:
            self._append(sequence, start, stop)
            return None
        k, v = self._rows(sequence, start, stop)
        return self.keys.extend(sequence, k), self.values.extend(sequence, v)

    def _append(self, sequence: int, start: int, stop: int) -> None:
        k, v = self._rows(sequence, start, stop)
        self.keys.append(sequence, k)
        self.values.append(sequence, v)

    def _rows(self, sequence: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        k, v = self.proof.keys(sequence).between(start, stop), self.proof.values(sequence).between(start, stop)
        return self.context.k.encode(k), self.context.v.encode(v)

    def _check(self, sequence: int, inside: slice, alone: bool, keys: Held, values: Held) -> None:
        positions = self.context.positions(sequence)
        for low in range(inside.start, inside.stop, QUERY_SLICE):
            part = slice(low, min(low + QUERY_SLICE, inside.stop))
            for layer in self.proof.queriers:
                probe = self.proof.probes[layer, sequence]
                blocks = self._blocks(positions[part], alone, keys, values)
                found = self.attend(probe.queries[:, part], blocks, self.proof.scale)
                self.stored[layer].add(found, probe.expected[:, part], probe.tolerance[:, part])
                if probe.exact is not None and probe.exact_tolerance is not None:
                    self.exact[layer].add(found, probe.exact[:, part], probe.exact_tolerance[:, part])

    def _blocks(self, queries: Tensor, alone: bool, keys: Held, values: Held) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """What is held, decoded a few thousand rows at a time, with what the queries see of it."""
        heads = self.proof.part.num_kv_heads
        seen = self.sight.mask_or_none(queries, keys.positions, alone)
        for low in range(0, len(keys.positions), ATTEND_BLOCK):
            high = low + ATTEND_BLOCK
            k = self.context.k.decode(keys.part(low, high), heads)
            v = self.context.v.decode(values.part(low, high), heads)
            yield k, v, None if seen is None else seen[:, low:high]

    def _check_rows(self, sequence: int) -> None:
        heads = self.proof.part.num_kv_heads
        check_rows(self.rows, self.keys, sequence, self.context.k, heads, self.proof.keys(sequence))
        check_rows(self.rows, self.values, sequence, self.context.v, heads, self.proof.values(sequence))

    def tensors(self) -> list[Tensor]:
        """Keys and values."""
        return self.keys.tensors() + self.values.tensors()

    def measures(self, layer: int) -> list[Measure]:
        """Outputs, and for the layer that keeps them its rows."""
        trackers = [self.stored[layer]] + ([self.exact[layer]] if self.context.quantized else [])
        if layer == self.proof.layer:
            trackers.append(self.rows)
        return [tracker.measure() for tracker in trackers if tracker.outputs]


def check_rows(tracker: Tracker, cache: RowCache, sequence: int, codec: Codec, heads: int, given: Rows) -> None:
    """Every row that is still held, against the row that was fed at its position; plain types must match to the bit."""
    held = cache.read(sequence)
    order = held.positions.argsort()
    ordered = torch.equal(order, torch.arange(len(order), device=order.device))
    for low in range(0, len(order), KEY_BLOCK):
        part = order[low : low + KEY_BLOCK]
        rows = held.part(low, low + len(part)) if ordered else held.rows[:, part]
        first, last = int(held.positions[part[0]]), int(held.positions[part[-1]])
        wanted, found = given.between(first, last + 1), expected_numbers(codec, rows, heads)
        if codec.name in PLAIN and torch.equal(found, wanted):
            tracker.same(len(part))
        else:
            tracker.add(found, wanted, format_bound(codec, wanted), outputs=len(part))


def query_heads(part: HeadedAttention) -> int:
    """The query heads to run: the model's where they make whole groups, else one a key head."""
    return part.num_heads if part.num_heads and part.num_heads % part.num_kv_heads == 0 else part.num_kv_heads


def sight_of(part: HeadedAttention) -> Visibility:
    """What a query of this part may see."""
    if isinstance(part, SlidingAttention):
        return Visibility(window=part.window)
    if isinstance(part, ChunkedAttention):
        return Visibility(chunk=part.chunk)
    return Visibility(causal=not isinstance(part, CrossAttention))


def reach_of(part: HeadedAttention, context: Context) -> Reach:
    """How many rows this part keeps, as the count has it."""
    if isinstance(part, SlidingAttention):
        return Reach(cap=part.window)
    if isinstance(part, ChunkedAttention):
        return Reach(cap=part.chunk)
    return Reach(fixed=context.types.encoder_tokens) if isinstance(part, CrossAttention) else ALL


def sees_of(part: HeadedAttention) -> Sees:
    """The same for the reference."""
    return Sees(getattr(part, "window", None), getattr(part, "chunk", None), not isinstance(part, CrossAttention))


def anchor_choices(spans: Sequence[tuple[int, int]], length: int, seed: str) -> list[list[int]]:
    """For each query the first and the last position that it sees, one between, and those next to its sight on both sides.

    A query that hangs on a position outside its sight sees nothing of it; one position too many would show at once.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible, no secret
    found = []
    for start, stop in spans:
        outside = [position for position in (start - 1, stop) if 0 <= position < length]
        found.append([start, stop - 1, chance.randrange(start, stop), *outside])
    return found


def stored_heads(keys: tuple[Rows, Codec], values: tuple[Rows, Codec], length: int) -> HeadRows:
    """One head's rows as they are stored: made anew for plain types, else decoded by the format's definition."""
    sides = [_heads_of(rows, codec, length) for rows, codec in (keys, values)]
    return lambda head: (sides[0](head), sides[1](head))


def _heads_of(rows: Rows, codec: Codec, length: int) -> Callable[[int], Tensor]:
    if codec.name in PLAIN:
        return lambda head: rows.head(head, 0, length)
    whole = expected_numbers(codec, codec.encode(rows.between(0, length)), rows.heads)
    return lambda head: whole[head]
