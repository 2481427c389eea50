"""vLLM's options under its own names, and what a request makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.engines.options import Option
from kvcalc.engines.releases import Rules
from kvcalc.engines.requests import DEFAULT_TOKENS
from kvcalc.engines.vllm.backends import CPU, FP8, PER_TOKEN_HEAD, PLATFORMS, SM90, SM100, TURBOQUANT
from kvcalc.engines.vllm.lengths import longest_length
from kvcalc.errors import EngineError, UsageError

CACHE_DTYPES = (
    "auto",
    "float16",
    "bfloat16",
    "fp8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp8_ds_mla",
    "nvfp4_ds_mla",
    *sorted(TURBOQUANT),
    *sorted(PER_TOKEN_HEAD),
    "nvfp4",
    "nvfp4_4over6",
)
# The releases that brought them; float16 and bfloat16 are older as --dtype's.
DTYPE_SINCE = {
    "fp8_ds_mla": "0.11.1",
    **dict.fromkeys(sorted(TURBOQUANT), "0.20.0"),
    **dict.fromkeys(("int8_per_token_head", "fp8_per_token_head", "nvfp4"), "0.20.0"),
    "int4_per_token_head": "0.25.0",
    "nvfp4_4over6": "0.28.0",
    "nvfp4_ds_mla": "0.30.0",
}
_STATE_DTYPES = ("auto", "float32", "float16", "bfloat16")
# Three ways to name the memory, and what a card's own loses.
MEMORY_OPTIONS = ("available-bytes", "kv-cache-memory-bytes", "device-memory", "gpu-memory-utilization", "non-kv-bytes")
_CONTEXTS = ("server", "offline")
# What is scheduled in one step unless said, for a server and offline, and how many sequences (engine/arg_utils.py:
# get_batch_defaults).
_CARDS = {"small": ((2048, 8192), 256), "large": ((8192, 16384), 1024), "huge": ((16384, 16384), 1024)}
_CPU_DEFAULTS = ((2048, 4096), 128)
_GIB = 2**30

OPTIONS: tuple[Option, ...] = (
    Option("block-size", "int", "tokens a block; hybrids raise it", "what the attention backends take, 16 first", minimum=1),
    Option("kv-cache-dtype", "choice", "the cache's type", "auto: the file's own, else the model's", CACHE_DTYPES),
    Option("max-model-len", "count", "the longest sequence; -1 fits the longest there is memory for", "--tokens", minimum=-1),
    Option("max-num-batched-tokens", "count", "tokens scheduled in one step", "by card and usage-context", minimum=1),
    Option("max-num-seqs", "count", "sequences at once; bounds the default of the above for short models", "by card", minimum=1),
    Option("enforce-eager", "bool", "take no CUDA graphs: kvcalc fit subtracts no estimate of them", "off"),
    Option("enable-expert-parallel", "bool", "experts whole on their ranks; the cache is the same", "off"),
    Option("usage-context", "choice", "whose default batch size counts", "server", _CONTEXTS),
    Option(
        "card", "choice", "small: below 70 GiB, or an A100; huge: from 160 GiB", "by device-memory, else large", tuple(_CARDS)
    ),
    Option("available-bytes", "bytes", "memory for the cache on each rank", "none: count what the request needs"),
    Option("kv-cache-memory-bytes", "bytes", "the same, by vLLM's own option"),
    Option("device-memory", "bytes", "a card's whole memory, of which gpu-memory-utilization is taken"),
    Option("gpu-memory-utilization", "text", "the share of device-memory that vLLM may take", "0.92; 0.9 before 0.20"),
    Option("non-kv-bytes", "bytes", "weights, activations and graphs within that share", "0"),
    Option("num-gpu-blocks-override", "int", "this many blocks, whatever the memory", minimum=1),
    Option("tensor-parallel-size", "int", "ranks that split the heads", "--tp", minimum=1),
    Option("pipeline-parallel-size", "int", "ranks that split the layers", "--pp", minimum=1),
    Option("data-parallel-size", "int", "copies, each with a cache of its own", "--dp", minimum=1),
    Option(
        "decode-context-parallel-size", "int", "ranks that split the positions, within the tensor-parallel ones", "1", minimum=1
    ),
    Option("enable-prefix-caching", "bool", "keep blocks for reuse", "on, but for attention-free and encoder-decoder models"),
    Option("async-scheduling", "bool", "schedule the next step while one runs", "on, off on the CPU"),
    Option("disable-hybrid-kv-cache-manager", "bool", "allocate windows like full attention", "off"),
    Option("mamba-cache-dtype", "choice", "the type of convolution states, and of the others unless said", "auto", _STATE_DTYPES),
    Option("mamba-ssm-cache-dtype", "choice", "the type of temporal states", "auto: by model class", _STATE_DTYPES),
    Option(
        "num-speculative-tokens",
        "int",
        "draft tokens a step: each state keeps one more column and block for each",
        "0; with --draft, the model's draft layers",
    ),
    Option("platform", "choice", "the device's compute capability", f"{SM90}, or the card's", tuple(PLATFORMS)),
    Option("flashinfer", "bool", "FlashInfer is installed", "on where the release requires it; on SM 10.0 it always counts"),
    Option("allow-long-max-model-len", "bool", "VLLM_ALLOW_LONG_MAX_MODEL_LEN: beyond what the model was made for", "off"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one request, with vLLM's defaults, and the rules of the release."""

    rules: Rules
    block_size: int | None
    cache_dtype: str
    max_model_len: int  # -1: fit it
    tokens: int
    batched_tokens: int | None
    available: int | None
    override: int | None
    tp: int
    pp: int
    dp: int
    dcp: int
    prefix_caching: bool | None
    async_scheduling: bool
    hybrid: bool
    conv_dtype: str
    state_dtype: str
    platform: str
    allow_long: bool
    speculative: int  # draft tokens a step
    draft_layers: int
    flashinfer: bool
    origins: Mapping[str, tuple[object, str]]

    @property
    def concurrent_batches(self) -> int:
        """Steps in flight: one a stage, and one more under asynchronous scheduling."""
        return self.pp + (1 if self.async_scheduling else 0)


