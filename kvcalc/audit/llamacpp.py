"""llama.cpp's cache lines (its server and CLI, ik_llama.cpp, ollama's runner), figure by figure.

Where the log states the context's settings, the engine's own rules give every cache, its cells and its bytes. Where it
doesn't, the line's own cells and layers are taken, and the model gives the bytes:
K = cells · streams · Σ over layers of row(K type, K elements of a position).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from kvcalc.audit.explain import Guess, common_guesses, dtype_guesses, explain, layer_guesses
from kvcalc.audit.findings import Finding, check, finding, total_of
from kvcalc.audit.kept import Kept, kept_in_log, kept_of, states_of
from kvcalc.audit.settings import Settings
from kvcalc.core.log_facts import Figure, Load, Statement
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import Dtype, find_dtype
from kvcalc.engines import find_engine
from kvcalc.errors import KvcalcError

F32_BYTES = 4
PARTS_NAMED = "the parts are rounded one by one"

# the log's name → the engine's option, and what its words mean there
SETTINGS: Mapping[str, str] = {
    "n_ctx": "ctx-size",
    "n_batch": "batch-size",
    "n_ubatch": "ubatch-size",
    "n_seq_max": "parallel",
    "kv_unified": "kv-unified",
    "flash_attn": "flash-attn",
    "n_rs_seq": "n-rs-seq",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "flash_attn": {"0": "off", "1": "on", "disabled": "off", "enabled": "on", "auto": "auto"},
}
IK_WORDS = "c^KV"  # ik_llama.cpp's own line: a fork with other rules, of which the latent alone is told
# A release that isn't named shows itself by the wording of its lines.
WORDINGS: tuple[tuple[str, str], ...] = (("llama_kv_cache_unified", "b5640"), ("KV self size", "b4600"))


@dataclass(frozen=True, slots=True)
class Expected:
    """One cache as it should be. None: not known."""

    name: str
    cells: int | None
    layers: int
    keys: int  # of a state: R
    values: int  # of a state: S
    more: int = 0  # of a state: P
    kept: tuple[Kept, ...] = ()
    why: str = ""


def audit_llamacpp(load: Load, model: Model | None, settings: Settings) -> list[Finding]:
    """The findings of every cache, state and buffer line of one context."""
    kept = kept_of(model) if model else kept_in_log(load)
    caches = _from_settings(load, model, settings) if model else None
    findings: list[Finding] = []
    for statement in load.of_kind("kv", "state", "buffer", "rs_buffer"):
        expected = _matching(statement, caches, load) if caches else None
        if statement.kind in ("state", "rs_buffer"):
            findings += _state(statement, expected, model)
        elif statement.kind == "buffer":
            findings += _buffers(statement, expected, kept)
        else:
            findings += _cache(_with_cells(statement, settings), expected, kept)
    return findings


def _with_cells(statement: Statement, settings: Settings) -> Statement:
    """Old lines don't count cells: those of the context, which one cache had."""
    cells = settings.number("n_ctx") if statement.count("cells") is None else None
    return replace(statement, values={**statement.values, "cells": Figure(str(cells))}) if cells else statement


# With the context's settings: the engine's rules


def _from_settings(load: Load, model: Model, settings: Settings) -> list[Mapping[str, object]] | None:
    """The engine's caches, or None where the log states too little, or the engine knows no such model."""
    words = _options(load, settings)
    if any(IK_WORDS in statement.text for statement in load.statements) or not any(
        word.startswith("ctx-size=") for word in words
    ):
        return None
    try:
        engine = find_engine("llama.cpp")
        k_type, v_type = _types(load)
        request = Request(k_dtype=k_type, v_dtype=v_type, options=engine.parse_options(words))
        report = engine.allocate(model, request).report
    except KvcalcError:
        return None
    caches = report.get("caches")
    return list(caches) if isinstance(caches, list | tuple) else None


