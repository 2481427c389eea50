"""TensorRT-LLM (PyTorch backend): blocks of 32 tokens from a share of the free memory, a pool for each window size.

- Bytes a token: 2 · Σ key/value heads · head_dim · bytes over a rank's layers; a latent's row once.
- One window: ``max_tokens = memory // bytes``, ``blocks = max_tokens // tokens_per_block``.
- Several (``-o max-attention-window=512,32768``, a pattern that repeats over the layers): the memory is shared in proportion
  to window · bytes a token of its layers, and blocks are rounded up.
- A sequence takes ``ceil(min(length, window) / tokens_per_block)`` blocks of each pool.

Windows of the model's own do not count unless they are named: every layer keeps the whole length. Rules: TensorRT-LLM
``_torch/pyexecutor/resource_manager.py``, ``_torch/pyexecutor/_util.py``, ``cpp/.../kvCacheManager.cpp``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from kvcalc.core.counting import ONE, Slab, Types, vectors
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
)
from kvcalc.core.model import LayerTally, Model, Request, Tally
from kvcalc.dtypes import find_dtype
from kvcalc.engines.base import SERVED, Engine, Memory, Plan, Serving
from kvcalc.engines.options import Option
from kvcalc.engines.ranks import copy_request, share_of, sharing, stages
from kvcalc.engines.releases import Releases, Rules
from kvcalc.engines.requests import refuse_draft, resolve_request
from kvcalc.errors import EngineError, UsageError
from kvcalc.units import ceil_div, format_bytes, parse_counts

TOKENS_PER_BLOCK = 32
CACHE_DTYPES = ("auto", "fp8", "nvfp4")
MOST_WINDOWS = 512
# Types with no class in either backend: none under _torch/models, none in MODEL_MAP of models/__init__.py.
NO_CLASS = frozenset(
    {
        "big_bird",
        "biogpt",
        "codegen",
        "cpmant",
        "cpmbee",
        "ctrl",
        "git",
        "gpt_neo",
        "gpt_neox_japanese",
        "megatron-bert",
        "reformer",
        "rembert",
        "roformer",
        "xglm",
        "xlstm",
    }
)


@dataclass(frozen=True, slots=True)
class Pool:
    """Layers of one window: bytes a token, and how many blocks."""

    window: int | None  # None keeps the whole length
    token_bytes: int
    blocks: int

    def blocks_of(self, tokens: int, block: int) -> int:
        """Blocks of one sequence."""
        return ceil_div(tokens if self.window is None else min(tokens, self.window), block)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one request."""

    available: int | None
    block: int
    most_tokens: int | None
    windows: tuple[int, ...]
    split: int  # ranks over which heads are split

    @property
    def bounded(self) -> bool:
        """Whether the pools may hold less than is asked for."""
        return self.available is not None or self.most_tokens is not None

    def most_blocks(self, pools: int) -> int | None:
        """Blocks that ``max-tokens`` leaves each of so many pools."""
        if self.most_tokens is None:
            return None
        return self.most_tokens // self.block if pools == 1 else ceil_div(self.most_tokens, self.block)

    def window_of(self, layer: int) -> int | None:
        """The pattern repeats over the layers."""
        return self.windows[layer % len(self.windows)] if self.windows else None


Layers = list[tuple[int, Layer, list[Slab], int | None]]  # index, layer, what a token takes, its window


def allocate(model: Model, request: Request) -> Tally:
    """The pools of the heaviest rank. Raises EngineError."""
    refuse_draft(request, "TensorRT-LLM")
    settings = _settings(request)
    asked = copy_request(request, request.dp_size)
    filled, types, resolved = resolve_request(model, asked)
    types = _cache_types(types, request)
    found = []
    for first, count in stages(len(model.layers), request.pp_size):
        layers = _stage_layers(model, types, settings, first, count)
        pools = _pools(layers, settings, filled)
        found.append((layers, pools, _tallies(layers, pools, settings)))
    layers, pools, tallies = max(found, key=lambda part: sum(run.bytes for run in part[2]))
    longest = max(length for length, _ in filled.sequences)
    fits = not settings.bounded or all(_holds(stage, settings, longest) for _, stage, _ in found)
    return Tally(
        tallies,
        request={**resolved, **_type_facts(types, request), **_facts(request, settings)},
        report=_report(pools, settings, found),
        warnings=_waiting(request) if fits else (),
        notes=(f"one rank of {sharing(request) * request.dp_size}, the heaviest",)
        if sharing(request) * request.dp_size > 1
        else (),
        fits=fits,
        refusal="" if fits else _refusal(pools, settings, longest),
    )


def _stage_layers(model: Model, types: Types, settings: Settings, first: int, count: int) -> Layers:
    found: Layers = []
    for index in range(first, first + count):
        layer = model.layers[index]
        slabs = [slab for part in layer for slab in part_slabs(share_of(part, settings.split), types)]
        found.append((index, layer, slabs, settings.window_of(index)))
    return found


