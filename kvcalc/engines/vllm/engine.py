"""vLLM: blocks from one pool, groups of layers under block tables, what a rank holds and what it refuses.

The parts: ``options``; ``models`` and ``readings`` (how it reads a file); ``layers``, ``latents`` and ``states`` (its caches,
``cache`` what one is); ``backends`` and ``blocks`` (block sizes); ``specs`` (pages); ``groups``; ``plan`` and ``setup`` (all
that is decided before the memory counts).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from kvcalc.core.gpus import find_gpu
from kvcalc.core.layers import Layer, kind_of
from kvcalc.core.model import Array, LayerTally, Model, OptionValue, Request, Tally
from kvcalc.engines.base import Counted, Engine, Figure, Memory, Serving
from kvcalc.engines.ranks import copy_request
from kvcalc.engines.releases import Rules
from kvcalc.engines.vllm.backends import PLATFORMS
from kvcalc.engines.vllm.cache import Cache
from kvcalc.engines.vllm.groups import Group, blocks_per_request
from kvcalc.engines.vllm.models import reading_of
from kvcalc.engines.vllm.options import MEMORY_OPTIONS, OPTIONS, at_once, card_of, default_share
from kvcalc.engines.vllm.plan import Stage, Verdict, judge
from kvcalc.engines.vllm.releases import RELEASES
from kvcalc.engines.vllm.serving import serving_of
from kvcalc.engines.vllm.setup import Setup, load_of, resized, served_dtype, set_up
from kvcalc.engines.vllm.specs import CHUNKED, STATE, Load, Spec
from kvcalc.errors import UsageError
from kvcalc.units import ceil_div, format_bytes

_OPT_IN = (
    "this release turns its hybrid cache manager off for chunked layers, unless"
    " VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE is set: -o disable-hybrid-kv-cache-manager counts that"
)
_STRINGENT = "vLLM holds back one block, and wants one request of the full length beside it"


class VllmPlan(Counted):
    """One rank's blocks: those of the request's sequences, or the whole pool where the memory is named.

    Everything that the memory and the length don't decide (layers, caches, block sizes, groups) is set up once.
    """

    def __init__(self, engine: Engine, model: Model, request: Request, rules: Rules) -> None:
        super().__init__(engine, model, request, rules)
        self.setup = set_up(model, request, rules)

    def allocate(self) -> Tally:
        """Batch × blocks a request × bytes a block; with memory, blocks × bytes a block. Raises UsageError, EngineError."""
        setup, request = self.setup, self.request
        verdict = _verdict(setup)
        load = verdict.load if verdict else setup.load
        stage = max(setup.plan.stages, key=lambda stage: stage.bytes_per_block)
        sequences = _running(setup, request, load, verdict)
        return Tally(
            layers=_layer_tallies(setup, stage, sequences, load),
            shared=_shared(stage, sequences, load, verdict),
            request=_facts(setup, request, load),
            report=_report(setup, stage, load, verdict),
            warnings=_warnings(setup, request, load, verdict),
            notes=_notes(setup),
            fits=verdict is None or verdict.fits,
            refusal="" if verdict is None or verdict.fits else _refusal(verdict),
        )

    def resized(self, request: Request) -> VllmPlan:
        """The same setup for other sequences."""
        plan = copy(self)
        vars(plan).pop("tally", None)
        plan.request, plan.setup = request, resized(self.setup, request)
        return plan

    def counter(self) -> Figure:
        """(batch_size, tokens) → bytes."""
        request, setup = self.request, self.setup
        pooled = setup.settings.available is not None or setup.settings.override is not None
        if pooled or request.lengths or "max-model-len" in request.options:
            return lambda batch_size, tokens: self.at(batch_size, tokens).tally.total_bytes
        bytes_per_block, copies = setup.plan.bytes_per_block, setup.settings.dp

        def count(batch_size: int, tokens: int) -> int:
            load = load_of(self.model, setup.settings, request, setup.layers, tokens)
            return ceil_div(batch_size, copies) * blocks_per_request(setup.plan.groups, load) * bytes_per_block

        return count

    @property
    def step(self) -> int:
        """The smallest block of any group: lengths between two blocks take the same."""
        groups = self.setup.plan.groups
        return min((group.spec.block_size for group in groups if group.spec.kind != STATE), default=1)

    @property
    def held_back(self) -> int:
        """The null block, which vLLM wants beside one request of the full length."""
        return max((stage.held_back for stage in self.setup.plan.stages), default=0)

    @property
    def ranks(self) -> int | None:
        """Tensor- and pipeline-parallel ranks."""
        return self.setup.settings.tp * self.setup.settings.pp

    @property
    def at_once(self) -> tuple[int, str] | None:
        """max-num-seqs, on each copy."""
        return at_once(self.request, self.rules)


def _verdict(setup: Setup) -> Verdict | None:
    settings = setup.settings
    if (settings.available is None and settings.override is None) or not setup.plan.groups:
        return None
    auto = settings.max_model_len == -1
    return judge(setup.plan, setup.load, settings.available, auto_fit=auto, override=settings.override)


def _running(setup: Setup, request: Request, load: Load, verdict: Verdict | None) -> tuple[tuple[int, int], ...]:
    """(tokens, how many such sequences) that hold blocks: in a pool, no more than it has blocks for."""
    tokens = setup.settings.tokens or load.max_model_len
    served = copy_request(request, setup.settings.dp)
    wanted = served.sequences if request.lengths else ((tokens, served.batch_size),)
    if verdict is None:
        return wanted
    left, running = verdict.num_blocks, []
    for length, count in wanted:
        each = blocks_per_request(setup.plan.groups, load.at(min(length, load.max_model_len)))
        held = min(count, left // each) if each else count
        left -= held * each
        running.append((min(length, load.max_model_len), held))
    return tuple(running)


def _held(group: Group, sequences: tuple[tuple[int, int], ...], load: Load) -> int:
    """Blocks of one group that the sequences hold."""
    return sum(count * group.blocks(load.at(tokens)) for tokens, count in sequences)


def _layer_tallies(setup: Setup, stage: Stage, sequences: tuple[tuple[int, int], ...], load: Load) -> tuple[LayerTally, ...]:
    arrays: dict[int, list[Array]] = {}
    positions: dict[int, int] = {}
    own_type = served_dtype(setup.model)
    longest = max((tokens for tokens, count in sequences if count), default=0)
    for group in stage.groups:
        held, most = _held(group, sequences, load), group.blocks(load.at(longest)) if longest else 0
        for member, spec in zip(group.members, group.specs, strict=True):
            cache = setup.caches[member]
            arrays.setdefault(cache.layer, []).extend(_arrays(cache, spec, held, own_type))
            if cache.kind != STATE:  # a window's blocks hold less than the sequence
                positions[cache.layer] = max(positions.get(cache.layer, 0), min(longest, most * spec.block_size))
    rows = [(index, setup.layers[index], tuple(arrays.get(index, ())), positions.get(index, 0)) for index in _owned(setup, stage)]
    return _runs(rows)


def _owned(setup: Setup, stage: Stage) -> list[int]:
    """The layers of a stage: all of them where there is one."""
    if len(setup.plan.stages) == 1:
        return list(range(len(setup.layers)))
    return sorted({setup.caches[member].layer for group in stage.groups for member in group.members})


def _arrays(cache: Cache, spec: Spec, blocks: int, own_type: str) -> list[Array]:
    note = f"{blocks:,} blocks of {spec.page_bytes:,} B"
    found = _filled(cache, spec, blocks, own_type if cache.dtype == "auto" else cache.dtype, note)
    padding = blocks * spec.page_bytes - sum(array.bytes for array in found)
    if padding:
        found.append(Array("other", "page padding", blocks, padding // blocks, note="up to the common page"))
    return found


def _filled(cache: Cache, spec: Spec, blocks: int, dtype: str, note: str) -> list[Array]:
    """A layer's pages without padding: keys and values apart, unless they are packed together."""
    if cache.kind == STATE:
        return [Array(cache.component, cache.label, blocks, spec.state_bytes, dtype=dtype, note=note)]
    rows, width = blocks * (spec.block_size // spec.tokens_per_row), cache.k_width + cache.v_width
    element = spec.token_bytes // (cache.heads * width) if width else 0
    if not cache.v_width or element * cache.heads * width != spec.token_bytes:
        return [Array(cache.component, cache.label, rows, spec.token_bytes, cache.heads, width, dtype, note)]
    sides = (("keys", cache.k_width), ("values", cache.v_width))
    return [Array("kv", side, rows, cache.heads * wide * element, cache.heads, wide, dtype, note) for side, wide in sides]


def _runs(rows: list[tuple[int, Layer, tuple[Array, ...], int]]) -> tuple[LayerTally, ...]:
    found: list[LayerTally] = []
    for index, layer, arrays, positions in rows:
        last = found[-1] if found else None
        if last and last.layer == layer and last.arrays == arrays and last.first + last.count == index:
            found[-1] = LayerTally(last.first, last.count + 1, layer, last.kind, arrays, last.positions)
        else:
            found.append(LayerTally(index, 1, layer, kind_of(layer), arrays, positions))
    return tuple(found)


def _shared(stage: Stage, sequences: tuple[tuple[int, int], ...], load: Load, verdict: Verdict | None) -> tuple[Array, ...]:
    held = [(group, _held(group, sequences, load)) for group in stage.groups]
    gap = sum(blocks * (stage.bytes_per_block - group.page_bytes(strided=False)) for group, blocks in held)
    found = [Array("other", "group padding", 1, gap, note="groups narrower than a block")] if gap else []
    if verdict is not None:
        free = verdict.num_blocks - sum(blocks for _, blocks in held)
        found.append(Array("other", "free blocks", free, stage.bytes_per_block, note="the null block among them"))
    return tuple(found)


def _facts(setup: Setup, request: Request, load: Load) -> Mapping[str, tuple[object, str]]:
    settings = setup.settings
    dtype, origin = _dtype_fact(setup)
    return {
        "batch_size": (len(request.lengths) or request.batch_size, request.origins.get("batch_size", "default")),
        "tokens": (settings.tokens or load.max_model_len, settings.origins["tokens"][1]),
        "k_dtype": (dtype, origin),
        "v_dtype": (dtype, origin),
        "max_model_len": (load.max_model_len, "fitted to the memory" if settings.max_model_len == -1 else "request"),
        "max_num_batched_tokens": (load.max_num_batched_tokens, "request" if settings.batched_tokens else "default"),
        "platform": (settings.platform, "request" if "platform" in request.options else "default"),
        "tensor_parallel_size": (settings.tp, "request" if settings.tp > 1 else "default"),
        "pipeline_parallel_size": (settings.pp, "request" if settings.pp > 1 else "default"),
        **({"data_parallel_size": (settings.dp, "request")} if settings.dp > 1 else {}),
    }


def _dtype_fact(setup: Setup) -> tuple[str, str]:
    dtype = setup.cache_dtype
    if dtype != "auto":
        return dtype, "request" if dtype == setup.settings.cache_dtype else "vLLM's default for this model here"
    own, served = setup.model.dtype or "float32", served_dtype(setup.model)
    return served, "auto: the model's own type" if own == served else f"auto: a {own} model is served in {served}"


def _report(setup: Setup, stage: Stage, load: Load, verdict: Verdict | None) -> dict[str, object]:
    settings, plan = setup.settings, setup.plan
    figures: dict[str, object] = {
        "num_blocks": verdict.num_blocks if verdict else None,
        "kv_tokens": verdict.kv_tokens if verdict else None,
        "max_concurrency": verdict.max_concurrency if verdict else None,
        "bytes_per_block": stage.bytes_per_block,
        "blocks_per_request": blocks_per_request(plan.groups, load),
        "block_size": setup.blocks.size,
        "max_model_len": load.max_model_len,
        "kv_cache_dtype": setup.cache_dtype,
        "backends": sorted({cache.backend.name for cache in setup.caches if cache.backend is not None}),
        "groups": _group_rows(plan.groups, load),
        "ranks": [_rank_row(index, part, settings.tp) for index, part in enumerate(plan.stages)],
    }
    if not plan.groups:
        figures |= {"num_blocks": 1, "blocks_per_request": 0}
    if verdict:
        figures |= _verdict_rows(verdict, settings.platform)
    return figures


def _verdict_rows(verdict: Verdict, platform: str) -> dict[str, object]:
    device = "CPU" if platform == "cpu" else "GPU"
    return {
        "needed_bytes": verdict.needed_bytes,
        "usable_bytes": verdict.usable_bytes,
        "longest_model_len": verdict.estimated_max_len,
        "log_line": (
            f"{device} KV cache size: {verdict.kv_tokens:,} tokens, Maximum concurrency for "
            f"{verdict.load.max_model_len:,} tokens per request: {verdict.max_concurrency:.2f}x"
        ),
    }


def _group_rows(groups: tuple[Group, ...], load: Load) -> list[dict[str, object]]:
    return [
        {
            "kind": group.spec.kind,
            "layers": len(group.members),
            "block_size": group.spec.block_size,
            "page_bytes": group.spec.page_bytes,
            "blocks_per_request": group.blocks(load),
        }
        for group in groups
    ]


def _rank_row(index: int, stage: Stage, tp: int) -> dict[str, object]:
    return {
        "pipeline_rank": index,
        "tensor_parallel_ranks": tp,
        "caches": sum(len(group.members) for group in stage.groups),
        "bytes_per_block": stage.bytes_per_block,
    }


def _refusal(verdict: Verdict) -> str:
    need = f"one request of {verdict.load.max_model_len:,} tokens needs {format_bytes(verdict.needed_bytes)}"
    there = f"there are {format_bytes(verdict.usable_bytes)} beside the held-back block"
    short = f"{verdict.needed_bytes - verdict.usable_bytes:,} bytes are missing"
    if verdict.estimated_max_len:
        return f"{need}, {there}: {short}; the longest length that would be accepted is {verdict.estimated_max_len:,}"
    return f"{need}, {there}: {short}; not even one token would be accepted"


def _warnings(setup: Setup, request: Request, load: Load, verdict: Verdict | None) -> tuple[str, ...]:
    if verdict is None or not verdict.fits or request.lengths:
        return ()
    tokens = setup.settings.tokens or load.max_model_len
    batch = ceil_div(request.batch_size, setup.settings.dp)
    at_once = verdict.num_blocks // max(blocks_per_request(setup.plan.groups, load.at(tokens)), 1)
    if batch <= at_once:
        return ()
    return (f"{at_once:,} of the {batch:,} sequences run at once, the others wait",)


def _notes(setup: Setup) -> tuple[str, ...]:
    settings, found = setup.settings, []
    if not setup.caches:
        found.append("vLLM runs this model without a cache")
    opt_in = "chunked_opt_in" in settings.rules and "chunked_by_default" not in settings.rules
    if opt_in and any(group.spec.kind == CHUNKED for group in setup.plan.groups):
        found.append(_OPT_IN)
    if setup.cache_dtype != "auto" and reading_of(setup.model).own_dtype and setup.caches[0].dtype == "auto":
        found.append(f"vLLM's class passes no cache type on: the layers stay in {served_dtype(setup.model)}")
    if settings.draft_layers:
        first = len(setup.layers) - settings.draft_layers
        found.append(f"layers from {first} on are draft layers, each like the model's last attention layer")
    if settings.tp * settings.pp > 1:
        found.append(f"one rank of {settings.tp * settings.pp}" + (", the heaviest stage" if settings.pp > 1 else ""))
    if settings.dp > 1:
        found.append(f"one of {settings.dp} data-parallel copies, each with its share of the sequences")
    if settings.available is not None and "null_block_reserved" in settings.rules:
        found.append(_STRINGENT)
    return tuple(found)


class Vllm(Engine):
    """vLLM's pool of blocks."""

    name = "vllm"
    source = "vLLM 0.8.5 to 0.33.0: vllm/v1/kv_cache_interface.py, vllm/v1/core/kv_cache_utils.py, vllm/platforms/interface.py"
    evidence = "measured: equal to the planner of each release"
    releases = RELEASES
    own_options = OPTIONS
    memory = Memory(
        share="0.92",
        share_origin="vLLM's default gpu-memory-utilization",
        named_by=(*MEMORY_OPTIONS, "num-gpu-blocks-override"),
        levers=(("enable-prefix-caching", False), ("max-num-batched-tokens", 2048)),
    )
    excluded = ("weights", "activations and workspace", "CUDA graphs", "encoder and multimodal caches")

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Classes of its registry; what is read of a file beyond them is refused with the plan."""
        return serving_of(model, rules)

    def plan_under(self, rules: Rules, model: Model, request: Request) -> VllmPlan:
        """The blocks of a request."""
        return VllmPlan(self, model, request, rules)

    def share(self, options: Mapping[str, OptionValue]) -> tuple[str, str]:
        """gpu-memory-utilization's default in the release that is asked for."""
        asked = options.get("release")
        return default_share(self.releases.find(None if asked is None else str(asked))), self.memory.share_origin

    def on_card(self, memory: int, name: str) -> Mapping[str, OptionValue]:
        """The class of card, by which default batch sizes go, and its compute capability where the rules know it."""
        found: dict[str, OptionValue] = {"card": card_of(memory, name)}
        try:
            capability = find_gpu(name).architecture
        except UsageError:  # a card of no table, as memory alone
            return found
        return found | ({"platform": capability} if capability in PLATFORMS else {})


ENGINE = Vllm()
