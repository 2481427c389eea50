"""vLLM's cache specs: one small value for every cache that a layer registers, its page, and the blocks a request takes.

A *page* is one layer's share of one block. Rules: vLLM 0.32.0, ``vllm/v1/kv_cache_interface.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from kvcalc.units import ceil_div, round_up

FULL, MLA, SLIDING, SLIDING_MLA, CHUNKED, CROSS, STATE, RING = (
    "FullAttentionSpec",
    "MLAAttentionSpec",
    "SlidingWindowSpec",
    "SlidingWindowMLASpec",
    "ChunkedLocalAttentionSpec",
    "CrossAttentionSpec",
    "MambaSpec",
    "CircularBufferSpec",
)
# How states are kept for prefix caching: not at all, at block boundaries (the last two), or every block's.
NONE, ALIGN, ALL = "none", "align", "all"
FULL_KINDS = (FULL, MLA)
SLIDING_KINDS = (SLIDING, SLIDING_MLA)


@dataclass(frozen=True, slots=True)
class Load:
    """What the block counts depend on besides the specs."""

    max_model_len: int
    max_num_batched_tokens: int
    concurrent_batches: int = 1
    dcp_size: int = 1  # decode context parallel ranks
    states: str = ALIGN  # mamba_cache_mode
    speculative: int = 0  # draft tokens a step: a state block for each
    lookahead: int = 0  # tokens that windows hold besides, for several draft layers in a chain
    encoder_tokens: int = 0  # what cross-attention holds; 0: the scheduler's whole budget

    @property
    def in_flight(self) -> int:
        """Tokens scheduled but not settled: every concurrent batch may hold a full one."""
        return self.concurrent_batches * self.max_num_batched_tokens

    def at(self, max_model_len: int) -> Load:
        """The same load at another length."""
        return replace(self, max_model_len=max_model_len)


@dataclass(frozen=True, slots=True)
class Spec:
    """One layer's cache. Two layers share a block table when their specs are equal.

    ``token_bytes`` is heads × bytes a stored position; ``tokens_per_row`` > 1 stores one row for as many tokens
    (DeepSeek V4). A state's page is ``state_bytes``, whatever the block size.
    ``padded`` fixes a larger page; ``align_page`` rounds the page itself, ``stride_bytes`` and ``stride_tokens`` only
    the distance between blocks.
    """

    kind: str
    block_size: int
    token_bytes: int = 0
    state_bytes: int = 0
    window: int = 0  # sliding window, or the chunk of chunked attention
    tokens_per_row: int = 1
    padded: int = 0
    align_page: int = 1
    stride_bytes: int = 1
    stride_tokens: int = 0
    checkpoint_blocks: int = 0
    geometry: tuple[object, ...] = ()  # what else keeps two specs apart: heads, widths, type, role

    @property
    def real_page_bytes(self) -> int:
        """The page without a neighbour's padding."""
        if self.kind == STATE:
            return self.state_bytes
        return round_up(self.block_size // self.tokens_per_row * self.token_bytes, self.align_page)

    @property
    def page_bytes(self) -> int:
        """The page as planned."""
        return self.padded or self.real_page_bytes

    @property
    def stride_unit(self) -> int:
        """Bytes that the distance between two blocks must be a multiple of."""
        if not self.stride_tokens:
            return self.stride_bytes
        kernel_block = gcd(self.stride_tokens, self.block_size)
        return 1 if kernel_block == self.block_size else replace(self, block_size=kernel_block).page_bytes

    @property
    def stride(self) -> int:
        """Bytes from one block's page to the next, in a layout where a layer's pages lie together."""
        return round_up(self.page_bytes, self.stride_unit)

    def blocks(self, load: Load) -> int:
        """Blocks that one request of the full length can hold at once."""
        return _BLOCKS[self.kind](self, load)


def _full(spec: Spec, load: Load) -> int:
    return ceil_div(ceil_div(load.max_model_len, load.dcp_size), spec.block_size)


def _sliding(spec: Spec, load: Load) -> int:
    # The last window - 1 computed tokens and everything in flight; one block more, since the window may begin
    # inside a block: [XXCD][EF] holds the window CDEF of block size 4 in two blocks.
    held = min(spec.window - 1 + load.lookahead + load.in_flight, load.max_model_len)
    return ceil_div(held, spec.block_size) + 1


def _chunked(spec: Spec, load: Load) -> int:
    return ceil_div(min(spec.window + load.in_flight, load.max_model_len), spec.block_size)


def _cross(spec: Spec, load: Load) -> int:
    # max_num_encoder_input_tokens is the scheduler's whole budget, not the encoder's own length.
    return ceil_div(load.encoder_tokens or load.max_num_batched_tokens, spec.block_size)


def _state(spec: Spec, load: Load) -> int:
    if load.states == ALL:
        return ceil_div(load.max_model_len, spec.block_size) + load.speculative
    return (2 + spec.checkpoint_blocks if load.states == ALIGN else 1) + load.speculative


def _ring(spec: Spec, load: Load) -> int:  # noqa: ARG001 - one shape for all
    return 1  # overwritten in place for as long as the request runs


_BLOCKS = {
    FULL: _full,
    MLA: _full,
    SLIDING: _sliding,
    SLIDING_MLA: _sliding,
    CHUNKED: _chunked,
    CROSS: _cross,
    STATE: _state,
    RING: _ring,
}
