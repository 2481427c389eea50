"""What fits: maximal over every engine and kind of layer, against a plain scan."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

import pytest

from kvcalc.core.gguf import GgufMetadata
from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.engines import ENGINES, find_engine
from kvcalc.engines.fit import BATCH, BOTH, SAMPLE, TOKENS, Fit, Memory, fit, frontier, terms
from kvcalc.errors import EngineError, KvcalcError, UsageError
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf
from kvcalc.readers.presets import preset_model

# Every kind of layer, small: full; sliding with full; chunked; latent; with an index; compressed; states alone and mixed;
# cross-attention; layers that share another's cache.
KINDS = (
    "qwen3-0.6b",
    "gemma-3-270m",
    "llama-4-scout",
    "deepseek-v2-lite",
    "deepseek-v3.2",
    "deepseek-v4-flash",
    "mamba-130m",
    "lfm2-1.2b",
    "qwen3.5-0.8b",
    "whisper-tiny",
    "gemma-3n-e2b",
)
LAST = 700  # tokens of the scan: beyond a window of 512
STRIDES = {
    "transformers": 23,
    "llama.cpp": 23,
    "tensorrt-llm": 23,
    "mlx-lm": 23,
    "vllm": 7,
    "lmcache": 3,
}  # engines that allocate anew for each question
GGUF = {
    "general.architecture": "gemma3",
    "gemma3.block_count": 12,
    "gemma3.embedding_length": 640,
    "gemma3.context_length": 32768,
    "gemma3.attention.head_count": 4,
    "gemma3.attention.head_count_kv": 1,
    "gemma3.attention.key_length": 256,
    "gemma3.attention.value_length": 256,
    "gemma3.attention.sliding_window": 512,
}


def question(engine_name: str, kind: str) -> tuple[Model, Request]:
    """A model of the kind, small enough to scan, and a request of one sequence."""
    if engine_name == "llama.cpp":
        return model_of_gguf(GgufFile(GgufMetadata(GGUF, {}, None), "made.gguf"), {}), Request(tokens=1)
    return preset_model(kind), Request(tokens=1)


def sizes_of(engine_name: str, model: Model, request: Request, lengths: Iterable[int]) -> dict[int, int]:
    """Bytes at each length that the engine takes."""
    need = find_engine(engine_name).plan(model, request).need
    found = {}
    for tokens in lengths:
        with suppress(EngineError):
            found[tokens] = need(request.batch_size, tokens)
    return found


def room(engine_name: str, model: Model, request: Request, budget: int) -> Memory:
    """A memory of which so many bytes are left for the sequences."""
    engine = find_engine(engine_name)
    return Memory(budget + engine.plan(model, request).held_back)


PAIRS = [(engine, kind) for engine in ENGINES for kind in KINDS if engine != "llama.cpp"] + [("llama.cpp", "gguf")]


@pytest.mark.parametrize(("engine_name", "kind"), PAIRS)
def test_the_longest_is_the_longest(engine_name: str, kind: str) -> None:
    """Budgets at the bytes of some lengths, one less and one more: a scan over every length finds none longer."""
    engine = find_engine(engine_name)
    model, request = question(engine_name, kind)
    try:
        sizes = sizes_of(engine_name, model, request, range(1, LAST, STRIDES.get(engine_name, 1)))
    except KvcalcError as problem:
        with pytest.raises(type(problem)):  # not served by this engine: fit says the same
            fit(engine, model, request, Memory(2**40), TOKENS)
        return
    if not sizes:
        with pytest.raises(EngineError):
            fit(engine, model, request, Memory(2**40), TOKENS)
        return
    mark = sizes[sorted(sizes)[len(sizes) // 2]]
    for budget in (mark - 1, mark):
        found = fit(engine, model, request, room(engine_name, model, request, budget), TOKENS)
        assert found.budget_bytes == budget
        if found.unbounded:
            assert max(sizes.values()) <= budget
            continue
        assert found.tokens >= max((tokens for tokens, size in sizes.items() if size <= budget), default=0)
        beyond = sizes_of(engine_name, model, request, (found.tokens, found.tokens + 1))
        assert not found.fits or beyond[found.tokens] == found.need_bytes <= budget
        assert beyond.get(found.tokens + 1, budget + 1) > budget
        assert found.shortfall == (0 if found.fits else found.need_bytes - budget)


@pytest.mark.parametrize("engine_name", [name for name in ENGINES if name != "llama.cpp"])
def test_the_most_sequences_are_the_most(engine_name: str) -> None:
    """A batch of 7 just fits, one byte less holds 6."""
    model = preset_model("gemma-3-270m")
    request = Request(tokens=300)
    need = find_engine(engine_name).plan(model, request).need
    for budget, most in ((need(7, 300), 7), (need(7, 300) - 1, 6), (need(1, 300) - 1, 0)):
        found = fit(find_engine(engine_name), model, request, room(engine_name, model, request, budget), BATCH)
        assert (found.batch_size, found.fits) == (most, most > 0)


@pytest.mark.parametrize(
    ("batch", "prompt", "budget"), [(1, 1, 1_500_000), (1, 300, 1_000_000), (3, 64, 2_900_000), (1, 1, 4096)]
)
def test_a_quantised_cache_that_gives_bytes_back(batch: int, prompt: int, budget: int) -> None:
    """The residual is packed every 128 tokens, so a longer cache may take less: a scan still finds nothing longer."""
    model = replace(preset_model("qwen3-0.6b"), layers=preset_model("qwen3-0.6b").layers[:1])
    options: dict[str, OptionValue] = {"cache": "quantized", "prompt-tokens": prompt}
    request = Request(tokens=prompt, batch_size=batch, options=options)
    found = fit(find_engine("transformers"), model, request, Memory(budget), TOKENS)
    sizes = sizes_of("transformers", model, request, range(prompt, prompt + 1500))
    assert max(sizes.values()) > budget  # the scan covers all that could fit
    assert (found.tokens if found.fits else 0) == max((tokens for tokens, size in sizes.items() if size <= budget), default=0)
    if found.gap:
        assert sizes[found.gap] > budget
        assert found.gap < found.tokens


def test_a_cache_that_is_quantised_from_a_length_on() -> None:
    """MLX-LM at 4 bits from 5,000 tokens on: what holds 4,000 in 16 bits holds 4,000 · 256 / 72 in 4, in steps of 256."""
    model, budget = preset_model("qwen3-0.6b"), 4096 * 2 * 28 * 8 * 128 * 2
    found = fit(find_engine("mlx-lm"), model, Request(options={"kv-bits": "4"}), Memory(budget), TOKENS)
    assert found.tokens == 4096 * 256 // 72 // 256 * 256
    assert found.gap == 4999


def test_yes_or_no() -> None:
    """2 · 28 layers · 8 heads · 128 · 2 bytes · 1,000 tokens · 2 sequences = 229,376,000 bytes."""
    model, request = preset_model("qwen3-0.6b"), Request(tokens=1000, batch_size=2)
    exact, size = find_engine("exact"), 2 * 28 * 8 * 128 * 2 * 1000 * 2
    yes = fit(exact, model, request, Memory(size), BOTH)
    no = fit(exact, model, request, Memory(size - 1), BOTH)
    assert (yes.fits, yes.total_bytes, yes.shortfall) == (True, size, 0)
    assert (no.fits, no.total_bytes, no.shortfall) == (False, size, 1)
    assert [(change.value, change.unit) for change in no.changes] == [(1, "sequences"), (999, "tokens")]


def test_what_lives_beside_the_cache() -> None:
    """floor(1,000,001 · 0.9) − ceil(101 / 2) − 7 = 900,000 − 51 − 7; a share of what is left comes last."""
    memory = Memory(1_000_001, weights=101, overhead=7, utilization=Fraction(9, 10))
    assert memory.budget(2) == 899_942
    assert memory.budget(2, of_rest=True) == (1_000_001 - 58) * 9 // 10
    assert Memory(10, weights=11).budget() == -1


def test_more_weights_than_memory_is_a_no() -> None:
    """The shortfall is what one token needs and what the weights take beyond the memory."""
    found = fit(find_engine("exact"), preset_model("qwen3-0.6b"), Request(), Memory(1000, weights=1600), TOKENS)
    assert (found.fits, found.tokens, found.shortfall) == (False, 0, 600 + 2 * 28 * 8 * 128 * 2)


def test_a_sample_of_different_lengths() -> None:
    """Static arrays are made for the longest: 300 + 100 + 500 tokens take three rows of 500 each, paged ones what they hold."""
    model, token = preset_model("qwen3-0.6b"), 2 * 28 * 8 * 128 * 2
    request = Request(lengths=(300, 100, 500))
    for engine_name, budget, many in (
        ("exact", 900 * token, 3),
        ("exact", 900 * token - 1, 2),
        ("static", 900 * token, 2),  # 2 · 300, then 3 · 500
        ("static", 1500 * token, 3),
        ("static", 300 * token - 1, 0),
    ):
        found = fit(find_engine(engine_name), model, request, Memory(budget), SAMPLE)
        assert (found.batch_size, found.fits) == (many, many > 0), engine_name


def test_vllm_wants_one_block_beside() -> None:
    """16 tokens · 2 · 28 · 8 · 128 · 2 bytes a block; ten blocks hold nine for sequences, as its own check has it."""
    block = 16 * 2 * 28 * 8 * 128 * 2
    vllm, model = find_engine("vllm"), preset_model("qwen3-0.6b")
    found = fit(vllm, model, Request(), Memory(10 * block), TOKENS)
    assert (found.tokens, found.total_bytes, found.budget_bytes) == (144, 9 * block, 9 * block)
    for tokens, accepted in ((144, True), (145, False)):
        own = vllm.allocate(model, Request(tokens=tokens, options={"available-bytes": 10 * block}))
        assert own.fits is accepted


def test_vllm_stops_at_what_the_model_was_made_for() -> None:
    """The engine refuses a longer one, whatever the memory; the reason is its own."""
    found = fit(find_engine("vllm"), preset_model("qwen3-0.6b"), Request(), Memory(2**45), TOKENS)
    assert found.tokens == 40_960
    assert "40,960" in found.limit


def test_ranks_share_weights_and_heads() -> None:
    """Two ranks: half the weights and half the heads each, so more than twice the length."""
    vllm, model, memory = find_engine("vllm"), preset_model("qwen3-0.6b"), Memory(3 * 2**29, weights=2**30)
    one = fit(vllm, model, Request(), memory, TOKENS)
    two = fit(vllm, model, Request(tp_size=2), memory, TOKENS)
    assert memory.budget(2) == 2**30
    assert two.tokens > 2 * one.tokens
    assert ("2 tensor-parallel ranks", two.tokens) in [(change.text, change.value) for change in one.changes]


def test_the_memory_is_named_once() -> None:
    """An option of the engine's own that names the memory contradicts the budget."""
    with pytest.raises(UsageError, match="available-bytes"):
        fit(find_engine("vllm"), preset_model("qwen3-0.6b"), Request(options={"available-bytes": 2**30}), Memory(2**30), TOKENS)


