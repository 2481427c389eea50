"""A grid of requests: models × types × batches × lengths, one cell at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from kvcalc.core.model import Model, Request
from kvcalc.dtypes import Dtype
from kvcalc.engines.base import Engine, Plan
from kvcalc.engines.fit import check_memory_options, over_cap
from kvcalc.engines.requests import resolve_types
from kvcalc.errors import ConfigError, KvcalcError, UnsupportedError, UsageError
from kvcalc.escapes import visible


class Cell(NamedTuple):
    """One figure of a sweep."""

    model: str
    k_dtype: str
    v_dtype: str
    batch_size: int
    tokens: int
    total_bytes: int | None  # None where it is refused
    beyond_model_maximum: bool  # longer than the model was made for
    fits: bool | None  # what must be free for it is within the budget, or within a pool that an option bounds; else None
    needed_bytes: int | None  # what must be free for it: the total, or more; None without a budget


class Refused(Cell):
    """A cell that the engine, or an option, refuses. Columns are those of every cell."""

    problem: KvcalcError


@dataclass(frozen=True, slots=True)
class Grid:
    """The axes. Lengths are a function, so that a range of millions is walked anew and never held."""

    models: tuple[Model, ...]
    types: tuple[tuple[Dtype | None, Dtype | None], ...]  # (keys, values); None is the model's own
    batches: tuple[int, ...]
    lengths: Callable[[], Iterable[int]]
    engine: Engine
    request: Request
    memory: int | None = None  # a budget in bytes


def size_of(grid: Grid) -> int:
    """How many cells there are."""
    return len(grid.models) * len(grid.types) * len(grid.batches) * sum(1 for _ in grid.lengths())


def cells(grid: Grid) -> Iterator[Cell]:
    """Every cell, lengths innermost, refused ones among them, also where a model's file lacks an input. Raises UsageError."""
    if grid.memory is not None:
        check_memory_options(grid.engine, grid.request, "--memory")
    for model in grid.models:
        for k_dtype, v_dtype in grid.types:
            yield from _cells_of(grid, model, replace(grid.request, k_dtype=k_dtype, v_dtype=v_dtype))


def _cells_of(grid: Grid, model: Model, request: Request) -> Iterator[Cell]:
    try:
        plan = grid.engine.plan(model, request)
        total = plan.total
        names = _type_names(grid, plan)
        need = plan.need if grid.memory is not None else None  # ``total`` itself where the two are one short cut
        held_back = plan.held_back if need is not None else 0
    except (UnsupportedError, ConfigError) as problem:  # the model or its type, whatever the length
        yield from _all_refused(grid, model, request, problem)
        return
    judge = _judge(plan)
    name, (k_name, v_name), limit, budget = visible(model.name), names, model.max_tokens or 2**63, grid.memory
    for batch in grid.batches:
        for tokens in grid.lengths():
            try:
                size = total(batch, tokens)
                needed = None if need is None else (size if need is total else need(batch, tokens)) + held_back
                fits = None if needed is None or budget is None else needed <= budget
                if judge is not None:
                    fits = fits is not False and judge(batch, tokens)
            except (UnsupportedError, ConfigError, UsageError) as problem:
                yield _refused(Cell(name, k_name, v_name, batch, tokens, None, tokens > limit, None, None), problem)
                continue
            yield Cell(name, k_name, v_name, batch, tokens, size, tokens > limit, fits, needed)


def _judge(plan: Plan) -> Callable[[int, int], bool] | None:
    """Whether a pool that the engine's own options bound holds a batch; None where they bound none."""
    memory = plan.engine.memory
    if not any(name in plan.request.options for name in (*memory.named_by, *memory.capped_by)):
        return None

    def holds(batch_size: int, tokens: int) -> bool:
        asked = plan.at(batch_size, tokens)
        return asked.tally.fits and not over_cap(asked)

    return holds


def _all_refused(grid: Grid, model: Model, request: Request, problem: KvcalcError) -> Iterator[Cell]:
    own, limit = model.dtype or "", model.max_tokens or 2**63
    k_name, v_name = (side.name if side else own for side in (request.k_dtype, request.v_dtype))
    for batch in grid.batches:
        for tokens in grid.lengths():
            yield _refused(Cell(visible(model.name), k_name, v_name, batch, tokens, None, tokens > limit, None, None), problem)


def _refused(cell: Cell, problem: KvcalcError) -> Refused:
    found = Refused(*cell)
    found.problem = problem
    return found


def _type_names(grid: Grid, plan: Plan) -> tuple[str, str]:
    """The types that the engine takes: an option of its own, or its default, may name others than the model's."""
    for batch in grid.batches:
        with suppress(UnsupportedError, ConfigError, UsageError):  # this batch is refused; another may not be
            found = plan.at(batch, next(iter(grid.lengths()), 1)).tally.request
            return str(found["k_dtype"][0]), str(found["v_dtype"][0])
    types, _ = resolve_types(plan.model, plan.request)
    return types.k.name, types.v.name
