"""vLLM's lines: memory, blocks, tokens, concurrency, refusals, the block size of a hybrid.

The memory is printed to 0.01 GiB, so the engine's rules are asked at both ends of what it can be: the tokens must lie
between. Every rank has the memory of the tightest one, and a log may show the memory of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from kvcalc.audit.explain import Guess, common_guesses, dtype_guesses, layer_guesses, likeliest
from kvcalc.audit.findings import RATIO, Finding, Range, check
from kvcalc.audit.kept import kept_of
from kvcalc.audit.settings import Settings
from kvcalc.core.log_facts import Figure, Load, Statement
from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.errors import KvcalcError
from kvcalc.units import ceil_div, format_bytes

NO_SHAPE = "the model's shape isn't known"
SWAP_GIB = 4  # --swap-space of the releases that printed CPU blocks
NEW_TOKENS = (0, 22)  # from here on tokens = concurrency × length
SETTINGS: Mapping[str, str] = {
    "tensor_parallel_size": "tensor-parallel-size",
    "pipeline_parallel_size": "pipeline-parallel-size",
    "data_parallel_size": "data-parallel-size",
    "decode_context_parallel_size": "decode-context-parallel-size",
    "kv_cache_dtype": "kv-cache-dtype",
    "block_size": "block-size",
    "max_num_batched_tokens": "max-num-batched-tokens",
    "max_num_seqs": "max-num-seqs",
    "enable_prefix_caching": "enable-prefix-caching",
    "async_scheduling": "async-scheduling",
    "platform": "platform",
    "num_spec_tokens": "num-speculative-tokens",
    "num_speculative_tokens": "num-speculative-tokens",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "async_scheduling": {"enabled": "true", "disabled": "false"},
    "platform": {"cpu": "cpu", "cuda": "", "rocm": ""},
    "enable_prefix_caching": {"True": "true", "False": "false"},
    "kv_cache_dtype": {"auto": ""},
}


@dataclass(slots=True)
class Run:
    """The engine's rules under a load's settings. ``problem`` says why they can't be asked."""

    load: Load
    model: Model | None
    settings: Settings
    problem: str = ""

    def report(self, **more: int) -> Mapping[str, object]:
        """The engine's own figures with these options besides; empty where it can't say."""
        if self.model is None:
            self.problem = NO_SHAPE
            return {}
        named = {name.replace("_", "-"): f"{name.replace('_', '-')}={value}" for name, value in more.items()}
        options = [text for text in self.options() if text.partition("=")[0] not in named] + list(named.values())
        try:
            engine = find_engine("vllm")
            dtype = self.settings.given.dtype
            request = Request(k_dtype=dtype, v_dtype=dtype, options=engine.parse_options(options))
            return engine.allocate(self.model, request).report
        except KvcalcError as problem:
            self.problem = problem.what
            return {}

    def options(self) -> list[str]:
        """The engine's options as the command line and the log give them."""
        named = {text.partition("=")[0] for text in self.settings.given.options}
        found = [*self.settings.given.options, "allow-long-max-model-len=true"]
        for setting, option in SETTINGS.items():
            text = "" if option in named or setting not in self.load.settings else self.settings.text(setting)
            words = WORDS.get(setting)
            text = text if words is None else words.get(text, text if setting == "kv_cache_dtype" else "")
            found += [f"{option}={text}"] if text else []
        found += self._ranks(named) + self._length(named)
        return list(dict.fromkeys(found))

    def _ranks(self, named: set[str]) -> list[str]:
        sizes = {"tensor": self.settings.given.tp_size, "pipeline": self.settings.given.pp_size}
        options = {f"{name}-parallel-size": size for name, size in sizes.items() if size is not None}
        stated = set(self.load.settings) & {"tensor_parallel_size", "pipeline_parallel_size"}
        return [f"{name}={size}" for name, size in options.items() if name not in named and name.replace("-", "_") not in stated]

    def _length(self, named: set[str]) -> list[str]:
        length = self.length()
        return [f"max-model-len={length}"] if length and "max-model-len" not in named else []

    def length(self) -> int | None:
        """max_model_len: the settings' own, else what a line says of it."""
        stated = self.settings.number("max_seq_len", "max_model_len")
        if stated:
            return stated
        return next((count for each in self.load.statements if (count := each.count("max_len"))), None)


def audit_vllm(load: Load, model: Model | None, settings: Settings) -> list[Finding]:
    """The findings of every line of one start."""
    run = Run(load, model, settings)
    found: list[Finding] = []
    for statement in load.statements:
        rule = _RULES.get(statement.kind)
        if rule is not None:
            found += rule(run, statement)
    return found


def _memory(load: Load) -> Figure | None:
    """The tightest rank's memory among those that the log shows."""
    figures = [figure for each in load.of_kind("available") if (figure := each.figure("available_gib")) is not None]
    return min(figures, key=lambda figure: figure.value, default=None)


