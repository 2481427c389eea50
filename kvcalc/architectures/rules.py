"""The rules: from fields to layers. Most are ``decoder`` with another pattern or other builders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kvcalc.architectures import parts, patterns
from kvcalc.architectures.base import Rule
from kvcalc.architectures.patterns import CHUNKED, FULL, LINEAR, NONE, SLIDING, Pattern
from kvcalc.core.fields import MAX_LAYERS, Field, Fields
from kvcalc.core.layers import (
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    Layer,
    NoCache,
    Shared,
    SlidingAttention,
)
from kvcalc.errors import ArchitectureError, ConfigError

Builder = Callable[[Fields, int], Layer]

ATTENTION: Mapping[str, Builder] = {FULL: parts.full, SLIDING: parts.sliding, CHUNKED: parts.chunked, NONE: parts.nothing}


def depth(fields: Fields) -> int:
    """``num_layers``, within reason. Raises ConfigError."""
    count = fields.int("num_layers")
    if count > MAX_LAYERS:
        raise ConfigError(f"num_layers is {count}, more than {MAX_LAYERS:,}", fields.at("num_layers"))
    return count


def build(fields: Fields, kinds: list[str], builders: Mapping[str, Builder]) -> tuple[Layer, ...]:
    """One layer a kind. Raises ArchitectureError for a kind that this model type can't have."""
    missing = next((kind for kind in kinds if kind not in builders), None)
    if missing is not None:
        raise ArchitectureError(
            f"layers of kind {missing!r} are not known for this model type", fields.where, f"known kinds: {', '.join(builders)}"
        )
    return tuple(builders[kind](fields, index) for index, kind in enumerate(kinds))


def decoder(pattern: Pattern = patterns.all_full, builders: Mapping[str, Builder] | None = None) -> Rule:
    """Attention of the model's own heads, its kinds by ``pattern``; ``builders`` add or replace kinds.

    An explicit ``layer_types`` wins over the pattern.
    """
    chosen = patterns.or_named(pattern)
    table = {**ATTENTION, **(builders or {})}

    def rule(fields: Fields) -> tuple[Layer, ...]:
        return build(fields, chosen(fields, depth(fields)), table)

    return rule


def uniform(builder: Builder) -> Rule:
    """Every layer alike."""
    return lambda fields: tuple(builder(fields, index) for index in range(depth(fields)))


def hybrid(pattern: Pattern, linear: Builder, builders: Mapping[str, Builder] | None = None) -> Rule:
    """Attention layers among recurrent ones."""
    return decoder(pattern, {LINEAR: linear, **(builders or {})})


def every_layer_both(linear: Builder) -> Rule:
    """Attention and a recurrent state side by side in every layer (Falcon-H1)."""
    return uniform(lambda fields, index: parts.full(fields, index) + linear(fields, index))


def sharing_last(rule: Rule, key: str = "num_kv_shared_layers") -> Rule:
    """The last ``key`` layers read the cache of the last earlier layer of their own kind (Gemma 3n, Gemma 4)."""

    def shared(fields: Fields) -> tuple[Layer, ...]:
        layers = rule(fields)
        count = fields.int(key, 0, minimum=0)
        if count >= len(layers) and count:
            raise ConfigError(f"{key} is {count}, for {len(layers)} layers", fields.at(key))
        owners = layers[: len(layers) - count]
        return owners + tuple((Shared(_last_like(layer, owners)),) for layer in layers[len(owners) :])

    return shared


def _last_like(layer: Layer, owners: tuple[Layer, ...]) -> int | None:
    kinds = [part.kind for part in layer]
    return next((index for index in reversed(range(len(owners))) if [part.kind for part in owners[index]] == kinds), None)


def gemma4_full(fields: Fields, index: int) -> Layer:
    """Gemma 4's full layers: ``global_head_dim``, and ``num_global_key_value_heads`` where K and V share weights."""
    return _global_heads(fields, index, fields.flag("attention_k_eq_v"))


def gemma4_full_ungated(fields: Fields, index: int) -> Layer:
    """The same without the switch (DiffusionGemma)."""
    return _global_heads(fields, index, True)


def _global_heads(fields: Fields, index: int, own_heads: bool) -> Layer:
    if fields.raw("per_layer_config"):
        return parts.full(fields, index)  # a file that the library wrote says it layer by layer
    width = fields.int_of(("global_head_dim", "head_dim"))
    heads = parts.kv_heads(fields, index)
    if own_heads:
        heads = fields.int("num_global_key_value_heads", heads)
    return (FullAttention(heads, width, width, parts.known_heads(fields, index)),)


