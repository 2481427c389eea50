"""From a model's layers to the caches that vLLM registers for them, before the block size is known.

Sources: vLLM 0.32.0, the ``get_kv_cache_spec`` methods of ``vllm/model_executor/layers`` and ``vllm/models``,
``vllm/model_executor/layers/mamba/mamba_utils.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    HeadedAttention,
    Indexer,
    LatentAttention,
    Layer,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
)
from kvcalc.core.model import Model
from kvcalc.engines.vllm.backends import (
    CPU,
    FLASH_ATTN,
    FLASH_ATTN_DIFFKV,
    FP8,
    INDEXER,
    PER_TOKEN_HEAD,
    TURBOQUANT,
    Backend,
    Need,
    choose,
)
from kvcalc.engines.vllm.models import Reading, reading_of
from kvcalc.engines.vllm.options import Settings
from kvcalc.engines.vllm.specs import CHUNKED, CROSS, FULL, MLA, SLIDING, SLIDING_MLA, STATE
from kvcalc.errors import ArchitectureError, EngineError

ELEMENT_BYTES = 2  # a model runs in a 16-bit type, float32 checkpoints too
FP8_DS_MLA_ROW, NVFP4_DS_MLA_ROW = 656, 352  # 512 fp8 + 4 float32 scales + 64 bf16; read, not measured
FP8_DS_MLA_ROW_V4 = 448 + 128 + 8  # fp8 without rope, bf16 rope, scales
V4_PAGE_UNIT = 576
V4_BLOCK, V4_WINDOW_BLOCK = 256, 64
V4_COMPRESSOR_BLOCK = {4: 4, 128: 8}
INDEX_SCALE_GROUP = 128  # one float32 scale for as many fp8 values
_BOUNDARY = 2  # attention layers at each end that TurboQuant leaves alone

V4_SPARSE = Backend("FLASHMLA_SPARSE_DSV4", sizes=(V4_BLOCK,), mla=True, sparse=True)
V4_WINDOW = Backend("DEEPSEEK_SPARSE_SWA", multiple=32, mla=True, sparse=True)
M3_INDEXER = Backend("MINIMAX_M3_INDEXER", sizes=(128,))
INKLING_CONV = Backend("INKLING_SCONV_SWA", multiple=1)


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of one layer on one rank: bytes a token, or a state's bytes."""

    layer: int
    kind: str
    label: str
    component: str = "kv"
    token_bytes: int = 0
    state_bytes: int = 0
    window: int = 0
    tokens_per_row: int = 1
    align_page: int = 1
    own_block: int = 0  # a block size of its own, whatever the model's
    checkpoint_blocks: int = 0
    backend: Backend | None = None
    row_bytes: int = 0  # of one stored row, where sparse kernels need whole rows apart
    heads: int = 1
    k_width: int = 0
    v_width: int = 0
    dtype: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What every cache of a model shares."""

    model: Model
    settings: Settings
    reading: Reading
    cache_dtype: str
    hybrid: bool  # states beside attention

    @property
    def tp(self) -> int:
        """Tensor-parallel ranks."""
        return self.settings.tp


def caches_of(context: Context, layers: tuple[Layer, ...]) -> list[Cache]:
    """Every cache in registration order. Raises EngineError."""
    found: list[Cache] = []
    for index, layer in enumerate(layers):
        for part in layer:
            found += _part(context, index, len(layers), layer, part)
    return found


def _part(context: Context, index: int, depth: int, layer: Layer, part: Part) -> list[Cache]:
    match part:
        case FullAttention() | SlidingAttention() | ChunkedAttention() | CrossAttention():
            return [_headed(context, index, depth, part)]
        case LatentAttention():
            return [_latent(context, index, part, sparse=_is_sparse(context, index, layer))]
        case Indexer():
            return [_indexer(index, layer, part)] if _is_sparse(context, index, layer) else []
        case CompressedAttention():
            return _compressed(context, index, part)
        case Recurrent() if context.reading.packed_convs:
            return [_packed_convs(context, index, layer, part)]
        case Recurrent():
            return [_state(context, index, part)]
        case Shared() | NoCache():
            return []


def _is_sparse(context: Context, index: int, layer: Layer) -> bool:
    if context.reading.sparse_kinds:
        kinds = context.model.fields.texts("layer_types") or []
        return index < len(kinds) and kinds[index] in context.reading.sparse_kinds
    return any(isinstance(part, Indexer) for part in layer) or context.model.fields.raw("index_topk") is not None


def _headed(context: Context, index: int, depth: int, part: HeadedAttention) -> Cache:
    heads = heads_on_rank(part.num_kv_heads, context)
    dtype = _layer_dtype(context, index, depth)
    need = Need(
        head_size=part.head_dim,
        cache_dtype=dtype,
        sliding=isinstance(part, SlidingAttention),
        sink=context.reading.sinks,
        alibi=_alibi(context),
        cross=isinstance(part, CrossAttention),
        query_heads=part.num_heads // context.tp,
        kv_heads=heads,
        dcp=context.settings.dcp > 1,
        flashinfer=context.settings.flashinfer,
    )
    kinds = {FullAttention: FULL, SlidingAttention: SLIDING, ChunkedAttention: CHUNKED, CrossAttention: CROSS}
    return Cache(
        layer=index,
        kind=kinds[type(part)],
        label="keys and values of the encoder" if need.cross else "keys and values",
        token_bytes=heads * head_bytes(part.head_dim, part.v_head_dim, dtype),
        window=getattr(part, "window", 0) or getattr(part, "chunk", 0),
        backend=choose(need, context.settings.platform, context.settings.block_size, _forced(context, part)),
        heads=heads,
        k_width=part.head_dim,
        v_width=part.v_head_dim,
        dtype=dtype,
    )


def _forced(context: Context, part: HeadedAttention) -> tuple[Backend, ...]:
    """The backend that the class names itself, whatever the platform's order."""
    if context.settings.platform == CPU:
        return ()
    if part.head_dim != part.v_head_dim:
        return (FLASH_ATTN_DIFFKV,)
    return (FLASH_ATTN,) if context.reading.flash_attn else ()


