"""The only formulas: how many rows a part keeps after T tokens, and how many bytes a row takes.

Every accounting is rows × bytes a row, added over parts, layers and sequences; the textbook equation
2·L·B·T·H_kv·D_h·s is the case of L equal full-attention layers. Engines that keep another number of rows (a window
less one, whole blocks, a preallocated capacity) replace the ``Reach`` of a slab and leave the rest as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
    kind_of,
    runs,
)
from kvcalc.core.model import Array, LayerTally
from kvcalc.dtypes import FLOAT32, Dtype, find_dtype
from kvcalc.units import round_up
from kvcalc.values import value


@value
class Reach:
    """How many rows are kept after T tokens: min(T // ratio, cap), up to whole blocks of ``step``; or a fixed number."""

    cap: int | None = None
    ratio: int = 1
    step: int = 1
    fixed: int | None = None

    def rows(self, tokens: int) -> int:
        """Rows of one sequence of ``tokens``."""
        if self.fixed is not None:
            return self.fixed
        kept = tokens // self.ratio
        if self.cap is not None and kept > self.cap:
            kept = self.cap
        return round_up(kept, self.step) if self.step > 1 else kept


ALL = Reach()
ONE = Reach(fixed=1)


@value
class Slab:
    """An array of one sequence before its length is known: rows by ``reach``, each of ``row_bytes``."""

    component: str
    label: str
    reach: Reach
    row_bytes: int
    heads: int = 1
    width: int = 0
    dtype: str = ""
    note: str = ""

    def array(self, sequences: Iterable[tuple[int, int]]) -> Array:
        """The array over all ``sequences``, each (tokens, how many)."""
        rows = sum(count * self.reach.rows(tokens) for tokens, count in sequences)
        return Array(self.component, self.label, rows, self.row_bytes, self.heads, self.width, self.dtype, self.note)


@value
class Types:
    """The element types of one request, all resolved."""

    k: Dtype
    v: Dtype
    model: Dtype  # what recurrent and convolution states of "the model's own type" take
    encoder_tokens: int = 0

    def of(self, name: str | None) -> Dtype:
        """A part's own type, or the model's."""
        return self.model if name is None else find_dtype(name)


def vectors(component: str, label: str, reach: Reach, heads: int, width: int, dtype: Dtype, note: str = "") -> Slab:
    """A slab whose rows are ``heads`` vectors of ``width`` elements. Raises DtypeError on a broken block."""
    row_bytes = dtype.row_bytes(heads * width, f"{label} of {heads} x {width}")
    return Slab(component, label, reach, row_bytes, heads, width, dtype.name, note)


def key_value(reach: Reach, heads: int, k_width: int, v_width: int, types: Types, note: str = "") -> tuple[Slab, ...]:
    """Keys and values of ``heads`` heads."""
    return (
        vectors("kv", "keys", reach, heads, k_width, types.k, note),
        vectors("kv", "values", reach, heads, v_width, types.v, note),
    )


def slabs_of(part: Part, types: Types) -> tuple[Slab, ...]:
    """The exact accounting of one part: what must be kept, no more."""
    match part:
        case FullAttention(heads, k_width, v_width):
            return key_value(ALL, heads, k_width, v_width, types)
        case SlidingAttention(heads, k_width, v_width, window):
            return key_value(Reach(cap=window), heads, k_width, v_width, types)
        case ChunkedAttention(heads, k_width, v_width, chunk):
            return key_value(Reach(cap=chunk), heads, k_width, v_width, types)
        case CrossAttention(heads, k_width, v_width):
            return key_value(Reach(fixed=types.encoder_tokens), heads, k_width, v_width, types)
        case LatentAttention():
            return (vectors("kv", "latent", Reach(cap=part.window), 1, part.row_width, types.k),)
        case Indexer(width, dtype):
            return (vectors("index", "index keys", ALL, 1, width, types.k if dtype is None else find_dtype(dtype)),)
        case CompressedAttention():
            return _compressed(part, types)
        case Recurrent():
            return recurrent_slabs(part, types)
        case Shared() | NoCache():  # pragma: no branch - a part is one of these
            return ()


def _compressed(part: CompressedAttention, types: Types) -> tuple[Slab, ...]:
    """DeepSeek V4: window rows, one row for every ``ratio`` tokens, index rows, float32 compressor buffers."""
    found = [vectors("kv", "window rows", Reach(cap=part.window), 1, part.head_dim, types.k)]
    if part.ratio:
        found.append(vectors("kv", "compressed rows", Reach(ratio=part.ratio), 1, part.head_dim, types.k))
    if part.ratio and part.index_head_dim:
        found.append(vectors("index", "index keys", Reach(ratio=part.ratio), 1, part.index_head_dim, types.k))
    if part.buffer_elements:
        found.append(vectors("state", "compressor buffers", ONE, 1, part.buffer_elements, FLOAT32))
    return tuple(found)


def recurrent_slabs(part: Recurrent, types: Types, conv_columns: int = -1, state_dtype: Dtype | None = None) -> tuple[Slab, ...]:
    """A recurrent part's fixed arrays: kernel + ``conv_columns`` columns a convolution, and its states.

    ``state_dtype`` overrides the states' own types, for engines that keep them otherwise.
    """
    convs = tuple(
        vectors("state", "conv", ONE, conv.kernel + conv_columns, conv.channels, types.of(conv.dtype)) for conv in part.convs
    )
    states = tuple(
        vectors("state", "state", ONE, 1, state.elements, state_dtype or types.of(state.dtype)) for state in part.states
    )
    return convs + states


SlabRule = Callable[[Part, Types], tuple[Slab, ...]]


def tally_layers(
    layers: tuple[Layer, ...], sequences: tuple[tuple[int, int], ...], types: Types, rule: SlabRule = slabs_of
) -> tuple[LayerTally, ...]:
    """Every run of equal layers with its arrays, under ``rule``."""
    longest = max((tokens for tokens, _ in sequences), default=0)
    found = []
    for first, count, layer in runs(layers):
        slabs = [slab for part in layer for slab in rule(part, types)]
        grown = [slab.reach.rows(longest) for slab in slabs if slab.reach.fixed is None]
        arrays = tuple(slab.array(sequences) for slab in slabs)
        found.append(LayerTally(first, count, layer, kind_of(layer), arrays, max(grown, default=0)))
    return tuple(found)


def total_function(layers: tuple[Layer, ...], types: Types, rule: SlabRule = slabs_of) -> Callable[[int, int], int]:
    """(batch_size, tokens) → bytes, with equal reaches added up once, so that a sweep's cell costs a few products."""
    weights: dict[Reach, int] = {}
    for _, count, layer in runs(layers):
        for part in layer:
            for slab in rule(part, types):
                weights[slab.reach] = weights.get(slab.reach, 0) + count * slab.row_bytes
    linear = weights.pop(ALL, 0)
    fixed = sum(reach.rows(0) * row for reach, row in weights.items() if reach.fixed is not None)
    bent = [(reach.rows, row) for reach, row in weights.items() if reach.fixed is None]

    def straight(batch_size: int, tokens: int) -> int:
        return batch_size * (linear * tokens + fixed)

    def bending(batch_size: int, tokens: int) -> int:
        kept = linear * tokens + fixed
        for rows, row in bent:
            kept += rows(tokens) * row
        return batch_size * kept

    return bending if bent else straight


def with_reach(slabs: tuple[Slab, ...], reach: Reach) -> tuple[Slab, ...]:
    """The same slabs keeping another number of rows."""
    return tuple(replace(slab, reach=reach) for slab in slabs)
