"""Which kind each layer is: one small function a pattern, all of the form (fields, num_layers) → kinds.

An explicit ``layer_types`` (or an older name for it) always wins; ``named`` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcalc.architectures.aliases import LAYER_KINDS
from kvcalc.core.fields import MAX_LAYERS, Fields
from kvcalc.errors import ArchitectureError, ConfigError

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR, NONE, SHARED = "linear_attention", "none", "shared"

Pattern = Callable[[Fields, int], list[str]]


def named(fields: Fields, num_layers: int | None) -> list[str] | None:
    """The kinds that the file spells out, all where no depth is given, or None. Raises ConfigError, ArchitectureError."""
    for name in ("layer_types", "layers_block_type"):
        words = fields.texts(name)
        if words is None:
            continue
        if num_layers is not None and len(words) < num_layers:
            raise ConfigError(f"{name} has {len(words)} entries for {num_layers} layers", fields.at(name))
        return [_kind(word, fields, name) for word in words[:num_layers]]
    return None


def _kind(word: str, fields: Fields, name: str) -> str:
    if word in LAYER_KINDS:
        return LAYER_KINDS[word]
    known = ", ".join(LAYER_KINDS)
    raise ArchitectureError(
        f"{name} names a layer kind that is not known: {word[:40]!r}", fields.at(name), f"known kinds: {known}"
    )


def or_named(pattern: Pattern) -> Pattern:
    """``pattern``, unless the file spells the kinds out."""

    def chosen(fields: Fields, num_layers: int) -> list[str]:
        return named(fields, num_layers) or pattern(fields, num_layers)

    return chosen


def all_full(fields: Fields, num_layers: int) -> list[str]:  # noqa: ARG001 - a pattern like the others
    """Every layer full, whatever window the file names."""
    return [FULL] * num_layers


def full_unless_window(fields: Fields, num_layers: int) -> list[str]:
    """Every layer slides when a window is named (Mistral, Phi-3); every layer is full when it isn't."""
    return [SLIDING if fields.int_or_none("sliding_window") else FULL] * num_layers


def every_nth(kind: str, other: str, key: str, default: int, offset: int = 1) -> Pattern:
    """Layer i is ``kind`` when (i + offset) is a multiple of the field ``key``; the others are ``other``."""

    def pattern(fields: Fields, num_layers: int) -> list[str]:
        every = fields.int(key, default)
        return [kind if (index + offset) % every == 0 else other for index in range(num_layers)]

    return pattern


def windowed_every_nth(key: str, default: int, offset: int = 1) -> Pattern:
    """Full every n-th layer, sliding between; all full where the file's window is null."""
    pattern = every_nth(FULL, SLIDING, key, default, offset)

    def chosen(fields: Fields, num_layers: int) -> list[str]:
        if not fields.int_or_none("sliding_window"):
            return [FULL] * num_layers
        return pattern(fields, num_layers)

    return chosen


def windowed_letters(key: str, default: int) -> Pattern:
    """The same, where ``key`` may also be a word of letters that repeats: L slides, G sees everything (EXAONE 4)."""
    by_number = windowed_every_nth(key, default)

    def chosen(fields: Fields, num_layers: int) -> list[str]:
        if not isinstance(fields.raw(key), str):
            return by_number(fields, num_layers)
        word = fields.text(key)
        if not word or set(word) - {"L", "G"}:
            raise ArchitectureError(f"{key}: {word[:40]!r} is not known", fields.at(key), "known letters: L and G")
        return [SLIDING if word[index % len(word)] == "L" else FULL for index in range(num_layers)]

    return chosen


def upper_layers_slide(fields: Fields, num_layers: int) -> list[str]:
    """Qwen2 and its kin: with ``use_sliding_window``, the layers from ``max_window_layers`` on."""
    if not (fields.flag("use_sliding_window") and fields.int_or_none("sliding_window")):
        return [FULL] * num_layers
    first = fields.int("max_window_layers", num_layers, minimum=0)
    return [SLIDING if index >= first else FULL for index in range(num_layers)]


def all_slide_if_used(fields: Fields, num_layers: int) -> list[str]:
    """Qwen3-MoE: with ``use_sliding_window``, every layer; ``max_window_layers`` is not read."""
    used = fields.flag("use_sliding_window") and fields.int_or_none("sliding_window")
    return [SLIDING if used else FULL] * num_layers


def even_layers_below_slide(fields: Fields, num_layers: int) -> list[str]:
    """Qwen2-MoE: with ``use_sliding_window``, the even layers below ``max_window_layers``."""
    if not (fields.flag("use_sliding_window") and fields.int_or_none("sliding_window")):
        return [FULL] * num_layers
    limit = fields.int("max_window_layers", num_layers, minimum=0)
    return [SLIDING if index % 2 == 0 and index < limit else FULL for index in range(num_layers)]


