"""The verdict on a launch: it fits, it does not, its engine refuses it, it contradicts itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from kvcalc.check.cures import Change, cures, fit_of, longest_of, richer, smaller_whole, waiting
from kvcalc.check.question import Known, Question, Room, question
from kvcalc.core.gpus import counted, find_gpu
from kvcalc.core.model import Tally
from kvcalc.engines.fit import BATCH, TOKENS, Fit, budget_of
from kvcalc.engines.requests import DEFAULT_TOKENS
from kvcalc.errors import ExitCode, KvcalcError, UsageError
from kvcalc.launch.scalars import holds_placeholder
from kvcalc.launch.tables import table, version
from kvcalc.launch.values import AMBIGUOUS, REMOVED, UNKNOWN, UNREADABLE, Flag, Launch
from kvcalc.units import format_bytes
from kvcalc.values import value

FITS, NO, REFUSED, CONTRADICTS, OPEN, NO_RULES = "fits", "does not fit", "refused", "contradicts itself", "open", "not answered"
CODES = {
    FITS: ExitCode.OK,
    OPEN: ExitCode.OK,
    NO: ExitCode.NO,
    CONTRADICTS: ExitCode.USAGE,
    REFUSED: ExitCode.UNSUPPORTED,
    NO_RULES: ExitCode.UNSUPPORTED,
}


@value
class Answer:
    """The verdict on one launch, with its reasons and figures."""

    launch: Launch
    verdict: str
    why: tuple[str, ...] = ()
    asked: Question | None = None
    tokens: int | None = None  # the length that counts: the line's, else the model's own
    tally: Tally | None = None  # one rank's cache: of one sequence of that length; of all that is allocated where all is
    sequences: int | None = None  # of that length at once, for certain
    budget_bytes: int | None = None
    need_bytes: int | None = None
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    problem: KvcalcError | None = None
    at_most: int | None = None  # sequences where the engine takes the least that it may besides


def answer(launch: Launch, find_model: Callable[[Launch], Known], room: Room) -> Answer:
    """The verdict on a launch. Nothing that a model or an engine raises gets out: it becomes the verdict's reason."""
    refused = tuple(_refused_flags(launch))
    if refused:
        return Answer(launch, REFUSED, refused)
    number, card = counted(room.gpu)
    room = replace(room, gpu=card, cards=number if card != room.gpu else 0)
    contradicted = tuple(_contradictions(launch, room.cards))
    if contradicted:
        return Answer(launch, CONTRADICTS, contradicted)
    try:
        room = replace(room, gpu=_card(launch, room))
        known = find_model(launch)
        asked = question(launch, known.model, known.weights, room)
    except KvcalcError as problem:
        return Answer(launch, NO_RULES if problem.exit_code == ExitCode.UNSUPPORTED else OPEN, (problem.what,), problem=problem)
    try:
        found = _answered(asked, known)
        return replace(found, verdict=OPEN, why=(asked.stand_in, *found.why)) if asked.stand_in else found
    except KvcalcError as problem:
        ours = re.search(r"not modelled|not known|no rule|can't be told", problem.what)  # our own limits, not the engine's
        verdict = NO_RULES if asked.stand_in or ours else REFUSED
        why = (asked.stand_in, problem.what) if asked.stand_in else (problem.what,)
        return Answer(launch, verdict, why, asked, problem=problem, notes=(*known.notes, *asked.notes))


def _card(launch: Launch, room: Room) -> str:
    """The card that is named beside the line, else the line's own where it is known."""
    if room.gpu or room.memory or not launch.gpu:
        return room.gpu
    try:
        return find_gpu(launch.gpu).name
    except UsageError:
        return ""


def _refused_flags(launch: Launch) -> Iterator[str]:
    """Flags that stop the engine before it looks at a model: values that are none, and names that the stated release lacks."""
    for flag in launch.named(UNREADABLE):
        if launch.program and not holds_placeholder(str(flag.value)):
            yield f"{_place(flag)}{flag.written} {flag.value}: {flag.note}"
    if _release_known(launch):
        for flag in launch.named(REMOVED, AMBIGUOUS, UNKNOWN):
            yield f"{_place(flag)}{flag.written}: {flag.note} ({launch.engine} {launch.release})"


