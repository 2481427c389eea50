"""llama.cpp's caches as a tally: which layer holds which rows, and the engine's own view of each allocation."""

from __future__ import annotations

from collections.abc import Callable

from kvcalc.core.layers import (
    CompressedAttention,
    Conv,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
    State,
    kind_of,
)
from kvcalc.core.model import Array, LayerTally
from kvcalc.dtypes import Dtype
from kvcalc.engines.llamacpp.caches import F32_BYTES, Cache, Context, Memory, Row, StateRow
from kvcalc.engines.llamacpp.hparams import Hparams
from kvcalc.errors import EngineError

_VARIANTS = {
    "ssm": "mamba2",
    "ssm_ungrouped": "mamba",
    "rwkv": "rwkv",
    "shortconv": "short_conv",
    "kda": "kda",
    "lightning": "lightning",
}
_LABELS = {"raw_swa": "window rows", "csa": "compressed rows", "hca": "compressed rows"}


def tally_layers(hparams: Hparams, memory: Memory, context: Context, type_k: Dtype, type_v: Dtype) -> tuple[LayerTally, ...]:
    """Every run of layers that hold the same."""
    arrays: list[list[Array]] = [[] for _ in range(hparams.layers)]
    parts: list[list[Part]] = [[] for _ in range(hparams.layers)]
    cells = [0] * hparams.layers
    for cache in memory.caches:
        for row in cache.rows:
            arrays[row.layer].extend(_row_arrays(cache, row, context, type_k, type_v))
            parts[row.layer].append(_part(cache, row))
            cells[row.layer] = max(cells[row.layer], cache.cells(context))
    for state in memory.states or ():
        arrays[state.layer].extend(_state_arrays(state, context))
        parts[state.layer].append(_recurrent(hparams, state))
    for compressor in memory.compressors:
        rows = context.sequences * (1 + context.snapshots)
        arrays[compressor.layer].append(_float32("compressor buffers", rows, compressor.elements))
    layers = [_layer(hparams, index, found) for index, found in enumerate(parts)]
    return _runs(layers, arrays, cells)


def _runs(layers: list[Layer], arrays: list[list[Array]], cells: list[int]) -> tuple[LayerTally, ...]:
    found: list[LayerTally] = []
    for index, (layer, held) in enumerate(zip(layers, arrays, strict=True)):
        last = found[-1] if found else None
        if last and last.layer == layer and last.arrays == tuple(held):
            found[-1] = LayerTally(last.first, last.count + 1, layer, last.kind, last.arrays, last.positions)
        else:
            found.append(LayerTally(index, 1, layer, kind_of(layer), tuple(held), cells[index]))
    return tuple(found)


def _row_bytes(dtype: Dtype, elements: int, side: str) -> int:
    if elements % dtype.block_elements:
        raise EngineError(
            f"a row of {elements} {side} is no whole number of {dtype} blocks of {dtype.block_elements}",
            fix="take a cache type without blocks (f16, bf16)",
        )
    return dtype.row_bytes(elements)


def _row_arrays(cache: Cache, row: Row, context: Context, type_k: Dtype, type_v: Dtype) -> list[Array]:
    rows = cache.cells(context) * cache.streams(context)
    keys = "index keys" if cache.component == "index" else _LABELS.get(cache.name, "latent" if row.values is None else "keys")
    found = [_array(cache, keys, rows, row.heads, row.keys, type_k)]
    if row.values is not None:
        label = "index values" if cache.component == "index" else "values"
        note = "nothing reads them" if cache.component == "index" else ""
        found.append(_array(cache, label, rows, row.heads, row.values, type_v, note))
    return found


def _array(cache: Cache, label: str, rows: int, heads: int, elements: int, dtype: Dtype, note: str = "") -> Array:
    even = heads > 0 and elements % heads == 0
    width = elements // heads if even else elements
    return Array(cache.component, label, rows, _row_bytes(dtype, elements, label), heads if even else 1, width, dtype.name, note)


def _float32(label: str, rows: int, elements: int) -> Array:
    return Array("state", label, rows, F32_BYTES * elements, 1, elements, "float32")