def test_narrower_types_are_offered_with_their_figures() -> None:
    """fp8 halves bfloat16, q8_0 takes 34 bytes for 32 elements, q4_0 18."""
    model, token = preset_model("qwen3-0.6b"), 2 * 28 * 8 * 128 * 2
    found = fit(find_engine("exact"), model, Request(), Memory(1000 * token), TOKENS)
    assert {change.text: change.value for change in found.changes} == {
        "fp8 cache": 2000,
        "q8_0 cache": 1000 * 64 // 34,
        "q4_0 cache": 1000 * 64 // 18,
        "2 tensor-parallel ranks": 2000,
    }


def test_the_frontier_is_made_of_answers() -> None:
    """Each pair is what fit answers for its batch."""
    exact, model, memory = find_engine("exact"), preset_model("gemma-3-270m"), Memory(2**28)
    rows = frontier(exact, model, Request(), memory).rows
    assert [batch for batch, _, _ in rows[:4]] == [1, 2, 4, 8]
    for batch, tokens, size in rows:
        found = fit(exact, model, Request(batch_size=batch), memory, TOKENS)
        assert (tokens, size) == (found.tokens, found.need_bytes)


def test_the_largest_term_is_named() -> None:
    """Gemma's sliding layers stop at their window; from some length on the few full ones take most."""
    exact, model = find_engine("exact"), preset_model("gemma-3-270m")
    short: Fit = fit(exact, model, Request(), Memory(2**23), TOKENS)
    long: Fit = fit(exact, model, Request(), Memory(2**28), TOKENS)
    assert (short.binding, long.binding) == ("sliding_attention", "full_attention")
    assert sum(terms(long.tally).values()) == long.total_bytes


