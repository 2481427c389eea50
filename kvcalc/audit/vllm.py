"""vLLM's lines: memory, blocks, tokens, concurrency, refusals, the block size of a hybrid.

The memory is printed to 0.01 GiB, so the engine's rules are asked at both ends of what it can be: the tokens must lie
between. What neither the log nor the command line says (the release, the tokens of a step, whether blocks are kept) is
tried in every way that there is: one under which all figures agree is taken, and told. A figure that differs, and would
not under another way, stays unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from kvcalc.audit.findings import RATIO, Finding, Range, check
from kvcalc.audit.settings import Settings
from kvcalc.audit.vllm_memory import candidates, tightest
from kvcalc.audit.vllm_run import NAMED_MEMORY, NO_SHAPE, Run, Way, release_of, rules_of, ways
from kvcalc.audit.vllm_why import MORE_KEPT, why_differs
from kvcalc.core.log_facts import Load, Statement
from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.errors import KvcalcError

MOST_EXPLAINED = 24  # figures whose difference is explained one by one
MOST_LINES = 600  # of all ways together: a start with hundreds of lines is taken the likeliest ways alone
MANY_BLOCKS = 10**6  # enough that the tokens of a block are told to six digits
SWAP_GIB = 4  # --swap-space of the releases that printed CPU blocks
NO_MEMORY = "the log doesn't state the memory for the cache: add -o available-bytes=…, or give the log from the start on"
OTHER_WAYS = ("", "0.32.0", "0.25.0", "0.20.0")  # releases whose rules differ from one another
Rule = Callable[[Run, Statement], list[Finding]]
Tried = tuple[Run, list[Finding]]


def audit_vllm(load: Load, model: Model | None, settings: Settings) -> list[Finding]:
    """The findings of every line of one start."""
    tried: list[Tried] = []
    for way in ways(load, model, settings)[: max(1, MOST_LINES // (len(load.statements) or 1))]:
        tried.append((run := Run(load, model, settings, way), _findings(run)))
        if not _off(tried[-1]):
            break
    best = min(tried, key=_off)
    run, found = best
    _tell(run, settings)
    if _off(best):
        return _settled(run, found, tried)
    if best is not tried[0]:
        settings.notes += [_taken(run.way)]
    return found


def _off(tried: Tried) -> int:
    return sum(each.verdict == "differs" for each in tried[1])


def chosen(load: Load, model: Model | None, settings: Settings) -> Run:
    """The way of taking what isn't said under which the fewest figures differ."""
    runs = [Run(load, model, settings, way) for way in ways(load, model, settings)]
    return min(runs, key=lambda run: sum(each.verdict == "differs" for each in _findings(run)))


def _findings(run: Run) -> list[Finding]:
    return [
        finding for statement in run.load.statements if (rule := RULES.get(statement.kind)) for finding in rule(run, statement)
    ]


def _tell(run: Run, settings: Settings) -> None:
    """Which release's rules these are."""
    rules = rules_of(run.way.release)
    own = rules is not None and run.own_rules
    settings.rules = rules.name if own and rules else f"{run.answering}, as {run.way.release} counts"


def _taken(way: Way) -> str:
    said = ", ".join(f"-o {text}" for text in way.unsaid)
    return f"neither the log nor the command line says all that decides: {said} is taken, under which every figure agrees"


# Figures that differ: for certain, or for want of something


def _settled(run: Run, found: list[Finding], tried: list[Tried]) -> list[Finding]:
    """Each figure that differs with what explains it; one that hangs on something unsaid is unchecked."""
    others = [*tried, *_of_other_releases(run)]
    off = [at for at, each in enumerate(found) if each.verdict == "differs"]
    explained = set(off[:MOST_EXPLAINED])
    return [_judged(run, each, at, others, at in explained) if at in off else each for at, each in enumerate(found)]


def _of_other_releases(run: Run) -> list[Tried]:
    """Under other releases' rules, where the log's own are not among those that were checked."""
    rules = rules_of(run.way.release)
    if rules is not None and run.own_rules and not rules.stand_in:
        return []
    runs = [run.varied(replace(run.way, release=release)) for release in OTHER_WAYS]
    return [(other, _findings(other)) for other in runs]


def _judged(run: Run, finding: Finding, at: int, others: list[Tried], explained: bool) -> Finding:
    changing = [
        other.way
        for other, found in others
        if at < len(found) and found[at].predicted not in (None, finding.predicted) and found[at].what == finding.what
    ]
    if changing:
        return replace(finding, predicted=None, why=_hangs_on(run, changing))
    why, add = why_differs(run, finding, RULES) if explained else ("as explained above", "")
    if add:
        return replace(finding, predicted=None, why=f"the prediction without it is {finding.predicted_text}: {add}")
    if not _ranks_known(run) and MORE_KEPT in why:
        return replace(finding, predicted=None, why="the log doesn't say how many ranks there are: add --tp, as --tp 2")
    return replace(finding, why=why)


