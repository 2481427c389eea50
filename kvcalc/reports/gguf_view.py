"""What ``inspect`` adds for a GGUF file: its weights by type, and the common cache types side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from kvcalc.core.gguf import GgufMetadata, TensorInfo
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.errors import KvcalcError
from kvcalc.reports.to_table import plain_table
from kvcalc.units import format_bytes

CACHE_TYPES = ("f16", "q8_0", "q4_0")
ENGINES = ("exact", "llama.cpp")


@dataclass(frozen=True, slots=True)
class Weights:
    """All tensors of one type. ``bytes`` is None for a type that is not known."""

    type_name: str
    tensors: int
    elements: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One engine's total for one cache type at the file's own context length, or why there is none."""

    engine: str
    cache_type: str
    total_bytes: int | None
    refusal: str = ""


def weights_of(model: Model) -> list[Weights] | None:
    """Tensors by type, the largest share first; None where the file's tensor table is not known."""
    metadata = model.metadata
    if not isinstance(metadata, GgufMetadata) or metadata.tensors is None:
        return None
    by_type: dict[str, list[TensorInfo]] = {}
    for tensor in metadata.tensors:
        by_type.setdefault(tensor.type_name, []).append(tensor)
    rows = [Weights(name, len(found), sum(each.elements for each in found), _bytes(found)) for name, found in by_type.items()]
    return sorted(rows, key=lambda row: (-(row.bytes or 0), row.type_name))


def _bytes(tensors: list[TensorInfo]) -> int | None:
    sizes = [tensor.bytes for tensor in tensors]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def figures_of(model: Model) -> list[Figure]:
    """One sequence of the file's own context length, as each engine keeps it."""
    if model.max_tokens is None:
        return []
    return [_figure(model, engine, name, model.max_tokens) for engine in ENGINES for name in CACHE_TYPES]


def _figure(model: Model, engine: str, name: str, tokens: int) -> Figure:
    dtype = find_dtype(name)
    request = Request(tokens=tokens, k_dtype=dtype, v_dtype=dtype, encoder_tokens=model.encoder_tokens or 0)
    try:
        return Figure(engine, name, find_engine(engine).allocate(model, request).total_bytes)
    except KvcalcError as problem:
        return Figure(engine, name, None, problem.what)


def gguf_part(model: Model) -> dict[str, object]:
    """For JSON: weights by type, cache types side by side."""
    weights = weights_of(model)
    return {
        "weights": None
        if weights is None
        else [{"type": row.type_name, "tensors": row.tensors, "elements": row.elements, "bytes": row.bytes} for row in weights],
        "cache_types": [
            {"engine": row.engine, "type": row.cache_type, "tokens": model.max_tokens, "total_bytes": row.total_bytes}
            | ({"refusal": row.refusal} if row.refusal else {})
            for row in figures_of(model)
        ],
    }


def gguf_view(model: Model) -> Iterable[RenderableType]:
    """The two tables."""
    weights = weights_of(model)
    if weights is not None:
        yield from ("", _weights_table(weights))
    figures = figures_of(model)
    if figures:
        yield from ("", Text(f"one sequence at the file's own context length of {model.max_tokens:,}:"), _figures_table(figures))
        for refusal in dict.fromkeys(row.refusal for row in figures if row.refusal):
            yield Text(f"refused: {refusal}", style="dim")


def _weights_table(weights: list[Weights]) -> RenderableType:
    table = plain_table("weights", "tensors", "elements", "bytes", "", right=(1, 2, 3))
    for row in weights:
        size = ("unknown", "") if row.bytes is None else (f"{row.bytes:,}", format_bytes(row.bytes))
        table.add_row(row.type_name, f"{row.tensors:,}", f"{row.elements:,}", *size)
    if len(weights) > 1:
        whole = sum(row.bytes or 0 for row in weights)
        counts = (sum(row.tensors for row in weights), sum(row.elements for row in weights))
        table.add_row("all", f"{counts[0]:,}", f"{counts[1]:,}", f"{whole:,}", format_bytes(whole))
    return table


def _figures_table(figures: list[Figure]) -> RenderableType:
    table = plain_table("cache type", *CACHE_TYPES, right=(1, 2, 3))
    for engine in ENGINES:
        cells = [row for row in figures if row.engine == engine]
        table.add_row(engine, *(_cell(row) for row in cells))
    return table


def _cell(row: Figure) -> str:
    return "refused" if row.total_bytes is None else f"{row.total_bytes:,} ({format_bytes(row.total_bytes)})"
