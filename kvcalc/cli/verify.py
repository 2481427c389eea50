"""``kvcalc verify``: run the real cache against full attention, and weigh it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcalc.cli.drawing import check_targets, write_picture
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.model_args import DEFAULT_PRESET, load
from kvcalc.cli.options import Forcing, OneModel, OneSize, Picturing, Rules, Showing, Types
from kvcalc.cli.output import console, show, write_json
from kvcalc.cli.request_args import engine_and_request
from kvcalc.cli.verify_options import Counted, Running
from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.engines import find_engine
from kvcalc.errors import ExitCode, MissingExtraError, UsageError
from kvcalc.units import parse_count, parse_counts
from kvcalc.verify.results import Settings, VerifyReport

if TYPE_CHECKING:
    from kvcalc.verify.runs import Tick
    from kvcalc.verify.timing import TimingReport

EXAMPLES = (
    "kvcalc verify",
    "kvcalc verify gemma-3-1b --tokens 600 --cache sliding --dtype float32",
    "kvcalc verify --preset llama-8b --layers 2 --dtype q8_0 --chunk 1,8",
    "kvcalc verify --time --tokens 8k",
    "kvcalc verify gemma-3-4b --tp 2",
)
OWN_OPTIONS = ("capacity", "block-size")
BAR_AFTER_SECONDS = 1.0
MOST_CHUNKS = 64


@takes_groups
def command(
    one: OneModel,
    naming: Counted,
    size: OneSize,
    types: Types,
    running: Running,
    showing: Showing,
    drawing: Picturing,
    forcing: Forcing,
) -> int:
    """Run the real cache against full attention, and weigh it."""
    if running.all_presets:
        return _all_presets(running, showing.json)
    each = _layers_to_run(naming, one.model)
    model = load(naming, one.model, DEFAULT_PRESET)
    _, request = engine_and_request(types, Rules(encoder_tokens=running.encoder_tokens, draft=running.draft), size)
    settings = _settings(running, each)
    if drawing.plot is not None and not running.timed:
        raise UsageError("--plot draws what --time measures", fix="add --time")
    check_targets(drawing, forcing.force)
    if running.tp is not None:
        report, times = _over_ranks(model, request, settings, running), None
    elif running.against:
        report = _against(running.against, model, request, settings, running.option)
        times = None
    else:
        report, times = _proof(model, request, settings, running)
    _write(report, times, model, showing.json)
    if times is not None and drawing.plot is not None:
        from kvcalc.cli.verify_report import times_picture

        write_picture(times_picture(times), drawing, forcing.force)
    return ExitCode.OK if report.passed else ExitCode.NO


def _layers_to_run(naming: Counted, positional: str | None) -> int | None:
    """How many layers of each kind: ``--layers``, which is the equation's L only where the equation is the model."""
    named = positional or any(getattr(naming, kind) is not None for kind in ("preset", "config", "gguf", "hub"))
    if naming.layers is None or (not named and (naming.kv_heads or naming.heads)):
        return None
    each = parse_count(naming.layers, "a value of --layers")
    naming.layers = None
    return each


def _settings(running: Running, layers: int | None) -> Settings:
    own = dict(text.partition("=")[::2] for text in running.option if text.partition("=")[0] in OWN_OPTIONS)
    static, paged = find_engine("static"), find_engine("paged")
    values: dict[str, OptionValue] = {}
    if "capacity" in own:
        values |= static.parse_options([f"capacity={own['capacity']}"])
    if "block-size" in own:
        values |= paged.parse_options([f"block-size={own['block-size']}"])
    rest = [text for text in running.option if text.partition("=")[0] not in OWN_OPTIONS]
    if rest and not running.against:
        raise UsageError(f"verify has no option {rest[0][:40]!r}", fix="-o capacity=4k and -o block-size=32, or name --against")
    chunks = tuple(value for value, _ in zip(parse_counts(running.chunk, "--chunk"), range(MOST_CHUNKS), strict=False))
    return Settings(
        device=running.device,
        cache=tuple(word.strip() for word in running.cache.split(",")),
        prompt=parse_count(running.prompt, "a value of --prompt") if running.prompt else None,
        chunks=chunks,
        layers=1 if layers is None and running.timed else layers,
        seed=running.seed,
        controls=not running.no_controls,
        capacity=int(values["capacity"]) if "capacity" in values else None,
        block_size=int(values.get("block-size", 16)),
    )


