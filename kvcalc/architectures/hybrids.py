"""Builders and rules of layers that keep more than one thing, or take turns between attention and a state."""

from __future__ import annotations

from collections.abc import Callable

from kvcalc.architectures import parts, patterns
from kvcalc.architectures.base import Rule
from kvcalc.architectures.patterns import FULL, LINEAR
from kvcalc.architectures.rules import Builder, decoder, depth, indexer_owners
from kvcalc.core.fields import Fields
from kvcalc.core.layers import Conv, FullAttention, Indexer, Layer, Recurrent, SlidingAttention, State

HYBRID, HYBRID_SLIDING, INDEXED = "hybrid", "hybrid_sliding", "indexed_attention"


def both(attention: Builder, linear: Builder) -> Builder:
    """Attention and a state side by side in one layer."""
    return lambda fields, index: attention(fields, index) + linear(fields, index)


def zamba_width(fields: Fields) -> int:
    """Zamba's attention runs on twice the hidden size: 2 · hidden_size // heads, unless the file says otherwise."""
    return fields.int_or_none("head_dim") or 2 * fields.int("hidden_size") // parts.query_heads(fields)


def zamba_attention(fields: Fields, index: int = 0) -> Layer:
    """Full attention of Zamba's doubled width."""
    width = zamba_width(fields)
    return (FullAttention(parts.kv_heads(fields, index), width, width, parts.query_heads(fields)),)


def zamba2_attention(fields: Fields, index: int = 0) -> Layer:
    """Zamba2 fixes that width, whatever the file says of it."""
    width = 2 * fields.int("hidden_size") // parts.query_heads(fields)
    return (FullAttention(parts.kv_heads(fields, index), width, width, parts.query_heads(fields)),)


def zamba_pattern(fields: Fields, num_layers: int) -> list[str]:
    """Zamba: two Mamba layers and a hybrid one, then a hybrid one where i % period equals the offset."""
    period, offset = fields.int("attn_layer_period", 6), fields.int("attn_layer_offset", 4, minimum=0)
    rest = [HYBRID if index % period == offset else LINEAR for index in range(max(num_layers - 3, 0))]
    return [LINEAR, LINEAR, HYBRID, *rest][:num_layers]


def zamba2_pattern(fields: Fields, num_layers: int) -> list[str]:  # noqa: ARG001 - a pattern like the others
    """Zamba2's class default, made for its own 54 layers: hybrid at 6, 12 … 42, 47 and 51."""
    hybrids = {*range(6, 43, 6), 47, 51}
    return [HYBRID if index in hybrids else LINEAR for index in range(54)]


