"""MLX-LM 0.32.2 (Apple silicon): one growing buffer a layer, in steps of 256 positions; no blocks, no pool.

- ``KVCache`` grows by whole steps of 256; a buffer whose end isn't a step's is first cut to what it holds, so a prompt that
  continues another (``-o turns=300,300``) leaves sizes that are no multiple of 256.
- ``RotatingKVCache`` (windows of the model classes that make one, ``-o max-kv-size``) ends at its window; while a prompt
  chunk of S positions runs it holds up to window + S − 1.
- ``ChunkedKVCache`` (Llama 4) is cut to the chunk before each step, and grows by one step beyond it.
- ``QuantizedKVCache`` (``-o kv-bits``) holds packed codes, and a scale and a bias for each 64 of them.

The prompt runs in chunks of 2,048 and its last position alone. Rules: mlx_lm ``models/cache.py``, ``generate.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from kvcalc.core.counting import Reach, Slab, Types, recurrent_slabs, vectors
from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Part,
    Recurrent,
    SlidingAttention,
    kind_of,
    runs,
)
from kvcalc.core.model import LayerTally, Model, Request, Tally
from kvcalc.dtypes import FLOAT32
from kvcalc.engines.base import SERVED, Engine, Memory, Plan, Serving
from kvcalc.engines.options import Option
from kvcalc.engines.releases import Releases, Rules
from kvcalc.engines.requests import counted_layers, resolve_request
from kvcalc.errors import EngineError, UsageError
from kvcalc.units import ceil_div, parse_count, round_up

STEP = 256
PREFILL_STEP = 2048
QUANTIZED_START = 5000
GROUP_SIZE = 64
_BITS = ("2", "3", "4", "5", "6", "8")

# Classes whose make_cache gives windowed layers a rotating cache; the others keep every position.
ROTATING = frozenset(
    {
        "afmoe",
        "cohere2",
        "exaone4",
        "exaone_moe",
        "gemma3",
        "gemma3_text",
        "gemma3n",
        "gemma3n_text",
        "gemma4",
        "gemma4_text",
        "gpt_oss",
        "laguna",
        "mellum",
        "mimo_v2_flash",
        "ministral3",
        "muse_glimmer",
        "olmo3",
        "plamo3",
        "recurrent_gemma",
        "step3p5",
    }
)
# Classes that keep a latent model's keys and values expanded.
EXPANDED = frozenset({"deepseek_v2", "minicpm3", "youtu"})
FLOAT32_STATES = ("gated_delta_net", "kda")


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a sequence's positions arrive: prompts, each in chunks, then one by one."""

    prompts: tuple[int, ...]
    prefill_step: int
    decoded: int

    def steps(self) -> list[tuple[int, int]]:
        """(positions of a forward pass, how many such passes): each prompt's chunks, and its last position alone."""
        found = []
        for prompt in self.prompts:
            whole, rest = divmod(prompt - 1, self.prefill_step)
            found += [(self.prefill_step, whole), (rest, 1), (1, 1)]
        return [(new, count) for new, count in found if new and count]


@dataclass(frozen=True, slots=True)
class Rows:
    """Buffer rows in the end, and the most that there were on the way."""

    held: int
    peak: int


def growing_rows(plan: Arrival) -> Rows:
    """KVCache: ``ceil(new / 256) · 256`` further rows whenever the new ones don't fit."""
    size = offset = 0
    for new, count in plan.steps():
        periods = max(count - STEP, 0) // STEP  # after 256 equal passes the end stands alike against the steps again
        for _ in range(count - periods * STEP):
            if offset + new > size:
                size = (offset if offset % STEP else size) + round_up(new, STEP)
            offset += new
        size, offset = size + periods * STEP * new, offset + periods * STEP * new
    size += STEP * max(0, ceil_div(offset + plan.decoded - size, STEP))
    return Rows(size, size)


def rotating_rows(plan: Arrival, window: int) -> Rows:
    """RotatingKVCache: chunks are appended to at most ``window`` − 1 rows, single positions grow it up to ``window``."""
    size = offset = peak = 0
    for new, count in plan.steps():
        if new > 1:
            kept = min(size, offset) if count == 1 else offset + (count - 1) * new  # nothing is spare after a chunk
            size = min(kept, window - 1) + new
        else:
            size = _in_place(size, offset + count, window)
        offset += count * new
        peak = max(peak, size)
    size = _in_place(size, offset + plan.decoded, window) if plan.decoded else size
    return Rows(size, max(peak, size))


def _in_place(size: int, tokens: int, window: int) -> int:
    """Rows once positions have come one by one up to ``tokens``: steps of 256 as they are needed, none beyond the window."""
    return min(window, size + STEP * max(0, ceil_div(tokens - size, STEP)))


