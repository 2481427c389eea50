"""SGLang's plan: the pools of the heaviest rank, those that the memory makes or those that the request needs."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property

from kvcalc.core.counting import Slab
from kvcalc.core.layers import FullAttention, kind_of, runs
from kvcalc.core.model import Array, LayerTally, Model, Request, Tally
from kvcalc.engines.base import Engine, Figure, Memory, Plan, Serving
from kvcalc.engines.ranks import copy_request, sharing
from kvcalc.engines.releases import Rules
from kvcalc.engines.requests import resolve_request
from kvcalc.engines.sglang.layers import layer_slots, pooled_layers, workspace_row
from kvcalc.engines.sglang.options import OPTIONS
from kvcalc.engines.sglang.pools import (
    Division,
    Pools,
    Run,
    Stage,
    cells_of,
    divide,
    needed,
    pools_for,
    pools_of,
    state_bytes,
    windowed,
)
from kvcalc.engines.sglang.releases import RELEASES
from kvcalc.engines.sglang.serving import serving_of
from kvcalc.engines.sglang.setup import Setup, set_up
from kvcalc.engines.sglang.slots import FULL, STATE, WINDOW, Slot
from kvcalc.errors import EngineError
from kvcalc.units import ceil_div, format_bytes, round_up

_NOTES = {FULL: "", WINDOW: "of the window pool", STATE: "state slots, and one more"}


def stages_of(model: Model, request: Request, setup: Setup) -> list[Stage]:
    """Each pipeline stage's share of one rank: even, the last stages one layer more. Raises EngineError."""
    layers = pooled_layers(model, setup)
    own = next((part for layer in layers for part in layer if isinstance(part, FullAttention)), None)
    count, depth = request.pp_size, len(layers)
    if count > depth:
        raise EngineError(f"{depth} layers can't be split over {count} pipeline stages", fix="take fewer stages")
    even, more = divmod(depth, count)
    rope = model.fields.int("qk_rope_head_dim", 64) if setup.compressed else 0
    found, first = [], 0
    for stage in range(count):
        size = even + (stage >= count - more)
        held = [
            Run(first + start, length, layer, tuple(layer_slots(model, layer, setup, own)))
            for start, length, layer in runs(layers[first : first + size])
        ]
        found.append(Stage(first, tuple(held), cells_of(held, setup, workspace_row(setup, own), rope)))
        first += size
    return found