def cca(fields: Fields, index: int = 0) -> Layer:
    """Zaya's compressed convolutional attention: columns of queries and keys, and half a value row, of the last tokens."""
    width, kv_heads = parts.head_width(fields), parts.kv_heads(fields, index)
    columns = fields.int("cca_time0", 2) - 1 + fields.int("cca_time1", 2) - 1
    conv = Conv((parts.query_heads(fields) + kv_heads) * width, columns + 1)
    return (Recurrent("cca", (conv,), (State((kv_heads * width // 2,), None),)),)


def inkling(sliding: bool) -> Builder:
    """Inkling: attention, and four float32 convolutions over its keys, its values and the hidden rows before and after."""

    def builder(fields: Fields, index: int) -> Layer:
        heads = fields.int_of(("swa_num_key_value_heads", "num_kv_heads")) if sliding else parts.kv_heads(fields, index)
        width = fields.int_of(("swa_head_dim", "head_dim")) if sliding else parts.head_width(fields, index)
        query = fields.int("swa_num_attention_heads", 0, minimum=0) if sliding else parts.known_heads(fields, index)
        kernel, hidden = fields.int_of(("conv_kernel_size", "sconv_kernel_size"), 4), fields.int("hidden_size")
        channels = (heads * width, heads * width, hidden, hidden)
        convs = Recurrent("short_conv", tuple(Conv(count, kernel, "float32") for count in channels))
        window = fields.int_of(("sliding_window", "sliding_window_size")) if sliding else 0
        attention = SlidingAttention(heads, width, width, window, query) if sliding else FullAttention(heads, width, width, query)
        return (attention, convs)

    return builder


def inkling_pattern(fields: Fields, num_layers: int) -> list[str]:
    """Inkling: the layers of ``local_layer_ids`` slide, or all but every sixth."""
    local = fields.ints("local_layer_ids")
    chosen = {index for index in range(num_layers) if (index + 1) % 6} if local is None else set(local)
    return [HYBRID_SLIDING if index in chosen else HYBRID for index in range(num_layers)]


def inkling_listed(fields: Fields, num_layers: int) -> list[str]:
    """Inkling's first files: the layers of ``local_layer_ids`` slide, and none where it is missing."""
    local = set(fields.ints("local_layer_ids") or ())
    return [HYBRID_SLIDING if index in local else HYBRID for index in range(num_layers)]


def kimi_pattern(fields: Fields, num_layers: int) -> list[str]:
    """Kimi Linear: full attention in ``linear_attn_config.full_attn_layers`` (counted from 1), else in every fourth."""
    own = fields.mapping("linear_attn_config")
    full = own.ints("full_attn_layers")
    if full is None or "kda_layers" not in own:
        return [FULL if index and index % 4 == 0 else LINEAR for index in range(num_layers)]
    return [FULL if index + 1 in full else LINEAR for index in range(num_layers)]


def kimi_linear(fields: Fields) -> tuple[Layer, ...]:
    """Kimi Linear: MLA, and delta attention."""
    return decoder(kimi_pattern, {LINEAR: parts.kda, FULL: parts.latent})(fields)


def grouped_pattern(fields: Fields, num_layers: int) -> list[str]:
    """Bailing hybrid: the last layer of each group of ``layer_group_size`` attends."""
    every = fields.int("layer_group_size", 6)
    return [LINEAR if (index + 1) % every else FULL for index in range(num_layers)]


def cycle(*kinds: str) -> patterns.Pattern:
    """The kinds in turn."""
    return lambda _, num_layers: [kinds[index % len(kinds)] for index in range(num_layers)]


def by_index(choose: Callable[[int, int], str]) -> patterns.Pattern:
    """A kind by layer index and depth."""
    return lambda _, num_layers: [choose(index, num_layers) for index in range(num_layers)]


def compressed_index_columns(fields: Fields) -> int:
    """GLM-5-Next packs keys, values and a gate of its pooled indexer into one row: 2 · index_head_dim + 1."""
    return 2 * fields.int("index_head_dim") + 1


def pooled_index(fields: Fields, index: int) -> Layer:
    """MLA whose indexer pools: the layers that ``indexer_types`` calls shared keep the latent alone."""
    own = indexer_owners(fields, depth(fields))[index]
    return (*parts.latent(fields, index), *((Indexer(compressed_index_columns(fields)),) if own else ()))


def key_index(fields: Fields, index: int = 0) -> Layer:
    """Full attention, and ``indexer_head_dim`` index keys a position (Qwen4-Exp); none where the file names no indexer."""
    if fields.raw("indexer_n_heads") is None and fields.raw("indexer_head_dim") is None:
        return parts.full(fields, index)
    width = fields.int("indexer_head_dim") * fields.int("indexer_kv_heads", 1)
    return (*parts.full(fields, index), Indexer(width))


def ngram_states(rule: Rule) -> Rule:
    """Qwen4-Exp: layers of ``ple_layer_ids`` (counted from 1) keep a dilated convolution's columns and the last token ids."""

    def with_ngrams(fields: Fields) -> tuple[Layer, ...]:
        chosen = set(fields.ints("ple_layer_ids") or ())
        layers = rule(fields)
        return tuple((*layer, _ngrams(fields)) if index in chosen else layer for index, layer in enumerate(layers, 1))

    return with_ngrams


def _ngrams(fields: Fields) -> Recurrent:
    size = fields.int("ngram_size", 3)
    columns = (fields.int("ple_conv_kernel_size", 4) - 1) * size
    conv = Conv(fields.int("hc_count", 4) * fields.int("hidden_size"), columns + 1)
    ids = State((size - 1, 2))  # int64: two words of four bytes each
    return Recurrent("ngram", (conv,), (ids,))
