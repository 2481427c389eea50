"""Why a vLLM figure differs: each known slip is run through the engine's rules, the likeliest first.

A guess counts only where it makes the figure right, and is silent where the log, or the command line, says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from kvcalc.audit.explain import common_guesses, dtype_guesses, likeliest
from kvcalc.audit.findings import Finding, Range
from kvcalc.audit.kept import kept_of
from kvcalc.audit.vllm_memory import memories
from kvcalc.audit.vllm_run import Run, Way, own_draft_layers, release_of
from kvcalc.core.log_facts import Statement
from kvcalc.units import ceil_div, format_bytes

MORE_KEPT = "more is kept a token"
_BLOCK_SLACK = 2 * 16


@dataclass(frozen=True, slots=True)
class Slip:
    """One thing that may be otherwise than it was taken: as options, or as layers besides."""

    words: str
    add: str = ""  # what one would type to say so
    options: tuple[str, ...] = ()
    draft: int = 0
    release: str | None = None
    settings: tuple[str, ...] = ()  # the log's settings that decide it: where one is stated, this is not the slip


RANKS = tuple(
    Slip(f"one of {ranks} ranks", f"--tp {ranks}", (f"tensor-parallel-size={ranks}",), settings=("tensor_parallel_size",))
    for ranks in (2, 4, 8, 16)
)
SLIPS: tuple[Slip, ...] = (
    *(Slip(f"as vLLM {release} counts", f"-o release={release}", release=release) for release in ("0.25.0", "0.20.0", "0.10.2")),
    Slip("one batch in flight", "-o async-scheduling=false", ("async-scheduling=false",), settings=("async_scheduling",)),
    Slip(
        "without prefix caching",
        "-o enable-prefix-caching=false",
        ("enable-prefix-caching=false",),
        settings=("enable_prefix_caching",),
    ),
    Slip("1 more layer kept: a draft or MTP head", "--draft", draft=1),
    Slip("the batched tokens of a smaller card", "-o card=small", ("card=small",), settings=("max_num_batched_tokens",)),
    Slip("the batched tokens of a larger card", "-o card=huge", ("card=huge",), settings=("max_num_batched_tokens",)),
    Slip("as if the type were fp8", "--dtype fp8", ("kv-cache-dtype=fp8",), settings=("kv_cache_dtype",)),
    *RANKS,
    Slip(
        "windows held like full attention",
        "-o disable-hybrid-kv-cache-manager=true",
        ("disable-hybrid-kv-cache-manager=true",),
    ),
)
Rules = Mapping[str, Callable[[Run, Statement], list[Finding]]]


def why_differs(run: Run, finding: Finding, rules: Rules) -> tuple[str, str]:
    """What explains the figure, and what to add where that alone was missing and the log can't contradict it."""
    fitting = list(_fitting(run, finding, rules))
    if fitting and _unsaid(run, fitting[0]):
        return "", "add " + " or ".join(dict.fromkeys(slip.add for slip in fitting[:2]))
    if fitting:
        return likeliest([*(_words(slip) for slip in fitting[:1]), *filter(None, [_another_rank(run, finding)])]), ""
    if finding.unit == "count" and finding.what.startswith("tokens"):
        return _tokens_why(run, finding), ""
    return _OF_FIGURE.get(finding.what.split(" of ")[0], ""), ""


_OF_FIGURE = {
    "block": "the states' or the cache's element type, or the number of ranks, is another: see -o mamba-ssm-cache-dtype",
    "blocks": "another --swap-space, another model, or another type of cache",
}


def _words(slip: Slip) -> str:
    return f"{slip.words}: {slip.add}" if slip.add else slip.words


def _unsaid(run: Run, slip: Slip) -> bool:
    """Whether the log's banner, which would say it, is missing."""
    return bool(slip.settings) and not run.load.settings


def _fitting(run: Run, finding: Finding, rules: Rules) -> Iterator[Slip]:
    statement = next(each for each in run.load.statements if each.line == finding.line and each.kind in rules)
    for slip in SLIPS:
        if _contradicted(run, slip):
            continue
        found = rules[statement.kind](run.varied(_way(run.way, slip)), statement)
        if any(each.what == finding.what and each.verdict in ("exact", "agrees") for each in found):
            yield slip


def _way(way: Way, slip: Slip) -> Way:
    release = way.release if slip.release is None else slip.release
    return replace(way, release=release, options=(*way.options, *slip.options), draft=slip.draft)


def _contradicted(run: Run, slip: Slip) -> bool:
    """Whether the log, or the command line, already says what the slip would change."""
    if slip.release is not None:
        return bool(release_of(run.load, run.settings))
    if slip.draft:
        return bool(own_draft_layers(run.load, run.settings))
    given = run.settings.given
    named = (given.tp_size is not None and slip in RANKS) or (given.dtype is not None and "kv_cache_dtype" in slip.settings)
    stated = any(name in run.load.settings and run.load.settings[name].value != "auto" for name in slip.settings)
    return named or stated or run.names(*(text.partition("=")[0] for text in slip.options))


def _tokens_why(run: Run, finding: Finding) -> str:
    expected, tokens = finding.predicted or Range(0, 0), finding.low
    if guess := _factored(run, tokens, expected):
        return guess
    if rank := _another_rank(run, finding):
        return rank
    filled = _bytes_for(run, tokens)
    if tokens < expected.low:
        return f"these tokens fill only {filled}: {MORE_KEPT} (another model?), or a rank has less memory"
    return "less is kept a token than the model says: another model, or another type of cache"


def _another_rank(run: Run, finding: Finding) -> str:
    """Where the log shows the memory of some ranks alone, and another one may have so much."""
    expected, tokens = finding.predicted or Range(0, 0), finding.low
    shown, ranks = len(memories(run.load)), run.settings.tp_size * run.settings.pp_size
    near = tokens * 3 > expected.low * 2 and tokens * 2 < expected.high * 3
    if not finding.what.startswith("tokens") or ranks <= shown or not near:
        return ""
    which = "another rank's" if run.per_rank else "the tightest rank decides"
    return f"{which}: these tokens fill {_bytes_for(run, tokens)}; the log shows the memory of {shown} of {ranks} ranks"


def _bytes_for(run: Run, tokens: int) -> str:
    report = run.report(num_gpu_blocks_override=1)
    block, size = report.get("bytes_per_block"), report.get("block_size")
    if not isinstance(block, int) or not isinstance(size, int):
        return "less"
    return format_bytes(ceil_div(tokens, size) * block)


def _factored(run: Run, tokens: int, expected: Range) -> str:
    """A slip in the bytes a token that no option makes shows as its inverse in the tokens."""
    main = [each for each in kept_of(run.model) if not each.draft] if run.model else []
    guesses = common_guesses()
    if main and not run.settings.text("kv_cache_dtype").startswith("fp8"):
        guesses = dtype_guesses(run.settings.dtype(), main[0].keys) + guesses
    return likeliest(
        guess.words
        for guess in guesses
        if guess.factor != 1
        and expected.low / guess.factor - _BLOCK_SLACK <= tokens <= expected.high / guess.factor + _BLOCK_SLACK
    )
