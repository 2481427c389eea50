"""Logs of several copies and nodes, and tables and latents that a context's own lines speak of otherwise."""

from __future__ import annotations

import io

from kvcalc.audit.audit import audit
from kvcalc.audit.findings import Finding
from kvcalc.audit.settings import Given
from kvcalc.readers.engine_log import read_log
from kvcalc.readers.hf_config import model_of

GIB, MIB = 2**30, 2**20
PLAIN = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
PLAIN |= {"hidden_size": 512, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
TOKEN = 4 * 2 * 64 * 2 * 2
BANNER = "Initializing a V1 LLM engine (v0.12.0) with config: model='m', max_seq_len=32768, tensor_parallel_size={}\n"
TABLE = """common_memory_breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute |
common_memory_breakdown_print: |   - CUDA0 (RTX 4090)   | 24111 = 1200 + (15019 = 14000 + {} +     400) +        7892 |
"""
CONTEXT = "llama_context: n_seq_max = 1\nllama_context: n_ctx = 8192\n"
CACHE = "llama_kv_cache: size = 16.00 MiB (  8192 cells,   4 layers,  1/1 seqs), K (f16):  8.00 MiB, V (f16):  8.00 MiB\n"


def findings(log: str, config: dict[str, object] | None = None, **given: object) -> list[Finding]:
    loads = read_log(io.BytesIO(log.encode())).loads
    known = model_of(config, "config.json", "toy") if config else None
    return [finding for load in loads for finding in audit(load, known, Given(**given)).findings]  # type: ignore[arg-type]


def tokens(memory: float, ranks: int = 1) -> int:
    return int(memory * GIB) // (TOKEN // ranks * 16) * 16


def test_each_data_parallel_copy_has_its_own_memory() -> None:
    log = BANNER.format(1)
    for copy, memory in ((0, 9.0), (1, 8.0)):
        log += f"(EngineCore_DP{copy} pid=1) Available KV cache memory: {memory:.2f} GiB\n"
    for copy, memory in ((1, 8.0), (0, 9.0)):
        log += f"(EngineCore_DP{copy} pid=1) GPU KV cache size: {tokens(memory):,} tokens\n"
    assert [finding.verdict for finding in findings(log, PLAIN)] == ["agrees", "agrees"]


def test_ranks_that_do_not_name_themselves_are_several() -> None:
    """Ray's workers: the tightest of them decides."""
    log = BANNER.format(2)
    for node, memory in ((2, 9.0), (3, 8.0)):
        log += f"(RayWorkerWrapper pid=1, ip=10.0.0.{node}) Available KV cache memory: {memory:.2f} GiB\n"
    log += f"(EngineCore pid=1) GPU KV cache size: {tokens(8.0, 2):,} tokens\n"
    assert [finding.verdict for finding in findings(log, PLAIN)] == ["agrees"]


def test_a_table_after_the_context_is_held_against_it() -> None:
    right, wrong = (
        findings(CONTEXT + CACHE + TABLE.format(16), PLAIN)[-1],
        findings(CONTEXT + CACHE + TABLE.format(99), PLAIN)[-1],
    )
    assert (right.verdict, wrong.verdict) == ("agrees", "unchecked")
    assert "another context" in wrong.why


def test_a_table_before_the_context_was_printed_while_it_was_fitted() -> None:
    (found,) = (each for each in findings(TABLE.format(64) + CONTEXT + CACHE, PLAIN) if each.what.startswith("context"))
    assert (found.verdict, "fitted" in found.why) == ("unchecked", True)


def test_a_latent_that_print_info_states_has_values_in_older_releases_alone() -> None:
    info = "print_info: n_layer = 3\nprint_info: n_embd_k_gqa = 576\nprint_info: n_embd_v_gqa = 512\n"
    info += "print_info: n_embd_head_k_mla = 192\n"
    for width in (0, 512):
        keys, values = 4096 * 3 * 576 * 2 / MIB, 4096 * 3 * width * 2 / MIB
        log = f"{info}llama_kv_cache: size = {keys + values:.2f} MiB (4096 cells, 3 layers, 1/1 seqs), "
        log += f"K (f16): {keys:.2f} MiB, V (f16): {values:.2f} MiB\n"
        assert {finding.verdict for finding in findings(log)} <= {"exact", "agrees"}


def test_ollama_s_command_states_the_context_of_a_table() -> None:
    """8,192 cells a sequence of two, in q8_0: 17 MiB."""
    command = 'msg="starting llama-server" cmd="llama-server --model m -c 16384 -np 2 --cache-type-k q8_0 --cache-type-v q8_0"\n'
    (found,) = findings(command + TABLE.format(17), PLAIN)
    assert found.verdict == "agrees"
    assert findings(command + TABLE.format(16), PLAIN)[0].verdict == "differs"


def test_ranks_that_nothing_has_said_are_asked_for() -> None:
    half = 10**6 * TOKEN // 4 / GIB  # keys of half the heads
    line = f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1000000, K size: {half:.4f} GB, V size: {half:.4f} GB\n"
    found = findings(line, PLAIN)
    assert [(finding.verdict, finding.why.rpartition(": ")[2]) for finding in found] == [("unchecked", "add --tp 2")] * 2
    assert {finding.verdict for finding in findings(line, PLAIN, tp_size=2)} == {"agrees"}
    stated = "server_args=ServerArgs(tp_size=1, x=1)\n" + line
    assert {finding.verdict for finding in findings(stated, PLAIN)} == {"differs"}


def test_a_type_that_the_line_names_is_not_guessed_at() -> None:
    half = 10**6 * TOKEN // 4 / GIB
    line = "server_args=ServerArgs(tp_size=1, x=1)\nKV Cache is allocated. dtype: torch.bfloat16, #tokens: 1000000, "
    found = findings(line + f"K size: {half:.4f} GB, V size: {half:.4f} GB\n", PLAIN)
    assert not any("as if" in finding.why for finding in found)


def test_a_build_between_two_known_ones_may_have_the_rules_of_the_later() -> None:
    """Without flash attention cells come by 32 up to b6673 at least, and by 256 from b7698 at most."""
    for cells in (320, 512):
        size = cells * 4 * 2 * 64 * 2 / MIB
        log = "build: 7000 (1fe00296f) with cc\nllama_context: n_seq_max = 1\nllama_context: n_ctx = 300\n"
        log += "llama_context: flash_attn = disabled\n"
        log += f"llama_kv_cache: size = {2 * size:.2f} MiB ({cells} cells, 4 layers, 1/1 seqs), "
        log += f"K (f16): {size:.2f} MiB, V (f16): {size:.2f} MiB\n"
        assert {finding.verdict for finding in findings(log, PLAIN)} <= {"exact", "agrees"}
