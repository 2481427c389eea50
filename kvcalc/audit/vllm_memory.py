"""Which memory a vLLM line speaks of: each rank states its own, and up to 0.10 each its own capacity as well."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kvcalc.core.log_facts import Figure, Load, Statement

_NUMBERS = re.compile(r"\d+")
_COPY = re.compile(r"DP\d{1,4}", re.ASCII)
_KINDS = ("available", "in_use")


def memories(load: Load) -> Mapping[str, Figure]:
    """Rank → its memory, as exactly as any of its lines states it."""
    found: dict[str, Figure] = {}
    for statement in load.of_kind(*_KINDS):
        figure = statement.figure("available_bytes") or statement.figure("available_gib")
        if figure is None:
            continue
        same = [rank for rank in found if rank.partition("#")[0] == statement.rank and _sharper(figure, found[rank])]
        if same:
            found[same[0]] = figure
        elif statement.rank not in found:
            found[statement.rank] = figure
        elif not statement.rank and statement.kind == "available":  # ranks that don't name themselves (Ray's)
            found[f"#{statement.line}"] = figure
    return found


def _sharper(new: Figure, known: Figure) -> bool:
    """Whether the same memory is stated with more digits; a different one is another start's, or another step's."""
    return new.high - new.low < known.high - known.low and known.low - 1 <= new.low <= new.high <= known.high + 1


def tightest(load: Load) -> Figure | None:
    """The memory that decides where all ranks take the smallest number of blocks."""
    return min(memories(load).values(), key=lambda figure: figure.low, default=None)


def candidates(load: Load, statement: Statement, *, per_rank: bool) -> list[Figure]:
    """The memory that a capacity line may speak of, the likeliest first."""
    found = _of_copy(memories(load), statement.rank)
    least = min(found.values(), key=lambda figure: figure.low, default=None)
    if least is None:
        return []
    if not per_rank or len(found) == 1:
        return [least]
    own = _paired(load, statement, found)
    return list(dict.fromkeys([*([own] if own else []), least, *found.values()]))


def _of_copy(found: Mapping[str, Figure], rank: str) -> Mapping[str, Figure]:
    """Those of the same data-parallel copy, where the lines tell."""
    copy = _COPY.search(rank)
    own = {name: figure for name, figure in found.items() if copy and copy.group() in _COPY.findall(name)}
    return own or found


def _paired(load: Load, statement: Statement, found: Mapping[str, Figure]) -> Figure | None:
    """One line a rank, in the order of the ranks."""
    lines = load.of_kind("capacity")
    if len(lines) != len(found) or statement not in lines:
        return None
    return found[_in_order(found)[lines.index(statement)]]


def _in_order(ranks: Iterable[str]) -> list[str]:
    return sorted(ranks, key=lambda rank: [int(number) for number in _NUMBERS.findall(rank)])