def settings_of(model: Model, request: Request, rules: Rules) -> Settings:
    """What the request asks of vLLM. Raises UsageError, EngineError."""
    given = request.options
    _check_memory(given)
    platform = platform_of(given)
    tokens, max_len, origins = _lengths(model, request)
    settings = Settings(
        rules=rules,
        block_size=_number(given, "block-size"),
        cache_dtype=_cache_dtype(model, request, rules),
        max_model_len=max_len,
        tokens=tokens,
        batched_tokens=_number(given, "max-num-batched-tokens"),
        available=_available(given, rules),
        override=_number(given, "num-gpu-blocks-override"),
        tp=_ranks(request.tp_size, given, "tensor-parallel-size", "--tp"),
        pp=_ranks(request.pp_size, given, "pipeline-parallel-size", "--pp"),
        dp=_ranks(request.dp_size, given, "data-parallel-size", "--dp"),
        dcp=_number(given, "decode-context-parallel-size") or 1,
        prefix_caching=_flag(given, "enable-prefix-caching"),
        async_scheduling=platform != CPU and given.get("async-scheduling", True) is True,
        hybrid=given.get("disable-hybrid-kv-cache-manager", False) is not True,
        conv_dtype=_text(given, "mamba-cache-dtype", "auto"),
        state_dtype=_text(given, "mamba-ssm-cache-dtype", "auto"),
        platform=platform,
        allow_long=given.get("allow-long-max-model-len", False) is True,
        speculative=_drafted(model, request),
        draft_layers=len(model.draft_layers) if request.draft else 0,
        flashinfer=given.get("flashinfer", "flashinfer_required" in rules) is True,
        origins=origins,
    )
    if settings.max_model_len == -1 and settings.available is None and settings.override is None:
        raise UsageError("max-model-len=-1 fits the length to the memory, and no memory is named", fix="add -o available-bytes=…")
    return settings


