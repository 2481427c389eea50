"""DeepSeek V4: a window of rows that are key and value at once, and one compressed row for every ``ratio`` tokens.

Every token brings a row for the window, and numbers c with gates g for the compressor. When ``ratio`` tokens are
together, their softmax(g)-weighted sum of c, number by number, becomes one row. With overlap (ratio 4) each token brings
two halves of c and g: row w is summed over the first halves of group w - 1 and the second halves of group w. The open
group waits in a float32 buffer, and with overlap the group before it too. The indexer compresses its own keys alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvcalc.core.counting import Reach
from kvcalc.core.layers import CompressedAttention
from kvcalc.verify.attention import Visibility
from kvcalc.verify.codecs import LIMIT, Codec
from kvcalc.verify.inputs import Rows
from kvcalc.verify.layouts import Maker
from kvcalc.verify.parts.base import Context, Tracker, anchored, plain_name
from kvcalc.verify.parts.key_value import OUTPUTS, ROWS, check_rows
from kvcalc.verify.results import Measure
from kvcalc.verify.tolerance import UNIT, attention_tolerance, gamma, score_error

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
        self.expected: list[Tensor] = []
        self.tolerance: list[Tensor] = []
        self.queries: list[Tensor] = []
        self.compressed: list[Tensor] = []

    def window_rows(self, sequence: int) -> Rows:
        """The rows that are fed to the window."""
        name = plain_name(self.context.k)
        return self.context.inputs.rows("window", self.layer, sequence, heads=1, width=self.part.head_dim, dtype=name)

    def compressor_rows(self, sequence: int) -> Rows:
        """C and g of every token, ``[2, n, halves · width]``."""
        return self.context.inputs.rows("compressor", self.layer, sequence, heads=2, width=self.halves * self.width)

    def chosen(self, sequence: int) -> tuple[int, ...]:
        """The checked positions, or some of them, the last among them."""
        checked = self.context.checked[sequence]
        return tuple(sorted(checked[:: -max(len(checked) // QUERIES, 1)][:QUERIES]))

    def groups(self, position: int) -> int:
        """How many compressed rows a query at ``position`` sees: those whose group is complete."""
        return (position + 1) // self.part.ratio if self.part.ratio else 0

    def prepare(self) -> None:
        """All compressed rows at once, then full attention for each chosen query."""
        for sequence in self.context.sequences:
            self.compressed.append(self._compress_all(sequence))
            self.queries.append(self._queries(sequence))
            found = [self._expected(sequence, index) for index in range(len(self.chosen(sequence)))]
            self.expected.append(torch.stack([output for output, _ in found], dim=1))
            self.tolerance.append(torch.stack([bound for _, bound in found], dim=1))

    def _compress_all(self, sequence: int) -> Tensor:
        """``[groups, width]``, from the whole sequence."""
        count, ratio = self.groups(self.context.lengths[sequence] - 1), self.part.ratio
        if not count:
            return torch.empty(0, self.width, dtype=self.context.wide, device=self.context.device)
        given = self.compressor_rows(sequence).between(0, count * ratio).to(self.context.wide)
        groups = given.view(2, count, ratio, self.halves * self.width)
        numbers, gates = groups[0], groups[1]
        if self.halves == 2:
            numbers = _with_previous(numbers, self.width, 0.0)
            gates = _with_previous(gates, self.width, -torch.inf)
        return (gates.softmax(1) * numbers).sum(1)

    def stored_groups(self, sequence: int) -> Tensor:
        """The compressed rows of attention (not the indexer's) as the cache's type keeps them, in the wide type."""
        rows = self.compressed[sequence][None, :, : self.part.head_dim].float()
        return as_stored(self.context.k, rows)[0].to(self.context.wide)

    def group_error(self, rows: Tensor) -> Tensor:
        """How far a stored compressed row may be from the reference's: a step of the type where a rounding may tip."""
        off = gamma(2 * self.halves * self.part.ratio + 8) * 2 * LIMIT * self.context.slack
        codec = self.context.k
        up, down = as_stored(codec, rows + off), as_stored(codec, rows - off)
        middle = as_stored(codec, rows)
        return torch.maximum((up - middle).abs(), (down - middle).abs()) + off

    def keys(self, sequence: int, position: int) -> tuple[Tensor, Tensor]:
        """(rows ``[m, head_dim]`` that a query sees, how far each number of them may be off)."""
        context, count = self.context, self.groups(position)
        recent = self.window_rows(sequence).between(self.sight.first(position), position + 1)
        recent = as_stored(context.k, recent)[0].to(context.wide)
        if not count:
            return recent, torch.zeros_like(recent)
        raw = self.compressed[sequence][None, :count, : self.part.head_dim].float()
        error = torch.cat((torch.zeros_like(recent), self.group_error(raw)[0].to(context.wide)))
        return torch.cat((recent, as_stored(context.k, raw)[0].to(context.wide))), error

    def _expected(self, sequence: int, index: int) -> tuple[Tensor, Tensor]:
        keys, error = self.keys(sequence, self.chosen(sequence)[index])
        query = self.queries[sequence][:, index].to(keys.dtype)
        weights = (query @ keys.T * self.scale).softmax(-1)
        norm, key_norm = float(query.norm(dim=-1).max()), float(keys.norm(dim=-1).max())
        base = attention_tolerance(score_error(self.part.head_dim, norm, key_norm, self.scale), len(keys), LIMIT)
        risen = torch.exp(query.abs() @ error.T * self.scale)  # see quantization.py
        grown = (weights * risen).sum(-1, keepdim=True) * ((weights * risen) @ keys.abs()) - weights @ keys.abs()
        return weights @ keys, (grown + error.max() + base + UNIT) * self.context.slack

    def _queries(self, sequence: int) -> Tensor:
        chosen = self.chosen(sequence)
        base = self.context.inputs.uniform("q", self.layer, sequence, shape=(self.heads, len(chosen), self.part.head_dim))
        length = self.context.lengths[sequence]
        choices = []
        for position in chosen:
            groups = self.groups(position)
            choices.append([self.sight.first(position), position, *([length, length + groups - 1] if groups else [])])
        seen = [position + 1 - self.sight.first(position) + self.groups(position) for position in chosen]
        return anchored(base, choices, lambda wanted: self._rows_at(sequence, wanted), self.scale, seen)

    def _rows_at(self, sequence: int, wanted: Sequence[int]) -> Tensor:
        """Window rows by position, and compressed row w at length + w."""
        length, stored = self.context.lengths[sequence], self.stored_groups(sequence).float()
        window = self.window_rows(sequence)
        rows = [window.at([p])[0, 0] if p < length else stored[p - length] for p in wanted]
        return torch.stack(rows)[None]

    def open(self, layout: Maker) -> OpenCompressed:
        """Make the window, the compressed rows, the index rows and the buffers."""
        return OpenCompressed(self, layout)


def as_stored(codec: Codec, rows: Tensor) -> Tensor:
    """There and back."""
    return codec.decode(codec.encode(rows), rows.shape[0])


def _with_previous(values: Tensor, width: int, empty: float) -> Tensor:
    """``[groups, ratio, 2·width]`` → ``[groups, 2·ratio, width]``: the group before's first halves, then the own second."""
    before = torch.cat((torch.full_like(values[:1, :, :width], empty), values[:-1, :, :width]))
    return torch.cat((before, values[:, :, width:]), dim=1)


class OpenCompressed:
    """The caches and the buffers, stepped token by token."""

    def __init__(self, proof: CompressedProof, layout: Maker) -> None:
        self.proof, self.context = proof, proof.context
        part, codec = proof.part, proof.context.k
        self.window = layout.cache(codec.shape(1, part.head_dim), Reach(cap=part.window))
        self.sight = proof.sight
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
                self._compress(sequence, position, given[:, position - start])
        for index, position in enumerate(self.proof.chosen(sequence)):
            if start <= position < stop:
                seen = self.sight.mask(torch.tensor([position], device=rows.device), held.positions)[0]
                self._check(sequence, index, position, self.context.k.decode(held.rows[:, seen], 1)[0])
        if stop == self.context.lengths[sequence]:
            check_rows(self.rows, self.window, sequence, self.context.k, 1, self.proof.window_rows(sequence))
            self._check_groups(sequence)

    def _compress(self, sequence: int, position: int, given: Tensor) -> None:
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
        if self.groups is not None and count:
            held = self.context.k.decode(self.groups.read(sequence).rows[:, :count], 1)[0]
            keys = torch.cat((keys, held))
        query = proof.queries[sequence][:, index]
        found = (query @ keys.T * proof.scale).softmax(-1) @ keys
        self.outputs.add(found, proof.expected[sequence][:, index], proof.tolerance[sequence][:, index], outputs=1)

    def _check_groups(self, sequence: int) -> None:
        head, raw = self.proof.part.head_dim, self.proof.compressed[sequence][None].float()
        for cache, wanted in ((self.groups, raw[:, :, :head]), (self.index, raw[:, :, head:])):
            if cache is not None and wanted.shape[1]:
                found = self.context.k.decode(cache.read(sequence).rows, 1)
                self.made.add(found, as_stored(self.context.k, wanted), self.proof.group_error(wanted))

    def tensors(self) -> list[Tensor]:
        """Window, compressed rows, index rows, buffers."""
        caches = [cache for cache in (self.window, self.groups, self.index) if cache is not None]
        buffers = [self.buffer] if self.buffer.numel() else []
        return [tensor for cache in caches for tensor in cache.tensors()] + buffers

    def measures(self, layer: int) -> list[Measure]:
        """Outputs and rows, of the layer that keeps them."""
        trackers = (self.outputs, self.rows, self.made)
        return [tracker.measure() for tracker in trackers if tracker.outputs and layer == self.proof.layer]
