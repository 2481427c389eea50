"""What fits: the largest length for a batch, the largest batch for a length, both along a frontier, or how many of a sample.

Maximal by construction: the search ends at an answer whose successor does not fit (``core/search.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.core.search import CEILING, Found, largest
from kvcalc.dtypes import find_dtype
from kvcalc.engines.base import Engine, Plan
from kvcalc.engines.other_memory import Other
from kvcalc.errors import EngineError, KvcalcError, UsageError
from kvcalc.units import ceil_div

TOKENS, BATCH, BOTH, SAMPLE = "tokens", "batch_size", "both", "lengths"
NARROWER = ("fp8", "q8_0", "q4_0")
FRONTIER_ROWS = 24
MEMORY, ENGINE, OPTION, SEARCH, NOTHING = "memory", "engine", "option", "search", "none"  # what stops the next one


@dataclass(frozen=True, slots=True)
class Memory:
    """One device's memory, and what else lives in it. ``weights`` are the whole model's."""

    device_bytes: int
    weights: int = 0
    overhead: int = 0
    utilization: Fraction = Fraction(1)
    origin: str = ""
    weights_origin: str = ""
    utilization_origin: str = ""
    cache_alone: bool = False  # the bytes are those of the cache: weights and shares are taken off already
    other: Other | None = None  # what else the engine takes, an interval; None where nothing is said of it
    expert_weights: int = 0  # of the weights: routed experts, which data-parallel copies share as well
    expert_copies: int = 1  # those copies
    at_least: bool = False  # count its lower end: what may fit, instead of what is certain to

    @property
    def other_bytes(self) -> int:
        """The end of the interval that is counted. Where nothing bounds it, the lower one: no answer is certain then."""
        if self.other is None:
            return 0
        return self.other.low if self.at_least or self.other.high is None else self.other.high

    def weights_of_rank(self, ranks: int) -> int:
        """Each rank's part: even over the ranks of a copy, and routed experts over those of all copies."""
        return ceil_div(self.weights - self.expert_weights, ranks) + ceil_div(self.expert_weights, ranks * self.expert_copies)

    def budget(self, ranks: int = 1, *, of_rest: bool = False) -> int:
        """What one rank has left for its cache: the weights spread evenly over the ranks that share them.

        memory · utilization − weights / ranks − overhead − what else the engine takes; ``of_rest`` takes the share last.
        """
        other = self.weights_of_rank(ranks) + self.overhead + self.other_bytes
        if of_rest:
            return floor((self.device_bytes - other) * self.utilization)
        return floor(self.device_bytes * self.utilization) - other


