"""What one layer caches, as small frozen values.

A model is a tuple of layers; a layer is a tuple of *parts*, since a layer may keep several things at once: a decoder
layer its own keys and a cross-attention copy of the encoder's, a parallel hybrid a full cache and a Mamba state, a
sparse layer a latent and an indexer's keys. Most layers have one part; a layer that caches nothing has one too, which
says why (``Shared``, ``NoCache``).

Widths are elements. No part knows a batch, a length or a type: those come with the request.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from kvcalc.values import value


@value
class FullAttention:
    """Every position: ``num_kv_heads`` keys of ``head_dim`` and values of ``v_head_dim``. MHA, GQA, MQA alike."""

    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    num_heads: int = 0  # query heads, where known: what verify groups and some engines broadcast to

    kind: ClassVar[str] = "full_attention"


@value
class SlidingAttention:
    """As FullAttention, but only the last ``window`` positions can be seen again."""

    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int
    num_heads: int = 0

    kind: ClassVar[str] = "sliding_attention"


@value
class ChunkedAttention:
    """As FullAttention, but a position sees only its own chunk of ``chunk`` positions (Llama 4)."""

    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    chunk: int
    num_heads: int = 0

    kind: ClassVar[str] = "chunked_attention"


@value
class LatentAttention:
    """MLA: one row of ``kv_lora_rank + rope_dim`` a position, shared by all heads, and no second array.

    ``num_heads``, ``nope_dim`` and ``v_head_dim`` say what an engine that expands it would store instead:
    num_heads · (nope_dim + rope_dim) of keys and num_heads · v_head_dim of values.
    ``window`` limits the positions (dots3-note); None keeps all.
    """

    kv_lora_rank: int
    rope_dim: int
    num_heads: int = 0
    nope_dim: int = 0
    v_head_dim: int = 0
    window: int | None = None

    kind: ClassVar[str] = "mla"

    @property
    def row_width(self) -> int:
        """Elements of one position's row."""
        return self.kv_lora_rank + self.rope_dim


@value
class Indexer:
    """Sparse attention's index keys: one row of ``index_head_dim`` a position (DeepSeek V3.2, GLM-5)."""

    index_head_dim: int
    dtype: str | None = None  # None: the cache's own type

    kind: ClassVar[str] = "indexer"


@value
class CompressedAttention:
    """DeepSeek V4: one array that is key and value at once.

    The last ``window`` rows of ``head_dim``; with ``ratio`` also one compressed row for every ``ratio`` positions;
    with ``index_head_dim`` as many index rows. ``buffer_elements`` float32 elements hold the compressor's open group.
    ``ratio`` 0 is a window alone.
    """

    head_dim: int
    window: int
    ratio: int = 0
    index_head_dim: int = 0
    buffer_elements: int = 0
    num_heads: int = 0

    kind: ClassVar[str] = "compressed_attention"


@value
class Conv:
    """A causal convolution's window: ``kernel - 1`` past columns of ``channels`` (some engines keep ``kernel``)."""

    channels: int
    kernel: int
    dtype: str | None = None  # None: the model's own type


@value
class State:
    """A recurrent state of fixed shape, whatever the length."""

    shape: tuple[int, ...]
    dtype: str | None = "float32"  # None: the model's own type

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


@value
class Recurrent:
    """State space and linear attention layers: fixed convolution windows and states, independent of the length.

    ``variant`` is the field's name for the update rule: mamba, mamba2, gated_delta_net, kda, lightning, short_conv,
    rg_lru, rwkv, mlstm … ``num_groups`` is Mamba-2's B/C group count (tensor parallelism replicates groups).
    """

    variant: str
    convs: tuple[Conv, ...] = ()
    states: tuple[State, ...] = ()
    num_groups: int = 0

    kind: ClassVar[str] = "recurrent"


@value
class CrossAttention:
    """Keys and values of the encoder's positions (or an image's), fixed after prefill."""

    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    num_heads: int = 0

    kind: ClassVar[str] = "cross_attention"


@value
class Shared:
    """Reads another layer's cache and keeps nothing; ``source`` is that layer's index where it is known."""

    source: int | None = None

    kind: ClassVar[str] = "shared"


@value
class NoCache:
    """A layer without attention or state: an MLP or expert block."""

    reason: str = "no attention"

    kind: ClassVar[str] = "no_attention"


HeadedAttention = FullAttention | SlidingAttention | ChunkedAttention | CrossAttention
Part = (
    FullAttention
    | SlidingAttention
    | ChunkedAttention
    | LatentAttention
    | Indexer
    | CompressedAttention
    | Recurrent
    | CrossAttention
    | Shared
    | NoCache
)
Layer = tuple[Part, ...]


def kind_of(layer: Layer) -> str:
    """The layer's name in tables and JSON: its parts' kinds, joined (``mla+indexer``), a state by its variant."""
    return "+".join(part.variant if isinstance(part, Recurrent) else part.kind for part in layer)


def runs(layers: tuple[Layer, ...]) -> list[tuple[int, int, Layer]]:
    """Equal neighbours as (first, count, layer)."""
    found: list[tuple[int, int, Layer]] = []
    for index, layer in enumerate(layers):
        if found and found[-1][2] == layer:
            first, count, _ = found[-1]
            found[-1] = (first, count + 1, layer)
        else:
            found.append((index, 1, layer))
    return found