def test_what_the_allocator_holds_counts() -> None:
    """MLX-LM's windows hold a prompt's last chunk while it runs: lengths are fitted to that, not to what is left of it."""
    engine, model = find_engine("mlx-lm"), preset_model("gemma-3-1b")
    found = fit(engine, model, Request(), Memory(2**28), TOKENS)
    now, then = (engine.allocate(model, Request(tokens=tokens)) for tokens in (found.tokens, found.tokens + 1))
    assert now.held_bytes is not None
    assert then.held_bytes is not None
    assert found.need_bytes == now.held_bytes <= 2**28 < then.held_bytes


def test_an_engine_s_own_limit_bounds_the_search() -> None:
    """llama.cpp takes 256 sequences and counts cells in 32 bits: neither is a want of memory."""
    engine, (model, _) = find_engine("llama.cpp"), question("llama.cpp", "gguf")
    found = fit(engine, model, Request(tokens=256), Memory(2**50), BATCH)
    assert (found.batch_size, found.limited_by) == (256, "engine")
    assert "256 is the most" in found.limit
    need = engine.plan(model, Request(tokens=32768)).need
    assert fit(engine, model, Request(tokens=32768), Memory(need(3, 32768)), BATCH).batch_size == 3
    found = fit(engine, model, Request(batch_size=7), Memory(2**50), TOKENS)
    assert found.tokens == (2**32 - 1) // 7
    assert found.limited_by == "engine"
    pairs = frontier(engine, model, Request(), Memory(2**40))
    assert [batch for batch, _, _ in pairs.rows] == [2**power for power in range(9)]
    assert "512 sequences" in pairs.limit