def _options(load: Load, settings: Settings) -> list[str]:
    found = [*settings.given.options]
    named = {text.partition("=")[0] for text in found}
    found += [] if "defaults" in named else ["defaults=library"]
    for setting, option in SETTINGS.items():
        stated = load.settings.get(setting)
        if stated and option not in named:
            value = WORDS.get(setting, {}).get(stated.value, stated.value)
            found.append(f"{option}={value}")
            settings.used[option] = (value, f"line {stated.line}")
    if "swa-full" not in named:
        found.append(f"swa-full={'true' if 'swa_full' in load.settings else 'false'}")
    release = _release(load)
    if release and "release" not in named:
        found.append(f"release={release[0]}")
        settings.used["release"] = release
    return found


def _release(load: Load) -> tuple[str, str] | None:
    if "release" in load.settings:
        return f"b{load.settings['release'].value}", f"line {load.settings['release'].line}"
    for statement in load.statements:
        for words, release in WORDINGS:
            if words in statement.text:
                return release, f"the wording of line {statement.line}"
    if "n_ctx_per_seq" in load.settings:
        return "b6673", f"the wording of line {load.settings['n_ctx_per_seq'].line}"
    return None


def _types(load: Load) -> tuple[Dtype | None, Dtype | None]:
    for statement in load.of_kind("kv"):
        k_type, v_type = statement.word("k_type"), statement.word("v_type")
        return (find_dtype(k_type) if k_type else None), (find_dtype(v_type or k_type) if v_type or k_type else None)
    return None, None


def _matching(statement: Statement, caches: list[Mapping[str, object]], load: Load) -> Expected | None:
    """The predicted cache that a line speaks of: the one in its place, or the one with its layers and cells."""
    own = [each for each in caches if ("r_bytes" in each) == _is_state(statement) and "bytes" not in each]
    stated = load.of_kind("state", "rs_buffer") if _is_state(statement) else load.of_kind("kv", "buffer")
    if len(own) == len(stated):
        return _expected(own[stated.index(statement)])
    for names in (("layers", "cells"), ("layers",), ("cells",)):
        for each in own:
            if all(statement.count(name) == each.get(name) for name in names):
                return _expected(each)
    return _expected(own[0]) if len(own) == 1 else None


def _is_state(statement: Statement) -> bool:
    return statement.kind in ("state", "rs_buffer")


def _expected(cache: Mapping[str, object]) -> Expected:
    def number(name: str) -> int:
        value = cache.get(name)
        return value if isinstance(value, int) else 0

    keys, values = number("r_bytes") or number("k_bytes"), number("s_bytes") or number("v_bytes")
    return Expected(str(cache.get("name", "")), number("cells"), number("layers"), keys, values, number("p_bytes"))


# Without them: the line's own cells


def _cache(statement: Statement, expected: Expected | None, kept: tuple[Kept, ...]) -> list[Finding]:
    name = _name(statement)
    if not kept and expected is None:
        return _unchecked(statement, name, ("k_mib", "v_mib", "total_mib"), "the model's shape isn't known")
    try:
        expected = expected or _by_line(statement, kept)
    except KvcalcError as problem:
        return _unchecked(statement, name, ("k_mib", "v_mib", "total_mib"), problem.what)
    if expected is None:
        return _unchecked(statement, name, ("k_mib", "v_mib", "total_mib"), "the line doesn't say how many cells")
    findings = _counts(statement, name, expected, kept)
    for side, what, predicted in (("k", "keys", expected.keys), ("v", "values", expected.values)):
        figure = statement.figure(f"{side}_mib")
        if figure is not None:
            why = "" if figure.covers(predicted) else _why(statement, side, figure, predicted, expected, kept)
            findings += check(statement, f"{side}_mib", f"{name}{what} ({statement.word(f'{side}_type')})", predicted, why)
    return findings + _total(statement, name, expected)


def _unchecked(statement: Statement, name: str, figures: Iterable[str], why: str) -> list[Finding]:
    words = {"k_mib": "keys", "v_mib": "values", "total_mib": "total"}
    return [each for figure in figures for each in check(statement, figure, f"{name}{words[figure]}", None, why)]


def _name(statement: Statement) -> str:
    cache = statement.word("cache")
    return f"{cache} cache, " if cache else "cache, "


