"""Which models SGLang runs: classes of its registry, and the library's where these take another attention.

Sources of 0.5.23: ``srt/models/registry.py``, ``srt/model_loader/utils.py`` (resolve_transformers_arch).
"""

from __future__ import annotations

from kvcalc.core.layers import ChunkedAttention, FullAttention, LatentAttention, SlidingAttention
from kvcalc.core.model import Model
from kvcalc.engines.base import SERVED, Serving
from kvcalc.engines.sglang.classes import QUANTIZATIONS, UNMODELLED, class_names
from kvcalc.engines.sglang.registry import CLASSES, COMPATIBLE, EAGER
from kvcalc.engines.sglang.setup import quantization_of

_WHERE = "sglang/srt/models/registry.py"
_CAN_RUN = "--engine exact or transformers count it"


def serving_of(model: Model) -> Serving:
    """Served, refused, or counted with a mark."""
    names = class_names(model)
    method = quantization_of(model)
    if method and method not in QUANTIZATIONS:
        return Serving(f"SGLang has no quantization method {method}", where="sglang/srt/layers/quantization/__init__.py")
    for name in names:
        if name in UNMODELLED:
            return Serving(f"{name} is not modelled for SGLang: {UNMODELLED[name]}", where="sglang/srt/mem_cache")
    if any(name in CLASSES for name in names[:1]) or _by_type(model, names):
        return SERVED
    return _other(model, names)


def _by_type(model: Model, names: tuple[str, ...]) -> bool:
    """A file that names no class goes by its type, whose class the library may spell otherwise (Kimi_K25…, KimiK25…)."""
    if model.metadata.get("architectures"):
        return False
    known = {name.replace("_", "").lower() for name in CLASSES}
    return any(name.replace("_", "").lower() in known for name in names[:1])


def _other(model: Model, names: tuple[str, ...]) -> Serving:
    """A class that SGLang has none for: the library's own, or a file's code, under its attention."""
    told = names[0] if names else model.model_type
    if any(name in EAGER for name in names) and model.model_type != "mpt":  # its pools name mpt's heads
        return Serving(
            f"SGLang has no class for {told}, and the library's takes no attention but its own", where=_WHERE, fix=_CAN_RUN
        )
    headed = FullAttention | SlidingAttention | ChunkedAttention
    parts = [part for layer in model.layers for part in layer]
    if any(isinstance(part, LatentAttention) for part in parts) or not any(isinstance(part, headed) for part in parts):
        return Serving(
            f"SGLang has no class for {told}, and its pools for the library's are those of plain attention",
            where=_WHERE,
            fix=_CAN_RUN,
        )
    if any(name in COMPATIBLE for name in names):
        return Serving(unchecked=f"SGLang has no class for {told}: it is counted as the library's own under SGLang's attention")
    return Serving(unchecked=f"SGLang has no class for {told}: it is counted as its pools would be, whether it starts or not")
