"""What a run will do, before anything is allocated: which layers, which positions, which steps, how much memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

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
)
from kvcalc.core.model import Model, Request

PREFILL_TOKENS = 2048  # a longer prompt is prefilled in pieces, as servers do
ALL_UP_TO = 128  # sequences up to this length have every output checked
SAMPLE = 64  # of longer ones so many are
PROBE_BYTES = 256 * 2**20  # for all checked queries and their reference outputs
DEFAULT_TOKENS = 64
DEFAULT_DECODED = 16
ENCODER_TOKENS = 64  # rows of an image, or of an encoder whose length nobody says
MOST_ENCODER_TOKENS = 2048
DEFAULT_TOKENS_MOST = 2080  # a window up to 2,048 is passed by default

CHECKED_LAYERS = 4  # of each kind have their outputs checked: layers of a kind differ in nothing but their numbers

Step = tuple[int, int, int]  # sequence, start, stop


@dataclass(frozen=True, slots=True)
class Chosen:
    """One layer that is run: its index in the model, and the index of the layer that it reads, if it keeps nothing."""

    index: int
    layer: Layer
    source: int | None = None
    checked: bool = True  # whether its outputs are held against the reference; its rows and bytes always are


def choose_layers(layers: Sequence[Layer], each: int | None) -> tuple[Chosen, ...]:
    """The first ``each`` layers of every kind (None: all), and the layers that the chosen ones read."""
    sources = {index: source_of(layers, index) for index in range(len(layers))}
    counts: dict[object, int] = {}
    wanted: set[int] = set()
    for index, layer in enumerate(layers):
        key = same_kind(layer)
        counts[key] = counts.get(key, 0) + 1
        if each is None or counts[key] <= each:
            wanted.add(index)
            source = sources[index]
            if source is not None:
                wanted.add(source)
    checked = _checked(sorted(wanted), layers)
    return tuple(Chosen(index, layers[index], sources[index], index in checked) for index in sorted(wanted))


def _checked(wanted: Sequence[int], layers: Sequence[Layer]) -> set[int]:
    """The first, the last and some between of each kind."""
    kinds: dict[Layer, list[int]] = {}
    for index in wanted:
        kinds.setdefault(same_kind(layers[index]), []).append(index)
    found: set[int] = set()
    for same in kinds.values():
        most = min(CHECKED_LAYERS, len(same))
        found |= {same[round(place * (len(same) - 1) / max(most - 1, 1))] for place in range(most)}
    return found


def same_kind(layer: Layer) -> Layer:
    """Layers that are checked together: equal but for the layer that they read."""
    return tuple(Shared() if isinstance(part, Shared) else part for part in layer)


def source_of(layers: Sequence[Layer], index: int) -> int | None:
    """The layer whose cache a sharing layer reads: the named one, else the last one before it that keeps positions."""
    shared = next((part for part in layers[index] if isinstance(part, Shared)), None)
    if shared is None:
        return None
    if shared.source is not None and 0 <= shared.source < len(layers) and keeps_positions(layers[shared.source]):
        return shared.source
    return next((before for before in range(index - 1, -1, -1) if keeps_positions(layers[before])), None)


def keeps_positions(layer: Layer) -> bool:
    """Whether another layer can read this one's cache."""
    return any(isinstance(part, FullAttention | SlidingAttention | ChunkedAttention | LatentAttention) for part in layer)


def describe(layer: Layer) -> str:
    """A layer's sizes, for people: ``32 heads over 8 of 128``."""
    return ", ".join(filter(None, (_describe_part(part) for part in layer)))


def _describe_part(part: Part) -> str:
    match part:
        case FullAttention() | SlidingAttention() | ChunkedAttention() | CrossAttention():
            width = f"{part.head_dim}" if part.head_dim == part.v_head_dim else f"{part.head_dim}/{part.v_head_dim}"
            extent = getattr(part, "window", None) or getattr(part, "chunk", None)
            group = f"{part.num_heads}:" if part.num_heads else ""
            return f"{group}{part.num_kv_heads} heads of {width}" + (f", last {extent:,}" if extent else "")
        case LatentAttention():
            return f"latent {part.kv_lora_rank}+{part.rope_dim}"
        case CompressedAttention():
            return f"rows of {part.head_dim}, last {part.window:,}" + (f" and 1/{part.ratio}" if part.ratio else "")
        case Recurrent():
            shapes = ["x".join(map(str, state.shape)) for state in part.states]
            return " ".join([f"conv {conv.channels}x{conv.kernel - 1}" for conv in part.convs] + [f"state {s}" for s in shapes])
        case Indexer():
            return f"index {part.index_head_dim}"
        case Shared() | NoCache():
            return ""


def edges_of(layers: Sequence[Layer]) -> tuple[int, ...]:
    """Window and chunk sizes, and compression ratios: lengths at which something turns over."""
    found = set()
    for layer in layers:
        for part in layer:
            for name in ("window", "chunk", "ratio"):
                size = getattr(part, name, None)
                if size:
                    found.add(int(size))
    return tuple(sorted(found))