def _first(load: Load, kind: str, name: str) -> int | None:
    return next((count for each in load.of_kind(kind) if (count := each.count(name))), None)


def _range(run: Run, name: str) -> Range | None:
    """A figure of the report, at both ends of the memory, or for the blocks that the log names."""
    blocks = _first(run.load, "blocks", "gpu_blocks")
    memory = _memory(run.load)
    if memory is not None:
        low, high = run.report(available_bytes=memory.low), run.report(available_bytes=memory.high)
    elif blocks:
        low = high = run.report(num_gpu_blocks_override=blocks)
    else:
        run.problem = run.problem or "the log doesn't state the memory for the cache: give it from the start on"
        return None
    first, last = _figure(run, low, name), _figure(run, high, name)
    return None if first is None or last is None else Range(min(first, last), max(first, last))


def _figure(run: Run, report: Mapping[str, object], name: str) -> int | None:
    if name == "kv_tokens" and _older(run.load):
        return _older_tokens(report)
    value = report.get(name)
    if isinstance(value, float):
        return int(value * RATIO)
    return value if isinstance(value, int) else None


def _older(load: Load) -> bool:
    """Whether the release counts tokens as blocks: two lines instead of one, or a version that says so."""
    parts = load.version.split(".")
    if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit():
        return (int(parts[0]), int(parts[1])) < NEW_TOKENS
    return bool(load.of_kind("concurrency"))


def _older_tokens(report: Mapping[str, object]) -> int | None:
    """Up to 0.21: blocks // groups × the smallest block."""
    blocks, groups = report.get("num_blocks"), report.get("groups")
    if not isinstance(blocks, int) or not isinstance(groups, list) or not groups:
        return None
    return blocks // len(groups) * min(int(group["block_size"]) for group in groups)


def _capacity(run: Run, statement: Statement) -> list[Finding]:
    expected = _range(run, "kv_tokens")
    tokens = statement.figure("tokens")
    why = "" if expected or tokens is None else run.problem
    if expected and tokens and not expected.meets(tokens.low, tokens.high):
        why = _tokens_why(run, tokens.value, expected)
    return check(statement, "tokens", "tokens that fit", expected, why, "count") + _concurrency(run, statement)


