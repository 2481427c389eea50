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
from typing import assert_never

from kvcalc.core.counting import Reach, Slab, Types, recurrent_slabs, vectors
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
    kind_of,
    runs,
)
from kvcalc.core.model import LayerTally, Model, Request, Tally
from kvcalc.dtypes import FLOAT32
from kvcalc.engines.base import Engine, Memory, Plan, Serving
from kvcalc.engines.mlx_lm.classes import RELEASES, Class, class_of, serving_of
from kvcalc.engines.mlx_lm.rows import STEP, Arrival, Rows, chunked_rows, growing_rows, rotating_rows
from kvcalc.engines.options import Option
from kvcalc.engines.releases import Rules
from kvcalc.engines.requests import counted_layers, resolve_request
from kvcalc.errors import EngineError, UsageError
from kvcalc.units import parse_count

PREFILL_STEP = 2048
QUANTIZED_START = 5000
GROUP_SIZE = 64
_BITS = ("2", "3", "4", "5", "6", "8")

FLOAT32_STATES = ("gated_delta_net", "kda")
# Classes whose expanded values are as wide as hidden_size / num_attention_heads, whatever the file says.
VALUES_OF_HIDDEN_SIZE = ("minicpm3",)
# Sparse classes that store their index keys once; the others store them as keys and as values.
INDEX_KEYS_ONCE = ("minimax_m3_vl",)
_INDEX_TWICE = "kept twice: the class stores its index keys as keys and as values"
PHIXTRAL = {"num_heads": 32, "model_dim": 2560, "num_layers": 32}  # its ModelArgs
MOST_WIDE = 2**20  # sizes beyond it are a mistake of the file's


def allocate(model: Model, request: Request, rules: Rules) -> Tally:
    """Every layer's buffer after the prompt and the tokens that followed. Raises EngineError, UsageError."""
    filled, types, resolved = resolve_request(model, _whole(request))
    _check_types(types)
    settings = _settings(filled)
    tokens, sequences = max(length for length, _ in filled.sequences), sum(count for _, count in filled.sequences)
    plan = arrival_of(filled, tokens)
    found, peak = [], 0
    case = Case(class_of(model, rules), types, settings, tokens, _slides(model), model.fields.int_or_none("hidden_size") or 0)
    for first, count, layer in runs(_layers(model, filled, case.runs)):
        sized = [_slab_rows(slab, plan) for part in layer for slab in slabs_of(part, case)]
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


def arrival_of(request: Request, tokens: int) -> Arrival:
    """How ``tokens`` positions arrive: ``turns`` one after the other, then one by one. Raises UsageError."""
    turns = _turns(request) or (tokens,)
    if sum(turns) > tokens:
        raise UsageError(f"-o turns={','.join(map(str, turns))} are more than the {tokens:,} tokens", fix="raise --tokens")
    return Arrival(turns, int(request.options.get("prefill-step-size", PREFILL_STEP)), tokens - sum(turns))


Sized = tuple[Slab, Callable[[Arrival], Rows]]


@dataclass(frozen=True, slots=True)
class Case:
    """What a layer's cache depends on besides the layer."""

    runs: Class
    types: Types
    settings: Settings
    tokens: int
    listed: bool  # the file lists its layers' types
    hidden_size: int

    @property
    def quantized(self) -> bool:
        """Whether caches that can be are quantised by now: a list of caches never is."""
        settings = self.settings
        return settings.bits is not None and self.tokens >= settings.start and not self.runs.lists


def _slides(model: Model) -> bool:
    return isinstance(model.fields.raw("layer_types"), list | tuple)