def _state_arrays(state: StateRow, context: Context) -> list[Array]:
    rows = context.sequences * (1 + context.snapshots)
    named = (("conv", state.conv), ("state", state.state), ("n-gram history", state.history))
    return [_float32(label, rows, elements) for label, elements in named if elements]


def _part(cache: Cache, row: Row) -> Part:
    """The cache's row as the layer part that it stands for."""
    if cache.component == "index":
        return Indexer(row.keys)
    if cache.reach in ("csa", "hca") or cache.split:
        return CompressedAttention(row.keys, cache.window, ratio={"csa": 4, "hca": 128}.get(cache.reach, 0))
    if row.values is None:
        return LatentAttention(row.keys, 0, window=cache.window if cache.reach == "window" else None)
    heads = max(row.heads, 1)
    widths = heads, row.keys // heads, row.values // heads
    if cache.reach == "window":
        return SlidingAttention(*widths, window=cache.window)
    return FullAttention(*widths)


def _recurrent(hparams: Hparams, state: StateRow) -> Recurrent:
    variant = _VARIANTS[hparams.arch.state]
    if hparams.arch.recurrent == "interval" and hparams.arch.state == "ssm":
        variant = "gated_delta_net"
    convs = tuple(Conv(elements, 2, "float32") for elements in (state.conv, state.history) if elements)
    return Recurrent(variant, convs, (State((state.state,)),) if state.state else ())


def _layer(hparams: Hparams, index: int, parts: list[Part]) -> Layer:
    if parts:
        return tuple(dict.fromkeys(parts))
    if hparams.kv_layers is not None and index >= hparams.kv_layers:
        return (Shared(),)
    if index >= hparams.trunk:
        return (NoCache("predicts further tokens, in a context of its own"),)
    return (NoCache("no cache in llama.cpp" if hparams.arch.memory == "none" else "no attention"),)


def caches_report(memory: Memory, context: Context, type_k: Dtype, type_v: Dtype) -> list[dict[str, object]]:
    """Each allocation as the engine logs it."""
    found = [_cache_report(cache, context, type_k, type_v) for cache in memory.caches]
    copies = F32_BYTES * context.sequences * (1 + context.snapshots)
    if memory.states is not None:
        found.append(
            {
                "name": "recurrent",
                "cells": context.sequences,
                "layers": len(memory.states),
                "r_bytes": copies * sum(state.conv for state in memory.states),
                "s_bytes": copies * sum(state.state for state in memory.states),
                "p_bytes": copies * sum(state.history for state in memory.states),
            }
        )
    if memory.compressors:
        elements = sum(compressor.elements for compressor in memory.compressors)
        found.append(
            {"name": "compressor", "cells": context.sequences, "layers": len(memory.compressors), "bytes": copies * elements}
        )
    return found


def _cache_report(cache: Cache, context: Context, type_k: Dtype, type_v: Dtype) -> dict[str, object]:
    cells, streams = cache.cells(context), cache.streams(context)
    return {
        "name": cache.name,
        "cells": cells,
        "layers": len(cache.rows),
        "streams": streams,
        "k_bytes": cells * streams * sum(_row_bytes(type_k, row.keys, "keys") for row in cache.rows),
        "v_bytes": cells * streams * sum(_row_bytes(type_v, row.values or 0, "values") for row in cache.rows),
    }


def cache_bytes(memory: Memory, type_k: Dtype, type_v: Dtype) -> Callable[[Context], int]:
    """Bytes as a function of the context, with the rows added up once."""
    weights = [
        (cache, sum(_row_bytes(type_k, row.keys, "keys") + _row_bytes(type_v, row.values or 0, "values") for row in cache.rows))
        for cache in memory.caches
    ]
    states = sum(state.conv + state.state + state.history for state in memory.states or ())
    fixed = F32_BYTES * (states + sum(compressor.elements for compressor in memory.compressors))

    def figure(context: Context) -> int:
        cached = sum(cache.cells(context) * cache.streams(context) * row for cache, row in weights)
        return cached + fixed * context.sequences * (1 + context.snapshots)

    return figure