def part_slabs(part: Part, types: Types) -> list[Slab]:
    """What one token takes of a part on one rank. Raises EngineError."""
    match part:
        case FullAttention() | SlidingAttention() | ChunkedAttention():
            sides = (("keys", part.head_dim), ("values", part.v_head_dim))
            return [vectors("kv", side, ONE, part.num_kv_heads, width, types.k) for side, width in sides if width]
        case LatentAttention():
            return [vectors("kv", "latent", ONE, 1, part.row_width, types.k)]
        case Shared() | NoCache():
            return []
        case CrossAttention() | CompressedAttention() | Indexer() | Recurrent():
            raise EngineError(
                f"TensorRT-LLM's {part.kind.replace('_', ' ')} is not modelled",
                "tensorrt_llm/_torch/pyexecutor",
                "--engine exact counts it",
            )
        case _:
            assert_never(part)


def _pools(layers: Layers, settings: Settings, request: Request) -> list[Pool]:
    sizes: dict[int | None, int] = {}
    for _, _, slabs, window in layers:
        sizes[window] = sizes.get(window, 0) + sum(slab.row_bytes for slab in slabs)
    if settings.available is None:
        return [_needed_pool(window, size, settings, request, settings.most_blocks(len(sizes))) for window, size in sizes.items()]
    return [_given_pool(window, size, sizes, settings, request) for window, size in sizes.items()]


def _needed_pool(window: int | None, size: int, settings: Settings, request: Request, most: int | None) -> Pool:
    empty = Pool(window, size, 0)
    blocks = sum(count * empty.blocks_of(length, settings.block) for length, count in request.sequences) if size else 0
    return Pool(window, size, blocks if most is None else min(blocks, most))


