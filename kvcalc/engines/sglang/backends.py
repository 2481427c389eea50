"""Which attention backend a class gets on a platform, and the pages that it takes.

Sources of 0.5.23: ``srt/arg_groups/model_override_base.py`` (get_default_attn_backend), ``srt/arg_groups/overrides.py``
(_mla_backend_page_constraints, _fa4_page_constraint, _dsa_split_backend_resolution), ``srt/arg_groups/kv_cache_hook.py``.
"""

from __future__ import annotations

from kvcalc.engines.sglang.classes import (
    DEEPSEEK_FAMILY,
    DEEPSEEK_V4,
    DEFAULT_BACKENDS,
    GATED_DELTA,
    MINIMAX_M3,
    SINKS,
)
from kvcalc.engines.sglang.options import FP4, MXFP8, SM90, SM100, SM120, Given
from kvcalc.errors import EngineError
from kvcalc.values import value

_FIXED_PAGES = {  # backend → pages that it takes; any other becomes 64
    "flashmla": (64,),
    "trtllm_mla": (32, 64),
    "cutedsl_mla": (32, 64),
    "trtllm_mha": (16, 32, 64, 128),
}
SPARSE_PAGE, COMPRESSED_PAGE = 64, 256
WHERE = "sglang/srt/arg_groups"


@value
class Shape:
    """What of a model decides its backend."""

    names: tuple[str, ...]
    latent: bool
    sparse: bool
    asymmetric: bool  # keys and values differ in width
    pooled: int = 1  # tokens that share a row of the indexer

    def one_of(self, classes: frozenset[str]) -> bool:
        """Whether the file's class is among them."""
        return any(name in classes for name in self.names)


@value
class Backends:
    """Who reads the cache."""

    attention: str
    prefill: str
    decode: str
    sparse: tuple[str, str] = ("", "")
    page: int = 1

    @property
    def all(self) -> tuple[str, ...]:
        """Each of them."""
        return (self.attention, self.prefill, self.decode)


def backends_of(shape: Shape, given: Given, cache: str) -> Backends:
    """The backends and the page of one model. ``cache`` is the cache's type, resolved. Raises EngineError."""
    attention = given.backend or _default(shape, given, cache)
    prefill, decode = given.prefill or attention, given.decode or attention
    if cache == "nvfp4":
        prefill, decode = _fp4_readers(given)
    if given.prefill is not None and given.prefill == given.decode:
        attention = given.prefill
    found = Backends(attention, prefill, decode, _sparse(given, cache) if shape.sparse else ("", ""))
    _check(shape, given, cache, found)
    page = _page(shape, given, found)
    return Backends(attention, prefill, decode, found.sparse, page)


def _default(shape: Shape, given: Given, cache: str) -> str:
    for name in shape.names:
        if name in MINIMAX_M3 and given.platform == SM100 and cache == "fp8_e4m3":
            return "trtllm_mha"
        if given.platform in DEFAULT_BACKENDS.get(name, {}):
            return DEFAULT_BACKENDS[name][given.platform]
    if shape.sparse:
        return "dsa"
    if given.platform == SM100 and shape.one_of(GATED_DELTA):
        # the strategy is settled later: only one that is named counts here
        doubled = given.radix and given.strategy in ("extra_buffer", "extra_buffer_lazy")
        return "trtllm_mha" if given.linear and (doubled or not given.radix or given.algorithm) else "triton"
    if given.platform == SM100 and shape.one_of(DEEPSEEK_FAMILY):
        return "trtllm_mla"
    return _generic(shape, given)


def _generic(shape: Shape, given: Given) -> str:
    if shape.latent:
        return {SM90: "fa3", SM100: "flashinfer"}.get(given.platform, "triton")
    if given.platform == SM90 and given.linear:
        return "fa3"
    drafts = given.algorithm is not None and given.topk is None
    if given.platform == SM100 and given.linear and not drafts:
        return "fa4" if shape.asymmetric else "trtllm_mha"
    return "triton" if shape.one_of(SINKS) else "flashinfer"