def chunked_rows(plan: Arrival, chunk: int) -> Rows:
    """ChunkedKVCache: cut to ``chunk`` rows before each step, one step of 256 beyond it while tokens come one by one."""
    total = sum(plan.prompts) + plan.decoded
    if total <= chunk:
        return growing_rows(plan)
    longest = max((new for new, _ in plan.steps()), default=1)
    return Rows(chunk + STEP, max(chunk + STEP, min(total, chunk + round_up(longest, STEP))))


def allocate(model: Model, request: Request) -> Tally:
    """Every layer's buffer after the prompt and the tokens that followed. Raises EngineError, UsageError."""
    filled, types, resolved = resolve_request(model, _whole(request))
    _check_types(types)
    settings = _settings(filled)
    tokens, sequences = max(length for length, _ in filled.sequences), sum(count for _, count in filled.sequences)
    plan = _arrival(filled, tokens)
    found, peak = [], 0
    for first, count, layer in runs(counted_layers(model, filled)):
        sized = [_slab_rows(slab, plan) for part in layer for slab in slabs_of(part, model.model_type, types, settings, tokens)]
        arrays = tuple(slab.array(((0, sequences),)) for slab, _ in sized)
        found.append(LayerTally(first, count, layer, kind_of(layer), arrays, _positions(sized, tokens)))
        peak += count * sequences * sum(rows * slab.row_bytes for slab, rows in sized)
    total = sum(run.bytes for run in found)
    return Tally(
        tuple(found),
        request={**resolved, **_facts(filled, plan)},
        held_bytes=peak if peak > total else None,
        notes=("the allocator holds the most that the buffers take, while the prompt's last chunk runs",) if peak > total else (),
    )


def _whole(request: Request) -> Request:
    """A batch is padded to its longest sequence."""
    turns = _turns(request)
    if request.tokens is None and turns and not request.lengths:
        request = request.at(sum(turns))
    return replace(request, lengths=(max(request.lengths),) * len(request.lengths)) if request.lengths else request


def _check_types(types: Types) -> None:
    if types.k != types.v or types.k.block_elements != 1:
        raise EngineError("MLX-LM keeps keys and values in the model's one type", "--dtype", "for less, -o kv-bits=8")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that change a layer's cache."""

    max_kv_size: int | None
    bits: int | None
    group: int
    start: int


def _settings(request: Request) -> Settings:
    given = request.options
    bits = given.get("kv-bits")
    size = given.get("max-kv-size")
    return Settings(
        None if size is None else int(size),
        None if bits is None else int(bits),
        int(given.get("kv-group-size", GROUP_SIZE)),
        int(given.get("quantized-kv-start", QUANTIZED_START)),
    )


def _turns(request: Request) -> tuple[int, ...]:
    text = request.options.get("turns")
    return tuple(parse_count(part, "a turn") for part in str(text).split(",")) if text is not None else ()


def _arrival(request: Request, tokens: int) -> Arrival:
    turns = _turns(request) or (tokens,)
    if sum(turns) > tokens:
        raise UsageError(f"-o turns={','.join(map(str, turns))} are more than the {tokens:,} tokens", fix="raise --tokens")
    return Arrival(turns, int(request.options.get("prefill-step-size", PREFILL_STEP)), tokens - sum(turns))


Sized = tuple[Slab, Callable[[Arrival], Rows]]


def slabs_of(part: Part, model_type: str, types: Types, settings: Settings, tokens: int) -> list[Sized]:
    """The arrays of one sequence, each with the rule of its rows. Raises EngineError."""
    match part:
        case FullAttention() | SlidingAttention():
            window = part.window if isinstance(part, SlidingAttention) and model_type in ROTATING else settings.max_kv_size
            if model_type in ROTATING and isinstance(part, FullAttention):
                window = None
            return _headed(part.num_kv_heads, part.head_dim, part.v_head_dim, window, types, settings, tokens)
        case ChunkedAttention():
            sides = _sides(part.num_kv_heads, part.head_dim, part.v_head_dim, types)
            return [(slab, _chunked(part.chunk)) for slab in sides]
        case LatentAttention():
            return _latent(part, model_type, types, settings, tokens)
        case Indexer(width):
            note = "kept twice: the class stores its index keys as keys and as values"
            return [(vectors("index", "index keys", Reach(), 2, width, types.k, note), growing_rows)]
        case Recurrent():
            forced = FLOAT32 if part.variant in FLOAT32_STATES else None
            return [(slab, _fixed) for slab in recurrent_slabs(part, types, state_dtype=forced)]
        case CrossAttention() | CompressedAttention():
            raise EngineError(
                f"MLX-LM's {part.kind.replace('_', ' ')} is not modelled", "mlx_lm/models", "--engine exact counts it"
            )
        case _:
            return []


def _fixed(_plan: Arrival) -> Rows:
    return Rows(1, 1)


@cache
def _rotating(window: int) -> Callable[[Arrival], Rows]:
    return lambda plan: rotating_rows(plan, window)


@cache
def _chunked(chunk: int) -> Callable[[Arrival], Rows]:
    return lambda plan: chunked_rows(plan, chunk)


