"""Caches broken on purpose. A check that can't fail proves nothing, so each run shows that these are caught.

A control runs one part at a small length, with windows small enough to matter, through the same steps and comparisons as the
run itself: the sound cache first, then the same with one thing wrong. Every part of every kind is broken, each of its arrays,
and each of three sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from kvcalc.core.counting import Reach, Types
from kvcalc.core.layers import Layer, Part, Recurrent, Shared
from kvcalc.dtypes import DTYPES
from kvcalc.verify.attention import Visibility, attend_in_blocks
from kvcalc.verify.bench import BLOCK_SIZE, PROMPT, Bench, bench_of
from kvcalc.verify.breaking import BrokenLayout, OtherWindow, Place, columns, dropped_row, stale_row, without_scale
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.layouts import PagedLayout
from kvcalc.verify.life_controls import life_controls
from kvcalc.verify.parts.compressed import CompressedProof, OpenCompressed
from kvcalc.verify.parts.indexer import IndexerProof
from kvcalc.verify.parts.key_value import KeyValueProof, OpenKeyValue
from kvcalc.verify.parts.latent import LatentProof, OpenLatent
from kvcalc.verify.parts.recurrent import OpenRecurrent
from kvcalc.verify.results import Control

BROKEN_AT = PROMPT - 1  # the last prefilled position: later steps read it back
SCALE_OFF = 1.001
ARRAYS: dict[type, tuple[str, ...]] = {
    KeyValueProof: ("keys", "values"),
    LatentProof: ("latent rows",),
    IndexerProof: ("index keys",),
    CompressedProof: ("window rows", "compressed rows", "index rows"),
}


def controls_of(layers: Sequence[Layer], types: Types, inputs: Inputs, layouts: Sequence[str]) -> list[Control]:
    """Break the first part of every kind in every way that applies to it."""
    parts: dict[object, Part] = {}
    for layer in layers:
        for part in layer:
            parts.setdefault(part.variant if isinstance(part, Recurrent) else type(part), part)
    shares = any(isinstance(part, Shared) for layer in layers for part in layer)
    found: list[Control] = []
    for part in parts.values():
        bench = bench_of(part, types, inputs, shares)
        if bench is not None:
            found += _broken(bench, layouts)
    if "paged" in layouts:
        found += life_controls(layers, types, inputs)
    return found


def _broken(bench: Bench, layouts: Sequence[str]) -> Iterator[Control]:
    if isinstance(bench.open(bench.layout("concat")), OpenRecurrent):
        yield from _states(bench, layouts[0])
        return
    yield from _rows(bench, layouts)
    yield from _arithmetic(bench, layouts[0])
    if "paged" in layouts and isinstance(bench.proof, KeyValueProof | LatentProof):
        yield from _swapped(bench)


def _rows(bench: Bench, layouts: Sequence[str]) -> Iterator[Control]:
    """One wrong row in every array: of the prompt, and of the last block; sequences take turns."""
    first, last, count = layouts[0], layouts[-1], len(bench.context.lengths)
    for number, array in enumerate(_arrays(bench)):
        for turn, (layout, name, place) in enumerate(((last, "stale row", _prompt), (first, "last block", None))):
            sequence = (number + turn) % count
            where = place or _last_row(bench, sequence)
            opened = bench.open(BrokenLayout(bench.layout(layout), stale_row, sequence, where, number))
            what = f"a row of the {array} of sequence {sequence} is its neighbour's"
            yield bench.control(name, layout, what, opened)
    sequence = count - 1
    opened = bench.open(BrokenLayout(bench.layout(first), dropped_row, sequence, _prompt))
    yield bench.control("dropped position", first, f"a position of sequence {sequence} was never stored", opened)
    if bench.reads and isinstance(bench.proof, KeyValueProof | LatentProof):
        opened = bench.open(BrokenLayout(bench.layout(first), stale_row, 1, _prompt, 0))
        yield bench.control("shared rows", first, "a layer reads a wrong row of the layer before it", opened, reader=True)
    if isinstance(bench.proof, LatentProof) and bench.proof.part.rope_dim and not bench.context.quantized:
        rank = bench.proof.part.kv_lora_rank
        for name, part in (("rope part", columns(rank, None)), ("latent part", columns(0, rank))):
            opened = bench.open(BrokenLayout(bench.layout(last), part, 1, _prompt, 0))
            yield bench.control(name, last, f"the {name} of one row of sequence 1 is its neighbour's", opened)


def _arrays(bench: Bench) -> tuple[str, ...]:
    """The names of the arrays that a part really makes."""
    counting = BrokenLayout(bench.layout("concat"), stale_row, 0, _prompt)
    bench.open(counting)
    return ARRAYS[type(bench.proof)][: counting.made]


def _prompt(reach: Reach) -> int:
    """The row of the last prefilled position; among rows of a fixed number, the last."""
    return reach.fixed - 1 if reach.fixed is not None else BROKEN_AT // reach.ratio


def _last_row(bench: Bench, sequence: int) -> Place:
    """The last row but one of a sequence: it lies in its last block."""
    length = bench.context.lengths[sequence]

    def place(reach: Reach) -> int:
        return reach.fixed - 1 if reach.fixed is not None else max(length // reach.ratio - 2, 0)

    return place


def _arithmetic(bench: Bench, layout: str) -> Iterator[Control]:
    """A scale off by a thousandth, heads in another order, masks left out or off by one."""
    opened = bench.open(bench.layout(layout))
    if isinstance(opened, OpenKeyValue):
        opened.attend = lambda queries, blocks, scale: attend_in_blocks(queries, blocks, scale * SCALE_OFF)
        yield bench.control("scale off by 0.1 %", layout, "scores are a thousandth too large", opened)
        yield from _interleaved(bench, layout)
    elif isinstance(opened, OpenLatent | OpenCompressed):
        opened.scale *= SCALE_OFF
        yield bench.control("scale off by 0.1 %", layout, "scores are a thousandth too large", opened)
    yield from _sight(bench, layout)
    yield from _compressor(bench, layout)


def _compressor(bench: Bench, layout: str) -> Iterator[Control]:
    """One token's numbers never reach the open group."""
    opened = bench.open(bench.layout(layout))
    if not isinstance(opened, OpenCompressed) or opened.groups is None:
        return
    sound = opened.compress

    def compress(sequence: int, position: int, given: Tensor) -> None:
        sound(sequence, position, given * 0 if (sequence, position) == (1, BROKEN_AT) else given)

    opened.compress = compress  # type: ignore[method-assign]
    yield bench.control("compressor", layout, "one token of sequence 1 never enters the open group", opened)