def _drafted(model: Model, request: Request) -> int:
    """Draft tokens a step: as many as there are draft layers, where those are asked for alone."""
    asked = _number(request.options, "num-speculative-tokens")
    if asked is not None:
        return asked
    return len(model.draft_layers) if request.draft else 0


def platform_of(given: Mapping[str, OptionValue]) -> str:
    """The kind of device whose rules are taken."""
    return PLATFORMS[_text(given, "platform", SM90)]


def default_batched(settings: Settings, request: Request, max_model_len: int, *, chunked: bool) -> int:
    """max_num_batched_tokens where it is unsaid: by card and context, at least the length where prefill isn't chunked."""
    batched, most = (
        _CPU_DEFAULTS if settings.platform == CPU else _CARDS[_card(settings.platform, request.options, settings.rules)]
    )
    tokens = batched[_CONTEXTS.index(_text(request.options, "usage-context", "server"))]
    seqs = _number(request.options, "max-num-seqs") or most
    if settings.platform == CPU:
        tokens, seqs = tokens * settings.tp * settings.pp, seqs * settings.tp * settings.pp
    if not chunked:
        tokens = max(tokens, max_model_len)
    return min(tokens, seqs * max_model_len)


def _card(platform: str, given: Mapping[str, OptionValue], rules: Rules) -> str:
    """The class of card that the defaults go by."""
    found = _named_card(platform, given)
    return "large" if found == "huge" and "huge_cards" not in rules else found


def _named_card(platform: str, given: Mapping[str, OptionValue]) -> str:
    memory = _number(given, "device-memory")
    by_memory = card_of(memory) if memory is not None else {SM90: "large", SM100: "huge"}.get(platform, "small")
    return _text(given, "card", by_memory)


def card_of(memory: int, name: str = "") -> str:
    """The class of a card of so many bytes. An A100 is batched like a small one, whatever it has."""
    if memory >= 160 * _GIB:
        return "huge"
    return "large" if memory >= 70 * _GIB and "a100" not in name.lower() else "small"


def at_once(request: Request, rules: Rules) -> tuple[int, str]:
    """The most sequences that run at once, and what says so; the others wait, whatever the memory."""
    given = request.options
    asked, platform = _number(given, "max-num-seqs"), platform_of(given)
    copies = _number(given, "data-parallel-size") or request.dp_size
    if asked is not None:
        return asked * copies, "-o max-num-seqs"
    ranks = [_number(given, name) for name in ("tensor-parallel-size", "pipeline-parallel-size")]
    spread = (ranks[0] or request.tp_size) * (ranks[1] or request.pp_size) if platform == CPU else 1
    most = _CPU_DEFAULTS[1] if platform == CPU else _CARDS[_card(platform, given, rules)][1]
    return most * spread * copies, "vLLM's default of max-num-seqs"


def _lengths(model: Model, request: Request) -> tuple[int, int, Mapping[str, tuple[object, str]]]:
    asked = request.options.get("max-model-len")
    said = max(request.lengths, default=0) or request.tokens
    origin = request.origins.get("tokens", "request" if said else "default")
    if asked == 0:
        raise UsageError("-o max-model-len=0 is no length", fix="give a length, or -1 to fit one")
    longest = longest_length(model) or DEFAULT_TOKENS
    max_len = asked if isinstance(asked, int) and not isinstance(asked, bool) else said or min(DEFAULT_TOKENS, longest)
    tokens = said or max(max_len, 0)
    if 0 < max_len < tokens:
        raise UsageError(f"{tokens:,} tokens are longer than -o max-model-len={max_len:,}", fix="raise it, or ask for less")
    if not said and asked is None and longest < DEFAULT_TOKENS:
        origin = "default: the model's own maximum"
    if not said and asked is not None:
        origin = "-o max-model-len"
    return tokens, max_len, {"tokens": (tokens, origin)}


