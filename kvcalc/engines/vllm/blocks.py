"""The block size that vLLM settles on, and each cache's spec under it.

Rules: vLLM 0.32.0, ``vllm/platforms/interface.py`` (``update_block_size_for_backend``, ``_align_hybrid_block_size``,
``_align_heterogeneous_kv_block_size``), ``cpu.py``, ``vllm/model_executor/layers/attention/attention.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from kvcalc.engines.vllm.backends import CPU, DEFAULT_BLOCK, FI_MLA, SM100, TURBOQUANT, Backend, common_block
from kvcalc.engines.vllm.cache import ELEMENT_BYTES, Cache
from kvcalc.engines.vllm.latents import V4_BLOCK, V4_SPARSE
from kvcalc.engines.vllm.options import Settings
from kvcalc.engines.vllm.specs import ALIGN, ALL, MLA, SLIDING, STATE, Spec
from kvcalc.errors import EngineError
from kvcalc.units import ceil_div, round_up

_CPU_BLOCK, _CPU_MLA_BLOCK = 128, 16
_FLASH_MLA_BLOCK, _CUTLASS_MLA_BLOCK = 64, 128
_MLA_HYBRID_ALIGNMENT = 128  # its decode kernels want a multiple of 128 tokens when blocks are split


@dataclass(frozen=True, slots=True)
class Blocks:
    """The model's block size, and the page that states are padded to (0: none)."""

    size: int
    state_page: int = 0


def settle(caches: Sequence[Cache], settings: Settings, *, mode: str = ALIGN, chunk: int = 1, least_state: int = 0) -> Blocks:
    """The block size: what was asked or the backends take, raised to hold a state. Raises EngineError.

    ``mode``: how states are kept for prefix caching, ``chunk`` the tokens of their kernel's chunk. ``least_state``: bytes that
    a state's page has at least.
    """
    attention = [cache for cache in caches if cache.kind != STATE]
    backends = _distinct(attention)
    size = _first_size(attention, backends, settings)
    states = max((cache.state_bytes for cache in caches if cache.kind == STATE), default=0)
    if states and attention:
        step = chunk if mode == ALL else _checkpoint_step(caches) if mode == ALIGN else 1
        return _raised(attention, backends, size, max(states, least_state), settings, step)
    if any(cache.dtype in TURBOQUANT for cache in attention):
        return Blocks(_with_plain_layers(attention, backends, size))
    return Blocks(size)


def spec_of(cache: Cache, blocks: Blocks) -> Spec:
    """A cache's spec under the settled block size."""
    stride_tokens, stride_bytes = _stride(cache)
    return Spec(
        kind=cache.kind,
        block_size=_block_of(cache, blocks),
        token_bytes=cache.token_bytes,
        state_bytes=cache.state_bytes,
        window=cache.window,
        tokens_per_row=cache.tokens_per_row,
        padded=blocks.state_page if cache.kind == STATE else 0,
        align_page=cache.align_page,
        stride_bytes=stride_bytes,
        stride_tokens=stride_tokens,
        checkpoint_blocks=cache.checkpoint_blocks,
        geometry=(cache.heads, cache.k_width, cache.v_width, cache.dtype, cache.role),
    )


def _block_of(cache: Cache, blocks: Blocks) -> int:
    if cache.own_block:
        return cache.own_block
    if cache.kind == SLIDING and cache.backend is not None:
        return cache.backend.largest_within(blocks.size)
    return blocks.size


def _stride(cache: Cache) -> tuple[int, int]:
    """(tokens, bytes) that blocks must lie multiples apart."""
    backend = cache.backend
    if backend is None or cache.own_block:
        return 0, 1
    if backend.page_rows:
        packed = cache.dtype.endswith("ds_mla") and backend.name == "FLASHMLA_SPARSE"
        return (backend.multiple, 1) if packed else (0, backend.page_rows * cache.row_bytes)
    return (max(backend.sizes), 1) if backend.sizes else (0, 1)


def _distinct(caches: Sequence[Cache]) -> list[Backend]:
    found: dict[str, Backend] = {}
    for cache in caches:
        if cache.backend is not None:
            known = found.get(cache.backend.name)
            found[cache.backend.name] = cache.backend if known is None or cache.backend.sizes else known
    return list(found.values())


