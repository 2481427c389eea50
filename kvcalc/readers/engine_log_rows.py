"""Every wording that the log reader knows, as rows: whose line it is, what it tells, and the pattern that finds it.

A row is tried only on lines that hold one of its ``needles``. Group names carry the unit: ``k_mib`` is a size printed
in MiB (whatever the engine calls it: old llama.cpp writes MB, SGLang and LMCache write GB for it), ``total_named`` names
its own unit, other names are counts or words. Patterns are searched for anywhere in a line, so that no time stamp or
process prefix matters, and every repetition in them is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# start: a new load of a model. context: a new cache for the model that was loaded. setting: groups are settings.
# pairs: every key and value of the line. shape, metadata, width: what the engine read of the model.
# statement: what it says of its cache. part: something that the next statement, or the end, completes.
Role = Literal["start", "context", "setting", "pairs", "shape", "metadata", "width", "statement", "part"]


@dataclass(frozen=True, slots=True)
class Row:
    """One wording. ``role`` says what becomes of its groups."""

    engine: str
    role: Role
    kind: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]


def _row(engine: str, role: Role, kind: str, needles: str | tuple[str, ...], *patterns: str) -> Row:
    return Row(engine, role, kind, (needles,) if isinstance(needles, str) else needles, re.compile("".join(patterns), re.ASCII))


def _n(name: str) -> str:
    return rf"\s{{0,40}}(?P<{name}>\d{{1,3}}(?:,\d{{3}}){{1,6}}|\d{{1,18}})"


def _size(name: str) -> str:
    return rf"\s{{0,40}}(?P<{name}>\d{{1,12}}(?:\.\d{{1,9}})?)"


_WORD = r"\w{1,12}"
_NAMED_SIZE = r"\d{1,9}(?:\.\d{1,9})? [KMGT]?i?B"
# llama.cpp names the function that speaks; the name changed from release to release.
_SPEAKER = r"\b(?:llama_context|llama_new_context_with_model|llama_init_from_model|llama_context_kv_self)"
_CONTEXT_KEYS = "n_ctx_per_seq|n_ctx_seq|n_ctx|n_batch|n_ubatch|n_seq_max|flash_attn|kv_unified|n_rs_seq"
_SHAPE_KEYS = (
    "arch|n_ctx_train|n_embd_head_k_mla|n_embd_head_v_mla|n_embd_head_k|n_embd_head_v|n_embd_k_gqa|n_embd_v_gqa|n_embd"
    r"|n_layer|n_head_kv|n_head|n_swa|n_lora_kv|ssm_d_conv|ssm_d_inner|ssm_d_state|ssm_n_group|general\.name"
)
_SELF_SIZE = ("KV self size", "kv self size")

LLAMACPP = (
    _row("llama.cpp", "start", "model", "llama_model_loader: loaded meta data", r"llama_model_loader: loaded meta data with"),
    _row("llama.cpp", "context", "context", "constructing llama_context", r"constructing llama_context(?!_)"),
    _row(
        "llama.cpp",
        "setting",
        "release",
        ("build: ", "build_info: b"),
        r"\bbuild(?:_info)?: b?(?P<release>\d{3,6})(?:-| \()[0-9a-f]{6,40}",
    ),
    _row(
        "llama.cpp",
        "metadata",
        "metadata",
        "llama_model_loader: - kv",
        r"llama_model_loader: - kv\s{1,9}\d{1,5}:\s{1,99}(?P<key>[\w.\-]{1,200})",
        r"\s{1,20}(?P<type>[a-z]\w{1,5}(?:\[\w{1,5},\d{1,9}\])?)\s{1,20}= (?P<value>.{0,66000})",
    ),
    _row(
        "llama.cpp",
        "shape",
        "shape",
        ("print_info: ", "llm_load_print_meta: "),
        rf"(?:print_info|llm_load_print_meta): (?P<key>{_SHAPE_KEYS})\s{{0,20}}= (?P<value>.{{1,66000}})",
    ),
    _row(
        "llama.cpp",
        "pairs",
        "context",
        ("llama_context: ", "llama_new_context_with_model: ", "llama_init_from_model: "),
        rf"{_SPEAKER}: (?P<key>{_CONTEXT_KEYS})\s{{0,20}}= (?P<value>\S{{1,20}})",
    ),
    _row("llama.cpp", "setting", "flash", "Attention was auto, set to", r"was auto, set to (?P<flash_attn>enabled|disabled)"),
    _row("llama.cpp", "setting", "swa", "using full-size SWA cache", r"using (?P<swa_full>full)-size SWA cache"),
    _row("llama.cpp", "setting", "slots", "initializing slots, n_slots", rf"initializing slots, n_slots ={_n('n_slots')}"),
    _row(
        "llama.cpp",
        "part",
        "init",
        "kv_size = ",
        rf"kv_size = {_n('cells')}, .{{0,80}}?type_k = '(?P<k_type>{_WORD})', type_v = '(?P<v_type>{_WORD})', ",
        rf"n_layer ={_n('layers')}",
    ),
    _row(
        "llama.cpp",
        "part",
        "cells",
        "KV cache, size = ",
        rf"creating\s{{1,9}}(?P<cache>\S{{1,20}}) KV cache, size ={_n('cells')} cells",
    ),
    _row(
        "llama.cpp",
        "width",
        "width",
        "n_embd_k_gqa = ",
        r"layer\s{1,9}(?P<layer>\d{1,5}): n_embd_k_gqa = (?P<k>\d{1,9}), n_embd_v_gqa = (?P<v>\d{1,9})",
    ),
    _row("llama.cpp", "part", "buffer", "KV buffer size = ", rf"(?P<device>\S{{1,60}}) KV buffer size ={_size('total_mib')} MiB"),
    _row(
        "llama.cpp", "part", "rs_buffer", "RS buffer size = ", rf"(?P<device>\S{{1,60}}) RS buffer size ={_size('total_mib')} MiB"
    ),
    _row(
        "llama.cpp",
        "statement",
        "kv",
        " cells, ",
        rf"\bsize ={_size('total_mib')} MiB \({_n('cells')} cells,{_n('layers')} layers,{_n('seqs')}",
        rf"(?:/{_n('streams')})? seqs\), ",
        rf"K \((?P<k_type>{_WORD})\):{_size('k_mib')} MiB, V \((?P<v_type>{_WORD})\):{_size('v_mib')} MiB",
    ),
    _row(
        "llama.cpp",
        "statement",
        "state",
        " cells, ",
        rf"\bsize ={_size('total_mib')} MiB \({_n('cells')} cells,{_n('layers')} layers,{_n('seqs')} seqs",
        rf"(?:{_n('rs_seq')} rs_seq)?\), ",
        rf"R \((?P<r_type>{_WORD})\):{_size('r_mib')} MiB, S \((?P<s_type>{_WORD})\):{_size('s_mib')} MiB",
        rf"(?:, P \(\w{{1,12}}\):{_size('p_mib')} MiB)?",
    ),
    _row(
        "llama.cpp",
        "statement",
        "kv",
        _SELF_SIZE,
        rf"[Kk][Vv] self size\s{{0,9}}={_size('total_mib')} (?:MiB|MB), K \((?P<k_type>{_WORD})\):{_size('k_mib')} (?:MiB|MB), ",
        rf"V \((?P<v_type>{_WORD})\):{_size('v_mib')} (?:MiB|MB)",
    ),
    _row(
        "llama.cpp",
        "statement",
        "kv",
        "c^KV (",  # ik_llama.cpp's MLA
        rf"KV self size\s{{0,9}}={_size('total_mib')} MiB, c\^KV \((?P<k_type>{_WORD})\):{_size('k_mib')} MiB",
    ),
    _row("llama.cpp", "statement", "kv", _SELF_SIZE, rf"[Kk][Vv] self size\s{{0,9}}={_size('total_mib')} (?:MiB|MB)\s{{0,9}}$"),
)

# vLLM 0.2 to 0.32.
_VLLM_KEYS = (
    "model|dtype|max_seq_len|max_model_len|tensor_parallel_size|pipeline_parallel_size|data_parallel_size"
    "|decode_context_parallel_size|kv_cache_dtype|enable_prefix_caching|block_size|max_num_batched_tokens|max_num_seqs"
    "|gpu_memory_utilization|num_spec_tokens|num_speculative_tokens|swap_space|num_gpu_blocks_override|method"
)
_PAIR = r"(?<![\w.])['\"]?(?P<key>{})['\"]?(?:=|: )(?P<value>'[^']{{0,400}}'|[^,'\s)}}\]]{{1,100}})"
_AVAILABLE = r"(?P<available_gib>-?\d{1,9}(?:\.\d{1,9})?)"
VLLM = (
    _row("vllm", "start", "api", "vLLM API server version", r"vLLM API server version (?P<version>[\w.+\-]{1,60})"),
    _row(
        "vllm",
        "start",
        "engine",
        "LLM engine (v",
        r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[\w.+\-]{1,60})\) with config",
    ),
    _row("vllm", "pairs", "args", ("LLM engine (v", "non-default args"), _PAIR.format(_VLLM_KEYS)),
    _row(
        "vllm",
        "setting",
        "batched",
        "max_num_batched_tokens=",
        rf"enabled with max_num_batched_tokens={_n('max_num_batched_tokens')}",
    ),
    _row(
        "vllm",
        "setting",
        "async",
        "Asynchronous scheduling is ",
        r"Asynchronous scheduling is (?P<async_scheduling>enabled|disabled)",
    ),
    _row("vllm", "setting", "platform", "detected platform ", r"detected platform (?P<platform>\w{1,20})"),
    _row("vllm", "setting", "length", "Using max model len ", rf"Using max model len {_n('max_model_len')}"),
    _row("vllm", "statement", "available", "vailable KV cache memory: ", rf"[Aa]vailable KV cache memory: {_AVAILABLE} GiB"),
    _row(
        "vllm", "statement", "available", "memory for KV Cache as", rf"reserved {_AVAILABLE} GiB memory for KV Cache as specified"
    ),
    _row("vllm", "statement", "available", "kv_cache_size=", rf"\bkv_cache_size={_AVAILABLE}GiB"),
    _row("vllm", "statement", "available", "reserved for KV Cache is", rf"reserved for KV Cache is {_AVAILABLE}GiB"),
    _row(
        "vllm",
        "statement",
        "capacity",
        "KV cache size: ",
        rf"(?P<device>[A-Z]PU)(?: \+ host)? KV cache size: {_n('tokens')} tokens",
        rf"(?:, Maximum concurrency for {_n('max_len')} tokens per request: (?P<concurrency_x>\d{{1,9}}\.\d\d)x)?",
    ),
    _row(
        "vllm",
        "statement",
        "concurrency",
        "Maximum concurrency for ",
        rf"(?<!tokens, )Maximum concurrency for {_n('max_len')} tokens per request: (?P<concurrency_x>\d{{1,9}}\.\d\d)x",
    ),
    _row(
        "vllm",
        "statement",
        "blocks",
        " blocks: ",
        rf"# [A-Za-z]{{2,10}} blocks: {_n('gpu_blocks')}(?:, # CPU blocks: {_n('cpu_blocks')})?",
    ),
    _row("vllm", "statement", "blocks", "num_gpu_blocks is: ", rf"after num_gpu_blocks is: {_n('gpu_blocks')}"),
    _row(
        "vllm",
        "statement",
        "refusal",
        "max seq len (",
        rf"max seq len \({_n('max_len')}\), \({_size('need_gib')} GiB KV cache is needed, ",
        rf"which is larger than the available KV cache memory \({_AVAILABLE} GiB\)",
        rf"(?:\. Based on the available memory,\s{{0,9}}the estimated maximum model length is {_n('estimated')})?",
    ),
    _row(
        "vllm",
        "statement",
        "refusal_tokens",
        "max seq len (",
        rf"max seq len \({_n('max_len')}\) is larger than the maximum number of tokens that can be stored in ",
        rf"(?:the )?KV cache \({_n('tokens')}\)",
    ),
    _row(
        "vllm",
        "statement",
        "hybrid_block",
        "attention block size to ",
        rf"Setting attention block size to {_n('block_size')} tokens to ensure",
    ),
    _row("vllm", "statement", "padding", "Padding mamba page size by ", rf"Padding mamba page size by{_size('percent_x')}%"),
    _row(
        "lmcache",
        "statement",
        "stored",
        " tokens. size: ",
        rf"Stored {_n('tokens')} out of total {_n('of')} tokens\. size:{_size('total_gib')} [Gg][Bb]",
    ),
)

_SGLANG_KEYS = (
    "model_path|dtype|kv_cache_dtype|tp_size|pp_size|dp_size|page_size|mem_fraction_static|context_length|max_total_tokens"
    "|swa_full_tokens_ratio|mamba_full_memory_ratio|max_running_requests|speculative_num_draft_tokens"
)
SGLANG = (
    _row("sglang", "start", "args", "server_args=ServerArgs(", r"server_args=ServerArgs\("),
    _row("sglang", "pairs", "args", "server_args=ServerArgs(", _PAIR.format(_SGLANG_KEYS)),
    _row(
        "sglang",
        "statement",
        "pool",
        "KV Cache is allocated",
        rf"KV Cache is allocated\. (?:dtype: (?P<dtype>[\w.]{{1,40}}), )?#tokens: {_n('tokens')}, ",
        rf"(?:K size:{_size('k_gib')} GB, V size:{_size('v_gib')} GB|KV size:{_size('total_gib')} GB)",
    ),
    _row(
        "sglang",
        "statement",
        "swa_pool",
        "SWAKVPool mem usage",
        rf"SWAKVPool mem usage:{_size('total_gib')} GB, swa size: {_n('swa_tokens')}, full size: {_n('full_tokens')}",
    ),
    _row(
        "sglang",
        "statement",
        "state",
        "Mamba Cache is allocated",
        rf"Mamba Cache is allocated\.\s{{0,9}}max_mamba_cache_size: {_n('slots')}, ",
        rf"conv_state size:{_size('conv_gib')}\s?GB, ssm_state size:{_size('ssm_gib')}\s?GB",
    ),
    _row("sglang", "statement", "max_tokens", "max_total_num_tokens=", rf"\bmax_total_num_tokens={_n('tokens')}, "),
)

TENSORRT_LLM = (
    _row("tensorrt-llm", "start", "version", "LLM version: ", r"TensorRT[ -]LLM version: (?P<version>[\w.+\-]{1,60})"),
    _row("tensorrt-llm", "setting", "block", "tokens per block: ", rf"Number of tokens per block: {_n('tokens_per_block')}"),
    _row("tensorrt-llm", "setting", "block", "okensPerBlock: ", rf"[tT]okensPerBlock: {_n('tokens_per_block')}"),
    _row("tensorrt-llm", "statement", "blocks", "KV cache primary pool: ", rf"blocks in KV cache primary pool: {_n('blocks')}"),
    _row(
        "tensorrt-llm",
        "statement",
        "paged",
        "paged KV cache (",
        rf"Allocated{_size('total_gib')} GiB for max tokens in paged KV cache \({_n('tokens')}\)",
    ),
    _row("tensorrt-llm", "statement", "bytes", "bytes for k/v cache", rf"Allocate {_n('total_bytes')} bytes for k/v cache"),
    _row(
        "tensorrt-llm", "part", "tokens", "tokens in paged KV cache", rf"Using {_n('tokens')} (?:total )?tokens in paged KV cache"
    ),
)

OLLAMA = (
    _row("ollama", "start", "load", "msg=load request=", r"msg=load request=.{0,3}\{Operation:(?:fit|alloc|commit)"),
    _row("ollama", "start", "estimate", "memory.required.kv=", r"memory\.required\.kv="),
    _row(
        "ollama",
        "pairs",
        "load",
        "msg=load request=",
        rf"\b(?P<key>Parallel|BatchSize|FlashAttention|KvSize|KvCacheType):(?P<value>{_WORD})",
    ),
    _row(
        "ollama", "pairs", "runner", "--ctx-size ", rf"--(?P<key>ctx-size|batch-size|parallel|kv-cache-type) (?P<value>{_WORD})"
    ),
    _row("ollama", "setting", "flash", "--ctx-size ", r" --(?P<flash_attn>flash-attn)"),
    _row(
        "ollama",
        "statement",
        "estimate",
        "memory.required.kv=",
        rf'layers\.model={_n("layers")} .{{0,2000}}?memory\.required\.kv="(?P<total_named>{_NAMED_SIZE})"',
    ),
    _row(
        "ollama",
        "part",
        "device",
        "kv cache",
        rf'msg="kv cache" device=(?P<device>\S{{1,60}}) size="(?P<total_named>{_NAMED_SIZE})"',
    ),
)

ROWS: tuple[Row, ...] = (*LLAMACPP, *VLLM, *SGLANG, *TENSORRT_LLM, *OLLAMA)
UNITS = {"_mib": 2**20, "_gib": 2**30, "_bytes": 1, "_x": 10**6}  # ratios are held in millionths
SUFFIXES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
