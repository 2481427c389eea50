"""What transformers' cache classes keep of one part: rows by class, types by release.

Sources: transformers 5.24.0 ``cache_utils.py`` (DynamicLayer, DynamicSlidingWindowLayer, DynamicIndexedLayer,
StaticLayer, StaticSlidingWindowLayer, LinearAttentionLayer), 4.57.6 ``cache_utils.py`` and the hybrids' own classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcalc.core.counting import ALL, Reach, Slab, Types, key_value, recurrent_slabs, slabs_of, vectors
from kvcalc.core.layers import ChunkedAttention, FullAttention, LatentAttention, Part, Recurrent, SlidingAttention
from kvcalc.dtypes import FLOAT32

WINDOW_NOTE = "transformers keeps window - 1 positions: the newest token's own key is joined at its step"
WINDOW_OF_ONE_NOTE = "a window of 1 keeps every position: the slice [-1 + 1:] is the whole"
STATIC_WINDOW_NOTE = "allocated once: the window's positions, or max-cache-len if that is less"
STATIC_NOTE = "allocated once for max-cache-len positions"
EXPANDED_NOTE = "this release caches MLA expanded: keys and values of every head"
SPLIT_NOTE = "keys hold the latent, values the rope part"
KERNEL_NOTE = "the whole kernel's columns, not one less"
MODEL_STATE_NOTE = "in the model's own type"
FLOAT_STATE_NOTE = "float32 whatever the model's type"

# Code that keeps one column less than the kernel: RecurrentGemma outside the cache object, Zaya by its own padding.
SHORT_CONV_VARIANTS = ("rg_lru", "cca", "ngram")


@dataclass(frozen=True, slots=True)
class Rules:
    """How one request is held: class of cache, and what its release and model type do differently."""

    static: bool = False
    expanded_mla: bool = False
    model_type_states: bool = False  # older releases' Mamba classes
    behind: str = ""  # count the storage behind a window instead: after "prefill", or after a "step" of one token
    extra_rows: int = 0  # rows of a learned prompt in front of the tokens


def slabs(part: Part, types: Types, rules: Rules) -> tuple[Slab, ...]:
    """The arrays of one part under ``rules``."""
    match part:
        case SlidingAttention(heads, k_width, v_width, window) | ChunkedAttention(heads, k_width, v_width, window):
            reach, note = _window(window, rules)
            return key_value(reach, heads, k_width, v_width, types, note)
        case LatentAttention():
            return _latent(part, types, rules)
        case Recurrent():
            return _recurrent(part, types, rules)
        case FullAttention(heads, k_width, v_width):
            return key_value(ALL, heads, k_width, v_width, types, STATIC_NOTE if rules.static else "")
    return slabs_of(part, types)


def _window(window: int, rules: Rules) -> tuple[Reach, str]:
    if rules.static:
        return Reach(cap=window), STATIC_WINDOW_NOTE
    if window == 1:
        return ALL, WINDOW_OF_ONE_NOTE
    if rules.behind:  # the slice's parent: the whole prompt, or the window - 1 before the last token and that token
        return ALL if rules.behind == "prefill" else Reach(cap=window), WINDOW_NOTE
    return Reach(cap=window - 1), WINDOW_NOTE


def _latent(part: LatentAttention, types: Types, rules: Rules) -> tuple[Slab, ...]:
    reach, note = (ALL, "") if part.window is None else _window(part.window, rules)
    if rules.expanded_mla:
        k_width = part.nope_dim + part.rope_dim
        return key_value(reach, part.num_heads, k_width, part.v_head_dim, types, EXPANDED_NOTE)
    said = "; ".join(word for word in (SPLIT_NOTE, note) if word)
    latent = vectors("kv", "latent", reach, 1, part.kv_lora_rank, types.k, said)
    if not part.rope_dim:
        return (latent,)
    return (latent, vectors("kv", "rope keys", reach, 1, part.rope_dim, types.k, note))


def _recurrent(part: Recurrent, types: Types, rules: Rules) -> tuple[Slab, ...]:
    columns = -1 if part.variant in SHORT_CONV_VARIANTS else 0
    # what a file says of its states' type is not read: float32, unless the code keeps the model's own
    older = rules.model_type_states and part.variant in ("mamba", "mamba2")
    states = tuple(replace(state, dtype=None if older else state.dtype and FLOAT32.name) for state in part.states)
    found = recurrent_slabs(replace(part, states=states), types, columns)
    return tuple(replace(slab, note=_state_note(slab, types, columns)) for slab in found)


def _state_note(slab: Slab, types: Types, columns: int) -> str:
    if slab.label == "conv":
        return "" if columns else KERNEL_NOTE
    return MODEL_STATE_NOTE if slab.dtype == types.model.name else FLOAT_STATE_NOTE
