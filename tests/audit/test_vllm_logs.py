"""vLLM's logs as they are met: ranks, restarts, no banner, wrapped refusals, drafts, settings before the engine's own banner."""

from __future__ import annotations

import io

import pytest

from kvcalc.audit.audit import audit
from kvcalc.audit.findings import Audited, Finding
from kvcalc.audit.settings import Given
from kvcalc.core.log_facts import Load
from kvcalc.core.model import Model
from kvcalc.readers.engine_log import read_log
from kvcalc.readers.hf_config import model_of

GIB = 2**30
PLAIN = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
PLAIN |= {"hidden_size": 4096, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
TOKEN = 32 * 8 * 128 * 2 * 2
WINDOWS = {**PLAIN, "model_type": "gemma3_text", "num_hidden_layers": 12, "sliding_window": 1024, "sliding_window_pattern": 6}
MTP = {
    **PLAIN,
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 8,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "mtp_num_hidden_layers": 1,
}
BANNER = (
    "Initializing a V1 LLM engine (v{}) with config: model='m', dtype=torch.bfloat16, max_seq_len={}, tensor_parallel_size={}\n"
)
LENGTH = 32_768
MEMORY = "({}) INFO Available KV cache memory: {:.2f} GiB\n"
SIZE = "(EngineCore_DP0) INFO GPU KV cache size: {:,} tokens\n"
SIZE += "(EngineCore_DP0) INFO Maximum concurrency for 32,768 tokens per request: {:.2f}x\n"


def model(config: dict[str, object]) -> Model:
    return model_of(config, "config.json", "toy")


def loads(log: str) -> tuple[Load, ...]:
    return read_log(io.BytesIO(log.encode())).loads


def audited(log: str, config: dict[str, object] | None = None, given: Given | None = None) -> list[Audited]:
    known = model(config or PLAIN)
    return [audit(load, known, given or Given()) for load in loads(log)]


def findings(log: str, config: dict[str, object] | None = None, given: Given | None = None) -> list[Finding]:
    return [finding for each in audited(log, config, given) for finding in each.findings]


def verdicts(log: str, config: dict[str, object] | None = None, given: Given | None = None) -> list[str]:
    return [finding.verdict for finding in findings(log, config, given)]


def capacity(memory: float, ranks: int = 1) -> str:
    tokens = int(memory * GIB) // (TOKEN // ranks * 16) * 16
    return SIZE.format(tokens, tokens / LENGTH)


# Ranks


def test_each_rank_s_line_is_held_against_its_own_memory() -> None:
    """Up to 0.10 each rank states a capacity: in the ranks' order, whatever the order of their memory."""
    ranks = [11.55, 11.51, 12.25, 10.0]
    log = "".join(MEMORY.format(f"Worker_TP{rank}", ranks[rank]) for rank in (2, 0, 3, 1))
    log += "".join(capacity(memory, 4) for memory in ranks)
    found = findings(log, given=Given(tp_size=4))
    assert {finding.verdict for finding in found} == {"agrees"}
    for at, memory in enumerate(ranks):  # a range that holds this rank's tokens, and no other's
        tokens = found[2 * at].predicted
        assert tokens is not None
        assert tokens.low <= memory * GIB / (TOKEN // 4) <= tokens.high + 16


def test_a_later_release_takes_the_tightest_rank_alone() -> None:
    log = BANNER.format("0.12.0", LENGTH, 2) + MEMORY.format("Worker_TP0", 11.55) + MEMORY.format("Worker_TP1", 10.00)
    assert verdicts(log + capacity(10.00, 2))[0] == "agrees"
    assert verdicts(log + capacity(11.55, 2))[0] == "differs"


def test_a_rank_whose_memory_is_not_shown_may_be_the_reason() -> None:
    log = BANNER.format("0.12.0", LENGTH, 2) + MEMORY.format("Worker_TP0", 11.55)
    found = findings(log + capacity(11.20, 2))[0]
    assert found.verdict == "differs"
    assert "the tightest rank decides" in found.why
    assert "1 of 2 ranks" in found.why


def test_the_bytes_in_use_are_sharper_than_two_decimals() -> None:
    memory = 11 * GIB + 12_345
    log = MEMORY.format("Worker", memory / GIB) + capacity(memory / GIB)
    log += f"(Worker) INFO Current kv cache memory in use is {memory} bytes.\n"
    found = findings(log)[0]
    assert found.predicted is not None
    assert found.predicted.low == found.predicted.high == memory // (TOKEN * 16) * 16
    assert found.verdict == "exact"


# Starts


def test_a_rank_that_speaks_again_is_another_start() -> None:
    log = MEMORY.format("Worker_TP0", 11.0) + capacity(11.0) + MEMORY.format("Worker_TP0", 24.0) + capacity(24.0)
    assert [each.agrees for each in audited(log)] == [True, True]
    assert len(loads(log)) == 2


def test_what_the_server_said_before_the_engine_s_banner_counts() -> None:
    log = "vLLM API server version 0.32.0\nnon-default args: {'enable_prefix_caching': False, 'max_num_batched_tokens': 1024}\n"
    log += "Setting attention block size to 544 tokens to ensure that\n" + BANNER.format("0.32.0", LENGTH, 1)
    (load,) = loads(log + MEMORY.format("Worker", 11.0) + capacity(11.0))
    assert (load.setting("enable_prefix_caching"), load.setting("max_num_batched_tokens")) == ("False", "1024")
    assert load.version == "0.32.0"


def test_a_start_that_came_to_nothing_leaves_no_settings() -> None:
    log = "vLLM API server version 0.31.0\nnon-default args: {'block_size': 32}\n"
    log += "vLLM API server version 0.32.0\nnon-default args: {'max_num_seqs': 8}\n"
    (load,) = loads(log + MEMORY.format("Worker", 11.0) + capacity(11.0))
    assert (load.setting("block_size"), load.setting("max_num_seqs"), load.version) == (None, "8", "0.32.0")


def test_settings_without_a_size_say_that_the_log_ends_before_it() -> None:
    with pytest.raises(Exception, match=r"settings found \(vllm 0.11.0\), no size line: the log ends before it"):
        loads(BANNER.format("0.11.0", LENGTH, 1))


# What isn't said


def windowed(release: str, batches: int, batched: int, memory: int = 8) -> str:
    """A capacity of WINDOWS: 10 layers of 1,024 and 2 full ones, in six groups of two."""
    full, window = LENGTH // 16, -(-min(1024 - 1 + batched * batches, LENGTH) // 16) + 1
    blocks = memory * GIB // (2 * 8 * 128 * 2 * 2 * 16)
    concurrency = blocks / (full + 5 * window)
    tokens = int(concurrency * LENGTH)
    line = f"{tokens:,} tokens, Maximum concurrency for 32,768 tokens per request: {concurrency:.2f}x"
    return f"{release}Available KV cache memory: {memory}.00 GiB\nGPU KV cache size: {line}\n"


@pytest.mark.parametrize("batched", [2048, 8192])
def test_the_tokens_of_a_step_are_taken_as_the_card_s_that_fits(batched: int) -> None:
    (found,) = audited(windowed("", 2, batched), WINDOWS)
    assert [finding.verdict for finding in found.findings] == ["agrees", "agrees"]
    assert ("card=small" in "".join(found.notes)) == (batched == 2048)


def test_a_figure_that_hangs_on_what_is_not_said_is_unchecked() -> None:
    (found,) = audited(windowed("", 2, 5000), WINDOWS)
    assert found.findings[0].verdict == "unchecked"
    assert "add -o max-num-batched-tokens=…" in found.findings[0].why


def test_a_figure_of_a_release_that_is_known_differs() -> None:
    log = BANNER.format("0.32.0", LENGTH, 1) + "enabled with max_num_batched_tokens=8192.\n"
    assert verdicts(windowed(log, 2, 8192), WINDOWS)[0] == "agrees"
    assert verdicts(windowed(log, 2, 5000), WINDOWS)[0] == "differs"


def test_both_releases_are_named() -> None:
    (found,) = audited(BANNER.format("0.32.0", LENGTH, 1) + MEMORY.format("Worker", 11.0) + capacity(11.0))
    assert (found.load.version, found.rules) == ("0.32.0", "0.32.0")


def test_a_figure_that_follows_from_another_is_no_second_proof() -> None:
    found = findings(MEMORY.format("Worker", 11.0) + capacity(11.0))
    assert [(finding.verdict, finding.restates) for finding in found] == [("agrees", 0), ("agrees", 2)]


def test_tokens_are_told_as_bytes_too() -> None:
    (found, _) = findings(MEMORY.format("Worker", 11.0) + capacity(11.0))
    assert found.note_bytes == found.low * TOKEN


def test_what_the_command_line_gives_counts() -> None:
    found = findings(capacity(20.0), given=Given(options=("available-bytes=20GiB",)))
    assert found[0].verdict == "exact"


def test_without_a_banner_a_slip_that_it_would_tell_is_asked_for() -> None:
    log = MEMORY.format("Worker_TP0", 11.0) + capacity(11.0, 4)
    found = findings(log)[0]
    assert (found.verdict, found.why.rpartition(": ")[2]) == ("unchecked", "add --tp 4")


# Drafts


def test_a_draft_s_layer_is_counted_where_the_log_names_it() -> None:
    """One more layer of full attention: what --draft counts where no line says so."""
    head = BANNER.format("0.32.0", LENGTH, 1).rstrip()
    log = ", enable_prefix_caching=False{}\nAvailable KV cache memory: 8.00 GiB\nGPU KV cache size: 1 tokens\n"
    named = ", speculative_config=SpeculativeConfig(method='mtp', num_spec_tokens=1)"
    told = findings(head + log.format(named), MTP)[0].predicted
    asked = findings(head + log.format(", num_speculative_tokens=1"), MTP, Given(draft=True))[0].predicted
    plain = findings(head + log.format(""), MTP)[0].predicted
    assert told is not None
    assert plain is not None
    assert told == asked
    assert told.high < plain.low


def test_a_draft_model_of_its_own_leaves_the_pool_unchecked() -> None:
    head = BANNER.format("0.32.0", LENGTH, 1).rstrip()
    log = f"{head}, speculative_config=SpeculativeConfig(method='eagle3', num_spec_tokens=3)\n"
    found = findings(log + MEMORY.format("Worker", 11.0) + capacity(10.0))[0]
    assert found.verdict == "unchecked"
    assert "eagle3 draft model keeps a cache too" in found.why


# Refusals


REFUSAL = (
    "(EngineCore pid=1) ERROR ValueError: To serve at least one request with the model's max seq len (131072), "
    "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.61 GiB). "
    "Based on the available memory, the estimated maximum model length is 78704. Try increasing something."
)


def wrapped(text: str, columns: int) -> str:
    return "\n".join(text[at : at + columns] for at in range(0, len(text), columns)) + "\n"


@pytest.mark.parametrize("columns", [72, 80, 100, 120, 158, 1000])
@pytest.mark.parametrize("bracket", ["(16.00", "16.00"])
@pytest.mark.parametrize("quote", ["", "> "])
def test_a_refusal_is_read_however_it_is_wrapped(columns: int, bracket: str, quote: str) -> None:
    text = wrapped(REFUSAL.replace("(16.00", bracket), columns)
    log = "".join(f"{quote}{line}\n" for line in text.splitlines())
    found = findings(log)
    assert [(finding.stated, finding.verdict) for finding in found] == [("16.00 GiB", "agrees"), ("78704", "agrees")]


def test_a_refusal_that_is_wrapped_between_words_is_read() -> None:
    log = REFUSAL.replace("(131072), ", "(131072),\n").replace("GiB). ", "GiB).\n")
    assert verdicts(log) == ["agrees", "agrees"]


def test_two_refusals_in_a_row_are_two() -> None:
    assert len(findings(f"{REFUSAL}\n{REFUSAL}\n")) == 4
