"""Every wording that the log reader knows has a sample line of its own here: a row without one fails."""

from __future__ import annotations

from collections import Counter

import pytest

from kvcalc.readers.engine_log_row import Row
from kvcalc.readers.engine_log_rows import ROWS

KV = "K (f16): 256.00 MiB, V (f16): 256.00 MiB"
TABLE = "common_memory_breakdown_print: |   - "
REQUEST = 'msg=load request="{Operation:commit LoraPath:[] Parallel:1 BatchSize:512 FlashAttention:true KvSize:8192 KvCacheType:"'
RUNNER = 'msg="starting llama server" cmd="ollama runner --model m --ctx-size 8192 --batch-size 512 --flash-attn --parallel 4"'
SERVER = 'msg="starting llama-server" cmd="/lib/llama-server --model m -c 8192 -np 1 --cache-type-k q8_0 -ub 512"'
OFFLOAD = 'msg=offload layers.model=37 layers.offload=37 memory.required.full="62.4 GiB" memory.required.kv="450.0 MiB"'
STORE = "max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (4096)"
NEED = "max seq len (8192), (4.54 GiB KV cache is needed, which is larger than the available KV cache memory (1.71 GiB). "
SWA = "SWAKVPool mem usage: 36.69 GB, swa size: 171008, full size: 213761"
MAMBA = "Mamba Cache is allocated. max_mamba_cache_size: 5, conv_state size: 0.02GB, ssm_state size: 0.84GB"

