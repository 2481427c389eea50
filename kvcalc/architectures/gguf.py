"""GGUF files: what their keys mean in neutral names, and which rule each architecture name goes through.

The rules and builders are those of config.json (``rules``, ``parts``), so that one model counts the same in either form.
A GGUF leaves out what its engine knows by the architecture's name (which layers slide, mostly); a row here says it.
Keys: gguf-py's constants and the converters of llama.cpp, 0.5.0-dev.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kvcalc.architectures import hybrids, parts, patterns, rules
from kvcalc.architectures.base import Rule
from kvcalc.architectures.patterns import FULL, LINEAR, SLIDING
from kvcalc.core.fields import MAX_LAYERS, Field, Fields
from kvcalc.core.layers import FullAttention, Indexer, LatentAttention, Layer, NoCache, Shared, SlidingAttention
from kvcalc.errors import ArchitectureError, ConfigError

# neutral name → the key after the architecture's name
ALIASES: Mapping[str, str] = {
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "v_head_dim": "attention.value_length",
    "swa_head_dim": "attention.key_length_swa",
    "swa_v_head_dim": "attention.value_length_swa",
    "sliding_window": "attention.sliding_window",
    "max_tokens": "context_length",
    "kv_lora_rank": "attention.kv_lora_rank",
    "swa_kv_lora_rank": "attention.kv_lora_rank_swa",
    "qk_rope_head_dim": "rope.dimension_count",
    "index_head_dim": "attention.indexer.key_length",
    "num_kv_shared_layers": "attention.shared_kv_layers",
    "num_nextn_predict_layers": "nextn_predict_layers",
    "compress_ratios": "attention.compress_ratios",
    "mamba_d_conv": "ssm.conv_kernel",
    "mamba_d_state": "ssm.state_size",
    "mamba_inner_size": "ssm.inner_size",
    "mamba_n_groups": "ssm.group_count",
    "mamba_n_heads": "ssm.time_step_rank",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_num_key_heads": "ssm.group_count",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_value_heads": "ssm.time_step_rank",
    "conv_L_cache": "shortconv.l_cache",
    "head_size": "wkv.head_size",
    "token_shift_count": "token_shift_count",
    "num_loops": "num_loops",
}
# flags of the command line and the keys that they stand for
OVERRIDES: Mapping[str, str] = {**{name: ALIASES[name] for name in ALIASES}, "num_layers": "block_count"}

_NOTHING_KEPT = "mlp"  # the word of files for a block without attention
_PATTERN = "attention.sliding_window_pattern"


@dataclass(frozen=True, slots=True)
class Row:
    """One architecture name: its rule, and how layers are told apart where the file doesn't list them.

    ``period``: every n-th layer is full, first or last of its group, and the others slide; 0: nothing slides; -1: the
    file must list them. ``window`` stands where the file has none. ``linear``: how recurrent layers are marked:
    headless (no KV heads), interval, blocks (no KV heads and no feed-forward; a layer with one is neither).
    """

    rule: Rule
    period: int = 0
    dense_first: bool = False
    window: int | None = None
    kinds: str = SLIDING
    linear: str = ""
    interval: int = 0
    encoder: bool = False


def _headed(builder: rules.Builder, attention: rules.Builder = parts.full) -> Rule:
    return rules.hybrid(patterns.all_full, builder, {FULL: attention})


def _gated_attention(fields: Fields, index: int) -> Layer:
    return (*parts.full(fields, index), Indexer(fields.int("index_head_dim")))


def _sees_everything(fields: Fields) -> tuple[Layer, ...]:
    """Encoders and diffusion models see the whole text at each step, and keep nothing of it."""
    return ((NoCache("sees the whole text at each step"),),) * rules.depth(fields)


def _shares_everything(fields: Fields) -> tuple[Layer, ...]:
    return ((Shared(),),) * rules.depth(fields)


def _maybe_latent(fields: Fields, index: int) -> Layer:
    """deepseek2's name is used for models without latents too."""
    return parts.latent(fields, index) if fields.int_or_none("kv_lora_rank") else parts.full(fields, index)