class SglangPlan(Plan):
    """Backends, layers and slots are settled once; the pools then follow from the memory, or from the sequences."""

    def __init__(self, engine: Engine, model: Model, request: Request, rules: Rules) -> None:
        super().__init__(engine, model, request, rules)
        self.setup = set_up(model, request)
        self.stages = stages_of(model, request, self.setup)

    def resized(self, request: Request) -> SglangPlan:
        """The same setup for other sequences."""
        plan = copy(self)
        vars(plan).pop("tally", None)
        plan.request = request
        return plan

    @cached_property
    def division(self) -> Division:
        """The pools that the memory makes; only where it is named."""
        return divide(self.stages, self.setup, self.setup.given.available or 0)

    def allocate(self) -> Tally:
        """The pools of the heaviest rank. Raises EngineError, UsageError."""
        without = replace(self.model, layers=())  # an encoder's length decides nothing here
        filled, _, resolved = resolve_request(without, copy_request(self.request, self._copies))
        division = self._pools(filled)
        longest = max(length for length, _ in filled.sequences)
        refusal = division.refusal or _too_long(longest, division.pools, self.setup)
        stage = max(self.stages, key=lambda stage: (self._bytes(stage, division.pools), -stage.first))
        return Tally(
            layers=tuple(_tally(run, division.pools) for run in stage.runs),
            shared=self._shared(stage, division.pools),
            request={**resolved, **self._facts()},
            report={**_report(stage, self.setup, division.pools), **self._rank_rows(division.pools)},
            warnings=() if refusal else self._waiting(filled, division.pools),
            notes=self._notes(),
            fits=not refusal,
            refusal=refusal,
        )

    @property
    def _copies(self) -> int:
        """Copies and groups of ranks that each serve a share of the sequences."""
        return self.request.dp_size * self.setup.given.attn_dp

    @property
    def _bounded(self) -> bool:
        given = self.setup.given
        return given.available is not None or given.most_tokens is not None

    def _pools(self, request: Request) -> Division:
        """What the memory makes, else what the sequences need and ``max-total-tokens`` allows."""
        if self.setup.given.available is not None:
            return self.division
        found = self._wanted(sum(count * round_up(length, self.setup.page) for length, count in request.sequences), request)
        most = self.setup.given.most_tokens
        if most is None or found.tokens <= most:
            return Division(found)
        return pools_of(self.stages, self.setup, most, found.states)

    def _wanted(self, tokens: int, request: Request) -> Pools:
        return pools_for(self.stages, self.setup, tokens, sum(count for _, count in request.sequences))

    def _bytes(self, stage: Stage, pools: Pools) -> int:
        held = sum(run.count * slot.slab.row_bytes * _rows(slot, pools) for run in stage.runs for slot in run.slots)
        return held + sum(array.bytes for array in self._shared(stage, pools))

    def _shared(self, stage: Stage, pools: Pools) -> tuple[Array, ...]:
        """What stands once for all layers: nvfp4's scales of layers and its workspace; the draft's own pool on request."""
        found = []
        if self.setup.cache == "nvfp4" and not self.setup.shape.latent and stage.cells.num_full:
            found.append(Array("other", "scales of layers", 2 * stage.cells.num_full, 4, 1, 1, "float32"))
        if stage.cells.workspace:
            row = stage.cells.workspace
            found.append(Array("other", "fp8 workspace", pools.rows(FULL), row, 1, row, "fp8_e4m3", "for all layers"))
        return (*found, *self._draft_arrays(stage, pools))

    def _draft_arrays(self, stage: Stage, pools: Pools) -> tuple[Array, ...]:
        """``--draft``: the draft worker's own pool of as many tokens, on the last stage."""
        if not self.request.draft or stage is not self.stages[-1]:
            return ()
        drafted = replace(self.model, layers=self.model.draft_layers)
        found = []
        for layer in pooled_layers(drafted, self.setup) if drafted.layers else ():
            for slot in layer_slots(drafted, layer, self.setup, None):
                if slot.pool in (FULL, WINDOW):
                    slab = replace(slot.slab, label=f"draft {slot.slab.label}")
                    found.append(_array(Slot(FULL, slab, slot.sized, slot.tokens), pools))
        return tuple(found)

    def _facts(self) -> dict[str, tuple[object, str]]:
        setup, request = self.setup, self.request
        sizes = {"tp_size": request.tp_size, "pp_size": request.pp_size, "dp_size": request.dp_size}
        found: dict[str, tuple[object, str]] = {
            name: (size, request.origins.get(name, "request")) for name, size in sizes.items() if size > 1
        }
        if setup.given.attn_dp > 1:
            found["attn_dp_size"] = (setup.given.attn_dp, "-o attn-dp-size")
        backend = "-o attention-backend" if setup.given.backend else f"SGLang's default on {setup.given.platform}"
        page = "-o page-size" if setup.given.page == setup.page else "default" if setup.page == 1 else "what the backend takes"
        return {
            **found,
            "k_dtype": (setup.cache, setup.origin),
            "v_dtype": (setup.cache, setup.origin),
            "page_size": (setup.page, page),
            "attention_backend": (setup.backends.attention, backend),
        }

    def _rank_rows(self, pools: Pools) -> dict[str, object]:
        if sharing(self.request) * self._copies == 1:
            return {}
        rows = [
            {
                "pipeline_stage": index,
                "first_layer": stage.first,
                "tokens": pools.tokens,
                "bytes_per_rank": self._bytes(stage, pools),
            }
            for index, stage in enumerate(self.stages)
        ]
        return {"ranks": rows}

    def _waiting(self, request: Request, pools: Pools) -> tuple[str, ...]:
        wanted = sum(count * round_up(length, self.setup.page) for length, count in request.sequences)
        sequences = sum(count for _, count in request.sequences)
        found = []
        if self._bounded and wanted > pools.tokens:
            found.append(f"the pool holds {pools.tokens:,} of the {wanted:,} tokens: some sequences wait")
        running = pools.requests if self.setup.given.available is not None else self.setup.requests
        if running is not None and sequences > running:
            found.append(f"{running:,} of the {sequences:,} sequences run at once, the others wait")
        return tuple(found)

    def _notes(self) -> tuple[str, ...]:
        ranks = sharing(self.request) * self.request.dp_size
        return (f"one rank of {ranks}, the heaviest",) if ranks > 1 else ()

    @property
    def step(self) -> int:
        """A page."""
        return self.setup.page

    @cached_property
    def need(self) -> Figure:
        """Bytes that must be there for a batch: its pools; with states, the memory of which the shares hold both."""
        stages, setup, copies = self.stages, self.setup, self._copies

        def bytes_for(batch_size: int, tokens: int) -> int:
            sequences = ceil_div(batch_size, copies)
            pools = pools_for(stages, setup, sequences * round_up(tokens, setup.page), sequences)
            return needed(stages, setup, pools)

        return bytes_for

    @property
    def ranks(self) -> int | None:
        """Tensor- and pipeline-parallel ranks."""
        return sharing(self.request)

    @property
    def over_cap(self) -> str:
        """Why ``max-total-tokens`` holds no such batch at once; nothing where it does."""
        served = copy_request(self.request, self._copies)
        wanted = sum(count * round_up(length, self.setup.page) for length, count in served.sequences)
        most = self.setup.given.most_tokens
        if most is None or wanted <= most // self.setup.page * self.setup.page:
            return ""
        return f"-o max-total-tokens={most} holds less than {wanted:,} tokens"

    @property
    def at_once(self) -> tuple[int, str] | None:
        """max-running-requests, on each copy."""
        asked = self.setup.given.requests
        return None if asked is None else (asked, "-o max-running-requests")