@dataclass(frozen=True, slots=True)
class Change:
    """Another way of asking, and the answer it would give."""

    text: str
    value: int
    unit: str  # tokens or sequences


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer, and what it rests on."""

    plan: Plan
    memory: Memory
    budget_bytes: int
    searched: str  # tokens, batch_size, both or lengths
    tokens: int
    batch_size: int
    fits: bool
    total_bytes: int  # of the answer; of the least that was asked where nothing fits
    need_bytes: int  # what must be there for it: more where the engine holds something back
    limit: str  # what the next one runs into, in words
    limited_by: str  # and whose limit that is: memory, engine, option, search or none
    tally: Tally | None
    gap: int | None = None  # a smaller one that does not fit
    unbounded: bool = False
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    at_most: Fit | None = None  # where what else the engine takes is an interval: the answer at its lower end

    @property
    def certain(self) -> bool:
        """Whether the answer rests on no interval."""
        return self.memory.other is None

    @property
    def may_fit(self) -> bool:
        """Whether it fits at least where the engine takes the least that it may."""
        return self.fits or (self.at_most is not None and self.at_most.fits)

    @property
    def engine(self) -> Engine:
        """Whose rules apply."""
        return self.plan.engine

    @property
    def model(self) -> Model:
        """What is cached."""
        return self.plan.model

    @property
    def request(self) -> Request:
        """What was asked."""
        return self.plan.request

    @property
    def shortfall(self) -> int:
        """Bytes that are missing where nothing fits."""
        return 0 if self.fits else max(self.need_bytes - self.budget_bytes, 0)

    @property
    def binding(self) -> str:
        """The largest term: a kind of layer, or an array of the pool."""
        return next(iter(terms(self.tally)), "")


def terms(tally: Tally | None) -> dict[str, int]:
    """Bytes by kind of layer and by array of the pool, the largest first."""
    sizes: dict[str, int] = {}
    for run in tally.layers if tally else ():
        sizes[run.kind] = sizes.get(run.kind, 0) + run.bytes
    for array in tally.shared if tally else ():
        sizes[array.label] = sizes.get(array.label, 0) + array.bytes
    return dict(sorted(((name, size) for name, size in sizes.items() if size), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True)
class _Question:
    """One plan, and which of its request's numbers is looked for."""

    plan: Plan
    searched: str

    @property
    def request(self) -> Request:
        """What was asked."""
        return self.plan.request

    @property
    def engine(self) -> Engine:
        """Whose rules apply."""
        return self.plan.engine

    @property
    def model(self) -> Model:
        """What is cached."""
        return self.plan.model

    def other(self, request: Request) -> _Question:
        """The same number of another request. Raises what the engine raises for it."""
        return _Question(self.engine.plan(self.model, request), self.searched)

    def at(self, value: int) -> Request:
        """The request with the number that is looked for."""
        if self.searched == TOKENS:
            return self.request.at(value)
        if self.searched == BATCH:
            return replace(self.request, batch_size=value, tokens=self.request.tokens or 1)
        if self.searched == SAMPLE:
            return replace(self.request, lengths=self.request.lengths[:value])
        return self.request

    def need(self) -> Callable[[int], int]:
        """The number that is looked for → bytes that must be there."""
        if self.searched == SAMPLE:
            return self._need_of_sample
        need = self.plan.need
        tokens, batch = self.request.tokens or 1, self.request.batch_size
        if self.searched == TOKENS:
            return lambda value: need(batch, value)
        return (lambda value: need(value, tokens)) if self.searched == BATCH else (lambda _: need(batch, tokens))

    def _need_of_sample(self, count: int) -> int:
        return self.plan.resized(replace(self.request, lengths=self.request.lengths[:count])).must_be_free

    def search(self, fits: Callable[[int], bool]) -> Found:
        """The largest that fits."""
        if self.searched == BOTH:
            return Found(int(fits(1)))
        if self.searched == SAMPLE:
            every = len(self.request.lengths)
            return Found(every) if fits(every) else largest(fits, ceiling=every)
        if self.searched == BATCH:
            return largest(fits)
        return largest(fits, self.plan.dip, breaks=self.plan.breaks)


def budget_of(plan: Plan, memory: Memory) -> int:
    """What one rank has for its sequences: its part of the memory, less what the engine holds back."""
    return memory.budget(plan.ranks or 1, of_rest=plan.engine.memory.share_of_rest) - plan.held_back


@dataclass(frozen=True, slots=True)
class _Limit:
    """What stops the next one, and whose limit it is."""

    text: str = "memory"
    by: str = MEMORY


@dataclass(frozen=True, slots=True)
class _Answer:
    found: Found
    need: int
    budget: int
    limit: _Limit


def over_cap(plan: Plan) -> str:
    """Why the pool that an option caps holds no such batch; nothing where it does, or where nothing is capped."""
    return plan.over_cap if any(name in plan.request.options for name in plan.engine.memory.capped_by) else ""


def fit(engine: Engine, model: Model, request: Request, memory: Memory, searched: str) -> Fit:
    """The largest that fits. Raises UsageError, and what the engine raises for one sequence of one token."""
    check_memory_options(engine, request, "kvcalc fit")
    question = _Question(engine.plan(model, request), searched)
    answer = _answer(question, memory)
    changes = sorted(_changes(question, memory, answer), key=lambda change: (change.unit, -change.value))
    found = _explained(question, memory, answer, tuple(changes))
    return found if memory.other is None else replace(found, at_most=_at_most(question, memory))


def _at_most(question: _Question, memory: Memory) -> Fit:
    """The answer where the engine takes the least that it may."""
    lower = replace(memory, at_least=True)
    return _explained(question, lower, _answer(question, lower), ())


def check_memory_options(engine: Engine, request: Request, whose: str) -> None:
    """Raises UsageError where an option of the engine's own names the memory, and ``whose`` does too."""
    for name in engine.memory.named_by:
        if name in request.options:
            raise UsageError(
                f"-o {name} names the memory, and so does {whose}",
                fix=f"leave one out: kvcalc estimate takes -o {name}",
            )


