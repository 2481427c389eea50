"""Model types whose code in transformers does something of its own with its cache: one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvcalc.architectures.class_defaults import CLASS_DEFAULTS
from kvcalc.core.counting import Reach, Slab, Types, key_value, vectors
from kvcalc.core.layers import Conv, FullAttention, Layer, Part, Recurrent, Shared, SlidingAttention
from kvcalc.core.model import Array
from kvcalc.dtypes import FLOAT32, find_dtype
from kvcalc.engines.releases import Rules
from kvcalc.engines.transformers.layers import Case, slabs
from kvcalc.units import round_up
from kvcalc.values import value

LayersRule = Callable[[Case, tuple[Layer, ...]], tuple[Layer, ...]]
SlabsRule = Callable[[Part, Types, Case], tuple[Slab, ...]]
SharedRule = Callable[[Case], tuple[Array, ...]]


def _as_is(case: Case, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:  # noqa: ARG001 - a rule like the others
    return layers


def _nothing_shared(case: Case) -> tuple[Array, ...]:  # noqa: ARG001 - a rule like the others
    return ()


@value
class Quirk:
    """What one model type's code does besides the cache classes' own rules. ``until`` names the change that ended it."""

    layers: LayersRule = _as_is
    slabs: SlabsRule = slabs
    shared: SharedRule = _nothing_shared
    model_type_states: bool = False
    note: str = ""
    until: str = ""


# --- layers ---------------------------------------------------------------------------------------------------------


def broadcast(case: Case, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Falcon's new decoder repeats its KV heads to the query heads before it caches them."""
    if not case.model.fields.flag("new_decoder_architecture"):
        return layers
    return tuple(
        tuple(replace(part, num_kv_heads=part.num_heads) if isinstance(part, FullAttention) else part for part in layer)
        for layer in layers
    )


def by_window(case: Case, layers: tuple[Layer, ...], kinds_by_class: bool) -> tuple[Layer, ...]:
    """Where neither the class nor the file names the layers' kinds, the cache slides in all of them once a window is set.

    It does so for Llama too, whose attention reads no window (5.24.0 ``get_layer_types_and_kwargs``).
    """
    fields = case.model.fields
    if case.model.format not in ("hf", "preset") or kinds_by_class or fields.raw("layer_types") is not None:
        return layers
    window = next((size for name in ("sliding_window", "attention_chunk_size") if (size := fields.int_or_none(name))), None)
    if window is None or case.model.model_type not in CLASS_DEFAULTS:
        return layers
    return tuple(tuple(_sliding(part, window) for part in layer) for layer in layers)


