"""Latent and compressed layers: MLA, its index keys, and DeepSeek V4.

Sources: vLLM 0.32.0, ``vllm/model_executor/layers/attention/mla_attention.py``, ``vllm/model_executor/models/deepseek_v2.py``,
``vllm/models/{deepseek_v4,dots3_note,glm5next,minimax_m3}``.
"""

from __future__ import annotations

from dataclasses import replace

from kvcalc.core.layers import CompressedAttention, FullAttention, Indexer, LatentAttention, Layer
from kvcalc.engines.vllm.backends import FP8, INDEXER, PLAIN, SM90, SM100, Backend, Need, choose
from kvcalc.engines.vllm.cache import ELEMENT_BYTES, Cache, Context
from kvcalc.engines.vllm.specs import MLA, RING, SLIDING_MLA
from kvcalc.errors import EngineError
from kvcalc.units import ceil_div

FP8_DS_MLA_ROW, NVFP4_DS_MLA_ROW = 656, 352  # 512 fp8 + 4 float32 scales + 64 bf16; read, not measured
FP8_DS_MLA_ROW_V4 = 448 + 128 + 8  # fp8 without rope, bf16 rope, scales
V4_PAGE_UNIT = 576
V4_BLOCK, V4_WINDOW_BLOCK = 256, 64
V4_COMPRESSOR_BLOCK = {4: 4, 128: 8}
INDEX_SCALE_GROUP = 128  # one float32 scale for as many fp8 values

V4_SPARSE = Backend("FLASHMLA_SPARSE_DSV4", sizes=(V4_BLOCK,), mla=True, sparse=True)
V4_WINDOW = Backend("DEEPSEEK_SPARSE_SWA", multiple=32, mla=True, sparse=True)
M3_INDEXER = Backend("MINIMAX_M3_INDEXER", sizes=(128,))
KPOOL_TAIL = Backend("KPOOL_TAIL", multiple=1)
PAGED_LOGITS = (32, 64)  # rows a page of its index kernels
NOTE_FULL = Backend("DOTS3_NOTE_PADDED_MLA_SPARSE", multiple=64, mla=True, sparse=True, page_rows=1)
NOTE_WINDOW = Backend("DOTS3_NOTE_TRITON_MLA", multiple=16, mla=True)


def latent(context: Context, index: int, part: LatentAttention, *, sparse: bool) -> Cache:
    """One latent row a token, packed where the backend packs. Raises EngineError."""
    if context.reading.equal_latents:
        return _note_latent(context, index, part)
    need = Need(
        head_size=part.row_width,
        cache_dtype=context.cache_dtype,
        mla=True,
        sparse=sparse,
        sliding=part.window is not None,
        nope_dim=part.nope_dim,
        query_heads=part.num_heads // context.tp,
        dcp=context.settings.dcp,
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


def indexer(index: int, layer: Layer, part: Indexer) -> Cache:
    """Index keys: fp8 with scales, or bfloat16 beside plain heads."""
    width = part.index_head_dim
    if any(isinstance(other, FullAttention) for other in layer):  # MiniMax-M3 keeps its index keys in bfloat16
        row, backend, dtype = width * ELEMENT_BYTES, M3_INDEXER, "bfloat16"
    else:
        row, backend, dtype = index_row(width), INDEXER, "fp8"
    return Cache(index, MLA, "index keys", "index", row, backend=backend, k_width=width, dtype=dtype, role="indexer")


def index_row(width: int) -> int:
    """fp8 values and their float32 scales: 132 bytes for 128."""
    return width + width // INDEX_SCALE_GROUP * 4


def _check_plain_sm90(context: Context) -> None:
    """Raises EngineError beyond what was read of a model."""
    if context.settings.platform != SM90 or context.cache_dtype not in PLAIN:
        raise EngineError(
            f"{context.model.model_type} is modelled for vLLM on SM 9.0 and in its own type alone",
            "vllm/models",
            "leave -o platform and -o kv-cache-dtype out",
        )


def pooled(context: Context, index: int, part: LatentAttention) -> list[Cache]:
    """GLM-5-Next: a latent, one index row a pool of tokens, and a ring that holds the open pool's keys and gates.

    Every latent layer has them, whatever indexer_types says. A draft token more than a pool holds takes a ring twice as long.
    """
    _check_plain_sm90(context)
    pool, width = context.model.fields.int(context.reading.pool), context.model.fields.int("index_head_dim")
    pools = ceil_div(pool + context.settings.speculative, pool)
    whole = latent(context, index, part, sparse=True)
    rows = Backend("GLM5_NEXT_INDEXER", sizes=tuple(pool * size for size in PAGED_LOGITS), mla=True, sparse=True)
    keys = Cache(
        index, MLA, "index keys", "index", index_row(width), tokens_per_row=pool, backend=rows, k_width=width, dtype="fp8"
    )
    ring = Cache(
        layer=index,
        kind=RING,
        label="open pool",
        component="state",
        token_bytes=2 * width * ELEMENT_BYTES,
        own_block=pool * (1 << (pools - 1).bit_length()),
        backend=KPOOL_TAIL,
        heads=2,
        k_width=width,
        dtype="bfloat16",
        role="ring",
    )
    return [whole, replace(keys, role="indexer"), ring]


def _note_latent(context: Context, index: int, part: LatentAttention) -> Cache:
    """dots3-note: every latent takes a row as wide as the windowed ones. Raises EngineError beyond what was read."""
    _check_plain_sm90(context)
    parts = [other for layer in context.model.layers for other in layer if isinstance(other, LatentAttention)]
    width = max((other.row_width for other in parts if other.window is not None), default=part.row_width)
    row = width * ELEMENT_BYTES
    return Cache(
        layer=index,
        kind=MLA if part.window is None else SLIDING_MLA,
        label="latent",
        token_bytes=row,
        window=part.window or 0,
        backend=NOTE_FULL if part.window is None else NOTE_WINDOW,
        row_bytes=row,
        k_width=width,
        dtype=context.cache_dtype,
    )


def compressed(context: Context, index: int, part: CompressedAttention) -> list[Cache]:
    """DeepSeek V4: window rows, compressed rows, index rows, and the compressors' float32 buffers as windows."""
    if not (context.cache_dtype == "auto" or context.cache_dtype.startswith("fp8")):
        raise EngineError(
            f"DeepSeek V4 is cached in its own fp8 rows, not in {context.cache_dtype}",
            "vllm/models/deepseek_v4/attention.py",
            "leave -o kv-cache-dtype at auto",
        )
    if context.settings.platform not in (SM90, SM100):
        raise EngineError(
            f"DeepSeek V4 is modelled for vLLM on SM 9.0 and 10.0, not on {context.settings.platform}", "vllm/models/deepseek_v4"
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