def _answer(question: _Question, memory: Memory) -> _Answer:
    need, budget = question.need(), budget_of(question.plan, memory)
    named, taken = _named(question), _taken(question, need)
    limits: dict[int, _Limit] = {}

    def fits(value: int) -> bool:
        try:
            if need(value) > budget:
                return False
        except EngineError as problem:
            limits[value] = _Limit(problem.what, OPTION if problem.where.startswith("-o ") else ENGINE)
            return False
        except UsageError as problem:
            if value < taken:
                return True  # less than an option asks for (a prompt, say): too small a question, not too large a cache
            limits[value] = _Limit(problem.what, OPTION)
            return False
        return not _capped(question, value, limits)

    found = question.search(fits)
    beyond = max((value for value in named if value > max(found.value, taken) and fits(value)), default=0)
    if beyond:
        found = Found(beyond)
        fits(beyond + 1)  # says what stops it
    if found.value and _answers(need, found.value):
        return _Answer(found, need(found.value), budget, _limit_of(question, found, need, limits))
    least = _least(question, need)
    return _Answer(Found(0), least, budget, limits[min(limits)] if limits and least <= budget else _Limit())


def _capped(question: _Question, value: int, limits: dict[int, _Limit]) -> bool:
    words = over_cap(question.plan.resized(question.at(value)))
    if words:
        limits[value] = _Limit(words, OPTION)
    return bool(words)


def _limit_of(question: _Question, found: Found, need: Callable[[int], int], limits: dict[int, _Limit]) -> _Limit:
    """What the one after the answer runs into."""
    if found.unbounded:
        return _Limit(f"the search: it ends at {CEILING:,}", SEARCH) if _grows(need) else _Limit("nothing grows with it", NOTHING)
    if question.searched == BOTH:
        return _Limit("none", NOTHING)
    if question.searched == SAMPLE and found.value == len(question.request.lengths):
        return _Limit("none: all of them fit", NOTHING)
    return limits.get(found.value + 1, _Limit())


