"""Wordings of SGLang, TensorRT-LLM and ollama."""

from __future__ import annotations

from kvcalc.readers.engine_log_row import NAMED_SIZE, PAIR, WORD, count, row, size

_SGLANG_KEYS = (
    "model_path|dtype|kv_cache_dtype|tp_size|pp_size|dp_size|page_size|mem_fraction_static|context_length|max_total_tokens"
    "|swa_full_tokens_ratio|mamba_full_memory_ratio|max_running_requests|speculative_num_draft_tokens"
)
SGLANG = (
    row("sglang", "start", "args", "server_args=ServerArgs(", r"server_args=ServerArgs\("),
    row("sglang", "pairs", "args", "server_args=ServerArgs(", PAIR.format(_SGLANG_KEYS)),
    row(
        "sglang",
        "statement",
        "pool",
        "KV Cache is allocated",
        rf"KV Cache is allocated\. (?:dtype: (?P<dtype>[\w.]{{1,40}}), )?#tokens: {count('tokens')}, ",
        rf"(?:K size:{size('k_gib')} GB, V size:{size('v_gib')} GB|KV size:{size('total_gib')} GB)",
    ),
    row(
        "sglang",
        "statement",
        "swa_pool",
        "SWAKVPool mem usage",
        rf"SWAKVPool mem usage:{size('total_gib')} GB, swa size: {count('swa_tokens')}, full size: {count('full_tokens')}",
    ),
    row(
        "sglang",
        "statement",
        "state",
        "Mamba Cache is allocated",
        rf"Mamba Cache is allocated\.\s{{0,9}}max_mamba_cache_size: {count('slots')}, ",
        rf"conv_state size:{size('conv_gib')}\s?GB, ssm_state size:{size('ssm_gib')}\s?GB",
        rf"(?:.{{0,9}}?intermediate_ssm_state_cache size:{size('intermediate_gib')}\s?GB)?",
    ),
    row("sglang", "statement", "max_tokens", "max_total_num_tokens=", rf"\bmax_total_num_tokens={count('tokens')}, "),
)

TENSORRT_LLM = (
    row("tensorrt-llm", "start", "version", "LLM version: ", r"TensorRT[ -]LLM version: (?P<version>[\w.+\-]{1,60})"),
    row("tensorrt-llm", "setting", "block", "tokens per block: ", rf"Number of tokens per block: {count('tokens_per_block')}"),
    row("tensorrt-llm", "setting", "block", "okensPerBlock: ", rf"[tT]okensPerBlock: {count('tokens_per_block')}"),
    row("tensorrt-llm", "setting", "block", "tokens per block=", rf"tokens per block={count('tokens_per_block')}"),
    row(
        "tensorrt-llm",
        "statement",
        "free",
        "max tokens in paged kv cache",
        rf"in paged kv cache: total:{size('total_memory_gib')} GiB, available:{size('available_gib')} GiB",
    ),
    row("tensorrt-llm", "statement", "blocks", "KV cache primary pool: ", rf"blocks in KV cache primary pool: {count('blocks')}"),
    row(
        "tensorrt-llm",
        "statement",
        "paged",
        "paged KV cache (",
        rf"Allocated{size('total_gib')} GiB for max tokens in paged KV cache \({count('tokens')}\)",
    ),
    row("tensorrt-llm", "statement", "bytes", "bytes for k/v cache", rf"Allocate {count('total_bytes')} bytes for k/v cache"),
    row(
        "tensorrt-llm",
        "part",
        "tokens",
        "tokens in paged KV cache",
        rf"Using {count('tokens')} (?:total )?tokens in paged KV cache",
    ),
)

OLLAMA = (
    row(
        "ollama",
        "version",
        "server",
        'msg="Listening on ',
        r'msg="Listening on \S{1,200} \(version (?P<version>[\w.+\-]{1,60})\)',
    ),
    row("ollama", "start", "engine", "msg=load request=", r"msg=load request=.{0,3}\{Operation:(?:fit|alloc|commit)"),
    row("ollama", "start", "estimate", "memory.required.kv=", r"memory\.required\.kv="),
    row(
        "ollama",
        "pairs",
        "load",
        "msg=load request=",
        rf"\b(?P<key>Parallel|BatchSize|FlashAttention|KvSize|KvCacheType):(?P<value>{WORD})",
    ),
    row("ollama", "pairs", "runner", "--ctx-size ", rf"--(?P<key>ctx-size|batch-size|parallel|kv-cache-type) (?P<value>{WORD})"),
    row("ollama", "setting", "flash", "--ctx-size ", r" --(?P<flash_attn>flash-attn)"),
    row(
        "ollama",
        "statement",
        "estimate",
        "memory.required.kv=",
        rf'layers\.model={count("layers")} .{{0,2000}}?memory\.required\.kv="(?P<total_named>{NAMED_SIZE})"',
    ),
    row(
        "ollama",
        "statement",
        "layers",
        '.Cache="[',
        r'msg=memory success=true .{0,4000}?(?P<caches>required\.\S{1,60}\.Cache="\[.{1,30000})',
    ),
    row(
        "ollama",
        "part",
        "device",
        "kv cache",
        rf'msg="kv cache" device=(?P<device>\S{{1,60}}) size="(?P<total_named>{NAMED_SIZE})"',
    ),
)

# Servers without rules here: what they state stands.
OTHERS = (
    row("tgi", "statement", "capacity", "KV-cache blocks: ", rf"KV-cache blocks: {count('blocks')}, size: {count('block_size')}"),
    row("tgi", "statement", "capacity", "max batch total tokens to ", rf"Setting max batch total tokens to {count('tokens')}"),
    row("lmdeploy", "part", "block", "[BlockManager] block_size", rf"\[BlockManager\] block_size ={size('block_mib')} MB"),
    row(
        "lmdeploy",
        "statement",
        "capacity",
        "[BlockManager] max_block_count",
        rf"\[BlockManager\] max_block_count = {count('blocks')}",
    ),
)
