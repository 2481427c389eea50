"""llama.cpp's cache lines (its server and CLI, forks and wrappers), figure by figure.

Where the log states the context's settings, the engine's own rules give every cache, its cells and its bytes. Where it
doesn't, the line's own cells and layers are taken, and the model gives the bytes:
K = cells · streams · Σ over layers of row(K type, K elements of a position).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvcalc.audit.findings import Finding, check, finding, total_of
from kvcalc.audit.kept import Kept, kept_of, states_of
from kvcalc.audit.llamacpp_rules import Expected, Rules, Way, ways
from kvcalc.audit.llamacpp_why import PARTS_NAMED, layers_why, other_model, sizes_why
from kvcalc.audit.log_model import printed_layers
from kvcalc.audit.settings import Settings
from kvcalc.audit.ways import best, hangs
from kvcalc.core.log_facts import Figure, Load, Statement
from kvcalc.core.model import Model
from kvcalc.dtypes import find_dtype
from kvcalc.errors import KvcalcError

F32_BYTES = 4
MIB = 2**20
NO_SHAPE = "the model's shape isn't known"
STATES_UNKNOWN = "the model's states aren't known"
_STATES = {"r_mib": "states, R (convolutions, shifts)", "s_mib": "states, S", "p_mib": "states, P (n-gram history)"}


@dataclass(frozen=True, slots=True)
class Context:
    """One load under one way."""

    load: Load
    model: Model | None
    settings: Settings
    rules: Rules
    kept: tuple[Kept, ...]
    printed: bool  # whether the layers are those that the log prints, and no model's


def audit_llamacpp(load: Load, model: Model | None, settings: Settings) -> list[Finding]:
    """The findings of every cache, state, buffer and table of one start."""

    def findings(way: Way) -> list[Finding]:
        return _findings(_context(load, model, settings, way))

    way, found, others = best(ways(load, model, settings), findings)
    rules = _context(load, model, settings, way).rules
    rules.tally()
    settings.rules = rules.rules
    if way.origin and rules.rules:
        settings.used["release"] = (way.release, way.origin)
    elif len(others) > 1 and not any(each.verdict == "differs" for each in found):
        said = ", ".join(f"-o {text}" for text in way.unsaid)
        settings.notes.append(f"the log doesn't say all that decides: {said} is taken, under which every figure agrees")
    return [_judged(each, at, others, way) for at, each in enumerate(found)]


def _judged(each: Finding, at: int, others: list[list[Finding]], way: Way) -> Finding:
    """A figure that differs, and would not under another release, hangs on what isn't said."""
    if each.verdict != "differs" or not way.unsaid or not hangs(each, at, others):
        return each
    if way.origin:
        return replace(
            each,
            predicted=None,
            why="the rules of this build are not among those that were checked: name others with -o release=…",
        )
    said = " and ".join(f"-o {text.partition('=')[0]}=…" for text in way.unsaid)
    return replace(each, predicted=None, why=f"it hangs on what the log doesn't say: add {said}")


def _context(load: Load, model: Model | None, settings: Settings, way: Way) -> Context:
    kept = kept_of(model, whole_heads=way.whole_heads) if model else printed_layers(load)
    return Context(load, model, settings, Rules(load, model, settings, way), kept, model is None)


def _findings(context: Context) -> list[Finding]:
    found: list[Finding] = []
    for statement in context.load.statements:
        if statement.kind in ("state", "rs_buffer"):
            found += _state(context, statement)
        elif statement.kind == "buffer":
            found += _buffers(context, statement)
        elif statement.kind == "kv":
            found += _cache(context, statement)
        elif statement.kind == "breakdown":
            found += _table(context, statement)
        elif statement.kind == "projected":
            found += check(statement, "total_mib", "device memory in all", None, "weights and buffers are in it")
    return found


def _with_cells(context: Context, statement: Statement) -> Statement:
    """Old lines don't count cells: those of the context, which one cache had."""
    if statement.count("cells") is not None:
        return statement
    given = context.settings.given.option("ctx-size")
    cells = int(given) if given.isdigit() else context.settings.number("n_ctx")
    return replace(statement, values={**statement.values, "cells": Figure(str(cells))}) if cells else statement


