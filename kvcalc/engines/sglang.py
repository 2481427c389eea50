"""SGLang 0.5.23: token pools sized from the memory that is left, one slot a token, a page more than is handed out.

- A cell is one token over all layers of the full pool: key/value heads of a rank · (key + value width) · bytes; a latent's
  row; 132 bytes (uint8) for index keys of 128.
- ``tokens = available // cell``, down to whole pages; buffers hold ``tokens + page`` slots.
- Model classes with sliding layers of their own have a second pool of ``swa-full-tokens-ratio`` times the tokens; the
  others keep every position in every layer.
- Layers with states get slots from ``ratio / (1 + ratio)`` of the memory, one slot more for padding; the rest is the pool's.

Without ``-o available-bytes`` the pools are counted that hold the request, as ``--max-total-tokens`` would make them.
Rules: sglang/srt ``model_executor/pool_configurator.py``, ``mem_cache/kv_cache_configurator.py``, ``mem_cache/memory_pool.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import floor

from kvcalc.core.counting import ONE, Slab, Types, recurrent_slabs, vectors
from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    Part,
    Recurrent,
    SlidingAttention,
    kind_of,
    runs,
)
from kvcalc.core.model import LayerTally, Model, Request, Tally
from kvcalc.dtypes import FLOAT32, Dtype, find_dtype
from kvcalc.engines.base import SERVED, Engine, Figure, Memory, Plan, Serving
from kvcalc.engines.options import Option
from kvcalc.engines.ranks import copy_request, share_of, sharing
from kvcalc.engines.releases import Releases, Rules
from kvcalc.engines.requests import refuse_draft, resolve_request
from kvcalc.errors import EngineError, UsageError
from kvcalc.units import ceil_div, format_bytes, round_up

PAGE_SIZE, SPARSE_PAGE_SIZE = 1, 64
SWA_RATIO, MAMBA_RATIO = "0.8", "0.9"
INDEX_SCALE_GROUP = 128
FP8_SPARSE_ROW = 512 + 512 // 128 * 4 + 64 * 2  # fp8, float32 scales, bfloat16 rope
CACHE_DTYPES = ("auto", "bfloat16", "float16", "fp8_e4m3", "fp8_e5m2")
FULL, WINDOW, STATE = "full", "window", "state"

# is_hybrid_swa_model of configs/model_config.py: classes that have a pool of their own for sliding (or chunked) layers.
TWO_POOLS = frozenset(
    {
        "beam",
        "gemma4",
        "gemma4_text",
        "gemma4_unified",
        "gpt_oss",
        "granite_swa",
        "granitemoe_swa",
        "laguna",
        "llama4",
        "llama4_text",
        "mellum",
        "mimo_v2",
        "mimo_v2_flash",
        "muse_glimmer",
        "step3p5",
        "step3p7",
    }
)


@dataclass(frozen=True, slots=True)
class Pools:
    """Slots that are handed out: tokens of the full pool, tokens of the window pool, requests with a state."""

    tokens: int
    window_tokens: int
    states: int
    page: int

    def rows(self, pool: str) -> int:
        """Slots that the buffers have: a page more, a state more."""
        return {FULL: self.tokens + self.page, WINDOW: self.window_tokens + self.page, STATE: self.states + 1}[pool]


@dataclass(frozen=True, slots=True)
class Cells:
    """Bytes of one slot over all layers of a rank."""

    full: int
    window: int
    state: int
    ratio: Fraction

    @property
    def token(self) -> Fraction:
        """One token of the full pool and what goes with it in the window pool; of the window pool where it is alone."""
        return Fraction(self.window) if not self.full else self.full + self.ratio * self.window


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one request."""

    available: int | None
    page: int
    most_tokens: int | None
    states: int | None
    swa_ratio: Fraction
    mamba_ratio: Fraction

    @property
    def bounded(self) -> bool:
        """Whether the pool may hold less than is asked for."""
        return self.available is not None or self.most_tokens is not None


