"""One rank's share of a cache, for accountings that count by layers: heads split, latents copied, layers dealt out.

- Tensor parallel: key/value heads and state heads are split; fewer heads than ranks stand on several of them (one head
  each); a latent, an indexer's keys and compressed rows are whole on every rank. Where a number doesn't divide, the rank
  with most counts.
- Pipeline parallel: each stage owns a run of layers, as even as it goes, the earlier stages one more.
- Data parallel: each copy serves its share of the sequences; the one with most counts.

The heaviest rank is what must fit, so its bytes are the total; ``ranks`` in the report has a row a stage.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from kvcalc.core.layers import (
    ChunkedAttention,
    Conv,
    CrossAttention,
    FullAttention,
    Layer,
    Part,
    Recurrent,
    SlidingAttention,
    State,
)
from kvcalc.core.model import LayerTally, Model, Request, Tally
from kvcalc.engines.base import Counted, Figure, Plan
from kvcalc.errors import EngineError
from kvcalc.units import ceil_div


def sharing(request: Request) -> int:
    """How many ranks share the weights of one copy."""
    return request.tp_size * request.pp_size


def share_of(part: Part, ranks: int) -> Part:
    """What the fullest of ``ranks`` holds of a part."""
    if isinstance(part, FullAttention | SlidingAttention | ChunkedAttention | CrossAttention):
        return replace(part, num_kv_heads=ceil_div(part.num_kv_heads, ranks), num_heads=ceil_div(part.num_heads, ranks))
    if isinstance(part, Recurrent):
        return _recurrent(part, ranks)
    return part


def _recurrent(part: Recurrent, ranks: int) -> Recurrent:
    """Channels and state heads split; Mamba-2's B and C groups at least one a rank."""
    states = tuple(State((ceil_div(state.shape[0], ranks), *state.shape[1:]), state.dtype) for state in part.states)
    shared = 2 * part.num_groups * part.states[0].shape[-1] if part.num_groups and part.states else 0
    kept = shared // part.num_groups * ceil_div(part.num_groups, ranks) if shared else 0
    convs = tuple(Conv(ceil_div(conv.channels - shared, ranks) + kept, conv.kernel, conv.dtype) for conv in part.convs)
    return replace(part, convs=convs, states=states, num_groups=ceil_div(part.num_groups, ranks))


def stages(num_layers: int, count: int) -> list[tuple[int, int]]:
    """(first, how many) layers of each pipeline stage. Raises EngineError where there are more stages than layers."""
    if count > num_layers:
        raise EngineError(f"{num_layers} layers can't be dealt to {count} pipeline stages", fix=f"take --pp {num_layers} or less")
    even, more = divmod(num_layers, count)
    firsts = [stage * even + min(stage, more) for stage in range(count)]
    return [(first, even + (stage < more)) for stage, first in enumerate(firsts)]


def _stage_models(model: Model, request: Request) -> list[tuple[int, Model]]:
    """Each stage as a model of its own: its first layer, and one rank's share of its layers."""
    layers = tuple(tuple(share_of(part, request.tp_size) for part in layer) for layer in model.layers)
    drafts: tuple[Layer, ...] = tuple(tuple(share_of(part, request.tp_size) for part in layer) for layer in model.draft_layers)
    dealt = stages(len(layers), request.pp_size)
    return [
        (first, replace(model, layers=layers[first : first + count], draft_layers=drafts if stage == len(dealt) - 1 else ()))
        for stage, (first, count) in enumerate(dealt)
    ]


def copy_request(request: Request, copies: int) -> Request:
    """What one of ``copies`` data-parallel copies serves, on one rank: lengths are dealt out from the longest on."""
    lengths = tuple(sorted(request.lengths, reverse=True)[::copies]) if copies > 1 else request.lengths
    batch = ceil_div(request.batch_size, copies)
    return replace(request, batch_size=batch, lengths=lengths, tp_size=1, pp_size=1, dp_size=1)


def _alone(request: Request) -> bool:
    return request.tp_size == request.pp_size == request.dp_size == 1


class RankPlan(Plan):
    """A plan that counts by layers: the whole figure is that of the heaviest rank. Subclasses count one rank."""

    @abstractmethod
    def rank_tally(self, model: Model, request: Request) -> Tally:
        """The tally of one rank's layers, for a request that names no ranks."""

    def allocate(self) -> Tally:
        """The heaviest rank's tally, and a row a stage in its report."""
        model, request = self.model, self.request
        if _alone(request) or not model.layers:
            return self.rank_tally(model, request)
        asked = copy_request(request, request.dp_size)
        found = [(first, self.rank_tally(stage, asked)) for first, stage in _stage_models(model, request)]
        first, heaviest = max(found, key=lambda pair: pair[1].total_bytes)
        rows = [_row(stage, start, tally, request) for stage, (start, tally) in enumerate(found)]
        return replace(
            heaviest,
            layers=tuple(_moved(run, first) for run in heaviest.layers),
            request={**heaviest.request, **_facts(request)},
            report={**heaviest.report, "ranks": rows, "all_ranks_bytes": _everywhere(found, request)},
            notes=(*heaviest.notes, _note(request)),
        )

    @property
    def ranks(self) -> int | None:
        """Tensor- and pipeline-parallel ranks."""
        return sharing(self.request)


class CountedRankPlan(RankPlan, Counted):
    """The same with a short cut."""

    @abstractmethod
    def rank_counter(self, model: Model, request: Request) -> Figure:
        """(batch_size, tokens) → bytes of one rank's layers, for a request that names no ranks."""

    def counter(self) -> Figure:
        """(batch_size, tokens) → bytes of the heaviest rank."""
        model, request = self.model, self.request
        if _alone(request) or not model.layers:
            return self.rank_counter(model, request)
        asked, copies = copy_request(request, request.dp_size), request.dp_size
        counts = [self.rank_counter(stage, asked) for _, stage in _stage_models(model, request)]
        return lambda batch_size, tokens: max(count(ceil_div(batch_size, copies), tokens) for count in counts)


def _moved(run: LayerTally, first: int) -> LayerTally:
    return LayerTally(run.first + first, run.count, run.layer, run.kind, run.arrays, run.positions)


def _row(stage: int, first: int, tally: Tally, request: Request) -> dict[str, object]:
    return {
        "pipeline_stage": stage,
        "first_layer": first,
        "layers": sum(run.count for run in tally.layers),
        "ranks": request.tp_size * request.dp_size,
        "bytes_per_rank": tally.total_bytes,
    }


def _everywhere(found: list[tuple[int, Tally]], request: Request) -> int:
    return request.tp_size * request.dp_size * sum(tally.total_bytes for _, tally in found)


def _facts(request: Request) -> dict[str, tuple[object, str]]:
    sizes = {"tp_size": request.tp_size, "pp_size": request.pp_size, "dp_size": request.dp_size}
    return {name: (size, request.origins.get(name, "request")) for name, size in sizes.items() if size > 1}


def _note(request: Request) -> str:
    names = (("tp", request.tp_size), ("pp", request.pp_size), ("dp", request.dp_size))
    said = " x ".join(f"{name} {size}" for name, size in names if size > 1)
    return f"one rank of {sharing(request) * request.dp_size} ({said}), the heaviest; each holds its own share"