def default_tokens(layers: Sequence[Layer]) -> int:
    """A small length that still passes every window, chunk or compression ratio that isn't long itself."""
    passed = [2 * edge + 16 if edge <= 256 else edge + 32 for edge in edges_of(layers)]
    return max([tokens for tokens in passed if tokens <= DEFAULT_TOKENS_MOST] + [DEFAULT_TOKENS])


def default_lengths(tokens: int) -> tuple[int, ...]:
    """Three sequences of unequal lengths, so that none stands for the others."""
    return tokens, max(tokens * 2 // 3 - 1, 1), max(tokens // 3 + 2, 1)


def with_encoder(model: Model, request: Request, layers: Sequence[Layer]) -> tuple[Request, list[str]]:
    """The request with rows for cross attention to read: the file's own number, else the model's longest text, else a few."""
    crossing = any(isinstance(part, CrossAttention) for layer in layers for part in layer)
    if not crossing or request.encoder_tokens is not None or model.encoder_tokens is not None:
        return request, []
    tokens = ENCODER_TOKENS if model.encoder_tokens_optional else min(model.max_tokens or ENCODER_TOKENS, MOST_ENCODER_TOKENS)
    said = f"cross attention reads {tokens:,} encoder positions, since none are given: --encoder-tokens changes that"
    return replace(request, encoder_tokens=tokens), [said]


def default_prompt(tokens: int) -> int:
    """All but a few, which are decoded."""
    return max(tokens - DEFAULT_DECODED, (tokens + 1) // 2 if tokens <= DEFAULT_DECODED else 1)


def steps_of(lengths: Sequence[int], prompts: Sequence[int], chunks: Sequence[int]) -> list[Step]:
    """Prefill in pieces, then the chunk sizes in turn; sequences take turns, so that blocks mix in a shared pool."""
    sizes = enumerate(zip(lengths, prompts, strict=True))
    pending = [_sequence_steps(sequence, length, prompt, chunks) for sequence, (length, prompt) in sizes]
    found: list[Step] = []
    while pending:
        for steps in list(pending):
            step = next(steps, None)
            if step is None:
                pending.remove(steps)
            else:
                found.append(step)
    return found


def _sequence_steps(sequence: int, length: int, prompt: int, chunks: Sequence[int]) -> Iterator[Step]:
    start, prefilled = 0, min(prompt, length)
    while start < prefilled:
        stop = min(start + PREFILL_TOKENS, prefilled)
        yield sequence, start, stop
        start = stop
    sizes = cycle(chunks)
    while start < length:
        stop = min(start + next(sizes), length)
        yield sequence, start, stop
        start = stop


def check_positions(length: int, edges: Sequence[int], most: int, seed: int) -> tuple[int, ...]:
    """Every position of a short sequence; of a long one a seeded sample with the first, the last and those at edges."""
    if length <= min(most, ALL_UP_TO):
        return tuple(range(length))
    chance = random.Random(f"positions {seed} {length}")  # noqa: S311 - reproducible, no secret
    most = max(min(most, SAMPLE), 2)
    near = [position for edge in edges for position in (edge - 1, edge, edge + 1) if 0 < position < length - 1]
    near = list(dict.fromkeys(near))
    kept = {0, length - 1, *(near if len(near) <= most - 2 else chance.sample(near, most - 2))}
    while len(kept) < min(most, length):
        kept.add(chance.randrange(length))
    return tuple(sorted(kept))


def probe_bytes(layer: Layer) -> int:
    """What one checked position of a layer takes: its queries in float32 and outputs in float64, twice for safety."""
    total = 0
    for part in layer:
        heads = getattr(part, "num_heads", 0) or getattr(part, "num_kv_heads", 4)
        width = getattr(part, "head_dim", 0) + getattr(part, "nope_dim", 0) + getattr(part, "rope_dim", 0)
        values = getattr(part, "v_head_dim", 0) or getattr(part, "head_dim", 0)
        if isinstance(part, Recurrent):
            continue  # checks few positions of its own choice
        total += heads * (width * 4 + values * 16)
    return total


def shrunk(layer: Layer, tokens: int) -> Layer:
    """The same layer with windows and chunks that turn over within ``tokens``, and that hold more than a query's own row."""
    return tuple(_shrunk_part(part, tokens) for part in layer)


def _shrunk_part(part: Part, tokens: int) -> Part:
    if isinstance(part, SlidingAttention) or (isinstance(part, LatentAttention) and part.window is not None):
        return replace(part, window=_between(part.window or tokens, tokens // 2))
    if isinstance(part, ChunkedAttention):
        return replace(part, chunk=_between(part.chunk, tokens // 2 - 1))
    if isinstance(part, CompressedAttention):
        return replace(part, window=_between(part.window, tokens // 2))
    return part


def _between(size: int, most: int) -> int:
    return max(min(size, most), 4)


def kinds_of(layers: Sequence[Layer]) -> str:
    """The kinds, for messages."""
    return ", ".join(dict.fromkeys(kind_of(layer) for layer in layers))