def _interleaved(bench: Bench, layout: str) -> Iterator[Control]:
    """Head h reads key head h mod H_kv, where it should read h // (H / H_kv)."""
    opened, proof = bench.open(bench.layout(layout)), bench.proof
    if not isinstance(opened, OpenKeyValue) or not isinstance(proof, KeyValueProof):
        return
    kv_heads, heads = proof.part.num_kv_heads, proof.heads
    if kv_heads in (1, heads):
        return
    order = torch.arange(heads).view(-1, kv_heads).T.reshape(-1)
    back = order.argsort()

    def attend(queries: Tensor, blocks: object, scale: float) -> Tensor:
        return attend_in_blocks(queries[order], blocks, scale)[back]  # type: ignore[arg-type]

    opened.attend = attend
    yield bench.control("heads interleaved", layout, "query heads read each other's key heads", opened)


def _sight(bench: Bench, layout: str) -> Iterator[Control]:
    """A mask left out; a window or chunk one too long or short, in the mask alone."""
    proof = bench.proof
    if not isinstance(proof, KeyValueProof | LatentProof | CompressedProof) or not proof.sight.causal:
        return
    if not isinstance(proof, CompressedProof):
        yield _seeing(bench, layout, Visibility(causal=False), "chunk without mask", "new tokens see each other's future")
    for more, name in ((1, "mask one too long"), (-1, "mask one too short")):
        sight = _other(proof.sight, more)
        if sight is not None:
            yield _seeing(bench, layout, sight, name, f"a query sees one position too {'many' if more > 0 else 'few'}")


def _seeing(bench: Bench, layout: str, sight: Visibility, name: str, what: str) -> Control:
    wider = OtherWindow(bench.layout(layout), 1 if sight.causal else 0)
    opened = bench.open(wider)
    if isinstance(opened, OpenKeyValue | OpenLatent | OpenCompressed):
        opened.sight = sight
    return bench.control(name, layout, what, opened)


def _other(sight: Visibility, more: int) -> Visibility | None:
    if sight.window is not None:
        return Visibility(window=sight.window + more)
    return Visibility(chunk=sight.chunk + more) if sight.chunk is not None else None


def _swapped(bench: Bench) -> Iterator[Control]:
    layout = PagedLayout(bench.context.lengths, bench.context.device, BLOCK_SIZE, bench.context.inputs.seed)
    opened = bench.open(layout)
    if not layout.tables:
        return  # an encoder's rows aren't paged
    table = next(iter(layout.tables.values()))

    def swap() -> None:
        column = BROKEN_AT // BLOCK_SIZE % len(table.held[0])
        table.entries[[0, 1], column] = table.entries[[1, 0], column]

    what = "blocks of sequences 0 and 1 are exchanged in the table"
    yield bench.control("block table swapped", "paged", what, opened, swap)


def _states(bench: Bench, layout: str) -> Iterator[Control]:
    """One token's state, and one token's column, left out; in another sequence each."""
    ways = (("skip_state", "state not updated", "state"), ("skip_conv", "convolution not moved", "convolution window"))
    for sequence in range(len(bench.context.lengths)):
        attribute, name, held = ways[sequence % 2]
        opened = bench.open(bench.layout(layout))
        if not isinstance(opened, OpenRecurrent):
            continue
        if not _holds(opened, attribute):
            attribute, name, held = ways[1 - sequence % 2]
        setattr(opened, attribute, (sequence, BROKEN_AT))
        yield bench.control(name, layout, f"sequence {sequence}: one token never enters the {held}", opened)


def _holds(opened: OpenRecurrent, attribute: str) -> bool:
    held = opened.states if attribute == "skip_state" else opened.convs
    return any(tensor.numel() for tensor in held)


def scale_control(part: Part, types: Types, inputs: Inputs, name: str) -> Control | None:
    """A quantised cache that loses the scale of one block."""
    dtype = DTYPES[name]
    bench = bench_of(part, replace(types, k=dtype, v=dtype), inputs)
    if bench is None:
        return None
    broken = BrokenLayout(bench.layout("concat"), without_scale(dtype), 1, _prompt, 0)
    what = f"one {name} block of sequence 1 has lost its scale"
    return bench.control("scale lost", "concat", what, bench.open(broken), shown="quantized")
