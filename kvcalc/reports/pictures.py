"""What a picture shows, before anything is drawn: lines over lengths, stacks of layer kinds, a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from kvcalc.core.model import Tally
from kvcalc.engines.estimate import Estimate, Refusal, counted
from kvcalc.engines.fit import Fit
from kvcalc.engines.sweep import Cell, Grid
from kvcalc.errors import KvcalcError, UsageError
from kvcalc.units import format_bytes, format_count

MAX_LINES = 16
MAX_POINTS = 4096
STACK_POINTS = 64
CURVE_POINTS = 49


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one layer of a stack: a value for each x; a line that lacks some of them has its own."""

    label: str
    values: tuple[int, ...]
    xs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart over token counts. ``stacked`` series add up; others are lines. ``marks`` are points with a word each."""

    title: str
    xs: tuple[int, ...]
    series: tuple[Series, ...]
    stacked: bool = False
    budget: int | None = None
    note: str = ""
    marks: tuple[tuple[int, int, str], ...] = ()
    x_label: str = "tokens of each sequence"
    y_label: str = "cache"
    y_unit: str = "bytes"  # or seconds, which are held in nanoseconds


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar for each label, made of parts that add up."""

    title: str
    labels: tuple[str, ...]
    parts: tuple[Series, ...]
    budget: int | None = None
    note: str = ""


Chart = Picture | Bars


def kind_name(kind: str) -> str:
    """``full_attention`` → ``full attention``."""
    return kind.replace("_", " ")


def by_kind(tally: Tally) -> dict[str, int]:
    """Bytes of each layer kind, and of what belongs to no layer."""
    found: dict[str, int] = {}
    for run in tally.layers:
        if run.bytes:
            found[kind_name(run.kind)] = found.get(kind_name(run.kind), 0) + run.bytes
    for array in tally.shared:
        if array.bytes:
            found[array.label] = found.get(array.label, 0) + array.bytes
    return found


def sweep_chart(grid: Grid, cells: Iterable[Cell]) -> Chart:
    """A line for each model, type and batch; one hybrid alone is stacked by layer kind. Raises UsageError."""
    lines: dict[tuple[str, str, str, int], dict[int, int]] = {}
    for cell in cells:
        if cell.total_bytes is None:
            continue  # refused
        key = (cell.model, cell.k_dtype, cell.v_dtype, cell.batch_size)
        points = lines.setdefault(key, {})
        if len(lines) > MAX_LINES or len(points) >= MAX_POINTS:
            raise UsageError(
                f"a picture takes up to {MAX_LINES} lines of {MAX_POINTS:,} points", fix="sweep fewer, or take a larger step"
            )
        points[cell.tokens] = cell.total_bytes
    chart = _lines(grid, lines)
    return _stacked(grid, chart) if len(lines) == 1 else chart


def _lines(grid: Grid, lines: dict[tuple[str, str, str, int], dict[int, int]]) -> Picture:
    xs = tuple(sorted({tokens for points in lines.values() for tokens in points}))
    varies = [len({key[index] for key in lines}) > 1 for index in range(4)]
    constant: list[str] = []
    found = []
    for key, points in lines.items():
        names = _names(*key)
        label = ", ".join(name for name, differs in zip(names, varies, strict=True) if differs and name)
        found.append(_line(label, xs, points))
        constant = [name for name, differs in zip(names, varies, strict=True) if not differs and name]
    whose = f"{grid.engine.name} {grid.engine.version}"
    title = ": ".join(part for part in ("Cache by length", ", ".join(constant)) if part)
    return Picture(title, xs, tuple(found), budget=grid.memory, note=f"engine {whose}")


def _line(label: str, xs: tuple[int, ...], points: Mapping[int, int]) -> Series:
    """A line over the lengths at which it has a value."""
    own = tuple(x for x in xs if x in points)
    return Series(label, tuple(points[x] for x in own), () if own == xs else own)


def _names(model: str, k_dtype: str, v_dtype: str, batch: int) -> tuple[str, str, str, str]:
    """Keys and values of one type are named once."""
    same = k_dtype == v_dtype
    return model, k_dtype if same else f"K {k_dtype}", "" if same else f"V {v_dtype}", f"batch {batch:,}"


