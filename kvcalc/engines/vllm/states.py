"""Recurrent layers: convolution windows and states, which take the same bytes whatever the length.

Sources: vLLM 0.32.0, ``vllm/model_executor/layers/mamba/mamba_utils.py``, ``vllm/models/inkling/nvidia/sconv_swa_attn.py``,
``vllm/models/kimi_k3/nvidia/kda.py``.
"""

from __future__ import annotations

from math import prod

from kvcalc.core.layers import HeadedAttention, Layer, Recurrent
from kvcalc.engines.vllm.backends import CPU, SM90, SM100, SM120, Backend
from kvcalc.engines.vllm.cache import ELEMENT_BYTES, Cache, Context, heads_on_rank
from kvcalc.engines.vllm.models import NGRAMS
from kvcalc.engines.vllm.specs import SLIDING, STATE
from kvcalc.errors import ArchitectureError, EngineError

DELTA_NET_STEP = 64  # tokens: the kernel's own stride
INKLING_CONV = Backend("INKLING_SCONV_SWA", multiple=1)


def packed_convs(context: Context, index: int, layer: Layer, part: Recurrent) -> Cache:
    """Inkling: a layer's convolutions are one sliding window of kernel tokens, their channels packed a KV head.

    A head's width is rounded up to a power of two, so that attention pages divide the convolutions'.
    """
    total = next((other.num_kv_heads for other in layer if isinstance(other, HeadedAttention)), 0)
    heads, kernel = heads_on_rank(total, context), part.convs[0].kernel
    width = 1 << (sum(conv.channels // total for conv in part.convs) - 1).bit_length()
    return Cache(
        layer=index,
        kind=SLIDING,
        label="convolution columns",
        component="state",
        token_bytes=heads * width * ELEMENT_BYTES,
        window=kernel,
        own_block=kernel,
        backend=INKLING_CONV,
        heads=heads,
        k_width=width,
        dtype="bfloat16",
        role="convolutions",
    )


def state(context: Context, index: int, part: Recurrent) -> Cache:
    """A layer's convolution windows and temporal states. Raises EngineError, ArchitectureError."""
    convs, temporal = _state_elements(context, part)
    conv_dtype = context.settings.conv_dtype
    conv_bytes = 4 if conv_dtype == "float32" else ELEMENT_BYTES
    state_bytes = _temporal_bytes(context, part, conv_bytes)
    exported = _flashinfer_deltas(context, part)
    return Cache(
        layer=index,
        kind=STATE,
        label="states",
        component="state",
        state_bytes=convs * conv_bytes + temporal * state_bytes,
        checkpoint_blocks=1 if exported or _checkpoints(context, part) else 0,
        checkpoint_step=DELTA_NET_STEP if exported else 0,
        dtype=conv_dtype,
        role=part.variant,
    )


def least_state(context: Context) -> int:
    """Qwen4-Exp sizes blocks by its n-gram convolution too: dilated, over all residual streams, whole on every rank."""
    if context.model.model_type not in NGRAMS:
        return 0
    fields = context.model.fields
    columns = (fields.int("ple_conv_kernel_size", 4) - 1) * fields.int("ngram_size", 3) + context.settings.speculative
    element = 4 if context.settings.conv_dtype == "float32" else ELEMENT_BYTES
    return fields.int("hc_count", 4) * fields.int("hidden_size") * columns * element


def _flashinfer_deltas(context: Context, part: Recurrent) -> bool:
    """FlashInfer's prefill of gated delta nets gives out states inside a prompt: SM 9.0, newer ones with keys of 128."""
    if part.variant != "gated_delta_net" or "gdn_checkpoints" not in context.rules:
        return False
    platform, key_dim = context.settings.platform, part.states[0].shape[-1]
    return platform == SM90 or (platform in (SM100, SM120) and key_dim == 128)


def _checkpoints(context: Context, part: Recurrent) -> bool:
    """Prefill kernels that store a state inside a prompt."""
    if part.variant == "mamba2":
        return "mamba2_checkpoints" in context.rules
    return "kda_checkpoints" in context.rules and _flash_kda(context, part)


def _flash_kda(context: Context, part: Recurrent) -> bool:
    """Kimi K3: with a bounded gate its prefill kernel stores a checkpoint of heads that are 128 wide."""
    if part.variant != "kda" or not context.reading.kda_bound or context.settings.platform == CPU:
        return False
    name, fields = context.reading.kda_bound, context.model.fields
    bounded = (fields if name in fields else fields.mapping("linear_attn_config")).raw(name) is not None
    return bounded and part.states[0].shape[-1] == 128 and context.model.dtype in (None, "bfloat16", "float32")


def _temporal_bytes(context: Context, part: Recurrent, conv_bytes: int) -> int:
    """Element bytes of the temporal state. Raises EngineError."""
    asked = context.settings.state_dtype
    if part.variant == "lightning":
        return conv_bytes
    if asked == "auto" or context.reading.fixed_states:
        asked = _default_state_dtype(context, part)
    if part.variant == "kda" and asked == "float16":
        raise EngineError("KDA states are kept in float32 or bfloat16", "vllm/model_executor/layers/mamba/mamba_utils.py")
    return {"": conv_bytes, "float32": 4}.get(asked, 2)


def _default_state_dtype(context: Context, part: Recurrent) -> str:
    if part.variant == "kda" or context.settings.platform == "cpu":  # the CPU's accelerated kernels keep float32
        return "float32"
    field, _, fallback = context.reading.state_dtype.partition("|")
    return (context.model.fields.text(field) if field else "") or fallback


def _state_elements(context: Context, part: Recurrent) -> tuple[int, int]:
    """Elements of the convolution and temporal states on one rank. Raises EngineError."""
    if part.variant not in ("mamba", "mamba2", "gated_delta_net", "kda", "short_conv", "lightning"):
        raise ArchitectureError(f"vLLM serves no model with {part.variant} layers", "vllm/model_executor/models")
    tp = context.tp
    extra = _extra_groups(part, tp) * 2 * part.states[0].shape[-1] if part.variant == "mamba2" and part.states else 0
    channels = {conv.kernel: 0 for conv in part.convs}
    for conv in part.convs:
        channels[conv.kernel] += conv.channels
    drafts = context.settings.speculative if part.variant != "mamba" else 0  # rolled back column by column
    convs = sum(_divided(count + extra, tp, "convolution channels") * (kernel - 1 + drafts) for kernel, count in channels.items())
    temporal = sum(_divided(state.shape[0], tp, "state heads") * prod(state.shape[1:]) for state in part.states)
    return convs, temporal


def _extra_groups(part: Recurrent, tp: int) -> int:
    """Mamba-2's B and C groups are repeated so that each rank's heads find theirs. Raises EngineError."""
    groups = part.num_groups or 1
    if groups % tp == 0:
        return 0
    if groups != 1:
        raise EngineError(
            f"{groups} state groups can't be split over {tp} tensor-parallel ranks",
            "vllm/model_executor/layers/mamba/mamba_mixer2.py",
            "only a single group is repeated; take a divisor",
        )
    return tp - groups


def _divided(count: int, tp: int, what: str) -> int:
    if count % tp:
        raise EngineError(f"{count} {what} can't be split over {tp} tensor-parallel ranks", "vllm/distributed/utils.py: divide")
    return count // tp
