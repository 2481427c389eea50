"""From fields to one layer: small builders that the rules are made of."""

from __future__ import annotations

from dataclasses import replace

from kvcalc.core.fields import Field, Fields
from kvcalc.core.layers import (
    ChunkedAttention,
    Conv,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    NoCache,
    Recurrent,
    SlidingAttention,
    State,
)
from kvcalc.errors import ConfigError
from kvcalc.units import ceil_div, round_up

_LIBRARY_NAMES = {"num_kv_heads": "num_key_value_heads"}


def layer_override(fields: Fields, name: str, index: int, minimum: int = 0) -> int | None:
    """What transformers' ``per_layer_config`` says of one layer; its keys are indices, padded with zeros."""
    if not fields.raw("per_layer_config"):
        return None
    layers = fields.mapping("per_layer_config")
    key = next((key for width in range(1, 6) if (key := f"{index:0{width}}") in layers), "")
    return layers.mapping(key).int_or_none(_LIBRARY_NAMES.get(name, name), minimum) if key else None


def item(fields: Fields, name: str, index: int, minimum: int = 0) -> int | None:
    """A field of one layer: what ``per_layer_config`` says of it, entry ``index`` of a list, or the number for all."""
    own = layer_override(fields, name, index, minimum)
    if own is not None:
        return own
    if not isinstance(fields.raw(name), list | tuple):
        return fields.int_or_none(name)
    values = fields.ints(name, minimum) or []
    if index >= len(values):
        raise ConfigError(f"{name} has {len(values)} entries, none for layer {index}", fields.at(name))
    return values[index]


def query_heads(fields: Fields, index: int = 0) -> int:
    """Query heads of a layer. Raises ConfigError when the file names none."""
    found = item(fields, "num_attention_heads", index)
    if found is None:
        raise ConfigError(
            "neither num_kv_heads nor num_attention_heads is named", fields.where, "give the heads with --kv-heads or --heads"
        )
    return found


def kv_heads(fields: Fields, index: int = 0) -> int:
    """Key/value heads of a layer: the file's, else one a query head. Raises ConfigError when they don't divide those."""
    found = item(fields, "num_kv_heads", index)
    if found is None:
        return query_heads(fields, index)
    heads = known_heads(fields, index)
    if found and heads % found:
        raise ConfigError(
            f"num_kv_heads must divide num_attention_heads (got {found}, {heads})",
            fields.at("num_kv_heads"),
            f"set it to a divisor of {heads}",
        )
    return found


def head_width(fields: Fields, index: int = 0) -> int:
    """Features of a head: the file's, else hidden_size // heads. Raises ConfigError when that leaves a rest."""
    named = item(fields, "head_dim", index, minimum=1)
    if named is not None:
        return named
    if fields.raw("hidden_size") is None:
        raise ConfigError("neither head_dim nor hidden_size is named", fields.where, "give the head's width with --head-dim")
    hidden, heads = fields.int("hidden_size"), query_heads(fields, index)
    if fields.flag("head_dim_floors") and 0 < heads <= hidden:
        return hidden // heads
    if heads == 0 or hidden % heads:
        raise ConfigError(
            f"hidden_size {hidden} is not divisible by num_attention_heads {heads}",
            fields.at("num_attention_heads"),
            "give the head's width with --head-dim",
        )
    return hidden // heads


def full(fields: Fields, index: int = 0) -> Layer:
    """Full attention of the model's own heads."""
    width = head_width(fields, index)
    return (FullAttention(kv_heads(fields, index), width, width, known_heads(fields, index)),)


def known_heads(fields: Fields, index: int = 0) -> int:
    """Query heads where they are known, else 0: the count doesn't need them, the equation's flags don't give them."""
    return item(fields, "num_attention_heads", index) or 0


def sliding(fields: Fields, index: int = 0) -> Layer:
    """Attention over the last ``sliding_window`` positions."""
    window = item(fields, "sliding_window", index, minimum=1)
    if window is None:
        raise ConfigError("layers slide, but no sliding_window is named", fields.where, "give it with --sliding-window")
    width = head_width(fields, index)
    return (SlidingAttention(kv_heads(fields, index), width, width, window, known_heads(fields, index)),)


def stated(fields: Fields, index: int = 0) -> Layer:
    """What the equation's own flags say: heads, widths, and a window where one is named."""
    width = head_width(fields, index)
    heads, v_width = kv_heads(fields, index), fields.int("v_head_dim", width)
    window = fields.int_or_none("sliding_window")
    if window is None:
        return (FullAttention(heads, width, v_width, known_heads(fields, index)),)
    return (SlidingAttention(heads, width, v_width, window, known_heads(fields, index)),)


