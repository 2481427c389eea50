"""What transformers' cache classes keep of one part: rows by class, types by release.

Sources: transformers 5.24.0 ``cache_utils.py`` (DynamicLayer, DynamicSlidingWindowLayer, DynamicIndexedLayer,
StaticLayer, StaticSlidingWindowLayer, LinearAttentionLayer), 4.57.6 ``cache_utils.py`` and the hybrids' own classes.
"""

from __future__ import annotations

from dataclasses import replace

from kvcalc.core.counting import ALL, Reach, Slab, Types, key_value, recurrent_slabs, slabs_of, vectors
from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    LatentAttention,
    Part,
    Recurrent,
    SlidingAttention,
)
from kvcalc.core.model import Model
from kvcalc.dtypes import FLOAT32
from kvcalc.engines.releases import Rules
from kvcalc.values import value

WINDOW_NOTE = "transformers keeps window - 1 positions: the newest token's own key is joined at its step"
WINDOW_OF_ONE_NOTE = "a window of 1 keeps every position: the slice [-1 + 1:] is the whole"
STATIC_WINDOW_NOTE = "allocated once: the window's positions, or max-cache-len if that is less"
STATIC_NOTE = "allocated once for max-cache-len positions"
EXPANDED_NOTE = "this release caches MLA expanded: keys and values of every head"
SPLIT_NOTE = "keys hold the latent, values the rope part"
KERNEL_NOTE = "the whole kernel's columns, not one less"
MODEL_STATE_NOTE = "in the model's own type"
FLOAT_STATE_NOTE = "float32 whatever the model's type"
SAME_ARRAY_NOTE = "keys and values are one tensor, counted once"
TWICE_NOTE = "keys and values are the same rows, held twice"
OPEN_NOTE = "tokens that wait for their compressed row, in the model's type"

# Code that keeps one column less than the kernel: RecurrentGemma outside the cache object, Zaya by its own padding.
OWN_TYPE_STATES = ("lightning", "mlstm")  # MiniMaxCache and xLSTMCache take the model's type
ONE_COLUMN_LESS = ("rg_lru", "cca", "ngram")


@value
class Case:
    """One request as the library sees it: the sizes, the class of cache, and what its release and type do differently."""

    model: Model
    release: Rules
    dtype: str
    batch: int
    tokens: int
    prompt: int  # tokens that came at once; the rest came one by one
    capacity: int | None = None  # of a static cache
    behind: bool = False  # count the storage that a slice keeps alive instead of the slice
    model_type_states: bool = False  # older releases' Mamba classes

    @property
    def static(self) -> bool:
        """Whether everything is allocated at once."""
        return self.capacity is not None

    @property
    def rows(self) -> int:
        """Positions that a layer of every position holds."""
        return self.tokens if self.capacity is None else self.capacity

    @property
    def decoded(self) -> int:
        """Tokens that came one by one."""
        return self.tokens - self.prompt


def slabs(part: Part, types: Types, case: Case) -> tuple[Slab, ...]:
    """The arrays of one part."""
    match part:
        case SlidingAttention(heads, k_width, v_width, window) | ChunkedAttention(heads, k_width, v_width, window):
            reach, note = window_reach(window, case)
            return key_value(reach, heads, k_width, v_width, types, note)
        case LatentAttention():
            return _latent(part, types, case)
        case Recurrent():
            return _recurrent(part, types, case)
        case CompressedAttention():
            return _compressed(part, types, case)
        case FullAttention(heads, k_width, v_width):
            return key_value(ALL, heads, k_width, v_width, types, STATIC_NOTE if case.static else "")
    return slabs_of(part, types)


def window_reach(window: int, case: Case) -> tuple[Reach, str]:
    """The rows of a window, and why."""
    if case.static:
        return Reach(cap=window), STATIC_WINDOW_NOTE
    if window == 1:
        return ALL, WINDOW_OF_ONE_NOTE
    if case.behind:  # the slice's parent: the whole prompt, or the window - 1 before the last token and that token
        return Reach(cap=window) if case.decoded else ALL, WINDOW_NOTE
    return Reach(cap=window - 1), WINDOW_NOTE