def _proof(model: Model, request: Request, settings: Settings, running: Running) -> tuple[VerifyReport, TimingReport | None]:
    with _torch_needed():
        from kvcalc.verify.run import make_plan, run_plan, work_units
        from kvcalc.verify.timing import DEFAULT_TOKENS, POINTS, time_decode
    plan = make_plan(model, request, settings)
    units = work_units(plan) + (3 * POINTS if running.timed else 0)
    with _bar(units) as tick:
        report = run_plan(plan, tick)
        if not running.timed:
            return report, None
        tokens = request.tokens or DEFAULT_TOKENS
        times = time_decode(plan.model.layers, plan.device, plan.types.k.name, tokens, settings.block_size, settings.seed, tick)
    return report, times


def _all_presets(running: Running, as_json: bool) -> int:
    """Every shape once. Raises UsageError beside a run of another kind."""
    import time

    from kvcalc.cli.verify_all import all_document, all_view, shipped_models

    if running.against or running.timed or running.tp is not None:
        raise UsageError("--all-presets is a run of its own", fix="leave out --against, --time and --tp")
    with _torch_needed():
        from kvcalc.verify.all_presets import shapes_of, verify_shapes
    began, models = time.monotonic(), list(shipped_models())
    shapes = shapes_of(models)
    with _bar(len(shapes)) as tick:
        results = list(verify_shapes(shapes, _settings(running, None), tick))
    if as_json:
        write_json(all_document(results, len(models), began))
    else:
        show(all_view(results, len(models), began))
    return ExitCode.OK if all(result.passed for result in results) else ExitCode.NO


def _over_ranks(model: Model, request: Request, settings: Settings, running: Running) -> VerifyReport:
    if running.against or running.timed:
        raise UsageError("--tp is a run of its own", fix="leave out --against and --time")
    ranks = parse_count(running.tp or "", "a value of --tp")
    with _torch_needed():
        from kvcalc.verify.tensor_parallel import verify_ranks

        return verify_ranks(model, request, settings, ranks)


@contextmanager
def _torch_needed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as problem:
        if problem.name == "torch":
            raise MissingExtraError(
                "verify runs real caches, and torch isn't installed", fix="pip install 'kvcalc[verify]'"
            ) from None
        raise


def _quiet(what: str, done: int) -> None:
    """No bar."""


@contextmanager
def _bar(units: int) -> Iterator[Tick]:
    """A progress bar on stderr, where that is a terminal, once the work has taken a second."""
    import time

    from rich.progress import Progress

    if not sys.stderr.isatty():
        yield _quiet
        return
    began = time.monotonic()
    with Progress(console=console(stderr=True), transient=True, disable=False, auto_refresh=False) as progress:
        task = progress.add_task("", total=units, visible=False)

        def tick(what: str, done: int) -> None:
            late = time.monotonic() - began > BAR_AFTER_SECONDS
            progress.update(task, advance=done, description=what, visible=late, refresh=late)

        yield tick


def _against(library: str, model: Model, request: Request, settings: Settings, options: list[str]) -> VerifyReport:
    from kvcalc.verify.against import compare_with, engine_of

    engine = find_engine(engine_of(library))
    rest = [text for text in options if text.partition("=")[0] not in OWN_OPTIONS]
    asked = replace(request, options=engine.parse_options(rest))
    with _torch_needed():
        found = compare_with(library, model, asked, settings)
    return VerifyReport(
        model=model.name,
        source=model.source,
        device=settings.device,
        torch_version="",
        compute_dtype="",
        reference_dtype="",
        request={"batch_size": request.batch_size, "tokens": request.tokens},
        steps="",
        checks=(),
        weighings=(),
        against=(found,),
    )


def _write(report: VerifyReport, times: TimingReport | None, model: Model, as_json: bool) -> None:
    from kvcalc.cli.verify_report import verify_document, verify_view

    if as_json:
        write_json(verify_document(report, times, model))
    else:
        show(verify_view(report, times))