# engine, role and kind of a row, and which of several → a line that it reads, and a group of it
SAMPLES: dict[tuple[str, int], tuple[str, str, str]] = {
    ("llama.cpp start model", 1): ("llama_model_loader: loaded meta data with 33 key-value pairs", "", ""),
    ("llama.cpp start model", 2): ("llama_model_load_internal: format     = ggjt v3 (latest)", "", ""),
    ("llama.cpp shape old_shape", 1): ("llama_model_load_internal: n_embd     = 5120", "value", "5120"),
    ("llama.cpp setting old_context", 1): ("llm_load_print_meta: n_ctx      = 2048", "n_ctx", "2048"),
    ("llama.cpp statement kv", 1): ("llama_model_load: memory_size =   512.00 MB, n_mem = 16384", "positions", "16384"),
    ("llama.cpp part breakdown", 1): ("memory_breakdown_print: | memory breakdown [MiB] | total   free", "", ""),
    ("llama.cpp part breakdown", 2): (
        TABLE + "CUDA0 (RTX 2060)   |  5738 = 5141 + (8392 =  4155 +    4096 +     140) +       -7794 |",
        "total_mib",
        "4096",
    ),
    ("llama.cpp part breakdown", 3): (TABLE + "Host | 329 =   281 +      7 +      48                |", "total_mib", "7"),
    ("llama.cpp statement projected", 1): ("projected to use 8392 MiB of device memory vs. 5141 MiB of free", "free_mib", "5141"),
    ("llama.cpp context context", 1): ("llama_context: constructing llama_context", "", ""),
    ("llama.cpp setting release", 1): ("build: 6182 (1fe00296f) with cc", "release", "6182"),
    ("llama.cpp metadata metadata", 1): ("llama_model_loader: - kv   4: llama.block_count u32 = 32", "value", "32"),
    ("llama.cpp shape shape", 1): ("print_info: n_embd_k_gqa     = [0, 512]", "value", "[0, 512]"),
    ("llama.cpp pairs context", 1): ("llama_context: n_ctx_seq     = 8192", "value", "8192"),
    ("llama.cpp start server", 1): (SERVER, "", ""),
    ("llama.cpp pairs server", 1): (SERVER, "value", "8192"),
    ("llama.cpp setting flash", 1): ("Flash Attention was auto, set to enabled", "flash_attn", "enabled"),
    ("llama.cpp setting swa", 1): ("llama_kv_cache_iswa: using full-size SWA cache (ref: a page)", "swa_full", "full"),
    ("llama.cpp setting slots", 1): ("srv init: initializing slots, n_slots = 4", "n_slots", "4"),
    ("llama.cpp part init", 1): (
        "llama_kv_cache_init: kv_size = 8000, offload = 1, type_k = 'f16', type_v = 'q8_0', n_layer = 6, can_shift = 1",
        "v_type",
        "q8_0",
    ),
    ("llama.cpp part cells", 1): ("creating     SWA KV cache, size = 640 cells", "cells", "640"),
    ("llama.cpp width width", 1): ("llama_kv_cache_init: layer 3: n_embd_k_gqa = 192, n_embd_v_gqa = 128", "v", "128"),
    ("llama.cpp part buffer", 1): ("llama_kv_cache:    Vulkan0 KV buffer size =    96.00 MiB", "total_mib", "96.00"),
    ("llama.cpp part rs_buffer", 1): ("llama_memory_recurrent: CUDA0 RS buffer size =  19.27 MiB", "total_mib", "19.27"),
    ("llama.cpp statement kv", 2): (f"size =  512.00 MiB (  4096 cells,  32 layers,  4/1 seqs), {KV}", "streams", "1"),
    ("llama.cpp statement state", 1): (
        "size = 19.27 MiB ( 1 cells, 24 layers, 1 seqs  2 rs_seq), R (f32): 1.27 MiB, S (f32): 18.00 MiB",
        "rs_seq",
        "2",
    ),
    ("llama.cpp statement kv", 3): (f"KV self size  =  512.00 MiB, {KV}", "v_mib", "256.00"),
    ("llama.cpp statement kv", 4): ("KV self size  =  64.12 MiB, c^KV (q8_0):   64.12 MiB, kv^T: not used", "k_type", "q8_0"),
    ("llama.cpp statement kv", 5): ("llama_new_context_with_model: kv self size  = 1600.00 MB", "total_mib", "1600.00"),
    ("vllm start api", 1): ("vLLM API server version 0.11.0", "version", "0.11.0"),
    ("vllm start api", 2): ("non-default args: {'model': 'm'}", "", ""),
    ("vllm start engine", 1): ("Initializing a V1 LLM engine (v0.11.0) with config: model='m'", "version", "0.11.0"),
    ("vllm pairs args", 1): ("Initializing a V1 LLM engine (v0.11.0) with config: max_seq_len=4096, x=1", "value", "4096"),
    ("vllm setting batched", 1): (
        "Chunked prefill is enabled with max_num_batched_tokens=8192.",
        "max_num_batched_tokens",
        "8192",
    ),
    ("vllm setting async", 1): ("Asynchronous scheduling is enabled.", "async_scheduling", "enabled"),
    ("vllm setting platform", 1): ("Automatically detected platform cuda.", "platform", "cuda"),
    ("vllm setting length", 1): ("Using max model len 262144", "max_model_len", "262144"),
    ("vllm setting state_type", 1): ("Updating mamba_ssm_cache_dtype to 'float16' for", "mamba_ssm_cache_dtype", "float16"),
    ("vllm setting context_ranks", 1): (
        "Multiplying the GPU KV cache size by the dcp_world_size 8.",
        "decode_context_parallel_size",
        "8",
    ),
    ("vllm setting hybrid", 1): ("Turning off hybrid kv cache manager because", "disable_hybrid_kv_cache_manager", "off"),
    ("vllm memory available", 1): ("Available KV cache memory: 11.55 GiB", "available_gib", "11.55"),
    ("vllm memory available", 2): ("reserved 8.00 GiB memory for KV Cache as specified", "available_gib", "8.00"),
    ("vllm memory available", 3): ("total_gpu_memory=1.00GiB kv_cache_size=5.25GiB", "available_gib", "5.25"),
    ("vllm memory available", 4): ("the rest of the memory reserved for KV Cache is 5.25GiB.", "available_gib", "5.25"),
    ("vllm statement in_use", 1): ("Current kv cache memory in use is 59212694937 bytes.", "available_bytes", "59212694937"),
    ("vllm statement capacity", 1): (
        "GPU KV cache size: 138,080 tokens, Maximum concurrency for 40,960 tokens per request: 3.37x",
        "concurrency_x",
        "3.37",
    ),
    ("vllm statement concurrency", 1): ("Maximum concurrency for 32,768 tokens per request: 7.86x", "max_len", "32,768"),
    ("vllm statement blocks", 1): ("# GPU blocks: 27947, # CPU blocks: 2048", "cpu_blocks", "2048"),
    ("vllm statement blocks", 2): ("after num_gpu_blocks is: 512", "gpu_blocks", "512"),
    ("vllm statement refusal", 1): (
        NEED + "Based on the available memory, the estimated maximum model length is 67792.",
        "estimated",
        "67792",
    ),
    ("vllm statement refusal_tokens", 1): (STORE, "tokens", "4096"),
    ("vllm statement hybrid_block", 1): ("Setting attention block size to 544 tokens to ensure", "block_size", "544"),
    ("vllm statement padding", 1): ("Padding mamba page size by 1.49% to ensure", "percent_x", "1.49"),
    ("lmcache statement stored", 1): ("Stored 512 out of total 512 tokens. size: 0.0625 gb, cost 1.0 ms", "total_gib", "0.0625"),
    ("sglang start args", 1): ("server_args=ServerArgs(model_path='m')", "", ""),
    ("sglang pairs args", 1): ("server_args=ServerArgs(model_path='m', page_size=64)", "value", "'m'"),
    ("sglang statement pool", 1): ("KV Cache is allocated. #tokens: 10, K size: 8.38 GB, V size: 5.59 GB", "v_gib", "5.59"),
    ("sglang statement swa_pool", 1): (SWA, "full_tokens", "213761"),
    ("sglang statement state", 1): (f"{MAMBA} intermediate_ssm_state_cache size: 2.25GB", "intermediate_gib", "2.25"),
    ("sglang statement max_tokens", 1): ("max_total_num_tokens=300288, chunked_prefill_size=8192", "tokens", "300288"),
    ("tensorrt-llm start version", 1): ("TensorRT LLM version: 1.2.0rc3", "version", "1.2.0rc3"),
    ("tensorrt-llm setting block", 1): ("Number of tokens per block: 32.", "tokens_per_block", "32"),
    ("tensorrt-llm setting block", 2): ("tokensPerBlock: 64", "tokens_per_block", "64"),
    ("tensorrt-llm setting block", 3): ("65 [window size=2051], tokens per block=32, primary blocks=9", "tokens_per_block", "32"),
    ("tensorrt-llm statement free", 1): (
        "Memory usage when calculating max tokens in paged kv cache: total: 39.39 GiB, available: 21.89 GiB",
        "available_gib",
        "21.89",
    ),
    ("tensorrt-llm statement blocks", 1): ("Number of blocks in KV cache primary pool: 631", "blocks", "631"),
    ("tensorrt-llm statement paged", 1): ("Allocated 4.53 GiB for max tokens in paged KV cache (395776).", "tokens", "395776"),
    ("tensorrt-llm statement bytes", 1): ("Allocate 131072000 bytes for k/v cache.", "total_bytes", "131072000"),
    ("tensorrt-llm part tokens", 1): ("Using 1000 total tokens in paged KV cache", "tokens", "1000"),
    ("ollama version server", 1): ('msg="Listening on [::]:11434 (version 0.20.2)"', "version", "0.20.2"),
    ("ollama start engine", 1): (REQUEST, "", ""),
    ("ollama start estimate", 1): (OFFLOAD, "", ""),
    ("ollama pairs load", 1): (REQUEST, "value", "1"),
    ("ollama pairs runner", 1): (RUNNER, "value", "8192"),
    ("ollama setting flash", 1): (RUNNER, "flash_attn", "flash-attn"),
    ("ollama statement estimate", 1): (OFFLOAD, "total_named", "450.0 MiB"),
    ("ollama statement layers", 1): (
        'msg=memory success=true required.CPU.Graph=1 required.CUDA0.Cache="[16 8 0]" required.CUDA0.Graph=9',
        "caches",
        'required.CUDA0.Cache="[16 8 0]" required.CUDA0.Graph=9',
    ),
    ("ollama part device", 1): ('msg="kv cache" device=CUDA0 size="1.9 GiB"', "total_named", "1.9 GiB"),
    ("tgi statement capacity", 1): ("text_generation_launcher: KV-cache blocks: 123449, size: 1", "blocks", "123449"),
    ("tgi statement capacity", 2): ("Setting max batch total tokens to 123449", "tokens", "123449"),
    ("lmdeploy part block", 1): ("[TM][INFO] [BlockManager] block_size = 64 MB", "block_mib", "64"),
    ("lmdeploy statement capacity", 1): ("[TM][INFO] [BlockManager] max_block_count = 2500", "blocks", "2500"),
}


def keyed() -> dict[tuple[str, int], Row]:
    """Rows by what they are, and which of several."""
    found, seen = {}, Counter[str]()
    for row in ROWS:
        name = f"{row.engine} {row.role} {row.kind}"
        seen[name] += 1
        found[name, seen[name]] = row
    return found


ROW = keyed()


def test_every_row_has_a_sample() -> None:
    assert set(SAMPLES) == set(ROW)


@pytest.mark.parametrize("key", SAMPLES, ids=lambda key: f"{key[0]} {key[1]}")
def test_a_row_reads_its_sample(key: tuple[str, int]) -> None:
    line, group, value = SAMPLES[key]
    row = ROW[key]
    match = row.pattern.search(line)
    assert any(needle in line for needle in row.needles)
    assert match is not None
    assert match.groupdict().get(group, "") == value