def _sides(heads: int, k_width: int, v_width: int, types: Types) -> list[Slab]:
    return [
        vectors("kv", side, Reach(), heads, width, types.k) for side, width in (("keys", k_width), ("values", v_width)) if width
    ]


def _headed(
    heads: int, k_width: int, v_width: int, window: int | None, types: Types, settings: Settings, tokens: int
) -> list[Sized]:
    if window is not None:
        if settings.bits is not None and tokens >= settings.start:
            raise EngineError(
                "MLX-LM can't quantise a rotating cache", "mlx_lm/models/cache.py: RotatingKVCache", "leave out -o kv-bits"
            )
        return [(slab, _rotating(window)) for slab in _sides(heads, k_width, v_width, types)]
    if settings.bits is None or tokens < settings.start:
        return [(slab, growing_rows) for slab in _sides(heads, k_width, v_width, types)]
    return [
        (_quantized(side, heads, width, types, settings), growing_rows)
        for side, width in (("keys", k_width), ("values", v_width))
        if width
    ]


def _quantized(side: str, heads: int, width: int, types: Types, settings: Settings) -> Slab:
    """Codes in 32-bit words, and a scale and a bias in the model's type for each group."""
    bits, group = settings.bits or 8, settings.group
    if width % group or (width * bits) % 32:
        raise EngineError(f"heads of {width} don't divide into groups of {group}", "-o kv-group-size", "take 32 or 64")
    row = width * bits // 8 + 2 * (width // group) * types.k.row_bytes(1)
    note = f"{bits}-bit codes, scales and biases of {group}"
    return Slab("kv", side, Reach(), heads * row, heads, width, f"{bits}-bit codes", note)


def _latent(part: LatentAttention, model_type: str, types: Types, settings: Settings, tokens: int) -> list[Sized]:
    if model_type in EXPANDED:
        width = part.nope_dim + part.rope_dim
        return _headed(part.num_heads, width, part.v_head_dim or width, settings.max_kv_size, types, settings, tokens)
    return _headed(1, part.kv_lora_rank, part.rope_dim, settings.max_kv_size, types, settings, tokens)


def _slab_rows(sized: Sized, plan: Arrival) -> tuple[Slab, int]:
    """The slab with its final rows, and the most rows that it had."""
    slab, rule = sized
    rows = rule(plan)
    return replace(slab, reach=Reach(fixed=rows.held)), rows.peak


def _positions(sized: list[tuple[Slab, int]], tokens: int) -> int:
    """Of ``tokens``, those that the longest buffer still has rows for; states have none."""
    rows = [slab.reach.rows(tokens) for slab, _ in sized if slab.component != "state"]
    return min(tokens, max(rows, default=0))


def _facts(request: Request, plan: Arrival) -> dict[str, tuple[object, str]]:
    origin = "-o turns" if "turns" in request.options else "default: all tokens at once"
    return {"prompt_tokens": (sum(plan.prompts), origin), "decoded_tokens": (plan.decoded, origin)}


class MlxPlan(Plan):
    """Every layer's buffer after the prompt and the tokens that followed."""

    def allocate(self) -> Tally:
        """The buffers of all layers. Raises EngineError, UsageError."""
        return allocate(self.model, self.request)

    @property
    def step(self) -> int:
        """Buffers grow by 256 rows."""
        return STEP

    @property
    def breaks(self) -> tuple[int, ...]:
        """From some length on, the whole buffer is quantised."""
        return (_settings(self.request).start,) if "kv-bits" in self.request.options else ()


class MlxLm(Engine):
    """MLX-LM's buffers, on Apple silicon."""

    name = "mlx-lm"
    source = "mlx_lm 0.32.2: models/cache.py, generate.py, make_cache of the model classes"
    evidence = "read in the source, not measured"
    releases = Releases("MLX-LM", ("0.32.2",))
    own_options = (
        Option("max-kv-size", "count", "a rotating cache of so many positions, where the class has none of its own", minimum=5),
        Option("kv-bits", "choice", "quantise the cache", "none", _BITS),
        Option("kv-group-size", "int", "elements that share a scale", str(GROUP_SIZE), minimum=32),
        Option("quantized-kv-start", "count", "positions from which on it is quantised", str(QUANTIZED_START), minimum=0),
        Option("prefill-step-size", "count", "positions of a prompt's forward pass", str(PREFILL_STEP), minimum=1),
        Option("turns", "text", "prompts of a conversation, each after the other: 300,300", "all tokens at once"),
    )
    memory = Memory(levers=(("kv-bits", "8"), ("kv-bits", "4")))
    excluded = ("weights", "activations and workspace", "the buffer's copy while it grows", "MLX's own cache of freed buffers")

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Any type whose layers are known."""
        del model, rules
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> MlxPlan:
        """The buffers of a request."""
        return MlxPlan(self, model, request, rules)


ENGINE = MlxLm()
