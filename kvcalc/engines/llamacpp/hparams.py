"""The numbers that decide llama.cpp's caches, worked out from a file's keys as the engine does.

Source: llama.cpp 0.5.0-dev, ``src/llama-model.cpp: load_hparams``, ``src/llama-hparams.cpp``, ``src/models/*.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvcalc.engines.llamacpp.arches import GLM_5_2_CONTEXT, MAX_LAYERS, WHOLE_ROTATION, Arch, Window
from kvcalc.engines.llamacpp.keys import Keys


@dataclass(frozen=True, slots=True)
class Hparams:
    """Layer counts and widths in elements. ``layers`` counts all blocks; the last ``nextn`` predict further tokens."""

    name: str
    arch: Arch
    layers: int
    nextn: int
    context: int  # the length that the model was made for
    causal: bool
    heads: int  # of the first layer
    kv_heads: tuple[int, ...]
    feed_forward: tuple[int, ...]
    k_width: int
    v_width: int
    k_width_swa: int
    v_width_swa: int
    mla: bool
    window: int | None = None  # None: nothing slides
    slides: tuple[bool, ...] = ()
    recurrent: tuple[bool, ...] = ()
    kv_layers: int | None = None  # only the first so many have a cache
    conv_state: int = 0  # R: elements a recurrent layer
    state: int = 0  # S
    ple_layer: int | None = None
    ple_state: int = 0
    index_width: int = 0
    indexed: tuple[bool, ...] = ()  # layers with an indexer of their own
    pooled: bool = False
    dense_lead: int = 0
    compress: tuple[int, ...] = ()
    hyper_connections: int = 0
    alone: bool = True  # a draft without embeddings of its own makes no context but beside its target's

    @property
    def trunk(self) -> int:
        """The blocks before those that predict further tokens."""
        return self.layers - self.nextn

    def head_k(self, layer: int) -> int:
        """Elements of one key head."""
        return self.k_width_swa if self.slides[layer] else self.k_width

    def head_v(self, layer: int) -> int:
        """Elements of one value head."""
        return self.v_width_swa if self.slides[layer] else self.v_width

    def row_k(self, layer: int) -> int:
        """Elements of one position's keys."""
        return self.head_k(layer) * self.kv_heads[layer]

    def row_v(self, layer: int) -> int:
        """Elements of one position's values."""
        return self.head_v(layer) * self.kv_heads[layer]


def read_hparams(metadata: Mapping[str, object], name: str, arch: Arch, where: str = "") -> Hparams:
    """The engine's view of a file. Raises EngineError where the engine refuses it."""
    keys = Keys(metadata, name, where)
    for key in arch.needs:
        keys.number(key)
    base = _base(keys, arch)
    base = _windowed(keys, base)
    base = _recurrent(keys, base)
    base = _indexed(keys, base)
    if arch.shares_kv:
        base = replace(base, kv_layers=base.layers - keys.number("attention.shared_kv_layers", 0))
    if arch.loops:
        base = _looped(keys, base)
    return _routed(base) if arch.router else base