def _grows(need: Callable[[int], int]) -> bool:
    """Whether the figure still grows where the search ends."""
    with suppress(EngineError, UsageError):
        return need(CEILING) > need(CEILING // 2)
    return False


def _answers(need: Callable[[int], int], value: int) -> bool:
    try:
        need(value)
    except UsageError:
        return False
    return True


def _named(question: _Question) -> list[int]:
    """Numbers that the engine's options hold: it may take no other (a number of sequences), or none below (a prompt)."""
    if question.searched not in (TOKENS, BATCH):
        return []
    values = question.request.options.values()
    return [value for value in values if isinstance(value, int) and not isinstance(value, bool) and 1 < value < CEILING]


def _tried(question: _Question) -> list[int]:
    """Where the least that the engine takes is looked for: the powers of two, and the numbers that its options hold."""
    return sorted({*(2**power for power in range(23)), *_named(question)})


def _taken(question: _Question, need: Callable[[int], int]) -> int:
    """The first number that doesn't contradict an option: what an option forbids below it is too little, beyond too much."""
    return next((value for value in _tried(question) if _answers_or_refuses(need, value)), 1)


def _answers_or_refuses(need: Callable[[int], int], value: int) -> bool:
    try:
        return _answers(need, value)
    except EngineError:
        return True


def _least(question: _Question, need: Callable[[int], int]) -> int:
    """Bytes for the least that the engine takes. Raises what it raises for one."""
    for value in _tried(question):
        with suppress(EngineError, UsageError):
            return need(value)
    return need(1)


def _explained(question: _Question, memory: Memory, answer: _Answer, changes: tuple[Change, ...]) -> Fit:
    value, searched, request = answer.found.value, question.searched, question.request
    tally = _tally(question, max(value, 1))
    tokens = value if searched == TOKENS else request.tokens or 1
    if answer.limit.by == NOTHING and answer.found.unbounded and searched == TOKENS:
        tokens = question.model.max_tokens or tokens
    if searched == SAMPLE:
        tokens = max(request.lengths[:value], default=0)
    return Fit(
        plan=question.plan,
        memory=memory,
        budget_bytes=answer.budget,
        searched=searched,
        tokens=tokens,
        batch_size=value if searched in (BATCH, SAMPLE) else request.batch_size,
        fits=value > 0,
        total_bytes=tally.total_bytes if tally else answer.need,
        need_bytes=answer.need,
        limit=answer.limit.text,
        limited_by=answer.limit.by,
        tally=tally,
        gap=answer.found.gap,
        unbounded=answer.found.unbounded,
        changes=changes,
        warnings=(*_warnings(question.model, tokens if value else 0), *(tally.warnings if tally else ())),
        notes=_notes(question, value),
    )


def _tally(question: _Question, value: int) -> Tally | None:
    try:
        found = question.plan.resized(question.at(value)).tally
    except (EngineError, UsageError):
        return None
    return found if found.fits else None  # a capped pool says nothing of what is asked for


def _notes(question: _Question, value: int) -> tuple[str, ...]:
    batch = value if question.searched in (BATCH, SAMPLE) else question.request.batch_size
    note = running_note(question.plan, batch)
    return (note,) if note else ()


def running_note(plan: Plan, batch: int) -> str:
    """How many of a batch an engine runs at once, where that is fewer: it bounds the work, not the memory."""
    if plan.at_once is None:
        return ""
    most, origin = plan.at_once
    return (
        f"{most:,} sequences run at once ({origin}), the others wait: the figure is what the memory holds" if batch > most else ""
    )


def _warnings(model: Model, tokens: int) -> tuple[str, ...]:
    found = list(model.notes)
    if model.max_tokens is not None and tokens > model.max_tokens:
        found.append(f"{tokens:,} tokens are beyond the model's own maximum of {model.max_tokens:,}")
    return tuple(found)


def _changes(question: _Question, memory: Memory, answer: _Answer) -> Iterator[Change]:
    """What else could be asked, where it gives more."""
    if question.searched == BOTH:
        if not answer.found.value:
            yield from _smaller(question, memory)
        return
    unit = "tokens" if question.searched == TOKENS else "sequences"
    for text, other in _others(question):
        found = _asked(question, other, memory)
        if found is not None and found > answer.found.value:
            yield Change(text, found, unit)


def _asked(question: _Question, other: Request, memory: Memory) -> int | None:
    """The answer to another request, or None where the engine has none."""
    try:
        found = _answer(question.other(other), memory).found
    except KvcalcError:
        return None
    return None if found.unbounded else found.value


def _smaller(question: _Question, memory: Memory) -> Iterator[Change]:
    """Both numbers were named and don't fit: the largest of each beside the other."""
    tokens = _asked(replace(question, searched=TOKENS), question.request, memory)
    batch = _asked(replace(question, searched=BATCH), question.request, memory)
    if tokens:
        yield Change(f"a batch of {question.request.batch_size:,} fits up to", tokens, "tokens")
    if batch:
        yield Change(f"{question.request.tokens or 1:,} tokens fit for", batch, "sequences")


def _others(question: _Question) -> Iterator[tuple[str, Request]]:
    request, engine = question.request, question.engine
    for name in NARROWER:
        dtype = find_dtype(name)
        if request.k_dtype != dtype or request.v_dtype != dtype:
            yield f"{name} cache", replace(request, k_dtype=dtype, v_dtype=dtype)
    if question.searched == TOKENS and request.batch_size > 1:
        half = request.batch_size // 2
        yield f"{half} sequence{'s' if half > 1 else ''} instead of {request.batch_size}", replace(request, batch_size=half)
    if question.searched == BATCH and (request.tokens or 1) > 1:
        half = (request.tokens or 1) // 2
        yield f"sequences of {half:,} tokens", request.at(half)
    if question.plan.ranks is not None:
        yield f"{2 * request.tp_size} tensor-parallel ranks", replace(request, tp_size=2 * request.tp_size)
    for name, value in engine.memory.levers:
        if name not in request.options:
            yield f"-o {name}={_word(value)}", replace(request, options={**request.options, name: value})


def _word(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Frontier:
    """(batch, the largest tokens, bytes needed) of each row, and what the next row runs into."""

    plan: Plan
    rows: tuple[tuple[int, int, int], ...]
    limit: str


def frontier(engine: Engine, model: Model, request: Request, memory: Memory) -> Frontier:
    """1, 2, 4 … sequences, as long as one token each fits. Raises UsageError, and what the engine raises for every batch."""
    check_memory_options(engine, request, "kvcalc fit")
    plan = engine.plan(model, request)
    rows: list[tuple[int, int, int]] = []
    refused: list[KvcalcError] = []
    for batch in (2**power for power in range(FRONTIER_ROWS)):
        try:
            answer = _answer(_Question(plan.resized(replace(request, batch_size=batch)), TOKENS), memory)
        except (EngineError, UsageError) as problem:  # the engine takes no such batch; an option may name a larger one
            refused.append(problem)
            continue
        if not answer.found.value:
            return Frontier(plan, tuple(rows), answer.limit.text)
        refused.clear()
        tokens = model.max_tokens if answer.found.unbounded and answer.limit.by == NOTHING else None
        rows.append((batch, tokens or answer.found.value, answer.need))
    if refused and not rows:
        raise refused[0]
    return Frontier(plan, tuple(rows), refused[0].what if refused else f"{rows[-1][0]:,} sequences are the most that is tried")
