"""One question, one answer: an engine's tally of a request, with what a figure always carries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from kvcalc.core.fields import Fields
from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines import exact
from kvcalc.engines.base import Engine, Plan
from kvcalc.engines.releases import Rules
from kvcalc.engines.requests import DEFAULT_TOKENS
from kvcalc.errors import ConfigError, EngineError, KvcalcError, UnsupportedError
from kvcalc.values import value


@value
class Estimate:
    """A figure and everything that it rests on."""

    engine: Engine
    model: Model
    request: Request
    tally: Tally
    step: int  # the smallest length by which the figure can grow
    bytes_per_token: Fraction | None  # (total(T + step) - total(T)) / step; None where the engine stops at T
    fixed_bytes: int | None  # of layers that no longer grow at T
    warnings: tuple[str, ...]
    excluded: tuple[str, ...]
    rules: Rules  # the release's
    unchecked: str = ""  # what is not known of the model under this engine
    kept_bytes: int | None = None  # of sequences of different lengths: what they must keep, under no engine's rounding

    @property
    def waste_bytes(self) -> int | None:
        """What an engine holds of different lengths beyond that: rounding, padding, preallocation."""
        return None if self.kept_bytes is None else self.total_bytes - self.kept_bytes

    @property
    def release(self) -> str:
        """Whose rules were taken, for a headline."""
        return self.rules.said

    @property
    def total_bytes(self) -> int:
        """Everything that the engine holds."""
        return self.tally.total_bytes

    @property
    def tokens(self) -> int:
        """The longest sequence, as the engine took it."""
        value = self.tally.request.get("tokens", (self.request.tokens or 0, ""))[0]
        return value if isinstance(value, int) else 0


@value
class Refusal:
    """What an engine says instead of a figure."""

    engine: Engine
    model: Model
    request: Request
    problem: KvcalcError

    @property
    def tokens(self) -> int:
        """The longest sequence that was asked for."""
        return max(self.request.lengths, default=self.request.tokens or DEFAULT_TOKENS)


def attempt(model: Model, request: Request, engine: Engine) -> Estimate | Refusal:
    """The same as ``estimate`` for one question of several, a model whose file lacks an input among them. Raises UsageError."""
    try:
        return estimate(model, request, engine)
    except (UnsupportedError, ConfigError) as problem:
        return Refusal(engine, model, request, problem)


def counted(found: Iterable[Estimate | Refusal]) -> list[Estimate]:
    """Those that have a figure."""
    return [each for each in found if isinstance(each, Estimate)]


def estimate(model: Model, request: Request, engine: Engine) -> Estimate:
    """Count ``request`` under ``engine``'s rules. Raises ConfigError, DtypeError, EngineError, UsageError."""
    plan = _planned(model, request, engine)
    tally, step = plan.tally, plan.step
    tokens = tally.request.get("tokens", (request.tokens or 0, ""))[0]
    longer = _longer(plan, step)
    return Estimate(
        engine=engine,
        model=model,
        request=request,
        tally=tally,
        step=step,
        bytes_per_token=Fraction(longer.total_bytes - tally.total_bytes, step) if longer else None,
        fixed_bytes=_fixed(tally, longer) if longer else None,
        warnings=(*_warnings(model, tokens if isinstance(tokens, int) else 0), *_unused(model, request, tally), *tally.warnings),
        excluded=(*engine.excluded, *_draft_left_out(model, request), *tally.excluded),
        rules=plan.rules,
        unchecked=plan.serving.unchecked,
        kept_bytes=_kept(plan),
    )


def _planned(model: Model, request: Request, engine: Engine) -> Plan:
    """The plan, its tally counted."""
    try:
        plan = engine.plan(model, request)
        _ = plan.tally
    except EngineError as problem:
        if _by_default(model, request, engine):
            fix = f"{DEFAULT_TOKENS:,} tokens is the default where no length is asked for: name one with --tokens"
            raise EngineError(problem.what, problem.where, fix) from None
        raise
    return plan


def _by_default(model: Model, request: Request, engine: Engine) -> bool:
    """Whether it is the length that an engine refuses, and nobody asked for it."""
    said = request.tokens is not None and request.origins.get("tokens") != "default"
    if said or request.lengths:
        return False
    try:
        engine.allocate(model, request.at(1))
    except KvcalcError:
        return False
    return True


def _kept(plan: Plan) -> int | None:
    """The equation for the same sequences, where it has the engine's types and ranks."""
    request, engine = plan.request, plan.engine
    if not request.lengths or engine is exact.ENGINE or engine.reads_file or not plan.tally.fits:
        return None
    try:
        found = exact.ENGINE.allocate(plan.model, replace(request, options={}))
    except KvcalcError:
        return None
    same = all(found.request[side][0] == plan.tally.request.get(side, (None, ""))[0] for side in ("k_dtype", "v_dtype"))
    return found.total_bytes if same else None


def _longer(plan: Plan, step: int) -> Tally | None:
    """The same request one step longer, or None where the engine can't say (a length fixed by an option, a limit)."""
    if plan.request.lengths or not plan.tally.fits:
        return None
    try:
        return plan.longer(step).tally
    except KvcalcError:
        return None


def _fixed(tally: Tally, longer: Tally) -> int:
    pairs = zip(tally.layers, longer.layers, strict=False)
    return sum(now.bytes for now, then in pairs if now.bytes == then.bytes)


def _warnings(model: Model, tokens: int) -> tuple[str, ...]:
    found = []
    if model.assumed:
        found.append(f"assumed: counted like {model.assumed}, on request; nothing is known of the model's own type")
    if model.max_tokens is not None and tokens > model.max_tokens:
        found.append(f"{tokens:,} tokens are beyond the model's own maximum of {model.max_tokens:,}")
    return (*found, *model.notes)


_RANKS = ("tp_size", "pp_size", "dp_size", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def _unused(model: Model, request: Request, tally: Tally) -> tuple[str, ...]:
    """What was asked and changed nothing: an engine that counts ranks names them in its tally's request."""
    found = []
    kinds = {part.kind for layer in model.layers for part in layer}
    if request.encoder_tokens and kinds and "cross_attention" not in kinds:
        found.append("encoder tokens play no part: no layer of this model attends to an encoder")
    if request.draft and not model.draft_layers:
        found.append("the model's file names no draft layers: there are none to count")
    if max(request.tp_size, request.pp_size, request.dp_size) > 1 and not any(name in tally.request for name in _RANKS):
        found.append("parallel ranks play no part in this accounting: the figure is the whole model's")
    return (*found, *_unread(model.fields))


_SAID = ("flag ", "argument ")


def _unread(fields: Fields) -> tuple[str, ...]:
    """Fields that a user gave and no rule looked at: a misspelt key, or a flag that this model type has no use for."""
    read = {field.origin for field in fields.used.values()}
    origins = dict.fromkeys(fields.origin(name) for name in fields)  # one key may stand under several names
    unread = (origin for origin in origins if origin.startswith(_SAID) and origin not in read)
    return tuple(f"{origin} plays no part: nothing in this count reads it" for origin in unread)


def _draft_left_out(model: Model, request: Request) -> tuple[str, ...]:
    count = len(model.draft_layers)
    if not count or request.draft:
        return ()
    return (f"{count} draft (multi-token prediction) layer{'s' if count > 1 else ''}: add --draft to count them",)