def halved_sliding(fields: Fields, index: int = 0) -> Layer:
    """Gemma 3 and 4: where attention looks both ways, half the window to each side and the token itself."""
    (part,) = sliding(fields, index)
    both_ways = fields.raw("use_bidirectional_attention") in (True, "all")
    return (replace(part, window=part.window // 2 + 1) if both_ways and isinstance(part, SlidingAttention) else part,)


def half_local_sliding(fields: Fields, index: int = 0) -> Layer:
    """ModernBERT's decoder: half of ``local_attention``."""
    width = head_width(fields, index)
    return (
        SlidingAttention(kv_heads(fields, index), width, width, fields.int("local_attention", 128) // 2, query_heads(fields)),
    )


def chunked(fields: Fields, index: int = 0) -> Layer:
    """Attention within chunks of ``attention_chunk_size``."""
    width = head_width(fields, index)
    chunk = fields.int("attention_chunk_size")
    return (ChunkedAttention(kv_heads(fields, index), width, width, chunk, known_heads(fields, index)),)


def cross(fields: Fields, index: int = 0) -> Layer:
    """Attention over the encoder's positions alone."""
    width = head_width(fields, index)
    return (CrossAttention(kv_heads(fields, index), width, width, known_heads(fields, index)),)


def with_cross(fields: Fields, index: int = 0) -> Layer:
    """An encoder-decoder's layer: its own keys, and the encoder's."""
    return full(fields, index) + cross(fields, index)


def nothing(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """A block without attention."""
    return (NoCache(),)


def latent(fields: Fields, index: int = 0) -> Layer:
    """MLA: kv_lora_rank + qk_rope_head_dim a position. ``num_key_value_heads`` and ``head_dim`` play no part.

    A file that says ``use_mla`` false, or null for its rank (DeepSeek-VL2-Tiny), has plain heads of hidden_size // heads.
    """
    if fields.raw("use_mla") is False or ("kv_lora_rank" in fields and fields.raw("kv_lora_rank") is None):
        return full(fields.with_values({"head_dim": Field(None, fields.at("head_dim"))}), index)
    return (latent_part(fields),)


def latent_part(fields: Fields) -> LatentAttention:
    """The same as a part."""
    return LatentAttention(
        fields.int("kv_lora_rank"),
        fields.int("qk_rope_head_dim", minimum=0),
        known_heads(fields),
        fields.int("qk_nope_head_dim", 0, minimum=0),
        fields.int("v_head_dim", 0, minimum=0),
    )


def indexed_latent(fields: Fields, index: int = 0) -> Layer:
    """MLA with an indexer's keys (DeepSeek V3.2, GLM-5)."""
    return (*latent(fields, index), Indexer(fields.int("index_head_dim")))


def state_dtype(fields: Fields) -> str:
    """A recurrent state's type: the file's own word, else float32."""
    return fields.text("mamba_ssm_dtype") or fields.text("mamba_ssm_cache_dtype") or "float32"


def scaled(fields: Fields, name: str, default: float, width: int) -> int:
    """``width`` times the factor ``name``, in whole features. Raises ConfigError when nothing is left."""
    found = int(fields.number(name, default) * width)
    if not found:
        raise ConfigError(f"{name} leaves nothing of {width}", fields.at(name))
    return found


def mamba(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """Mamba-1: a convolution over the inner width and inner × state numbers."""
    inner = fields.int_or_none("mamba_inner_size")
    if inner is None:
        inner = scaled(fields, "mamba_expand", 2, fields.int("hidden_size"))
    kernel, state = fields.int("mamba_d_conv", 4), fields.int("mamba_d_state", 16)
    return (Recurrent("mamba", (Conv(inner, kernel),), (State((inner, state), state_dtype(fields)),)),)


def mamba_head_width(fields: Fields, heads: int) -> int:
    """``mamba_d_head``, else (``auto``) the inner width, ``mamba_d_ssm`` or expand · hidden_size, over the heads."""
    if fields.raw("mamba_d_head") not in (None, "auto"):
        return fields.int("mamba_d_head")
    inner = fields.int_or_none("mamba_d_ssm") or scaled(fields, "mamba_expand", 2, fields.int("hidden_size"))
    if inner < heads:
        raise ConfigError(f"{heads} Mamba heads leave no width of {inner}", fields.at("mamba_n_heads"))
    return inner // heads


def mamba2(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """Mamba-2: a convolution over inner + 2·groups·state channels, heads × head_dim × state numbers."""
    heads = fields.int("mamba_n_heads")
    width = mamba_head_width(fields, heads)
    groups, state = fields.int("mamba_n_groups", 1), fields.int("mamba_d_state")
    channels = heads * width + 2 * groups * state
    return (
        Recurrent(
            "mamba2",
            (Conv(channels, fields.int("mamba_d_conv", 4)),),
            (State((heads, width, state), state_dtype(fields)),),
            num_groups=groups,
        ),
    )


def gated_delta_net(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """Gated delta net: a convolution over queries, keys and values, and a key × value matrix a value head.

    What the file leaves out (OLMo Hybrid) follows the attention: as many heads, 3/4 of its width for keys, twice that for
    values.
    """
    k_heads = fields.int_of(("linear_num_key_heads", "num_attention_heads"))
    v_heads = fields.int_of(("linear_num_value_heads", "num_attention_heads"))
    k_width = fields.int_or_none("linear_key_head_dim") or 3 * fields.int("hidden_size") // (4 * k_heads)
    v_width = fields.int("linear_value_head_dim", 2 * k_width)
    if not k_width:
        raise ConfigError(f"{k_heads} heads leave no width of hidden_size", fields.at("hidden_size"))
    conv = Conv(2 * k_heads * k_width + v_heads * v_width, fields.int("linear_conv_kernel_dim", 4))
    return (Recurrent("gated_delta_net", (conv,), (State((v_heads, v_width, k_width), state_dtype(fields)),)),)


def kda(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """Kimi delta attention: a convolution each for queries, keys and values, and a square matrix a head."""
    own = fields.mapping("linear_attn_config")
    heads = own.int_or_none("num_heads") or fields.int_of(("linear_num_heads", "num_attention_heads"))
    width = own.int_or_none("head_dim") or fields.int_of(("linear_head_dim", "head_dim"))
    kernel = own.int_or_none("short_conv_kernel_size")
    conv = Conv(heads * width, kernel or fields.int_of(("linear_conv_kernel_dim", "short_conv_kernel_size"), 4))
    return (Recurrent("kda", (conv,) * 3, (State((heads, width, width)),)),)


def short_conv(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """LFM2's gated short convolution: no state besides its window."""
    return (Recurrent("short_conv", (Conv(fields.int("hidden_size"), fields.int("conv_L_cache", 3)),)),)


def lightning(fields: Fields, index: int = 0) -> Layer:
    """Lightning attention: one head_dim × head_dim matrix a query head, in the model's type."""
    heads, width = query_heads(fields, index), head_width(fields, index)
    return (Recurrent("lightning", (), (State((heads, width, width)),)),)


def rg_lru(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """RecurrentGemma's gated linear recurrence: one number a channel, and a convolution's window."""
    width = fields.int_of(("lru_width", "hidden_size"))
    return (Recurrent("rg_lru", (Conv(width, fields.int("conv1d_width", 4)),), (State((width,)),)),)


def rwkv_matrix(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """RWKV-5 and later: two token-shift rows at the model's type, and a head_size × head_size matrix a head."""
    hidden, size = fields.int("hidden_size"), fields.int("head_size", 64)
    heads = ceil_div(fields.int_of(("attention_hidden_size", "hidden_size")), size)
    return (Recurrent("rwkv", (), (State((2, hidden), None), State((heads, size, size)))),)


def rwkv4(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """RWKV-4: two token-shift rows at the model's type, and three float32 rows of the attention's width."""
    hidden = fields.int("hidden_size")
    inner = fields.int_of(("attention_hidden_size", "hidden_size"))
    return (Recurrent("rwkv", (), (State((2, hidden), None), State((3, inner)))),)


def mlstm(fields: Fields, index: int = 0) -> Layer:  # noqa: ARG001 - a builder like the others
    """The matrix memory of xLSTM: a key × value matrix, a key row and one number a head."""
    hidden, heads = fields.int("hidden_size"), fields.int_of(("num_heads", "num_attention_heads"))
    k_width = round_up(scaled(fields, "qk_dim_factor", 0.5, hidden), 64) // heads
    v_width = round_up(scaled(fields, "v_dim_factor", 1.0, hidden), 64) // heads
    if not (k_width and v_width):
        raise ConfigError(f"{heads} heads leave no width of hidden_size {hidden}", fields.at("hidden_size"))
    shapes = ((heads, k_width, v_width), (heads, k_width), (heads,))
    return (Recurrent("mlstm", (), tuple(State(shape) for shape in shapes)),)