def _indexed_latent(fields: Fields) -> tuple[Layer, ...]:
    """MLA, and an indexer on the layers that own one; none where the file has no indexer."""
    if not fields.int("index_head_dim", 0, minimum=0):
        return rules.uniform(parts.latent)(fields)
    return rules.indexed_latent(fields)


def _windowed_latent(fields: Fields) -> tuple[Layer, ...]:
    """dots3note: latents of two ranks, the sliding ones within a window; indexers on some of the others."""
    kinds = fields.texts("layer_types") or []
    owned = rules.indexer_owners(fields, len(kinds))
    rope, window = fields.int("qk_rope_head_dim", 0, minimum=0), fields.int_or_none("sliding_window")
    wide = (LatentAttention(fields.int("kv_lora_rank"), rope, parts.known_heads(fields)),)
    narrow = (LatentAttention(fields.int("swa_kv_lora_rank"), rope, parts.known_heads(fields), window=window),)
    index = (Indexer(fields.int("index_head_dim")),)
    return tuple(narrow if kind == SLIDING else wide + index * own for kind, own in zip(kinds, owned, strict=True))


def _pooled_latent(fields: Fields) -> tuple[Layer, ...]:
    """glm5-next: delta attention and MLA; the indexer keeps a key, a gate and a pooled key a position."""
    index = (Indexer(3 * fields.int("index_head_dim")),)
    return tuple(layer + index if isinstance(layer[0], LatentAttention) else layer for layer in hybrids.kimi_linear(fields))


def _mamba2(fields: Fields, index: int) -> Layer:
    """Mamba-2; files with 0 groups (plamo2) convolve the inner width alone, as Mamba does."""
    return parts.mamba2(fields, index) if fields.int("mamba_n_groups", 1, minimum=0) else parts.mamba(fields, index)


def _names(text: str) -> list[str]:
    return text.split()


PLAIN = Row(rules.decoder())
_NOTHING = Row(_sees_everything)
_BY_LIST = Row(rules.decoder(), period=-1)
_DELTA = Row(_headed(parts.gated_delta_net), linear="interval", interval=4)
_MAMBA2 = Row(_headed(_mamba2), linear="headless")
_KIMI = Row(hybrids.kimi_linear, linear="headless")
_RWKV = Row(rules.uniform(parts.rwkv_matrix))
_CONV = Row(_headed(parts.short_conv, parts.full), linear="headless")

PLAIN_NAMES = _names(
    "llama falcon grok gpt2 gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe "
    "qwen3vl qwen3vlmoe phi2 phi3 phimoe plamo codeshell orion internlm2 minicpm gemma starcoder2 xverse command-r dbrx olmo "
    "olmoe openelm arctic deepseek deepseek2-ocr chatglm glm4 glm4moe bitnet jais jais2 nemotron exaone granite granitemoe "
    "graniteswitch chameleon bailingmoe bailingmoe2 dots1 arcee ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl "
    "hy_v3 smollm3 seed_oss grovemoe apertus hrm_text minimax-m2 cogvlm pangu-embedded mistral3 paddleocr llama-embed "
    "maincoder talkie qwen3tts pockettts eagle3"
)
ENCODER_NAMES = _names(
    "bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert wavtokenizer-dec gemma-embedding "
    "dream llada llada-moe rnd1 t5encoder"
)