def _base(keys: Keys, arch: Arch) -> Hparams:
    context = keys.number("context_length")
    embedding = keys.number("embedding_length")
    layers = keys.number("block_count")
    nextn = keys.number("nextn_predict_layers", 0)
    if not 0 < layers <= MAX_LAYERS or nextn > layers:
        raise keys.refuse("block_count", f"{layers} layers, {nextn} of them to predict further tokens; {MAX_LAYERS} is the most")
    heads = keys.per_layer("attention.head_count", layers) or [0] * layers
    kv_heads = keys.per_layer("attention.head_count_kv", layers) or heads
    k_width, v_width = _head_widths(keys, heads[0], embedding)
    _check_rotation(keys, heads[0], k_width)
    mla = _latent(keys, arch)
    if arch.latent_values:
        v_width = keys.number("attention.kv_lora_rank")
    return Hparams(
        name=keys.arch,
        arch=arch,
        layers=layers,
        nextn=_nextn(keys, layers, nextn),
        context=context,
        causal=not arch.noncausal and keys.flag("attention.causal", True),
        heads=heads[0],
        kv_heads=tuple(kv_heads),
        feed_forward=tuple(keys.per_layer("feed_forward_length", layers) or [0] * layers),
        k_width=k_width,
        v_width=v_width,
        k_width_swa=keys.number("attention.key_length_swa", k_width),
        v_width_swa=keys.number("attention.value_length_swa", v_width),
        mla=mla,
        slides=(False,) * layers,
        recurrent=(arch.recurrent == "all",) * layers,
        kv_layers=arch.kv_layers or None,
        dense_lead=keys.number("leading_dense_block_count", 0) if arch.memory == "msa" else 0,
        alone=_alone(keys, arch),
        hyper_connections=keys.number("hyper_connection.count", 0) if arch.memory == "draft_flash" else 0,
    )


def _head_widths(keys: Keys, heads: int, embedding: int) -> tuple[int, int]:
    """Embedding / heads unless the file says otherwise; values do not follow key_length."""
    if heads == 0 and keys.arch != "plamo2":  # plamo2 reads both keys once more
        return 0, 0
    default = embedding // heads if heads else 0
    return keys.number("attention.key_length", default), keys.number("attention.value_length", default)


def _check_rotation(keys: Keys, heads: int, k_width: int) -> None:
    """Some architectures rotate the whole key, and refuse a file that says otherwise."""
    if keys.arch not in WHOLE_ROTATION or not heads:
        return
    rotated = keys.number("rope.dimension_count", k_width)
    if rotated != k_width:
        raise keys.refuse("rope.dimension_count", f"it is {rotated}, and must be the key's width, {k_width}")


def _latent(keys: Keys, arch: Arch) -> bool:
    if not arch.mla:
        return False
    default = 0 if arch.mla == "optional" else None
    widths = keys.number("attention.key_length_mla", default), keys.number("attention.value_length_mla", default)
    return widths[0] != 0 and widths[1] != 0


def _alone(keys: Keys, arch: Arch) -> bool:
    if not arch.beside:
        return True
    lacking = [keys.has_tensor(name) is False for name in ("token_embd.weight", "output.weight")]
    return arch.beside != "always" and not any(lacking)


def _nextn(keys: Keys, layers: int, nextn: int) -> int:
    """deepseek4 files written without the further blocks' tensors still count them."""
    if keys.arch == "deepseek4" and nextn and keys.has_tensor(f"blk.{layers - nextn}.nextn.eh_proj.weight") is False:
        return 0
    return nextn


def _windowed(keys: Keys, base: Hparams) -> Hparams:
    rule = base.arch.window
    if base.arch.memory == "draft_flash":
        return _draft_window(keys, base)
    if rule is None:
        return base
    size = _window_size(keys, rule, base.trunk)
    if size is None:
        return base
    slides = _pattern(keys, rule, base)
    if not any(slides) and base.arch.memory != "hybrid":
        raise keys.refuse("attention.sliding_window_pattern", "it has a window, and no layer slides (the engine aborts)")
    return replace(base, window=size, slides=slides)


def _window_size(keys: Keys, rule: Window, trunk: int) -> int | None:
    """The window, or None where nothing slides."""
    if rule.only_layers and trunk != rule.only_layers:
        return None
    size = keys.number("attention.sliding_window", rule.size)
    if size == 0 and (rule.size == 0 or rule.zero_is_none):
        return None
    return rule.fixed or size


def _pattern(keys: Keys, rule: Window, base: Hparams) -> tuple[bool, ...]:
    if rule.headed_layers:
        return tuple(layer < base.trunk and base.kv_heads[layer] > 0 for layer in range(base.layers))
    fixed = base.arch.memory == "compressed"  # all slide: deepseek4 reads no pattern
    array = None if fixed else keys.array("attention.sliding_window_pattern", base.layers, required=rule.pattern is None)
    if array is not None:
        return tuple(value != 0 for value in array)
    every = 0 if fixed else keys.number("attention.sliding_window_pattern", rule.pattern)
    trunk = [slides(layer, every, rule.dense_first) for layer in range(base.trunk)]
    return (*trunk, *[rule.nextn_slides] * base.nextn)


