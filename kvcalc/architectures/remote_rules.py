"""Rules of model types that live outside transformers: remote code, engines' own models, older publishing formats."""

from __future__ import annotations

from dataclasses import replace

from kvcalc.architectures import parts, patterns
from kvcalc.architectures.base import Rule
from kvcalc.architectures.patterns import FULL, LINEAR, SLIDING, Pattern
from kvcalc.architectures.rules import block_configs, build, decoder, depth, falcon
from kvcalc.core.fields import MAX_FIELD, MAX_LAYERS, Field, Fields
from kvcalc.core.layers import (
    CompressedAttention,
    Conv,
    FullAttention,
    Layer,
    Recurrent,
    Shared,
    SlidingAttention,
    State,
)
from kvcalc.errors import ArchitectureError, ConfigError
from kvcalc.units import ceil_div

# Heads and widths ----------------------------------------------------------------------------------------------------


def attention_kind(fields: Fields) -> tuple[Layer, ...]:
    """MPT: ``attn_config.attn_type`` multiquery keeps one KV head, grouped query ``kv_n_heads``, else one a query head."""
    if fields.mapping("attn_config").text("attn_type") == "multiquery_attention":
        fields = fields.with_values({"num_kv_heads": Field(1, f"{fields.at('attn_config')}.attn_type")})
    return decoder()(fields)


def own_windows(fields: Fields) -> tuple[Layer, ...]:
    """Domyn Edge: a head width a layer in ``per_layer_config``, and ``window_sizes`` of [positions before, after], 0 for all.

    A window of w positions before a token holds w + 1 with the token itself.
    """
    num_layers, own = depth(fields), fields.mapping("per_layer_config")
    windows = fields.raw("window_sizes")
    if not isinstance(windows, list) or len(windows) < num_layers:
        raise ConfigError("window_sizes must hold one pair a layer", fields.at("window_sizes"))
    return tuple(_own_window(fields, own, windows[index], index) for index in range(num_layers))


def _own_window(fields: Fields, own: Fields, pair: object, index: int) -> Layer:
    width = own.mapping(str(index)).int_or_none("head_dim") or parts.head_width(fields, index)
    before = pair[0] if isinstance(pair, list) and pair else None
    if not isinstance(before, int) or isinstance(before, bool) or not 0 <= before <= MAX_FIELD:
        raise ConfigError(f"window_sizes[{index}] must be a pair of positions", fields.at("window_sizes"))
    heads, queries = parts.kv_heads(fields, index), parts.known_heads(fields, index)
    return (
        SlidingAttention(heads, width, width, before + 1, queries) if before else FullAttention(heads, width, width, queries),
    )


def refined_web(fields: Fields) -> tuple[Layer, ...]:
    """Falcon's first files: the 40B names ``n_head_kv`` and no switch, the 7B ``multi_query`` alone."""
    if fields.raw("multi_query") is None and fields.raw("num_kv_heads") is not None:
        return decoder()(fields)
    return falcon(fields)


def queries_or_one(fields: Fields) -> tuple[Layer, ...]:
    """OLMo's own format: ``n_kv_heads``, else one KV head with ``multi_query_attention``, one a query head without."""
    if fields.raw("num_kv_heads") is None and fields.flag("multi_query_attention"):
        fields = fields.with_values({"num_kv_heads": Field(1, fields.at("multi_query_attention"))})
    return decoder()(fields)


def shared_heads(fields: Fields, index: int = 0) -> Layer:
    """PLaMo: ``n_shared_head`` query heads share a KV head; ``num_key_value_heads`` plays no part."""
    heads, width = parts.query_heads(fields, index), parts.head_width(fields, index)
    return (FullAttention(ceil_div(heads, fields.int("n_shared_head", 8)), width, width, heads),)


def blocks_or_heads(fields: Fields) -> tuple[Layer, ...]:
    """DeciLM: ``block_configs`` as Nemotron-NAS has them, or KV heads a layer."""
    return block_configs(fields) if fields.raw("block_configs") is not None else decoder()(fields)


