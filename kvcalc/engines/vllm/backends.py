"""Which attention backend vLLM takes for a layer: it decides the block sizes, and the types that can be cached.

Rules: vLLM 0.32.0, ``vllm/platforms/cuda.py`` (``_get_backend_priorities``), ``cpu.py`` and each backend's class under
``vllm/v1/attention/backends``. FlashAttention, FlashMLA and DeepGEMM count as installed, FlashInfer on SM 10.0 alone
unless ``-o flashinfer`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm

from kvcalc.errors import EngineError

PLAIN = frozenset({"auto", "float16", "bfloat16"})
FP8 = frozenset({"fp8", "fp8_e4m3"})
PER_TOKEN_HEAD = frozenset({"int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"})
TURBOQUANT = frozenset({"turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"})
DEFAULT_BLOCK = 16
CPU, SM80, SM90, SM100, SM120 = "cpu", "sm80", "sm90", "sm100", "sm120"
# What -o platform takes, and the kind of device whose rules are those: by vllm/platforms/cuda.py, capability families.
PLATFORMS = {
    **dict.fromkeys(("sm75", "sm80", "sm86", "sm87", "sm89"), SM80),
    "sm90": SM90,
    **dict.fromkeys(("sm100", "sm103"), SM100),
    **dict.fromkeys(("sm120", "sm121"), SM120),
    "cpu": CPU,
}


@dataclass(frozen=True, slots=True)
class Need:
    """What one layer asks of a backend."""

    head_size: int
    cache_dtype: str
    sliding: bool = False
    sink: bool = False
    alibi: bool = False
    mla: bool = False
    sparse: bool = False
    cross: bool = False
    nope_dim: int = 0
    query_heads: int = 0  # on one rank
    kv_heads: int = 1
    dcp: int = 1  # decode context parallel ranks
    flashinfer: bool = False  # counts as installed on SM 9.0 too


@dataclass(frozen=True, slots=True)
class Backend:
    """Its kernels' block sizes: fixed ones, or multiples of one number; and what it can't do, in words."""

    name: str
    sizes: tuple[int, ...] = ()
    multiple: int = 0
    reject: Callable[[Need, str], str] = lambda need, platform: ""  # noqa: ARG005 - one shape for all
    mla: bool = False
    sparse: bool = False
    page_rows: int = 0  # sparse kernels read flat rows: blocks lie whole pages of so many rows apart

    def takes(self, block_size: int) -> bool:
        """Can the manager's blocks be cut into its kernels' blocks?"""
        return any(block_size % size == 0 for size in self.sizes or (self.multiple,))

    @property
    def smallest(self) -> int:
        """Its smallest kernel block."""
        return min(self.sizes) if self.sizes else self.multiple

    def preferred(self, default: int = DEFAULT_BLOCK) -> int:
        """The default where it takes that, else its smallest."""
        return default if self.takes(default) else self.smallest

    def largest_within(self, block_size: int) -> int:
        """Its largest kernel block of at most ``block_size`` tokens, else its smallest."""
        if self.multiple:
            return max(self.multiple, block_size // self.multiple * self.multiple)
        return max((size for size in self.sizes if size <= block_size), default=self.smallest)


def _types(*names: frozenset[str]) -> Callable[[Need, str], str]:
    known = frozenset().union(*names)

    def reject(need: Need, platform: str) -> str:  # noqa: ARG001 - one shape for all
        return "" if need.cache_dtype in known else f"does not cache {need.cache_dtype}"

    return reject


def _flash_attn(need: Need, platform: str) -> str:
    if need.head_size % 8 or need.head_size > (512 if platform in (SM90, SM100) else 256):
        return f"takes no head size {need.head_size}"
    if need.sink and platform in (SM80, SM120):
        return "has no attention sinks here"
    if need.cache_dtype in PLAIN:
        return ""
    if need.cache_dtype not in FP8:
        return f"does not cache {need.cache_dtype}"
    # FP8 needs FA3, or FA4 at head size 512, on SM 9.0; FA4, which ends at head size 128, on SM 10.0.
    fitting = {SM90: need.head_size <= 256 or need.head_size == 512, SM100: need.head_size <= 128}
    return "" if fitting.get(platform) else f"does not cache {need.cache_dtype} at head size {need.head_size} here"


def _flashinfer(need: Need, platform: str) -> str:
    if platform != SM100 and not need.flashinfer:
        return "is not counted as installed (-o flashinfer=true)"
    if platform != SM100 and need.cache_dtype.startswith("nvfp4") and (need.sink or need.head_size == 64):
        return f"does not cache {need.cache_dtype} here"
    if need.cross:
        return "has no cross-attention"
    if need.head_size not in (64, 128, 256, 512):
        return f"takes no head size {need.head_size}"
    return _types(PLAIN, FP8, frozenset({"fp8_e5m2", "nvfp4", "nvfp4_4over6"}))(need, platform)


def _triton(need: Need, platform: str) -> str:
    if need.head_size < 32:
        return f"takes no head size {need.head_size}"
    return _types(PLAIN, FP8, frozenset({"fp8_e5m2"}), PER_TOKEN_HEAD)(need, platform)


def _turboquant(need: Need, platform: str) -> str:
    if need.sliding:
        return "has no sliding window"
    if need.sink:
        return "has no attention sinks"
    if need.cross:
        return "has no cross-attention"
    return _types(TURBOQUANT)(need, platform)


def _common_mla(*types: frozenset[str]) -> Callable[[Need, str], str]:
    def reject(need: Need, platform: str) -> str:
        if need.head_size not in (320, 512, 576):
            return f"takes no latent row of {need.head_size}"
        return _types(*types)(need, platform)

    return reject


def _flashinfer_mla(need: Need, platform: str) -> str:
    if need.nope_dim not in (64, 128, 192):
        return f"takes no qk_nope_head_dim {need.nope_dim}"
    return _common_mla(PLAIN, FP8)(need, platform)


def _flash_mla_sparse(need: Need, platform: str) -> str:
    if need.head_size not in (512, 576):
        return f"takes no latent row of {need.head_size}"
    known = {"auto", "bfloat16", "fp8", "fp8_ds_mla"} | ({"nvfp4_ds_mla"} if platform == SM100 else set())
    return "" if need.cache_dtype in known else f"does not cache {need.cache_dtype}"


def _flashinfer_mla_sparse(need: Need, platform: str) -> str:
    if need.nope_dim not in (128, 192):
        return f"takes no qk_nope_head_dim {need.nope_dim}"
    if need.head_size not in (512, 576):
        return f"takes no latent row of {need.head_size}"
    return _types(PLAIN, FP8)(need, platform)


def _flashinfer_mla_sparse_90(need: Need, platform: str) -> str:
    if not need.flashinfer:
        return "is not counted as installed (-o flashinfer)"
    if need.head_size not in (512, 576):
        return f"takes no latent row of {need.head_size}"
    return _types(frozenset({"auto", "bfloat16"}), FP8)(need, platform)


def _fa_mla_sparse(need: Need, platform: str) -> str:
    return "has no decode context parallelism" if need.dcp > 1 else _types(PLAIN)(need, platform)


_MIXED_BATCH_HEADS, _DECODE_HEADS = 32, 64  # MIN_HEADS_FOR_BF16_PREFILL, and the smaller of its fp8 decode kernels
_LARGE_PAGES = (16, 32, 64, 128, 256, 512, 1024)

FLASH_ATTN = Backend("FLASH_ATTN", multiple=16, reject=_flash_attn)
FLASH_ATTN_FP8_512 = Backend("FLASH_ATTN", sizes=(64,), reject=_flash_attn)  # FA4's 64-token tile on SM 9.0
FLASH_ATTN_DIFFKV = Backend("FLASH_ATTN_DIFFKV", multiple=16, reject=_flash_attn)  # values narrower than keys
FLASHINFER = Backend("FLASHINFER", sizes=(16, 32, 64), reject=_flashinfer)
FLASHINFER_GQA = Backend("FLASHINFER", sizes=_LARGE_PAGES, reject=_flashinfer)  # trtllm-gen kernels: grouped heads on SM 10.0
TRITON = Backend("TRITON_ATTN", multiple=16, reject=_triton)
FLEX = Backend("FLEX_ATTENTION", multiple=16, reject=_types(PLAIN))
TURBO = Backend("TURBOQUANT", sizes=(16, 32, 64, 128), reject=_turboquant)
FA_MLA = Backend("FLASH_ATTN_MLA", multiple=16, reject=_common_mla(PLAIN), mla=True)
FLASH_MLA = Backend("FLASHMLA", sizes=(64,), reject=_common_mla(PLAIN, FP8), mla=True)
FI_MLA = Backend("FLASHINFER_MLA", sizes=(32, 64), reject=_flashinfer_mla, mla=True)
CUTLASS_MLA = Backend("CUTLASS_MLA", sizes=(128,), reject=_common_mla(PLAIN, FP8), mla=True)
TRITON_MLA = Backend("TRITON_MLA", multiple=16, reject=_types(PLAIN, FP8), mla=True)
FA_MLA_SPARSE = Backend("FLASH_ATTN_MLA_SPARSE", multiple=64, reject=_fa_mla_sparse, mla=True, sparse=True, page_rows=1)
FLASH_MLA_SPARSE = Backend("FLASHMLA_SPARSE", multiple=64, reject=_flash_mla_sparse, mla=True, sparse=True, page_rows=1)
FI_MLA_SPARSE = Backend("FLASHINFER_MLA_SPARSE", multiple=32, reject=_flashinfer_mla_sparse, mla=True, sparse=True, page_rows=32)
FI_MLA_SPARSE_90 = Backend(
    "FLASHINFER_MLA_SPARSE_SM90", multiple=64, reject=_flashinfer_mla_sparse_90, mla=True, sparse=True, page_rows=1
)
FI_MLA_SPARSE_120 = Backend(
    "FLASHINFER_MLA_SPARSE_SM120", multiple=64, reject=_types(frozenset({"fp8_ds_mla"})), mla=True, sparse=True, page_rows=1
)
CPU_ATTN = Backend("CPU_ATTN", multiple=32, reject=_types(PLAIN, FP8, frozenset({"fp8_e5m2"})))
CPU_MLA = Backend("CPU_MLA", sizes=(16,), reject=_types(frozenset({"auto"})), mla=True)
INDEXER = Backend("DEEPSEEK_V32_INDEXER", sizes=(64,), mla=True, sparse=True)

# By platform, latent attention, sparse attention.
PRIORITIES: dict[tuple[str, bool, bool], tuple[Backend, ...]] = {
    (SM90, False, False): (FLASH_ATTN, FLASHINFER, TRITON, FLEX, TURBO),
    (SM100, False, False): (FLASHINFER, FLASH_ATTN, TRITON, FLEX, TURBO),
    (SM80, False, False): (FLASH_ATTN, FLASHINFER, TRITON, FLEX, TURBO),
    (SM120, False, False): (FLASH_ATTN, FLASHINFER, TRITON, FLEX, TURBO),
    (CPU, False, False): (CPU_ATTN,),
    (SM90, True, False): (FA_MLA, FLASH_MLA, TRITON_MLA),
    (SM100, True, False): (FI_MLA, CUTLASS_MLA, FLASH_MLA, TRITON_MLA),
    (SM80, True, False): (TRITON_MLA,),
    (SM120, True, False): (TRITON_MLA,),
    (CPU, True, False): (CPU_MLA,),
    (SM90, True, True): (FA_MLA_SPARSE, FLASH_MLA_SPARSE, FI_MLA_SPARSE_90),
    (SM100, True, True): (FLASH_MLA_SPARSE, FI_MLA_SPARSE),
    (SM80, True, True): (),
    (SM120, True, True): (FI_MLA_SPARSE_120,),
    (CPU, True, True): (),
}


def choose(need: Need, platform: str, block_size: int | None, forced: Sequence[Backend] = ()) -> Backend:
    """The first backend in vLLM's order that takes the layer, and the block size if one is asked. Raises EngineError.

    ``forced`` are those that the model's class takes whatever the order.
    """
    reasons = []
    for candidate in forced or _candidates(need, platform):
        backend = _for_layer(candidate, need, platform)
        reason = backend.reject(need, platform)
        if not reason and block_size and platform != CPU and not backend.takes(block_size):
            reason = f"takes no block of {block_size}"
        if not reason:
            return _refused_later(backend, need)
        reasons.append(f"{backend.name} {reason}")
    raise EngineError(
        f"no attention backend of vLLM takes this layer on {platform}: {'; '.join(reasons) or 'none is there'}",
        "vllm/platforms/cuda.py: get_attn_backend_cls",
        "try another -o kv-cache-dtype, -o block-size or -o platform",
    )


def _candidates(need: Need, platform: str) -> Sequence[Backend]:
    order = PRIORITIES[platform, need.mla, need.sparse]
    if platform == SM100 and need.sparse and (need.cache_dtype not in PLAIN or need.query_heads <= 16):
        return order[::-1]  # FlashInfer first for fp8, and at low head counts
    return order


def _for_layer(backend: Backend, need: Need, platform: str) -> Backend:
    grouped = need.kv_heads and need.query_heads // need.kv_heads > 1 and need.query_heads % need.kv_heads == 0
    if backend is FLASHINFER and grouped and platform == SM100:
        return FLASHINFER_GQA
    if backend is FLASH_ATTN and platform == SM90 and need.cache_dtype in FP8 and need.head_size == 512:
        return FLASH_ATTN_FP8_512
    return backend


def _refused_later(backend: Backend, need: Need) -> Backend:
    if backend.name == "FLASH_ATTN" and need.alibi and need.cache_dtype in FP8:
        raise EngineError(
            f"FlashAttention can't cache {need.cache_dtype} for a model with ALiBi, and vLLM chooses it all the same",
            "vllm/v1/attention/backends/flash_attn.py",
            "leave -o kv-cache-dtype at auto",
        )
    if backend.name == "FLASHMLA_SPARSE" and need.dcp > 1:
        _check_sparse_dcp(need)
    return backend


def _check_sparse_dcp(need: Need) -> None:
    """FlashMLA's sparse kernels under decode context parallelism. Raises EngineError."""
    gathered, why = need.query_heads * need.dcp, ""
    if need.cache_dtype in PLAIN:
        why = "a 16-bit cache"
    elif need.query_heads >= _MIXED_BATCH_HEADS:
        why = f"{need.query_heads} heads a rank (below {_MIXED_BATCH_HEADS} it has one kernel for both phases)"
    elif need.query_heads <= _DECODE_HEADS < gathered:
        why = f"{need.query_heads} heads a rank that are {gathered} together: they are padded to different kernels"
    if why:
        raise EngineError(
            f"vLLM has no decode context parallelism for FlashMLA's sparse kernels with {why}",
            "vllm/v1/attention/backends/mla/flashmla_sparse.py",
            "take -o decode-context-parallel-size=1, or -o kv-cache-dtype=fp8_ds_mla and more ranks",
        )


def common_block(backends: Sequence[Backend]) -> int:
    """The smallest block that every backend takes; the default where that is one. Raises EngineError."""
    if len(backends) == 1:
        return backends[0].preferred()
    if all(backend.takes(DEFAULT_BLOCK) for backend in backends):
        return DEFAULT_BLOCK
    sizes = sorted({lcm(*some) for some in product(*(backend.sizes or (backend.multiple,) for backend in backends))})
    found = next((size for size in sizes if all(backend.takes(size) for backend in backends)), None)
    if found is None:
        names = ", ".join(backend.name for backend in backends)
        raise EngineError(f"the attention backends {names} share no block size", "vllm/platforms/interface.py")
    return found
