"""``verify --against transformers``: the user's model, built from its config without weights, against the prediction."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines.transformers.engine import ENGINE
from kvcalc.errors import EngineError
from kvcalc.verify.against.transformers_cache import Ask, Weighed, config_of, measure
from kvcalc.verify.results import AgainstReport, AgainstRow, Settings

DEFAULT_TOKENS = 600  # past most windows, and quick


def compare(model: Model, request: Request, settings: Settings) -> AgainstReport:
    """One prefill and one decode step on the meta device. Raises EngineError, MissingExtraError."""
    version = str(import_module("transformers").__version__)
    if not model.metadata or model.format not in ("hf", "preset"):
        raise EngineError("transformers builds a model from its config.json", model.source, "name it with --config or --hub")
    options = {"release": version, **request.options}
    tokens = request.tokens or DEFAULT_TOKENS
    prompt = int(options.get("prompt-tokens", settings.prompt or max(tokens - 1, 1)))
    asked = replace(request, tokens=tokens, options={**options, "prompt-tokens": prompt})
    tally = ENGINE.allocate(model, asked)
    found = measure(config_of(model.metadata), ask_of(tally, asked, prompt))
    return report(found, tally, version)


def ask_of(tally: Tally, request: Request, prompt: int) -> Ask:
    """The same request, as the library is asked it. Raises EngineError for a cache that needs data."""
    if request.options.get("cache") == "quantized":
        raise EngineError("a quantized cache needs data, and the meta device has none", "-o cache", "take dynamic or static")
    facts = {name: value for name, (value, _) in tally.request.items()}
    return Ask(
        batch=int(str(facts["batch_size"])),
        tokens=int(str(facts["tokens"])),
        dtype=str(facts["k_dtype"]),
        prompt=prompt,
        encoder_tokens=int(str(facts["encoder_tokens"])) if "encoder_tokens" in facts else None,
        max_cache_len=int(str(facts["max_cache_len"])) if "max_cache_len" in facts else None,
    )


def report(found: Weighed, tally: Tally, version: str) -> AgainstReport:
    """Layer by layer, where the library's cache has layers; in total always."""
    predicted = [(run.kind, run.bytes_per_layer) for run in tally.layers for _ in range(run.count)]
    rows = tuple(
        AgainstRow(index, kind, found.layers.get(index, 0), size) for index, (kind, size) in enumerate(predicted) if found.layers
    )
    notes = [f"{found.model_class} built from its config on the meta device; its cache is a {found.cache_class}"]
    held = tally.held_bytes if tally.held_bytes is not None else tally.total_bytes
    if found.storage != held:
        notes.append(f"the storages behind its tensors take {found.storage:,} bytes, predicted {held:,}")
    shared = sum(array.bytes for array in tally.shared)
    if shared or (found.layers and found.shared):
        rows += (
            AgainstRow(
                len(predicted), "of no layer", found.total - sum(found.layers.get(i, 0) for i in range(len(predicted))), shared
            ),
        )
    return AgainstReport("transformers", version, ENGINE.name, rows, found.total, tally.total_bytes, tuple(notes))
