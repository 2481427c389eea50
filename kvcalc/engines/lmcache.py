"""LMCache 0.5.6: the copy of a cache that is kept outside the engine, in chunks of 256 tokens.

A chunk holds ``[2, layers, tokens, heads · head size]`` in the engine's type for each worker (a latent once); only whole
chunks are stored unless ``save_unfull_chunk`` is set. Windows are stored like any other layer.
Rules: lmcache ``v1/config.py``, ``v1/metadata.py``.
"""

from __future__ import annotations

from typing import assert_never

from kvcalc.core.counting import Reach, Slab, Types, tally_layers, vectors
from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
)
from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines.base import SERVED, Engine, Serving
from kvcalc.engines.options import Option
from kvcalc.engines.ranks import RankPlan
from kvcalc.engines.releases import Releases, Rules
from kvcalc.engines.requests import counted_layers, resolve_request
from kvcalc.errors import EngineError

CHUNK = 256


class LmcachePlan(RankPlan):
    """Whole chunks of every sequence."""

    def rank_tally(self, model: Model, request: Request) -> Tally:
        """Whole chunks of every sequence. Raises EngineError."""
        chunk = int(request.options.get("chunk-size", CHUNK))
        filled, types, resolved = resolve_request(model, request)
        unfull = request.options.get("save-unfull-chunk", False) is True
        stored = tuple((length if unfull else length // chunk * chunk, count) for length, count in filled.sequences)
        layers = tally_layers(counted_layers(model, filled), stored, types, part_slabs)
        chunks = sum(count * -(-length // chunk) for length, count in stored)
        size = sum(run.bytes for run in layers)
        return Tally(
            layers,
            request={**resolved, "chunk_size": (chunk, "-o chunk-size" if "chunk-size" in request.options else "default")},
            report={
                "chunk_size": chunk,
                "chunks": chunks,
                "stored_tokens": sum(length * count for length, count in stored),
                "size_gb": round(size / 2**30, 4),
            },
        )

    @property
    def step(self) -> int:
        """A chunk, where only whole ones are stored."""
        options = self.request.options
        return 1 if options.get("save-unfull-chunk", False) is True else int(options.get("chunk-size", CHUNK))


def part_slabs(part: Part, types: Types) -> tuple[Slab, ...]:
    """What is stored of a part. Raises EngineError."""
    match part:
        case FullAttention() | SlidingAttention() | ChunkedAttention():
            sides = (("keys", part.head_dim), ("values", part.v_head_dim))
            return tuple(vectors("kv", side, Reach(), part.num_kv_heads, width, types.k) for side, width in sides if width)
        case LatentAttention():
            return (vectors("kv", "latent", Reach(), 1, part.row_width, types.k),)
        case Shared() | NoCache():
            return ()
        case CrossAttention() | CompressedAttention() | Indexer() | Recurrent():
            raise EngineError(
                f"layers of the kind {part.kind.replace('_', ' ')} are not modelled under LMCache",
            )
        case _:
            assert_never(part)


class Lmcache(Engine):
    """The copy of a cache outside the engine."""

    name = "lmcache"
    source = "lmcache 0.5.6: v1/config.py, v1/metadata.py"
    evidence = "read in the source; figures of published logs agree"
    releases = Releases("LMCache", ("0.5.6",))
    own_options = (
        Option("chunk-size", "count", "tokens of a chunk", str(CHUNK), minimum=1),
        Option("save-unfull-chunk", "bool", "store the last, unfinished chunk too", "off"),
    )
    excluded = ("the engine's own cache", "the buffers of a transfer")

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Any model whose layers it can store: it copies what the engine that runs the model keeps."""
        del model, rules
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> LmcachePlan:
        """Chunks of a request."""
        return LmcachePlan(self, model, request, rules)


ENGINE = Lmcache()