# With the context's settings: the engine's rules


def _by_rules(context: Context, statement: Statement) -> Expected | None:
    """The predicted cache that a line speaks of: the one in its place, or the one with its layers and cells."""
    k_type, v_type = statement.word("k_type"), statement.word("v_type")
    caches = context.rules.caches(k_type, v_type or k_type)
    if caches is None:
        return None
    state = statement.kind in ("state", "rs_buffer")
    own = [each for each in caches if ("r_bytes" in each) == state and "bytes" not in each]
    stated = context.load.of_kind("state", "rs_buffer") if state else context.load.of_kind("kv", "buffer")
    if len(own) == len(stated):
        return _expected(own[stated.index(statement)])
    for names in (("layers", "cells"), ("layers",), ("cells",)):
        for each in own:
            if all(statement.count(name) == each.get(name) for name in names):
                return _expected(each)
    return _expected(own[0]) if len(own) == 1 else None


def _expected(cache: Mapping[str, object]) -> Expected:
    def number(name: str) -> int:
        value = cache.get(name)
        return value if isinstance(value, int) else 0

    keys, values = number("r_bytes") or number("k_bytes"), number("s_bytes") or number("v_bytes")
    return Expected(str(cache.get("name", "")), number("cells"), number("layers"), keys, values, number("p_bytes"))


# Without them: the line's own cells


def _cache(context: Context, line: Statement) -> list[Finding]:
    statement = _with_cells(context, line)
    name = _name(statement)
    try:
        types = [context.settings.type_of(statement.word(side) or "f16") for side in ("k_type", "v_type")]
    except KvcalcError as problem:
        return _counted(context, line, statement) + _unchecked(statement, name, problem.what)
    by_rules = _by_rules(context, line)
    if by_rules is not None and all(each in _engine_types() for each in types):
        expected: Expected | None = by_rules
    elif not context.kept:
        return _unchecked(statement, name, NO_SHAPE)
    else:
        try:
            expected = _by_line(context, statement)
        except KvcalcError as problem:
            return _unchecked(statement, name, problem.what)
    if expected is None:
        return _unchecked(statement, name, "the line doesn't say how many cells: add -o ctx-size=…")
    return _counts(context, statement, expected) + _sizes(context, statement, expected) + _total(statement, name, expected)


def _engine_types() -> tuple[object, ...]:
    from kvcalc.engines.llamacpp.settings import CACHE_TYPES

    return tuple(find_dtype(name) for name in CACHE_TYPES)


def _counted(context: Context, line: Statement, statement: Statement) -> list[Finding]:
    """Cells and layers, which hang on no type."""
    expected = _by_rules(context, line)
    return _counts(context, statement, expected) if expected else []


def _sizes(context: Context, statement: Statement, expected: Expected) -> list[Finding]:
    found: list[Finding] = []
    for side, what, predicted in (("k", "keys", expected.keys), ("v", "values", expected.values)):
        figure = statement.figure(f"{side}_mib")
        if figure is None:
            continue
        right = predicted is None or figure.covers(predicted)
        why = "" if right else sizes_why(statement, side, figure, expected, context.kept)
        words = statement.word(f"{side}_type") or statement.word("k_type")
        found += check(statement, f"{side}_mib", f"{_name(statement)}{what} ({words})", predicted, why)
    return found


def _unchecked(statement: Statement, name: str, why: str) -> list[Finding]:
    words = {"k_mib": "keys", "v_mib": "values", "total_mib": "total"}
    return [each for figure in words for each in check(statement, figure, f"{name}{words[figure]}", None, why)]


def _name(statement: Statement) -> str:
    cache = statement.word("cache")
    return f"{cache} cache, " if cache else "cache, "