def sink_heads(fields: Fields) -> tuple[Layer, ...]:
    """Sink attention of openPangu: keys of qk_nope_dim + qk_rope_dim, values of v_channels, learned sink rows besides."""
    k_width, v_width = fields.int("qk_nope_dim") + fields.int("qk_rope_dim", minimum=0), fields.int("v_channels")
    heads = parts.known_heads(fields)
    full = FullAttention(parts.kv_heads(fields), k_width, v_width, heads)
    return tuple(windowed(full, window) for window in window_list(fields, "interleaved_sliding_window", depth(fields)))


def mla_unless_heads(rule: Rule) -> Rule:
    """MLA where the file names ``kv_lora_rank``, else ``rule`` (openPangu, Mistral's own format)."""

    def chosen(fields: Fields) -> tuple[Layer, ...]:
        if fields.raw("kv_lora_rank") is None:
            return rule(fields)
        return tuple(parts.latent(fields, index) for index in range(depth(fields)))

    return chosen


# Windows -------------------------------------------------------------------------------------------------------------


def window_list(fields: Fields, name: str, count: int) -> list[int | None]:
    """A window a layer: one number for all, or a list that repeats, null for a full layer. Raises ConfigError."""
    raw = fields.raw(name)
    if not isinstance(raw, list | tuple):
        return [fields.int_or_none(name)] * count
    if not raw:
        raise ConfigError(f"{name} is an empty list", fields.at(name))
    own = Fields({str(index): Field(item, fields.at(name)) for index, item in enumerate(raw[:count])}, fields.at(name))
    windows = [own.int_or_none(str(index)) for index in range(len(own))]
    return [windows[index % len(windows)] for index in range(count)]


def windowed(full: FullAttention, window: int | None) -> Layer:
    """The same attention over its last ``window`` positions, or over all."""
    if window is None:
        return (full,)
    return (SlidingAttention(full.num_kv_heads, full.head_dim, full.v_head_dim, window, full.num_heads),)


def by_window_list(name: str) -> Rule:
    """Full and sliding layers as the list ``name`` has them; an explicit ``layer_types`` wins."""

    def rule(fields: Fields) -> tuple[Layer, ...]:
        if fields.raw("layer_types") is not None and not isinstance(fields.raw(name), list | tuple):
            return decoder()(fields)
        windows = window_list(fields, name, depth(fields))
        return tuple(
            windowed(part, window)
            for index, window in enumerate(windows)
            for part in parts.full(fields, index)
            if isinstance(part, FullAttention)
        )

    return rule


def plamo3(fields: Fields) -> tuple[Layer, ...]:
    """PLaMo 3: ``interleaved_sliding_window`` where it is listed, else a window but in every ``sliding_window_pattern``-th."""
    listed = next(
        (name for name in ("interleaved_sliding_window", "sliding_window") if isinstance(fields.raw(name), list | tuple)), ""
    )
    if listed:
        return by_window_list(listed)(fields)
    return decoder(patterns.every_nth(FULL, SLIDING, "sliding_window_pattern", 8))(fields)


