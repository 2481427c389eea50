"""What to change in a launch line: one flag each, and what that gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvcalc.check.question import Question
from kvcalc.core.model import OptionValue, Request
from kvcalc.engines.base import Engine
from kvcalc.engines.fit import BATCH, TOKENS, Fit, Memory, fit
from kvcalc.engines.requests import DEFAULT_TOKENS
from kvcalc.errors import KvcalcError
from kvcalc.values import value

WORTH = 1.5  # a change is told of where it holds so many times the sequences


@value
class Change:
    """One flag of the line, as it stands and as it might, and what that gives."""

    flag: str
    before: str  # empty where the line doesn't have it
    after: str  # empty where it is best left out
    gives: str


def smaller_whole(asked: Question, budget: int, need: int, fits: bool) -> Iterator[Change]:
    """Of engines that allocate all slots at the start: a quantised cache, windows at their own size, a shorter context."""
    options = asked.request.options
    if not fits:
        yield from _quantised(asked, budget, need)
    yield from _beyond(asked, need)
    if options.get("swa-full"):
        less = _need(asked, _without(asked.request, "swa-full"))
        if less is not None and less < need:
            yield Change("--swa-full", "--swa-full", "", f"{less:,} bytes instead of {need:,}")
    if not fits:
        yield from _shorter_whole(asked, budget)


def _with(request: Request, **options: OptionValue) -> Request:
    return replace(request, options={**request.options, **{name.replace("_", "-"): held for name, held in options.items()}})


def _without(request: Request, option: str) -> Request:
    return replace(request, options={name: held for name, held in request.options.items() if name != option})


def _quantised(asked: Question, budget: int, need: int) -> Iterator[Change]:
    flag, width = asked.names.narrower
    types = asked.names.types
    if any(asked.request.options.get(name, "f16") != "f16" for name in types):
        return
    less = _need(asked, _with(asked.request, **dict.fromkeys(types, width.split()[0])))
    if less is not None and less < need:
        yield Change(
            flag, "", width, f"{less:,} bytes" + ("; it fits" if less <= budget else f"; still {less - budget:,} too many")
        )


def _beyond(asked: Question, need: int) -> Iterator[Change]:
    """A slot that is longer than the model was made for."""
    options, longest = asked.request.options, asked.model.max_tokens
    total, slots = options.get(asked.names.total), options.get("parallel", 1)
    if not isinstance(total, int) or not isinstance(slots, int) or not longest or options.get("kv-unified"):
        return
    if "rope-scaling" in asked.launch.settings or total // max(slots, 1) <= longest:
        return
    less = _need(asked, _with(asked.request, **{asked.names.total: longest * slots}))
    if less is not None and less < need:
        gives = f"{less:,} bytes instead of {need:,}: the model was made for {longest:,} tokens a slot"
        yield Change(asked.names.flag, str(asked.length or ""), str(longest * slots), gives)


def _shorter_whole(asked: Question, budget: int) -> Iterator[Change]:
    """The largest context, in steps of 256 cells, that the budget holds."""
    low, high = 0, (asked.length or asked.model.max_tokens or DEFAULT_TOKENS) // 256
    while low < high:
        middle = (low + high + 1) // 2
        need = _need(asked, _with(asked.request, **{asked.names.total: middle * 256}))
        low, high = (middle, high) if need is not None and need <= budget else (low, middle - 1)
    if low:
        yield Change(asked.names.flag, str(asked.length or ""), str(low * 256), "it fits")


def _need(asked: Question, request: Request) -> int | None:
    try:
        return asked.engine.plan(asked.model, request).must_be_free
    except KvcalcError:
        return None


def fit_of(asked: Question, request: Request, searched: str) -> Fit:
    """What fits of a request on the launch's card. Raises what the engine raises."""
    memory = asked.memory or Memory(0)
    return fit(asked.engine, asked.model, request, memory, searched)


def longest_of(asked: Question) -> int:
    """The longest single sequence that fits; 0 where none does."""
    return _tried(asked, replace(asked.request, tokens=None, batch_size=1), TOKENS)


def cures(asked: Question, one: Request) -> Iterator[Change]:
    """What makes one sequence fit: a shorter one, a narrower cache, more ranks."""
    shorter = longest_of(asked)
    if shorter:
        yield Change(asked.names.flag, str(asked.length or ""), str(shorter), "one sequence fits")
    narrow = _narrow(asked, one)
    sequences = _tried(asked, narrow, BATCH) if narrow else 0
    if sequences:
        yield Change(asked.names.narrower[0], _said_dtype(asked), asked.names.narrower[1], _times(sequences, one))
    for ranks in (2, 4):
        wider = replace(one, tp_size=one.tp_size * ranks, batch_size=1)
        sequences = _tried(asked, wider, BATCH)
        if sequences:
            before = str(one.tp_size) if any(name in asked.launch.settings for name in asked.names.tp) else ""
            yield Change(f"--{asked.names.tp[0]}", before, str(wider.tp_size), _times(sequences, one))
            return


def richer(asked: Question, one: Request, sequences: int) -> Iterator[Change]:
    """What a line that fits leaves on the table."""
    narrow = _narrow(asked, one)
    more = _tried(asked, narrow, BATCH) if narrow else 0
    if more >= sequences * WORTH:
        yield Change(
            asked.names.narrower[0], _said_dtype(asked), asked.names.narrower[1], f"{more:,} instead of {sequences:,} sequences"
        )
    if asked.request.options.get("disable-hybrid-kv-cache-manager"):
        options = {name: held for name, held in one.options.items() if name != "disable-hybrid-kv-cache-manager"}
        more = _tried(asked, replace(one, batch_size=1, options=options), BATCH)
        if more >= sequences * WORTH:
            flag = "--disable-hybrid-kv-cache-manager"
            yield Change(flag, flag, "", f"{more:,} instead of {sequences:,} sequences")


def waiting(asked: Question, sequences: int) -> Iterator[str]:
    """That more sequences are let in than fit."""
    if asked.batch is not None and asked.batch > sequences:
        yield f"{asked.batch:,} sequences are let in; {sequences:,} of the full length fit, the others wait or are shorter"


def _times(sequences: int, one: Request) -> str:
    return f"{sequences:,} sequence{'s' if sequences > 1 else ''} of {one.tokens or 0:,} tokens" + (
        " fit" if sequences > 1 else " fits"
    )


def _said_dtype(asked: Question) -> str:
    held = asked.launch.settings.get("kv-cache-dtype")
    return held if isinstance(held, str) else ""


def _narrow(asked: Question, one: Request) -> Request | None:
    """The same request with a cache half as wide, where it isn't narrow already."""
    if not asked.names.narrower[0] or _said_dtype(asked).startswith(("fp8", "nvfp4", "int", "fp4", "turbo")):
        return None
    option = _option_of(asked.engine)
    if not option:
        return None
    return replace(one, batch_size=1, k_dtype=None, v_dtype=None, options={**one.options, option: asked.names.narrower[1]})


def _option_of(engine: Engine) -> str:
    return next((option.name for option in engine.options if option.name == "kv-cache-dtype"), "")


def _tried(asked: Question, request: Request, searched: str) -> int:
    """What a fit of another request gives; 0 where the engine refuses it."""
    try:
        found = fit_of(asked, request, searched)
    except KvcalcError:
        return 0
    if not found.fits or found.unbounded:
        return 0
    return found.tokens if searched == TOKENS else found.batch_size
