"""What SGLang allocates for a layer: a slot of one of its pools, and the bytes that its capacity is divided by.

Its pools of keys and values are uniform: every layer of a model has the heads and widths of the whole, whether it attends, shares
another's cache, or reads an encoder's. Only classes with states (or with two pools) tell layers apart.

Sources of 0.5.23: ``srt/mem_cache/memory_pool.py``, ``srt/model_executor/pool_configurator.py`` (_compute_cell_size),
``srt/mem_cache/kv_cache_configurator.py`` (calculate_mla_kv_cache_dim), ``srt/configs/mamba_utils.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from kvcalc.core.counting import ONE, Slab, recurrent_slabs, vectors
from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
)
from kvcalc.core.model import Model
from kvcalc.dtypes import FLOAT32, Dtype, find_dtype
from kvcalc.engines.ranks import share_of
from kvcalc.engines.sglang.classes import MINIMAX_M3, OWN_WINDOW_HEADS
from kvcalc.engines.sglang.compressed import compressed_slots
from kvcalc.engines.sglang.options import FP4, MXFP8, SM90, SM100
from kvcalc.engines.sglang.setup import FP8, Setup
from kvcalc.engines.sglang.slots import FULL, REQUEST, STATE, TAIL, WINDOW, Slot
from kvcalc.errors import EngineError
from kvcalc.units import ceil_div

INDEX_GROUP = 128
FP4_GROUP, MXFP8_GROUP = 16, 32
SOURCE = "sglang/srt/mem_cache/memory_pool.py"


def _slot(pool: str, slab: Slab, sized: int | None = None) -> Slot:
    return Slot(pool, slab, slab.row_bytes if sized is None else sized)


def pooled_layers(model: Model, setup: Setup) -> tuple[Layer, ...]:
    """The layers as SGLang's pools have them, one rank's share of each. Raises EngineError."""
    layers = _whisper(model) or tuple(_read(model, layer) for layer in model.layers)
    if setup.shape.sparse:
        layers = _indexed(model, layers)
    if not setup.stateful and not setup.shape.latent and not setup.compressed:
        layers = _uniform(layers, setup)
    return tuple(tuple(_share(part, setup.tp) for part in layer) for layer in layers)


def _whisper(model: Model) -> tuple[Layer, ...]:
    """Encoder layers, decoder layers and their cross-attention, each with a slot (num_attention_layers)."""
    if model.model_type != "whisper":
        return ()
    own = next(part for part in model.layers[0] if isinstance(part, FullAttention))
    return ((own,),) * (model.fields.int("encoder_layers") + 2 * len(model.layers))


def _read(model: Model, layer: Layer) -> Layer:
    """A shared layer has its source's cache anew; cross-attention has a slot only where it stands alone."""
    found: list[Part] = []
    for part in layer:
        if isinstance(part, Shared) and part.source is not None:
            found += model.layers[part.source]
        elif isinstance(part, CrossAttention):
            found += [_full(part)] if len(layer) == 1 else []
        else:
            found.append(part)
    return tuple(found)


