"""``kvcalc fit``: what fits beside the weights: how long, how many at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from typer import Option

from kvcalc.cli.drawing import check_targets, write_page, write_picture
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.model_args import Reference, load_reference, one_reference
from kvcalc.cli.options import Drawing, Forcing, Naming, OneModel, OneSize, Room, Rules, Showing, Types
from kvcalc.cli.output import show, write_json
from kvcalc.cli.request_args import engine_and_request
from kvcalc.core.model import Model, Request
from kvcalc.engines.base import Engine
from kvcalc.engines.estimate import estimate
from kvcalc.engines.fit import BATCH, BOTH, SAMPLE, TOKENS, Fit, Memory, fit, frontier
from kvcalc.engines.other_memory import Card, Other, other_memory, share_of_card
from kvcalc.engines.other_memory.sizes import sizes_of
from kvcalc.engines.weight_formats import bytes_in_format
from kvcalc.errors import DeviceError, ExitCode, KvcalcError, MissingExtraError, UsageError
from kvcalc.units import parse_memory

EXAMPLES = (
    "kvcalc fit --preset llama-8b --memory 24GiB --weights 16GB",
    "kvcalc fit qwen3-8b --gpu rtx-4090 --weights 16GB --tokens 32k",
    "kvcalc fit gemma-3-4b --memory 8GiB --weights 5GiB --plot fit.png",
    "kvcalc fit gemma-3-27b --gpu h100 --weights 55GB --engine vllm --frontier",
    "kvcalc fit --log server.log qwen3-32b --tokens 32k",
)
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?|\.\d{1,9})(%?)", re.ASCII)


@takes_groups
def command(
    one: OneModel,
    naming: Naming,
    room: Room,
    size: OneSize,
    types: Types,
    rules: Rules,
    showing: Showing,
    drawing: Drawing,
    forcing: Forcing,
    pairs: Annotated[
        bool, Option("--frontier", help="A table: the longest length for 1, 2, 4 … sequences.", rich_help_panel="Request")
    ] = False,
) -> int:
    """What fits beside the weights: the largest length for a batch, or the largest batch for a length."""
    check_targets(drawing, forcing.force)
    logged = None
    if room.log is not None:
        from kvcalc.cli.from_log import question

        logged = question(room, one, naming, types, rules)
        rules = logged.rules
    engine, request = engine_and_request(types, rules, size)
    place = _Place(*logged.memory) if logged else _place(room)
    request = _on_cards(place, engine, request)
    reference = logged.reference if logged else one_reference(naming, one.model)
    model = logged.model if logged else load_reference(reference, naming)
    memory = _memory(room, place, engine, model, reference, naming, request)
    if pairs:
        if drawing.plot is not None or drawing.html is not None:
            raise UsageError("--frontier is a table", fix="leave out --plot and --html, or --frontier")
        return _frontier(engine, model, request, memory, showing)
    found = fit(engine, model, request, memory, _searched(size))
    if showing.json:
        from kvcalc.reports.fit_view import fit_document

        write_json(fit_document(found))
    else:
        from kvcalc.reports.fit_view import fit_view

        show(fit_view(found))
    _draw(found, drawing, forcing.force)
    return ExitCode.OK if found.fits else ExitCode.NO


def _draw(found: Fit, drawing: Drawing, force: bool) -> None:
    if drawing.plot is not None:
        from kvcalc.reports.pictures import fit_chart

        write_picture(fit_chart(found), drawing, force)
    if drawing.html is not None:
        from kvcalc.reports.html import page

        asked = replace(found.request, tokens=max(found.tokens, 1), batch_size=max(found.batch_size, 1), lengths=())
        budget = found.budget_bytes if found.budget_bytes > 0 else None
        write_page(page([estimate(found.model, asked, found.engine)], budget=budget), drawing, force)


def _searched(size: OneSize) -> str:
    if size.lengths is not None:
        return SAMPLE
    if size.tokens is not None:
        return BATCH if size.batch is None else BOTH
    return TOKENS


def _frontier(engine: Engine, model: Model, request: Request, memory: Memory, showing: Showing) -> int:
    from kvcalc.reports.fit_view import frontier_document, frontier_view

    if request.tokens is not None or request.lengths or "batch_size" in request.origins:
        raise UsageError("--frontier looks for lengths and batches itself", fix="leave out --tokens, --batch and --lengths")
    found = frontier(engine, model, request, memory)
    if showing.json:
        write_json(frontier_document(memory, found))
    else:
        show(frontier_view(memory, found))
    return ExitCode.OK if found.rows else ExitCode.NO


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the cache lives: bytes of one device, their origin, and the cards that they belong to."""

    bytes: int
    origin: str
    card: str = ""  # the card's name; empty for memory that is named by itself
    count: int = 1


