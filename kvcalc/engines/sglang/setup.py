"""What SGLang's arguments come to for one model: types, backends, page, strategy of the states, requests.

Sources of 0.5.23: ``srt/configs/model_config.py``, ``srt/arg_groups``, ``srt/mem_cache/kv_cache_dtype.py``.
"""

from __future__ import annotations

from dataclasses import replace

from kvcalc.core.counting import Types
from kvcalc.core.layers import ChunkedAttention, CompressedAttention, FullAttention, Recurrent, SlidingAttention
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import FLOAT32, Dtype, find_dtype
from kvcalc.engines.sglang.backends import Backends, Shape, backends_of
from kvcalc.engines.sglang.classes import (
    DEEPSEEK_V4,
    EXTRA_BUFFER,
    INCLUSIVE_WINDOW,
    LATENT,
    MAMBA_RATIOS,
    MINIMAX_M3,
    RADIX_STATES,
    SPARSE,
    SWA_RATIOS,
    TWO_POOLS,
    class_names,
)
from kvcalc.engines.sglang.options import (
    DRAFTED_REQUESTS,
    MAMBA_RATIO,
    SM100,
    SM120,
    SWA_RATIO,
    Given,
    read_options,
)
from kvcalc.errors import EngineError, UsageError
from kvcalc.values import value

FP8 = "fp8_e4m3"
STATE_TRACK, STATE_CHUNK = 256, 64  # mamba_track_interval, the chunk of linear attention's kernels
CONTEXT = 2048  # of a file that names no length
V4_REQUESTS = 256  # max_running_requests where DeepSeek V4's is unsaid
_NATIVE = ("bfloat16", "float16")


@value
class Draft:
    """Speculative decoding: how many tokens are verified at once, and the draft's layers."""

    algorithm: str
    tokens: int
    layers: int


@value
class Setup:
    """One model under the arguments of one request."""

    given: Given
    shape: Shape
    types: Types
    cache: str  # the cache's type; nvfp4, mxfp8 and fp4_mx_block16 under their own names
    origin: str
    backends: Backends
    stateful: bool
    two_pools: bool
    strategy: str
    tp: int  # ranks that split the heads
    requests: int | None  # max_running_requests of one group of ranks
    context: int
    window: int | None  # of the window pool's layers, as the class counts it
    swa_ratio: float
    mamba_ratio: float
    draft: Draft | None

    @property
    def page(self) -> int:
        """Tokens a page."""
        return self.backends.page

    @property
    def compressed(self) -> bool:
        """DeepSeek V4: pages of compressed rows."""
        return self.shape.one_of(DEEPSEEK_V4)

    @property
    def slots_per_request(self) -> int:
        """State slots that a running request takes."""
        if not self.given.radix:
            return 1
        tracking = {"extra_buffer": 2 if self.given.overlap else 1, "extra_buffer_lazy": 1}
        return 3 + tracking.get(self.strategy, 0)

    @property
    def state_type(self) -> Dtype | None:
        """Temporal states': named, else None for the file's."""
        return None if self.given.state_dtype is None else find_dtype(self.given.state_dtype)


def set_up(model: Model, request: Request) -> Setup:
    """Everything that neither the memory nor the lengths decide. Raises EngineError, UsageError."""
    given = read_options(request)
    if request.options.get("enable-page-major-kv-layout"):
        raise EngineError(
            "SGLang takes --enable-page-major-kv-layout only with its unified memory, which is not modelled",
            "sglang/srt/arg_groups/kv_cache_hook.py",
            "leave it out",
        )
    names = class_names(model)
    recurrent = any(isinstance(part, Recurrent) for layer in model.layers for part in layer)
    shape = _shape(model, names)
    own = _own_type(model, shape)
    cache, origin = _cache_type(model, request, given, shape, own)
    backends = backends_of(shape, given, cache)
    stateful = recurrent and is_native(names)
    strategy = _strategy(shape, given, backends) if stateful else "auto"
    overlapping = _overlap(given, strategy)
    dtype = find_dtype("bfloat16" if cache not in (*_NATIVE, "float32", FP8, "fp8_e5m2") else cache)
    return Setup(
        given=overlapping,
        shape=shape,
        types=Types(dtype, dtype, own),
        cache=cache,
        origin=origin,
        backends=backends,
        stateful=stateful,
        two_pools=_two_pools(model, names, given),
        strategy=strategy,
        tp=_attention_ranks(request.tp_size, given),
        requests=_requests(given, shape),
        context=_context(model, given),
        window=_window(model, names),
        swa_ratio=_first(given.swa_ratio, SWA_RATIOS, names, SWA_RATIO),
        mamba_ratio=_first(given.mamba_ratio, MAMBA_RATIOS, names, MAMBA_RATIO),
        draft=_draft(model, request, given),
    )