def allocate(model: Model, request: Request) -> Tally:
    """The pools of the heaviest rank. Raises EngineError, UsageError."""
    refuse_draft(request, "SGLang")
    asked = copy_request(request, request.dp_size)
    filled, types, resolved = resolve_request(model, asked)
    types = _cache_types(types, request)
    settings = _settings(model, request)
    found = [(first, _stage(model, layers, types, settings, filled)) for first, layers in stages(model, request)]
    first, heaviest = max(found, key=lambda pair: (pair[1][1].total_bytes, -pair[0]))
    pools, tally = heaviest
    tokens = min(stage_pools.tokens for _, (stage_pools, _) in found)
    longest = max(length for length, _ in filled.sequences)
    fits = not settings.bounded or round_up(longest, settings.page) <= tokens
    return replace(
        tally,
        layers=tuple(
            LayerTally(run.first + first, run.count, run.layer, run.kind, run.arrays, run.positions) for run in tally.layers
        ),
        request={**resolved, **_facts(request, settings)},
        report={**tally.report, "max_total_num_tokens": tokens, **_stage_rows(found, request)},
        warnings=_warnings(filled, tokens, settings) if fits else (),
        notes=(f"one rank of {sharing(request) * request.dp_size}, the heaviest",)
        if sharing(request) * request.dp_size > 1
        else (),
        fits=fits,
        refusal="" if fits else _refusal(longest, tokens, settings, pools),
    )


def stages(model: Model, request: Request) -> list[tuple[int, tuple[Layer, ...]]]:
    """Each pipeline stage's share of one rank: even, the last stages one layer more. Raises EngineError."""
    layers = tuple(tuple(share_of(part, request.tp_size) for part in layer) for layer in model.layers)
    count, depth = request.pp_size, len(layers)
    if count > depth:
        raise EngineError(f"{depth} layers can't be split over {count} pipeline stages", fix="take fewer stages")
    even, more = divmod(depth, count)
    sizes = [even + (stage >= count - more) for stage in range(count)]
    firsts = [sum(sizes[:stage]) for stage in range(count)]
    return [(first, layers[first : first + size]) for first, size in zip(firsts, sizes, strict=True)]


def _stage(model: Model, layers: tuple[Layer, ...], types: Types, settings: Settings, request: Request) -> tuple[Pools, Tally]:
    slots = [(first, count, layer, _layer_slots(model, layer, types)) for first, count, layer in runs(layers)]
    cells = _cells([(count, held) for _, count, _, held in slots], settings)
    pools = _pools(cells, settings, request)
    found = tuple(_tally(first, count, layer, held, pools) for first, count, layer, held in slots)
    return pools, Tally(found, report=_report(cells, pools, slots))


Slot = tuple[str, Slab]  # the pool, and what one of its slots holds


def _layer_slots(model: Model, layer: Layer, types: Types) -> list[Slot]:
    kind = PartRules(model.model_type in TWO_POOLS, any(isinstance(part, Indexer) for part in layer), _state_type(model))
    return [slot for part in layer for slot in part_slots(part, kind, types)]


@dataclass(frozen=True, slots=True)
class PartRules:
    """What a part's slots depend on besides itself."""

    two_pools: bool
    sparse: bool  # an indexer stands beside it
    state: Dtype


def part_slots(part: Part, rules: PartRules, types: Types) -> list[Slot]:
    """What one slot holds of a part, and in which pool. Raises EngineError."""
    match part:
        case FullAttention(heads, k_width, v_width):
            return _headed(FULL, heads, k_width, v_width, types)
        case SlidingAttention() | ChunkedAttention():
            pool = WINDOW if rules.two_pools else FULL
            return _headed(pool, part.num_kv_heads, part.head_dim, part.v_head_dim, types)
        case LatentAttention():
            return [(FULL, _latent(part, types, sparse=rules.sparse))]
        case Indexer(width):
            row = width + width // INDEX_SCALE_GROUP * 4
            return [(FULL, Slab("index", "index keys", ONE, row, 1, width, "fp8", "fp8 values and float32 scales"))]
        case Recurrent():
            return [(STATE, slab) for slab in recurrent_slabs(part, types, state_dtype=rules.state)]
        case CrossAttention() | CompressedAttention():
            raise EngineError(
                f"SGLang's {part.kind.replace('_', ' ')} is not modelled", "sglang/srt/mem_cache", "--engine exact counts it"
            )
        case _:
            return []