def falcon(fields: Fields) -> tuple[Layer, ...]:
    """Falcon: the new decoder's own KV heads; else one head with ``multi_query``, one a query head without."""
    heads = parts.query_heads(fields)
    if fields.flag("new_decoder_architecture"):
        kv_heads = fields.int("num_kv_heads", heads)
    else:
        kv_heads = 1 if fields.flag("multi_query", True) else heads
    width = fields.int("head_dim", 0, minimum=0) or fields.int("hidden_size") // heads
    return ((FullAttention(kv_heads, width, width, heads),),) * depth(fields)


def multi_query(default: bool) -> Rule:
    """GPT-BigCode: one KV head with ``multi_query``, else one a query head."""

    def rule(fields: Fields) -> tuple[Layer, ...]:
        heads, width = parts.query_heads(fields), parts.head_width(fields)
        kv_heads = 1 if fields.flag("multi_query", default) else heads
        return ((FullAttention(kv_heads, width, width, heads),),) * depth(fields)

    return rule


def chatglm(fields: Fields) -> tuple[Layer, ...]:
    """ChatGLM: ``multi_query_group_num`` KV heads with ``multi_query_attention``, else one a query head."""
    heads, width = parts.query_heads(fields), parts.head_width(fields)
    grouped = fields.flag("multi_query_attention")
    kv_heads = fields.int("multi_query_group_num") if grouped else heads
    return ((FullAttention(kv_heads, width, width, heads),),) * depth(fields)


def block_configs(fields: Fields) -> tuple[Layer, ...]:
    """Nemotron-NAS: each block names its query heads a KV head, or that it has no attention."""
    blocks = fields.raw("block_configs")
    if not isinstance(blocks, list) or len(blocks) < depth(fields):
        raise ConfigError("block_configs must list every layer's block", fields.at("block_configs"))
    at = fields.at("block_configs")
    listed = [Fields({"block": Field(block, f"{at}[{index}]")}, at).mapping("block") for index, block in enumerate(blocks)]
    return tuple(_nas_block(fields, block.mapping("attention")) for block in listed[: depth(fields)])