def test_a_number_of_sequences_that_an_option_names() -> None:
    """-o parallel=4 takes four sequences and no other number."""
    engine, (model, _) = find_engine("llama.cpp"), question("llama.cpp", "gguf")
    options: dict[str, OptionValue] = {"parallel": 4}
    found = fit(engine, model, Request(tokens=1024, options=options), Memory(2**40), BATCH)
    assert (found.batch_size, found.limited_by) == (4, "option")


@pytest.mark.parametrize(
    ("engine_name", "option", "most"),
    [("vllm", "max-model-len", 4096), ("static", "capacity", 100), ("vllm", "max-model-len", 100)],
)
def test_an_option_bounds_the_length(engine_name: str, option: str, most: int) -> None:
    """Whatever the memory: no token more than the option allows, and the frontier's rows no longer than that."""
    engine, model, request = find_engine(engine_name), preset_model("qwen3-0.6b"), Request(options={option: most})
    found = fit(engine, model, request, Memory(2**40), TOKENS)
    assert (found.tokens, found.fits, found.limited_by) == (most, True, "option")
    rows = frontier(engine, model, request, Memory(2**34)).rows
    assert (rows[0][:2], max(tokens for _, tokens, _ in rows)) == ((1, most), most)


@pytest.mark.parametrize(("kind", "most"), [("opt-175b", 2048), ("whisper-tiny", 448), ("gpt2", 1024)])
def test_a_model_made_for_less_than_the_default_length(kind: str, most: int) -> None:
    """vLLM refuses what is beyond; no length was asked for, so none is refused."""
    engine, model = find_engine("vllm"), preset_model(kind)
    assert fit(engine, model, Request(), Memory(2**43), TOKENS).tokens == most
    taken = engine.allocate(model, Request()).request["tokens"]
    assert taken == (most, "default: the model's own maximum")


def test_sequences_that_wait() -> None:
    """vLLM runs 1,024 at once unless told otherwise: said beside the memory's answer, which it doesn't cut."""
    engine, model = find_engine("vllm"), preset_model("smollm-135m")
    for options, most in (({}, "1,024"), ({"max-num-seqs": 7}, "7")):
        found = fit(engine, model, Request(tokens=100, options=dict(options)), Memory(2**36), BATCH)
        assert found.batch_size > 1024
        assert most in found.notes[0]
    assert not fit(engine, model, Request(tokens=2048), Memory(2**32), BATCH).notes


def test_what_grows_beyond_the_search_is_not_called_unbounded_growth() -> None:
    """2 bytes a token: 2 TiB at the search's end of 2^40 tokens, and more beyond it. A state doesn't grow at all."""
    model, exact = preset_model("qwen3-0.6b"), find_engine("exact")
    grows = fit(exact, model, Request(), Memory(2**70), TOKENS)
    assert (grows.tokens, grows.limited_by) == (2**40, "search")
    assert fit(exact, preset_model("mamba-130m"), Request(), Memory(2**30), TOKENS).limit == "nothing grows with it"


@pytest.mark.parametrize(
    ("engine_name", "option", "unit"), [("sglang", "max-total-tokens", 1), ("tensorrt-llm", "max-tokens", 32)]
)
def test_a_capped_pool_bounds_what_fits(engine_name: str, option: str, unit: int) -> None:
    """No sequence is longer than the pool, nor do more run at once than it holds; estimate and fit say the same."""
    engine, model = find_engine(engine_name), preset_model("qwen3-0.6b")
    options: dict[str, OptionValue] = {option: 100}
    most = 100 // unit * unit
    found = fit(engine, model, Request(options=options), Memory(2**40), TOKENS)
    assert (found.tokens, found.limited_by) == (most, "option")
    for tokens in (most, most + 1):
        own = engine.allocate(model, Request(tokens=tokens, options=options))
        asked = fit(engine, model, Request(tokens=tokens, options=options), Memory(2**40), BOTH)
        assert own.fits is asked.fits is (tokens <= most)
        assert (f"-o {option}=100" in own.refusal) is (f"-o {option}=100" in asked.limit) is (tokens > most)
    assert fit(engine, model, Request(tokens=unit, options=options), Memory(2**40), BATCH).batch_size == 100 // unit
    assert engine.allocate(model, Request(tokens=most, batch_size=2, options=options)).warnings  # one of them waits
    small = fit(engine, model, Request(options=options), Memory(engine.allocate(model, Request(tokens=32)).total_bytes), TOKENS)
    assert (small.tokens, small.limited_by) == (32, "memory")