def _headed(pool: str, heads: int, k_width: int, v_width: int, types: Types) -> list[Slot]:
    sides = (("keys", k_width), ("values", v_width))
    return [(pool, vectors("kv", side, ONE, heads, width, types.k)) for side, width in sides if width]


def _latent(part: LatentAttention, types: Types, *, sparse: bool) -> Slab:
    if sparse and types.k.name == "fp8_e4m3" and part.row_width == 576:
        return Slab("kv", "latent", ONE, FP8_SPARSE_ROW, 1, part.row_width, "fp8_e4m3", "512 fp8, 4 scales, 64 bfloat16 of rope")
    return vectors("kv", "latent", ONE, 1, part.row_width, types.k)


def _state_type(model: Model) -> Dtype:
    """Temporal states: float32, unless the file names another (``mamba_ssm_dtype``)."""
    said = model.fields.raw("mamba_ssm_dtype")
    return find_dtype(said) if isinstance(said, str) else FLOAT32


def _cells(slots: list[tuple[int, list[Slot]]], settings: Settings) -> Cells:
    sizes = {FULL: 0, WINDOW: 0, STATE: 0}
    for count, held in slots:
        for pool, slab in held:
            sizes[pool] += count * slab.row_bytes
    return Cells(sizes[FULL], sizes[WINDOW], sizes[STATE], settings.swa_ratio)