def _on_cards(place: _Place, engine: Engine, request: Request) -> Request:
    """What an engine decides by the card; several cards are as many tensor-parallel ranks, unless ranks are named."""
    if not place.card:
        return request
    options = {**engine.on_card(place.bytes, place.card), **request.options}
    if place.count == 1 or request.tp_size * request.pp_size * request.dp_size > 1:
        return replace(request, options=options)
    return replace(request, options=options, tp_size=place.count, origins={**request.origins, "tp_size": f"{place.count} cards"})


def _memory(
    room: Room, place: _Place, engine: Engine, model: Model, reference: Reference, naming: Naming, request: Request
) -> Memory:
    weights, weights_origin = _weights(room.weights, model, reference, naming)
    card = _card(place)
    usual = share_of_card(engine, model, request, card) if card else engine.share(request.options)
    share, share_origin = _utilization(room.utilization, usual, card is not None)
    experts, copies = _shared_experts(weights, engine, model, request, reference, naming)
    return Memory(
        device_bytes=place.bytes,
        weights=weights,
        expert_weights=experts,
        expert_copies=copies,
        overhead=_bytes_or_zero(room.overhead),
        utilization=share,
        origin=place.origin,
        weights_origin=weights_origin,
        utilization_origin=share_origin,
        cache_alone=room.log is not None,
        other=_other(room, card, engine, model, request),
    )