def is_native(names: tuple[str, ...]) -> bool:
    """Whether SGLang has a class of its own for the first that a file names."""
    from kvcalc.engines.sglang.registry import CLASSES

    return bool(names) and names[0] in CLASSES


def _shape(model: Model, names: tuple[str, ...]) -> Shape:
    sparse = bool(names) and names[0] in SPARSE and model.fields.raw("index_topk") is not None
    parts = [part for layer in model.layers for part in layer]
    widths = {(part.head_dim, part.v_head_dim) for part in parts if isinstance(part, FullAttention | SlidingAttention)}
    pooled = model.fields.int("index_kpool", 1) if sparse else 1
    return Shape(names, any(name in LATENT for name in names), sparse, any(k != v for k, v in widths), pooled)


def _own_type(model: Model, shape: Shape) -> Dtype:
    """A float32 file is served in float16, Gemma's in bfloat16 (_get_and_verify_dtype); mxfp4 experts in bfloat16."""
    said = model.dtype or "float32"
    if shape.names == ("GptOssForCausalLM",) and quantization_of(model) == "mxfp4":
        return find_dtype("bfloat16")
    if find_dtype(said) != FLOAT32:
        return find_dtype(said)
    outer = str(model.metadata.get("model_type") or model.model_type)
    return find_dtype("bfloat16" if outer.startswith("gemma") else "float16")


def quantization_of(model: Model) -> str:
    """The file's quant_method, or nothing."""
    found = model.metadata.get("quantization_config")
    return str(found.get("quant_method", "")) if isinstance(found, dict) else ""


def _cache_type(model: Model, request: Request, given: Given, shape: Shape, own: Dtype) -> tuple[str, str]:
    """The cache's type, and who says so. Raises EngineError, UsageError."""
    asked, origin = _asked(request, given)
    if asked == "auto":
        asked, origin = _default_type(model, given, shape, own)
    if shape.sparse and asked not in ("bfloat16", FP8):
        raise EngineError(
            f"SGLang's sparse attention takes a bfloat16 or fp8_e4m3 cache, not {asked}", "sglang/srt/arg_groups/overrides.py"
        )
    if shape.one_of(DEEPSEEK_V4) and asked not in ("bfloat16", FP8):
        raise EngineError(
            f"SGLang keeps DeepSeek V4's cache in fp8_e4m3 or bfloat16, not {asked}", "sglang/srt/arg_groups/overrides.py"
        )
    return asked, origin


def _asked(request: Request, given: Given) -> tuple[str, str]:
    """What --dtype or -o kv-cache-dtype names; they may not disagree."""
    k, v = request.k_dtype, request.v_dtype
    if k is not None and v is not None and k != v:
        raise EngineError(f"SGLang has no cache of {k} keys and {v} values", "--kv-cache-dtype", "name one type for both")
    flag = k or v
    if flag is None:
        return given.cache, "-o kv-cache-dtype" if given.cache != "auto" else ""
    if given.cache != "auto" and given.cache != flag.name:
        raise UsageError(f"the cache's type is given twice: {flag} and -o kv-cache-dtype={given.cache}", fix="give one of them")
    if flag.name not in (*_NATIVE, "float32", FP8, "fp8_e5m2", "nvfp4"):
        raise EngineError(
            f"SGLang has no cache of type {flag}", "--kv-cache-dtype", "one of bf16, fp16, fp8_e4m3, fp8_e5m2, nvfp4"
        )
    return flag.name, request.origins.get("k_dtype", "request")


def _default_type(model: Model, given: Given, shape: Shape, own: Dtype) -> tuple[str, str]:
    blackwell = given.platform in (SM100, SM120)
    if shape.sparse:
        sinks = model.fields.raw("learnable_sink") is True
        return (FP8 if blackwell and not sinks else "bfloat16"), f"SGLang's default for sparse attention on {given.platform}"
    if shape.one_of(DEEPSEEK_V4):
        return FP8, "SGLang's default for DeepSeek V4"
    if quantization_of(model) == "minimax_m3_nvfp4" and blackwell and shape.one_of(MINIMAX_M3):
        return FP8, "SGLang's default for this checkpoint"
    if model.cache_dtype == FP8 and _modelopt(model):
        return FP8, model.cache_dtype_origin
    origin = "the model's own type" if model.dtype == own.name else f"a {model.dtype or 'float32'} file is served in {own.name}"
    return own.name, origin


def _modelopt(model: Model) -> bool:
    """Whose cache scheme ``auto`` follows: kv_cache_quant_algo is read of ModelOpt's files alone."""
    return quantization_of(model).startswith("modelopt")


