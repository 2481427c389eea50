"""What one layer caches on one rank, and what all caches of a model share.

Source: vLLM 0.32.0, ``vllm/config/model.py`` (``get_num_kv_heads``) and the model classes.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcalc.core.layers import Layer, NoCache, Recurrent, Shared
from kvcalc.core.model import Model
from kvcalc.engines.releases import Rules
from kvcalc.engines.vllm.backends import Backend
from kvcalc.engines.vllm.models import Reading, reading_of
from kvcalc.engines.vllm.options import Settings
from kvcalc.errors import EngineError

ELEMENT_BYTES = 2  # a model runs in a 16-bit type, float32 checkpoints too


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of one layer on one rank: bytes a token, or a state's bytes."""

    layer: int
    kind: str
    label: str
    component: str = "kv"
    token_bytes: int = 0
    state_bytes: int = 0
    window: int = 0
    tokens_per_row: int = 1
    align_page: int = 1
    own_block: int = 0  # a block size of its own, whatever the model's
    checkpoint_blocks: int = 0
    checkpoint_step: int = 0  # tokens at whose multiples a prefill can give its state out; 0: blocks needn't keep to it
    backend: Backend | None = None
    row_bytes: int = 0  # of one stored row, where sparse kernels need whole rows apart
    heads: int = 1
    k_width: int = 0
    v_width: int = 0
    dtype: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What every cache of a model shares."""

    model: Model
    settings: Settings
    reading: Reading
    cache_dtype: str
    hybrid: bool  # states beside attention

    @property
    def rules(self) -> Rules:
        """Of the release."""
        return self.settings.rules

    @property
    def tp(self) -> int:
        """Tensor-parallel ranks."""
        return self.settings.tp


def heads_on_rank(total: int, context: Context) -> int:
    """KV heads of one rank: split, or one head on several ranks. Raises EngineError."""
    tp = context.tp
    if not total:
        raise EngineError(
            "A layer that attends has 0 KV heads, which vLLM's classes can't build",
            "the model's class in vllm/model_executor/models",
            "check num_key_value_heads, or the file's head_count_kv",
        )
    if total >= tp and total % tp == 0:
        return total // tp
    if total < tp and tp % total == 0 and not context.reading.kv_heads_must_split:
        return 1
    raise EngineError(
        f"{total} KV heads can't be split over {tp} tensor-parallel ranks",
        "the model's class in vllm/model_executor/models",
        "the larger of the two must be a multiple of the smaller"
        if not context.reading.kv_heads_must_split
        else "take fewer ranks",
    )


def make_context(model: Model, settings: Settings, layers: tuple[Layer, ...], cache_dtype: str) -> Context:
    """The context of a model's caches."""
    parts = [part for layer in layers for part in layer]
    states = any(isinstance(part, Recurrent) for part in parts)
    attends = any(not isinstance(part, Recurrent | NoCache | Shared) for part in parts)
    return Context(model, settings, reading_of(model), cache_dtype, states and attends)