def slides(layer: int, every: int, dense_first: bool) -> bool:
    """Every ``every``-th layer is dense, the first or the last of its group; 0: all slide; 1: none."""
    if every == 0:
        return True
    return layer % every != 0 if dense_first else layer % every < every - 1


def _draft_window(keys: Keys, base: Hparams) -> Hparams:
    """dflash: over a DeepSeek V4 target all slide; else where the file has a window, by its array."""
    if base.hyper_connections:
        return replace(base, window=keys.number("attention.sliding_window"), slides=(True,) * base.layers)
    size = keys.number("attention.sliding_window", 0)
    if not size:
        return base
    array = keys.array("attention.sliding_window_pattern", base.layers, required=True) or []
    return replace(base, window=size, slides=tuple(value != 0 for value in array))


def _recurrent(keys: Keys, base: Hparams) -> Hparams:
    if not base.arch.state:
        return base
    conv, state = _STATES[base.arch.state](keys, base)
    return replace(base, recurrent=_recurrent_layers(keys, base), conv_state=conv, state=state)


def _recurrent_layers(keys: Keys, base: Hparams) -> tuple[bool, ...]:
    kind, count = base.arch.recurrent, range(base.layers)
    if kind in ("all", "both"):
        return (True,) * base.layers
    if kind == "headless":
        # glm5-next marks its further blocks too, the others only the trunk
        reach = base.layers if base.arch.memory == "hybrid_pooled" else base.trunk
        return tuple(layer < reach and base.kv_heads[layer] == 0 for layer in count)
    if kind == "blocks":
        return tuple(layer < base.trunk and base.kv_heads[layer] == 0 and base.feed_forward[layer] == 0 for layer in count)
    listed = keys.per_layer("attention.recurrent_layers", base.layers)
    if listed is not None:
        return tuple(value != 0 for value in listed)
    interval = keys.number("full_attention_interval", base.arch.interval)
    if interval == 0:
        raise keys.refuse("full_attention_interval", "it is 0")
    return tuple(layer < base.trunk and (layer + 1) % interval != 0 for layer in count)


def _ssm(keys: Keys, base: Hparams) -> tuple[int, int]:
    """(kernel - 1) · (inner + 2 · groups · state) and state · inner."""
    groups = keys.number("ssm.group_count") if base.arch.state == "ssm" else 0
    kernel, inner, state = (keys.number(f"ssm.{name}") for name in ("conv_kernel", "inner_size", "state_size"))
    return max(kernel - 1, 0) * (inner + 2 * groups * state), state * inner


def _rwkv(keys: Keys, _base: Hparams) -> tuple[int, int]:
    """Shifted tokens · embedding, and embedding · head."""
    embedding = keys.number("embedding_length")
    return keys.number("token_shift_count", 2) * embedding, embedding * keys.number("wkv.head_size")


def _shortconv(keys: Keys, _base: Hparams) -> tuple[int, int]:
    """Embedding · (columns - 1)."""
    return keys.number("embedding_length") * (keys.number("shortconv.l_cache") - 1), 0


def _kda(keys: Keys, base: Hparams) -> tuple[int, int]:
    """Three convolutions (q, k, v) of heads · width, and heads · width²."""
    kernel, width = keys.number("ssm.conv_kernel"), keys.number("kda.head_dim")
    return 3 * (kernel - 1 if kernel else 3) * base.heads * width, width * width * base.heads


def _lightning(_keys: Keys, base: Hparams) -> tuple[int, int]:
    """Heads · width²."""
    return 0, base.k_width * base.k_width * base.heads