_TYPED = {"card": "max-num-batched-tokens"}  # what decides, where the class of card was taken for it


def _hangs_on(run: Run, changing: list[Way]) -> str:
    """What to add: each thing whose change alone changes the figure."""
    if release := release_of(run.load, run.settings):
        return f"the rules of vLLM {release} for this model are not known: those of {run.settings.rules} don't give this figure"
    own = dict(text.partition("=")[::2] for text in run.way.unsaid)
    alone = set()
    for way in changing:
        other = dict(text.partition("=")[::2] for text in way.unsaid)
        differing = [name for name in {**own, **other} if own.get(name) != other.get(name)]
        alone |= set(differing) if len(differing) == 1 else set()
    named = [_TYPED.get(name, name) for name in ("release", "card", "enable-prefix-caching") if name in alone] or ["release"]
    return f"it hangs on what the log doesn't say: add {' or '.join(f'-o {name}=…' for name in named)}"


def _ranks_known(run: Run) -> bool:
    given = run.settings.given
    return given.tp_size is not None or "tensor_parallel_size" in run.load.settings or run.names("tensor-parallel-size")


# Line by line


def _first(load: Load, kind: str, name: str) -> int | None:
    return next((count for each in load.of_kind(kind) if (count := each.count(name))), None)


def _range(run: Run, name: str, statement: Statement, stated: str = "") -> Range | None:
    """A figure of the report: at both ends of the memory that the line speaks of, or for the blocks that the log names."""
    if run.names(*NAMED_MEMORY):
        return _between(run, name, {}, {})
    figure = statement.figure(stated) if stated else None
    found: Range | None = None
    for memory in candidates(run.load, statement, per_rank=run.per_rank):
        each = _between(run, name, {"available_bytes": memory.low}, {"available_bytes": memory.high})
        if each and figure and each.meets(figure.low, figure.high):
            return each
        found = found or each
    if found:
        return found
    if blocks := _first(run.load, "blocks", "gpu_blocks"):
        one = {"num_gpu_blocks_override": blocks}
        return _between(run, name, one, one)
    run.problem = run.problem or NO_MEMORY
    return None


def _between(run: Run, name: str, low: Mapping[str, int], high: Mapping[str, int]) -> Range | None:
    first, last = (_figure(run, run.pool(**ends), name) for ends in (low, high))
    return None if first is None or last is None else Range(min(first, last), max(first, last))


def _figure(run: Run, report: Mapping[str, object], name: str) -> int | None:
    if name == "kv_tokens" and run.era.tokens_by_blocks:
        return _tokens_by_blocks(report)
    value = report.get(name)
    if isinstance(value, float):
        return int(value * RATIO)
    return value if isinstance(value, int) else None


def _tokens_by_blocks(report: Mapping[str, object]) -> int | None:
    """Up to 0.20: blocks // groups × the smallest block."""
    blocks, groups = report.get("num_blocks"), report.get("groups")
    if not isinstance(blocks, int) or not isinstance(groups, list) or not groups:
        return None
    return blocks // len(groups) * min(int(group["block_size"]) for group in groups)


def _capacity(run: Run, statement: Statement) -> list[Finding]:
    expected = _range(run, "kv_tokens", statement, "tokens")
    why, restates = ("" if expected else run.problem), _by_blocks_alone(run)
    found = check(statement, "tokens", "tokens that fit", expected, why, "count", restates)
    return [_with_bytes(run, each) for each in found] + _concurrency(run, statement)


def _by_blocks_alone(run: Run) -> int:
    """The line of blocks that the tokens follow from, where no memory is known."""
    blocks = run.load.of_kind("blocks")
    return blocks[0].line if blocks and not tightest(run.load) and not run.names(*NAMED_MEMORY) else 0


