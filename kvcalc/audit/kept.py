"""A model's layers as an engine's log counts them: elements of keys and of values that a position keeps, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    Part,
    Recurrent,
    SlidingAttention,
)
from kvcalc.core.model import Model
from kvcalc.dtypes import Dtype
from kvcalc.units import ceil_div


@dataclass(frozen=True, slots=True)
class Kept:
    """What one part of one layer keeps of a position, on one rank. ``kind`` is full, window or index."""

    layer: int
    kind: str
    keys: int
    values: int
    heads: int = 1
    latent: bool = False
    draft: bool = False

    def key_bytes(self, dtype: Dtype) -> int:
        """Bytes of a position's keys. Raises DtypeError."""
        return dtype.row_bytes(self.keys)

    def value_bytes(self, dtype: Dtype) -> int:
        """Bytes of a position's values. Raises DtypeError."""
        return dtype.row_bytes(self.values)


def kept_of(model: Model, tp_size: int = 1, *, whole_heads: bool = False) -> tuple[Kept, ...]:
    """Every layer's, and then the draft layers', divided over ``tp_size`` ranks.

    Heads are shared out, one at least on each rank; latents and index keys are whole on every rank. ``whole_heads``
    stores each head's own keys and values instead of a latent, as engines did that knew none.
    """
    found = list(_of_layers(model.layers, 0, tp_size, draft=False))
    found += _of_layers(model.draft_layers, len(model.layers), tp_size, draft=True)
    if not whole_heads:
        return tuple(found)
    latents = {layer: part for layer, parts in enumerate(model.layers) for part in parts if isinstance(part, LatentAttention)}
    return tuple(_expanded(each, latents[each.layer]) if each.latent and each.layer in latents else each for each in found)


def _expanded(kept: Kept, part: LatentAttention) -> Kept:
    """num_heads · (nope_dim + rope_dim) of keys and num_heads · v_head_dim of values."""
    if kept.kind == "index" or not part.num_heads:
        return kept
    keys, values = part.num_heads * (part.nope_dim + part.rope_dim), part.num_heads * part.v_head_dim
    return Kept(kept.layer, kept.kind, keys, values, part.num_heads)


def _of_layers(layers: tuple[Layer, ...], first: int, tp_size: int, *, draft: bool) -> Iterable[Kept]:
    for index, layer in enumerate(layers, first):
        for part in layer:
            kept = _of_part(part, index, tp_size, draft)
            if kept is not None:
                yield kept


def _of_part(part: Part, layer: int, tp_size: int, draft: bool) -> Kept | None:
    match part:
        case FullAttention() | CrossAttention():
            return _headed(part, layer, "full", tp_size, draft)
        case SlidingAttention() | ChunkedAttention():
            return _headed(part, layer, "window", tp_size, draft)
        case LatentAttention():
            kind = "full" if part.window is None else "window"
            return Kept(layer, kind, part.row_width, 0, latent=True, draft=draft)
        case CompressedAttention():
            return Kept(layer, "window", part.head_dim, 0, latent=True, draft=draft)
        case Indexer(width):
            return Kept(layer, "index", width, 0, latent=True, draft=draft)
    return None


def _headed(
    part: FullAttention | CrossAttention | SlidingAttention | ChunkedAttention, layer: int, kind: str, tp_size: int, draft: bool
) -> Kept:
    heads = ceil_div(part.num_kv_heads, tp_size)
    return Kept(layer, kind, heads * part.head_dim, heads * part.v_head_dim, heads, draft=draft)


def states_of(model: Model) -> tuple[tuple[int, int], ...]:
    """(convolution elements, state elements) of each recurrent layer, as llama.cpp counts R and S."""
    parts = (part for layer in model.layers for part in layer if isinstance(part, Recurrent))
    return tuple(
        (sum((conv.kernel - 1) * conv.channels for conv in part.convs), sum(state.elements for state in part.states))
        for part in parts
    )