def _indexed(model: Model, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """A layer beyond the file's ``indexer_types`` is not among those that share (dsa_layer_skips_topk)."""
    listed = model.fields.texts("indexer_types")
    indexer = next((part for layer in layers for part in layer if isinstance(part, Indexer)), None)
    if not listed or indexer is None:
        return layers
    return tuple(
        layer if index < len(listed) or indexer in layer or not _latent_in(layer) else (*layer, indexer)
        for index, layer in enumerate(layers)
    )


def _latent_in(layer: Layer) -> bool:
    return any(isinstance(part, LatentAttention) for part in layer)


def _full(part: FullAttention | SlidingAttention | ChunkedAttention | CrossAttention) -> FullAttention:
    return FullAttention(part.num_kv_heads, part.head_dim, part.v_head_dim, part.num_heads)


def _uniform(layers: tuple[Layer, ...], setup: Setup) -> tuple[Layer, ...]:
    """Every layer with the heads and widths of the model's own fields: those of its first full layer."""
    headed = [part for layer in layers for part in layer if isinstance(part, FullAttention | SlidingAttention | ChunkedAttention)]
    if not headed:
        return layers
    own = _full(next((part for part in headed if isinstance(part, FullAttention)), headed[0]))
    return tuple(_one(layer, own, setup) for layer in layers)


def _one(layer: Layer, own: FullAttention, setup: Setup) -> Layer:
    windowed = [part for part in layer if isinstance(part, SlidingAttention | ChunkedAttention)]
    kept = tuple(part for part in layer if isinstance(part, Indexer)) if setup.shape.one_of(MINIMAX_M3) else ()
    return (windowed[0] if windowed and setup.two_pools else own, *kept)


def _share(part: Part, ranks: int) -> Part:
    """One rank's: heads are divided, one at least; states must divide. Raises EngineError."""
    if isinstance(part, FullAttention | SlidingAttention | ChunkedAttention):
        return replace(part, num_kv_heads=max(1, part.num_kv_heads // ranks))
    if isinstance(part, Recurrent):
        heads = [state.shape[0] for state in part.states] or [conv.channels for conv in part.convs]
        if any(count % ranks for count in heads):
            raise EngineError(f"SGLang can't divide {heads[0]} state heads by {ranks} ranks", "sglang/srt/configs/mamba_utils.py")
        return share_of(part, ranks)
    return part


def layer_slots(model: Model, layer: Layer, setup: Setup, own: FullAttention | None) -> list[Slot]:
    """Every slot of one layer. Raises EngineError. ``own`` are the full layers' heads and widths."""
    return [slot for part in layer for slot in _part_slots(model, part, setup, own)]


def _part_slots(model: Model, part: Part, setup: Setup, own: FullAttention | None) -> list[Slot]:
    match part:
        case FullAttention():
            return _headed(FULL, part, part, setup)
        case SlidingAttention() | ChunkedAttention():
            mine = setup.shape.one_of(OWN_WINDOW_HEADS) or own is None
            return _headed(WINDOW if setup.two_pools else FULL, part, part if mine else own, setup)
        case LatentAttention():
            return _latent(part, setup)
        case Indexer():
            return _index(model, part, setup)
        case Recurrent():
            return _states(model, part, setup)
        case CompressedAttention():
            return compressed_slots(part, model.fields.int("qk_rope_head_dim", 64))
        case CrossAttention() | Shared() | NoCache():
            return []
        case _:
            assert_never(part)


Headed = FullAttention | SlidingAttention | ChunkedAttention


def _headed(pool: str, counted: Headed, held: Headed | None, setup: Setup) -> list[Slot]:
    """Keys and values: the memory is divided by ``counted``, the buffers are as ``held``."""
    held = held or counted
    if setup.cache in FP4:
        return _fp4(pool, held, setup)
    found = []
    for side, wide, wide_held in (
        ("keys", counted.head_dim, held.head_dim),
        ("values", counted.v_head_dim, held.v_head_dim),
    ):
        if not wide_held:
            continue
        slab = vectors("kv", side, ONE, held.num_kv_heads, wide_held, _element(setup))
        found.append(_slot(pool, slab, _element(setup).row_bytes(counted.num_kv_heads * wide)))
        if setup.cache == MXFP8:
            if wide_held % MXFP8_GROUP:
                raise EngineError(f"SGLang's mxfp8 cache wants widths that {MXFP8_GROUP} divides, not {wide_held}", SOURCE)
            found.append(_slot(pool, _bytes(f"{side} scales", held.num_kv_heads * wide_held // MXFP8_GROUP)))
    return found


def _element(setup: Setup) -> Dtype:
    return find_dtype(FP8 if setup.cache == MXFP8 else setup.cache)


def _bytes(label: str, row: int, component: str = "kv", note: str = "") -> Slab:
    return Slab(component, label, ONE, row, 1, row, "uint8", note)


def _fp4(pool: str, part: Headed, setup: Setup) -> list[Slot]:
    """Half a byte a value, a byte of scale for 16: of a head for nvfp4, of all heads together for fp4_mx_block16."""
    if pool == WINDOW:
        raise EngineError(f"SGLang's window pool of {setup.cache} is not modelled", SOURCE)
    heads, width = part.num_kv_heads, part.head_dim
    scales = heads * (width // FP4_GROUP) if setup.cache == "nvfp4" else heads * width // FP4_GROUP
    layouts = _scale_layouts(setup) if setup.cache == "nvfp4" else 1
    found = []
    for side in ("keys", "values"):
        found.append(_slot(pool, Slab("kv", side, ONE, heads * (width // 2), heads, width, setup.cache)))
        found.append(_slot(pool, _bytes(f"{side} scales", scales * layouts)))
    return found


def _scale_layouts(setup: Setup) -> int:
    """FlashInfer's workspace wants scales by token, trtllm_mha on SM 10.0 its own: each has its buffer."""
    readers = (setup.backends.prefill, setup.backends.decode)
    native = "trtllm_mha" in readers and setup.given.platform == SM100
    by_token = "flashinfer" in readers or setup.given.platform != SM100
    return int(native) + int(by_token)


def workspace_row(setup: Setup, own: FullAttention | None) -> int:
    """nvfp4 read by FlashInfer: a token of one layer in fp8, for all layers together."""
    if setup.cache != "nvfp4" or own is None or setup.backends.prefill != "flashinfer" or setup.shape.latent:
        return 0
    return own.num_kv_heads * own.head_dim * 2


def _latent(part: LatentAttention, setup: Setup) -> list[Slot]:
    width = part.row_width
    if part.window is not None and setup.two_pools:
        raise EngineError("SGLang's two pools of latents are not modelled", SOURCE)
    if setup.cache in FP4:
        scales = width // FP4_GROUP
        return [
            _slot(FULL, Slab("kv", "latent", ONE, width // 2, 1, width, setup.cache)),
            _slot(FULL, _bytes("latent scales", scales)),
        ]
    if setup.shape.sparse and setup.cache == FP8 and not _raw_rows(setup):
        scaled = part.kv_lora_rank + part.kv_lora_rank // INDEX_GROUP * 4 + part.rope_dim * 2
        note = "fp8 values, float32 scales and bfloat16 of rope"
        return [_slot(FULL, Slab("kv", "latent", ONE, scaled, 1, width, FP8, note))]
    return [_slot(FULL, vectors("kv", "latent", ONE, 1, width, _element(setup)))]


def _raw_rows(setup: Setup) -> bool:
    """TensorRT-LLM's kernels, and TileLang's where both phases take them, read fp8 rows without scales."""
    return "trtllm" in setup.backends.sparse or set(setup.backends.sparse) == {"tilelang"}


def _index(model: Model, part: Indexer, setup: Setup) -> list[Slot]:
    width = part.index_head_dim
    if setup.shape.one_of(MINIMAX_M3):
        return _minimax_index(width, setup)
    if not setup.shape.sparse:
        raise EngineError(f"SGLang's index keys of {setup.shape.names} are not modelled", SOURCE)
    row = width + width // INDEX_GROUP * 4
    pooled = setup.shape.pooled
    note = "fp8 values and float32 scales" + (f", a row for {pooled} tokens" if pooled > 1 else "")
    if pooled == 1:
        return [_slot(FULL, Slab("index", "index keys", ONE, row, 1, width, "fp8", note))]
    return _pooled_index(model, row, width, setup, note)


def _pooled_index(model: Model, row: int, width: int, setup: Setup, note: str) -> list[Slot]:
    """A row for several tokens; the open group's keys and scores stand apart for every request, where it is compressed."""
    pooled = setup.shape.pooled
    slab = Slab("index", "index keys", ONE, row, 1, width, "fp8", note)
    found = [Slot(FULL, slab, ceil_div(row, pooled), tokens=pooled)]
    if model.fields.raw("index_kpool_compress") is True:
        tail = (pooled + (setup.draft.tokens if setup.draft else 0)) * width * 2 * 2
        found.append(Slot(TAIL, _bytes("index tails", tail, "index"), 0))
    return found


def _minimax_index(width: int, setup: Setup) -> list[Slot]:
    """MiniMax-M3: keys of the model's own type, in fp8 where the kernels read them so."""
    eight = setup.cache == FP8 and (
        setup.given.platform == SM90 or (setup.given.platform == SM100 and setup.backends.attention == "trtllm_mha")
    )
    return [_slot(FULL, vectors("index", "index keys", ONE, 1, width, find_dtype(FP8) if eight else setup.types.model))]


def _states(model: Model, part: Recurrent, setup: Setup) -> list[Slot]:
    """A convolution's window in bfloat16 whatever the model's type; temporal states in float32 unless said."""
    said = model.fields.raw("mamba_ssm_dtype")
    temporal = setup.state_type or (find_dtype(said) if isinstance(said, str) else FLOAT32)
    convs = replace(part, convs=tuple(replace(conv, dtype="bfloat16") for conv in part.convs))
    found = [_slot(STATE, slab) for slab in recurrent_slabs(convs, setup.types, state_dtype=temporal)]
    return found + _verified(convs, found, setup)


def _verified(part: Recurrent, states: list[Slot], setup: Setup) -> list[Slot]:
    """Speculative decoding: a state for every token that is verified, and the windows' columns, for each running request."""
    if setup.draft is None:
        return []
    drafted, found = setup.draft.tokens, []
    kernels = iter(part.convs)
    for slot in states:
        if slot.slab.label == "conv":
            conv = next(kernels)
            overlapping = part.variant != "kda" and (setup.given.topk or 1) <= 1
            columns = drafted + conv.kernel - 2 if overlapping else drafted * (conv.kernel - 1)
            row = slot.slab.row_bytes // (conv.kernel - 1) * columns
        else:
            row = drafted * slot.slab.row_bytes
        found.append(Slot(REQUEST, replace(slot.slab, row_bytes=row, label=f"verified {slot.slab.label}"), 0))
    return found
