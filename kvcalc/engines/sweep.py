"""A grid of requests: models × types × batches × lengths, one cell at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from kvcalc.core.model import Model, Request
from kvcalc.dtypes import Dtype
from kvcalc.engines.base import Engine, resolve_types
from kvcalc.engines.fit import need_function


class Cell(NamedTuple):
    """One figure of a sweep."""

    model: str
    k_dtype: str
    v_dtype: str
    batch_size: int
    tokens: int
    total_bytes: int
    beyond_model_maximum: bool  # longer than the model was made for
    fits: bool | None  # what must be free for it is within the budget; None where none is given
    needed_bytes: int | None  # what must be free for it: the total, or more; None without a budget


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
    """Every cell, lengths innermost. Raises what the engine raises."""
    for model in grid.models:
        for k_dtype, v_dtype in grid.types:
            yield from _cells_of(grid, model, replace(grid.request, k_dtype=k_dtype, v_dtype=v_dtype))


def _cells_of(grid: Grid, model: Model, request: Request) -> Iterator[Cell]:
    total = total_function(grid.engine, model, request)
    name, (k_name, v_name) = model.name, _type_names(grid, model, request)
    limit = model.max_tokens or 2**63
    budget = grid.memory
    # A total may be less than what an allocator holds or an engine wants free besides.
    need = None if budget is None else need_function(grid.engine, model, request)
    for batch in grid.batches:
        for tokens in grid.lengths():
            size = total(batch, tokens)
            needed = None if need is None else need(batch, tokens)
            fits = None if needed is None or budget is None else needed <= budget
            yield Cell(name, k_name, v_name, batch, tokens, size, tokens > limit, fits, needed)


def _type_names(grid: Grid, model: Model, request: Request) -> tuple[str, str]:
    """The types that the engine takes: its own default may be another than the model's type."""
    if not grid.engine.reads_file:
        types, _ = resolve_types(model, request)
        return types.k.name, types.v.name
    first = next(iter(grid.lengths()), 1)
    resolved = grid.engine.allocate(model, replace(request, batch_size=grid.batches[0], tokens=first)).request
    return str(resolved["k_dtype"][0]), str(resolved["v_dtype"][0])


def total_function(engine: Engine, model: Model, request: Request) -> Callable[[int, int], int]:
    """(batch_size, tokens) → bytes under an engine's rules: its own short cut, else its whole allocation."""
    if engine.total is not None:
        return engine.total(model, request)

    def total(batch_size: int, tokens: int) -> int:
        return engine.allocate(model, replace(request, batch_size=batch_size, tokens=tokens)).total_bytes

    return total