def _fp4_readers(given: Given) -> tuple[str, str]:
    """nvfp4: FlashInfer reads it through an fp8 workspace, trtllm_mha natively. Raises EngineError."""
    named = given.prefill or given.backend
    if named not in (None, "flashinfer", "trtllm_mha"):
        raise EngineError(
            f"SGLang's prefill of an nvfp4 cache takes flashinfer or trtllm_mha, not {named}", f"{WHERE}/kv_cache_hook.py"
        )
    if given.decode not in (None, "trtllm_mha"):
        raise EngineError(f"SGLang decodes an nvfp4 cache with trtllm_mha, not {given.decode}", f"{WHERE}/kv_cache_hook.py")
    return named or ("trtllm_mha" if given.platform == SM100 else "flashinfer"), "trtllm_mha"


def _sparse(given: Given, cache: str) -> tuple[str, str]:
    """(prefill, decode) of sparse attention."""
    blackwell = given.platform in (SM100, SM120)
    if cache == "fp8_e4m3":
        default = "trtllm" if blackwell else "flashmla_kv"
        prefill, decode = default, default
    else:
        prefill, decode = "flashmla_sparse", "trtllm" if blackwell else "fa3"
    return given.sparse[0] or prefill, given.sparse[1] or decode


def _check(shape: Shape, given: Given, cache: str, found: Backends) -> None:
    """Raises EngineError for what the engine refuses."""
    blackwell = given.platform in (SM100, SM120)
    if "trtllm_mla" in (found.attention, found.decode):
        if not blackwell:
            raise EngineError("SGLang's trtllm_mla backend runs on Blackwell alone", f"{WHERE}/overrides.py", "-o platform=sm100")
        if given.cache not in ("auto", "fp8_e4m3"):  # bfloat16 is refused under that name, bf16 is not told apart here
            _refuse_cache(given.cache if given.cache != "bfloat16" else "", "trtllm_mla")
    if cache == MXFP8 and not blackwell:
        raise EngineError("SGLang keeps an mxfp8 cache on Blackwell alone", f"{WHERE}/kv_cache_hook.py", "-o platform=sm100")
    if cache == "nvfp4" and not blackwell:
        raise EngineError("SGLang keeps an nvfp4 cache on Blackwell alone", f"{WHERE}/kv_cache_hook.py", "-o platform=sm100")
    if cache in FP4:
        _check_fp4(shape, found)


def _refuse_cache(cache: str, backend: str) -> None:
    if cache:
        raise EngineError(f"SGLang's {backend} backend takes no {cache} cache", f"{WHERE}/overrides.py")


def _check_fp4(shape: Shape, found: Backends) -> None:
    taken = ("flashinfer", "trtllm_mla") if shape.latent else ("triton", "torch_native", "flex_attention", "trtllm_mha")
    if found.prefill == found.decode and found.attention not in taken:
        raise EngineError(
            f"SGLang reads a 4-bit cache with {' or '.join(taken)} here, not {found.attention}", f"{WHERE}/kv_cache_hook.py"
        )


def _page(shape: Shape, given: Given, found: Backends) -> int:
    page = _class_page(shape, given, found)
    for backend, taken in _FIXED_PAGES.items():
        if backend in (found.attention, found.decode) or (backend == found.prefill and backend != "flashmla"):
            page = page if page in taken else 64
    if "fa4" in found.all and not shape.latent and given.platform == SM100 and (given.topk or 0) <= 1:
        return 1 if "DiffusionGemmaForBlockDiffusion" in shape.names else 128
    return page or 1


def _class_page(shape: Shape, given: Given, found: Backends) -> int | None:
    """What the class itself says, whatever was asked for."""
    if shape.one_of(DEEPSEEK_V4):
        return COMPRESSED_PAGE
    if shape.sparse:
        return SPARSE_PAGE * shape.pooled
    if shape.one_of(MINIMAX_M3) and given.page is None:
        paged = {SM90: ("fa3",), SM100: ("fa4", "trtllm_mha")}.get(given.platform, ())
        return 128 if found.attention in paged else None
    if given.platform == SM100 and shape.one_of(GATED_DELTA) and given.backend is None:
        return 64 if found.attention == "trtllm_mha" else 1
    return given.page
