"""A model's layers as vLLM's class for it builds them: which of them slide, which heads they have, what is expanded.

Sources: vLLM 0.32.0, ``vllm/model_executor/models``, ``vllm/engine/arg_utils.py``, ``vllm/config/model.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvcalc.core.fields import Field, Fields
from kvcalc.core.layers import FullAttention, LatentAttention, Layer, NoCache, Part, Recurrent, SlidingAttention
from kvcalc.core.model import Model
from kvcalc.engines.vllm.models import ALL_OR_NONE, AS_LAYERS, NEVER, NO_MIX, Reading
from kvcalc.errors import EngineError

CLASS_DEFAULT = "class default"  # so a field's origin begins where the library's class says it
Change = Callable[[int, Part], Part]


def layers_as_read(model: Model, reading: Reading) -> tuple[Layer, ...]:
    """The model's layers as vLLM's class for it sees them. Raises EngineError."""
    if _encoder_only(model.fields, reading):
        return tuple((NoCache("an encoder without a cache"),) for _ in model.layers)
    if reading.needs and model.fields.raw(reading.needs) is None:
        raise EngineError(
            f"vLLM tells {model.model_type}'s windowed layers from {reading.needs} alone, and this file doesn't have it",
            model.fields.where,
        )
    layers = _with(_attending_tail(model, reading), lambda index, part: _reread(model, index, part, reading))
    windowed = [part for layer in layers for part in layer if isinstance(part, SlidingAttention)]
    full = any(isinstance(part, FullAttention) for layer in layers for part in layer)
    if windowed and full and reading.windows == NO_MIX:
        raise EngineError(
            "vLLM's class for this model takes a window in all layers or in none, and this file mixes them",
            "vllm/model_executor/models/qwen2.py",
            "use_sliding_window: false is how such models are served",
        )
    if windowed and ((full and reading.windows == ALL_OR_NONE) or reading.windows == NEVER):
        return _with(layers, lambda _, part: _unwindowed(part))
    window = model_window(model, reading)
    if window and not windowed:
        return _with(layers, lambda index, part: part if reading.alternates and index % 2 else _slid(part, window))
    return layers


def model_window(model: Model, reading: Reading) -> int:
    """The config-wide ``sliding_window``: it counts in every layer of a file that names no kinds of layers."""
    fields = model.fields
    named = fields.raw("layer_types") if reading.alternates else "layer_types" in fields
    if reading.own_windows or named or model.format == "gguf" or reading.windows != AS_LAYERS:
        return 0
    value = fields.raw("sliding_window")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _attending_tail(model: Model, reading: Reading) -> tuple[Layer, ...]:
    """Bailing v3: the layers after the last whole group all attend, whatever the file's kinds say."""
    layers, every = model.layers, model.fields.int(reading.full_tail, 1) if reading.full_tail else 1
    attends = next((layer for layer in layers if any(isinstance(part, LatentAttention) for part in layer)), None)
    if attends is None or len(layers) % every == 0:
        return layers
    whole = len(layers) // every * every
    return layers[:whole] + (attends,) * (len(layers) - whole)


def _encoder_only(fields: Fields, reading: Reading) -> bool:
    if reading.encoder or fields.raw("is_causal") is False:
        return True
    return bool(reading.bidirectional) and fields.raw(reading.bidirectional) is True


def _with(layers: tuple[Layer, ...], change: Change) -> tuple[Layer, ...]:
    return tuple(tuple(change(index, part) for part in layer) for index, layer in enumerate(layers))


def _unwindowed(part: Part) -> Part:
    if isinstance(part, SlidingAttention):
        return FullAttention(part.num_kv_heads, part.head_dim, part.v_head_dim, part.num_heads)
    return part


def _slid(part: Part, window: int) -> Part:
    if isinstance(part, FullAttention):
        return SlidingAttention(part.num_kv_heads, part.head_dim, part.v_head_dim, window, part.num_heads)
    return part


def _reread(model: Model, index: int, part: Part, reading: Reading) -> Part:
    if reading.head_dim_of_hidden and isinstance(part, FullAttention | SlidingAttention):
        part = _of_hidden(model.fields, part)
    if isinstance(part, SlidingAttention):
        return _windowed(model.fields, index, part, reading)
    if isinstance(part, LatentAttention) and reading.expands_latent:
        width = part.nope_dim + part.rope_dim  # V is padded to the keys' width
        return FullAttention(part.num_heads, width, width, part.num_heads)
    if isinstance(part, Recurrent) and reading.states:
        return replace(part, variant=reading.states, convs=())
    return part


def _of_hidden(fields: Fields, part: FullAttention | SlidingAttention) -> FullAttention | SlidingAttention:
    if fields.raw("head_dim") is not None and not fields.origin("head_dim").startswith(CLASS_DEFAULT):
        return part
    width = fields.int("hidden_size") // part.num_heads
    return replace(part, head_dim=width, v_head_dim=width)


def _windowed(fields: Fields, index: int, part: SlidingAttention, reading: Reading) -> SlidingAttention:
    """Its window and heads, where the class takes them from another field."""
    listed = fields.raw(reading.window_list) if reading.window_list else None
    if isinstance(listed, list) and index < len(listed):  # null for the full layers
        own = Fields({"window": Field(listed[index], fields.at(reading.window_list))}, fields.where)
        part = replace(part, window=own.int("window"))
    if reading.window_field and fields.int_or_none(reading.window_field):
        part = replace(part, window=fields.int(reading.window_field))
    if reading.other_heads and fields.raw(reading.other_heads):
        part = _other_heads(fields.mapping(reading.other_heads), part)
    return replace(part, window=part.window + reading.window_plus)


def _other_heads(own: Fields, part: SlidingAttention) -> SlidingAttention:
    """Step-3.5: windowed layers with heads of their own."""
    if own.text("attention_type", "sliding_attention") != "sliding_attention":
        return part
    width = own.int("head_dim", part.head_dim)
    heads = own.int("num_attention_heads", part.num_heads or None)
    return SlidingAttention(own.int("num_attention_groups", part.num_kv_heads), width, width, part.window, heads)