def _given_pool(window: int | None, size: int, sizes: dict[int | None, int], settings: Settings, request: Request) -> Pool:
    """Blocks in this window's share of the memory."""
    if not size:
        return Pool(window, 0, 0)
    available = settings.available or 0
    if len(sizes) == 1:
        tokens = available // size
        return Pool(window, size, min(tokens, settings.most_tokens or tokens) // settings.block)
    longest = max(length for length, _ in request.sequences)
    weights = {each: (longest if each is None else min(each, longest)) * taken for each, taken in sizes.items()}
    tokens = available * weights[window] // (sum(weights.values()) * size)
    return Pool(window, size, ceil_div(min(tokens, settings.most_tokens or tokens), settings.block))


def _holds(pools: list[Pool], settings: Settings, longest: int) -> bool:
    return all(not pool.token_bytes or pool.blocks >= pool.blocks_of(longest, settings.block) for pool in pools)


def _tallies(layers: Layers, pools: list[Pool], settings: Settings) -> tuple[LayerTally, ...]:
    rows = {pool.window: pool.blocks * settings.block for pool in pools}
    found: list[LayerTally] = []
    for index, layer, slabs, window in layers:
        arrays = tuple(slab.array(((0, rows[window]),)) for slab in slabs)
        last = found[-1] if found else None
        if last and last.layer == layer and last.arrays == arrays:
            found[-1] = LayerTally(last.first, last.count + 1, layer, last.kind, arrays, last.positions)
        else:
            found.append(LayerTally(index, 1, layer, kind_of(layer), arrays, rows[window] if arrays else 0))
    return tuple(found)


def _report(
    pools: list[Pool], settings: Settings, found: list[tuple[Layers, list[Pool], tuple[LayerTally, ...]]]
) -> dict[str, object]:
    held = [pool for pool in pools if pool.token_bytes]
    tokens = min((pool.blocks * settings.block for pool in held), default=0)
    total = sum(pool.blocks * settings.block * pool.token_bytes for pool in held)
    report: dict[str, object] = {
        "tokens_per_block": settings.block,
        "num_blocks": min((pool.blocks for pool in held), default=0),
        "max_tokens": tokens,
        "bytes_per_token": sum(pool.token_bytes for pool in held),
        "log_line": f"Allocated {total / 2**30:.2f} GiB for max tokens in paged KV cache ({tokens}).",
    }
    if len(held) > 1:
        report["pools"] = [
            {"window": pool.window or 0, "bytes_per_token": pool.token_bytes, "blocks": pool.blocks} for pool in held
        ]
    if len(found) > 1:
        report["ranks"] = [
            {"pipeline_stage": stage, "layers": len(layers), "bytes_per_rank": sum(run.bytes for run in tallies)}
            for stage, (layers, _, tallies) in enumerate(found)
        ]
    return report


def _facts(request: Request, settings: Settings) -> dict[str, tuple[object, str]]:
    sizes = {"tp_size": request.tp_size, "pp_size": request.pp_size, "dp_size": request.dp_size}
    found: dict[str, tuple[object, str]] = {
        name: (size, request.origins.get(name, "request")) for name, size in sizes.items() if size > 1
    }
    return {
        **found,
        "tokens_per_block": (settings.block, "-o tokens-per-block" if "tokens-per-block" in request.options else "default"),
    }


def _refusal(pools: list[Pool], settings: Settings, longest: int) -> str:
    short = next(pool for pool in pools if pool.token_bytes and pool.blocks < pool.blocks_of(longest, settings.block))
    there = f"{format_bytes(settings.available or 0)} hold"
    if short.blocks == settings.most_blocks(len([pool for pool in pools if pool.token_bytes])):
        there = f"-o max-tokens={settings.most_tokens} holds"
    return (
        f"one sequence of {longest:,} tokens needs {short.blocks_of(longest, settings.block):,} blocks of {settings.block}, "
        f"{there} {short.blocks:,}"
    )


def _waiting(request: Request) -> tuple[str, ...]:
    words = _over_cap(request)
    return (f"{words}: some sequences wait",) if words else ()


def _over_cap(request: Request) -> str:
    """Why ``max-tokens`` holds no such batch at once; nothing where it does. The widest window takes most."""
    settings, served = _settings(request), copy_request(request, request.dp_size)
    empty = Pool(max(settings.windows, default=None), 0, 0)
    wanted = sum(count * empty.blocks_of(length, settings.block) for length, count in served.sequences)
    most = settings.most_blocks(max(len(set(settings.windows)), 1))
    if most is None or wanted <= most:
        return ""
    return f"-o max-tokens={settings.most_tokens} holds {most:,} blocks of {settings.block}, fewer than {wanted:,}"


def _settings(request: Request) -> Settings:
    given = request.options
    available, tokens = given.get("available-bytes"), given.get("max-tokens")
    text = given.get("max-attention-window")
    windows = [value for value, _ in zip(parse_counts(str(text), "a window"), range(MOST_WINDOWS), strict=False)] if text else []
    return Settings(
        available=None if available is None else int(available),
        block=int(given.get("tokens-per-block", TOKENS_PER_BLOCK)),
        most_tokens=None if tokens is None else int(tokens),
        windows=tuple(windows),
        split=1 if given.get("enable-attention-dp", False) is True else request.tp_size,
    )


def _cache_types(types: Types, request: Request) -> Types:
    asked = request.options.get("kv-cache-dtype", "auto")
    if asked != "auto":
        dtype = find_dtype(str(asked))
        for said in (request.k_dtype, request.v_dtype):
            if said is not None and said != dtype:
                what = f"the cache's type is given twice: {said.name} and -o kv-cache-dtype={asked}"
                raise UsageError(what, fix="give one of them")
        return replace(types, k=dtype, v=dtype)
    if types.k != types.v:
        raise EngineError("TensorRT-LLM caches keys and values in one type", "--k-dtype", "name one with --dtype")
    return types


def _type_facts(types: Types, request: Request) -> dict[str, tuple[object, str]]:
    """The cache's type, where an option of the engine's own names it."""
    if request.options.get("kv-cache-dtype", "auto") == "auto":
        return {}
    return {side: (dtype.name, "-o kv-cache-dtype") for side, dtype in (("k_dtype", types.k), ("v_dtype", types.v))}


class TensorrtPlan(Plan):
    """The pools of the heaviest rank."""

    def allocate(self) -> Tally:
        """The blocks that the memory makes, or those that the request needs. Raises EngineError."""
        return allocate(self.model, self.request)

    @property
    def step(self) -> int:
        """A block."""
        return _settings(self.request).block

    @property
    def ranks(self) -> int | None:
        """Tensor- and pipeline-parallel ranks."""
        return sharing(self.request)

    @property
    def over_cap(self) -> str:
        """Why ``max-tokens`` holds no such batch at once; nothing where it does."""
        return _over_cap(self.request)


class TensorrtLlm(Engine):
    """TensorRT-LLM's pools of blocks."""

    name = "tensorrt-llm"
    source = "TensorRT-LLM _torch/pyexecutor/{resource_manager,_util}.py, cpp batch_manager/kvCacheManager.cpp"
    evidence = "read in the source; figures of published logs agree"
    releases = Releases("TensorRT-LLM", ("1.2",))
    own_options = (
        Option("available-bytes", "bytes", "memory for the blocks on each rank", "none: count what the request needs"),
        Option("kv-cache-dtype", "choice", "the cache's type", "auto: --dtype, else the model's", CACHE_DTYPES),
        Option("tokens-per-block", "count", "tokens a block", str(TOKENS_PER_BLOCK), minimum=1),
        Option("max-tokens", "count", "no more tokens than these, whatever the memory", minimum=1),
        Option("max-attention-window", "text", "windows, a pattern over the layers: 512,32768", "the whole length everywhere"),
        Option("enable-attention-dp", "bool", "attention is data-parallel: heads are not split over --tp", "off"),
    )
    memory = Memory(
        share="0.9",
        share_origin="free_gpu_memory_fraction",
        share_of_rest=True,
        named_by=("available-bytes",),
        capped_by=("max-tokens",),
    )
    excluded = ("weights", "activations and workspace", "CUDA graphs", "the block tables")

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Any type whose layers are known, but those that neither backend has a class for."""
        if model.model_type in NO_CLASS:
            return Serving(f"TensorRT-LLM {rules.name} has no class for {model.model_type}", where="tensorrt_llm/_torch/models")
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> TensorrtPlan:
        """The pools of a request."""
        return TensorrtPlan(self, model, request, rules)


ENGINE = TensorrtLlm()
