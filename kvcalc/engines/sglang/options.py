"""SGLang's server arguments that decide its pools, under their own names."""

from __future__ import annotations

from kvcalc.core.model import Request
from kvcalc.engines.options import Option
from kvcalc.errors import UsageError
from kvcalc.values import value

SM80, SM90, SM100, SM120 = "sm80", "sm90", "sm100", "sm120"
PLATFORMS = (SM80, SM90, SM100, SM120)
FP4 = ("nvfp4", "fp4_mx_block16")
MXFP8 = "mxfp8"
CACHE_DTYPES = ("auto", "bfloat16", "bf16", "fp8_e4m3", "fp8_e5m2", MXFP8, *FP4)
BACKENDS = (
    "triton",
    "torch_native",
    "flex_attention",
    "dsa",
    "cutlass_mla",
    "fa3",
    "fa4",
    "flashinfer",
    "flashmla",
    "trtllm_mla",
    "trtllm_mha",
    "cutedsl_mla",
    "dual_chunk_flash_attn",
)
SPARSE_BACKENDS = (
    "flashmla_sparse",
    "flashmla_kv",
    "fa3",
    "tilelang",
    "trtllm",
    "flashinfer_sparse_mla",
)
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
STRATEGIES = ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy")
STATE_DTYPES = ("float32", "bfloat16", "float16")
SWA_RATIO, MAMBA_RATIO = 0.8, 0.9
CHUNK = 8192  # chunked-prefill-size of a card with 60 to 160 GB
DRAFTED_REQUESTS = 48  # max-running-requests where speculative decoding leaves it unsaid

OPTIONS: tuple[Option, ...] = (
    Option("available-bytes", "bytes", "memory for the pools on each rank", "none: count what the request needs"),
    Option("kv-cache-dtype", "choice", "the cache's type", "auto: --dtype, else the file's, else the model's", CACHE_DTYPES),
    Option("page-size", "count", "tokens a page; some backends overrule it", "1, or what the backend takes", minimum=1),
    Option("max-total-tokens", "count", "no more tokens than these, whatever the memory", minimum=1),
    Option("max-running-requests", "count", "requests at once", "by context length, tokens and state slots", minimum=1),
    Option("context-length", "count", "the longest sequence", "the model's own", minimum=1),
    Option("chunked-prefill-size", "int", "tokens of one prefill step; -1 for whole prompts", str(CHUNK), minimum=-1),
    Option("swa-full-tokens-ratio", "text", "tokens of the window pool for one of the full pool", str(SWA_RATIO)),
    Option("disable-hybrid-swa-memory", "bool", "one pool for sliding and full layers", "off"),
    Option("disable-radix-cache", "bool", "keep no prefixes", "off"),
    Option("disable-overlap-schedule", "bool", "schedule no step while one runs", "off"),
    Option("mamba-full-memory-ratio", "text", "memory of states for that of the rest", str(MAMBA_RATIO)),
    Option("max-mamba-cache-size", "count", "state slots, whatever the memory", minimum=1),
    Option("mamba-radix-cache-strategy", "choice", "how states are kept for reuse", "auto", STRATEGIES),
    Option("mamba-ssm-dtype", "choice", "the type of temporal states", "the file's, else float32", STATE_DTYPES),
    Option("attn-dp-size", "count", "groups of ranks whose attention runs data-parallel", "1", minimum=1),
    Option("platform", "choice", "the device", SM90, PLATFORMS),
    Option("attention-backend", "choice", "the attention's kernels", "by class and platform", BACKENDS),
    Option("prefill-attention-backend", "choice", "those of prefill alone", "attention-backend", BACKENDS),
    Option("decode-attention-backend", "choice", "those of decoding alone", "attention-backend", BACKENDS),
    Option("dsa-prefill-backend", "choice", "sparse attention's, of prefill", "by cache type and platform", SPARSE_BACKENDS),
    Option("dsa-decode-backend", "choice", "sparse attention's, of decoding", "by cache type and platform", SPARSE_BACKENDS),
    Option("speculative-algorithm", "choice", "how tokens are drafted", "none", ALGORITHMS),
    Option("speculative-num-steps", "count", "draft steps", "by algorithm", minimum=1),
    Option("speculative-eagle-topk", "count", "branches a step", "1", minimum=1),
    Option("speculative-num-draft-tokens", "count", "tokens that are verified at once", "steps + 1", minimum=1),
    Option("enable-page-major-kv-layout", "bool", "refused by the engine without its unified memory", "off"),
)