def motif(fields: Fields) -> tuple[Layer, ...]:
    """Motif: every ``sliding_window_period``-th layer full, the others windowed where used; latent where it names a rank."""
    count, every = depth(fields), fields.int("sliding_window_period", 2)
    slides = fields.flag("use_sliding_window")
    windows = [fields.int("sliding_window", 4096) if slides and index % every else None for index in range(count)]
    if not fields.int_or_none("kv_lora_rank", 0):
        return tuple(
            windowed(part, window)
            for index, window in enumerate(windows)
            for part in parts.full(fields, index)
            if isinstance(part, FullAttention)
        )
    if fields.raw("qk_rope_head_dim") is None:
        fields = fields.with_values({"qk_rope_head_dim": Field(fields.int("head_dim") // 2, fields.at("head_dim"))})
    latent = parts.latent_part(fields)
    return tuple((replace(latent, window=window),) for window in windows)


def framed_blocks(fields: Fields, num_layers: int) -> list[str]:
    """IQuest Q1: first layers, a block that repeats, last layers; all full without hybrid layers or windows."""
    if not (fields.flag("use_hybrid_layers", True) and fields.flag("use_sliding_window", True)):
        return [FULL] * num_layers
    first = fields.texts("first_layers_types") or [FULL]
    block = fields.texts("hybrid_layers_types_block") or [FULL, SLIDING, SLIDING, SLIDING]
    last = fields.texts("last_layers_types") or [FULL, FULL, FULL]
    repeats = fields.int("num_hybrid_layers_block", 21, minimum=0)
    if len(first) + len(block) * repeats + len(last) != num_layers:
        raise ConfigError(
            f"{len(first)} + {repeats} x {len(block)} + {len(last)} layer types do not make {num_layers} layers",
            fields.at("num_hybrid_layers_block"),
        )
    return [*first, *block * repeats, *last]


def framed(fields: Fields) -> tuple[Layer, ...]:
    """IQuest Q1's layers; its configuration class drops a ``layer_types`` in the file."""
    return build(fields, framed_blocks(fields, depth(fields)), {FULL: parts.full, SLIDING: parts.sliding})


def baichuan_m1(fields: Fields) -> tuple[Layer, ...]:
    """Baichuan-M1: listed layers slide, with heads of their own; each layer convolves its keys and values."""
    slides = set(fields.ints("sliding_window_layers") or ())
    return tuple(_convolved(fields, index in slides) for index in range(depth(fields)))


def _convolved(fields: Fields, slides: bool) -> Layer:
    own = {"num_attention_heads": "num_swa_attention_heads", "num_kv_heads": "num_swa_key_value_heads"}
    if slides:
        fields = fields.with_values({name: fields[key] for name, key in own.items() if fields.raw(key) is not None})
    attention = (parts.sliding if slides else parts.full)(fields, 0)
    channels, kernel = parts.kv_heads(fields) * parts.head_width(fields), fields.int("conv_window", 2)
    return (*attention, Recurrent("short_conv", (Conv(channels, kernel),) * 2))


# Layers that share, loops --------------------------------------------------------------------------------------------


def cross_layer(rule: Rule) -> Rule:
    """Hunyuan's cross-layer attention: with ``use_cla``, ``cla_share_factor`` layers in a row read the first one's keys."""

    def shared(fields: Fields) -> tuple[Layer, ...]:
        layers = rule(fields)
        factor = fields.int("cla_share_factor", 1) if fields.flag("use_cla") else 1
        return tuple((Shared(index - index % factor),) if index % factor else layer for index, layer in enumerate(layers))

    return shared


def windowed_loops(fields: Fields) -> tuple[Layer, ...]:
    """IQuest LoopCoder: ``loop_num`` passes, each with a cache of its own; those after the first keep a window."""
    layers = decoder()(fields)
    passes, window = fields.int("loop_num", 2), fields.int("loop_window_size", 64)
    _within_reason(passes, len(layers), fields.at("loop_num"))
    again = tuple(windowed(part, window) for layer in layers for part in layer if isinstance(part, FullAttention))
    return layers + again * (passes - 1)


def _within_reason(passes: int, count: int, at: str) -> None:
    if passes * count > MAX_LAYERS:
        raise ConfigError(f"{passes} passes over {count} layers are more than {MAX_LAYERS:,}", at)


def looped_unless_shared(rule: Rule) -> Rule:
    """Nanbeige: ``num_loops`` passes, or one more than ``loop_loss_weights``; ``loop_share_kv`` keeps one cache for all."""

    def looped(fields: Fields) -> tuple[Layer, ...]:
        layers, weights = rule(fields), fields.raw("loop_loss_weights")
        passes = len(weights) + 1 if isinstance(weights, list) and weights else fields.int("num_loops", 1)
        _within_reason(passes, len(layers), fields.at("num_loops"))
        return layers if fields.flag("loop_share_kv") else layers * passes

    return looped


def sambay(fields: Fields) -> tuple[Layer, ...]:
    """Phi-4-mini-flash: Mamba and attention in turn; after the middle, all read one full cache and one state.

    The odd layers of the first half slide, layer n/2 + 1 keeps everything, later ones keep nothing.
    """
    count = depth(fields)
    every = fields.int("mb_per_layer", 2, minimum=0)
    return tuple(_sambay_layer(fields, index, count // 2, bool(every) and index % every == 0) for index in range(count))


def _sambay_layer(fields: Fields, index: int, middle: int, is_mamba: bool) -> Layer:
    if index >= middle + 2:
        return (Shared(middle if is_mamba else middle + 1),)
    if is_mamba:
        return parts.mamba(fields)
    return parts.sliding(fields) if index < middle and index % 2 else parts.full(fields)


# States among attention ----------------------------------------------------------------------------------------------


def numbered_kinds(keys: tuple[str, ...], kinds: dict[int, str]) -> Pattern:
    """MiniMax-Text-01: a number a layer says its kind, under the first of ``keys`` there. Raises ArchitectureError."""

    def pattern(fields: Fields, num_layers: int) -> list[str]:
        key = next((name for name in keys if fields.raw(name) is not None), keys[0])
        numbers = fields.per_layer(key, num_layers, 1)
        unknown = next((number for number in numbers if number not in kinds), None)
        if unknown is not None:
            raise ArchitectureError(f"{key}: {unknown} is not known", fields.at(key), f"known: {', '.join(map(str, kinds))}")
        return [kinds[number] for number in numbers]

    return pattern


def worded_kinds(key: str, kinds: dict[str, str], default: str) -> Pattern:
    """A word a layer under another key than ``layer_types``; a shorter list repeats. Raises ArchitectureError."""

    def pattern(fields: Fields, num_layers: int) -> list[str]:
        words = fields.texts(key) or [default]
        unknown = next((word for word in words if word not in kinds), None)
        if unknown is not None:
            raise ArchitectureError(f"{key}: {unknown[:40]!r} is not known", fields.at(key), f"known: {', '.join(kinds)}")
        return [kinds[words[index % len(words)]] for index in range(num_layers)]

    return pattern


def lightning_heads(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """MiniCPM-SALA: lightning heads of their own count and width."""
    heads = fields.int_of(("lightning_nkv", "num_kv_heads", "num_attention_heads"))
    width = fields.int("lightning_head_dim", parts.head_width(fields))
    return (Recurrent("lightning", (), (State((heads, width, width)),)),)


def group_ends(fields: Fields, num_layers: int) -> list[str]:
    """Bailing linear: the last layer of each group of ``layer_group_size`` attends, and all layers of a last, shorter group."""
    every = fields.int("layer_group_size")
    whole = num_layers // every * every
    return [FULL if (index + 1) % every == 0 or index >= whole else LINEAR for index in range(num_layers)]


def plamo2_pattern(fields: Fields, num_layers: int) -> list[str]:
    """PLaMo 2: attention in the middle of each ``mamba_step`` layers, or in the last of a model shallower than that."""
    if not fields.flag("mamba_enabled", True):
        return [FULL] * num_layers
    step = fields.int("mamba_step", 2)
    if num_layers <= step // 2:
        return [LINEAR] * (num_layers - 1) + [FULL]
    return [FULL if index % step == step // 2 else LINEAR for index in range(num_layers)]


def plamo2_mamba(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """PLaMo 2's Mamba: a convolution over heads × width alone, without groups."""
    heads, width = fields.int("mamba_num_heads", 64), parts.head_width(fields)
    conv = Conv(heads * width, fields.int("mamba_d_conv", 4))
    state = State((heads, width, fields.int("mamba_d_state", 64)), parts.state_dtype(fields))
    return (Recurrent("mamba2", (conv,), (state,)),)


_JET_KINDS = {"attn": FULL, "swa": SLIDING, "jet": LINEAR}


def jet(fields: Fields) -> tuple[Layer, ...]:
    """Jet-Nemotron: full and sliding attention among jet blocks, whose sizes stand in ``efficient_attention_config``."""
    own = fields.mapping("efficient_attention_config")
    window = own.mapping("swa")
    if "window_size" in window:
        fields = fields.with_values({"sliding_window": window["window_size"]})
    kinds = worded_kinds("layer_types", _JET_KINDS, "attn")(fields, depth(fields))
    return build(fields, kinds, {FULL: parts.full, SLIDING: parts.sliding, LINEAR: lambda *_: _jet_block(own.mapping("jet"))})


def _jet_block(own: Fields) -> Layer:
    heads, width = own.int("num_heads"), own.int("head_dim")
    v_width = parts.scaled(own, "expand_v", 1, width)
    conv = Conv(heads * v_width, own.int("conv_size", 4))  # dynamic: over the values alone
    return (Recurrent("gated_delta_net", (conv,), (State((heads, v_width, width)),)),)


def state_spaces(fields: Fields) -> tuple[Layer, ...]:
    """The original Mamba checkpoints: ``ssm_cfg`` says Mamba or Mamba-2, ``attn_layer_idx`` which layers attend instead."""
    attends, own = set(fields.ints("attn_layer_idx") or ()), fields.mapping("ssm_cfg")
    state = _ssd(fields, own) if own.text("layer") == "Mamba2" else _selective(fields, own)
    attention = _convolved_heads(fields, fields.mapping("attn_cfg")) if attends else ()
    return tuple(attention if index in attends else state for index in range(depth(fields)))


def _selective(fields: Fields, own: Fields) -> Layer:
    """Mamba's own class defaults: state 16, convolution 4, expand 2."""
    inner = parts.scaled(own, "expand", 2, fields.int("hidden_size"))
    return (Recurrent("mamba", (Conv(inner, own.int("d_conv", 4)),), (State((inner, own.int("d_state", 16))),)),)


def _ssd(fields: Fields, own: Fields) -> Layer:
    """Mamba-2's own class defaults: state 128, heads of 64, one group, convolution 4, expand 2."""
    inner = own.int("d_ssm", parts.scaled(own, "expand", 2, fields.int("hidden_size")))
    width, groups, state = own.int("headdim", 64), own.int("ngroups", 1), own.int("d_state", 128)
    if inner % width:
        raise ConfigError(f"heads of {width} do not divide the inner width {inner}", own.at("headdim"))
    conv = Conv(inner + 2 * groups * state, own.int("d_conv", 4))
    return (Recurrent("mamba2", (conv,), (State((inner // width, width, state)),), num_groups=groups),)


def _convolved_heads(fields: Fields, own: Fields) -> Layer:
    """Its attention: heads of ``attn_cfg``, and with ``d_conv`` a convolution over queries, keys and values."""
    heads = own.int("num_heads")
    kv_heads, width = own.int("num_heads_kv", heads), own.int("head_dim", max(fields.int("hidden_size") // heads, 1))
    kernel = own.int("d_conv", 0, minimum=0)
    full = FullAttention(kv_heads, width, width, heads)
    return (full, Recurrent("short_conv", (Conv((heads + 2 * kv_heads) * width, kernel),))) if kernel else (full,)


# DeepSeek V4.1 -------------------------------------------------------------------------------------------------------


def shared_compressed(fields: Fields) -> tuple[Layer, ...]:
    """DeepSeek V4.1: every layer keeps a window; the layers of ``kv_source_layer_ids`` keep compressed and index rows for all."""
    count = depth(fields)
    ratios = fields.per_layer("compress_ratios", count, 0)
    sources = set(fields.ints("kv_source_layer_ids") or ())
    return tuple(_shared_layer(fields, ratio if index in sources else 0) for index, ratio in enumerate(ratios))


def _shared_layer(fields: Fields, ratio: int) -> Layer:
    width, heads = fields.int("head_dim", 512), parts.known_heads(fields)
    window = CompressedAttention(width, fields.int("sliding_window", 128), num_heads=heads)
    if not ratio:
        return (window,)
    buffers = 2 * ratio * width if ratio > 1 else 0  # keys and scores of the open group
    return (replace(window, ratio=ratio, index_head_dim=fields.int("index_head_dim", 128), buffer_elements=buffers),)
