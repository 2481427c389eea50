"""llama.cpp's wordings, from 2023 on: its server and CLI, forks, and the programs that wrap it."""

from __future__ import annotations

from kvcalc.readers.engine_log_row import WORD, count, row, size

# llama.cpp names the function that speaks; the name changed from release to release.
_SPEAKER = r"\b(?:llama_context|llama_new_context_with_model|llama_init_from_model|llama_context_kv_self)"
_CONTEXT_KEYS = "n_ctx_per_seq|n_ctx_seq|n_ctx|n_batch|n_ubatch|n_seq_max|flash_attn|kv_unified|n_rs_seq"
_SHAPE_KEYS = (
    "arch|n_ctx_train|n_ff|n_embd_head_k_mla|n_embd_head_v_mla|n_embd_head_k|n_embd_head_v|n_embd_k_gqa|n_embd_v_gqa|n_embd"
    r"|n_layer|n_head_kv|n_head|n_swa|n_lora_kv|ssm_d_conv|ssm_d_inner|ssm_d_state|ssm_n_group|general\.name"
)
_OLD_SPEAKER = r"\b(?:llama_model_load_internal|llama_model_load|llm_load_print_meta)"  # of 2023
_OLD_NEEDLES = ("llama_model_load_internal: ", "llama_model_load: ", "llm_load_print_meta: ")
_TABLE = r"memory_breakdown_print: \|\s{1,9}- (?P<device>[^|]{1,80}?)\s{0,40}\|"
_SELF_SIZE = ("KV self size", "kv self size")