def _nas_block(fields: Fields, attention: Fields) -> Layer:
    if attention.flag("no_op") or attention.flag("replace_with_linear"):
        return (NoCache(),)
    heads, width = parts.query_heads(fields), parts.head_width(fields)
    group = attention.int("n_heads_in_group")
    if heads % group:
        raise ConfigError(f"n_heads_in_group {group} does not divide {heads} heads", attention.at("n_heads_in_group"))
    window = attention.int_or_none("window_length")
    if window:
        return (SlidingAttention(heads // group, width, width, window, heads),)
    return (FullAttention(heads // group, width, width, heads),)


def indexed_latent(fields: Fields) -> tuple[Layer, ...]:
    """GLM-5 and kin: MLA in every layer, an indexer of its own where ``indexer_types`` doesn't say ``shared``."""
    owned = indexer_owners(fields, depth(fields))
    return tuple(parts.indexed_latent(fields) if own else parts.latent(fields) for own in owned)


def indexer_owners(fields: Fields, num_layers: int) -> list[bool]:
    """Which layers run their own indexer: the list, as far as it goes, then ``index_topk_freq`` and its offset."""
    every = max(fields.int("index_topk_freq", 1, minimum=0), 1)
    offset = fields.int("index_skip_topk_offset", 2, minimum=0)
    scheduled = [max(index - offset + 1, 0) % every == 0 for index in range(num_layers)]
    pattern = fields.raw("index_topk_pattern")
    named = (
        fields.texts("indexer_types") or ([*pattern] if isinstance(pattern, str) else fields.texts("index_topk_pattern")) or []
    )
    unknown = set(named) - {"full", "shared", "F", "S"}
    if unknown:
        raise ArchitectureError(
            f"indexer_types: {min(unknown)[:40]!r} is not known", fields.at("indexer_types"), "known: full, shared"
        )
    return ([word in ("full", "F") for word in named] + scheduled[len(named) :])[:num_layers]


_SPARSE, _HEAVY, _WINDOW = "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"
_COMPRESS_KINDS = {0: _WINDOW, 4: _SPARSE, 128: _HEAVY}


def compressed(fields: Fields) -> tuple[Layer, ...]:
    """DeepSeek V4: ``compress_ratios`` a layer (entries beyond the depth are draft layers), or named layer types."""
    rates = compress_rates(fields)
    return tuple(compressed_layer(fields, kind, rates[kind]) for kind in compress_kinds(fields)[: depth(fields)])


def compress_rates(fields: Fields) -> dict[str, int]:
    """Positions a compressed row stands for, by kind of layer."""
    own = fields.mapping("compress_rates")
    return {
        _WINDOW: 0,
        _SPARSE: fields.int("compress_rate_csa", own.int(_SPARSE, 4)),
        _HEAVY: fields.int("compress_rate_hca", own.int(_HEAVY, 128)),
    }


def compress_kinds(fields: Fields) -> list[str]:
    """The kind of every layer. Raises ConfigError, ArchitectureError."""
    num_layers, name = depth(fields), "layer_types"
    kinds = fields.texts(name)
    ratios = fields.ints("compress_ratios")
    if kinds is None and ratios is not None:
        name, kinds = "compress_ratios", [_COMPRESS_KINDS.get(ratio, str(ratio)) for ratio in ratios]
    if kinds is None:  # the class's own pattern: two heavy layers, then heavy and sparse in turn
        kinds = [_SPARSE if index > 1 and index % 2 else _HEAVY for index in range(num_layers)]
    unknown = next((kind for kind in kinds if kind not in _COMPRESS_KINDS.values()), None)
    if unknown is not None:
        known = ", ".join(_COMPRESS_KINDS.values() if name == "layer_types" else map(str, _COMPRESS_KINDS))
        raise ArchitectureError(f"{name}: {unknown[:40]!r} is not known", fields.at(name), f"known: {known}")
    if len(kinds) < num_layers:
        raise ConfigError(f"{name} has {len(kinds)} entries for {num_layers} layers", fields.at(name))
    return kinds


def compressed_layer(fields: Fields, kind: str, ratio: int) -> Layer:
    """One layer. Its float32 buffers hold keys and scores of (1 + overlap)·ratio rows; sparse layers overlap."""
    width, window, heads = fields.int("head_dim", 512), fields.int("sliding_window", 128), parts.known_heads(fields)
    if kind == _WINDOW:
        return (CompressedAttention(width, window, num_heads=heads),)
    if kind == _HEAVY:
        return (CompressedAttention(width, window, ratio, 0, 2 * ratio * width, heads),)
    index_width = fields.int("index_head_dim", 128)
    # 2 arrays of 2·ratio rows, each row twice as wide: its own half and the half that overlaps the next group
    buffers = 2 * (2 * ratio) * 2 * (width + index_width)
    return (CompressedAttention(width, window, ratio, index_width, buffers, heads),)


def sparse_indexed(fields: Fields) -> tuple[Layer, ...]:
    """MiniMax-M3: every layer full; those that read sparsely keep one index key a position besides."""
    own = fields.mapping("sparse_attention_config")
    layers = [parts.full(fields, index) for index in range(depth(fields))]
    marks = own.ints("sparse_attention_freq") or []
    width = own.int_of(("sparse_index_dim",), 128)
    used = own.flag("use_sparse_attention", default=bool(marks))
    words = fields.texts("layer_types") or []
    sparse = [bool(mark) for mark in marks] if used else [word == "minimax_m3_sparse" for word in words]
    if words:
        width = fields.int("index_head_dim", width)
    sparse += [False] * (len(layers) - len(sparse))
    return tuple((*layer, Indexer(width)) if marked else layer for layer, marked in zip(layers, sparse, strict=False))


def hashed_states(fields: Fields) -> tuple[Layer, ...]:
    """Reformer: one row of hidden_size a position, its layers' input; LSH layers a bucket (int64) a head and hash."""
    states = FullAttention(1, fields.int("hidden_size"), 0)
    words = 2 * fields.int("num_attention_heads") * fields.int("num_hashes", 1)  # of four bytes
    kinds = fields.texts("attn_layers") or []
    return tuple((states, Indexer(words, "float32")) if kind == "lsh" else (states,) for kind in kinds)


def vision_cross(fields: Fields) -> tuple[Layer, ...]:
    """Llama 3.2 Vision: the listed layers hold the image's keys and values, and none of the text's."""
    count, named = depth(fields), fields.ints("cross_attention_layers")
    listed = set(range(3, 40, 5) if named is None else named)  # the class's own: 3, 8 … 38
    return tuple((parts.cross if index in listed else parts.full)(fields, index) for index in range(count))


def letter_pattern(fields: Fields) -> tuple[Layer, ...]:
    """Nemotron-H: one block a letter of ``hybrid_override_pattern``, or a word of ``layers_block_type``."""
    kinds = patterns.named(fields, None) or _hybrid_letters(fields)
    return build(fields, kinds, {**ATTENTION, LINEAR: parts.mamba2})


def _hybrid_letters(fields: Fields) -> list[str]:
    if fields.raw("hybrid_override_pattern") is not None:
        return patterns.letters(fields, 0)
    return [LINEAR, NONE, FULL, NONE]  # the class's own default


def two_widths(fields: Fields) -> tuple[Layer, ...]:
    """MiMo-V2: K and V of different width; windowed layers have their own head count."""
    kinds = patterns.or_named(_mimo_pattern)(fields, depth(fields))
    v_width = fields.int_of(("v_head_dim", "head_dim"))
    swa_heads = fields.int("swa_num_key_value_heads", 2 * fields.int("num_kv_heads"))
    swa_k, swa_v = fields.int_of(("swa_head_dim", "head_dim")), fields.int("swa_v_head_dim", v_width)
    heads = parts.known_heads(fields)
    full = (FullAttention(fields.int("num_kv_heads"), parts.head_width(fields), v_width, heads),)
    slide = (SlidingAttention(swa_heads, swa_k, swa_v, fields.int_of(("sliding_window", "sliding_window_size")), heads),)
    return tuple(slide if kind == SLIDING else full for kind in kinds)


def _mimo_pattern(fields: Fields, num_layers: int) -> list[str]:
    if fields.raw("hybrid_layer_pattern") is None:
        return [SLIDING if index and (index + 1) % 6 else FULL for index in range(num_layers)]
    marks = fields.per_layer("hybrid_layer_pattern", num_layers, 0)
    return [SLIDING if mark else FULL for mark in marks]


def encoder_decoder(fields: Fields) -> tuple[Layer, ...]:
    """Every decoder layer keeps its own keys and the encoder's; the encoder itself keeps nothing."""
    return tuple(parts.with_cross(fields, index) for index in range(depth(fields)))


def doubled(rule: Rule) -> Rule:
    """LongCat: two attention blocks in each layer."""
    return lambda fields: tuple(layer for layer in rule(fields) for _ in range(2))


def times(layers: tuple[Layer, ...], passes: int, at: str) -> tuple[Layer, ...]:
    """The layers ``passes`` times over. Raises ConfigError beyond MAX_LAYERS."""
    if passes * len(layers) > MAX_LAYERS:
        raise ConfigError(f"{passes:,} passes over {len(layers):,} layers are more than {MAX_LAYERS:,}", at)
    return layers * passes


def repeated(rule: Rule, key: str) -> Rule:
    """A looped model: ``key`` passes over the layers, each with a cache of its own."""

    def looped(fields: Fields) -> tuple[Layer, ...]:
        return times(rule(fields), fields.int(key, 1), fields.at(key))

    return looped


def draft_layers(fields: Fields, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Multi-token-prediction layers: as many as the file names, each like the model's last attention layer.

    Where ``layer_types`` goes on past the model's own layers, its further words say what kind each one is (Step-3.5).
    """
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    name, count = next(((name, n) for name in names if (n := fields.int_or_none(name, 0))), ("", 0))
    if count > MAX_LAYERS:
        raise ConfigError(f"{name} is {count}, more than {MAX_LAYERS:,}", fields.at(name))
    like = next((layer for layer in reversed(layers) if not isinstance(layer[0], NoCache | Shared) and _attends(layer)), None)
    if like is None or not count:
        return ()
    return tuple(_undo_window(named or like) for named in _beyond(fields, layers, count))


def _beyond(fields: Fields, layers: tuple[Layer, ...], count: int) -> list[Layer | None]:
    """For each draft layer, the model's last layer of the kind that ``layer_types`` names for it."""
    words = fields.raw("layer_types")
    if not isinstance(words, list | tuple) or len(words) < len(layers) + count or fields.int_or_none("num_layers") != len(layers):
        return [None] * count
    last = {str(word): layer for word, layer in zip(words, layers, strict=False) if _attends(layer)}
    return [last.get(str(word)) for word in words[len(layers) : len(layers) + count]]


def _attends(layer: Layer) -> bool:
    return any(part.kind not in ("recurrent", CrossAttention.kind) for part in layer)


def _undo_window(layer: Layer) -> Layer:
    """A compressed model's draft layers keep a window alone."""
    return tuple(
        replace(part, ratio=0, index_head_dim=0, buffer_elements=0) if isinstance(part, CompressedAttention) else part
        for part in layer
    )