def _rows(slot: Slot, pools: Pools) -> int:
    return pools.rows(slot.pool) // slot.tokens


def _array(slot: Slot, pools: Pools) -> Array:
    slab: Slab = replace(slot.slab, note=slot.slab.note or _NOTES.get(slot.pool, "of running requests"))
    return Array(slab.component, slab.label, _rows(slot, pools), slab.row_bytes, slab.heads, slab.width, slab.dtype, slab.note)


def _tally(run: Run, pools: Pools) -> LayerTally:
    arrays = tuple(_array(slot, pools) for slot in run.slots if slot.slab.row_bytes)
    positions = max(
        (pools.tokens if slot.pool == FULL else pools.window for slot in run.slots if slot.pool in (FULL, WINDOW)), default=0
    )
    return LayerTally(run.first, run.count, run.layer, kind_of(run.layer), arrays, positions)


def _too_long(longest: int, pools: Pools, setup: Setup) -> str:
    bounded = setup.given.available is not None or setup.given.most_tokens is not None
    if not bounded or round_up(longest, setup.page) <= pools.tokens:
        return ""
    given = setup.given
    there = "" if given.available is None else format_bytes(given.available)
    if given.most_tokens is not None and pools.tokens == given.most_tokens // setup.page * setup.page:
        there = f"-o max-total-tokens={given.most_tokens}"
    state = f" beside {pools.states:,} state{'' if pools.states == 1 else 's'}" if pools.states else ""
    return f"one sequence of {longest:,} tokens does not fit: the pool of {there} holds {pools.tokens:,} tokens{state}"


def _report(stage: Stage, setup: Setup, pools: Pools) -> dict[str, object]:
    cells = stage.cells
    cell = cells.token + setup.swa_ratio * cells.window if cells.full and cells.window else cells.token or cells.window
    found: dict[str, object] = {"max_total_num_tokens": pools.tokens, "max_running_requests": pools.requests, "cell_bytes": cell}
    if windowed([stage]) or pools.window:
        found["swa_max_total_num_tokens"] = pools.window
    if setup.stateful:
        found |= {"max_mamba_cache_size": pools.states, "mamba_bytes_per_slot": state_bytes([stage])}
        found["mamba_slots_per_request"] = setup.slots_per_request
    return {**found, "page_size": pools.page, "log_line": _log_line(stage, pools)}


def _log_line(stage: Stage, pools: Pools) -> str:
    sides = dict.fromkeys(("keys", "values", "latent"), 0)
    for run in stage.runs:
        for slot in run.slots:
            if slot.slab.label in sides:
                sides[slot.slab.label] += run.count * slot.slab.row_bytes * _rows(slot, pools)
    size = {"latent": "KV size"} if sides["latent"] else {"keys": "K size", "values": "V size"}
    said = ", ".join(f"{word}: {sides[side] / 2**30:.2f} GB" for side, word in size.items())
    return f"KV Cache is allocated. #tokens: {pools.tokens}, {said}"


class Sglang(Engine):
    """SGLang's token pools."""

    name = "sglang"
    source = "sglang 0.5.23: srt/model_executor/pool_configurator.py, srt/mem_cache/{kv_cache_configurator,memory_pool}.py"
    evidence = "measured: equal to the engine's own configurator and pools"
    releases = RELEASES
    own_options = OPTIONS
    memory = Memory(
        share="0.88",
        share_origin="mem-fraction-static of an unknown card; SGLang works it out for a known one",
        named_by=("available-bytes",),
        capped_by=("max-total-tokens",),
    )
    excluded = (
        "weights",
        "activations and workspace",
        "CUDA graphs",
        "the request-to-token table",
        "the radix cache's bookkeeping",
    )

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Classes of its registry, and those of the library that it can take instead."""
        del rules
        return serving_of(model)

    def plan_under(self, rules: Rules, model: Model, request: Request) -> SglangPlan:
        """The pools of a request."""
        return SglangPlan(self, model, request, rules)


ENGINE = Sglang()