def _by_line(statement: Statement, kept: tuple[Kept, ...]) -> Expected | None:
    """Bytes of the layers that the line counts, over the cells that it counts. Raises DtypeError."""
    cells = statement.count("cells")
    if cells is None:
        return None
    chosen = _layers_of(statement, kept)
    k_type = find_dtype(statement.word("k_type") or "f16")
    v_type = find_dtype(statement.word("v_type") or statement.word("k_type") or "f16")
    rows = cells * (statement.count("streams") or 1)
    keys = rows * sum(each.key_bytes(k_type) for each in chosen)
    values = rows * sum(each.value_bytes(v_type) for each in chosen)
    return Expected("", None, len(chosen), keys, values, kept=chosen)


def _layers_of(statement: Statement, kept: tuple[Kept, ...]) -> tuple[Kept, ...]:
    """The group of layers that has as many as the line says; where several have, the one whose keys fit."""
    groups = _groups(kept)
    if statement.word("cache"):
        groups.sort(key=lambda group: ("window" in {each.kind for each in group}) != (statement.word("cache") == "SWA"))
    wanted = statement.count("layers")
    fitting = [group for group in groups if wanted in (None, len(group))] or _stretched(groups, wanted)
    return next((group for group in fitting if _keys_fit(statement, group)), fitting[0])


def _groups(kept: tuple[Kept, ...]) -> list[tuple[Kept, ...]]:
    main = tuple(each for each in kept if not each.draft and each.kind != "index")
    full = tuple(each for each in main if each.kind == "full")
    window = tuple(each for each in main if each.kind == "window")
    index = tuple(each for each in kept if each.kind == "index" and not each.draft)
    draft = tuple(each for each in kept if each.draft and each.kind != "index")
    found = (full, window, main, index, draft, main + draft)
    return [group for group in dict.fromkeys(found) if group]


def _stretched(groups: list[tuple[Kept, ...]], wanted: int | None) -> list[tuple[Kept, ...]]:
    """No group has that many layers: the nearest one, as it is."""
    return [min(groups, key=lambda group: abs(len(group) - (wanted or 0)))]


def _keys_fit(statement: Statement, group: tuple[Kept, ...]) -> bool:
    figure, cells = statement.figure("k_mib"), statement.count("cells")
    if figure is None or cells is None:
        return True
    dtype = find_dtype(statement.word("k_type") or "f16")
    return figure.covers(cells * (statement.count("streams") or 1) * sum(each.key_bytes(dtype) for each in group))


def _counts(statement: Statement, name: str, expected: Expected, kept: tuple[Kept, ...]) -> list[Finding]:
    why = ""
    layers = statement.count("layers")
    if layers is not None and layers != expected.layers:
        why = (
            explain(layers, layers, expected.layers, layer_guesses(expected.layers, kept))
            or "another model, or layers that keep no cache"
        )
    found = check(statement, "layers", f"{name}layers", expected.layers, why, "count")
    if expected.cells is not None:
        found += check(statement, "cells", f"{name}cells", expected.cells, "", "count")
    return found


def _total(statement: Statement, name: str, expected: Expected) -> list[Finding]:
    figure = statement.figure("total_mib")
    if figure is None:
        return []
    parts = [each for each in (statement.figure("k_mib"), statement.figure("v_mib")) if each is not None]
    odd = parts and sum(Fraction(each.text) for each in parts) != Fraction(figure.text)
    why = PARTS_NAMED if odd and figure.covers(expected.keys + expected.values) else ""
    if not parts and not figure.covers(expected.keys + expected.values):
        why = _other_model(figure, expected)
    return check(statement, "total_mib", f"{name}total", expected.keys + expected.values, why)


def _why(statement: Statement, side: str, figure: Figure, predicted: int, expected: Expected, kept: tuple[Kept, ...]) -> str:
    chosen = expected.kept or tuple(each for each in kept if not each.draft)
    if side == "v" and chosen and all(each.latent for each in chosen):
        return "this release keeps values besides the latent, as llama.cpp did up to b7698: name it with -o release"
    words = statement.word(f"{side}_type")
    elements = (chosen[0].keys if side == "k" else chosen[0].values) if chosen else 0
    guesses = _widest(side, chosen, kept)
    if statement.count("layers") != expected.layers:  # equal numbers explain nothing
        guesses += _layer_ratio(statement, expected) + layer_guesses(expected.layers, kept)
    guesses += common_guesses() + dtype_guesses(find_dtype(words), elements)
    return explain(figure.low, figure.high, predicted, guesses) or _other_model(figure, expected, side)


