"""Rules with one thing changed: a period, an offset, a pattern, a builder. A pinned config must notice each.

A rule of the table is a function that remembers its parts. A mutant changes one of them in place, and puts it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from kvcalc.architectures import parts, patterns, rules
from kvcalc.architectures.base import Architecture
from kvcalc.architectures.table import ARCHITECTURES
from kvcalc.core.layers import kind_of, runs
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines.exact import ENGINE
from kvcalc.errors import KvcalcError
from kvcalc.readers.hf_config import model_of

BF16 = find_dtype("bf16")
# Changes that no config can show, and why: (the first type of the rule, the change).
SAME_EITHER_WAY: Mapping[tuple[str, str], str] = {
    **{
        (name, f"every_nth.<locals>.pattern: default {default} is {default + 1}"): "the class says its own default"
        for name, default in (
            ("afmoe", 4),
            ("exaone_moe", 4),
            ("modernbert-decoder", 3),
            ("qwen4_exp_text", 4),
            ("t5gemma2_decoder", 6),
            ("cohere2", 4),
            ("granitemoehybrid", 1),
        )
    },
    ("granitemoehybrid", "every_nth.<locals>.pattern: offset 1 is 2"): "without a list every layer is recurrent",
    ("cohere2_moe", "prefix_then_every_nth: 1 is 2"): "the class says its own default",
    ("cohere2_moe", "prefix_then_every_nth: 4 is 5"): "the class says its own default",
    ("bailing_hybrid", "grouped_pattern: 6 is 7"): "the class says its own default",
    ("zamba", "zamba_pattern: 6 is 7"): "the class says its own default",
    ("zamba", "zamba_pattern: 4 is 5"): "the class says its own default",
    ("zamba2", "zamba2_pattern: 43 is 44"): "the end of a range of sixes",
    ("exaone4", "windowed_letters.<locals>.chosen: 40 is 41"): "letters of a message",
    ("gpt_bigcode", "multi_query.<locals>.rule: default switched"): "the class says its own default",
    ("qwen4_exp_text", "ngram_states.<locals>.with_ngrams: 1 is 2"): "the least that is taken",
    **{
        (name, f"inkling.<locals>.builder: {number} is {number + 1}"): "the least that is taken, or the class's own default"
        for name in ("inkling2_loop_text", "inkling_text", "inkling_model")
        for number in (0, 4)
    },
    ("minimax_text_01", "numbered_kinds.<locals>.pattern: keys turned"): "one list under two names",
}
WITH_LITERALS = (patterns.__name__, "kvcalc.architectures.hybrids")  # their patterns' own numbers are changed as well


class Mutant(NamedTuple):
    """One change: what it is, and a context in which it holds."""

    what: str
    made: Callable[[], AbstractContextManager[None]]


@contextmanager
def _cell(cell: CellType, changed: object) -> Iterator[None]:
    before = cell.cell_contents
    cell.cell_contents = changed
    try:
        yield
    finally:
        cell.cell_contents = before


@contextmanager
def _code(function: FunctionType, changed: CodeType) -> Iterator[None]:
    before = function.__code__
    function.__code__ = changed
    try:
        yield
    finally:
        function.__code__ = before


def mutants(rule: Callable[..., Any]) -> Iterator[Mutant]:
    """Every change to what a rule remembers, and to the numbers in its lambdas and patterns."""
    for function in _reached(rule):
        for name, cell in _cells(function):
            for what, changed in _changed(name, cell.cell_contents):
                yield Mutant(f"{function.__qualname__}: {what}", partial(_cell, cell, changed))
        yield from _literals(function)


def _cells(function: FunctionType) -> list[tuple[str, CellType]]:
    return list(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _reached(rule: Callable[..., Any]) -> list[FunctionType]:
    found: list[FunctionType] = []
    waiting: list[object] = [rule]
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in found:
            continue
        found.append(function)
        for _, cell in _cells(function):
            held = cell.cell_contents
            waiting.extend(held.values() if isinstance(held, Mapping) else [held])
    return found


def _changed(name: str, held: object) -> Iterator[tuple[str, object]]:
    if isinstance(held, bool):
        yield f"{name} switched", not held
    elif isinstance(held, int):
        yield f"{name} {held} is {held + 1}", held + 1
    elif name == "pattern" and held is not patterns.all_full:
        yield "all full", patterns.all_full
    elif isinstance(held, tuple) and len(set(held)) > 1:
        yield f"{name} turned", (*held[1:], held[0])
    elif isinstance(held, Mapping):
        for key, builder in held.items():
            if rules.ATTENTION.get(key) is not builder:
                yield f"no {key}", {**held, key: parts.nothing}


def _literals(function: FunctionType) -> Iterator[Mutant]:
    code = function.__code__
    if code.co_name != "<lambda>" and function.__module__ not in WITH_LITERALS:
        return
    for at, constant in enumerate(code.co_consts):
        if isinstance(constant, int) and not isinstance(constant, bool):
            changed = code.replace(co_consts=(*code.co_consts[:at], constant + 1, *code.co_consts[at + 1 :]))
            what = f"{function.__qualname__}: {constant} is {constant + 1}"
            yield Mutant(what, partial(_code, function, changed))


def summary(model: Model) -> dict[str, Any]:
    """What a model's layers are, in a few words, and what they take. Raises KvcalcError."""
    tally = ENGINE.allocate(model, Request(tokens=4096, k_dtype=BF16, v_dtype=BF16, encoder_tokens=100))
    split = tally.component_bytes()
    layers = " ".join(f"{count}x{kind_of(layer)}" for _, count, layer in runs(model.layers))
    return {"layers": layers, "bytes": [split[name] for name in ("kv", "index", "state")]}


def pinned(model_type: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a config gives, or None where it is refused."""
    try:
        return summary(model_of(dict(config), "config.json", model_type))
    except (KvcalcError, ZeroDivisionError):
        return None


@contextmanager
def _row(model_type: str, changed: Architecture) -> Iterator[None]:
    before = ARCHITECTURES[model_type]
    ARCHITECTURES[model_type] = changed
    try:
        yield
    finally:
        ARCHITECTURES[model_type] = before


def own_rule(model_type: str) -> bool:
    """Whether a type's rule does more than a plain decoder's."""
    rule = ARCHITECTURES[model_type].rule
    return rule.__qualname__ != rules.decoder().__qualname__ or any(True for _ in mutants(rule))


def turned_plain(model_type: str) -> Mutant:
    """A type's row with a plain decoder's rule."""
    changed = replace(ARCHITECTURES[model_type], rule=rules.decoder())
    return Mutant(f"{model_type} is plain", partial(_row, model_type, changed))
