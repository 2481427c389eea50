"""Sparse attention's indexer: one key a position, and a score of every position for every query.

score(t, s) = Σ_j w_tj · relu(q_tj · k_s) over a few index heads j. What is proved is the scores, from which the model
then takes the largest: which ones those are may turn on a rounding, the scores don't.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvcalc.core.counting import ALL
from kvcalc.core.layers import Indexer
from kvcalc.verify.inputs import Rows
from kvcalc.verify.layouts import Maker
from kvcalc.verify.parts.base import KEY_BLOCK, Context, Tracker, expected_numbers, plain_name
from kvcalc.verify.parts.key_value import ROWS, check_rows
from kvcalc.verify.reference.attention import index_scores
from kvcalc.verify.results import Measure

INDEX_HEADS = 4  # what is kept doesn't depend on them
QUERIES = 8  # at most, of the checked ones: each is compared at every position


class IndexerProof:
    """One layer's index keys."""

    def __init__(self, context: Context, part: Indexer, layer: int) -> None:
        self.context, self.part, self.layer = context, part, layer

    def rows(self, sequence: int) -> Rows:
        """The index keys that are fed."""
        name = plain_name(self.context.k)
        return self.context.rows(sequence, "index", self.layer, heads=1, width=self.part.index_head_dim, dtype=name)

    def prepare(self) -> None:
        """Nothing: the reference is made as it is compared, since a score is as long as the sequence."""

    def chosen(self, sequence: int) -> tuple[int, ...]:
        """Some of the checked positions, the last among them."""
        checked = self.context.checked[sequence]
        return checked[:: -max(len(checked) // QUERIES, 1)][:QUERIES]

    def open(self, layout: Maker) -> OpenIndexer:
        """Make the cache of the keys."""
        return OpenIndexer(self, layout)


class OpenIndexer:
    """The index keys' cache, stepped."""

    def __init__(self, proof: IndexerProof, layout: Maker) -> None:
        self.proof, self.context = proof, proof.context
        self.cache = layout.cache(self.context.k.shape(1, proof.part.index_head_dim), ALL)
        self.scores = Tracker("index scores against those of all positions")
        self.rows = Tracker(ROWS)

    def step(self, sequence: int, start: int, stop: int) -> None:
        """Store the new keys; score from the chosen queries among the new positions."""
        held = self.cache.extend(sequence, self.context.k.encode(self.proof.rows(sequence).between(start, stop)))
        chosen = [position for position in self.proof.chosen(sequence) if start <= position < stop]
        if chosen:
            keys = self.context.k.decode(held.rows, 1)[0]
            for position in chosen:
                self._check(sequence, position, keys)
        if stop == self.context.lengths[sequence]:
            check_rows(self.rows, self.cache, sequence, self.context.k, 1, self.proof.rows(sequence))

    def _check(self, sequence: int, position: int, keys: Tensor) -> None:
        width, inputs = self.proof.part.index_head_dim, self.context.inputs
        query = inputs.uniform("index q", self.proof.layer, sequence, position, shape=(INDEX_HEADS, width))
        weight = inputs.uniform("index w", self.proof.layer, sequence, position, shape=(INDEX_HEADS,))
        codec, given = self.context.k, self.proof.rows(sequence)
        for start in range(0, position + 1, KEY_BLOCK):
            stop = min(start + KEY_BLOCK, position + 1)
            stored = expected_numbers(codec, codec.encode(given.between(start, stop)), 1)[0].to(self.context.wide)
            expected, bound = index_scores(query.to(stored.dtype), weight.to(stored.dtype), stored)
            found = _score(query, weight, keys[start:stop])
            self.scores.add(found, expected, bound * self.context.slack, outputs=stop - start)

    def tensors(self) -> list[Tensor]:
        """The keys."""
        return self.cache.tensors()

    def measures(self, layer: int) -> list[Measure]:
        """Scores and rows, of the layer that keeps them."""
        return [tracker.measure() for tracker in (self.scores, self.rows) if tracker.outputs and layer == self.proof.layer]


def _score(query: Tensor, weight: Tensor, keys: Tensor) -> Tensor:
    return weight @ torch.relu(query @ keys.T)
