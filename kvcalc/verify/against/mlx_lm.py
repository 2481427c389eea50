"""``verify --against mlx-lm``: the user's model, built by MLX-LM's own class, its caches asked lazily.

MLX builds a graph and computes nothing until it is asked to, so a model of any size is built from its config, and the shapes
of its caches after a prompt are known, without a weight or an activation in memory. A quantised cache is computed: its codes
are made from the keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kvcalc.core.model import Model, Request
from kvcalc.engines.mlx_lm.engine import ENGINE, arrival_of
from kvcalc.engines.mlx_lm.rows import Arrival
from kvcalc.errors import EngineError
from kvcalc.verify.results import AgainstReport, AgainstRow, Settings

DEFAULT_TOKENS = 600  # past most windows, and two steps of a buffer


def compare(model: Model, request: Request, settings: Settings) -> AgainstReport:
    """A prompt, and the tokens that followed one by one. Raises EngineError, ModuleNotFoundError."""
    del settings
    if not model.metadata or model.format not in ("hf", "preset"):
        raise EngineError("MLX-LM builds a model from its config.json", model.source, "name it with --config or --hub")
    release = installed()
    tokens = request.tokens or DEFAULT_TOKENS
    asked = replace(request, tokens=tokens, options={"release": release, **request.options})
    plan = ENGINE.plan(model, asked)
    found = measure(model.metadata, arrival_of(asked, tokens), asked.options, str(plan.tally.request["k_dtype"][0]))
    predicted = [(run.kind, run.bytes_per_layer) for run in plan.tally.layers for _ in range(run.count)]
    rows = _rows(found, predicted)
    return AgainstReport("mlx-lm", release, ENGINE.name, rows, sum(found), plan.tally.total_bytes, ())


def _rows(found: list[int], predicted: list[tuple[str, int]]) -> tuple[AgainstRow, ...]:
    """Layer by layer, where the library has a cache for each; in total always."""
    if len(found) != len(predicted):
        return ()
    return tuple(AgainstRow(index, kind, found[index], size) for index, (kind, size) in enumerate(predicted))


def installed() -> str:
    """The release that is installed. Raises ModuleNotFoundError."""
    try:
        return version("mlx-lm")
    except PackageNotFoundError:
        raise ModuleNotFoundError("No module named 'mlx_lm'", name="mlx_lm") from None


def measure(config: Mapping[str, Any], arrival: Arrival, options: Mapping[str, Any], dtype: str) -> list[int]:
    """Bytes of each of the library's caches, as it made them. Raises EngineError with the library's own refusal."""
    mx = import_module("mlx.core")
    try:
        model = _build(dict(config), getattr(mx, dtype))
        caches = _run(mx, model, arrival, options)
    except (ValueError, TypeError, AttributeError, NotImplementedError, IndexError, KeyError) as problem:
        raise EngineError(f"MLX-LM refuses: {type(problem).__name__}: {str(problem)[:120]}", "mlx_lm") from None
    return [sum(array.nbytes for array in arrays_of(cache)) for cache in caches]


def _build(config: dict[str, Any], dtype: Any) -> Any:
    utils = import_module("mlx_lm.utils")
    model_class, args_class = utils._get_classes(config)  # noqa: SLF001 - the library's own way from a file to a class
    model = model_class(args_class.from_dict(config))
    model.set_dtype(dtype)
    return model


def _run(mx: Any, model: Any, arrival: Arrival, options: Mapping[str, Any]) -> list[Any]:
    """The passes of ``generate_step``: each prompt in chunks, its last position alone, then one by one."""
    generate = import_module("mlx_lm.generate")
    made = import_module("mlx_lm.models.cache").make_prompt_cache
    size = options.get("max-kv-size")
    caches: list[Any] = made(model, None if size is None else int(size))
    for new in [*(new for new, count in arrival.steps() for _ in range(count)), *[1] * arrival.decoded]:
        model(mx.zeros((1, new), dtype=mx.int32), cache=caches)
        generate.maybe_quantize_kv_cache(
            caches,
            int(options.get("quantized-kv-start", 5000)),
            int(options.get("kv-group-size", 64)),
            None if "kv-bits" not in options else int(options["kv-bits"]),
        )
    return caches


def arrays_of(cache: Any) -> Iterator[Any]:
    """Every array of a cache object, the whole buffers: ``state`` would cut them to what is filled."""
    held = getattr(cache, "caches", None)
    if held is not None:
        for each in held:
            yield from arrays_of(each)
        return
    for value in (getattr(cache, "keys", None), getattr(cache, "values", None), getattr(cache, "cache", None)):
        yield from _leaves(value)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif value is not None and hasattr(value, "nbytes"):
        yield value