GGUF_ROWS: dict[str, Row] = {
    **dict.fromkeys(PLAIN_NAMES, PLAIN),
    **dict.fromkeys(ENCODER_NAMES, _NOTHING),
    # windows in every layer, where the file names one
    **dict.fromkeys(("llama", "phi3", "phimoe", "starcoder2", "mistral3"), Row(rules.decoder(patterns.full_unless_window))),
    "deci": Row(rules.decoder(), linear="empty"),
    "nanbeige": Row(rules.repeated(rules.decoder(), "num_loops")),
    "gemma2": Row(rules.decoder(), period=2, window=4096),
    "gemma3": Row(rules.decoder(), period=6),
    "gemma3n": Row(rules.sharing_last(rules.decoder()), period=5),
    "gemma4": Row(rules.sharing_last(rules.decoder()), period=-1),
    "gpt-oss": Row(rules.decoder(), period=2),
    **dict.fromkeys(
        ("cohere2", "exaone4", "exaone-moe", "olmo2", "afmoe", "mellum", "muse-glimmer"), Row(rules.decoder(), period=4)
    ),
    **dict.fromkeys(("cohere2moe", "laguna", "smallthinker"), Row(rules.decoder(), period=4, dense_first=True)),
    "plamo3": Row(rules.decoder(), period=8),
    "llama4": Row(rules.decoder(), period=4, window=8192, kinds=patterns.CHUNKED),
    **dict.fromkeys(("mimo2", "step35", "granite_swa", "spark2_5", "maple", "dflash"), _BY_LIST),
    # latent attention, indexers
    **dict.fromkeys(("deepseek2", "mistral4", "minicpm3", "plm"), Row(rules.uniform(_maybe_latent))),
    **dict.fromkeys(("deepseek32", "glm-dsa", "hy_v4"), Row(_indexed_latent)),
    "dots3note": Row(_windowed_latent, period=-1),
    "minimax-m3": Row(rules.sparse_indexed),
    "deepseek4": Row(rules.compressed),
    # recurrent
    "mamba": Row(rules.uniform(parts.mamba)),
    "mamba2": Row(rules.uniform(_mamba2)),
    **dict.fromkeys(("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), _RWKV),
    "jamba": Row(_headed(parts.mamba), linear="headless"),
    **dict.fromkeys(("granitehybrid", "plamo2"), _MAMBA2),
    **dict.fromkeys(("nemotron_h", "nemotron_h_moe"), replace(_MAMBA2, linear="blocks")),
    "falcon-h1": Row(rules.every_layer_both(parts.mamba2)),
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), _DELTA),
    "qwen4exp": replace(_DELTA, rule=_headed(parts.gated_delta_net, _gated_attention)),
    "minimax-01": Row(_headed(parts.lightning), linear="interval", interval=8),
    "lfm2": replace(_CONV, period=1),
    "lfm2moe": _CONV,
    **dict.fromkeys(("kimi-linear", "kimi-k3", "bailingmoe3"), _KIMI),
    "glm5-next": replace(_KIMI, rule=_pooled_latent),
    # it reads the cache of the model that it drafts for
    "gemma4-assistant": Row(_shares_everything),
    # an encoder's keys beside the decoder's own
    "t5": Row(rules.encoder_decoder),
}


def find_row(arch: str, where: str = "") -> Row:
    """The row of an architecture name. Raises ArchitectureError."""
    if arch in GGUF_ROWS:
        return GGUF_ROWS[arch]
    reasons = {"clip": "it is a vision projector, without a language model"}
    raise ArchitectureError(
        f"the GGUF architecture {arch[:60]!r} is not known{': ' + reasons[arch] if arch in reasons else ''}",
        where,
        "--assume TYPE counts it like a model type that is, marked as assumed",
    )


class GgufFields:
    """The keys of one architecture, and the fields that they come to."""

    def __init__(self, metadata: Mapping[str, object], arch: str, origin: Callable[[str], str], where: str) -> None:
        self.arch = arch
        self._metadata = metadata
        self._origin = origin
        self.where = where

    def raw(self, key: str) -> object:
        """The value of ``<arch>.key``."""
        return self._metadata.get(f"{self.arch}.{key}")

    def origin(self, key: str) -> str:
        """The file and key, for people."""
        return self._origin(f"{self.arch}.{key}")

    def number(self, key: str, default: int = 0) -> int:
        """A count. Raises ConfigError."""
        value = self.raw(key)
        if value is None:
            return default
        return Fields({key: Field(value, self.origin(key))}, self.where).int(key, minimum=0)

    def listed(self, key: str) -> list[int] | None:
        """A list of counts or marks, or None where the key is missing or no list. Raises ConfigError."""
        value = self.raw(key)
        if not isinstance(value, list | tuple):
            return None
        return Fields({key: Field([int(x) if isinstance(x, bool) else x for x in value], self.origin(key))}).ints(key)

    def base(self) -> dict[str, Field]:
        """Every aliased key that the file has, under its neutral name."""
        found = {name: Field(self.raw(key), self.origin(key)) for name, key in ALIASES.items() if self.raw(key) is not None}
        if found.get("sliding_window") and found["sliding_window"].value == 0:
            del found["sliding_window"]
        return found


