"""What Hugging Face transformers holds in its cache after a prompt and its decoded tokens.

Sources: transformers ``cache_utils.py`` and the model classes of 5.24.0 and 4.57.6; measured on models built from
their configs, every tensor of the returned cache added up, views and expanded axes once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvcalc.core.counting import Slab, Types, tally_layers
from kvcalc.core.layers import Layer, Part
from kvcalc.core.model import LayerTally, Model, Request, Tally
from kvcalc.engines import transformers_quantized as quantized
from kvcalc.engines.base import Engine, Option, counted_layers, resolve_request
from kvcalc.engines.transformers_layers import Rules, slabs
from kvcalc.engines.transformers_releases import NEWEST, Release, find_release
from kvcalc.engines.transformers_types import Quirk, check_static, check_type, quirk_of
from kvcalc.errors import EngineError, UsageError

CACHES = ("dynamic", "static", "quantized")
_QUANTIZED_OPTIONS = ("backend", "nbits", "q-group-size", "residual-length", "axis-key", "axis-value")


def allocate(model: Model, request: Request) -> Tally:
    """The tensors of the cache, layer by layer. Raises EngineError, UsageError, DtypeError, ConfigError."""
    release = find_release(str(request.options.get("release", NEWEST)))
    kind = str(request.options.get("cache", "dynamic"))
    request, types, resolved = resolve_request(model, _padded(request))
    _check_options(kind, request, types)
    warnings = (*release.warnings, *check_type(model, release))
    quirk = quirk_of(model.model_type, release)
    layers = quirk.layers(model, counted_layers(model, request))
    prompt, prompt_origin = _prompt(request)
    origin = "-o release" if "release" in request.options else "default: the newest that was measured"
    facts = {**resolved, "cache": (kind, _origin(request, "cache")), "release": (release.name, origin)}
    tally = _held(kind, model, request, types, release, quirk, layers, prompt)
    facts["prompt_tokens"] = (prompt, prompt_origin)
    notes = (*release.notes, *quirk.notes, *_padding_note(request), *tally.notes)
    return replace(tally, request={**facts, **tally.request}, warnings=(*warnings, *tally.warnings), notes=notes)


def _held(
    kind: str,
    model: Model,
    request: Request,
    types: Types,
    release: Release,
    quirk: Quirk,
    layers: tuple[Layer, ...],
    prompt: int,
) -> Tally:
    if kind == "quantized":
        return _quantized(request, types, release, layers, prompt)
    if kind == "static":
        return _static(model, request, types, release, quirk, layers)
    rules = _rules(release, quirk, model)
    batch, tokens = _sizes(request)
    held = replace(rules, behind="step" if prompt < tokens else "prefill")
    kept = _tally(layers, batch, tokens, types, rules, quirk)
    shared = quirk.shared(model, batch, tokens, types)
    behind = _bytes(_tally(layers, batch, tokens, types, held, quirk)) + sum(array.bytes for array in shared)
    tally = Tally(kept, shared)
    return replace(tally, held_bytes=behind, notes=_held_note(behind, tally.total_bytes))


def _rules(release: Release, quirk: Quirk, model: Model) -> Rules:
    return Rules(
        expanded_mla=quirk.expands_mla and "latent_mla" not in release.has,
        model_type_states=quirk.model_type_states,
        extra_rows=quirk.extra_rows(model),
    )


def _tally(
    layers: tuple[Layer, ...], batch: int, tokens: int, types: Types, rules: Rules, quirk: Quirk
) -> tuple[LayerTally, ...]:
    held = quirk.slabs or slabs

    def rule(part: Part, types: Types) -> tuple[Slab, ...]:
        return held(part, types, rules)

    return tally_layers(layers, ((tokens + rules.extra_rows, batch),), types, rule)


def _static(model: Model, request: Request, types: Types, release: Release, quirk: Quirk, layers: tuple[Layer, ...]) -> Tally:
    batch, tokens = _sizes(request)
    capacity = int(request.options.get("max-cache-len", tokens))
    check_static(model, release, capacity)
    if tokens > capacity:
        raise EngineError(
            f"a static cache of {capacity:,} positions can't hold {tokens:,} tokens",
            "-o max-cache-len",
            f"give -o max-cache-len={tokens} or more (generate takes prompt + new tokens - 1)",
        )
    rules = replace(_rules(release, quirk, model), static=True, extra_rows=0)
    kept = _tally(layers, batch, capacity, types, rules, quirk)
    tally = Tally(kept, quirk.shared(model, batch, capacity, types))
    origin = "-o max-cache-len" if "max-cache-len" in request.options else "default: the tokens"
    return replace(tally, request={"max_cache_len": (capacity, origin)}, held_bytes=tally.total_bytes)


def _quantized(request: Request, types: Types, release: Release, layers: tuple[Layer, ...], prompt: int) -> Tally:
    batch, tokens = _sizes(request)
    if request.options.get("backend") == "fp8" and "fp8_cache" not in release.has:
        raise EngineError(f"transformers {release.name} has no fp8 backend", "-o backend", "take quanto or hqq")
    asked = quantized.settings(dict(request.options), batch, tokens, prompt)
    tally = Tally(quantized.tally(layers, asked, types.model))
    facts = {"backend": (asked.backend, _origin(request, "backend")), "nbits": (asked.nbits, _origin(request, "nbits"))}
    if asked.backend == "fp8":
        facts.pop("nbits")
    return replace(tally, request=facts, held_bytes=tally.total_bytes)


def _check_options(kind: str, request: Request, types: Types) -> None:
    """Raises UsageError on options of another kind of cache, EngineError on types that the library can't hold."""
    foreign = [name for name in _QUANTIZED_OPTIONS if name in request.options and kind != "quantized"]
    foreign += ["max-cache-len"] if "max-cache-len" in request.options and kind != "static" else []
    if foreign:
        wanted = "static" if foreign[0] == "max-cache-len" else "quantized"
        raise UsageError(f"-o {foreign[0]} needs -o cache={wanted}", fix=f"add -o cache={wanted}, or leave it out")
    if types.k != types.v or types.k != types.model:
        raise EngineError(
            f"transformers holds keys, values and states in the model's one type, not {types.k} and {types.v}",
            "--dtype",
            "give --dtype bf16, fp16 or fp32; for less, -o cache=quantized",
        )


