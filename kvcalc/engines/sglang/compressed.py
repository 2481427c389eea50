"""DeepSeek V4 under SGLang: pages of window rows, of compressed rows and of index keys, and the compressors' states.

A row holds 448 fp8 values, 64 bfloat16 of rope and 8 bytes of scales; a page of rows is padded to whole 576 bytes. A window
page has 256 rows, a page of compressed rows as many as 256 tokens make. States of ratio 4 follow the pages of windows, those of
ratio 128 the requests.
Sources of 0.5.23: ``srt/mem_cache/deepseek_v4_memory_pool.py``, ``srt/mem_cache/deepseek_v4_compress_state.py``,
``srt/model_executor/pool_configurator.py`` (DSV4PoolConfigurator), ``kernels/ops/attention/dsv4/kv_layout.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvcalc.core.counting import ONE, Slab
from kvcalc.core.layers import CompressedAttention
from kvcalc.engines.sglang.slots import C4_PAGES, C4_STATES, C128_PAGES, C128_STATES, INDEX_PAGES, WINDOW_PAGES, Slot
from kvcalc.errors import EngineError
from kvcalc.units import ceil_div, round_up

PAGE, PADDING = 256, 576
INDEX_GROUP, ROPE_BYTES, SCALE_BYTES, FLOAT32_BYTES = 128, 2, 8, 4
RINGS = {False: (8, 128), True: (16, 256)}  # whether tokens are drafted → rows a ring of ratio 4, of ratio 128
SOURCE = "sglang/srt/mem_cache/deepseek_v4_memory_pool.py"


def page_bytes(part: CompressedAttention, rope_dim: int, rows: int) -> int:
    """Bytes of one page of ``rows`` rows."""
    row = part.head_dim - rope_dim + rope_dim * ROPE_BYTES + SCALE_BYTES
    return round_up(rows * row, PADDING)


def compressed_slots(part: CompressedAttention, rope_dim: int) -> list[Slot]:
    """Everything that one layer keeps. Raises EngineError for a ratio that the engine's pools don't have."""
    if part.ratio not in (0, 4, 128):
        raise EngineError(f"SGLang's layers that compress by {part.ratio} are not modelled", SOURCE)
    found = [_paged(WINDOW_PAGES, "window rows", page_bytes(part, rope_dim, PAGE), part, f"pages of {PAGE} rows")]
    if part.ratio == 0:
        return found
    rows = PAGE // part.ratio
    pool = C4_PAGES if part.ratio == 4 else C128_PAGES
    found.append(_paged(pool, "compressed rows", page_bytes(part, rope_dim, rows), part, f"pages of {rows} rows"))
    if part.ratio == 128:
        found.append(_state(C128_STATES, "compressor states", 2 * part.head_dim))
        return found
    index = rows * (part.index_head_dim + part.index_head_dim // INDEX_GROUP * FLOAT32_BYTES)
    found.append(_paged(INDEX_PAGES, "index keys", index, part, f"pages of {rows} rows", "index"))
    found.append(_state(C4_STATES, "compressor states", 4 * part.head_dim))
    found.append(_state(C4_STATES, "indexer states", 4 * part.index_head_dim))
    return found


def _paged(pool: str, label: str, size: int, part: CompressedAttention, note: str, component: str = "kv") -> Slot:
    width = part.head_dim if component == "kv" else part.index_head_dim
    return Slot(pool, Slab(component, label, ONE, size, 1, width, "fp8", note), 0)


def _state(pool: str, label: str, elements: int) -> Slot:
    return Slot(pool, Slab("state", label, ONE, elements * FLOAT32_BYTES, 1, elements, "float32"), 0)


def token_cells(parts: Iterable[CompressedAttention], rope_dim: int, drafted: bool) -> tuple[float, float]:
    """(bytes of a token, bytes of a token of the window pool) over a stage's layers, as the engine's floats have them."""
    parts = tuple(parts)
    full = window = 0.0
    states = RINGS[drafted][0] / PAGE
    for part in parts:
        window += page_bytes(part, rope_dim, PAGE) / PAGE
        if part.ratio == 4:
            index = part.index_head_dim + part.index_head_dim // INDEX_GROUP * FLOAT32_BYTES
            full += page_bytes(part, rope_dim, PAGE // 4) / (PAGE // 4) / 4 + index / 4
            window += states * 4 * (part.head_dim + part.index_head_dim) * FLOAT32_BYTES
        elif part.ratio == 128:
            full += page_bytes(part, rope_dim, PAGE // 128) / (PAGE // 128) / 128
    more = (len(parts) + 1) / len(parts) if drafted and parts else 1.0
    return full * more, window * more


def request_bytes(parts: Iterable[CompressedAttention], requests: int, drafted: bool) -> int:
    """The states of ratio 128 of so many requests: taken off before the memory is divided."""
    return sum(state_rows(requests, drafted) * 2 * part.head_dim * FLOAT32_BYTES for part in parts if part.ratio == 128)


def state_rows(requests: int, drafted: bool) -> int:
    """Rows of one layer's states of ratio 128: a ring for every request and one more, and a ring's padding."""
    ring = RINGS[drafted][1]
    return round_up((requests + 1) * ring + ring + 1, 128)


def rows(pool: str, tokens: int, window: int, requests: int, drafted: bool) -> int:
    """Rows (pages) of one layer's buffer."""
    ring = RINGS[drafted][0]
    if pool == C128_STATES:
        return state_rows(requests, drafted)
    if pool == C4_STATES:
        return round_up(window // PAGE * ring + ring + 1, 4)
    return {
        WINDOW_PAGES: ceil_div(window + PAGE, PAGE),
        C4_PAGES: ceil_div(tokens // 4 + PAGE, PAGE // 4),
        C128_PAGES: ceil_div(tokens // 128 + PAGE, PAGE // 128),
        INDEX_PAGES: ceil_div(tokens // 128 * 32 + PAGE, PAGE // 4),
    }[pool]