def _place(flag: Flag) -> str:
    return f"line {flag.line}: " if flag.line else ""


def _release_known(launch: Launch) -> bool:
    """Whether the parser of the stated release is among those that were read."""
    if not launch.release or launch.engine not in ("vllm", "sglang", "mlx-lm", "lmdeploy") or not launch.program:
        return False
    releases = table(launch.engine).releases
    return version(releases[0]) <= version(launch.release) <= version(releases[-1])


_RANKS = {
    "vllm": ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"),
    "sglang": ("tp-size", "pp-size"),
    "lmdeploy": ("tp",),
}


def _contradictions(launch: Launch, given: int) -> Iterator[str]:
    """More ranks than the cards that the same text gives, on one node."""
    ranks = 1
    for name in _RANKS.get(launch.engine, ()):
        held = launch.settings.get(name, 1)
        ranks *= held if isinstance(held, int) and held > 0 else 1
    if launch.settings.get("nnodes", 1) != 1 or launch.settings.get("distributed-executor-backend") == "ray":
        return
    if any(word in launch.place for word in ("LeaderWorkerSet", "StatefulSet", "modelSpec")):
        return  # their pods may be the nodes of one server
    visible = launch.settings.get("env:CUDA_VISIBLE_DEVICES")
    seen = len([part for part in str(visible).split(",") if part.strip()]) if visible and "$" not in str(visible) else None
    local = launch.settings.get("data-parallel-size-local") or launch.settings.get("data-parallel-start-rank")
    for cards, said in ((launch.gpus, "the text gives it"), (seen, "CUDA_VISIBLE_DEVICES shows it"), (given, "--gpu names")):
        if cards and ranks > cards and not local:
            yield f"{ranks} ranks are asked for, and {said} {cards} card{'s' if cards > 1 else ''}"


def _answered(asked: Question, known: Known) -> Answer:
    notes = (*known.notes, *asked.notes)
    return _whole(asked, notes) if asked.names.whole else _pooled(asked, notes)


def _whole(asked: Question, notes: tuple[str, ...]) -> Answer:
    """Engines that allocate all slots at the start."""
    plan = asked.engine.plan(asked.model, asked.request)
    tally = plan.tally
    tokens = _taken(tally, asked)
    if asked.memory is None:
        return Answer(asked.launch, OPEN, ("no card is named: --gpu says which",), asked, tokens, tally, notes=notes)
    budget, need = budget_of(plan, asked.memory), plan.must_be_free
    fits = need <= budget
    if not fits and need <= budget_of(plan, replace(asked.memory, at_least=True)):
        changes = tuple(smaller_whole(asked, budget, need, fits))
        return Answer(asked.launch, OPEN, (_between(asked),), asked, tokens, tally, None, budget, need, changes, notes)
    changes = tuple(smaller_whole(asked, budget, need, fits))
    verdict, why = _sure(asked) if fits else _short(asked, need - budget)
    return Answer(asked.launch, verdict, why, asked, tokens, tally, None, budget, need, changes, notes)


def _short(asked: Question, missing: int) -> tuple[str, tuple[str, ...]]:
    """That a card doesn't hold all of it; llama.cpp shortens a length that isn't said, and leaves layers in main memory."""
    pin = "num_gpu" if asked.launch.engine == "ollama" else "-ngl"
    why = (
        f"short by {missing:,} bytes on one card",
        f"what the card doesn't hold stays in main memory, where layers aren't pinned ({pin})",
    )
    if asked.launch.engine == "llama.cpp" and asked.length is None and asked.launch.settings.get("fit") != "off":
        return OPEN, (*why, "--ctx-size is not said: --fit shortens it to what fits")
    return NO, why