def _alibi(context: Context) -> bool:
    flag = context.reading.alibi
    return flag == "always" or (bool(flag) and context.model.fields.raw(flag) is True)


def heads_on_rank(total: int, context: Context) -> int:
    """KV heads of one rank: split, or one head on several ranks. Raises EngineError."""
    tp = context.tp
    if not total:
        raise EngineError(
            "A layer that attends has 0 KV heads, which vLLM's classes can't build",
            "the model's class in vllm/model_executor/models",
            "check num_key_value_heads, or the file's head_count_kv",
        )
    if total >= tp and total % tp == 0:
        return total // tp
    if total < tp and tp % total == 0 and not context.reading.kv_heads_must_split:
        return 1
    raise EngineError(
        f"{total} KV heads can't be split over {tp} tensor-parallel ranks",
        "the model's class in vllm/model_executor/models",
        "the larger of the two must be a multiple of the smaller"
        if not context.reading.kv_heads_must_split
        else "take fewer ranks",
    )


def _layer_dtype(context: Context, index: int, depth: int) -> str:
    """TurboQuant leaves the first and last layers in the model's type, but for hybrids."""
    if context.cache_dtype in TURBOQUANT and not context.hybrid:
        boundary = min(_BOUNDARY, depth // 2)
        if index < boundary or index >= depth - boundary:
            return "auto"
    return context.cache_dtype


def head_bytes(k_width: int, v_width: int, dtype: str) -> int:
    """Bytes of one KV head's position, scales included."""
    if dtype in PER_TOKEN_HEAD:
        halved = 2 if dtype.startswith("int4") else 1
        return k_width // halved + v_width // halved + 2 * 4  # a float32 scale for each side
    if dtype.startswith("nvfp4"):
        return sum(width // 2 + width // 16 for width in (k_width, v_width))
    if dtype in TURBOQUANT:
        return _turboquant_bytes(k_width, dtype)
    return (k_width + v_width) * (1 if dtype.startswith("fp8") else ELEMENT_BYTES)


def _turboquant_bytes(width: int, dtype: str) -> int:
    """Packed keys (fp8, or b bits and a float16 norm), packed values (b bits, scale and zero in float16), made even."""
    bits = {"turboquant_k8v4": (8, 4), "turboquant_4bit_nc": (4, 4), "turboquant_k3v4_nc": (3, 4), "turboquant_3bit_nc": (3, 3)}
    k_bits, v_bits = bits[dtype]
    keys = width if k_bits == 8 else -(-width * k_bits // 8) + 2
    slot = keys + -(-width * v_bits // 8) + 4
    return slot + slot % 2


def _latent(context: Context, index: int, part: LatentAttention, *, sparse: bool) -> Cache:
    need = Need(
        head_size=part.row_width,
        cache_dtype=context.cache_dtype,
        mla=True,
        sparse=sparse,
        sliding=part.window is not None,
        nope_dim=part.nope_dim,
        query_heads=part.num_heads // context.tp,
        dcp=context.settings.dcp > 1,
        flashinfer=context.settings.flashinfer,
    )
    backend = choose(need, context.settings.platform, context.settings.block_size)
    dtype = _sparse_dtype(backend, context.cache_dtype)
    packed = {"fp8_ds_mla": FP8_DS_MLA_ROW, "nvfp4_ds_mla": NVFP4_DS_MLA_ROW}
    row = packed.get(dtype) or part.row_width * (1 if dtype.startswith("fp8") else ELEMENT_BYTES)
    return Cache(
        layer=index,
        kind=MLA if part.window is None else SLIDING_MLA,
        label="latent",
        token_bytes=row,
        window=part.window or 0,
        backend=backend,
        row_bytes=row,
        k_width=part.row_width,
        dtype=dtype,
    )


def _sparse_dtype(backend: Backend, cache_dtype: str) -> str:
    """FlashMLA's sparse kernels store any fp8 as DeepSeek's packed rows."""
    if backend.name == "FLASHMLA_SPARSE" and cache_dtype in FP8 | {"fp8_ds_mla"}:
        return "fp8_ds_mla"
    return cache_dtype


def _indexer(index: int, layer: Layer, part: Indexer) -> Cache:
    width = part.index_head_dim
    if any(isinstance(other, FullAttention) for other in layer):  # MiniMax-M3 keeps its index keys in bfloat16
        row, backend, dtype = width * ELEMENT_BYTES, M3_INDEXER, "bfloat16"
    else:
        row, backend, dtype = index_row(width), INDEXER, "fp8"
    return Cache(index, MLA, "index keys", "index", row, backend=backend, k_width=width, dtype=dtype, role="indexer")


def index_row(width: int) -> int:
    """fp8 values and their float32 scales: 132 bytes for 128."""
    return width + width // INDEX_SCALE_GROUP * 4


def _compressed(context: Context, index: int, part: CompressedAttention) -> list[Cache]:
    """DeepSeek V4: window rows, compressed rows, index rows, and the compressors' float32 buffers as windows."""
    if not (context.cache_dtype == "auto" or context.cache_dtype.startswith("fp8")):
        raise EngineError(
            f"DeepSeek V4 is cached in its own fp8 rows, not in {context.cache_dtype}",
            "vllm/models/deepseek_v4/attention.py",
            "leave -o kv-cache-dtype at auto",
        )
    if part.ratio and part.ratio not in V4_COMPRESSOR_BLOCK:
        raise EngineError(f"compression ratio {part.ratio} is not modelled for vLLM", "vllm/models/deepseek_v4/compressor.py")
    row, found = FP8_DS_MLA_ROW_V4, []
    if part.ratio and part.index_head_dim:
        found.append(_v4_rows(index, "index keys", "index", index_row(part.index_head_dim), part.ratio))
        found.append(_v4_buffer(index, part.ratio, part.index_head_dim))
    window = _v4_rows(index, "window rows", "kv", row, 1)
    found.append(replace(window, kind=SLIDING_MLA, window=part.window, own_block=V4_WINDOW_BLOCK, backend=V4_WINDOW))
    if part.ratio:
        found.append(_v4_rows(index, "compressed rows", "kv", row, part.ratio))
        found.append(_v4_buffer(index, part.ratio, part.head_dim))
    return found


def _v4_rows(index: int, label: str, component: str, row: int, ratio: int) -> Cache:
    return Cache(
        index, MLA, label, component, row, tokens_per_row=ratio, align_page=V4_PAGE_UNIT, backend=V4_SPARSE, dtype="fp8_ds_mla"
    )


def _v4_buffer(index: int, ratio: int, width: int) -> Cache:
    """Keys and scores of the open group, and of the one before where groups overlap (ratio 4)."""
    overlap = 2 if ratio == 4 else 1
    return Cache(
        index,
        SLIDING_MLA,
        "compressor buffers",
        "state",
        token_bytes=2 * overlap * width * 4,
        window=overlap * ratio,
        align_page=V4_PAGE_UNIT,
        own_block=V4_COMPRESSOR_BLOCK[ratio],
        k_width=width,
        dtype="float32",
        role="compressor",
    )


def _packed_convs(context: Context, index: int, layer: Layer, part: Recurrent) -> Cache:
    """Inkling: a layer's convolutions are one sliding window of kernel tokens, their channels packed a KV head.

    A head's width is rounded up to a power of two, so that attention pages divide the convolutions'.
    """
    total = next((other.num_kv_heads for other in layer if isinstance(other, HeadedAttention)), 0)
    heads, kernel = heads_on_rank(total, context), part.convs[0].kernel
    width = 1 << (sum(conv.channels // total for conv in part.convs) - 1).bit_length()
    return Cache(
        layer=index,
        kind=SLIDING,
        label="convolution columns",
        component="state",
        token_bytes=heads * width * ELEMENT_BYTES,
        window=kernel,
        own_block=kernel,
        backend=INKLING_CONV,
        heads=heads,
        k_width=width,
        dtype="bfloat16",
        role="convolutions",
    )


def _state(context: Context, index: int, part: Recurrent) -> Cache:
    convs, temporal = _state_elements(context, part)
    conv_dtype = context.settings.conv_dtype
    conv_bytes = 4 if conv_dtype == "float32" else ELEMENT_BYTES
    state_bytes = _temporal_bytes(context, part, conv_bytes)
    return Cache(
        layer=index,
        kind=STATE,
        label="states",
        component="state",
        state_bytes=convs * conv_bytes + temporal * state_bytes,
        checkpoint_blocks=1 if part.variant == "mamba2" or _flash_kda(context, part) else 0,
        dtype=conv_dtype,
        role=part.variant,
    )


def _flash_kda(context: Context, part: Recurrent) -> bool:
    """Kimi K3: with a bounded gate its prefill kernel stores a checkpoint of heads that are 128 wide."""
    if part.variant != "kda" or not context.reading.kda_bound or context.settings.platform == CPU:
        return False
    bounded = context.model.fields.mapping("linear_attn_config").raw(context.reading.kda_bound) is not None
    return bounded and part.states[0].shape[-1] == 128 and context.model.dtype in (None, "bfloat16", "float32")


def _temporal_bytes(context: Context, part: Recurrent, conv_bytes: int) -> int:
    """Element bytes of the temporal state. Raises EngineError."""
    asked = context.settings.state_dtype
    if part.variant == "lightning":
        return conv_bytes
    if asked == "auto" or context.reading.fixed_states:
        asked = _default_state_dtype(context, part)
    if part.variant == "kda" and asked == "float16":
        raise EngineError("KDA states are kept in float32 or bfloat16", "vllm/model_executor/layers/mamba/mamba_utils.py")
    return {"": conv_bytes, "float32": 4}.get(asked, 2)


def _default_state_dtype(context: Context, part: Recurrent) -> str:
    if part.variant == "kda" or context.settings.platform == "cpu":  # the CPU's accelerated kernels keep float32
        return "float32"
    field, _, fallback = context.reading.state_dtype.partition("|")
    return (context.model.fields.text(field) if field else "") or fallback


def _state_elements(context: Context, part: Recurrent) -> tuple[int, int]:
    """Elements of the convolution and temporal states on one rank. Raises EngineError."""
    if part.variant not in ("mamba", "mamba2", "gated_delta_net", "kda", "short_conv", "lightning"):
        raise ArchitectureError(f"vLLM serves no model with {part.variant} layers", "vllm/model_executor/models")
    tp = context.tp
    extra = _extra_groups(part, tp) * 2 * part.states[0].shape[-1] if part.variant == "mamba2" and part.states else 0
    channels = {conv.kernel: 0 for conv in part.convs}
    for conv in part.convs:
        channels[conv.kernel] += conv.channels
    drafts = context.settings.speculative if part.variant != "mamba" else 0  # rolled back column by column
    convs = sum(_divided(count + extra, tp, "convolution channels") * (kernel - 1 + drafts) for kernel, count in channels.items())
    temporal = sum(_divided(state.shape[0], tp, "state heads") * prod(state.shape[1:]) for state in part.states)
    return convs, temporal


def _extra_groups(part: Recurrent, tp: int) -> int:
    """Mamba-2's B and C groups are repeated so that each rank's heads find theirs. Raises EngineError."""
    groups = part.num_groups or 1
    if groups % tp == 0:
        return 0
    if groups != 1:
        raise EngineError(
            f"{groups} state groups can't be split over {tp} tensor-parallel ranks",
            "vllm/model_executor/layers/mamba/mamba_mixer2.py",
            "only a single group is repeated; take a divisor",
        )
    return tp - groups


def _divided(count: int, tp: int, what: str) -> int:
    if count % tp:
        raise EngineError(f"{count} {what} can't be split over {tp} tensor-parallel ranks", "vllm/distributed/utils.py: divide")
    return count // tp


def make_context(model: Model, settings: Settings, layers: tuple[Layer, ...], cache_dtype: str) -> Context:
    """The context of a model's caches."""
    parts = [part for layer in layers for part in layer]
    states = any(isinstance(part, Recurrent) for part in parts)
    attends = any(not isinstance(part, Recurrent | NoCache | Shared) for part in parts)
    return Context(model, settings, reading_of(model), cache_dtype, states and attends)
