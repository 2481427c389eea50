"""DeepSeek V4: a window of rows that are key and value at once, and one compressed row for every ``ratio`` tokens.

Every token brings a row for the window, and numbers c with gates g for the compressor. When ``ratio`` tokens are
together, their softmax(g)-weighted sum of c, number by number, becomes one row. With overlap (ratio 4) each token brings
two halves of c and g: row w is summed over the first halves of group w - 1 and the second halves of group w. The open
group waits in a float32 buffer, and with overlap the group before it too. The indexer compresses its own keys alike. Each
head has a sink: a score of its own that takes weight and gives no value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kvcalc.core.counting import Reach
from kvcalc.core.layers import CompressedAttention
from kvcalc.verify.attention import Visibility
from kvcalc.verify.inputs import Rows
from kvcalc.verify.layouts import Maker
from kvcalc.verify.parts.base import Context, Tracker, anchored, expected_numbers, plain_name
from kvcalc.verify.parts.key_value import OUTPUTS, ROWS, check_rows
from kvcalc.verify.reference import formats
from kvcalc.verify.reference.compressor import compressed_rows, seen_rows, shared_row_attention
from kvcalc.verify.results import Measure

QUERIES = 32  # at most, of the checked ones
UNKNOWN_HEADS = 4


def overlap_of(part: CompressedAttention) -> int | None:
    """1 without overlap, 2 with; None where the buffers have neither size: 2·(n·ratio)·(n·width) float32."""
    width = part.head_dim + part.index_head_dim
    for count in (1, 2):
        if part.buffer_elements == 2 * count * part.ratio * count * width:
            return count
    return 1 if part.ratio == 0 else None


class CompressedProof:
    """One layer's window and compressed rows."""

    def __init__(self, context: Context, part: CompressedAttention, layer: int) -> None:
        self.context, self.part, self.layer = context, part, layer
        self.heads = part.num_heads or UNKNOWN_HEADS
        self.scale = part.head_dim**-0.5
        self.halves = overlap_of(part) or 1
        self.width = part.head_dim + part.index_head_dim
        self.sight = Visibility(window=part.window)
        self.sinks = context.inputs.uniform("sinks", layer, shape=(self.heads,))
        self.queries: list[Tensor] = []
        self.compressed: list[tuple[Tensor, Tensor]] = []  # every compressed row, exact, and how far a stored one may be

    def window_rows(self, sequence: int) -> Rows:
        """The rows that are fed to the window."""
        name = plain_name(self.context.k)
        return self.context.rows(sequence, "window", self.layer, heads=1, width=self.part.head_dim, dtype=name)

    def compressor_rows(self, sequence: int) -> Rows:
        """C and g of every token, ``[2, n, halves · width]``."""
        return self.context.rows(sequence, "compressor", self.layer, heads=2, width=self.halves * self.width)

    def chosen(self, sequence: int) -> tuple[int, ...]:
        """The checked positions, or some of them, the last among them."""
        checked = self.context.checked[sequence]
        if not checked:
            return ()
        return tuple(sorted(checked[:: -max(len(checked) // QUERIES, 1)][:QUERIES]))

    def groups(self, position: int) -> int:
        """How many compressed rows a query at ``position`` sees: those whose group is complete."""
        return (position + 1) // self.part.ratio if self.part.ratio else 0

    def prepare(self) -> None:
        """All compressed rows at once, and the queries that hang on rows."""
        for sequence in self.context.sequences:
            self.compressed.append(self._compress_all(sequence))
            self.queries.append(self._queries(sequence) if self.chosen(sequence) else torch.empty(0))

    def _compress_all(self, sequence: int) -> tuple[Tensor, Tensor]:
        """``[groups, width]`` from the whole sequence, and how far a stored number may be: by roundings, and half a step."""
        tokens, ratio = self.context.lengths[sequence], self.part.ratio
        if tokens < ratio or not ratio:
            empty = torch.empty(0, self.width, dtype=self.context.wide, device=self.context.device)
            return empty, empty
        given = self.compressor_rows(sequence).between(0, tokens).to(self.context.wide)
        rows, error = compressed_rows(given[0], given[1], ratio, self.width)
        off = error * self.context.slack
        return rows, off + self._format_bound(rows.float()).to(rows.dtype)

    def _format_bound(self, rows: Tensor) -> Tensor:
        """Half a step of each side's own blocks."""
        head, name = self.part.head_dim, self.context.k.name
        sides = [side for side in (rows[:, :head], rows[:, head:]) if side.shape[1]]
        return torch.cat([formats.bound(name, side) * (1 + 2.0**-10) for side in sides], dim=1)

    def expected(self, sequence: int, index: int, held: Tensor) -> tuple[Tensor, Tensor]:
        """(the outputs of a chosen query, their bound); a compressed row counts as ``held`` where that is right."""
        context, position = self.context, self.chosen(sequence)[index]
        first, count = seen_rows(position, self.part.window, self.part.ratio)
        recent = context.k.encode(self.window_rows(sequence).between(first, position + 1))
        keys = expected_numbers(context.k, recent, 1)[0].to(context.wide)
        if count:
            rows, off = (part[:count, : self.part.head_dim] for part in self.compressed[sequence])
            found = held.to(rows.dtype) if held.shape == rows.shape else rows
            keys = torch.cat((keys, torch.where((found - rows).abs() <= off, found, rows)))
        query, scale = self.queries[sequence][:, index].to(keys.dtype), 1 / math.sqrt(self.part.head_dim)
        answer = shared_row_attention(query, keys, scale, self.sinks)
        return answer.outputs, answer.bound * context.slack

    def _queries(self, sequence: int) -> Tensor:
        chosen = self.chosen(sequence)
        base = self.context.inputs.uniform("q", self.layer, sequence, shape=(self.heads, len(chosen), self.part.head_dim))
        length, total = self.context.lengths[sequence], len(self.compressed[sequence][0])
        choices, seen = [], []
        for position in chosen:
            first, groups = seen_rows(position, self.part.window, self.part.ratio)
            outside = [place for place in (first - 1, position + 1) if 0 <= place < length]
            later = [length + groups] if groups < total else []
            choices.append([first, position, *([length, length + groups - 1] if groups else []), *outside, *later])
            seen.append(position + 1 - first + groups)
        return anchored(base, choices, lambda wanted: self._rows_at(sequence, wanted), self.scale, seen)

    def _rows_at(self, sequence: int, wanted: Sequence[int]) -> Tensor:
        """Window rows by position, and compressed row w at length + w."""
        length, made = self.context.lengths[sequence], self.compressed[sequence][0][:, : self.part.head_dim].float()
        window = self.window_rows(sequence)
        rows = [window.at([p])[0, 0] if p < length else made[p - length] for p in wanted]
        return torch.stack(rows)[None]

    def open(self, layout: Maker) -> OpenCompressed:
        """Make the window, the compressed rows, the index rows and the buffers."""
        return OpenCompressed(self, layout)


class OpenCompressed:
    """The caches and the buffers, stepped token by token."""

    def __init__(self, proof: CompressedProof, layout: Maker) -> None:
        self.proof, self.context = proof, proof.context
        part, codec = proof.part, proof.context.k
        self.window = layout.cache(codec.shape(1, part.head_dim), Reach(cap=part.window))
        self.sight, self.scale, self.sinks = proof.sight, proof.scale, proof.sinks
        every = Reach(ratio=part.ratio or 1)
        self.groups = layout.cache(codec.shape(1, part.head_dim), every) if part.ratio else None
        self.index = layout.cache(codec.shape(1, part.index_head_dim), every) if part.ratio and part.index_head_dim else None
        slots, width = proof.halves * part.ratio, proof.halves * proof.width
        self.buffer = torch.zeros(len(self.context.lengths), 2, slots, width, device=self.context.device)
        self.buffer[:, 1] = -torch.inf  # no gate yet: an empty slot weighs nothing
        self.outputs = Tracker(f"{OUTPUTS} over window and compressed rows")
        self.rows, self.made = Tracker(ROWS), Tracker("compressed rows against those of the whole sequence")

    def step(self, sequence: int, start: int, stop: int) -> None:
        """Store the window rows, feed the compressor, attend from the chosen queries among the new positions."""
        rows = self.context.k.encode(self.proof.window_rows(sequence).between(start, stop))
        held = self.window.extend(sequence, rows)
        if self.groups is not None:
            given = self.proof.compressor_rows(sequence).between(start, stop)
            for position in range(start, stop):
                self.compress(sequence, position, given[:, position - start])
        for index, position in enumerate(self.proof.chosen(sequence)):
            if start <= position < stop:
                seen = self.sight.mask(torch.tensor([position], device=rows.device), held.positions)[0]
                self._check(sequence, index, position, self.context.k.decode(held.rows[:, seen], 1)[0])
        if stop == self.context.lengths[sequence]:
            check_rows(self.rows, self.window, sequence, self.context.k, 1, self.proof.window_rows(sequence))
            self._check_groups(sequence)

    def compress(self, sequence: int, position: int, given: Tensor) -> None:
        """Put one token's numbers and gates in the buffer; when its group is full, make the row."""
        proof, part = self.proof, self.proof.part
        buffer, ratio, width = self.buffer[sequence], part.ratio, proof.width
        buffer[:, (proof.halves - 1) * ratio + position % ratio] = given
        if (position + 1) % ratio or self.groups is None:
            return
        if proof.halves == 2:
            numbers, gates = torch.cat((buffer[:, :ratio, :width], buffer[:, ratio:, width:]), dim=1)
            buffer[:, :ratio] = buffer[:, ratio:].clone()
        else:
            numbers, gates = buffer
        row = (gates.softmax(0) * numbers).sum(0)[None, None]
        self.groups.append(sequence, self.context.k.encode(row[:, :, : part.head_dim]))
        if self.index is not None:
            self.index.append(sequence, self.context.k.encode(row[:, :, part.head_dim :]))

    def _check(self, sequence: int, index: int, position: int, keys: Tensor) -> None:
        proof, count = self.proof, self.proof.groups(position)
        held = keys[:0]
        if self.groups is not None and count:
            held = self.context.k.decode(self.groups.read(sequence).rows[:, :count], 1)[0]
            keys = torch.cat((keys, held))
        scores = proof.queries[sequence][:, index] @ keys.T * self.scale
        weights = torch.cat((scores, self.sinks[:, None]), dim=1).softmax(-1)[:, :-1]
        self.outputs.add(weights @ keys, *proof.expected(sequence, index, held), outputs=1)

    def _check_groups(self, sequence: int) -> None:
        head, (made, off) = self.proof.part.head_dim, self.proof.compressed[sequence]
        for cache, side in ((self.groups, slice(0, head)), (self.index, slice(head, None))):
            if cache is not None and len(made):
                found = expected_numbers(self.context.k, cache.read(sequence).rows, 1)
                self.made.add(found, made[None, :, side], off[None, :, side])

    def tensors(self) -> list[Tensor]:
        """Window, compressed rows, index rows, buffers."""
        caches = [cache for cache in (self.window, self.groups, self.index) if cache is not None]
        buffers = [self.buffer] if self.buffer.numel() else []
        return [tensor for cache in caches for tensor in cache.tensors()] + buffers

    def measures(self, layer: int) -> list[Measure]:
        """Outputs and rows, of the layer that keeps them."""
        trackers = (self.outputs, self.rows, self.made)
        return [tracker.measure() for tracker in trackers if tracker.outputs and layer == self.proof.layer]