def _padded(request: Request) -> Request:
    """Sequences of different lengths: the library pads a batch to its longest."""
    if not request.lengths:
        return request
    return replace(request, lengths=(max(request.lengths),) * len(request.lengths))


def _padding_note(request: Request) -> Iterable[str]:
    return ("a batch is padded to its longest sequence",) if request.lengths else ()


def _sizes(request: Request) -> tuple[int, int]:
    """(batch, tokens of every sequence)."""
    return sum(count for _, count in request.sequences), max(tokens for tokens, _ in request.sequences)


def _prompt(request: Request) -> tuple[int, str]:
    _, tokens = _sizes(request)
    if "prompt-tokens" not in request.options:
        return tokens, "default: all tokens at once"
    prompt = int(request.options["prompt-tokens"])
    if prompt > tokens:
        raise UsageError(f"-o prompt-tokens={prompt} is more than the {tokens:,} tokens", fix="give it at most the tokens")
    return prompt, "-o prompt-tokens"


def _bytes(layers: tuple[LayerTally, ...]) -> int:
    return sum(run.bytes for run in layers)


def _held_note(held: int, total: int) -> tuple[str, ...]:
    if held == total:
        return ()
    return (f"held_bytes is what to fit memory by: a window is a slice of a larger tensor that stays allocated ({held:,} bytes)",)


def _origin(request: Request, option: str) -> str:
    return f"-o {option}" if option in request.options else "default"


ENGINE = Engine(
    name="transformers",
    version=NEWEST,
    source="transformers cache_utils.py and its model classes, 5.24.0 and 4.57.6",
    evidence="measured: every tensor of the returned cache, models built from their configs",
    allocate=allocate,
    options=(
        Option("cache", "choice", "the cache class", "dynamic", CACHES),
        Option("max-cache-len", "count", "positions that a static cache is made for", "the tokens", minimum=1),
        Option("prompt-tokens", "count", "tokens prefilled at once; the rest come one by one", "all", minimum=1),
        Option("backend", "choice", "what quantises", "quanto", ("quanto", "hqq", "fp8")),
        Option("nbits", "int", "bits of a code", str(quantized.NBITS), minimum=1),
        Option("q-group-size", "int", "elements that share a scale", str(quantized.GROUP_SIZE), minimum=1),
        Option("residual-length", "int", "tokens that wait in the model's type", str(quantized.RESIDUAL_LENGTH), minimum=0),
        Option("axis-key", "int", "the axis along which keys are grouped", "0", minimum=-1),
        Option("axis-value", "int", "the axis along which values are grouped", "0", minimum=-1),
        Option("release", "text", "the release whose rules count", NEWEST),
    ),
    excluded=(
        "weights",
        "activations and workspace",
        "the old tensor beside the new one while a layer grows",
        "bookkeeping scalars",
    ),
)
