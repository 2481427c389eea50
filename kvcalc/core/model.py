"""A model, a request and the tally of bytes that answers it. All frozen, all pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from kvcalc.core.fields import Fields
from kvcalc.core.layers import Layer
from kvcalc.dtypes import Dtype
from kvcalc.values import value

OptionValue = int | bool | str


@value
class Model:
    """What a model caches, and what is known of it besides."""

    name: str
    model_type: str
    layers: tuple[Layer, ...]
    fields: Fields
    source: str = ""  # the file, preset or flags, for people
    format: str = "flags"  # hf, gguf, preset, flags
    max_tokens: int | None = None  # the longest length the model was made for
    dtype: str | None = None  # the weights' and so the cache's own type
    cache_dtype: str | None = None  # a type that the file's quantisation sets for the cache
    cache_dtype_origin: str = ""
    encoder_tokens: int | None = None  # the file's own encoder length (Whisper: 1,500)
    encoder_tokens_optional: bool = False  # a vision model's cross layers hold nothing for text alone
    draft_layers: tuple[Layer, ...] = ()  # multi-token prediction: apart, counted on request
    assumed: str = ""  # the rule that --assume named, else empty
    notes: tuple[str, ...] = ()
    layers_unknown: str = ""  # why they could not be told; an engine that reads the file itself can still answer
    layers_invalid: bool = False  # … since a value of the file can't be right: bad input, not an unknown architecture
    metadata: Mapping[str, object] = field(default_factory=dict)  # GGUF keys, or the config.json object, as read


@value
class Request:
    """What is asked: sequences, types, ranks, and the engine's own options. ``None`` means unsaid."""

    batch_size: int = 1
    tokens: int | None = None
    k_dtype: Dtype | None = None
    v_dtype: Dtype | None = None
    encoder_tokens: int | None = None
    lengths: tuple[int, ...] = ()  # sequences of different lengths, instead of batch_size × tokens
    draft: bool = False  # count the draft layers too
    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)  # "flag --batch", "default" …, by field name

    def at(self, tokens: int) -> Request:
        """The same request at another length."""
        return replace(self, tokens=tokens)

    @property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        """(tokens, how many such sequences)."""
        if not self.lengths:
            return ((self.tokens or 0, self.batch_size),)
        counts: dict[int, int] = {}
        for length in self.lengths:
            counts[length] = counts.get(length, 0) + 1
        return tuple(counts.items())


COMPONENTS = ("kv", "index", "state", "other")


@value
class Array:
    """One array that a layer (or a pool) holds, added over all sequences.

    ``rows`` rows of ``row_bytes`` bytes; a row is ``heads`` vectors of ``width`` elements of ``dtype``.
    """

    component: str  # kv, index, state or other
    label: str  # keys, values, latent, index keys, conv, state, padding …
    rows: int
    row_bytes: int
    heads: int = 1
    width: int = 0
    dtype: str = ""
    note: str = ""  # where an engine's rule differs from the equation, in words

    @property
    def bytes(self) -> int:
        """What it takes."""
        return self.rows * self.row_bytes


@value
class LayerTally:
    """``count`` equal neighbours from layer ``first`` on, and the arrays that each holds."""

    first: int
    count: int
    layer: Layer
    kind: str
    arrays: tuple[Array, ...]
    positions: int = 0  # kept by the longest sequence, 0 where the length plays no part

    @property
    def bytes_per_layer(self) -> int:
        """Bytes of one layer of the run."""
        return sum(array.bytes for array in self.arrays)

    @property
    def bytes(self) -> int:
        """Bytes of the whole run."""
        return self.count * self.bytes_per_layer


@value
class Tally:
    """What an engine holds for one request: its layers, and arrays that belong to no layer (tables, pool padding)."""

    layers: tuple[LayerTally, ...]
    shared: tuple[Array, ...] = ()
    request: Mapping[str, tuple[object, str]] = field(default_factory=dict)  # what the engine made of it: value, origin
    report: Mapping[str, object] = field(default_factory=dict)  # the engine's own figures, under its own names
    held_bytes: int | None = None  # what the allocator still holds, where that is more than the arrays
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    fits: bool = True  # False: the engine would refuse for want of memory (exit 1)
    refusal: str = ""

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return sum(run.bytes for run in self.layers) + sum(array.bytes for array in self.shared)

    def component_bytes(self) -> dict[str, int]:
        """The total split into kv, index, state and other."""
        split = dict.fromkeys(COMPONENTS, 0)
        for run in self.layers:
            for array in run.arrays:
                split[array.component] += run.count * array.bytes
        for array in self.shared:
            split[array.component] += array.bytes
        return split