@value
class Given:
    """The options of one request, read: None where one is unsaid."""

    available: int | None
    cache: str
    page: int | None
    most_tokens: int | None
    requests: int | None
    context: int | None
    chunk: int
    swa_ratio: float | None
    one_pool: bool
    radix: bool
    wants_overlap: bool  # as it was asked for
    overlap: bool
    mamba_ratio: float | None
    states: int | None
    strategy: str
    state_dtype: str | None
    attn_dp: int
    platform: str
    backend: str | None
    prefill: str | None
    decode: str | None
    sparse: tuple[str | None, str | None]
    algorithm: str | None
    steps: int | None
    topk: int | None
    drafted: int | None

    @property
    def unset(self) -> bool:
        """Whether no attention backend is named."""
        return self.backend is None and self.prefill is None and self.decode is None

    @property
    def linear(self) -> bool:
        """Whether nothing is drafted, or one branch."""
        return self.algorithm is None or self.topk in (None, 1)


def read_options(request: Request) -> Given:
    """The options under their own types. Raises UsageError."""
    given = request.options

    def number(name: str) -> int | None:
        return None if name not in given else int(given[name])

    def word(name: str) -> str | None:
        return None if name not in given else str(given[name])

    cache = str(given.get("kv-cache-dtype", "auto"))
    return Given(
        available=number("available-bytes"),
        cache="bfloat16" if cache == "bf16" else cache,
        page=number("page-size"),
        most_tokens=number("max-total-tokens"),
        requests=number("max-running-requests"),
        context=number("context-length"),
        chunk=int(given.get("chunked-prefill-size", CHUNK)),
        swa_ratio=ratio_of(word("swa-full-tokens-ratio"), "swa-full-tokens-ratio"),
        one_pool=bool(given.get("disable-hybrid-swa-memory")),
        radix=not given.get("disable-radix-cache"),
        wants_overlap=not given.get("disable-overlap-schedule"),
        overlap=not given.get("disable-overlap-schedule") and request.pp_size == 1,
        mamba_ratio=ratio_of(word("mamba-full-memory-ratio"), "mamba-full-memory-ratio"),
        states=number("max-mamba-cache-size"),
        strategy=str(given.get("mamba-radix-cache-strategy", "auto")),
        state_dtype=word("mamba-ssm-dtype"),
        attn_dp=number("attn-dp-size") or 1,
        platform=str(given.get("platform", SM90)),
        backend=word("attention-backend"),
        prefill=word("prefill-attention-backend"),
        decode=word("decode-attention-backend"),
        sparse=(word("dsa-prefill-backend"), word("dsa-decode-backend")),
        algorithm=word("speculative-algorithm"),
        steps=number("speculative-num-steps"),
        topk=number("speculative-eagle-topk"),
        drafted=number("speculative-num-draft-tokens"),
    )


def ratio_of(text: str | None, name: str) -> float | None:
    """A ratio above 0, as a float: SGLang computes with floats too. Raises UsageError."""
    if text is None:
        return None
    try:
        found = float(text) if len(text) < 20 and text.isascii() else 0.0
    except ValueError:
        found = 0.0
    if not 0 < found <= 100:
        raise UsageError(f"-o {name}={text[:40]} is no ratio", fix="write it like 0.8")
    return found
