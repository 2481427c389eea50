"""llama.cpp's logs as they are met: cut arrays, print_info alone, the table of devices, latents before they were known."""

from __future__ import annotations

import io

import pytest

from kvcalc.audit.audit import audit
from kvcalc.audit.findings import Finding
from kvcalc.audit.log_model import file_keys, printed_layers
from kvcalc.audit.settings import Given
from kvcalc.core.log_facts import Load
from kvcalc.core.model import Model
from kvcalc.dtypes import Dtype
from kvcalc.readers.engine_log import read_log
from kvcalc.readers.hf_config import model_of

MIB = 2**20
GEMMA = """
llama_model_loader: - kv   0: general.architecture str = gemma4
llama_model_loader: - kv   1: gemma4.block_count u32 = 6
llama_model_loader: - kv   2: gemma4.attention.head_count_kv arr[i32,6] = [8, 8, 2, 8, ...
llama_model_loader: - kv   3: gemma4.attention.sliding_window_pattern arr[bool,6] = [true, true, false, tr...
print_info: n_layer = 6
print_info: n_embd_k_gqa = [2048, 2048, 1024, 2048, 2048, 1024]
print_info: n_embd_v_gqa = [2048, 2048, 1024, 2048, 2048, 1024]
"""
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "torch_dtype": "bfloat16",
}
PLAIN = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
PLAIN |= {"hidden_size": 512, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}


def load_of(log: str, known: str = "llama_kv_cache: CUDA0 KV buffer size = 1.00 MiB") -> Load:
    (load,) = read_log(io.BytesIO(f"{log}\n{known}\n".encode())).loads
    return load


def model(config: dict[str, object]) -> Model:
    return model_of(config, "config.json", "toy")


def findings(log: str, config: dict[str, object] | None = None, given: Given | None = None) -> dict[str, Finding]:
    (load,) = read_log(io.BytesIO(log.encode())).loads
    found = audit(load, model(config) if config else None, given or Given()).findings
    return {finding.what: finding for finding in found}


# What the log cuts short


def test_arrays_that_the_log_cuts_are_completed_by_layers_of_the_same_widths() -> None:
    keys = file_keys(load_of(GEMMA))
    assert keys is not None
    assert keys["gemma4.attention.head_count_kv"] == [8, 8, 2, 8, 8, 2]
    assert keys["gemma4.attention.sliding_window_pattern"] == [True, True, False, True, True, False]


def test_an_array_that_print_info_has_whole_is_taken_from_it() -> None:
    log = GEMMA + "print_info: n_head_kv = [8, 8, 2, 8, 4, 2]\n"
    keys = file_keys(load_of(log))
    assert keys is not None
    assert keys["gemma4.attention.head_count_kv"] == [8, 8, 2, 8, 4, 2]


@pytest.mark.parametrize("widths", ["[2048, 2048, 2048, 2048, 2048, 2048]", "[2048, 2048, 1024, 2048, 2048, 512]", "2048"])
def test_arrays_that_nothing_completes_are_no_model(widths: str) -> None:
    """Sliding and full layers of one width, or a width that the shown part lacks: the rest could be anything."""
    log = GEMMA.replace("[2048, 2048, 1024, 2048, 2048, 1024]", widths)
    assert file_keys(load_of(log)) is None


def test_a_cut_array_that_decides_nothing_is_left_out() -> None:
    log = GEMMA + "llama_model_loader: - kv 9: gemma4.rope.sections arr[i32,64] = [1, 2, ...\n"
    keys = file_keys(load_of(log))
    assert keys is not None
    assert "gemma4.rope.sections" not in keys


# print_info alone


def test_the_widths_that_print_info_states_are_a_shape() -> None:
    log = "print_info: n_layer = 3\nprint_info: n_embd_k_gqa = [0, 512, 256]\nprint_info: n_embd_v_gqa = [0, 512, 128]\n"
    assert [(kept.layer, kept.keys, kept.values) for kept in printed_layers(load_of(log))] == [(1, 512, 512), (2, 256, 128)]


def test_two_caches_of_layers_alike_are_checked_by_their_bytes_alone() -> None:
    """Which layers slide isn't printed: a third of them, at other cells, is as many as the line says."""
    line = "llama_kv_cache: size = {:.2f} MiB ({:6d} cells, {:3d} layers, 1/1 seqs), K (f16): {:.2f} MiB, V (f16): {:.2f} MiB\n"
    log = "print_info: n_layer = 6\nprint_info: n_embd_k_gqa = 512\nprint_info: n_embd_v_gqa = 512\n"
    for cells, layers in ((4096, 2), (640, 4)):
        half = cells * layers * 512 * 2 / MIB
        log += line.format(2 * half, cells, layers, half, half)
    (load,) = read_log(io.BytesIO(log.encode())).loads
    found = audit(load, None, Given()).findings
    assert {finding.verdict for finding in found} == {"agrees"}
    assert len(found) == 6


@pytest.mark.parametrize(("gqa", "width"), [("", 4096), ("llama_model_load_internal: n_head_kv = 4\n", 512)])
def test_logs_of_2023_state_their_own_shape(gqa: str, width: int) -> None:
    log = "llama_model_load_internal: format = ggjt v3 (latest)\nllama_model_load_internal: n_ctx = 2048\n"
    log += "llama_model_load_internal: n_embd = 4096\nllama_model_load_internal: n_head = 32\n"
    log += f"{gqa}llama_model_load_internal: n_layer = 32\n"
    log += f"llama_new_context_with_model: kv self size = {32 * 2048 * width * 2 * 2 / MIB:.2f} MB\n"
    assert findings(log)["cache, total"].verdict == "agrees"


