"""What a request asks of ollama: its options and environment, and the defaults of each release.

Source: ollama ``llm/llama_server.go``, ``server/sched.go``, ``server/routes.go``, ``envconfig/config.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.engines.ollama.arches import Arch
from kvcalc.engines.options import Option
from kvcalc.engines.releases import Rules
from kvcalc.errors import EngineError, UsageError
from kvcalc.units import format_bytes
from kvcalc.values import value

GIB = 2**30
CACHE_TYPES = ("f16", "bf16", "f32", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
OWN_TYPES = ("q8_0", "q4_0")  # besides f16, of its own engine
BY_VRAM = ((47 * GIB, 262_144), (23 * GIB, 32_768), (0, 4_096))
SERVER_BATCHES = ((32_768, 2_048), (4_096, 1_024), (0, 512))  # above so many cells, so many tokens a step
BATCH = 512
LARGEST = 2**31

OPTIONS: tuple[Option, ...] = (
    Option("num-ctx", "count", "context of each sequence (num_ctx, OLLAMA_CONTEXT_LENGTH)", "--tokens, else by vram", minimum=1),
    Option("ctx-size", "count", "the same over all sequences together (KvSize)", "num-ctx · num-parallel", minimum=1),
    Option("num-parallel", "int", "sequences at once (OLLAMA_NUM_PARALLEL); hybrids take one", "--batch", minimum=1),
    Option("num-batch", "int", "tokens a step (num_batch); a sliding cache keeps so many cells more", "by context", minimum=1),
    Option("kv-cache-type", "choice", "type of keys and values (OLLAMA_KV_CACHE_TYPE)", "f16", CACHE_TYPES),
    Option("flash-attention", "bool", "flash attention (OLLAMA_FLASH_ATTENTION)", "on, where the GPU has it"),
    Option("vram", "bytes", "memory of all GPUs, by which a context that is not asked for is chosen"),
    Option("new-engine", "bool", "OLLAMA_NEW_ENGINE: its own engine for more models", "off"),
)


@value
class Settings:
    """A request in ollama's terms, each value with its origin."""

    num_ctx: int
    parallel: int
    batch: int
    cache_type: str
    flash: bool
    flash_said: bool
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def cells(self) -> int:
        """Positions of all sequences together (KvSize)."""
        return self.num_ctx * self.parallel


def settings_of(model: Model, request: Request, rules: Rules, arch: Arch | None) -> Settings:
    """The options, flags and defaults of a request. Raises UsageError, EngineError."""
    if request.tp_size > 1 or request.pp_size > 1:
        raise EngineError("ollama splits a model by whole layers, and counts no ranks", fix="leave --tp and --pp out")
    given = request.options
    parallel, parallel_origin, parallel_warnings = _parallel(request, arch)
    num_ctx, ctx_origin, ctx_warnings = _context(model, request, rules, parallel)
    cache_type, type_origin = _cache_type(request)
    if num_ctx * parallel >= LARGEST:
        raise EngineError(f"{parallel} sequences of {num_ctx:,} tokens are beyond the engine's 32 bits", fix="ask for less")
    batch = given.get("num-batch")
    size = int(batch) if batch is not None else _batch(num_ctx * parallel, rules)
    return Settings(
        num_ctx,
        parallel,
        size,
        cache_type,
        given.get("flash-attention", True) is True,
        "flash-attention" in given,
        {
            "num_ctx": ctx_origin,
            "num_parallel": parallel_origin,
            "num_batch": "-o num-batch" if batch is not None else "default",
            "kv_cache_type": type_origin,
        },
        (*ctx_warnings, *parallel_warnings),
    )


def _context(model: Model, request: Request, rules: Rules, parallel: int) -> tuple[int, str, tuple[str, ...]]:
    asked, origin = request.options.get("num-ctx"), "-o num-ctx"
    if (whole := request.options.get("ctx-size")) is not None:
        if asked is not None:
            raise UsageError("-o num-ctx and -o ctx-size both say the context", fix="give one of the two")
        asked, origin = int(whole) // parallel, "-o ctx-size"
    if request.lengths:
        asked, origin = max(request.lengths), "the longest of the lengths"
    if asked is not None and request.tokens not in (None, asked):
        raise UsageError("a context is given, and lengths besides", fix="leave -o num-ctx out: it follows from them")
    if asked is None and request.tokens is not None:
        asked, origin = request.tokens, request.origins.get("tokens", "request")
    if asked is None:
        asked, origin = _default_context(request.options, rules)
    most = model.max_tokens
    if most and int(asked) > most:
        said = f"num_ctx {int(asked):,} is cut to the {most:,} that {model.name} was made for"
        return most, "the model's own maximum", (said,)
    return int(asked), origin, ()


def _default_context(given: Mapping[str, OptionValue], rules: Rules) -> tuple[int, str]:
    if not rules.since("0.9.0"):
        return 2048, "default of this release"
    if not rules.since("0.15.5"):
        return 4096, "default of this release"
    vram = given.get("vram")
    if vram is None:
        return 4096, "default below 23 GiB of VRAM: -o vram=… names another"
    tokens = next(tokens for least, tokens in BY_VRAM if int(vram) >= least)
    return tokens, f"default at {format_bytes(int(vram))} of VRAM"


def _parallel(request: Request, arch: Arch | None) -> tuple[int, str, tuple[str, ...]]:
    asked = request.options.get("num-parallel")
    count = len(request.lengths) or request.batch_size
    number, origin = (count, request.origins.get("batch_size", "default")) if asked is None else (int(asked), "-o num-parallel")
    if arch is not None and arch.single and number > 1:
        return 1, "ollama takes one sequence at a time of this architecture", (f"{number} sequences run one after another",)
    return number, origin, ()


def _cache_type(request: Request) -> tuple[str, str]:
    asked = request.options.get("kv-cache-type")
    if asked is not None:
        return str(asked), "-o kv-cache-type"
    sides = {dtype.name for dtype in (request.k_dtype, request.v_dtype) if dtype is not None}
    if len(sides) > 1:
        raise EngineError("ollama has one type for keys and values", fix="name one with --dtype")
    name = _LLAMA_NAMES.get(next(iter(sides), "float16"), next(iter(sides), "float16"))
    if name not in CACHE_TYPES:
        raise EngineError(f"ollama has no cache type {name}", fix=f"one of {', '.join(CACHE_TYPES)}")
    return name, "--dtype" if sides else "default"


_LLAMA_NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


def _batch(cells: int, rules: Rules) -> int:
    """Tokens a step where num_batch is unsaid. Newer releases take less where memory is short."""
    if not rules.since("0.30.0"):
        return BATCH
    return next((size for above, size in SERVER_BATCHES if cells > above), BATCH)