def _by_line(context: Context, statement: Statement) -> Expected | None:
    """Bytes of the layers that the line counts, over the cells that it counts. Raises DtypeError."""
    cells = statement.count("cells") or _positions(statement, context.kept)
    if cells is None:
        return None
    chosen = _layers_of(context, statement)
    k_type = context.settings.type_of(statement.word("k_type") or "f16")
    v_type = context.settings.type_of(statement.word("v_type") or statement.word("k_type") or "f16")
    if statement.count("positions") and not _early_half(statement, cells, chosen):
        k_type = v_type = find_dtype("f32")
    rows = cells * (statement.count("streams") or 1)
    keys = rows * sum(each.key_bytes(k_type) for each in chosen)
    values = rows * sum(each.value_bytes(v_type) for each in chosen)
    if context.printed and all(each.latent for each in chosen) and (stated := statement.figure("v_mib")) and stated.covers(0):
        values = 0  # newer releases store no values beside a latent, and print_info tells their width all the same
    alike = context.printed and len({(each.keys, each.values) for each in context.kept}) == 1
    partial = alike and len(chosen) != len(context.kept)  # as many as the line says: no count to check
    return Expected("", None, None if partial else len(chosen), keys, values, kept=chosen)


def _positions(statement: Statement, kept: tuple[Kept, ...]) -> int | None:
    """Early 2023 counts positions over all layers."""
    positions = statement.count("positions")
    return positions // len(kept) if positions and kept else None


def _early_half(statement: Statement, cells: int, kept: tuple[Kept, ...]) -> bool:
    """Early 2023 stored float32, and then float16 on request: the line doesn't say which."""
    figure = statement.figure("total_mib")
    return figure is not None and figure.covers(cells * sum(each.keys + each.values for each in kept) * 2)


def _layers_of(context: Context, statement: Statement) -> tuple[Kept, ...]:
    """The group of layers that has as many as the line says; where several have, the one whose keys fit."""
    groups, wanted = _groups(context.kept), statement.count("layers")
    if context.printed and wanted and wanted < len(context.kept) and len({each.keys for each in context.kept}) == 1:
        return context.kept[:wanted]
    if statement.word("cache"):
        groups.sort(key=lambda group: ("window" in {each.kind for each in group}) != (statement.word("cache") == "SWA"))
    fitting = [group for group in groups if wanted in (None, len(group))]
    if not fitting and context.printed:
        fitting = [tuple(each for each in context.kept if each.keys == width) for width in {each.keys for each in context.kept}]
        fitting = [group for group in fitting if len(group) == wanted]
    fitting = fitting or [min(groups, key=lambda group: abs(len(group) - (wanted or 0)))]
    return next((group for group in fitting if _keys_fit(context, statement, group)), fitting[0])


def _groups(kept: tuple[Kept, ...]) -> list[tuple[Kept, ...]]:
    main = tuple(each for each in kept if not each.draft and each.kind != "index")
    full = tuple(each for each in main if each.kind == "full")
    window = tuple(each for each in main if each.kind == "window")
    index = tuple(each for each in kept if each.kind == "index" and not each.draft)
    draft = tuple(each for each in kept if each.draft and each.kind != "index")
    return [group for group in dict.fromkeys((full, window, main, index, draft, main + draft)) if group]


def _keys_fit(context: Context, statement: Statement, group: tuple[Kept, ...]) -> bool:
    figure, cells = statement.figure("k_mib"), statement.count("cells")
    if figure is None or cells is None:
        return True
    dtype = context.settings.type_of(statement.word("k_type") or "f16")
    return figure.covers(cells * (statement.count("streams") or 1) * sum(each.key_bytes(dtype) for each in group))


def _counts(context: Context, statement: Statement, expected: Expected) -> list[Finding]:
    name, layers, found = _name(statement), statement.count("layers"), []
    if expected.layers is not None:
        why = layers_why(layers, expected, context.kept) if layers not in (None, expected.layers) else ""
        found += check(statement, "layers", f"{name}layers", expected.layers, why, "count")
    if expected.cells is not None:
        found += check(statement, "cells", f"{name}cells", expected.cells, "", "count")
    return found


def _total(statement: Statement, name: str, expected: Expected) -> list[Finding]:
    figure = statement.figure("total_mib")
    if figure is None or expected.keys is None or expected.values is None:
        return []
    predicted = expected.keys + expected.values
    parts = [each for each in (statement.figure("k_mib"), statement.figure("v_mib")) if each is not None]
    odd = parts and sum(each.exact_value for each in parts) != figure.exact_value
    why = PARTS_NAMED if odd and figure.covers(predicted) else ""
    if not parts and not figure.covers(predicted):
        why = other_model(figure, predicted)
    return check(statement, "total_mib", f"{name}total", predicted, why)


