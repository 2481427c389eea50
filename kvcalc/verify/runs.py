"""One implementation over all chosen layers: make the caches, feed every step, compare, weigh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
    kind_of,
)
from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.verify.device import allocated
from kvcalc.verify.events import Event
from kvcalc.verify.layouts import Layout
from kvcalc.verify.parts.base import Context, OpenPart, PartProof
from kvcalc.verify.parts.compressed import CompressedProof, overlap_of
from kvcalc.verify.parts.held import HeldProof
from kvcalc.verify.parts.indexer import IndexerProof
from kvcalc.verify.parts.key_value import KeyValueProof
from kvcalc.verify.parts.latent import LatentProof
from kvcalc.verify.parts.recurrent import RecurrentProof, rule_of
from kvcalc.verify.plan import Chosen, Step, describe, same_kind
from kvcalc.verify.results import Check, Measure, Weighing

Tick = Callable[[str, int], None]  # (what is being done, units of work done)


def no_tick(what: str, units: int) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class LayerProof:
    """One chosen layer with the proofs of its parts, and the proof whose cache it reads if it keeps none."""

    chosen: Chosen
    parts: tuple[PartProof, ...]


def prove(context: Context, chosen: Sequence[Chosen], tick: Tick = no_tick) -> list[LayerProof]:
    """Make the proofs of all chosen layers and compute their references."""
    readers: dict[int, list[int]] = {}
    for each in chosen:
        if each.source is not None:
            readers.setdefault(each.source, []).append(each.index)
    checked = {each.index for each in chosen if each.checked}
    proofs = []
    for each in chosen:
        own = readers.get(each.index, [])
        seen = context if checked & {each.index, *own} else context.unchecked()
        proofs.append(LayerProof(each, _parts(seen, each, own)))
    for proof in proofs:
        for part in proof.parts:
            part.prepare()
        tick("reference", 1)
    return proofs


def _parts(context: Context, chosen: Chosen, readers: list[int]) -> tuple[PartProof, ...]:
    found: list[PartProof] = []
    for part in chosen.layer:
        read = isinstance(part, FullAttention | SlidingAttention | ChunkedAttention | LatentAttention)
        proof = proof_of(context, part, chosen.index, readers if read else [])
        if proof is not None:
            found.append(proof)
            readers = [] if read else readers
    return tuple(found)


def proof_of(context: Context, part: Part, layer: int, readers: Sequence[int] = ()) -> PartProof | None:
    """The proof of one part; None where it keeps nothing; bytes alone where nothing can be computed from it."""
    match part:
        case FullAttention() | SlidingAttention() | ChunkedAttention() | CrossAttention():
            return KeyValueProof(context, part, layer, readers) if part.num_kv_heads else HeldProof(context, part)
        case LatentAttention():
            return LatentProof(context, part, layer, readers)
        case Indexer():
            return IndexerProof(context, part, layer)
        case CompressedAttention():
            return CompressedProof(context, part, layer) if overlap_of(part) else HeldProof(context, part)
        case Recurrent():
            rule = rule_of(part)
            return RecurrentProof(context, part, layer, rule) if rule else HeldProof(context, part)
        case Shared() | NoCache():
            return None


@dataclass(frozen=True)
class OpenLayer:
    """One layer's caches under one layout."""

    chosen: Chosen
    parts: tuple[OpenPart, ...]

    def tensors(self) -> list[Tensor]:
        """Everything it holds."""
        return [tensor for part in self.parts for tensor in part.tensors()]


def open_layers(proofs: Sequence[LayerProof], layout: Layout) -> list[OpenLayer]:
    """Make all caches."""
    return [OpenLayer(proof.chosen, tuple(part.open(layout) for part in proof.parts)) for proof in proofs]


def feed(layers: Sequence[OpenLayer], steps: Sequence[Step | Event], layout: Layout, tick: Tick = no_tick) -> None:
    """Every step through every layer, as a model would; between them sequences may come and go."""
    for step in steps:
        if isinstance(step, Event):
            layout.apply(step)
            continue
        for layer in layers:
            for part in layer.parts:
                part.step(*step)
        tick(layout.name, 1)


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the distinct storages behind some tensors, each counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def measures_of(layers: Sequence[OpenLayer], index: int) -> list[Measure]:
    """What was found of one layer: by its own parts, or by the layer whose cache it reads."""
    chosen = next(layer.chosen for layer in layers if layer.chosen.index == index)
    homes = [layer for layer in layers if layer.chosen.index in (index, chosen.source)]
    return [measure for layer in homes for part in layer.parts for measure in part.measures(index)]


