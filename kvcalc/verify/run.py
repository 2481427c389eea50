"""The whole proof: choose, check the memory, compute references, run every implementation, break some, report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from kvcalc.core.counting import Types
from kvcalc.core.layers import Indexer, LatentAttention, Layer, Part
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import DTYPES
from kvcalc.engines.requests import counted_layers, resolve_types
from kvcalc.errors import UsageError
from kvcalc.units import round_up
from kvcalc.verify.codecs import PLAIN, QUANTIZED, fits
from kvcalc.verify.controls import controls_of, scale_control
from kvcalc.verify.device import check_types, describe, free_memory, pick_device, usable_types, wide
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.layouts import ConcatLayout, Layout, PagedLayout, StaticLayout
from kvcalc.verify.life_run import run_lives
from kvcalc.verify.memory import check_memory, most_layers, needed_bytes, work_bytes
from kvcalc.verify.parts.base import Context
from kvcalc.verify.parts.recurrent import MOST_STEPS
from kvcalc.verify.plan import (
    ALL_UP_TO,
    PROBE_BYTES,
    Chosen,
    Step,
    check_positions,
    choose_layers,
    default_lengths,
    default_prompt,
    default_tokens,
    edges_of,
    kinds_of,
    probe_bytes,
    same_kind,
    steps_of,
    with_encoder,
)
from kvcalc.verify.reference.attention import RULE as ATTENTION_RULE
from kvcalc.verify.results import Check, Control, Settings, VerifyReport, Weighing
from kvcalc.verify.runs import Case, Tick, no_tick, prove, run_layout

LAYOUTS = ("concat", "static", "paged")
# implementations that are named by what they keep: they run under every layout
PART_KINDS = {
    "sliding": ("sliding_attention", "chunked_attention"),
    "latent": ("mla", "indexer"),
    "recurrent": ("recurrent",),
    "shared": ("shared",),
    "cross": ("cross_attention",),
    "compressed": ("compressed_attention",),
}
CACHES = ("all", *LAYOUTS, "quantized", *PART_KINDS)
CAPACITY_STEP = 64
SMALL_TOKENS = 4096
MOST_SEQUENCES = 1024
MOST_TOKENS = 2**24
QUANTIZED_POSITIONS = 32  # checked outputs of each pair of quantised types


@dataclass(frozen=True)
class Plan:
    """What will be run, all of it decided."""

    model: Model
    request: Request
    settings: Settings
    device: torch.device
    types: Types
    lengths: tuple[int, ...]
    chosen: tuple[Chosen, ...]
    counts: dict[Layer, int]
    layouts: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]  # K and V types of the quantised runs
    prompt: int
    capacity: int
    steps: tuple[Step, ...]
    notes: tuple[str, ...]

    def layout(self, name: str) -> Layout:
        """The layout called ``name``."""
        if name == "static":
            return StaticLayout(self.lengths, self.device, self.capacity)
        if name == "paged":
            return PagedLayout(self.lengths, self.device, self.settings.block_size, self.settings.seed)
        return ConcatLayout(self.lengths, self.device)

    def context(self, inputs: Inputs, types: Types, chosen: Sequence[Chosen], most: int = ALL_UP_TO) -> Context:
        """A run's context, with as many checked positions as their queries and references have room for."""
        each = sum(probe_bytes(layer.layer) for layer in chosen if layer.checked) * len(self.lengths)
        most = min(most, max(PROBE_BYTES // each, 2)) if each else most
        edges = (*edges_of([layer.layer for layer in chosen]), self.prompt, self.settings.block_size)
        checked = tuple(check_positions(length, edges, most, self.settings.seed) for length in self.lengths)
        return Context(inputs, types, self.lengths, checked)


def verify(model: Model, request: Request, settings: Settings | None = None, tick: Tick = no_tick) -> VerifyReport:
    """Run the real cache against full attention and weigh it.

    Raises UsageError, DeviceError (also where memory is short), DtypeError, ConfigError, EngineError.
    """
    return run_plan(make_plan(model, request, settings or Settings()), tick)


def run_plan(plan: Plan, tick: Tick = no_tick) -> VerifyReport:
    """Carry out what ``make_plan`` decided."""
    began = time.monotonic()
    with exact_products(), few_threads(max(plan.lengths)), torch.inference_mode():
        inputs = Inputs(plan.settings.seed, plan.device)
        checks, weighings = _runs(plan, inputs, tick)
        controls = tuple(_controls(plan, inputs, tick)) if plan.settings.controls else ()
    return VerifyReport(
        model=plan.model.name,
        source=plan.model.source,
        device=describe(plan.device),
        torch_version=torch.__version__,
        compute_dtype="float32",
        reference_dtype=str(wide(plan.device)).removeprefix("torch."),
        request=_request_part(plan),
        steps=_steps_text(plan),
        checks=tuple(checks),
        weighings=tuple(weighings),
        controls=controls,
        tolerance_rules={"attention": ATTENTION_RULE},
        notes=plan.notes,
        seconds=time.monotonic() - began,
    )


@contextmanager
def few_threads(tokens: int) -> Iterator[None]:
    """One thread for small arrays: sharing them out costs more than they take, most of all on a busy machine."""
    before = torch.get_num_threads()
    if tokens <= SMALL_TOKENS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def exact_products() -> Iterator[None]:
    """float32 products in float32: no TF32 on GPUs that have it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def make_plan(model: Model, request: Request, settings: Settings) -> Plan:
    """Decide everything and check that it can be done."""
    device = pick_device(settings.device)
    layouts, kinds, quantized = _wanted(settings.cache)
    layers = _of_kinds(counted_layers(model, request), kinds, model.name)
    tokens, notes = _tokens(request, layers)
    if request.tokens is None and not request.lengths and request.batch_size == 1:
        request = replace(request, lengths=default_lengths(tokens))
    request = request if request.lengths else request.at(tokens)
    lengths = _lengths(request, tokens)
    request, said = with_encoder(model, request, layers)
    types, _ = resolve_types(model, request)
    plain = {types.k.name, types.v.name} <= set(PLAIN)
    pairs = _pairs(device) if quantized and plain else ()
    if quantized and not plain and "concat" not in layouts:
        layouts = (*layouts, "concat")  # the types that were asked for are the quantised ones
    check_types(device, {types.k.name, types.v.name, types.model.name})
    prompt = settings.prompt or default_prompt(max(lengths))
    if prompt > max(lengths):
        raise UsageError(f"--prompt {prompt:,} is longer than {max(lengths):,} tokens", fix="give fewer")
    capacity = settings.capacity or round_up(max(lengths) + 1, CAPACITY_STEP)
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[same_kind(layer)] = counts.get(same_kind(layer), 0) + 1
    plan = Plan(
        replace(model, layers=layers, draft_layers=()),
        replace(request, draft=False, options={}),
        settings,
        device,
        types,
        lengths,
        (),
        counts,
        layouts,
        pairs,
        prompt,
        capacity,
        (),
        (*notes, *said),
    )
    return replace(_with_layers(plan), steps=tuple(steps_of(lengths, _prompts(settings, lengths), settings.chunks)))


def _lengths(request: Request, tokens: int) -> tuple[int, ...]:
    """Every sequence's length. Raises UsageError beyond what a run can step through."""
    sequences = len(request.lengths) or request.batch_size
    if sequences > MOST_SEQUENCES or tokens > MOST_TOKENS:
        raise UsageError(
            f"verify can't run {sequences:,} sequences of {tokens:,} tokens",
            fix=f"give at most {MOST_SEQUENCES:,} sequences and {MOST_TOKENS:,} tokens",
        )
    return request.lengths or (tokens,) * sequences


def _prompts(settings: Settings, lengths: Sequence[int]) -> tuple[int, ...]:
    """How much of each sequence is prefilled: a short one too decodes some of its tokens."""
    return tuple(settings.prompt or default_prompt(length) for length in lengths)


def _wanted(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """(layouts, kinds of parts or all, whether quantised types are run)."""
    for name in names:
        if name not in CACHES:
            raise UsageError(f"--cache {name[:40]!r} is no implementation", fix=f"one of {', '.join(CACHES)}")
    kinds = tuple(kind for name in names for kind in PART_KINDS.get(name, ()))
    layouts = tuple(name for name in LAYOUTS if name in names)
    if "all" in names or (kinds and not layouts and "quantized" not in names):
        layouts = LAYOUTS
    return layouts, () if "all" in names else kinds, "all" in names or "quantized" in names


def _of_kinds(layers: tuple[Layer, ...], kinds: Sequence[str], name: str) -> tuple[Layer, ...]:
    if not kinds:
        return layers
    wanted = tuple(layer for layer in layers if any(part.kind in kinds for part in layer))
    if not wanted:
        raise UsageError(f"{name} has no such layers", fix=f"it has {kinds_of(layers)}")
    return wanted if "shared" not in kinds else layers  # a shared layer is run with the one that it reads


def _tokens(request: Request, layers: tuple[Layer, ...]) -> tuple[int, list[str]]:
    tokens = max(request.lengths, default=0) or request.tokens or default_tokens(layers)
    notes = []
    windows = [edge for edge in edges_of(layers) if edge >= tokens]
    if windows:
        sizes = ", ".join(f"{window:,}" for window in windows)
        notes.append(f"{tokens:,} tokens don't reach a window of {sizes}: give --tokens {max(windows) + 32} to pass it")
    if tokens > MOST_STEPS and any(part.kind == "recurrent" for layer in layers for part in layer):
        notes.append(f"states don't depend on the length: recurrent layers run {MOST_STEPS} positions of {tokens:,}")
    return tokens, notes


def _pairs(device: torch.device) -> tuple[tuple[str, str], ...]:
    """Every quantised type once for keys and once for values, never with itself."""
    names = [name for name in QUANTIZED if name in usable_types(device)]
    return tuple(zip(names, names[1:] + names[:1], strict=True))


def _with_layers(plan: Plan) -> Plan:
    """Choose the layers: as many of each kind as are asked for, or as memory allows."""
    layers, free = plan.model.layers, free_memory(plan.device)
    layouts = [plan.layout(name) for name in plan.layouts] or [plan.layout("concat")]

    def needed(each: int | None, tokens: int) -> int:
        some = tuple(chosen.layer for chosen in choose_layers(layers, each))
        request = replace(plan.request, lengths=tuple(min(length, tokens) for length in plan.request.lengths)).at(tokens)
        sized = [replace_capacity(layout, plan, tokens) for layout in layouts]
        work = work_bytes(some, len(plan.lengths))
        return needed_bytes(replace(plan.model, layers=some), request, sized) + work

    tokens, each, notes = max(plan.lengths), plan.settings.layers, plan.notes
    if each is None:
        each = most_layers(lambda count: needed(count, tokens), max(plan.counts.values(), default=1), free)
        if each is not None:
            notes = (*notes, f"memory allows {each} layers of each kind")
    check_memory(lambda count: needed(each, count), tokens, free, str(plan.device))
    return replace(plan, chosen=choose_layers(layers, each), notes=notes)


def replace_capacity(layout: Layout, plan: Plan, tokens: int) -> Layout:
    """The same layout for another length."""
    if not isinstance(layout, StaticLayout) or tokens == max(plan.lengths):
        return layout
    return replace(layout, capacity=plan.settings.capacity or round_up(tokens + 1, CAPACITY_STEP))


def _runs(plan: Plan, inputs: Inputs, tick: Tick) -> tuple[list[Check], list[Weighing]]:
    checks: list[Check] = []
    weighings: list[Weighing] = []
    if plan.layouts:
        proofs = prove(plan.context(inputs, plan.types, plan.chosen), plan.chosen, tick)
        case = _case(plan, plan.chosen, plan.request)
        for name in plan.layouts:
            found, weighing = run_layout(case, proofs, plan.layout(name), tick)
            checks += found
            weighings.append(weighing)
        if "paged" in plan.layouts and "all" in plan.settings.cache:
            found, more = run_lives(plan, inputs)
            checks += found
            weighings += more
    for k, v in plan.pairs:
        some_checks, some_weighings = _quantized(plan, inputs, k, v)
        checks += some_checks
        weighings += some_weighings
        tick("quantized", 1)
    return checks, weighings


def _case(plan: Plan, chosen: Sequence[Chosen], request: Request) -> Case:
    model = replace(plan.model, layers=tuple(each.layer for each in chosen))
    return Case(model, request, plan.counts, plan.steps)


def _quantized(plan: Plan, inputs: Inputs, k: str, v: str) -> tuple[list[Check], list[Weighing]]:
    """One layer of each kind whose rows are whole blocks of both types."""
    each = choose_layers(plan.model.layers, 1)
    chosen = [layer for layer in each if _takes(layer.layer, k, v)]
    known = {layer.index for layer in chosen}
    chosen = [layer for layer in chosen if layer.source is None or layer.source in known]
    if not chosen:
        return [], []
    types = replace(plan.types, k=DTYPES[k], v=DTYPES[v])
    proofs = prove(plan.context(inputs, types, chosen, QUANTIZED_POSITIONS), chosen)
    request = replace(plan.request, k_dtype=DTYPES[k], v_dtype=DTYPES[v])
    layout = replace(ConcatLayout(plan.lengths, plan.device), name="quantized")
    checks, weighing = run_layout(_case(plan, chosen, request), proofs, layout)
    return checks, [weighing]


def _takes(layer: Layer, k: str, v: str) -> bool:
    """Whether a layer keeps rows of the given types, all of them whole blocks."""
    sizes = [size for part in layer for size in _row_sizes(part)]
    return bool(sizes) and all(fits(DTYPES[k], keys) and fits(DTYPES[v], values) for keys, values in sizes)


def _row_sizes(part: Part) -> list[tuple[int, int]]:
    """(elements of a key row, of a value row)."""
    if isinstance(part, LatentAttention):
        return [(part.row_width, 0)]
    if isinstance(part, Indexer):
        return [(part.index_head_dim, 0)]
    heads = getattr(part, "num_kv_heads", 0)
    return [(heads * getattr(part, "head_dim", 0), heads * getattr(part, "v_head_dim", 0))] if heads else []


def _controls(plan: Plan, inputs: Inputs, tick: Tick) -> Iterator[Control]:
    layers = [each.layer for each in plan.chosen]
    if plan.layouts:
        yield from controls_of(layers, plan.types, inputs, plan.layouts)
    tick("controls", 1)
    part = next((part for layer in layers for part in layer if _row_sizes(part)), None)
    name = next((k for k in ("q8_0", "int8") if part is not None and _takes((part,), k, k)), None)
    if plan.pairs and part is not None and name in {k for k, _ in plan.pairs}:
        control = scale_control(part, plan.types, inputs, name or "")
        if control is not None:
            yield control


def work_units(plan: Plan) -> int:
    """How many ticks a run will give, for a progress bar."""
    return len(plan.chosen) + len(plan.layouts) * len(plan.steps) + len(plan.pairs) + 1


def _steps_text(plan: Plan) -> str:
    chunks = ", ".join(str(chunk) for chunk in plan.settings.chunks)
    return (
        f"{plan.prompt:,} tokens prefilled, then steps of {chunks} in turn"
        if plan.prompt < max(plan.lengths)
        else "prefill alone"
    )


def _request_part(plan: Plan) -> dict[str, object]:
    settings = plan.settings
    return {
        "batch_size": len(plan.lengths),
        "tokens": max(plan.lengths),
        "lengths": list(plan.request.lengths),
        "k_dtype": plan.types.k.name,
        "v_dtype": plan.types.v.name,
        "state_dtype": plan.types.model.name,
        "encoder_tokens": plan.types.encoder_tokens,
        "prompt": plan.prompt,
        "chunks": list(settings.chunks),
        "cache": list(settings.cache),
        "capacity": plan.capacity,
        "block_size": settings.block_size,
        "layers": len(plan.chosen),
        "layers_in_model": len(plan.model.layers),
        "seed": settings.seed,
    }