def _stacked(grid: Grid, chart: Picture) -> Picture:
    """The same figure by layer kind, where the model has several."""
    model, request = grid.models[0], replace(grid.request, batch_size=grid.batches[0])
    request = replace(request, k_dtype=grid.types[0][0], v_dtype=grid.types[0][1])
    xs = _thinned(chart.xs)
    try:
        parts = [by_kind(grid.engine.allocate(model, request.at(tokens))) for tokens in xs]
    except KvcalcError:
        return chart
    kinds = list(dict.fromkeys(kind for part in parts for kind in part))
    if len(kinds) < 2:
        return replace(chart, series=(Series(kinds[0] if kinds else "cache", chart.series[0].values),))
    series = tuple(Series(kind, tuple(part.get(kind, 0) for part in parts)) for kind in kinds)
    return replace(chart, xs=xs, series=series, stacked=True)


def _thinned(xs: tuple[int, ...]) -> tuple[int, ...]:
    if len(xs) <= STACK_POINTS:
        return xs
    step = (len(xs) - 1) / (STACK_POINTS - 1)
    return tuple(dict.fromkeys(xs[round(index * step)] for index in range(STACK_POINTS)))


def compare_chart(asked: list[list[Estimate | Refusal]]) -> Chart:
    """A line for each model over the lengths; at one length a bar for each, by layer kind. What is refused is left out."""
    held = [[found for found in counted(row) if found.tally.fits] for row in asked]
    rows = [row for row in held if row]
    if not rows:
        raise UsageError("there is no picture: every figure is refused", fix="leave out --plot")
    first = rows[0][0]
    batch = first.tally.request["batch_size"][0]
    note = f"engine {first.engine.name} {first.release}, batch {batch}"
    if len(asked[0]) > 1:
        xs = tuple(sorted({found.tokens for row in rows for found in row}))
        series = tuple(_line(row[0].model.name, xs, {found.tokens: found.total_bytes for found in row}) for row in rows)
        return Picture("Cache by length", xs, series, note=note)
    return _bars([row[0] for row in rows], f"Cache at {format_count(first.tokens)} tokens", note)


def _bars(found: list[Estimate], title: str, note: str) -> Bars:
    ordered = sorted(found, key=lambda each: each.total_bytes, reverse=True)
    splits = [by_kind(each.tally) for each in ordered]
    kinds = list(dict.fromkeys(kind for split in splits for kind in split))
    parts = tuple(Series(kind, tuple(split.get(kind, 0) for split in splits)) for kind in kinds)
    return Bars(title, tuple(each.model.name for each in ordered), parts, note=note)


def fit_chart(found: Fit) -> Picture:
    """What ``fit`` found: the figure over lengths (or batches), the budget, and the largest that fits. Raises UsageError."""
    if found.request.lengths:
        raise UsageError("a sample of lengths has no curve", fix="leave out --plot, or --lengths")
    of_batch = found.searched == "batch_size"
    answer = found.batch_size if of_batch else found.tokens
    total = found.plan.total
    points = _counted(lambda x: total(x, found.tokens) if of_batch else total(max(found.batch_size, 1), x), max(answer, 1))
    words = f"{answer:,} {'sequences' if of_batch else 'tokens'}"
    fixed = f"{found.tokens:,} tokens each" if of_batch else f"batch {found.batch_size:,}"
    return Picture(
        f"What fits: {found.model.name}, {fixed}",
        tuple(x for x, _ in points),
        (Series("cache", tuple(size for _, size in points)),),
        budget=max(found.budget_bytes, 0),
        note=f"engine {found.engine.name} {found.plan.rules.said}",
        marks=((answer, found.total_bytes, words),) if found.fits else (),
        x_label="sequences" if of_batch else "tokens of each sequence",
    )


def _counted(total: Callable[[int], int], answer: int) -> list[tuple[int, int]]:
    """Points up to a third beyond the answer; those that the engine refuses are left out."""
    last = max(4, answer + answer // 3)
    steps = min(CURVE_POINTS, last)
    found = []
    for x in sorted({1 + (last - 1) * index // (steps - 1) for index in range(steps)} | {answer}):
        try:
            found.append((x, total(x)))
        except KvcalcError:
            continue
    return found or [(1, 0)]


def budget_text(budget: int) -> str:
    """The budget's own label."""
    return f"budget {format_bytes(budget)}"
