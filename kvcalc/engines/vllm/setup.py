"""Everything that vLLM decides before it looks at the memory: the layers as it reads them, caches, blocks, groups.

Rules: vLLM 0.32.0, ``vllm/config`` (``model.py``, ``vllm.py``, ``parallel.py``), ``vllm/distributed/utils.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcalc.core.layers import CrossAttention, FullAttention, Layer, Recurrent
from kvcalc.core.model import Model, Request
from kvcalc.engines.releases import Rules
from kvcalc.engines.requests import counted_layers
from kvcalc.engines.vllm.backends import SM100
from kvcalc.engines.vllm.blocks import Blocks, settle, spec_of
from kvcalc.engines.vllm.cache import Cache, make_context
from kvcalc.engines.vllm.groups import Layout
from kvcalc.engines.vllm.layers import caches_of
from kvcalc.engines.vllm.lengths import fitted_from, longest_length
from kvcalc.engines.vllm.models import (
    ATTENTION_FREE,
    EVERY_STATE,
    FP8_BY_DEFAULT_ON_SM100,
    NEVER_FLOAT16,
    reading_of,
)
from kvcalc.engines.vllm.options import Settings, default_batched, settings_of
from kvcalc.engines.vllm.plan import Plan, make_plan
from kvcalc.engines.vllm.readings import layers_as_read
from kvcalc.engines.vllm.specs import ALIGN, ALL, NONE, SLIDING, SLIDING_MLA, Load, Spec
from kvcalc.engines.vllm.states import least_state
from kvcalc.errors import EngineError

DEFAULT_CHUNK = 2048
NO_HYBRID_PREFIXES = "0.27."  # whose default is off once more


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything that is decided before the memory is looked at."""

    model: Model
    settings: Settings
    layers: tuple[Layer, ...]
    caches: tuple[Cache, ...]
    specs: tuple[Spec, ...]
    blocks: Blocks
    plan: Plan
    load: Load
    cache_dtype: str


def set_up(model: Model, request: Request, rules: Rules) -> Setup:
    """Read the model as vLLM does, and cut its cache. Raises UsageError, EngineError."""
    settings = settings_of(model, request, rules)
    own = len(model.layers)
    model = replace(model, layers=counted_layers(model, request))
    reading = reading_of(model)
    layers = layers_as_read(model, reading)
    cache_dtype = _resolved_dtype(model, settings)
    _check_own_dtype(model, settings, request)
    context = make_context(model, settings, layers, cache_dtype)
    _check_ranks(model, settings, layers)
    _check_grouped_context(settings, layers)
    caches = tuple(caches_of(context, layers))
    _check_context_parallel(settings, caches)
    blocks = settle(
        caches, settings, least_state=least_state(context), mode=_state_mode(model, settings, layers), chunk=_chunk(model)
    )
    specs = tuple(spec_of(cache, blocks) for cache in caches)
    outermost = reading.block_outermost or any(cache.role == "compressor" for cache in caches)
    layout = Layout(rules, blocks.size, outermost, settings.hybrid)
    plan = make_plan(specs, _stages(model, settings, caches, own), settings.pp, layout)
    load = load_of(model, settings, request, layers, settings.max_model_len)
    return Setup(model, settings, layers, caches, specs, blocks, plan, load, cache_dtype)


def resized(setup: Setup, request: Request) -> Setup:
    """The same setup for other sequences: only the lengths are decided anew. Raises UsageError, EngineError."""
    settings = settings_of(setup.model, request, setup.settings.rules)
    load = load_of(setup.model, settings, request, setup.layers, settings.max_model_len)
    return replace(setup, settings=settings, load=load)


def _resolved_dtype(model: Model, settings: Settings) -> str:
    dtype = settings.cache_dtype
    if dtype == "auto" and settings.platform == SM100 and model.model_type in FP8_BY_DEFAULT_ON_SM100:
        return "fp8_e4m3"
    return dtype


def served_dtype(model: Model) -> str:
    """The type that a model runs in: its own, but for float32, and float16 where the class is unstable in it."""
    own = model.dtype or "float32"
    if own == "float32" or (own == "float16" and model.model_type in NEVER_FLOAT16):
        return "bfloat16"
    return own


def _check_own_dtype(model: Model, settings: Settings, request: Request) -> None:
    """A 16-bit cache that is asked for by name must be the model's own. ``--dtype`` names the model's type itself."""
    asked, own = request.options.get("kv-cache-dtype"), served_dtype(model)
    if "own_16_bit" in settings.rules and asked in ("float16", "bfloat16") and asked != own:
        raise EngineError(
            f"vLLM {settings.rules.said} caches a {own} model in {own} or a quantised type, not in {asked}",
            "vllm/config/vllm.py: _reject_mismatched_float_kv_cache",
            f"take -o kv-cache-dtype=auto, or {own}",
        )


def _check_ranks(model: Model, settings: Settings, layers: tuple[Layer, ...]) -> None:
    heads = model.fields.int_or_none("num_attention_heads", 0) or max(
        (getattr(part, "num_heads", 0) for layer in layers for part in layer), default=0
    )
    if heads % settings.tp:
        raise EngineError(
            f"{heads} attention heads can't be split over {settings.tp} tensor-parallel ranks",
            "vllm/config/model.py: verify_with_parallel_config",
            f"take a number of ranks that divides {heads}",
        )
    if settings.tp > 1 and reading_of(model).one_rank:
        raise EngineError(
            f"vLLM has no tensor parallelism for {model.model_type}",
            f"vllm/model_executor/models/{model.model_type}.py",
            "take --tp 1",
        )
    if settings.pp > 1 and not reading_of(model).pipeline:
        raise EngineError(
            f"vLLM has no pipeline parallelism for {model.model_type}", "vllm/config/model.py", "take --tp, or one stage"
        )
    if settings.pp > len(layers):
        raise EngineError(f"{len(layers)} layers can't be split over {settings.pp} pipeline stages", fix="take fewer stages")