def _cache_dtype(model: Model, request: Request, rules: Rules) -> str:
    asked = request.options.get("kv-cache-dtype")
    if isinstance(asked, str) and asked != "auto":
        _check_one_dtype(request, asked)
        return _check_known_dtype(asked, rules)
    if request.k_dtype is not None or request.v_dtype is not None:
        return _check_known_dtype(_flag_dtype(request), rules)
    if model.cache_dtype in ("fp8_e4m3", "fp8_e5m2", "nvfp4"):
        return model.cache_dtype
    return "auto"


def _check_known_dtype(asked: str, rules: Rules) -> str:
    """The type, where the release has it. Raises EngineError."""
    since = DTYPE_SINCE.get(asked)
    if since is not None and not rules.since(since):
        raise EngineError(
            f"vLLM {rules.said} has no cache type {asked}: it came with {since}",
            "vllm/config/cache.py: CacheDType",
            "take fp8, or auto",
        )
    return asked


def _check_one_dtype(request: Request, asked: str) -> None:
    """--dtype and the engine's own option name one type, or one of them alone speaks. Raises UsageError."""
    named = {dtype.name for dtype in (request.k_dtype, request.v_dtype) if dtype is not None}
    same = FP8 if asked in FP8 else {asked}
    if named - same:
        raise UsageError(
            f"--dtype says {', '.join(sorted(named))}, -o kv-cache-dtype says {asked}: both name the cache's type",
            fix="give one of the two",
        )


def _flag_dtype(request: Request) -> str:
    """--dtype in vLLM's words."""
    k, v = request.k_dtype or request.v_dtype, request.v_dtype or request.k_dtype
    if k is None or v is None or k.name != v.name:
        raise EngineError("vLLM caches keys and values in one type", "vllm/config/cache.py: CacheDType", "name one with --dtype")
    if k.name not in CACHE_DTYPES:
        raise EngineError(
            f"vLLM has no cache type {k.name}", "vllm/config/cache.py: CacheDType", f"one of {', '.join(CACHE_DTYPES)}"
        )
    return k.name


def _check_memory(given: Mapping[str, OptionValue]) -> None:
    """Memory is named one way, and its shares only beside a card's own. Raises UsageError."""
    ways = [name for name in MEMORY_OPTIONS[:3] if name in given]
    if len(ways) > 1:
        raise UsageError(f"-o {ways[0]} and -o {ways[1]} both say how much memory there is", fix="give one of the two")
    shares = [name for name in MEMORY_OPTIONS[3:] if name in given]
    if shares and "device-memory" not in given:
        raise UsageError(f"-o {shares[0]} plays no part without the card's memory", fix="give -o device-memory=24GiB too")


def _available(given: Mapping[str, OptionValue], rules: Rules) -> int | None:
    for name in ("available-bytes", "kv-cache-memory-bytes"):
        if name in given:
            return _number(given, name)
    if "device-memory" not in given:
        return None
    total, other = _number(given, "device-memory") or 0, _number(given, "non-kv-bytes") or 0
    share = _text(given, "gpu-memory-utilization", default_share(rules))
    return max(ceil(total * _share(share)) - other, 0)


def default_share(rules: Rules) -> str:
    """gpu-memory-utilization where it is unsaid."""
    return "0.92" if "larger_share" in rules else "0.9"


def _share(text: str) -> Fraction:
    try:
        share = Fraction(text) if len(text) < 20 and "e" not in text.lower() else Fraction(0)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise UsageError(f"-o gpu-memory-utilization={text[:40]} is no share", fix="give a number above 0 and up to 1, as 0.92")
    return share


def _ranks(size: int, given: Mapping[str, OptionValue], name: str, flag: str) -> int:
    asked = _number(given, name)
    if asked is not None and size not in (1, asked):
        raise UsageError(f"{flag} says {size}, -o {name} says {asked}", fix="give one of the two")
    return size if asked is None else asked


def _number(given: Mapping[str, OptionValue], name: str) -> int | None:
    value = given.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(given: Mapping[str, OptionValue], name: str, default: str) -> str:
    value = given.get(name, default)
    return value if isinstance(value, str) else default


def _flag(given: Mapping[str, OptionValue], name: str) -> bool | None:
    value = given.get(name)
    return value if isinstance(value, bool) else None