LLAMACPP = (
    row("llama.cpp", "start", "model", "llama_model_loader: loaded meta data", r"llama_model_loader: loaded meta data with"),
    row("llama.cpp", "start", "model", "llama_model_load_internal: format", r"llama_model_load_internal: format\s{1,9}="),
    row(
        "llama.cpp",
        "shape",
        "old_shape",
        _OLD_NEEDLES,
        rf"{_OLD_SPEAKER}: (?P<key>n_embd|n_head_kv|n_head|n_layer|n_gqa)\s{{0,20}}= (?P<value>\d{{1,9}})",
    ),
    row(
        "llama.cpp",
        "setting",
        "old_context",
        _OLD_NEEDLES,
        rf"{_OLD_SPEAKER}: n_ctx\s{{0,20}}= (?P<n_ctx>\d{{1,9}})",
    ),
    row(
        "llama.cpp",
        "statement",
        "kv",
        "memory_size = ",
        rf"llama_model_load: memory_size ={size('total_mib')} MB, n_mem = (?P<positions>\d{{1,12}})",
    ),
    row("llama.cpp", "part", "breakdown", "| memory breakdown [MiB]", r"\| memory breakdown \[MiB\]"),
    row(
        "llama.cpp",
        "part",
        "breakdown",
        "memory_breakdown_print: |",
        _TABLE,
        rf"\s{{0,40}}-?\d{{1,9}} =\s{{0,40}}-?\d{{1,9}} \+ \({size('self_mib')} ={size('model_mib')} \+{size('total_mib')} \+",
    ),
    row(
        "llama.cpp",
        "part",
        "breakdown",
        "memory_breakdown_print: |",
        _TABLE,
        rf"{size('self_mib')} ={size('model_mib')} \+{size('total_mib')} \+{size('compute_mib')}\s{{0,40}}\|",
    ),
    row(
        "llama.cpp",
        "statement",
        "projected",
        "projected to use ",
        rf"projected to use{size('total_mib')} MiB of device memory vs\.{size('free_mib')} MiB",
    ),
    row("llama.cpp", "context", "context", "constructing llama_context", r"constructing llama_context(?!_)"),
    row(
        "llama.cpp",
        "setting",
        "release",
        ("build: ", "build_info: b"),
        r"\bbuild(?:_info)?: b?(?P<release>\d{3,6})(?:-| \()[0-9a-f]{6,40}",
    ),
    row(
        "llama.cpp",
        "metadata",
        "metadata",
        "llama_model_loader: - kv",
        r"llama_model_loader: - kv\s{1,9}\d{1,5}:\s{1,99}(?P<key>[\w.\-]{1,200})",
        r"\s{1,20}(?P<type>[a-z]\w{1,5}(?:\[\w{1,5},\d{1,9}\])?)\s{1,20}= (?P<value>.{0,66000})",
    ),
    row(
        "llama.cpp",
        "shape",
        "shape",
        ("print_info: ", "llm_load_print_meta: "),
        rf"(?:print_info|llm_load_print_meta): (?P<key>{_SHAPE_KEYS})\s{{0,20}}= (?P<value>.{{1,66000}})",
    ),
    row(
        "llama.cpp",
        "pairs",
        "context",
        ("llama_context: ", "llama_new_context_with_model: ", "llama_init_from_model: "),
        rf"{_SPEAKER}: (?P<key>{_CONTEXT_KEYS})\s{{0,20}}= (?P<value>\S{{1,20}})",
    ),
    row("llama.cpp", "start", "server", 'msg="starting llama-server"', r'msg="starting llama-server"'),
    row(
        "llama.cpp",
        "pairs",
        "server",
        'msg="starting llama-server"',
        r"(?<=\s)--?(?P<key>c|np|b|ub|ctx-size|parallel|batch-size|ubatch-size|cache-type-k|cache-type-v|flash-attn)",
        rf" (?P<value>{WORD})",
    ),
    row("llama.cpp", "setting", "flash", "Attention was auto, set to", r"was auto, set to (?P<flash_attn>enabled|disabled)"),
    row("llama.cpp", "setting", "swa", "using full-size SWA cache", r"using (?P<swa_full>full)-size SWA cache"),
    row("llama.cpp", "setting", "slots", "initializing slots, n_slots", rf"initializing slots, n_slots ={count('n_slots')}"),
    row(
        "llama.cpp",
        "part",
        "init",
        "kv_size = ",
        rf"kv_size = {count('cells')}, .{{0,80}}?type_k = '(?P<k_type>{WORD})', type_v = '(?P<v_type>{WORD})', ",
        rf"n_layer ={count('layers')}",
    ),
    row(
        "llama.cpp",
        "part",
        "cells",
        "KV cache, size = ",
        rf"creating\s{{1,9}}(?P<cache>\S{{1,20}}) KV cache, size ={count('cells')} cells",
    ),
    row(
        "llama.cpp",
        "width",
        "width",
        "n_embd_k_gqa = ",
        r"layer\s{1,9}(?P<layer>\d{1,5}): n_embd_k_gqa = (?P<k>\d{1,9}), n_embd_v_gqa = (?P<v>\d{1,9})",
    ),
    row("llama.cpp", "part", "buffer", "KV buffer size = ", rf"(?P<device>\S{{1,60}}) KV buffer size ={size('total_mib')} MiB"),
    row(
        "llama.cpp", "part", "rs_buffer", "RS buffer size = ", rf"(?P<device>\S{{1,60}}) RS buffer size ={size('total_mib')} MiB"
    ),
    row(
        "llama.cpp",
        "statement",
        "kv",
        " cells, ",
        rf"\bsize ={size('total_mib')} MiB \({count('cells')} cells,{count('layers')} layers,{count('seqs')}",
        rf"(?:/{count('streams')})? seqs\), ",
        rf"K \((?P<k_type>{WORD})\):{size('k_mib')} MiB, V \((?P<v_type>{WORD})\):{size('v_mib')} MiB",
    ),
    row(
        "llama.cpp",
        "statement",
        "state",
        " cells, ",
        rf"\bsize ={size('total_mib')} MiB \({count('cells')} cells,{count('layers')} layers,{count('seqs')} seqs",
        rf"(?:{count('rs_seq')} rs_seq)?\), ",
        rf"R \((?P<r_type>{WORD})\):{size('r_mib')} MiB, S \((?P<s_type>{WORD})\):{size('s_mib')} MiB",
        rf"(?:, P \(\w{{1,12}}\):{size('p_mib')} MiB)?",
    ),
    row(
        "llama.cpp",
        "statement",
        "kv",
        _SELF_SIZE,
        rf"[Kk][Vv] self size\s{{0,9}}={size('total_mib')} (?:MiB|MB), K \((?P<k_type>{WORD})\):{size('k_mib')} (?:MiB|MB), ",
        rf"V \((?P<v_type>{WORD})\):{size('v_mib')} (?:MiB|MB)",
    ),
    row(
        "llama.cpp",
        "statement",
        "kv",
        "c^KV (",  # ik_llama.cpp's MLA
        rf"KV self size\s{{0,9}}={size('total_mib')} MiB, c\^KV \((?P<k_type>{WORD})\):{size('k_mib')} MiB",
    ),
    row("llama.cpp", "statement", "kv", _SELF_SIZE, rf"[Kk][Vv] self size\s{{0,9}}={size('total_mib')} (?:MiB|MB)\s{{0,9}}$"),
)