@pytest.mark.parametrize("element", [2, 4])
def test_the_first_logs_count_positions_over_all_layers(element: int) -> None:
    log = "llama_model_load: n_ctx = 512\nllama_model_load: n_embd = 4096\nllama_model_load: n_head = 32\n"
    log += "llama_model_load: n_layer = 32\n"
    log += f"llama_model_load: memory_size = {32 * 512 * 4096 * 2 * element / MIB:.2f} MB, n_mem = {32 * 512}\n"
    assert findings(log)["cache, total"].verdict == "agrees"


# The table of devices

TABLE = """
common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute    unaccounted |
common_memory_breakdown_print: |   - CUDA0 (RTX 4090)   | 24111 = 1200 + (15019 = 14000 +     {} +     400) +        7892 |
common_memory_breakdown_print: |   - Host               |                 1819 =  1100 +     {} +     100                |
"""
WORDS = Given(options=("ctx-size=8192", "parallel=1"))  # 8,192 cells of 4 layers of 2 · 128 · 2 B: 16 MiB


@pytest.mark.parametrize(
    ("shares", "verdict"), [((10, 6), "agrees"), ((10, 5), "agrees"), ((10, 4), "differs"), ((16, 1), "differs")]
)
def test_a_table_s_shares_are_cut_to_whole_mebibytes(shares: tuple[int, int], verdict: str) -> None:
    """10 and 5 may be 10.5 and 5.5."""
    found = findings(TABLE.format(*shares), PLAIN, WORDS)
    assert found["context of 2 devices"].verdict == verdict


def test_a_table_without_a_context_is_asked_for_it() -> None:
    found = findings(TABLE.format(10, 6), PLAIN)["context of 2 devices"]
    assert (found.verdict, "-o ctx-size=" in found.why) == ("unchecked", True)


def test_each_table_is_a_figure_of_its_own() -> None:
    (load,) = read_log(io.BytesIO((TABLE.format(16, 0) + TABLE.format(10, 6)).encode())).loads
    found = audit(load, model(PLAIN), WORDS).findings
    assert [(finding.stated, finding.verdict) for finding in found] == [("16 MiB", "agrees"), ("10 MiB + 6 MiB", "agrees")]


# Releases


def test_before_latents_were_known_every_head_was_stored() -> None:
    keys, values = 4096 * 3 * 16 * 192 * 2 / MIB, 4096 * 3 * 16 * 128 * 2 / MIB
    log = "llama_new_context_with_model: n_ctx = 4096\n"
    log += f"llama_new_context_with_model: KV self size = {keys + values:.2f} MiB, "
    log += f"K (f16): {keys:.2f} MiB, V (f16): {values:.2f} MiB"
    assert {finding.verdict for finding in findings(log, DEEPSEEK).values()} == {"agrees"}


def test_a_build_between_two_known_ones_is_answered_by_the_next_that_has_the_model() -> None:
    config = {"model_type": "gpt_oss", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
    config |= {"hidden_size": 512, "sliding_window": 128, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
    log = "build: 6182 (1fe00296f) with cc\nllama_context: n_ctx = 4096\nllama_context: n_ubatch = 512\n"
    log += "llama_context: flash_attn = 0\nllama_context: n_seq_max = 1\n"
    for kind, cells in (("non-SWA", 4096), ("    SWA", 640)):  # 128 + 512, a multiple of 32 without flash attention
        half = cells * 2 * 512 * 2 / MIB
        log += f"llama_kv_cache_unified_iswa: creating {kind} KV cache, size = {cells} cells\n"
        log += f"llama_kv_cache_unified: size = {2 * half:.2f} MiB ({cells} cells, 2 layers, 1/1 seqs), "
        log += f"K (f16): {half:.2f} MiB, V (f16): {half:.2f} MiB\n"
    found = findings(log, config)
    assert found["SWA cache, cells"].verdict == "exact"
    assert {finding.verdict for finding in found.values()} <= {"exact", "agrees"}


def test_a_fork_s_type_is_named_by_hand() -> None:
    size = 256 * 4 * 128 // 128 * 66 / MIB
    log = f"llama_kv_cache: size = {2 * size:.4f} MiB ( 256 cells, 4 layers, 1/1 seqs), "
    log += f"K (turbo4): {size:.4f} MiB, V (turbo4): {size:.4f} MiB"
    assert findings(log, PLAIN)["cache, keys"].verdict == "unchecked"
    given = Given(types=(Dtype("turbo4", 128, 66),))
    assert {finding.verdict for finding in findings(log, PLAIN, given).values()} <= {"exact", "agrees"}


def test_a_line_that_names_its_type_and_counts_its_layers_is_not_guessed_at() -> None:
    log = "llama_kv_cache: size = 6.00 MiB ( 256 cells, 12 layers, 1/1 seqs), K (f16): 3.00 MiB, V (f16): 3.00 MiB"
    found = findings(log, PLAIN)
    assert {"the line counts 12 layers, the model keeps 4" in finding.why for finding in list(found.values())[:3]} == {True}
    assert not any("as if" in finding.why for finding in found.values())