def _shared_experts(
    weights: int, engine: Engine, model: Model, request: Request, reference: Reference, naming: Naming
) -> tuple[int, int]:
    """Bytes of routed experts, and the copies over which vLLM spreads them besides the ranks (fused_moe/config.py).

    By the share of the parameters that they are, where preset and file say both; elsewhere each copy counts as whole.
    """
    experts = sizes_of(model).experts if engine.name == "vllm" and request.dp_size > 1 and weights else 0
    if not experts:
        return 0, 1
    try:
        parameters = _parameters(model, reference, naming)
    except KvcalcError:
        return 0, 1
    return (weights * experts // parameters, request.dp_size) if experts < parameters else (0, 1)


def _other(room: Room, card: Card | None, engine: Engine, model: Model, request: Request) -> Other | None:
    """What else the engine takes of a whole card; ``--overhead`` says it, and memory that is named holds the cache alone."""
    return None if room.overhead is not None or card is None else other_memory(engine, model, request, card)


def _card(place: _Place) -> Card | None:
    """The card of a place; None for memory that is named by itself."""
    from kvcalc.core.gpus import find_gpu

    if not place.card:
        return None
    try:
        gpu = find_gpu(place.card)
    except UsageError:  # a card of this machine that the table doesn't have
        return Card(place.bytes, place.card)
    return Card(place.bytes, gpu.name, gpu.architecture, gpu.driver_bytes)


def _place(room: Room) -> _Place:
    """The memory that is named, or this machine's. Raises UsageError, DeviceError, MissingExtraError."""
    given = [name for name in ("memory", "gpu", "device") if getattr(room, name) is not None]
    if len(given) > 1:
        raise UsageError("the memory is given more than once", fix=f"give only one of {', '.join(f'--{name}' for name in given)}")
    if room.memory is not None:
        return _Place(parse_memory(room.memory), "flag --memory")
    if room.gpu is not None:
        return _cards(room.gpu)
    if room.device is not None:
        return _Place(_free(str(room.device)), f"free on {room.device} now")
    from kvcalc.readers.machine import this_machine

    found = this_machine()
    return _Place(found.bytes, found.said, found.name if found.whole_card else "", found.count)


def _cards(text: str) -> _Place:
    from kvcalc.core.gpus import counted, find_gpu

    count, name = counted(text)
    card = find_gpu(name)
    many = f"each of {count} " if count > 1 else ""
    note = f" ({card.assumed})" if card.assumed else ""
    return _Place(card.bytes, f"{many}{card.name}: {card.gib} GiB usable{note}", card.name, count)


def _free(name: str) -> int:
    """Bytes that a device of this machine can still give. Raises DeviceError, MissingExtraError."""
    try:
        from kvcalc.verify.device import free_memory, pick_device
    except ModuleNotFoundError:
        raise MissingExtraError("asking a device needs torch", fix="pip install 'kvcalc[verify]', or give --memory") from None
    free = free_memory(pick_device(name))
    if free is None:
        raise DeviceError(f"the system doesn't say what is free on {name[:40]}", fix="give --memory")
    return free


def _weights(text: str | None, model: Model, reference: Reference, naming: Naming) -> tuple[int, str]:
    if text is None:
        return 0, "none given"
    word = text.strip().lower()
    if word == "auto":
        return _published(model, reference, naming)
    if word[:1].isdigit() or word[:1] == ".":
        return _bytes_or_zero(text), "flag --weights"
    return bytes_in_format(word, _parameters(model, reference, naming), model)


def _parameters(model: Model, reference: Reference, naming: Naming) -> int:
    """How many parameters a model has, where its file or preset says so."""
    from kvcalc.readers import weights

    if model.format == "gguf":
        return weights.parameters_of_gguf(model)
    if reference.kind == "preset" or model.format == "preset":
        return weights.parameters_of_preset(reference.value, naming.presets_dir)
    if reference.kind == "config":
        return weights.parameters_of_folder(Path(reference.value))
    raise UsageError("--weights FORMAT needs a preset, a GGUF file or a folder with its weights", fix="say it: --weights 16GB")


def _published(model: Model, reference: Reference, naming: Naming) -> tuple[int, str]:
    """The bytes of the weights as they are published or lie there."""
    from kvcalc.readers import weights

    if model.format == "gguf":
        return weights.weights_of_gguf(model)
    if reference.kind == "preset":
        return weights.weights_of_preset(reference.value, naming.presets_dir)
    if reference.kind == "hub" and model.format == "preset":  # the preset answered in the hub's place
        return weights.weights_of_preset(reference.value, naming.presets_dir)
    if reference.kind == "hub":
        return weights.weights_of_hub(reference.value, naming.revision)
    if reference.kind == "config":
        return weights.weights_of_folder(Path(reference.value))
    raise UsageError("--weights auto needs a model with a file", fix="say it: --weights 16GB")


def _bytes_or_zero(text: str | None) -> int:
    return 0 if text is None or text.strip() == "0" else parse_memory(text)


def _utilization(text: str | None, by_default: tuple[str, str], whole_card: bool) -> tuple[Fraction, str]:
    if text is None:
        return (Fraction(by_default[0]), by_default[1]) if whole_card else (Fraction(1), "")
    match = _SHARE.fullmatch(text.strip())
    share = Fraction(match.group(1)) / (100 if match.group(2) else 1) if match else Fraction(0)
    if not 0 < share <= 1:
        raise UsageError(f"--utilization {text[:40]!r} is no share", fix="write 0.92 or 92%")
    return share, "flag --utilization"