def _layers(model: Model, request: Request, runs: Class) -> tuple[Layer, ...]:
    """The model's layers. Phixtral's class reads a Phi file's sizes under names that it doesn't have: its defaults stand."""
    if runs.name != "phixtral":
        return counted_layers(model, request)
    heads, width, depth = (_phixtral(model, name, default) for name, default in PHIXTRAL.items())
    return ((FullAttention(heads, width // heads, width // heads, heads),),) * depth


def _phixtral(model: Model, name: str, default: int) -> int:
    held = model.metadata.get(name, default)
    return held if isinstance(held, int) and 0 < held < MOST_WIDE else default


def slabs_of(part: Part, case: Case) -> list[Sized]:
    """The arrays of one sequence, each with the rule of its rows. Raises EngineError."""
    match part:
        case FullAttention():
            return _headed(part.num_kv_heads, part.head_dim, part.v_head_dim, _capped(case), case)
        case SlidingAttention():
            rotates = case.runs.rotates and (case.listed or not case.runs.listed)
            window = part.window if rotates else _capped(case)
            return _headed(part.num_kv_heads, part.head_dim, part.v_head_dim, window, case)
        case ChunkedAttention():
            sides = _sides(part.num_kv_heads, part.head_dim, part.v_head_dim, case.types)
            return [(slab, _chunked(part.chunk)) for slab in sides]
        case LatentAttention():
            return _latent(part, case)
        case Indexer(width):
            copies, note = (1, "") if case.runs.name in INDEX_KEYS_ONCE else (2, _INDEX_TWICE)
            return [(vectors("index", "index keys", Reach(), copies, width, case.types.k, note), growing_rows)]
        case Recurrent():
            forced = FLOAT32 if part.variant in FLOAT32_STATES else None
            return [(slab, _fixed) for slab in recurrent_slabs(part, case.types, state_dtype=forced)]
        case CrossAttention() | CompressedAttention():
            raise EngineError(
                f"MLX-LM's {part.kind.replace('_', ' ')} is not modelled", "mlx_lm/models", "--engine exact counts it"
            )
        case Shared() | NoCache():
            return []
        case _:
            assert_never(part)


def _capped(case: Case) -> int | None:
    """``max-kv-size`` bounds the caches that the library makes; a class that makes its own doesn't know it."""
    return None if case.runs.own else case.settings.max_kv_size


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


def _headed(heads: int, k_width: int, v_width: int, window: int | None, case: Case) -> list[Sized]:
    rule = growing_rows if window is None else _rotating(window)
    sides = _sides(heads, k_width, v_width, case.types)
    if not case.quantized:
        return [(slab, rule) for slab in sides]
    if window is not None:
        raise EngineError(
            "MLX-LM can't quantise a rotating cache", "mlx_lm/models/cache.py: RotatingKVCache", "leave out -o kv-bits"
        )
    if case.runs.by_hand:
        where = f"mlx_lm/models/{case.runs.name}.py"
        raise EngineError(f"MLX-LM's class {case.runs.name} can't read a quantised cache", where, "leave out -o kv-bits")
    return [(_quantized(slab.label, heads, slab.width, case.types, case.settings), rule) for slab in sides]


def _quantized(side: str, heads: int, width: int, types: Types, settings: Settings) -> Slab:
    """Codes in 32-bit words, and a scale and a bias in the model's type for each group."""
    bits, group = settings.bits or 8, settings.group
    if width % group or (width * bits) % 32:
        raise EngineError(f"heads of {width} don't divide into groups of {group}", "-o kv-group-size", "take 32 or 64")
    row = width * bits // 8 + 2 * (width // group) * types.k.row_bytes(1)
    note = f"{bits}-bit codes, scales and biases of {group}"
    return Slab("kv", side, Reach(), heads * row, heads, width, f"{bits}-bit codes", note)


def _latent(part: LatentAttention, case: Case) -> list[Sized]:
    if not case.runs.latent:
        width = part.nope_dim + part.rope_dim
        values = case.hidden_size // part.num_heads if case.runs.name in VALUES_OF_HIDDEN_SIZE else part.v_head_dim or width
        return _headed(part.num_heads, width, values, _capped(case), case)
    if case.quantized:
        raise EngineError("MLX-LM can't read a quantised latent", f"mlx_lm/models/{case.runs.name}.py", "leave out -o kv-bits")
    return _headed(1, part.kv_lora_rank, part.rope_dim, _capped(case), case)


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
        return allocate(self.model, self.request, self.rules)

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
    evidence = "measured: the bytes of every layer's cache, on the library's own classes (0.32.2)"
    releases = RELEASES
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
        """Types that the release has a class for, whose file holds what the class insists on."""
        return serving_of(model, rules)

    def plan_under(self, rules: Rules, model: Model, request: Request) -> MlxPlan:
        """The buffers of a request."""
        return MlxPlan(self, model, request, rules)


ENGINE = MlxLm()
