"""vLLM's wordings, 0.2 to 0.32, and LMCache's, which speaks in the same log."""

from __future__ import annotations

from kvcalc.readers.engine_log_row import PAIR, count, row, size

_KEYS = (
    "model|dtype|max_seq_len|max_model_len|tensor_parallel_size|pipeline_parallel_size|data_parallel_size"
    "|decode_context_parallel_size|kv_cache_dtype|enable_prefix_caching|block_size|max_num_batched_tokens|max_num_seqs"
    "|gpu_memory_utilization|num_spec_tokens|num_speculative_tokens|swap_space|num_gpu_blocks_override|method"
    "|mamba_cache_dtype|mamba_ssm_cache_dtype|disable_hybrid_kv_cache_manager|async_scheduling"
)
_AVAILABLE = r"(?P<available_gib>-?\d{1,9}(?:\.\d{1,9})?)"
_OFTEN = rf"Maximum concurrency for {count('max_len')} tokens per request: (?P<concurrency_x>\d{{1,9}}\.\d\d)x"


def _loosely(text: str) -> str:
    """The pattern with any space left out or doubled: a terminal wraps long refusals."""
    return text.replace(" ", r"\s{0,9}")


VLLM = (
    row("vllm", "start", "api", "vLLM API server version", r"vLLM API server version (?P<version>[\w.+\-]{1,60})"),
    row("vllm", "start", "api", "non-default args", r"non-default args: \{"),
    row(
        "vllm",
        "start",
        "engine",
        "LLM engine (v",
        r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[\w.+\-]{1,60})\) with config",
    ),
    row("vllm", "pairs", "args", ("LLM engine (v", "non-default args"), PAIR.format(_KEYS)),
    row(
        "vllm",
        "setting",
        "batched",
        "max_num_batched_tokens=",
        rf"enabled with max_num_batched_tokens={count('max_num_batched_tokens')}",
    ),
    row(
        "vllm",
        "setting",
        "async",
        "Asynchronous scheduling is ",
        r"Asynchronous scheduling is (?P<async_scheduling>enabled|disabled)",
    ),
    row("vllm", "setting", "platform", "detected platform ", r"detected platform (?P<platform>\w{1,20})"),
    row("vllm", "setting", "length", "Using max model len ", rf"Using max model len {count('max_model_len')}"),
    row(
        "vllm",
        "setting",
        "state_type",
        "mamba_ssm_cache_dtype to ",
        r"mamba_ssm_cache_dtype to '(?P<mamba_ssm_cache_dtype>\w{1,20})'",
    ),
    row(
        "vllm",
        "setting",
        "context_ranks",
        "dcp_world_size ",
        rf"Multiplying the GPU KV cache size by the .{{0,80}}?dcp_world_size {count('decode_context_parallel_size')}",
    ),
    row(
        "vllm",
        "setting",
        "hybrid",
        "Turning off hybrid kv cache manager",
        r"Turning (?P<disable_hybrid_kv_cache_manager>off) hybrid kv cache manager",
    ),
    row("vllm", "memory", "available", "vailable KV cache memory: ", rf"[Aa]vailable KV cache memory: {_AVAILABLE} GiB"),
    row(
        "vllm",
        "memory",
        "available",
        "memory for KV Cache as",
        rf"reserved {_AVAILABLE} GiB memory for KV Cache as specified",
    ),
    row("vllm", "memory", "available", "kv_cache_size=", rf"\bkv_cache_size={_AVAILABLE}GiB"),
    row("vllm", "memory", "available", "reserved for KV Cache is", rf"reserved for KV Cache is {_AVAILABLE}GiB"),
    row(
        "vllm",
        "statement",
        "in_use",
        "kv cache memory in use is ",
        rf"Current kv cache memory in use is (?:(?P<available_bytes>\d{{1,18}}) bytes|{_AVAILABLE} GiB)",
    ),
    row(
        "vllm",
        "statement",
        "capacity",
        "KV cache size: ",
        rf"(?P<device>[A-Z]PU)(?: \+ host)? KV cache size: {count('tokens')} tokens(?:, {_OFTEN})?",
    ),
    row("vllm", "statement", "concurrency", "Maximum concurrency for ", rf"(?<!tokens, ){_OFTEN}"),
    row(
        "vllm",
        "statement",
        "blocks",
        " blocks: ",
        rf"# [A-Za-z]{{2,10}} blocks: {count('gpu_blocks')}(?:, # CPU blocks: {count('cpu_blocks')})?",
    ),
    row("vllm", "statement", "blocks", "num_gpu_blocks is: ", rf"after num_gpu_blocks is: {count('gpu_blocks')}"),
    row(
        "vllm",
        "statement",
        "refusal",
        ("max seq len (", "To serve at least one request"),
        _loosely(rf"max seq len \({count('max_len')}\), \(?{size('need_gib')} GiB KV cache is needed, "),
        _loosely(rf"which is larger than the available KV cache memory \({_AVAILABLE} GiB\)"),
        _loosely(rf"(?:\. Based on the available memory, the estimated maximum model length is {count('estimated')})?"),
    ),
    row(
        "vllm",
        "statement",
        "refusal_tokens",
        ("max seq len (", "To serve at least one request"),
        _loosely(rf"max seq len \({count('max_len')}\) is larger than the maximum number of tokens that can be stored in "),
        _loosely(rf"(?:the )?KV cache \({count('tokens')}\)"),
    ),
    row(
        "vllm",
        "statement",
        "hybrid_block",
        "attention block size to ",
        rf"Setting attention block size to {count('block_size')} tokens to ensure",
    ),
    row("vllm", "statement", "padding", "Padding mamba page size by ", rf"Padding mamba page size by{size('percent_x')}%"),
    row(
        "lmcache",
        "statement",
        "stored",
        " tokens. size: ",
        rf"Stored {count('tokens')} out of total {count('of')} tokens\. size:{size('total_gib')} [Gg][Bb]",
    ),
)