def _layer_ratio(statement: Statement, expected: Expected) -> list[Guess]:
    layers = statement.count("layers")
    if not layers or not expected.layers:
        return []
    return [Guess(Fraction(layers, expected.layers), f"the line counts {layers} layers, the model {expected.layers}")]


def _widest(side: str, chosen: tuple[Kept, ...], kept: tuple[Kept, ...]) -> list[Guess]:
    total = sum(each.values for each in chosen)
    if side != "v" or not total:
        return []
    widest = max(each.values for each in kept)
    words = "without flash attention every layer's values are as wide as the widest layer's"
    return [Guess(Fraction(widest * len(chosen), total), words)]


def _other_model(figure: Figure, expected: Expected, side: str = "k") -> str:
    predicted = {"k": expected.keys, "v": expected.values}[side] or expected.keys + expected.values
    if not predicted:
        return "the model keeps nothing here: another model"
    ratio = figure.value / predicted
    return f"another model, or settings that the log doesn't state: the line is {ratio:.3g} times the prediction"


# States and buffers


def _state(statement: Statement, expected: Expected | None, model: Model | None) -> list[Finding]:
    conv, state = (expected.keys, expected.values) if expected else _states(statement, model)
    more = expected.more if expected else 0
    if conv is None or state is None:
        parts = {"r_mib": "states, R", "s_mib": "states, S", "total_mib": "states, total"}
        return [
            each for name, what in parts.items() for each in check(statement, name, what, None, "the model's states aren't known")
        ]
    found = check(statement, "r_mib", "states, R (convolutions, shifts)", conv, _state_why(statement, "r_mib", conv))
    found += check(statement, "s_mib", "states, S", state, _state_why(statement, "s_mib", state))
    total = conv + state + more
    found += check(statement, "p_mib", "states, P (n-gram history)", more, _state_why(statement, "p_mib", more)) if more else []
    return found + check(statement, "total_mib", "states, total", total, _state_why(statement, "total_mib", total))


def _states(statement: Statement, model: Model | None) -> tuple[int | None, int | None]:
    states = states_of(model) if model else ()
    cells = statement.count("cells")
    if not states or cells is None:
        return None, None
    copies = cells * (1 + (statement.count("rs_seq") or 0)) * F32_BYTES
    return copies * sum(conv for conv, _ in states), copies * sum(state for _, state in states)


def _state_why(statement: Statement, name: str, predicted: int) -> str:
    figure = statement.figure(name)
    if figure is None or figure.covers(predicted):
        return ""
    guesses = [
        Guess(Fraction(1 + extra), f"{extra} more state{'s' * (extra > 1)} a sequence, for speculative rollback")
        for extra in range(1, 9)
    ]
    return explain(figure.low, figure.high, predicted, guesses) or "another model, or another number of sequences"


def _buffers(statement: Statement, expected: Expected | None, kept: tuple[Kept, ...]) -> list[Finding]:
    """A cache of which only the devices' buffers are printed."""
    low, high = total_of(
        value for name, value in statement.values.items() if name.startswith("part_") and isinstance(value, Figure)
    )
    devices = sum(name.startswith("part_") for name in statement.values)
    text = f"{devices} buffer{'s' * (devices > 1)}"
    what = f"{_name(statement)}buffers"
    if expected is None and kept and statement.count("cells") is not None:
        expected = _by_line(statement, kept)
    if expected is None:
        return [finding(statement, text, low, high, what, None, "no line says how many cells and layers this is")]
    slack = devices * 32 * len(kept or (0,))  # each tensor of a buffer may start at the backend's alignment
    return [finding(statement, text, low - slack, high, what, expected.keys + expected.values)]
