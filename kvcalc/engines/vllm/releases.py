"""vLLM's releases, and what changed in each as far as the cache goes.

Each change was placed by reading the sources on both sides of it: ``vllm/v1/core/kv_cache_utils.py``,
``vllm/v1/kv_cache_interface.py``, ``vllm/config``, ``vllm/engine/arg_utils.py``, ``vllm/platforms``.
"""

from __future__ import annotations

from kvcalc.engines.releases import Change, Releases

CHANGES: tuple[Change, ...] = (
    Change(
        "concurrency_by_blocks",
        "0.9.1",
        "concurrency is the blocks divided by those of one request, not the tokens by its length",
    ),
    Change("hybrid_groups", "0.9.1", "windowed layers among full ones get groups of their own, where all pages are equal"),
    Change("chunked_groups", "0.10.0", "chunked layers get groups of their own; before, they kept everything"),
    Change("chunked_opt_in", "0.10.1", "the hybrid cache manager is off for chunked layers unless the environment allows it"),
    Change("cutlass_latents", "0.10.1", "latent models take blocks of 128 on SM 10.0 (CUTLASS)"),
    Change("state_layers", "0.10.2", "models with recurrent layers run on the V1 engine"),
    Change("encoder_decoders", "0.10.2", "Whisper runs on the V1 engine"),
    Change("mixed_pages", "0.11.0", "layers of one kind with pages of several sizes share one group"),
    Change(
        "even_groups", "0.11.0", "a kind's layers are dealt out over its groups in turn (Gemma 3: 9 and 8 a group, not 10 and 2)"
    ),
    Change("encoder_budget", "0.11.0", "cross-attention is counted by the scheduler's budget, not by the encoder's length"),
    Change("flashinfer_required", "0.11.1", "FlashInfer is installed with the wheel"),
    Change(
        "cached_states", "0.11.1", "prefix caching may be asked for with recurrent layers: it keeps the states of every block"
    ),
    Change("aligned_by_64", "0.11.1", "blocks of hybrids with latent attention are multiples of 64"),
    Change("grown_blocks", "0.12.0", "smaller pages take more tokens a block, up to the largest page"),
    Change("close_buckets", "0.12.0", "kinds of layers whose counts lie within 1.25 are padded to one group each"),
    Change("needs_by_first_group", "0.14.0", "the start check counts the first group's blocks for the widest group"),
    Change("chunked_by_default", "0.14.0", "the hybrid cache manager is on for chunked layers again"),
    Change("fits_length", "0.14.0", "max-model-len=-1 fits the length to the memory"),
    Change("state_modes", "0.15.0", "states are kept at block boundaries (two blocks a request) where not every block's can be"),
    Change("flashinfer_latents", "0.15.0", "latent models take FlashInfer's blocks of 64 on SM 10.0"),
    Change("closer_buckets", "0.18.0", "kinds of layers whose counts lie within 1.5 are padded to one group each"),
    Change("backend_blocks", "0.18.0", "the attention backend names the block size: latent models take 16 on SM 9.0, once 64"),
    Change("needs_by_group", "0.19.0", "the start check counts every group's blocks"),
    Change("aligned_to_backend", "0.20.0", "blocks of hybrids are multiples of their backend's smallest, and of what was asked"),
    Change("larger_share", "0.20.0", "gpu-memory-utilization is 0.92 by default, once 0.9"),
    Change("drafts_align", "0.20.0", "drafting keeps states at block boundaries alone (until 0.22)"),
    Change(
        "tokens_by_concurrency",
        "0.20.1",
        "the printed tokens are concurrency times length, not blocks a group times the block size",
    ),
    Change("override_is_checked", "0.20.1", "num-gpu-blocks-override replaces the memory in the start check"),
    Change("drafted_states", "0.22.0", "states of every block are counted for draft tokens too"),
    Change("padded_pages", "0.24.0", "a smaller page that doesn't divide the largest one is padded"),
    Change("steps_in_flight", "0.26.0", "windows are held for every step in flight: two under asynchronous scheduling, once one"),
    Change("hybrid_prefixes", "0.26.0", "prefix caching is on by default with recurrent layers (not in 0.27)"),
    Change("padded_states", "0.26.0", "states are padded where another layer's page is larger"),
    Change("aligned_latents", "0.27.0", "blocks of hybrids with latent attention are multiples of 128"),
    Change("aligned_states", "0.28.0", "states are kept at block boundaries unless every block's are asked for"),
    Change("draft_lookahead", "0.28.0", "windows hold the tokens that a chain of several draft layers looks ahead"),
    Change("huge_cards", "0.28.0", "cards from 160 GiB on schedule 16,384 tokens a step"),
    Change("kda_checkpoints", "0.29.0", "Kimi's bounded gate keeps one state block more, for a prefill's checkpoint"),
    Change("null_block_reserved", "0.29.0", "the start check sets the null block aside"),
    Change("common_blocks", "0.31.0", "the block size is the smallest that every backend of the model takes"),
    Change("every_backend", "0.32.0", "a hybrid's block is a multiple of every backend's smallest"),
    Change("mamba2_checkpoints", "0.32.0", "Mamba-2 keeps one state block more, for a prefill's checkpoint"),
    Change("block_strides", "0.32.0", "blocks lie whole kernel pages apart"),
    Change(
        "gdn_checkpoints",
        "0.33.0",
        "gated delta nets (Qwen3-Next, Qwen3.5) keep a third state block for a prefill's checkpoint, and their blocks are"
        " multiples of 64 tokens",
    ),
    Change("own_16_bit", "0.33.0", "a cache in float16 or bfloat16 other than the model's own type is refused"),
)
KNOWN = (
    *("0.8.5", "0.8.5.post1", "0.9.0", "0.9.0.1", "0.9.1", "0.9.2", "0.10.0", "0.10.1", "0.10.1.1", "0.10.2"),
    *("0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1", "0.16.0", "0.17.0", "0.17.1"),
    *("0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0", "0.24.0"),
    *("0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"),
)
RELEASES = Releases("vLLM", KNOWN, CHANGES, refused="up to 0.7 the V0 engine was the default, which planned its blocks otherwise")