def _sure(asked: Question) -> tuple[str, tuple[str, ...]]:
    """That it fits, unless the weights are not known: then only that the cache does."""
    other = asked.memory.other if asked.memory is not None else None
    if other is not None and other.high is None:
        return OPEN, (f"what else the engine takes of the card is {other.basis}",)
    if asked.loose:
        return OPEN, (asked.loose,)
    if asked.memory is not None and asked.memory.weights:
        return FITS, ()
    if asked.launch.settings.get("kv-cache-memory-bytes"):
        return FITS, ()
    return OPEN, ("the weights are not counted: say them by --weights; the figures are at most",)


def _taken(tally: Tally, asked: Question) -> int | None:
    held = tally.request.get("tokens", (None, ""))[0]
    return asked.length or (held if isinstance(held, int) else asked.model.max_tokens)


def _pooled(asked: Question, notes: tuple[str, ...]) -> Answer:
    """Engines that give what is left of the card to a pool of blocks."""
    tokens = _length(asked)
    one = replace(asked.request, tokens=tokens, batch_size=asked.request.dp_size)
    if asked.memory is None:
        tally = asked.engine.plan(asked.model, one).tally
        return Answer(asked.launch, OPEN, ("no card is named: --gpu says which",), asked, tokens, tally, notes=notes)
    found = fit_of(asked, replace(one, batch_size=1), BATCH)
    if not found.may_fit:
        why, changes = _why_not(asked, found, tokens), tuple(cures(asked, one))
        return Answer(asked.launch, NO, why, asked, tokens, found.tally, 0, found.budget_bytes, found.need_bytes, changes, notes)
    sequences = found.batch_size if found.fits else 0
    verdict, why = _sure(asked) if found.fits else (OPEN, (_between(asked),))
    changes = tuple(richer(asked, one, sequences)) if found.fits else tuple(cures(asked, one))
    tally = asked.engine.plan(asked.model, one).tally
    found_more = found.at_most.batch_size if found.at_most is not None and not found.at_most.unbounded else None
    return Answer(
        asked.launch,
        verdict,
        why,
        asked,
        tokens,
        tally,
        sequences,
        found.budget_bytes,
        None,
        changes,
        (*notes, *waiting(asked, sequences)),
        at_most=found_more,
    )


def _between(asked: Question) -> str:
    """That it fits where the engine takes little besides, and doesn't where it takes much."""
    other = asked.memory.other if asked.memory is not None else None
    return f"whether it fits hangs on what else the engine takes ({other.said if other else 'not known'}): --overhead says it"


def _length(asked: Question) -> int:
    """The line's own length; the longest that fits where the engine is told to look for it; else the model's own."""
    longest = asked.model.max_tokens or DEFAULT_TOKENS
    if asked.length is not None or asked.memory is None:
        return asked.length or longest
    if not any(asked.launch.settings.get(name) in ("auto", -1) for name in asked.names.length):
        return longest
    found = fit_of(asked, replace(asked.request, tokens=None), TOKENS)
    return min(found.tokens, longest) if found.fits and not found.unbounded else longest


def _why_not(asked: Question, found: Fit, tokens: int) -> tuple[str, ...]:
    if found.budget_bytes <= 0:
        memory = found.memory
        alone = replace(memory, other=None, overhead=0).budget(found.plan.ranks or 1) <= 0
        return (
            "the weights alone are more than the card may give" if alone else "the weights and what else is taken leave nothing",
        )
    short = f"one sequence of {tokens:,} tokens needs {found.need_bytes:,} bytes a rank, {found.budget_bytes:,} are left"
    if asked.names.refuses_length:
        longest = longest_of(asked)
        said = f"; the longest that it would take is {longest:,}" if longest else ""
        need, left = format_bytes(found.need_bytes), format_bytes(found.budget_bytes)
        return (short, f"{asked.launch.engine} refuses to start: {need} are needed, {left} available{said}")
    return (short, f"{asked.launch.engine} starts, and can never hold such a sequence")
