"""What fits: the largest length for a batch, the largest batch for a length, both along a frontier, or how many of a sample.

Maximal by construction: the search ends at an answer whose successor does not fit (``core/search.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.core.search import Found, largest
from kvcalc.dtypes import find_dtype
from kvcalc.engines.base import Engine
from kvcalc.errors import EngineError, KvcalcError, UsageError
from kvcalc.units import ceil_div

Need = Callable[[int, int], int]  # (batch_size, tokens) → bytes that must be there

TOKENS, BATCH, BOTH, SAMPLE = "tokens", "batch_size", "both", "lengths"
NARROWER = ("fp8", "q8_0", "q4_0")
FRONTIER_ROWS = 24


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

    def budget(self, ranks: int = 1, *, of_rest: bool = False) -> int:
        """What one rank has left for its cache: the weights spread evenly over the ranks that share them.

        memory · utilization − weights / ranks − overhead; ``of_rest`` takes the share last.
        """
        other = ceil_div(self.weights, ranks) + self.overhead
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

    engine: Engine
    model: Model
    request: Request
    memory: Memory
    budget_bytes: int
    searched: str  # tokens, batch_size, both or lengths
    tokens: int
    batch_size: int
    fits: bool
    total_bytes: int  # of the answer; of the least that was asked where nothing fits
    need_bytes: int  # what must be there for it: more where the engine holds something back
    limit: str  # what the next one runs into, in words
    tally: Tally | None
    gap: int | None = None  # a smaller one that does not fit
    unbounded: bool = False
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()

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
    """One engine, model and request, and which of its numbers is looked for."""

    engine: Engine
    model: Model
    request: Request
    searched: str

    def at(self, value: int) -> Request:
        """The request with the number that is looked for."""
        if self.searched == TOKENS:
            return self.request.at(value)
        if self.searched == BATCH:
            return replace(self.request, batch_size=value, tokens=self.request.tokens or 1)
        if self.searched == SAMPLE:
            return replace(self.request, lengths=self.request.lengths[:value])
        return self.request

    def budget(self, memory: Memory) -> int:
        """Of one rank."""
        return budget_of(self.engine, self.model, self.request, memory)

    def need(self) -> Callable[[int], int]:
        """The number that is looked for → bytes that must be there."""
        if self.searched == SAMPLE:
            return _need_of_sample(self.engine, self.model, self.request)
        need = need_function(self.engine, self.model, self.request)
        tokens, batch = self.request.tokens or 1, self.request.batch_size
        if self.searched == TOKENS:
            return lambda value: need(batch, value)
        return (lambda value: need(value, tokens)) if self.searched == BATCH else (lambda _: need(batch, tokens))

    def search(self, fits: Callable[[int], bool]) -> Found:
        """The largest that fits."""
        if self.searched == BOTH:
            return Found(int(fits(1)))
        if self.searched == SAMPLE:
            every = len(self.request.lengths)
            return Found(every) if fits(every) else largest(fits, ceiling=every)
        if self.searched == BATCH:
            return largest(fits)
        return largest(fits, self.engine.dip(self.model, self.request), breaks=self.engine.breaks(self.model, self.request))


def budget_of(engine: Engine, model: Model, request: Request, memory: Memory) -> int:
    """What one rank has for its sequences: its part of the memory, less what the engine holds back."""
    ranks = engine.ranks(request) if engine.ranks else 1
    held_back = engine.held_back(model, request) if engine.held_back else 0
    return memory.budget(ranks, of_rest=engine.share_of_rest) - held_back


@dataclass(frozen=True, slots=True)
class _Answer:
    found: Found
    need: int
    budget: int
    refused: str  # the engine's own words against the next one


def need_function(engine: Engine, model: Model, request: Request) -> Need:
    """Bytes that must be free for a batch and a length: what the engine holds, and what it insists on besides."""
    if engine.need is not None:
        return engine.need(model, request)
    if engine.total is not None:
        return engine.total(model, request)
    return lambda batch_size, tokens: _held(engine.allocate(model, replace(request, batch_size=batch_size, tokens=tokens)))


def _held(tally: Tally) -> int:
    return max(tally.total_bytes, tally.held_bytes or 0)


def _need_of_sample(engine: Engine, model: Model, request: Request) -> Callable[[int], int]:
    lengths = request.lengths
    return lambda count: _held(engine.allocate(model, replace(request, lengths=lengths[:count])))


def fit(engine: Engine, model: Model, request: Request, memory: Memory, searched: str) -> Fit:
    """The largest that fits. Raises UsageError, and what the engine raises for one sequence of one token."""
    _check_options(engine, request)
    question = _Question(engine, model, request, searched)
    answer = _answer(question, memory)
    changes = sorted(_changes(question, memory, answer), key=lambda change: (change.unit, -change.value))
    return _explained(question, memory, answer, tuple(changes))


def _check_options(engine: Engine, request: Request) -> None:
    for name in engine.memory_options:
        if name in request.options:
            raise UsageError(
                f"-o {name} names the memory, and so does kvcalc fit",
                fix=f"leave one out: kvcalc estimate takes -o {name}",
            )


def _answer(question: _Question, memory: Memory) -> _Answer:
    need, budget = question.need(), question.budget(memory)
    refusals: dict[int, str] = {}

    def fits(value: int) -> bool:
        try:
            return need(value) <= budget
        except EngineError as problem:
            refusals[value] = problem.what
            return False
        except UsageError:
            return True  # less than an option asks for (a prompt, say): too small a question, not too large a cache

    found = question.search(fits)
    if found.value and _answers(need, found.value):
        return _Answer(found, need(found.value), budget, refusals.get(found.value + 1, ""))
    return _Answer(Found(0), _least(need), budget, "")


def _answers(need: Callable[[int], int], value: int) -> bool:
    try:
        need(value)
    except UsageError:
        return False
    return True


def _least(need: Callable[[int], int]) -> int:
    """Bytes for the least that the engine takes: one, else the next power of two. Raises what it raises for one."""
    for value in (2**power for power in range(1, 24)):
        try:
            return need(value // 2)
        except (EngineError, UsageError):
            continue
    return need(1)


def _explained(question: _Question, memory: Memory, answer: _Answer, changes: tuple[Change, ...]) -> Fit:
    value, searched, request = answer.found.value, question.searched, question.request
    tally = _tally(question, max(value, 1))
    tokens = value if searched == TOKENS else request.tokens or 1
    if answer.found.unbounded and searched == TOKENS:
        tokens = question.model.max_tokens or tokens
    if searched == SAMPLE:
        tokens = max(request.lengths[:value], default=0)
    return Fit(
        engine=question.engine,
        model=question.model,
        request=request,
        memory=memory,
        budget_bytes=answer.budget,
        searched=searched,
        tokens=tokens,
        batch_size=value if searched in (BATCH, SAMPLE) else request.batch_size,
        fits=value > 0,
        total_bytes=tally.total_bytes if tally else answer.need,
        need_bytes=answer.need,
        limit=_limit(question, answer),
        tally=tally,
        gap=answer.found.gap,
        unbounded=answer.found.unbounded,
        changes=changes,
        warnings=(*_warnings(question.model, tokens if value else 0), *(tally.warnings if tally else ())),
    )


def _tally(question: _Question, value: int) -> Tally | None:
    try:
        return question.engine.allocate(question.model, question.at(value))
    except (EngineError, UsageError):
        return None


def _limit(question: _Question, answer: _Answer) -> str:
    if answer.refused:
        return answer.refused
    if answer.found.unbounded:
        return "nothing grows with it"
    if question.searched == SAMPLE and answer.found.value == len(question.request.lengths):
        return "none: all of them fit"
    return "none" if question.searched == BOTH and answer.found.value else "memory"


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
        found = _asked(replace(question, request=other), memory)
        if found is not None and found > answer.found.value:
            yield Change(text, found, unit)


def _asked(question: _Question, memory: Memory) -> int | None:
    """The answer to another question, or None where the engine has none."""
    try:
        found = _answer(question, memory).found
    except KvcalcError:
        return None
    return None if found.unbounded else found.value


def _smaller(question: _Question, memory: Memory) -> Iterator[Change]:
    """Both numbers were named and don't fit: the largest of each beside the other."""
    tokens = _asked(replace(question, searched=TOKENS), memory)
    batch = _asked(replace(question, searched=BATCH), memory)
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
    if engine.ranks is not None:
        yield f"{2 * request.tp_size} tensor-parallel ranks", replace(request, tp_size=2 * request.tp_size)
    for name, value in engine.levers:
        if name not in request.options:
            yield f"-o {name}={_word(value)}", replace(request, options={**request.options, name: value})


def _word(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def frontier(engine: Engine, model: Model, request: Request, memory: Memory) -> list[tuple[int, int, int]]:
    """(batch, the largest tokens, bytes needed) for 1, 2, 4 … sequences, as long as one token each fits."""
    _check_options(engine, request)
    rows: list[tuple[int, int, int]] = []
    batch = 1
    while len(rows) < FRONTIER_ROWS:
        question = _Question(engine, model, replace(request, batch_size=batch), TOKENS)
        answer = _answer(question, memory)
        if not answer.found.value:
            break
        unbounded = answer.found.unbounded and model.max_tokens
        rows.append((batch, model.max_tokens if unbounded and model.max_tokens else answer.found.value, answer.need))
        batch *= 2
    return rows