_STATES = {"ssm": _ssm, "ssm_ungrouped": _ssm, "rwkv": _rwkv, "shortconv": _shortconv, "kda": _kda, "lightning": _lightning}


def _indexed(keys: Keys, base: Hparams) -> Hparams:
    memory = base.arch.memory
    if memory not in ("dsa", "dsa_unfiltered", "dsa_window", "msa", "compressed", "hybrid_indexed", "hybrid_pooled"):
        return base
    width = keys.number("attention.indexer.key_length", None if base.arch.indexer else 0)
    if memory == "dsa_unfiltered" and keys.number("attention.indexer.top_k", 0) == 0:
        width = 0  # a checkpoint of full attention alone
    found = replace(base, index_width=width, indexed=_indexer_layers(keys, base), pooled=memory == "hybrid_pooled")
    if memory == "hybrid_indexed":
        return _per_layer_embedding(keys, found)
    return replace(found, compress=_ratios(keys, base)) if memory == "compressed" else found


def _indexer_layers(keys: Keys, base: Hparams) -> tuple[bool, ...]:
    """indexer.types, or by the architecture's own default."""
    name = "attention.indexer.types"
    if base.arch.memory == "dsa_window":
        listed: list[int] | None = keys.array(name, base.layers, required=True)
    elif base.name in ("deepseek32", "deepseek4", "minimax-m3", "qwen4exp"):
        listed = None
    else:
        listed = keys.per_layer(name, base.trunk)
    if listed is not None:
        return tuple(value != 0 for value in (listed + [0] * base.layers)[: base.layers])
    if base.name == "hy_v4":
        return (False,) * base.layers
    if base.name == "glm-dsa" and base.context >= GLM_5_2_CONTEXT:
        return tuple(layer < 78 and (layer < 2 or layer % 4 == 2) for layer in range(base.layers))
    return (True,) * base.layers


def _per_layer_embedding(keys: Keys, base: Hparams) -> Hparams:
    """qwen4exp: (kernel - 1) · n-gram · hyper connections · embedding, on one recurrent layer."""
    listed = keys.array("ple.layers", 1) if keys.is_array("ple.layers") else None
    if not listed:
        return base
    kernel, ngram = keys.number("ple.conv_kernel"), keys.number("ple.ngram_size")
    streams, embedding = keys.number("hyper_connection.count"), keys.number("embedding_length")
    return replace(base, ple_layer=listed[0], ple_state=(kernel - 1) * ngram * streams * embedding)


def _ratios(keys: Keys, base: Hparams) -> tuple[int, ...]:
    name = "attention.compress_ratios"
    value = keys.array(name, MAX_LAYERS + 1, required=True) or []
    if keys.length(name) < base.layers:
        raise keys.refuse(name, f"the array is shorter than the {base.layers} layers")
    return tuple(value[: base.layers])


def _looped(keys: Keys, base: Hparams) -> Hparams:
    """Nanbeige runs its blocks several times, and caches each pass."""
    loops = keys.number("num_loops", 1)
    layers = base.trunk * loops
    if loops < 1 or layers > MAX_LAYERS:
        raise keys.refuse("num_loops", f"{loops} passes of {base.trunk} layers; {MAX_LAYERS} in all is the most")
    if loops == 1:
        return base
    return replace(
        base,
        layers=layers,
        kv_heads=base.kv_heads[: base.trunk] * loops,
        feed_forward=base.feed_forward[: base.trunk] * loops,
        slides=(False,) * layers,
        recurrent=(False,) * layers,
    )


def _routed(base: Hparams) -> Hparams:
    """graniteswitch: one more layer of one head, which chooses adapters; not counted as a predicting block."""
    trunk = base.trunk
    return replace(
        base,
        layers=trunk + 1,
        nextn=1,
        kv_heads=(*base.kv_heads[:trunk], 1),
        feed_forward=(*base.feed_forward[:trunk], 0),
        slides=(False,) * (trunk + 1),
        recurrent=(False,) * (trunk + 1),
    )