def upper_layers_slide_always(fields: Fields, num_layers: int) -> list[str]:
    """dots1: the layers from ``max_window_layers`` on, with no switch."""
    if not fields.int_or_none("sliding_window"):
        return [FULL] * num_layers
    first = fields.int("max_window_layers", num_layers, minimum=0)
    return [SLIDING if index >= first else FULL for index in range(num_layers)]


def layers_without_rope_slide(fields: Fields, num_layers: int) -> list[str]:
    """SmolLM3: with ``use_sliding_window``, the layers that have no rope."""
    if not (fields.flag("use_sliding_window") and fields.int_or_none("sliding_window")):
        return [FULL] * num_layers
    return [FULL if rope else SLIDING for rope in _ropes(fields, num_layers)]


def layers_with_rope_chunk(fields: Fields, num_layers: int) -> list[str]:
    """Llama 4: layers with rope attend within chunks, those without see everything; a null chunk size means all full."""
    if not fields.int_or_none("attention_chunk_size"):
        return [FULL] * num_layers
    return [CHUNKED if rope else FULL for rope in _ropes(fields, num_layers)]


def _ropes(fields: Fields, num_layers: int) -> list[int]:
    listed = fields.ints("no_rope_layers")  # despite its name, 1 is "has rope"
    if listed:
        return fields.per_layer("no_rope_layers", num_layers)
    every = fields.int("no_rope_layer_interval", 4)
    return [int((index + 1) % every != 0) for index in range(num_layers)]


def last_is_full(pattern: Pattern) -> Pattern:
    """``pattern`` with its last layer full, as Gemma 4 ends."""

    def chosen(fields: Fields, num_layers: int) -> list[str]:
        return [*pattern(fields, num_layers)[:-1], FULL]

    return chosen


def listed_indices(key: str, inside: str, outside: str) -> Pattern:
    """The layers that the list ``key`` names are ``inside``, the others ``outside`` (Bamba, LFM2)."""

    def pattern(fields: Fields, num_layers: int) -> list[str]:
        chosen = set(fields.ints(key) or ())
        return [inside if index in chosen else outside for index in range(num_layers)]

    return pattern


def prefix_then_every_nth(fields: Fields, num_layers: int) -> list[str]:
    """Cohere 2 MoE: the first dense layers by a period of their own, the others by theirs, counted afresh."""
    first = min(fields.int("first_k_dense_replace", 0, minimum=0), num_layers)
    near, far = fields.int("prefix_dense_sliding_window_pattern", 1), fields.int("sliding_window_pattern", 4)
    prefix = [SLIDING if (index + 1) % near else FULL for index in range(first)]
    return prefix + [SLIDING if (index + 1) % far else FULL for index in range(num_layers - first)]


def every_fourth_full(fields: Fields, num_layers: int) -> list[str]:  # noqa: ARG001 - a pattern like the others
    """OLMo Hybrid: every fourth layer full, and the last one where there are fewer."""
    kinds = [FULL if index % 4 == 3 else LINEAR for index in range(num_layers)]
    return kinds if FULL in kinds else [*kinds[:-1], FULL]


def listed_or_all_full(key: str) -> Pattern:
    """The layers that the list ``key`` names are full, the others recurrent; all are full where it is null (LFM2)."""
    listed = listed_indices(key, FULL, LINEAR)
    return lambda fields, num_layers: [FULL] * num_layers if fields.raw(key) is None else listed(fields, num_layers)


def period_and_offset(fields: Fields, num_layers: int) -> list[str]:
    """Jamba: attention where i % attn_layer_period equals attn_layer_offset, Mamba else."""
    period, offset = fields.int("attn_layer_period"), fields.int("attn_layer_offset", minimum=0)
    return [FULL if index % period == offset else LINEAR for index in range(num_layers)]


_LETTERS = {"M": LINEAR, "*": FULL, "-": NONE, "E": NONE}


def letters(fields: Fields, num_layers: int) -> list[str]:  # noqa: ARG001 - the string's length is the depth
    """Nemotron-H: ``hybrid_override_pattern``, M Mamba-2, * attention, - MLP, E experts. Raises ArchitectureError."""
    text = fields.text("hybrid_override_pattern")
    unknown = set(text) - set(_LETTERS)
    if not text or unknown:
        what = f"letters {', '.join(sorted(unknown))[:40]} are not known" if unknown else "is missing"
        raise ArchitectureError(f"hybrid_override_pattern: {what}", fields.at("hybrid_override_pattern"), "known: M * - E")
    if len(text) > MAX_LAYERS:
        raise ConfigError(f"hybrid_override_pattern has over {MAX_LAYERS:,} letters", fields.at("hybrid_override_pattern"))
    return [_LETTERS[letter] for letter in text]


def repeated_blocks(fields: Fields, num_layers: int) -> list[str]:
    """RecurrentGemma: ``block_types`` repeats over the layers; its attention slides."""
    words = fields.texts("block_types") or ["recurrent", "recurrent", "attention"]
    return [SLIDING if words[index % len(words)] == "attention" else LINEAR for index in range(num_layers)]
