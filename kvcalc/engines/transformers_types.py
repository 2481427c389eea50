"""Model types whose code in transformers does something of its own with its cache: one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvcalc.architectures.class_defaults import CLASS_DEFAULTS
from kvcalc.core.counting import Slab, Types
from kvcalc.core.layers import FullAttention, Layer, Part
from kvcalc.core.model import Array, Model
from kvcalc.engines.transformers_layers import Rules
from kvcalc.engines.transformers_releases import Release
from kvcalc.errors import EngineError

LayersRule = Callable[[Model, tuple[Layer, ...]], tuple[Layer, ...]]
SharedRule = Callable[[Model, int, int, Types], tuple[Array, ...]]


def _as_is(model: Model, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:  # noqa: ARG001 - a rule like the others
    return layers


def _nothing_shared(model: Model, batch: int, tokens: int, types: Types) -> tuple[Array, ...]:  # noqa: ARG001 - as above
    return ()


def _no_rows(model: Model) -> int:  # noqa: ARG001 - a rule like the others
    return 0


@dataclass(frozen=True, slots=True)
class Quirk:
    """What one model type's code does besides the cache classes' own rules."""

    layers: LayersRule = _as_is
    shared: SharedRule = _nothing_shared
    extra_rows: Callable[[Model], int] = _no_rows
    slabs: Callable[[Part, Types, Rules], tuple[Slab, ...]] | None = None
    expands_mla: bool = True
    model_type_states: bool = False
    notes: tuple[str, ...] = ()
    no_static: str = ""


def broadcast_falcon(model: Model, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Falcon's new decoder repeats its KV heads to the query heads before it caches them."""
    if not model.fields.flag("new_decoder_architecture"):
        return layers
    return tuple(tuple(_broadcast(part) for part in layer) for layer in layers)


def _broadcast(part: Part) -> Part:
    return replace(part, num_kv_heads=part.num_heads) if isinstance(part, FullAttention) else part


def sequence_offset(model: Model, batch: int, tokens: int, types: Types) -> tuple[Array, ...]:  # noqa: ARG001 - as above
    """An xLSTM cache counts its tokens in an int64 tensor of one element."""
    return (Array("other", "sequence offset", 1, 8, 1, 1, "int64"),)


QUIRKS: dict[str, Quirk] = {
    "falcon": Quirk(broadcast_falcon, notes=("falcon's new decoder caches every query head's copy of its KV heads",)),
    "xlstm": Quirk(shared=sequence_offset, no_static="xLSTM has a cache class of its own, without a static form"),
    "minimax": Quirk(no_static="MiniMax has a cache class of its own, without a static form"),
    "rwkv": Quirk(no_static="RWKV's state is no cache object"),
}
# Classes that kept their recurrent state in the model's type before it became float32 for all.
STATES_IN_MODEL_TYPE = frozenset(("mamba", "falcon_mamba", "mamba2", "bamba", "falcon_h1", "granitemoehybrid", "zamba2"))


def quirk_of(model_type: str, release: Release) -> Quirk:
    """The row of a type, under a release."""
    quirk = QUIRKS.get(model_type, Quirk())
    if model_type in STATES_IN_MODEL_TYPE and "float32_states" not in release.has:
        return replace(quirk, model_type_states=True)
    return quirk


def check_type(model: Model, release: Release) -> tuple[str, ...]:
    """Warnings about the type under this release. Raises EngineError for a type that it can't run."""
    if model.model_type not in CLASS_DEFAULTS and model.format == "hf":
        return (f"model type {model.model_type!r} is not in transformers {release.name}: counted as its cache classes would",)
    return ()


def check_static(model: Model, release: Release, capacity: int) -> None:  # noqa: ARG001 - used below
    """Raises EngineError for types without a static cache."""
    quirk = quirk_of(model.model_type, release)
    if quirk.no_static:
        raise EngineError(f"no static cache: {quirk.no_static}", "-o cache", "take cache=dynamic")