def _check_context_parallel(settings: Settings, caches: Sequence[Cache]) -> None:
    dcp, tp = settings.dcp, settings.tp
    if dcp == 1:
        return
    if tp % dcp:
        raise EngineError(
            f"{dcp} context-parallel ranks don't divide {tp} tensor-parallel ones",
            "vllm/config/parallel.py",
            "they share those ranks",
        )
    if any(cache.kind in (SLIDING, SLIDING_MLA) for cache in caches):
        raise EngineError("vLLM has no decode context parallelism for sliding windows", "vllm/v1/kv_cache_interface.py")


def _check_grouped_context(settings: Settings, layers: tuple[Layer, ...]) -> None:
    heads = [part for layer in layers for part in layer if isinstance(part, FullAttention)]
    if settings.dcp == 1 or not heads or not heads[0].num_kv_heads:
        return
    total, queries = heads[0].num_kv_heads, heads[0].num_heads
    if settings.tp <= total or settings.dcp > settings.tp // total or (queries // total) % settings.dcp:
        raise EngineError(
            f"decode context parallelism splits the copies of a KV head: {settings.tp} ranks hold {total} KV heads "
            f"in {max(settings.tp // total, 1)} copies, {settings.dcp} are asked for",
            "vllm/config/model.py: verify_with_parallel_config",
            "raise --tp, or take -o decode-context-parallel-size=1",
        )


def pipeline_stages(num_layers: int, stages: int) -> list[int]:
    """Layers a stage: even, and what is left over goes to the stages before the last (``get_pp_indices``)."""
    sizes = [num_layers // stages] * stages
    for back in range(2, num_layers % stages + 2):
        sizes[-back] += 1
    return sizes


def _stages(model: Model, settings: Settings, caches: Sequence[Cache], own: int) -> list[int]:
    """The stage of each cache; draft layers, which follow the model's ``own``, are on the last."""
    if settings.pp == 1:
        return [0] * len(caches)
    depth = model.fields.int_or_none("num_layers") or own
    stage_of_layer = [stage for stage, size in enumerate(pipeline_stages(depth, settings.pp)) for _ in range(size)]
    return [stage_of_layer[min(cache.layer * depth // own, depth - 1)] for cache in caches]


def _attention_free(model: Model) -> bool:
    """By its class: a hybrid whose file has no attending layer is a hybrid still. A GGUF file's type is llama.cpp's."""
    if model.format == "gguf":
        return all(isinstance(part, Recurrent) for layer in model.layers for part in layer)
    return model.model_type in ATTENTION_FREE


def _has(layers: Sequence[Layer], kind: type) -> bool:
    return any(isinstance(part, kind) for layer in layers for part in layer)


def _state_mode(model: Model, settings: Settings, layers: Sequence[Layer]) -> str:
    """mamba_cache_mode: what states are kept for prefix caching, where the release caches prefixes of such a model."""
    rules, stateful = settings.rules, _has(layers, Recurrent)
    caching = settings.prefix_caching
    if caching is None:
        by_default = not stateful or ("hybrid_prefixes" in rules and not rules.name.startswith(NO_HYBRID_PREFIXES))
        caching = by_default and not (_has(layers, CrossAttention) or _attention_free(model))
    if not caching or (stateful and "cached_states" not in rules):
        return NONE
    if "aligned_states" in rules:
        return ALIGN
    drafted = settings.speculative and "drafts_align" in rules and "drafted_states" not in rules
    if stateful and model.model_type in EVERY_STATE and not drafted:
        return ALL
    return ALIGN if "state_modes" in rules or not stateful else NONE


def _lookahead(settings: Settings) -> int:
    """Tokens that windows keep for several draft layers, each of which reads one token further ahead."""
    chained = min(settings.draft_layers, settings.speculative) > 1 and "draft_lookahead" in settings.rules
    return settings.speculative - 1 if chained else 0


def _drafts_count(rules: Rules, mode: str) -> bool:
    """Whether a state's blocks are counted for draft tokens too."""
    return "drafted_states" in rules if mode == ALL else "state_modes" in rules


def _chunk(model: Model) -> int:
    """Tokens of a Mamba kernel's chunk, at whose ends it can give its state out."""
    return model.fields.int_or_none("mamba_chunk_size") or model.fields.int_or_none("chunk_size") or DEFAULT_CHUNK


def load_of(model: Model, settings: Settings, request: Request, layers: tuple[Layer, ...], max_len: int) -> Load:
    """What the blocks of a length depend on. Raises EngineError for a length that the model wasn't made for."""
    longest = longest_length(model)
    if max_len == -1:
        max_len = fitted_from(model)
    elif longest and max_len > longest and not settings.allow_long:
        raise EngineError(
            f"{max_len:,} tokens are more than the {longest:,} that {model.name} was made for",
            "vllm/config/model.py: _get_and_verify_max_len",
            "take a shorter length, or -o allow-long-max-model-len",
        )
    batched = settings.batched_tokens or default_batched(settings, request, max_len, chunked=not _has(layers, CrossAttention))
    mode = _state_mode(model, settings, layers)
    return Load(
        max_model_len=max_len,
        max_num_batched_tokens=batched,
        concurrent_batches=settings.concurrent_batches if "steps_in_flight" in settings.rules else 1,
        dcp_size=settings.dcp,
        states=mode,
        speculative=settings.speculative if _drafts_count(settings.rules, mode) else 0,
        lookahead=_lookahead(settings),
        encoder_tokens=0 if "encoder_budget" in settings.rules else model.fields.int_or_none("max_source_positions") or 0,
    )
