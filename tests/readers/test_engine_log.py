"""The log reader: every engine's wordings, whatever stands before them, in one pass and flat memory."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from kvcalc.core.log_facts import Beginning, Load, Statement
from kvcalc.errors import LogError
from kvcalc.readers.engine_log import LOADS_MAX, STATEMENTS_MAX, read_log, read_log_file
from kvcalc.readers.engine_log_bytes import CHUNK, LINE_MAX

CAPACITY = "GPU KV cache size: 163,840 tokens, Maximum concurrency for 32,768 tokens per request: 5.00x"


def load_of(text: str | bytes) -> Load:
    loads = loads_of(text)
    assert len(loads) == 1
    return loads[0]


def loads_of(text: str | bytes) -> tuple[Load, ...]:
    return read_log(io.BytesIO(text.encode() if isinstance(text, str) else text)).loads


def printed(statement: Statement) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value.text for name, value in statement.values.items()}


LINES = {
    # llama.cpp, by release
    "llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  2/1 seqs), K (f16):  256.00 MiB, V (q8_0):  136.00 MiB": (
        "llama.cpp",
        "kv",
        {"total_mib": "512.00", "cells": "4096", "layers": "32", "seqs": "2", "streams": "1", "k_type": "f16", "k_mib": "256.00"}
        | {"v_type": "q8_0", "v_mib": "136.00"},
    ),
    "llama_kv_cache_unified: size =   23.44 MiB (  8000 cells,   6 layers,  1 seqs), "
    "K (f16):   11.72 MiB, V (f16):   11.72 MiB": (
        "llama.cpp",
        "kv",
        {"total_mib": "23.44", "cells": "8000", "layers": "6", "seqs": "1", "k_type": "f16", "k_mib": "11.72"}
        | {"v_type": "f16", "v_mib": "11.72"},
    ),
    "llama_init_from_model: KV self size  =  234.38 MiB, K (f16):  140.62 MiB, V (f16):   93.75 MiB": (
        "llama.cpp",
        "kv",
        {"total_mib": "234.38", "k_type": "f16", "k_mib": "140.62", "v_type": "f16", "v_mib": "93.75"},
    ),
    "llama_new_context_with_model: kv self size  =  256.00 MB": ("llama.cpp", "kv", {"total_mib": "256.00"}),
    "llama_new_context_with_model: KV self size  = 4666.50 MiB, c^KV (q8_0): 4666.50 MiB, kv^T: not used": (
        "llama.cpp",
        "kv",
        {"total_mib": "4666.50", "k_type": "q8_0", "k_mib": "4666.50"},
    ),
    "llama_memory_recurrent: size =  301.50 MiB (     4 cells,  48 layers,  4 seqs  2 rs_seq), R (f32):   13.50 MiB, "
    "S (f32):  288.00 MiB, P (f32):    0.00 MiB": (
        "llama.cpp",
        "state",
        {"total_mib": "301.50", "cells": "4", "layers": "48", "seqs": "4", "rs_seq": "2", "r_type": "f32", "r_mib": "13.50"}
        | {"s_type": "f32", "s_mib": "288.00", "p_mib": "0.00"},
    ),
    # vLLM
    CAPACITY: ("vllm", "capacity", {"device": "GPU", "tokens": "163,840", "max_len": "32,768", "concurrency_x": "5.00"}),
    "CPU KV cache size: 32,768 tokens": ("vllm", "capacity", {"device": "CPU", "tokens": "32,768"}),
    "Maximum concurrency for 4096 tokens per request: 41.14x": (
        "vllm",
        "concurrency",
        {"max_len": "4096", "concurrency_x": "41.14"},
    ),
    "Available KV cache memory: 2.89 GiB": ("vllm", "available", {"available_gib": "2.89"}),
    "the rest of the memory reserved for KV Cache is 8.77GiB.": ("vllm", "available", {"available_gib": "8.77"}),
    "# GPU blocks: 378, # CPU blocks: 1638": ("vllm", "blocks", {"gpu_blocks": "378", "cpu_blocks": "1638"}),
    "# cuda blocks: 33660": ("vllm", "blocks", {"gpu_blocks": "33660"}),
    "vllm cache_config_info with initialization after num_gpu_blocks is: 286": ("vllm", "blocks", {"gpu_blocks": "286"}),
    "ValueError: To serve at least one request with the models's max seq len (262144), (24.00 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (8.04 GiB). Based on the available memory, the estimated maximum model length is "
    "87840. Try increasing": (
        "vllm",
        "refusal",
        {"max_len": "262144", "need_gib": "24.00", "available_gib": "8.04", "estimated": "87840"},
    ),
    "The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (6048).": (
        "vllm",
        "refusal_tokens",
        {"max_len": "8192", "tokens": "6048"},
    ),
    "Setting attention block size to 672 tokens to ensure that attention page size is >= mamba page size.": (
        "vllm",
        "hybrid_block",
        {"block_size": "672"},
    ),
    "Padding mamba page size by 2.13% to ensure that": ("vllm", "padding", {"percent_x": "2.13"}),
    "Stored 1792 out of total 1792 tokens. size: 0.0904 gb, cost 1 ms": (
        "lmcache",
        "stored",
        {"tokens": "1792", "of": "1792", "total_gib": "0.0904"},
    ),
    # SGLang
    "KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB": (
        "sglang",
        "pool",
        {"tokens": "367404", "k_gib": "8.23", "v_gib": "8.23"},
    ),
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 383872, KV size: 19.36 GB": (
        "sglang",
        "pool",
        {"dtype": "torch.bfloat16", "tokens": "383872", "total_gib": "19.36"},
    ),
    "SWAKVPool mem usage: 3.18 GB, swa size: 29664, full size: 37081": (
        "sglang",
        "swa_pool",
        {"total_gib": "3.18", "swa_tokens": "29664", "full_tokens": "37081"},
    ),
    "Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.09GB, ssm_state size: 6.46GB ": (
        "sglang",
        "state",
        {"slots": "48", "conv_gib": "0.09", "ssm_gib": "6.46"},
    ),
    "max_total_num_tokens=26089, chunked_prefill_size=8192": ("sglang", "max_tokens", {"tokens": "26089"}),
    # TensorRT-LLM
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).": (
        "tensorrt-llm",
        "paged",
        {"total_gib": "16.05", "tokens": "263008"},
    ),
    "[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 8219": ("tensorrt-llm", "blocks", {"blocks": "8219"}),
    # ollama
    'msg=offload library=cuda layers.requested=-1 layers.model=62 memory.required.kv="9.5 GiB" memory.x="1 GiB"': (
        "ollama",
        "estimate",
        {"layers": "62", "total_named": "9.5"},
    ),
    'msg="kv cache" device=CUDA0 size="448.0 MiB"': ("ollama", "device", {"part_0": "448.0"}),
}
PREFIXES = {
    "bare": "{}",
    "time": "INFO 07-30 11:56:04 [kv_cache_utils.py:637] {}",
    "rank": "(EngineCore_DP0 pid=178) (Worker_TP1 pid=3) {}",
    "colour": "\x1b[1;36m(EngineCore pid=199)\x1b[0;0m \x1b[32mINFO\x1b[0m {}\x1b[0m",
    "compose": "vllm-1  | 2026-01-01T00:00:00.123Z {}",
    "journald": "Sep 11 01:16:08 lena ollama[1884]: {}",
    "kubernetes": "2026-04-19T12:09:51.205000001Z stderr F {}",
    "supervisor": "[vllm] {}",
    "timestamped": "0.04.051.617 I {}",
    "windows": "{}\r",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:40])
def test_every_wording_is_read_behind_every_prefix(line: str, prefix: str) -> None:
    engine, kind, values = LINES[line]
    load = load_of(f"noise\n{prefix.format(line)}\n")
    assert (load.engine, len(load.statements)) == (engine, 1)
    statement = load.statements[0]
    assert (statement.kind, statement.line) == (kind, 2)
    assert printed(statement) == values


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:40])
def test_a_docker_json_line_is_unwrapped(line: str) -> None:
    record = json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01T00:00:00Z"})
    assert load_of(record).statements[0].kind == LINES[line][1]


def test_sizes_are_binary_whatever_the_engine_calls_them() -> None:
    k = load_of("KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB").statements[0].figure("k_gib")
    assert k is not None
    assert k.covers(367404 * 94 * 1 * 128 * 2)  # Qwen3-235B over 4 ranks
    assert not k.covers(8_230_000_000)


def test_the_settings_of_a_vllm_start() -> None:
    load = load_of(
        "vLLM API server version 0.11.0\n"
        "non-default args: {'host': '0.0.0.0', 'model': 'Qwen/Qwen3-32B', 'max_num_seqs': 8, 'block_size': 32}\n"
        "Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-32B', speculative_config=SpeculativeConfig("
        "method='eagle', model='draft', num_spec_tokens=3), dtype=torch.bfloat16, max_seq_len=40960, tensor_parallel_size=2, "
        "kv_cache_dtype=auto, quantization=None\n"
        "Chunked prefill is enabled with max_num_batched_tokens=8192.\n" + CAPACITY
    )
    assert load.version == "0.11.0"
    assert load.settings["model"].value == "Qwen/Qwen3-32B"
    assert {name: load.setting(name) for name in ("block_size", "tensor_parallel_size", "max_seq_len", "method")} == {
        "block_size": "32",
        "tensor_parallel_size": "2",
        "max_seq_len": "40960",
        "method": "eagle",
    }
    assert load.settings["max_num_batched_tokens"].line == 4
    assert "quantization" not in load.settings


def test_the_settings_and_the_model_of_a_llama_cpp_start() -> None:
    load = load_of(
        "build: 4600 (0c1e5709) with cc\n"
        "llama_model_loader: loaded meta data with 25 key-value pairs and 291 tensors\n"
        "llama_model_loader: - kv   0:                       general.architecture str              = llama\n"
        "llama_model_loader: - kv   4:                          llama.block_count u32              = 32\n"
        "llama_model_loader: - kv   5:              llama.attention.head_count_kv arr[i32,3]       = [0, 0, 8]\n"
        "llama_model_loader: - kv   6:         llama.rope.dimension_sections arr[i32,300] = [0, 0, 8, ...\n"
        "llama_model_loader: - kv   7:                      tokenizer.ggml.tokens arr[str,3]       = [a, b, c]\n"
        "llama_model_loader: - kv   8:                           llama.rope.scale f32              = 0.5\n"
        "print_info: n_head_kv        = [0, 0, 8]\n"
        "llama_init_from_model: n_ctx         = 1024\n"
        "llama_init_from_model: flash_attn    = 0\n"
        "llama_kv_cache_init: kv_size = 1024, offload = 1, type_k = 'f16', type_v = 'f16', n_layer = 6, can_shift = 1\n"
        "llama_kv_cache_init: layer 0: n_embd_k_gqa = 192, n_embd_v_gqa = 128\n"
        "llama_kv_cache_init:        CPU KV buffer size =     3.00 MiB\n"
        "llama_init_from_model: KV self size  =    3.00 MiB, K (f16):    1.50 MiB, V (f16):    1.50 MiB\n"
    )
    assert load.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 32,
        "llama.attention.head_count_kv": [0, 0, 8],
        "llama.rope.scale": 0.5,
    }
    assert load.clipped == {"llama.rope.dimension_sections": Beginning(300, (0, 0, 8))}
    assert load.shape["n_head_kv"].value == "[0, 0, 8]"
    assert load.layer_widths == {0: (192, 128)}
    assert (load.setting("release"), load.setting("n_ctx"), load.setting("flash_attn")) == ("4600", "1024", "0")
    (statement,) = load.statements
    assert (statement.count("cells"), statement.count("layers")) == (1024, 6)


def test_buffers_are_stated_only_where_no_line_adds_them_up() -> None:
    creating = "llama_kv_cache_iswa: creating {} KV cache, size = {} cells\n"
    buffer = "llama_kv_cache:    {} KV buffer size =   {} MiB\n"
    load = load_of(
        creating.format("non-SWA", 8192)
        + buffer.format("CUDA0", "64.00")
        + buffer.format("CUDA1", "64.00")
        + creating.format("    SWA", 6144)
        + buffer.format("CUDA0", "960.00")
        + "llama_context: n_ctx = 8192\n"
    )
    first, second = load.statements
    assert printed(first) == {"cache": "non-SWA", "cells": "8192", "part_0": "64.00", "part_1": "64.00"}
    assert printed(second) == {"cache": "SWA", "cells": "6144", "part_0": "960.00"}


def test_a_second_start_is_a_second_load() -> None:
    start = "Initializing a V1 LLM engine (v0.{}.0) with config: model='m', max_seq_len={}\n"
    first, second = loads_of(start.format(11, 1) + CAPACITY + "\n" + start.format(16, 2) + CAPACITY)
    assert (first.version, first.setting("max_seq_len"), second.version, second.setting("max_seq_len")) == (
        "0.11.0",
        "1",
        "0.16.0",
        "2",
    )


def test_a_second_context_keeps_the_model_but_not_the_settings() -> None:
    kv = "llama_kv_cache: size = 1.00 MiB ( 256 cells, 1 layers, 1/1 seqs), K (f16): 0.50 MiB, V (f16): 0.50 MiB\n"
    model = "llama_model_loader: loaded meta data with 2\nllama_model_loader: - kv 0: llama.block_count u32 = 32\n"
    context = "llama_context: constructing llama_context\nllama_context: n_ctx         = {}\n"
    first, second = loads_of(model + context.format(256) + kv + context.format(512) + kv)
    assert first.metadata == second.metadata == {"llama.block_count": 32}
    assert (first.setting("n_ctx"), second.setting("n_ctx")) == ("256", "512")


def test_engines_in_one_file_are_kept_apart() -> None:
    vllm, sglang = loads_of(f"a | {CAPACITY}\nb | KV Cache is allocated. #tokens: 1, KV size: 1.00 GB\n")
    assert (vllm.engine, sglang.engine) == ("vllm", "sglang")


def test_the_rank_is_taken_from_the_prefix() -> None:
    load = load_of(
        "(VllmWorker rank=3 pid=9) Available KV cache memory: 1.00 GiB\n[x DP0 TP1 EP0] Available KV cache memory: 1.00 GiB"
    )
    assert [statement.rank for statement in load.statements] == ["rank=3", "DP0 TP1"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_encodings(encoding: str) -> None:
    text = f"Modèle chargé\r\n{CAPACITY}\r\n" * 3
    assert [statement.line for statement in load_of(text.encode(encoding)).statements] == [2, 4, 6]


def test_nulls_and_rewritten_progress_lines_do_no_harm() -> None:
    text = f"\0\0\r 10%|#   |\r 20%|##  |\r{CAPACITY}\n"
    assert load_of(text).statements[0].count("tokens") == 163_840


def test_a_compressed_log_of_several_members_is_read() -> None:
    data = gzip.compress(f"{CAPACITY}\n".encode())
    assert len(load_of(data + data).statements) == 2


def test_a_damaged_compressed_log_is_one_clear_error() -> None:
    with pytest.raises(LogError, match="damaged"):
        loads_of(b"\x1f\x8b\x08\x00" + b"\xff" * 40)


@pytest.mark.parametrize("data", [b"", b"\n", b"hello", b"\x1f\x8b", b"\xff\xfe", b"\0" * 5000, b"KV cache size: many tokens"])
def test_a_log_without_a_known_line_is_one_clear_error(data: bytes) -> None:
    with pytest.raises(LogError, match="nothing about a KV cache") as caught:
        loads_of(data)
    assert "engine's start" in caught.value.fix


@pytest.mark.parametrize("unit", ["iB", "kB", "QiB", "mib", ""])
@pytest.mark.parametrize(
    "line", ['msg=offload layers.model=62 memory.required.kv="9.5 {}"', 'msg="kv cache" device=CUDA0 size="9.5 {}"']
)
def test_a_size_in_a_unit_that_is_none_is_not_read(line: str, unit: str) -> None:
    with pytest.raises(LogError):
        read_log(io.BytesIO(line.format(unit).encode()), "made")


def test_a_line_longer_than_the_limit_is_cut_and_the_next_is_whole() -> None:
    text = (
        b"x" * (3 * CHUNK)
        + b"\n"
        + CAPACITY.encode()
        + b"\n"
        + b"y" * (LINE_MAX + 5)
        + CAPACITY.encode()
        + b"\n"
        + CAPACITY.encode()
    )
    assert [statement.line for statement in load_of(text).statements] == [2, 4]


class Endless(io.RawIOBase):
    """A stream of ``total`` bytes that are never all in memory."""

    def __init__(self, piece: bytes, total: int) -> None:
        self._piece, self._left = piece, total // len(piece)

    def readable(self) -> bool:
        return True

    def read1(self, _size: int = -1) -> bytes:
        self._left -= 1
        return self._piece if self._left >= 0 else b""


@pytest.mark.parametrize(
    "piece",
    [CAPACITY.encode() + b"\n", b"z" * 9973, b"POST /v1/completions 200 OK\n" * 400],
    ids=["known", "one line", "requests"],
)
def test_memory_stays_flat(piece: bytes) -> None:
    total = 4 * CHUNK if piece.startswith(b"GPU") else 64 * CHUNK
    tracemalloc.start()
    with suppress(LogError):
        read_log(cast("BinaryIO", Endless(piece, total)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * CHUNK


def test_statements_and_loads_are_bounded() -> None:
    many = load_of((CAPACITY + "\n") * (STATEMENTS_MAX + 7))
    assert (len(many.statements), many.dropped) == (STATEMENTS_MAX, 7)
    start = "Initializing a V1 LLM engine (v0.11.0) with config: x\n" + CAPACITY + "\n"
    log = read_log(io.BytesIO((start * (LOADS_MAX + 3)).encode()))
    assert (len(log.loads), log.forgotten) == (LOADS_MAX, 3)


def test_a_file_is_read_and_a_missing_one_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(CAPACITY)
    assert read_log_file(tmp_path / "a.log").source.endswith("a.log")
    with pytest.raises(LogError, match="No such file"):
        read_log_file(tmp_path / "b.log")
    with pytest.raises(LogError, match="Is a directory"):
        read_log_file(tmp_path)


@pytest.fixture
def every_needle() -> Iterator[str]:
    from kvcalc.readers.engine_log_rows import ROWS

    return (needle for row in ROWS for needle in row.needles)


def test_every_wording_here_holds_a_needle(every_needle: Iterator[str]) -> None:
    needles = list(every_needle)
    assert all(any(needle in line for needle in needles) for line in LINES)