def _concurrency(run: Run, statement: Statement) -> list[Finding]:
    """Tokens by the length; a hybrid's by its blocks."""
    length = statement.count("max_len")
    tokens = statement.count("tokens") or _first(run.load, "capacity", "tokens")
    blocks = _first(run.load, "blocks", "gpu_blocks")
    if not length:
        return []
    report = run.report(num_gpu_blocks_override=blocks) if blocks and run.model else {}
    if isinstance(concurrency := report.get("max_concurrency"), float):
        expected: Range | None = Range(int(concurrency * RATIO), int(concurrency * RATIO) + 1)
    elif tokens is not None and not (_older(run.load) and _hybrid(run)):
        expected = Range(tokens * RATIO // length, (tokens + 1) * RATIO // length)
    elif blocks:
        expected = _by_blocks(run, blocks, length)
    else:
        expected = _range(run, "max_concurrency")
    return check(
        statement, "concurrency_x", f"concurrency at {length:,} tokens", expected, "" if expected else run.problem, "ratio"
    )


def _by_blocks(run: Run, blocks: int, length: int) -> Range:
    """Blocks × block size / length, for a model with one kind of layer."""
    value = blocks * (run.settings.number("block_size") or 16) * RATIO // length
    return Range(value, value + 1)


def _hybrid(run: Run) -> bool:
    groups = run.report(num_gpu_blocks_override=1).get("groups") if run.model else None
    return isinstance(groups, list) and len(groups) > 1


def _tokens_why(run: Run, tokens: int, expected: Range) -> str:
    guess = _guessed(run, tokens, expected)
    if guess:
        return guess
    shown = len(run.load.of_kind("available"))
    ranks = run.settings.tp_size * run.settings.pp_size
    if tokens < expected.low and ranks > shown and tokens * 3 > expected.low * 2:
        needed = _bytes_for(run, tokens)
        return f"the tightest rank decides: these tokens fill {needed}; the log shows the memory of {shown} of {ranks} ranks"
    if tokens < expected.low:
        return (
            f"these tokens fill only {_bytes_for(run, tokens)}: more is kept a token (another model?), or a rank has less memory"
        )
    return "less is kept a token than the model says: another model, or another type of cache"


def _bytes_for(run: Run, tokens: int) -> str:
    report = run.report(num_gpu_blocks_override=1)
    block, size = report.get("bytes_per_block"), report.get("block_size")
    if not isinstance(block, int) or not isinstance(size, int):
        return "less"
    return format_bytes(ceil_div(tokens, size) * block)


def _guessed(run: Run, tokens: int, expected: Range) -> str:
    """A slip in the bytes a token shows as its inverse in the tokens."""
    kept = kept_of(run.model) if run.model else ()
    main = [each for each in kept if not each.draft]
    guesses: list[Guess] = layer_guesses(len(main), kept)
    if main:
        guesses += dtype_guesses(run.settings.dtype(), main[0].keys)
    slack = 2 * 16
    fitting = (
        guess.words
        for guess in [*guesses, *common_guesses()]
        if guess.factor != 1 and expected.low / guess.factor - slack <= tokens <= expected.high / guess.factor + slack
    )
    return likeliest(fitting)


def _blocks(run: Run, statement: Statement) -> list[Finding]:
    memory = _memory(run.load)
    found: list[Finding] = []
    if memory is not None:
        found = check(statement, "gpu_blocks", "blocks", _range(run, "num_blocks"), run.problem, "count")
    return found + _cpu_blocks(run, statement)


def _cpu_blocks(run: Run, statement: Statement) -> list[Finding]:
    """The swap space in whole blocks of one rank: exact, whatever the device's memory."""
    if not statement.count("cpu_blocks"):
        return []
    block = run.report(num_gpu_blocks_override=1).get("bytes_per_block")
    swap = run.settings.text("swap_space") or str(SWAP_GIB)
    if not isinstance(block, int) or not block or not swap.replace(".", "", 1).isdigit():
        return check(statement, "cpu_blocks", "blocks of swap space", None, run.problem, "count")
    predicted = int(Fraction(swap) * 2**30) // block
    stated = statement.count("cpu_blocks") or 0
    why = "" if stated == predicted else _swap_why(stated, predicted)
    return check(statement, "cpu_blocks", f"blocks of {swap} GiB swap space", predicted, why, "count")


def _swap_why(stated: int, predicted: int) -> str:
    for ranks in (2, 4, 8):
        if predicted and abs(stated - ranks * predicted) <= ranks:
            return f"a block of one of {ranks} ranks: name them with --tp {ranks}"
    return "another --swap-space, another model, or another type of cache"


def _refusal(run: Run, statement: Statement) -> list[Finding]:
    length, memory = statement.count("max_len"), statement.figure("available_gib")
    if not length or memory is None:
        return []
    low = run.report(available_bytes=max(1, memory.low), max_model_len=length) if run.model else {}
    need = low.get("needed_bytes")
    what, expected_need = f"cache of one request of {length:,} tokens", need if isinstance(need, int) else None
    found = check(statement, "need_gib", what, expected_need, "" if expected_need else run.problem or NO_SHAPE)
    if expected_need is None:
        return found + check(statement, "estimated", "longest length that fits", None, run.problem or NO_SHAPE, "count")
    block = low.get("bytes_per_block")
    high = run.report(available_bytes=memory.high + (block if isinstance(block, int) else 0), max_model_len=length)
    first, last = low.get("longest_model_len"), high.get("longest_model_len")
    expected = Range(first, last) if isinstance(first, int) and isinstance(last, int) else None
    return found + check(statement, "estimated", "longest length that fits", expected, "", "count")


def _refused_tokens(run: Run, statement: Statement) -> list[Finding]:
    blocks = _first(run.load, "blocks", "gpu_blocks")
    size = run.settings.number("block_size") or 16
    expected = Range(blocks * size, blocks * size) if blocks else _range(run, "kv_tokens")
    return check(statement, "tokens", f"tokens that fit, blocks of {size}", expected, "" if expected else run.problem, "count")


def _hybrid_block(run: Run, statement: Statement) -> list[Finding]:
    size = run.report().get("block_size")
    predicted = size if isinstance(size, int) else None
    stated = statement.count("block_size") or 0
    why = run.problem if predicted is None else ""
    if predicted is not None and predicted != stated:
        why = "the states' or the cache's element type, or the number of ranks, is another: see -o mamba-ssm-cache-dtype"
    return check(statement, "block_size", "block of the attention layers", predicted, why, "count")


def _padding(run: Run, statement: Statement) -> list[Finding]:
    """How much larger the padded state page is."""
    if run.model is None:
        return check(statement, "percent_x", "padding of the state page, %", None, NO_SHAPE, "ratio")
    try:
        engine = find_engine("vllm")
        options = engine.parse_options(run.options())
        tally = engine.allocate(run.model, Request(options=options))
    except KvcalcError as problem:
        return check(statement, "percent_x", "padding of the state page, %", None, problem.what, "ratio")
    for layer in tally.layers:
        sizes = {array.label: array.row_bytes for array in layer.arrays if array.component in ("state", "other")}
        states = sum(size for label, size in sizes.items() if label != "page padding")
        if states and "page padding" in sizes:
            value = 100 * RATIO * sizes["page padding"] // states
            return check(statement, "percent_x", "padding of the state page, %", value, "", "ratio")
    return check(statement, "percent_x", "padding of the state page, %", None, "no page is padded", "ratio")


_RULES = {
    "capacity": _capacity,
    "concurrency": _concurrency,
    "blocks": _blocks,
    "refusal": _refusal,
    "refusal_tokens": _refused_tokens,
    "hybrid_block": _hybrid_block,
    "padding": _padding,
}
