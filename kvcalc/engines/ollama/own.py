"""The caches of ollama's own engine, 0.6 to 0.25: what a layer keeps, part by part.

cells = P · ⌈parallel · context / P⌉ of a layer that keeps everything; of a sliding one whose memory is shorter than the
context, P · ⌈(parallel · memory + batch) / P⌉. A recurrent layer keeps 24 checkpoints beside its state, in float32.
Source: ollama ``kvcache/causal.go``, ``kvcache/recurrent*.go``, ``ml/backend/ggml/ggml.go`` (CacheConfig).
"""

from __future__ import annotations

from kvcalc.core.counting import Reach, Slab, Types, tally_layers, vectors
from kvcalc.core.layers import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    LatentAttention,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
)
from kvcalc.core.model import LayerTally, Model
from kvcalc.dtypes import FLOAT32, Dtype, find_dtype
from kvcalc.engines.ollama.arches import Arch
from kvcalc.engines.ollama.settings import OWN_TYPES, Settings
from kvcalc.engines.releases import Rules
from kvcalc.errors import EngineError
from kvcalc.units import round_up
from kvcalc.values import value

PREFIX_MEMORY = 4096  # positions of a window that are kept for requests that begin alike (NewSWAMemCache)
CHECKPOINTS = 24  # of every recurrent state, reserved at load


@value
class Own:
    """One model under ollama's own engine."""

    arch: Arch
    rules: Rules
    settings: Settings
    encoder_tokens: int = 0

    @property
    def dtype(self) -> Dtype:
        """Another type than f16 needs flash attention, and is one of two."""
        name = self.settings.cache_type
        return find_dtype(name if name in OWN_TYPES and self.settings.flash else "f16")

    @property
    def pad(self) -> int:
        """Cells come by so many."""
        if not self.arch.padded:
            return 1
        return 256 if self.settings.flash or self.rules.since("0.13.0") else 32

    @property
    def cells(self) -> int:
        """Of a layer that keeps the whole context."""
        return round_up(self.settings.cells, self.pad)

    def window_cells(self, window: int) -> int:
        """Of a sliding layer."""
        parallel, context = self.settings.parallel, self.settings.num_ctx
        memory = PREFIX_MEMORY if self.arch.windows == "prefix" else window
        if self.rules.since("0.13.0") and parallel > 1:
            memory = max(memory, window + 1)
        if memory >= context:
            return self.cells
        return round_up(parallel * memory + min(self.settings.batch, context), self.pad)

    def tally(self, model: Model) -> tuple[LayerTally, ...]:
        """Every layer. Raises EngineError, DtypeError."""
        types = Types(self.dtype, self.dtype, FLOAT32)
        return tally_layers(model.layers, ((self.settings.num_ctx, 1),), types, self._slabs)

    def _slabs(self, part: Part, types: Types) -> tuple[Slab, ...]:
        match part:
            case FullAttention() | ChunkedAttention():
                return self._headed(part, self.cells, types)
            case SlidingAttention():
                cells = self.cells if self.arch.windows in ("none", "whole") else self.window_cells(part.window)
                return self._headed(part, cells, types)
            case CrossAttention():
                return self._headed(part, self.encoder_tokens, types)
            case LatentAttention():
                reach = Reach(fixed=self.cells)
                latent = vectors("kv", "latent", reach, 1, part.row_width, types.k)
                return (latent, vectors("kv", "values", reach, 1, part.kv_lora_rank, types.v, "stored beside the latent"))
            case Recurrent():
                return self._states(part)
            case Shared() | NoCache():
                return ()
        raise EngineError(f"layers of the kind {part.kind.replace('_', ' ')} are not modelled under ollama's own engine")

    @staticmethod
    def _headed(
        part: FullAttention | ChunkedAttention | SlidingAttention | CrossAttention, cells: int, types: Types
    ) -> tuple[Slab, ...]:
        reach = Reach(fixed=cells)
        return (
            vectors("kv", "keys", reach, part.num_kv_heads, part.head_dim, types.k),
            vectors("kv", "values", reach, part.num_kv_heads, part.v_head_dim, types.v),
        )

    def _states(self, part: Recurrent) -> tuple[Slab, ...]:
        reach = Reach(fixed=self.settings.parallel * (1 + CHECKPOINTS))
        note = f"the state and {CHECKPOINTS} checkpoints of it"
        conv = sum((conv.kernel - 1) * conv.channels for conv in part.convs)
        state = sum(state.elements for state in part.states) or 1
        return (
            vectors("state", "conv", reach, 1, conv, FLOAT32, note),
            vectors("state", "state", reach, 1, state, FLOAT32, note),
        )