def _pools(cells: Cells, settings: Settings, request: Request) -> Pools:
    """The pools that the memory makes, or those that the request needs."""
    page, sequences = settings.page, sum(count for _, count in request.sequences)
    wanted = sum(count * round_up(length, page) for length, count in request.sequences)
    if settings.available is None:
        slots = (settings.states or sequences) if cells.state else 0
        return _of_tokens(min(wanted, settings.most_tokens or wanted) // page * page, cells, page, slots)
    states, rest = _states(cells, settings)
    tokens = floor(max(rest, 0) / cells.token) if cells.token else wanted
    tokens = min(tokens, settings.most_tokens or tokens)
    return _of_tokens(tokens // page * page, cells, page, states)


def _of_tokens(tokens: int, cells: Cells, page: int, states: int) -> Pools:
    if not cells.window:
        return Pools(tokens, 0, states, page)
    return Pools(tokens, floor(tokens * cells.ratio) // page * page if cells.full else tokens, states, page)


def _states(cells: Cells, settings: Settings) -> tuple[int, int]:
    """(state slots, bytes that they leave): ``ratio / (1 + ratio)`` of the memory, a padding slot within."""
    available = settings.available or 0
    if not cells.state:
        return 0, available
    slots = settings.states
    if slots is None:
        budget = available * settings.mamba_ratio / (1 + settings.mamba_ratio)
        slots = max(floor((budget - cells.state) / cells.state), 0)
    return slots, available - (slots + 1) * cells.state


def _tally(first: int, count: int, layer: Layer, held: list[Slot], pools: Pools) -> LayerTally:
    arrays = tuple(
        replace(slab, note=slab.note or _pool_note(pool)).array(((0, pools.rows(pool)),)) for pool, slab in held if slab.row_bytes
    )
    positions = max((pools.tokens if pool == FULL else pools.window_tokens for pool, _ in held if pool != STATE), default=0)
    return LayerTally(first, count, layer, kind_of(layer), arrays, positions)


def _pool_note(pool: str) -> str:
    return {FULL: "", WINDOW: "of the window pool", STATE: "a slot a request, and one more"}[pool]


def _report(cells: Cells, pools: Pools, slots: list[tuple[int, int, Layer, list[Slot]]]) -> dict[str, object]:
    sides = dict.fromkeys(("keys", "values", "latent"), 0)
    for _, count, _, held in slots:
        for pool, slab in held:
            if slab.label in sides:
                sides[slab.label] += count * slab.row_bytes * pools.rows(pool)
    found: dict[str, object] = {"cell_bytes": float(cells.token) if cells.token.denominator > 1 else int(cells.token)}
    if cells.window:
        found["swa_max_total_num_tokens"] = pools.window_tokens
    if cells.state:
        found |= {"max_mamba_cache_size": pools.states, "mamba_bytes_per_request": cells.state}
    size = {"latent": "KV size"} if sides["latent"] else {"keys": "K size", "values": "V size"}
    said = ", ".join(f"{word}: {sides[side] / 2**30:.2f} GB" for side, word in size.items())
    return {**found, "page_size": pools.page, "log_line": f"KV Cache is allocated. #tokens: {pools.tokens}, {said}"}


def _stage_rows(found: list[tuple[int, tuple[Pools, Tally]]], request: Request) -> dict[str, object]:
    if sharing(request) * request.dp_size == 1:
        return {}
    rows = [
        {"pipeline_stage": stage, "first_layer": first, "tokens": pools.tokens, "bytes_per_rank": tally.total_bytes}
        for stage, (first, (pools, tally)) in enumerate(found)
    ]
    return {"ranks": rows}


def _facts(request: Request, settings: Settings) -> dict[str, tuple[object, str]]:
    sizes = {"tp_size": request.tp_size, "pp_size": request.pp_size, "dp_size": request.dp_size}
    found: dict[str, tuple[object, str]] = {
        name: (size, request.origins.get(name, "request")) for name, size in sizes.items() if size > 1
    }
    return {**found, "page_size": (settings.page, "-o page-size" if "page-size" in request.options else "default")}


def _warnings(request: Request, tokens: int, settings: Settings) -> tuple[str, ...]:
    wanted = sum(count * round_up(length, settings.page) for length, count in request.sequences)
    if not settings.bounded or wanted <= tokens:
        return ()
    return (f"the pool holds {tokens:,} of the {wanted:,} tokens: some sequences wait",)


def _refusal(longest: int, tokens: int, settings: Settings, pools: Pools) -> str:
    there = "" if settings.available is None else format_bytes(settings.available)
    if settings.most_tokens is not None and tokens == settings.most_tokens // settings.page * settings.page:
        there = f"-o max-total-tokens={settings.most_tokens}"
    state = f" beside {pools.states:,} state{'' if pools.states == 1 else 's'}" if pools.states else ""
    return f"one sequence of {longest:,} tokens does not fit: the pool of {there} holds {tokens:,} tokens{state}"


def _settings(model: Model, request: Request) -> Settings:
    given = request.options
    sparse = any(isinstance(part, Indexer) for layer in model.layers for part in layer)
    available, tokens, states = (given.get(name) for name in ("available-bytes", "max-total-tokens", "max-mamba-cache-size"))
    return Settings(
        available=None if available is None else int(available),
        page=int(given.get("page-size", SPARSE_PAGE_SIZE if sparse else PAGE_SIZE)),
        most_tokens=None if tokens is None else int(tokens),
        states=None if states is None else int(states),
        swa_ratio=_ratio(str(given.get("swa-full-tokens-ratio", SWA_RATIO)), "swa-full-tokens-ratio"),
        mamba_ratio=_ratio(str(given.get("mamba-full-memory-ratio", MAMBA_RATIO)), "mamba-full-memory-ratio"),
    )


def _ratio(text: str, name: str) -> Fraction:
    try:
        found = Fraction(text) if len(text) < 20 and "e" not in text.lower() else Fraction(0)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if not 0 < found <= 100:
        raise UsageError(f"-o {name}={text[:40]} is no ratio", fix="write it like 0.8")
    return found


def _cache_types(types: Types, request: Request) -> Types:
    asked = request.options.get("kv-cache-dtype", "auto")
    if asked != "auto":
        dtype = find_dtype(str(asked))
        return replace(types, k=dtype, v=dtype)
    if types.k != types.v or types.k.name not in (*CACHE_DTYPES, "float32"):
        raise EngineError(
            f"SGLang has no cache of {types.k} keys and {types.v} values", "--kv-cache-dtype", f"one of {', '.join(CACHE_DTYPES)}"
        )
    return types


def _needed(cells: Cells, settings: Settings, sequences: int, tokens: int) -> int:
    pools = _of_tokens(tokens, cells, settings.page, settings.states or sequences)
    kv = pools.rows(FULL) * cells.full + (pools.rows(WINDOW) * cells.window if cells.window else 0)
    if not cells.state or settings.states is not None:
        return kv + (pools.rows(STATE) * cells.state if cells.state else 0)
    ratio = settings.mamba_ratio
    by_states = -floor(-pools.rows(STATE) * cells.state * (1 + ratio) / ratio)
    return max(by_states, -floor(-kv * (1 + ratio)))


class SglangPlan(Plan):
    """The pools of the heaviest rank."""

    def allocate(self) -> Tally:
        """The pools that the memory makes, or those that the request needs. Raises EngineError."""
        return allocate(self.model, self.request)

    @property
    def step(self) -> int:
        """A page."""
        return _settings(self.model, self.request).page

    @cached_property
    def need(self) -> Figure:
        """Bytes that must be there for a batch: its pools; with states, the memory of which the shares hold both."""
        model, request = self.model, self.request
        _, types, _ = resolve_request(model, copy_request(request, request.dp_size))
        types, settings = _cache_types(types, request), _settings(model, request)
        every = [
            _cells([(count, _layer_slots(model, layer, types)) for _, count, layer in runs(layers)], settings)
            for _, layers in stages(model, request)
        ]

        def bytes_for(batch_size: int, tokens: int) -> int:
            sequences = ceil_div(batch_size, request.dp_size)
            wanted = sequences * round_up(tokens, settings.page)
            return max(_needed(cells, settings, sequences, wanted) for cells in every)

        return bytes_for

    @property
    def ranks(self) -> int | None:
        """Tensor- and pipeline-parallel ranks."""
        return sharing(self.request)

    @property
    def over_cap(self) -> str:
        """Why ``max-total-tokens`` holds no such batch at once; nothing where it does."""
        settings, served = _settings(self.model, self.request), copy_request(self.request, self.request.dp_size)
        wanted = sum(count * round_up(length, settings.page) for length, count in served.sequences)
        most = settings.most_tokens
        if most is None or wanted <= most // settings.page * settings.page:
            return ""
        return f"-o max-total-tokens={most} holds less than {wanted:,} tokens"


class Sglang(Engine):
    """SGLang's token pools."""

    name = "sglang"
    source = "sglang 0.5.23: srt/model_executor/pool_configurator.py, srt/mem_cache/{kv_cache_configurator,memory_pool}.py"
    evidence = "read in the source; figures of published logs agree"
    releases = Releases("SGLang", ("0.5.23",))
    own_options = (
        Option("available-bytes", "bytes", "memory for the pools on each rank", "none: count what the request needs"),
        Option("kv-cache-dtype", "choice", "the cache's type", "auto: --dtype, else the model's", CACHE_DTYPES),
        Option("page-size", "count", "tokens a page", "1, 64 for sparse attention", minimum=1),
        Option("max-total-tokens", "count", "no more tokens than these, whatever the memory", minimum=1),
        Option("swa-full-tokens-ratio", "text", "tokens of the window pool for one of the full pool", SWA_RATIO),
        Option("mamba-full-memory-ratio", "text", "memory of states for that of the rest", MAMBA_RATIO),
        Option("max-mamba-cache-size", "count", "state slots, whatever the memory", minimum=1),
    )
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
        """Any type whose layers are known."""
        del model, rules
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> SglangPlan:
        """The pools of a request."""
        return SglangPlan(self, model, request, rules)


ENGINE = Sglang()