def _strategy(shape: Shape, given: Given, backends: Backends) -> str:
    """How states are kept (_mamba_radix_cache_resolution). Raises EngineError for what the engine refuses."""
    name = shape.names[0]
    if not given.radix or name not in RADIX_STATES:
        return given.strategy
    strategy = given.strategy
    if strategy == "auto":
        doubled = name in EXTRA_BUFFER and (given.wants_overlap or (given.page or 1) > 1)
        strategy = "extra_buffer" if doubled else "no_buffer"
    if strategy == "no_buffer":
        _check_no_buffer(given, backends)
    elif name not in EXTRA_BUFFER:
        raise EngineError(f"SGLang keeps no extra buffer of {name}'s states", "sglang/srt/arg_groups/mamba_hook.py")
    elif max(STATE_CHUNK, backends.page) % min(STATE_CHUNK, backends.page) or STATE_TRACK % backends.page:
        raise EngineError(f"SGLang takes no pages of {backends.page} tokens beside states", "sglang/srt/arg_groups/mamba_hook.py")
    return strategy


def _check_no_buffer(given: Given, backends: Backends) -> None:
    if backends.page > 1 and (given.page or 1) > 1:
        raise EngineError("SGLang keeps states without a buffer only with pages of 1", "sglang/srt/arg_groups/mamba_hook.py")
    if backends.attention == "trtllm_mha":
        raise EngineError(
            "SGLang's trtllm_mha backend takes no states without a buffer",
            "sglang/srt/arg_groups/mamba_hook.py",
            "-o attention-backend=flashinfer, or -o disable-radix-cache",
        )


def _overlap(given: Given, strategy: str) -> Given:
    """Without a buffer, no step is scheduled while one runs."""
    return replace(given, overlap=False) if strategy == "no_buffer" and given.radix else given


def _two_pools(model: Model, names: tuple[str, ...], given: Given) -> bool:
    if given.one_pool or not is_native(names):
        return False
    first = next((name for name in names if name in TWO_POOLS), "")
    if first == "LagunaForCausalLM":
        return bool(model.fields.raw("sliding_window"))
    if first == "BeamForCausalLM":
        return any(isinstance(part, SlidingAttention) for layer in model.layers for part in layer)
    return bool(first)


def _attention_ranks(tp: int, given: Given) -> int:
    if tp % given.attn_dp:
        raise EngineError(f"{tp} ranks can't be split into {given.attn_dp} groups", "-o attn-dp-size", "take a divisor of --tp")
    return tp // given.attn_dp


def _requests(given: Given, shape: Shape) -> int | None:
    asked = given.requests
    if asked is None and shape.one_of(DEEPSEEK_V4):
        asked = V4_REQUESTS
    if asked is None and given.algorithm is not None:
        asked = DRAFTED_REQUESTS
    return None if asked is None else max(1, asked // given.attn_dp)


def _context(model: Model, given: Given) -> int:
    own = model.max_tokens or CONTEXT
    if given.context is not None and model.max_tokens is not None and given.context > own:
        raise EngineError(
            f"SGLang refuses a context length of {given.context:,} for a model made for {own:,}",
            "sglang/srt/configs/model_config.py",
            "its environment variable SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN lets it",
        )
    return given.context or own


def _first(asked: float | None, rows: dict[str, float], names: tuple[str, ...], default: float) -> float:
    if asked is not None:
        return asked
    return next((rows[name] for name in names if name in rows), default)


def _draft(model: Model, request: Request, given: Given) -> Draft | None:
    if given.algorithm is None:
        if request.draft:
            raise EngineError(
                "SGLang drafts nothing unless an algorithm is named", "--draft", "add -o speculative-algorithm=EAGLE"
            )
        return None
    tokens = given.drafted or (given.steps + 1 if given.steps else None)
    if tokens is None:
        raise UsageError(
            "how many tokens are drafted is not said",
            fix="add -o speculative-num-steps=3 -o speculative-eagle-topk=1 -o speculative-num-draft-tokens=4",
        )
    if given.algorithm == "STANDALONE":
        raise EngineError("SGLang's pools beside a draft model of its own are not modelled", "-o speculative-algorithm")
    return Draft(given.algorithm, tokens, _draft_layers(model, given.algorithm))


def _draft_layers(model: Model, algorithm: str) -> int:
    """Layers for which a token's bytes are raised: what the file counts, an EAGLE-3 head's one; n-grams have none."""
    if algorithm in ("NGRAM", "EAGLE3"):
        return int(algorithm == "EAGLE3")
    return model.fields.int("num_nextn_predict_layers", 0, minimum=0)


def _window(model: Model, names: tuple[str, ...]) -> int | None:
    """Tokens that a windowed layer reads back; some classes leave the token itself out."""
    for layer in model.layers:
        for part in layer:
            if isinstance(part, SlidingAttention):
                return part.window - 1 if any(name in INCLUSIVE_WINDOW for name in names) else part.window
            if isinstance(part, ChunkedAttention):
                return part.chunk
            if isinstance(part, CompressedAttention):
                return part.window
    return None