def _first_size(attention: Sequence[Cache], backends: Sequence[Backend], settings: Settings) -> int:
    if settings.platform == CPU:
        if any(cache.kind == MLA for cache in attention):
            return _CPU_MLA_BLOCK
        return settings.block_size or _CPU_BLOCK
    if "backend_blocks" not in settings.rules:
        return _once(attention, settings)
    if settings.block_size:
        return settings.block_size
    if V4_SPARSE in backends:
        return V4_BLOCK
    if "common_blocks" not in settings.rules:
        backends = backends[:1]
    return common_block(backends) if backends else DEFAULT_BLOCK


def _once(attention: Sequence[Cache], settings: Settings) -> int:
    """Before backends named their blocks: what was asked, or 16, but latents took their kernel's blocks alone."""
    asked, rules = settings.block_size or DEFAULT_BLOCK, settings.rules
    latents = [cache for cache in attention if cache.kind == MLA]
    if not latents:
        return asked
    if settings.platform != SM100 or any(cache.backend is not None and cache.backend.sparse for cache in latents):
        kernel = _FLASH_MLA_BLOCK
    elif "flashinfer_latents" in rules and all(cache.backend is FI_MLA for cache in latents):
        return asked if asked == 32 or asked % _FLASH_MLA_BLOCK == 0 else _FLASH_MLA_BLOCK
    else:
        kernel = _CUTLASS_MLA_BLOCK if "cutlass_latents" in rules else 1
    return asked if asked == kernel or (("aligned_by_64" in rules or kernel == 1) and asked % kernel == 0) else kernel


def _checkpoint_step(caches: Sequence[Cache]) -> int:
    """Tokens between which states can leave a prefill: every kind of state must know one, or none counts."""
    steps = [cache.checkpoint_step for cache in caches if cache.kind == STATE]
    return lcm(*steps) if all(steps) else 1


def _raised(
    attention: Sequence[Cache], backends: Sequence[Backend], size: int, states: int, settings: Settings, step: int
) -> Blocks:
    """Hybrids: a block's attention page must hold a whole state, and states are padded to that page.

    Blocks are whole ``step``s of tokens, at which states can be taken out of a prefill.
    """
    rules, platform = settings.rules, settings.platform
    token_bytes = max(cache.token_bytes for cache in attention)
    step = lcm(_unit(attention, backends, size, settings), step)
    needed = step * ceil_div(states, step * token_bytes)
    kernels = lcm(*(backend.smallest for backend in backends)) if "every_backend" in rules else 1
    raised = max(size, round_up(needed, kernels))
    rejecting = [backend.name for backend in backends if not backend.takes(raised)] if raised != size and platform != CPU else []
    if rejecting:
        raise EngineError(f"the block of {raised} tokens that holds a state is not taken by {', '.join(rejecting)}")
    return Blocks(raised, raised * token_bytes)


def _unit(attention: Sequence[Cache], backends: Sequence[Backend], size: int, settings: Settings) -> int:
    """Tokens that a hybrid's block is a multiple of, by its attention alone."""
    rules, latent = settings.rules, any(cache.kind == MLA for cache in attention)
    if "aligned_to_backend" in rules:
        unit = max(backends[0].smallest, size)
        return max(unit, _MLA_HYBRID_ALIGNMENT) if latent and "aligned_latents" in rules else unit
    if latent and "aligned_by_64" in rules:
        return _FLASH_MLA_BLOCK
    wide = settings.platform == SM100 and any(cache.k_width == 256 for cache in attention)
    return 32 if wide and "aligned_by_64" in rules and "backend_blocks" not in rules else DEFAULT_BLOCK


def _with_plain_layers(attention: Sequence[Cache], backends: Sequence[Backend], size: int) -> int:
    """TurboQuant beside layers in the model's type: blocks until the quantised page covers the plain one.

    The first layer's backend is asked for the quantised page, and it doesn't pack: one byte an element.
    """
    plain = [cache for cache in attention if cache.dtype not in TURBOQUANT]
    if not plain:
        return size
    wide = max(cache.heads * (cache.k_width + cache.v_width) for cache in plain)
    smallest = backends[0].smallest
    step = max(smallest, size)
    return max(size, step * ceil_div(wide * ELEMENT_BYTES * smallest, step * wide))