def convolution_everywhere(case: Case, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """LFM2's older cache class allocates a convolution for its attention layers too."""
    fields = case.model.fields
    conv = Recurrent("short_conv", (Conv(fields.int("hidden_size"), fields.int("conv_L_cache", 3)),))
    return tuple(layer if isinstance(layer[0], Recurrent) else (*layer, conv) for layer in layers)


def one_wider(case: Case, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """MiMo-V2's class reads ``sliding_window_size`` as the tokens before the newest: its window is one wider."""
    size = case.model.fields.int_or_none("sliding_window_size")
    if size is None:
        return layers
    return tuple(
        tuple(replace(part, window=size + 1) if isinstance(part, SlidingAttention) else part for part in layer)
        for layer in layers
    )


def every_layer_slides(case: Case, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Qwen2-MoE named no layer kinds in older releases: with ``use_sliding_window`` the cache slid in every layer."""
    window = case.model.fields.int_or_none("sliding_window")
    if not case.model.fields.flag("use_sliding_window") or window is None:
        return layers
    return tuple(tuple(_sliding(part, window) for part in layer) for layer in layers)


def _sliding(part: Part, window: int) -> Part:
    if not isinstance(part, FullAttention):
        return part
    return SlidingAttention(part.num_kv_heads, part.head_dim, part.v_head_dim, window, part.num_heads)


# --- arrays ---------------------------------------------------------------------------------------------------------


def float32_keys(part: Part, types: Types, case: Case) -> tuple[Slab, ...]:
    """CTRL computed its keys in float32."""
    return slabs(part, replace(types, k=FLOAT32, v=FLOAT32), case)


def whole_windows(part: Part, types: Types, case: Case) -> tuple[Slab, ...]:
    """RecurrentGemma's attention wrote into a window allocated whole; behind a longer prompt's slice stands the prompt."""
    if not isinstance(part, SlidingAttention):
        return slabs(part, types, case)
    rows = max(part.window, case.tokens) if case.behind and not case.decoded else part.window
    note = "this release allocates the whole window at once"
    return key_value(Reach(fixed=rows), part.num_kv_heads, part.head_dim, part.v_head_dim, types, note)


def prompt_rows(part: Part, types: Types, case: Case) -> tuple[Slab, ...]:
    """CPM-Ant puts ``prompt_length`` learned rows before the tokens and caches them with these."""
    rows = case.rows + (0 if case.static else case.model.fields.int("prompt_length", 32, minimum=0))
    return tuple(replace(slab, reach=Reach(fixed=rows)) for slab in slabs(part, types, case))


def reference_window(part: Part, types: Types, case: Case) -> tuple[Slab, ...]:
    """Unlimited-OCR: the prompt's tokens stay, its window slides over decoded ones."""
    window = case.model.fields.int_or_none("sliding_window")
    if not isinstance(part, FullAttention) or window is None:
        return slabs(part, types, case)
    if case.capacity is not None:
        ring = min(window, case.capacity)
        rows = min(case.prompt, case.capacity - ring) + ring
    else:
        kept = window if case.behind else window - 1
        rows = case.prompt + (case.decoded if window == 1 else min(case.decoded, kept))
    note = "the prompt's positions, and a window of the decoded ones"
    return key_value(Reach(fixed=rows), part.num_kv_heads, part.head_dim, part.v_head_dim, types, note)


def hidden_states(part: Part, types: Types, case: Case) -> tuple[Slab, ...]:
    """Reformer keeps its layers' inputs in float32, and the int64 hash buckets of LSH layers past their first chunk."""
    rows = _padded_rows(case) if case.behind else case.tokens
    if isinstance(part, FullAttention):
        note = "in float32 whatever the model's type"
        return (vectors("kv", "hidden states", Reach(fixed=rows), 1, part.head_dim, FLOAT32, note),)
    if case.tokens <= case.model.fields.int("lsh_attn_chunk_length", 64):
        return ()
    return tuple(replace(slab, reach=Reach(fixed=rows)) for slab in slabs(part, types, case))


def _padded_rows(case: Case) -> int:
    fields = case.model.fields
    chunks = {fields.int("lsh_attn_chunk_length", 64), fields.int("local_attn_chunk_length", 64)}
    longest = max(chunks)
    return round_up(case.tokens, longest) if case.tokens > longest else case.tokens


# --- arrays of no layer ---------------------------------------------------------------------------------------------


def sequence_offset(case: Case) -> tuple[Array, ...]:
    """Counts an xLSTM's tokens in an int64 tensor of one element; a plain number before."""
    if "xlstm_offset" not in case.release:
        return ()
    return (Array("other", "sequence offset", 1, 8, 1, 1, "int64"),)


def index_positions(case: Case) -> tuple[Array, ...]:
    """Qwen4-Exp keeps its positions as int64: one expanded row after the prompt, three rows a sequence once it grew."""
    rows = 3 * case.batch if case.decoded else 1
    return (Array("index", "index positions", rows, 8 * case.tokens, 1, case.tokens, "int64"),)


def kept_for_sharing(case: Case) -> tuple[Array, ...]:
    """Gemma 3n's last sliding layer before those that share kept what its last step saw, for them to read."""
    owner = _last_sliding_owner(case)
    if owner is None or (case.behind and not case.static):  # then the slice's parent is counted, and this is that parent
        return ()
    seen = case.tokens if not case.decoded else min(case.tokens, owner.window)
    if case.static:
        rows = seen if not case.decoded and seen > owner.window else 0
    else:
        rows = seen - (case.tokens if owner.window == 1 else min(case.tokens, owner.window - 1))
    width = owner.num_kv_heads * owner.head_dim
    row = find_dtype(case.dtype).row_bytes(2 * width)
    note = "beyond the window: keys and values that the sharing layers read"
    return (Array("kv", "kept for sharing", case.batch * rows, row, 2 * owner.num_kv_heads, owner.head_dim, case.dtype, note),)


def _last_sliding_owner(case: Case) -> SlidingAttention | None:
    layers = case.model.layers
    owners = [layer for layer in layers if not isinstance(layer[0], Shared)]
    if len(owners) == len(layers):
        return None
    sliding = (part for layer in reversed(owners) for part in layer if isinstance(part, SlidingAttention))
    return next(sliding, None)


QUIRKS: dict[str, tuple[Quirk, ...]] = {
    "falcon": (Quirk(layers=broadcast, note="Falcon's new decoder caches its KV heads once for every query head"),),
    "ctrl": (Quirk(slabs=float32_keys, until="model_type_keys"),),
    "lfm2": (Quirk(layers=convolution_everywhere, until="lean_hybrids"),),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), (Quirk(shared=kept_for_sharing, until="windows_alone"),)),
    "mimo_v2_flash": (Quirk(layers=one_wider, note="MiMo-V2's window is sliding_window_size + 1 here"),),
    "qwen2_moe": (Quirk(layers=every_layer_slides, until="named_layers"),),
    "recurrent_gemma": (Quirk(slabs=whole_windows, until="growing_windows"),),
    "cpmant": (Quirk(slabs=prompt_rows, note="CPM-Ant caches its learned prompt rows before the tokens"),),
    "unlimited_ocr_text": (Quirk(slabs=reference_window),),
    "reformer": (Quirk(slabs=hidden_states),),
    "xlstm": (Quirk(shared=sequence_offset),),
    "qwen4_exp_text": (Quirk(shared=index_positions),),
    **{
        name: (Quirk(model_type_states=True, until="float32_states"),)
        for name in ("mamba", "falcon_mamba", "mamba2", "bamba", "falcon_h1", "granitemoehybrid", "zamba2")
    },
}
QUIRKS["lfm2_moe"] = QUIRKS["lfm2"]

NO_STATIC: dict[str, str] = {
    "minimax": "MiniMax has a cache class of its own, without a static form",
    "rwkv": "RWKV's state is no cache object",
    "xlstm": "xLSTM has a cache class of its own, without a static form",
    "deepseek_v4": "its compressed layers have no static class",
    "reformer": "Reformer has a cache class of its own, without a static form",
    "cpmant": "its learned prompt rows don't fit a static mask",
}
# Position tables that a static cache can't be longer than: type → the field that sizes them.
STATIC_LIMITS: dict[str, str] = {"mpt": "max_seq_len", "gpt_neo": "max_position_embeddings"}


def quirk_of(model_type: str, release: Rules) -> Quirk:
    """The row that holds for a type under a release, or an empty one."""
    rows = QUIRKS.get(model_type, ())
    return next((quirk for quirk in rows if not quirk.until or quirk.until not in release), Quirk())


__all__ = ["NO_STATIC", "QUIRKS", "STATIC_LIMITS", "Quirk", "quirk_of"]
