"""Everything that vLLM decides before it looks at the memory: the layers as it reads them, caches, blocks, groups.

Rules: vLLM 0.32.0, ``vllm/config`` (``model.py``, ``vllm.py``, ``parallel.py``), ``vllm/distributed/utils.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcalc.core.layers import CrossAttention, FullAttention, Indexer, Layer, Recurrent
from kvcalc.core.model import Model, Request
from kvcalc.engines.base import SERVED, Serving
from kvcalc.engines.releases import Rules
from kvcalc.engines.vllm.backends import SM100
from kvcalc.engines.vllm.blocks import Blocks, settle, spec_of
from kvcalc.engines.vllm.cache import Cache, make_context
from kvcalc.engines.vllm.layers import caches_of
from kvcalc.engines.vllm.lengths import fitted_from, longest_length
from kvcalc.engines.vllm.models import (
    ATTENTION_FREE,
    FP8_BY_DEFAULT_ON_SM100,
    INCOMPATIBLE,
    LAST_SERVED,
    NEVER_FLOAT16,
    NGRAMS,
    STATEFUL,
    UNMODELLED,
    class_names,
    reading_of,
)
from kvcalc.engines.vllm.options import Settings, default_batched, settings_of
from kvcalc.engines.vllm.plan import Plan, make_plan
from kvcalc.engines.vllm.readings import layers_as_read
from kvcalc.engines.vllm.specs import SLIDING, SLIDING_MLA, Load, Spec
from kvcalc.engines.vllm.states import least_state
from kvcalc.errors import EngineError


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
    reading = reading_of(model)
    layers = layers_as_read(model, reading)
    cache_dtype = _resolved_dtype(model, settings)
    _check_own_dtype(model, settings, request)
    context = make_context(model, settings, layers, cache_dtype)
    _check_ranks(model, settings, layers)
    _check_grouped_context(settings, layers)
    caches = tuple(caches_of(context, layers))
    _check_context_parallel(settings, caches)
    blocks = settle(caches, settings, least_state=least_state(context), aligned=_caches_prefixes(model, settings, layers))
    specs = tuple(spec_of(cache, blocks) for cache in caches)
    outermost = reading.block_outermost or any(cache.role == "compressor" for cache in caches)
    plan = make_plan(specs, _stages(model, settings, caches), settings.pp, block_outermost=outermost, hybrid=settings.hybrid)
    load = load_of(model, settings, request, layers, settings.max_model_len)
    return Setup(model, settings, layers, caches, specs, blocks, plan, load, cache_dtype)


def resized(setup: Setup, request: Request) -> Setup:
    """The same setup for other sequences: only the lengths are decided anew. Raises UsageError, EngineError."""
    settings = settings_of(setup.model, request, setup.settings.rules)
    load = load_of(setup.model, settings, request, setup.layers, settings.max_model_len)
    return replace(setup, settings=settings, load=load)


def serving_of(model: Model, rules: Rules) -> Serving:
    """Whether vLLM has a class for the model. Read, not guessed: types with rules of their own are named one by one."""
    names = class_names(model)
    for name in names:
        if name in LAST_SERVED:
            return _unserved(rules, f"does not serve {name}; the last release that did is {LAST_SERVED[name]}")
        if name in INCOMPATIBLE:
            return _unserved(rules, f"has no class {name}, and the library's can't run under it")
    if model.model_type in NGRAMS and (reason := _unmodelled_ngrams(model)):
        return Serving(f"{model.model_type} is not modelled for vLLM: {reason}")
    for name in (*names, model.model_type):
        if name in UNMODELLED:
            return Serving(f"{name} is not modelled for vLLM: {UNMODELLED[name]}")
    parts = [part for layer in model.layers for part in layer]
    if any(isinstance(part, CrossAttention) for part in parts) and not reading_of(model).crosses:
        return _unserved(rules, f"serves no {model.model_type}: of the encoder-decoder models only Whisper and its kin")
    if any(isinstance(part, Recurrent) for part in parts) and model.format != "gguf" and model.model_type not in STATEFUL:
        return _unserved(rules, f"serves no {model.model_type}: it has no class for its recurrent layers")
    return SERVED


def _unmodelled_ngrams(model: Model) -> str:
    if any(isinstance(part, Indexer) for layer in model.layers for part in layer):
        return "its sparse attention keeps index keys and a ring of its own (vllm/models/qwen4_exp/common/qsa_cache.py)"
    if model.fields.raw("ple_layer_ids"):
        return "its n-gram layers keep several kinds of states (vllm/models/qwen4_exp/nvidia/ple_layer.py)"
    return ""


def _unserved(rules: Rules, what: str) -> Serving:
    where, fix = "vllm/model_executor/models/registry.py", "--engine exact or transformers count it"
    return Serving(f"vLLM {rules.said} {what}", where=where, fix=fix)


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


def _stages(model: Model, settings: Settings, caches: Sequence[Cache]) -> list[int]:
    if settings.pp == 1:
        return [0] * len(caches)
    depth = model.fields.int_or_none("num_layers") or len(model.layers)
    stage_of_layer = [stage for stage, size in enumerate(pipeline_stages(depth, settings.pp)) for _ in range(size)]
    return [stage_of_layer[cache.layer * depth // len(model.layers)] for cache in caches]


def _attention_free(model: Model) -> bool:
    """By its class: a hybrid whose file has no attending layer is a hybrid still. A GGUF file's type is llama.cpp's."""
    if model.format == "gguf":
        return all(isinstance(part, Recurrent) for layer in model.layers for part in layer)
    return model.model_type in ATTENTION_FREE


def _crosses(layers: Sequence[Layer]) -> bool:
    return any(isinstance(part, CrossAttention) for layer in layers for part in layer)


def _caches_prefixes(model: Model, settings: Settings, layers: Sequence[Layer]) -> bool:
    if settings.prefix_caching is not None:
        return settings.prefix_caching
    return not (_crosses(layers) or _attention_free(model))


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
    caching = _caches_prefixes(model, settings, layers)
    batched = settings.batched_tokens or default_batched(settings, request, max_len, chunked=not _crosses(layers))
    return Load(max_len, batched, settings.concurrent_batches, settings.dcp, caching, settings.speculative)