def _latent(part: LatentAttention, types: Types, case: Case) -> tuple[Slab, ...]:
    reach, note = (ALL, "") if part.window is None else window_reach(part.window, case)
    if "latent_mla" not in case.release:
        k_width = part.nope_dim + part.rope_dim
        return key_value(reach, part.num_heads, k_width, part.v_head_dim, types, EXPANDED_NOTE)
    said = "; ".join(word for word in (SPLIT_NOTE, note) if word)
    latent = vectors("kv", "latent", reach, 1, part.kv_lora_rank, types.k, said)
    if not part.rope_dim:
        return (latent,)
    return (latent, vectors("kv", "rope keys", reach, 1, part.rope_dim, types.k, note))


def _recurrent(part: Recurrent, types: Types, case: Case) -> tuple[Slab, ...]:
    columns = -1 if part.variant in ONE_COLUMN_LESS else 0
    if part.variant == "rg_lru" and case.behind and (case.decoded or case.tokens == 1):
        columns = 0  # each step keeps a slice of the window that it made with the new column
    # what a file says of its states' type is not read: float32, unless the code keeps the model's own
    own = part.variant in OWN_TYPE_STATES or (case.model_type_states and part.variant in ("mamba", "mamba2"))
    states = tuple(replace(state, dtype=None if own else state.dtype and FLOAT32.name) for state in part.states)
    found = recurrent_slabs(replace(part, states=states), types, columns)
    return tuple(replace(slab, note=_state_note(slab, types, columns)) for slab in found)


def _state_note(slab: Slab, types: Types, columns: int) -> str:
    if slab.label == "conv":
        return "" if columns else KERNEL_NOTE
    return MODEL_STATE_NOTE if slab.dtype == types.model.name else FLOAT_STATE_NOTE


def _compressed(part: CompressedAttention, types: Types, case: Case) -> tuple[Slab, ...]:
    """DeepSeek V4 (``models/deepseek_v4``, HCA and CSA caches): a window, compressed rows, and the open group.

    Of T tokens at one row for every r: T // r compressed rows, T mod r open ones in two arrays. CSA layers (those with
    an indexer) project two series, so their open rows are twice as wide, keep an indexer's copy of it all, and the last
    closed group: its rows in the model's type and its gates in float32.
    """
    reach, note = window_reach(part.window, case)
    if not part.ratio:  # the library's plain window class, which is handed the same rows twice
        return key_value(reach, 1, part.head_dim, part.head_dim, types, f"{TWICE_NOTE}; {note}")
    found = [vectors("kv", "window rows", reach, 1, part.head_dim, types.k, f"{SAME_ARRAY_NOTE}; {note}")]
    series = 2 if part.index_head_dim else 1
    for component, width in (("kv", part.head_dim), ("index", part.index_head_dim)):
        if width:
            found += _groups(component, width, series, part.ratio, types, case)
    return tuple(found)


def _groups(component: str, width: int, series: int, ratio: int, types: Types, case: Case) -> list[Slab]:
    found = [vectors(component, "compressed rows", Reach(ratio=ratio), 1, width, types.k)]
    rows = _open_rows(ratio, case)
    found.append(vectors("state", "open rows and gates", Reach(fixed=2 * rows), 1, series * width, types.k, OPEN_NOTE))
    if series == 2 and case.tokens >= ratio:
        found.append(vectors("state", "last group", Reach(fixed=ratio), 1, width, types.k))
        found.append(vectors("state", "last group's gates", Reach(fixed=ratio), 1, width, FLOAT32, FLOAT_STATE_NOTE))
    return found


def _open_rows(ratio: int, case: Case) -> int:
    """Open rows; behind them stands the whole prompt's projection, or the open rows of the step before and one more."""
    if not case.behind:
        return case.tokens % ratio
    return (case.tokens - 1) % ratio + 1 if case.decoded else case.tokens