def fields_of(keys: GgufFields, row: Row) -> Fields:
    """Neutral fields with the keys behind them. Raises ConfigError."""
    total, nextn = keys.number("block_count"), keys.number("nextn_predict_layers")
    if not 0 < total <= MAX_LAYERS or nextn > total:
        raise ConfigError(
            f"block_count is {total}, and nextn_predict_layers {nextn}", keys.origin("block_count"), "take the published file"
        )
    layers = total - nextn
    less = f" less {keys.arch}.nextn_predict_layers" if nextn else ""
    values = {**keys.base(), "num_layers": Field(layers, keys.origin("block_count") + less)}
    for derive in (_head_widths, _windows, _kinds, _delta, _indexers, _decoder_depth):
        values.update(derive(keys, row, values, layers))
    return Fields(values, keys.where)


_Values = Mapping[str, Field]


def _head_widths(keys: GgufFields, row: Row, values: _Values, layers: int) -> dict[str, Field]:  # noqa: ARG001
    """Head sizes that the file leaves to embedding_length / head_count, rounded down."""
    heads = (
        (keys.listed("attention.head_count") or [0])[0]
        if keys.listed("attention.head_count")
        else keys.number("attention.head_count")
    )
    found: dict[str, Field] = {}
    if heads:
        origin = f"{keys.origin('embedding_length')} / {keys.arch}.attention.head_count"
        width = Field(keys.number("embedding_length") // heads, origin)
        found = {name: width for name in ("head_dim", "v_head_dim") if name not in values}
    inner, rank = keys.number("ssm.inner_size"), keys.number("ssm.time_step_rank")
    if rank and inner % rank == 0:
        width = Field(inner // rank, f"{keys.origin('ssm.inner_size')} / {keys.arch}.ssm.time_step_rank")
        found |= {"mamba_d_head": width, "linear_value_head_dim": width}
    return found


def _windows(keys: GgufFields, row: Row, values: _Values, layers: int) -> dict[str, Field]:
    """Which layers slide: the file's list or period, else the architecture's own."""
    if not row.period:
        return {}
    named = "sliding_window" in values
    window = values["sliding_window"] if named else Field(row.window, f"the architecture's own, {keys.arch}")
    if window.value is None or keys.raw("attention.sliding_window") == 0:
        return {}
    marks = keys.listed(_PATTERN)
    if marks is not None:
        kinds = [row.kinds if mark else FULL for mark in (marks + [0] * layers)[:layers]]
        return _window_fields(kinds, keys.origin(_PATTERN), window)
    if row.period < 0:
        return {}
    every = keys.number(_PATTERN, row.period)
    origin = keys.origin(_PATTERN) if keys.raw(_PATTERN) is not None else f"the architecture's own, {keys.arch}"
    return _window_fields([row.kinds if _slides(i, every, row.dense_first) else FULL for i in range(layers)], origin, window)


def _window_fields(kinds: list[str], origin: str, window: Field) -> dict[str, Field]:
    return {"layer_types": Field(kinds, origin), "sliding_window": window, "attention_chunk_size": window}


def _slides(index: int, every: int, dense_first: bool) -> bool:
    if every in (0, 1):
        return every == 0
    return index % every != (0 if dense_first else every - 1)


def _kinds(keys: GgufFields, row: Row, values: _Values, layers: int) -> dict[str, Field]:
    """Which layers are recurrent, or keep nothing."""
    if not row.linear:
        return {}
    if row.linear == "interval":
        return {"layer_types": _by_interval(keys, row, layers)}
    key = "attention.head_count_kv"
    heads = keys.listed(key) or [keys.number(key, 1)] * layers
    if len(heads) < layers:
        raise ConfigError(f"{key} has {len(heads)} entries for {layers} layers", keys.origin(key))
    ffn = keys.listed("feed_forward_length") or [0] * layers
    attends = SLIDING if row.period and "sliding_window" in values else FULL
    kinds = [_kind(row, heads[i], ffn[i] if i < len(ffn) else 0, attends) for i in range(layers)]
    full = [index + 1 for index, kind in enumerate(kinds) if kind == attends]  # counted from 1, as its config.json does
    own = {
        "num_heads": (keys.listed("attention.head_count") or [keys.number("attention.head_count")])[0],
        "head_dim": keys.number("kda.head_dim"),
        "short_conv_kernel_size": keys.number("ssm.conv_kernel", 4),
        "full_attn_layers": full,
    }
    return {"layer_types": Field(kinds, keys.origin(key)), "linear_attn_config": Field(own, keys.origin("kda.head_dim"))}


def _kind(row: Row, heads: int, feed_forward: int, attends: str) -> str:
    if row.linear == "blocks" and feed_forward:
        return _NOTHING_KEPT
    if heads:
        return attends
    return _NOTHING_KEPT if row.linear == "empty" else LINEAR


def _by_interval(keys: GgufFields, row: Row, layers: int) -> Field:
    marks = keys.listed("attention.recurrent_layers")
    if marks is not None:
        if len(marks) < layers:
            raise ConfigError("attention.recurrent_layers is too short", keys.origin("attention.recurrent_layers"))
        return Field([LINEAR if mark else FULL for mark in marks[:layers]], keys.origin("attention.recurrent_layers"))
    every = keys.number("full_attention_interval", row.interval) or row.interval
    return Field(
        [FULL if (index + 1) % every == 0 else LINEAR for index in range(layers)], keys.origin("full_attention_interval")
    )


def _delta(keys: GgufFields, row: Row, values: _Values, layers: int) -> dict[str, Field]:  # noqa: ARG001
    """MLA's widths before compression, where the file keeps them."""
    found: dict[str, Field] = {}
    rope = keys.number("rope.dimension_count")
    if "kv_lora_rank" in values and keys.number("attention.key_length_mla"):
        width = keys.number("attention.key_length_mla") - rope
        found["qk_nope_head_dim"] = Field(max(width, 0), f"{keys.origin('attention.key_length_mla')} less rope.dimension_count")
        found["v_head_dim"] = Field(keys.number("attention.value_length_mla"), keys.origin("attention.value_length_mla"))
    return found


def _indexers(keys: GgufFields, row: Row, values: _Values, layers: int) -> dict[str, Field]:  # noqa: ARG001
    """Which layers own an indexer, as words; minimax-m3's from its first sparse layer on."""
    key = "attention.indexer.types"
    found: dict[str, Field] = {}
    marks = keys.listed(key)
    if marks is not None:
        words = ["full" if mark else "shared" for mark in (marks + [0] * layers)[:layers]]
        found["indexer_types"] = Field(words, keys.origin(key))
    if keys.number("attention.indexer.key_length") and keys.arch == "minimax-m3":
        lead = keys.number("leading_dense_block_count")
        own = {"sparse_attention_freq": [int(i >= lead) for i in range(layers)], "use_sparse_attention": True}
        own["sparse_index_dim"] = keys.number("attention.indexer.key_length")
        found["sparse_attention_config"] = Field(own, keys.origin("attention.indexer.key_length"))
    if keys.arch == "hy_v4" and not keys.number("attention.indexer.top_k"):
        found["index_head_dim"] = Field(0, keys.origin("attention.indexer.top_k"))
    return found


def _decoder_depth(keys: GgufFields, row: Row, values: _Values, layers: int) -> dict[str, Field]:  # noqa: ARG001
    """An encoder-decoder may have another number of decoder layers."""
    if keys.arch == "t5" and keys.number("decoder_block_count"):
        return {"num_layers": Field(keys.number("decoder_block_count"), keys.origin("decoder_block_count"))}
    return {}


def with_own_widths(layers: tuple[Layer, ...], fields: Fields) -> tuple[Layer, ...]:
    """Keys and values of the widths that the file names, and those of sliding layers where they differ."""
    k, v = fields.int_or_none("head_dim", 0), fields.int_or_none("v_head_dim", 0)
    if k is None or v is None:
        return layers
    swa_k, swa_v = fields.int("swa_head_dim", k, 0), fields.int("swa_v_head_dim", v, 0)

    def widened(layer: Layer) -> Layer:
        return tuple(
            replace(part, head_dim=swa_k, v_head_dim=swa_v)
            if isinstance(part, SlidingAttention)
            else replace(part, head_dim=k, v_head_dim=v)
            if isinstance(part, FullAttention)
            else part
            for part in layer
        )

    return tuple(widened(layer) for layer in layers)
