"""From a model's layers to the caches that vLLM registers for them, before the block size is known.

Sources: vLLM 0.32.0, the ``get_kv_cache_spec`` methods of ``vllm/model_executor/layers`` and ``vllm/models``.
"""

from __future__ import annotations

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
from kvcalc.engines.vllm.backends import CPU, FLASH_ATTN, FLASH_ATTN_DIFFKV, PER_TOKEN_HEAD, TURBOQUANT, Backend, Need, choose
from kvcalc.engines.vllm.cache import ELEMENT_BYTES, Cache, Context, heads_on_rank
from kvcalc.engines.vllm.latents import compressed, indexer, latent, pooled
from kvcalc.engines.vllm.models import ALIBI, ROTARY
from kvcalc.engines.vllm.specs import CHUNKED, CROSS, FULL, SLIDING
from kvcalc.engines.vllm.states import packed_convs, state

_BOUNDARY = 2  # attention layers at each end that TurboQuant leaves alone


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
        case LatentAttention() if context.reading.pool:
            return pooled(context, index, part)
        case LatentAttention():
            return [latent(context, index, part, sparse=_is_sparse(context, index, layer))]
        case Indexer() if context.reading.pool:
            return []
        case Indexer():
            return [indexer(index, layer, part)] if _is_sparse(context, index, layer) else []
        case CompressedAttention():
            return compressed(context, index, part)
        case Recurrent() if context.reading.packed_convs:
            return [packed_convs(context, index, layer, part)]
        case Recurrent():
            return [state(context, index, part)]
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
        dcp=context.settings.dcp,
        flashinfer=context.settings.flashinfer,
    )
    kinds = {FullAttention: FULL, SlidingAttention: SLIDING, ChunkedAttention: CHUNKED, CrossAttention: CROSS}
    return Cache(
        layer=index,
        kind=kinds[type(part)] if "chunked_groups" in context.rules or not isinstance(part, ChunkedAttention) else FULL,
        label="keys and values of the encoder" if need.cross else "keys and values",
        token_bytes=heads * head_bytes(part.head_dim, part.v_head_dim, dtype),
        window=getattr(part, "window", 0) or (getattr(part, "chunk", 0) if "chunked_groups" in context.rules else 0),
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


def _layer_dtype(context: Context, index: int, depth: int) -> str:
    """TurboQuant leaves the first and last layers in the model's type, but for hybrids; some classes pass no type on."""
    if _passes_no_type(context):
        return "auto"
    if context.cache_dtype in TURBOQUANT and not context.hybrid:
        boundary = min(_BOUNDARY, depth // 2)
        if index < boundary or index >= depth - boundary:
            return "auto"
    return context.cache_dtype


def _passes_no_type(context: Context) -> bool:
    """Falcon's rotary layers; Baichuan's with ALiBi, which all but the 7B models (hidden_size 4,096) have."""
    own = context.reading.own_dtype
    return (own == ROTARY and not _alibi(context)) or (own == ALIBI and context.model.fields.raw("hidden_size") != 4096)


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