# States, buffers and the table of devices


def _state(context: Context, statement: Statement) -> list[Finding]:
    expected = _by_rules(context, statement) or _states(context, statement)
    if expected is None:
        parts = {**_STATES, "total_mib": "states, total"}
        return [each for name, what in parts.items() for each in check(statement, name, what, None, STATES_UNKNOWN)]
    r, s, p = expected.keys or 0, expected.values or 0, expected.more
    sizes = {"r_mib": r, "s_mib": s, **({"p_mib": p} if p else {})}
    found = [
        each
        for name, size in sizes.items()
        for each in check(statement, name, _STATES[name], size, _state_why(context, statement, name, size))
    ]
    total = r + s + p
    return found + check(statement, "total_mib", "states, total", total, _state_why(context, statement, "total_mib", total))


def _states(context: Context, statement: Statement) -> Expected | None:
    states, cells = states_of(context.model) if context.model else (), statement.count("cells")
    if not states or cells is None:
        return None
    copies = cells * (1 + (statement.count("rs_seq") or 0)) * F32_BYTES
    return Expected("", None, None, copies * sum(r for r, _ in states), copies * sum(s for _, s in states))


def _state_why(context: Context, statement: Statement, name: str, predicted: int) -> str:
    figure = statement.figure(name)
    if figure is None or figure.covers(predicted) or context.model is None:
        return ""
    counted, layers = statement.count("layers"), len(context.model.layers)
    if counted and counted != layers:
        return f"the line counts {counted} layers, the model has {layers}: another model"
    return "another model, or another number of sequences"


def _buffers(context: Context, statement: Statement) -> list[Finding]:
    """A cache of which only the devices' buffers are printed."""
    parts = _parts(statement)
    low, high = total_of(parts)
    text, what = f"{len(parts)} buffer{'s' * (len(parts) > 1)}", f"{_name(statement)}buffers"
    expected = _by_rules(context, statement)
    if expected is None and context.kept and statement.count("cells") is not None:
        expected = _by_line(context, statement)
    if expected is None or expected.keys is None or expected.values is None:
        return [finding(statement, text, low, high, what, None, "no line says how many cells and layers this is")]
    slack = len(parts) * 32 * len(context.kept or (0,))  # each tensor of a buffer may start at the backend's alignment
    return [finding(statement, text, low - slack, high, what, expected.keys + expected.values)]


def _table(context: Context, statement: Statement) -> list[Finding]:
    """``memory breakdown [MiB]``: each device's share of the context, cut to whole MiB."""
    parts = [each.value for each in _parts(statement)]
    shown = [f"{size // MIB} MiB" for size in parts if size] or ["0 MiB"]
    low, high = sum(parts), sum(parts) + len(parts) * (MIB - 1)
    what = f"context of {'one device' if len(parts) == 1 else f'{len(parts)} devices'}"
    tally = context.rules.tally(*(context.settings.text(f"cache-type-{side}", f"cache_type_{side}") for side in "kv"))
    if tally is None:
        why = context.rules.problem or (
            NO_SHAPE if context.model is None else "the log doesn't state the context: add -o ctx-size=…"
        )
        return [finding(statement, " + ".join(shown), low, high, what, None, why)]
    found = finding(statement, " + ".join(shown), low, high, what, tally.total_bytes)
    if found.verdict == "differs" and (why := _other_context(context, statement, low, high)):
        return [replace(found, predicted=None, why=why)]
    return [found]


def _other_context(context: Context, table: Statement, low: int, high: int) -> str:
    """Why a table may be of another context than the one whose lines the log states."""
    stated = context.load.settings.get("n_ctx")
    if stated is not None and table.line < stated.line:
        return "the table was printed before the context's own lines, while its size was still being fitted"
    lines = [figure for each in context.load.of_kind("kv", "state") if (figure := each.figure("total_mib"))]
    least, most = total_of(lines)
    if lines and not (low <= most and least <= high):
        return "the table is of another context than the lines of caches above it"
    return ""


def _parts(statement: Statement) -> list[Figure]:
    return [value for name, value in statement.values.items() if name.startswith("part_") and isinstance(value, Figure)]