def merged(measures: Iterable[Measure]) -> tuple[Measure, ...]:
    """Equal comparisons of several layers as one: the worst of them, and how many outputs in all."""
    found: dict[str, Measure] = {}
    for measure in measures:
        known = found.get(measure.what)
        worse = known is None or measure.ratio > known.ratio
        kept = measure if known is None or worse else known
        found[measure.what] = replace(kept, outputs=measure.outputs + (known.outputs if known else 0))
    return tuple(found.values())


@dataclass(frozen=True)
class Case:
    """What one implementation is held against: the model of the chosen layers, and the request."""

    model: Model  # its layers are the chosen ones, in order
    request: Request
    counts: dict[Layer, int]  # layers of each kind in the whole model
    steps: Sequence[Step | Event]

    @property
    def encoder_tokens(self) -> int:
        """What cross attention reads: the request's number, else the model's."""
        asked = self.request.encoder_tokens
        return (self.model.encoder_tokens or 0) if asked is None else asked


def run_layout(case: Case, proofs: Sequence[LayerProof], layout: Layout, tick: Tick = no_tick) -> tuple[list[Check], Weighing]:
    """Run one implementation, check every kind of layer, weigh everything."""
    context_device = layout.device
    before = allocated(context_device)
    layers = open_layers(proofs, layout)
    feed(layers, case.steps, layout, tick)
    after = allocated(context_device)
    tally = predict(case, layout)
    per_layer = [run.bytes_per_layer for run in tally.layers for _ in range(run.count)]
    checks = _checks(case, layers, layout, per_layer, tally)
    shared = layout.shared_tensors()
    every = [tensor for layer in layers for tensor in layer.tensors()] + shared
    k, v = types_of(tally)
    weighing = Weighing(
        layout.name,
        layout.engine,
        k,
        v,
        storage_bytes(every),
        tally.total_bytes,
        storage_bytes(shared),
        sum(array.bytes for array in tally.shared),
        before,
        after,
    )
    return checks, weighing


def not_run(layer: Layer, encoder_tokens: int) -> str:
    """What of a layer is weighed, or is nothing, and isn't computed: each part with its reason."""
    return "; ".join(filter(None, (_why_not(part, encoder_tokens) for part in layer)))


def _why_not(part: Part, encoder_tokens: int) -> str:
    match part:
        case Shared() | NoCache():
            return "it keeps nothing of its own" if isinstance(part, NoCache) else ""
        case CrossAttention() if not encoder_tokens:
            return "cross attention has no encoder positions: give --encoder-tokens"
        case FullAttention() | SlidingAttention() | ChunkedAttention() | CrossAttention() if not part.num_kv_heads:
            return "it has no key heads"
        case Recurrent() if rule_of(part) is None:
            return f"no update rule is known here for {part.variant} of these shapes: it is weighed alone"
        case CompressedAttention() if overlap_of(part) is None:
            return "the compressor's buffers have an unknown size: they are weighed alone"
        case _:
            return ""


def predict(case: Case, layout: Layout) -> Tally:
    """What the engine of the same rule says."""
    engine = find_engine(layout.engine)
    return engine.allocate(case.model, replace(case.request, options=layout.options()))


def types_of(tally: Tally) -> tuple[str, str]:
    """The K and V types as the engine resolved them."""
    return str(tally.request["k_dtype"][0]), str(tally.request["v_dtype"][0])


def _checks(case: Case, layers: Sequence[OpenLayer], layout: Layout, per_layer: list[int], tally: Tally) -> list[Check]:
    groups: dict[Layer, list[int]] = {}
    for place, layer in enumerate(layers):
        groups.setdefault(same_kind(layer.chosen.layer), []).append(place)
    k, v = types_of(tally)
    found = []
    for kind, places in groups.items():
        measured = [storage_bytes(layers[place].tensors()) for place in places]
        wrong = [place for place, size in zip(places, measured, strict=True) if size != per_layer[place]]
        found.append(
            Check(
                kind=kind_of(kind),
                shape=describe(kind),
                implementation=layout.name,
                engine=layout.engine,
                k_dtype=k,
                v_dtype=v,
                layers=len(places),
                layers_in_model=case.counts.get(kind, len(places)),
                measures=merged(m for place in places for m in measures_of(layers, layers[place].chosen.index)),
                measured_bytes=sum(measured),
                predicted_bytes=sum(per_layer[place] for place in places),
                note=f"{len(wrong)} layers differ in bytes" if wrong else "",
                not_run=not_run(kind, case.encoder_tokens),
            )
        )
    return found