def _with_bytes(run: Run, finding: Finding) -> Finding:
    """Tokens also as bytes: what their blocks take."""
    report = run.pool(num_gpu_blocks_override=MANY_BLOCKS)
    block, tokens = report.get("bytes_per_block"), _figure(run, report, "kv_tokens")
    if not isinstance(block, int) or not tokens:
        return finding
    return replace(finding, note_bytes=finding.low * block * MANY_BLOCKS // tokens)


def _concurrency(run: Run, statement: Statement) -> list[Finding]:
    """Tokens by the length; a hybrid's by its blocks."""
    length = statement.count("max_len")
    if not length:
        return []
    tokens, line = _tokens_before(run.load, statement)
    blocks = _first(run.load, "blocks", "gpu_blocks")
    report = run.pool(num_gpu_blocks_override=blocks) if blocks and run.model else {}
    restates = 0
    if isinstance(concurrency := report.get("max_concurrency"), float):
        expected: Range | None = Range(int(concurrency * RATIO), int(concurrency * RATIO) + 1)
        restates = run.load.of_kind("blocks")[0].line
    elif tokens is not None and not (run.by_blocks and _hybrid(run)):
        expected, restates = Range(tokens * RATIO // length, (tokens + 1) * RATIO // length), line
    elif blocks:
        expected, restates = _by_blocks(run, blocks, length), run.load.of_kind("blocks")[0].line
    else:
        expected = _range(run, "max_concurrency", statement, "concurrency_x")
    what, why = f"concurrency at {length:,} tokens", "" if expected else run.problem
    return check(statement, "concurrency_x", what, expected, why, "ratio", restates)


def _tokens_before(load: Load, statement: Statement) -> tuple[int | None, int]:
    """The tokens that this line, or the capacity line before it, states, and that line."""
    if (own := statement.count("tokens")) is not None:
        return own, statement.line
    before = [each for each in load.of_kind("capacity") if each.line < statement.line]
    return (before[-1].count("tokens"), before[-1].line) if before else (None, 0)


def _by_blocks(run: Run, blocks: int, length: int) -> Range:
    """Blocks × block size / length, for a model with one kind of layer."""
    value = blocks * (run.settings.number("block_size") or 16) * RATIO // length
    return Range(value, value + 1)


def _hybrid(run: Run) -> bool:
    groups = run.report(num_gpu_blocks_override=1).get("groups") if run.model else None
    return isinstance(groups, list) and len(groups) > 1


def _blocks(run: Run, statement: Statement) -> list[Finding]:
    found: list[Finding] = []
    if tightest(run.load) is not None or run.names(*NAMED_MEMORY):
        found = check(statement, "gpu_blocks", "blocks", _range(run, "num_blocks", statement), run.problem, "count")
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
    return check(statement, "cpu_blocks", f"blocks of {swap} GiB swap space", predicted, "", "count")


def _refusal(run: Run, statement: Statement) -> list[Finding]:
    length, memory = statement.count("max_len"), statement.figure("available_gib")
    if not length or memory is None:
        return []
    low = run.pool(available_bytes=max(1, memory.low), max_model_len=length) if run.model else {}
    need = low.get("needed_bytes")
    what, expected_need = f"cache of one request of {length:,} tokens", need if isinstance(need, int) else None
    found = check(statement, "need_gib", what, expected_need, "" if expected_need else run.problem or NO_SHAPE)
    if expected_need is None:
        return found + check(statement, "estimated", "longest length that fits", None, run.problem or NO_SHAPE, "count")
    block = low.get("bytes_per_block")
    high = run.pool(available_bytes=memory.high + (block if isinstance(block, int) else 0), max_model_len=length)
    first, last = low.get("longest_model_len"), high.get("longest_model_len")
    expected = Range(first, last) if isinstance(first, int) and isinstance(last, int) else None
    longest = check(statement, "estimated", "longest length that fits", expected, "", "count")
    return found + [replace(each, note_bytes=_needed(run, memory.low, each.low)) for each in longest]


def _needed(run: Run, memory: int, length: int) -> int | None:
    """Bytes of one request of a length."""
    need = run.pool(available_bytes=max(1, memory), max_model_len=length).get("needed_bytes")
    return need if isinstance(need, int) else None


def _refused_tokens(run: Run, statement: Statement) -> list[Finding]:
    blocks = _first(run.load, "blocks", "gpu_blocks")
    size = run.settings.number("block_size") or 16
    expected = Range(blocks * size, blocks * size) if blocks else _range(run, "kv_tokens", statement)
    restates = run.load.of_kind("blocks")[0].line if blocks else 0
    why = "" if expected else run.problem
    found = check(statement, "tokens", f"tokens that fit, blocks of {size}", expected, why, "count", restates)
    return [_with_bytes(run, each) for each in found]


def _hybrid_block(run: Run, statement: Statement) -> list[Finding]:
    size = run.report().get("block_size")
    predicted = size if isinstance(size, int) else None
    return check(
        statement, "block_size", "block of the attention layers", predicted, run.problem if predicted is None else "", "count"
    )


def _padding(run: Run, statement: Statement) -> list[Finding]:
    """How much larger the padded state page is."""
    what = "padding of the state page, %"
    if run.model is None:
        return check(statement, "percent_x", what, None, NO_SHAPE, "ratio")
    try:
        engine = find_engine("vllm")
        tally = engine.allocate(run.model, Request(options=engine.parse_options(run.options())))
    except KvcalcError as problem:
        return check(statement, "percent_x", what, None, problem.what, "ratio")
    for layer in tally.layers:
        sizes = {array.label: array.row_bytes for array in layer.arrays if array.component in ("state", "other")}
        states = sum(size for label, size in sizes.items() if label != "page padding")
        if states and "page padding" in sizes:
            value = 100 * RATIO * sizes["page padding"] // states
            return check(statement, "percent_x", what, value, "", "ratio")
    return check(statement, "percent_x", what, None, "no page is padded", "ratio")


RULES: Mapping[str, Rule] = {
    "capacity": _capacity,
    "concurrency": _concurrency,
    "blocks": _blocks,
    "refusal": _refusal,
    "refusal_tokens": _refused_tokens,
    "hybrid_block": _hybrid_block,
    "padding": _padding,
}
