"""What Hugging Face transformers holds in its cache after a prompt and its decoded tokens.

Sources: transformers ``cache_utils.py`` and the model classes of 5.24.0 and 4.57.6; measured on models built from
their configs, every tensor of the returned cache added up, views and expanded axes once.
"""

from __future__ import annotations

from dataclasses import replace

from kvcalc.architectures.class_defaults import CLASS_DEFAULTS, KINDS_BY_CLASS, OLDER_RELEASE, OLDER_TYPES
from kvcalc.core.counting import Slab, Types, tally_layers
from kvcalc.core.layers import LatentAttention, Layer, Part, Recurrent
from kvcalc.core.model import LayerTally, Model, Request, Tally
from kvcalc.engines.base import SERVED, Engine, Memory, Plan, Serving
from kvcalc.engines.options import Option
from kvcalc.engines.releases import Rules
from kvcalc.engines.requests import counted_layers, resolve_request
from kvcalc.engines.transformers import quantized
from kvcalc.engines.transformers.layers import Case
from kvcalc.engines.transformers.releases import NEWEST, RELEASES, unmeasured
from kvcalc.engines.transformers.types import NO_STATIC, STATIC_LIMITS, Quirk, by_window, quirk_of
from kvcalc.errors import EngineError, UsageError

CACHES = ("dynamic", "static", "quantized")
_QUANTIZED_OPTIONS = ("backend", "nbits", "q-group-size", "residual-length", "axis-key", "axis-value")


def allocate(model: Model, request: Request, release: Rules) -> Tally:
    """The tensors of the cache, layer by layer. Raises EngineError, UsageError, DtypeError, ConfigError."""
    kind = str(request.options.get("cache", "dynamic"))
    request, types, resolved = resolve_request(model, _padded(request))
    _check_options(kind, request)
    types = _one_type(types, request)
    case, facts = _case(model, request, release, kind, types.model.name)
    quirk = quirk_of(model.model_type, release)
    layers = quirk.layers(case, by_window(case, counted_layers(model, request), model.model_type in KINDS_BY_CLASS))
    tally = _KINDS[kind](replace(case, model_type_states=quirk.model_type_states), quirk, layers, types, request)
    return replace(
        tally,
        request={**resolved, "k_dtype": (types.k.name, resolved["k_dtype"][1]), **facts, **tally.request},
        warnings=(*_type_warnings(model, release), *tally.warnings),
        notes=(*unmeasured(release), *((quirk.note,) if quirk.note else ()), *_padding_note(request), *tally.notes),
    )


def _case(model: Model, request: Request, release: Rules, kind: str, dtype: str) -> tuple[Case, dict[str, tuple[object, str]]]:
    """The sizes of the request, with the origin of each. Raises UsageError, EngineError."""
    batch, tokens = sum(count for _, count in request.sequences), max(tokens for tokens, _ in request.sequences)
    prompt = int(request.options.get("prompt-tokens", tokens))
    if prompt > tokens:
        raise UsageError(f"-o prompt-tokens={prompt} is more than the {tokens:,} tokens", fix="give it at most the tokens")
    capacity = int(request.options.get("max-cache-len", tokens)) if kind == "static" else None
    facts: dict[str, tuple[object, str]] = {
        "cache": (kind, _origin(request, "cache")),
        "release": (release.asked, _origin(request, "release", "default: the newest that was measured")),
        "prompt_tokens": (prompt, _origin(request, "prompt-tokens", "default: all tokens at once")),
    }
    if capacity is not None:
        facts["max_cache_len"] = (capacity, _origin(request, "max-cache-len", "default: the tokens"))
    return Case(model, release, dtype, batch, tokens, prompt, capacity), facts


def _dynamic(case: Case, quirk: Quirk, layers: tuple[Layer, ...], types: Types, request: Request) -> Tally:  # noqa: ARG001
    tally = _weighed(case, quirk, layers, types)
    note = f"a window is a slice of a larger tensor that stays allocated: fit memory by held_bytes, {tally.held_bytes:,}"
    return replace(tally, notes=() if tally.held_bytes == tally.total_bytes else (note,))


def _static(case: Case, quirk: Quirk, layers: tuple[Layer, ...], types: Types, request: Request) -> Tally:  # noqa: ARG001
    check_static(case, layers)
    return _weighed(case, quirk, layers, types)


def _weighed(case: Case, quirk: Quirk, layers: tuple[Layer, ...], types: Types) -> Tally:
    """The tensors, and the storages behind them."""
    stored = replace(case, behind=True)
    held = sum(run.bytes for run in _runs(stored, quirk, layers, types)) + sum(array.bytes for array in quirk.shared(stored))
    return Tally(_runs(case, quirk, layers, types), quirk.shared(case), held_bytes=held)


def _runs(case: Case, quirk: Quirk, layers: tuple[Layer, ...], types: Types) -> tuple[LayerTally, ...]:
    def rule(part: Part, types: Types) -> tuple[Slab, ...]:
        return quirk.slabs(part, types, case)

    return tally_layers(layers, ((case.rows, case.batch),), types, rule)


def _quantized(case: Case, quirk: Quirk, layers: tuple[Layer, ...], types: Types, request: Request) -> Tally:  # noqa: ARG001
    if request.options.get("backend") == "fp8" and "fp8_cache" not in case.release:
        raise EngineError(f"transformers {case.release.asked} has no fp8 backend", "-o backend", "take quanto or hqq")
    asked = quantized.settings(dict(request.options), case.batch, case.tokens, case.prompt)
    tally = Tally(quantized.tally(layers, asked, types.model))
    facts: dict[str, tuple[object, str]] = {"backend": (asked.backend, _origin(request, "backend"))}
    if asked.backend != "fp8":
        facts["nbits"] = (asked.nbits, _origin(request, "nbits"))
    return replace(tally, request=facts, held_bytes=tally.total_bytes)


_KINDS = {"dynamic": _dynamic, "static": _static, "quantized": _quantized}


def check_static(case: Case, layers: tuple[Layer, ...]) -> None:
    """Raises EngineError where the library has no static cache, or one that is too short."""
    capacity, model_type = case.rows, case.model.model_type
    if model_type in NO_STATIC:
        raise EngineError(f"no static cache: {NO_STATIC[model_type]}", "-o cache", "take cache=dynamic")
    if case.tokens > capacity:
        raise EngineError(
            f"a static cache of {capacity:,} positions can't hold {case.tokens:,} tokens",
            "-o max-cache-len",
            f"give -o max-cache-len={case.tokens} or more (generate takes prompt + new tokens - 1)",
        )
    if "static_states" not in case.release and any(isinstance(part, Recurrent) for layer in layers for part in layer):
        raise EngineError(
            f"transformers {case.release.asked} has no static cache for recurrent states",
            "-o cache",
            "take cache=dynamic, or a release from 5.0.0 on",
        )
    if "latent_mla" not in case.release and any(isinstance(part, LatentAttention) for layer in layers for part in layer):
        raise EngineError(
            f"transformers {case.release.asked} has no static cache for MLA: its keys and values differ in width",
            "-o cache",
            "take cache=dynamic, or a release from 5.15.0 on",
        )
    limit = case.model.fields.int_or_none(STATIC_LIMITS.get(model_type, ""))
    if limit is not None and capacity > limit:
        raise EngineError(
            f"its position table ends at {limit:,}, before {capacity:,}", "-o max-cache-len", f"give {limit} or less"
        )


def _type_warnings(model: Model, release: Rules) -> tuple[str, ...]:
    if model.format == "hf" and model.model_type not in CLASS_DEFAULTS:
        return (f"model type {model.model_type!r} is not in transformers {release.asked}: counted as its cache classes would",)
    return ()


def _one_type(types: Types, request: Request) -> Types:
    """The model's one type for everything. Raises EngineError when the request wants others."""
    if request.k_dtype is None and request.v_dtype is None:
        return replace(types, k=types.model, v=types.model)  # a cache type in the file's quantisation is not read
    if types.k != types.v or types.k != types.model:
        raise EngineError(
            f"transformers holds keys, values and states in the model's one type, not {types.k} and {types.v}",
            "--dtype",
            "give --dtype bf16, fp16 or fp32; for less, -o cache=quantized",
        )
    return types


def _check_options(kind: str, request: Request) -> None:
    """Raises UsageError on options of another kind of cache."""
    foreign = [name for name in _QUANTIZED_OPTIONS if name in request.options and kind != "quantized"]
    foreign += ["max-cache-len"] if "max-cache-len" in request.options and kind != "static" else []
    if foreign:
        wanted = "static" if foreign[0] == "max-cache-len" else "quantized"
        raise UsageError(f"-o {foreign[0]} needs -o cache={wanted}", fix=f"add -o cache={wanted}, or leave it out")


def _padded(request: Request) -> Request:
    """Sequences of different lengths: the library pads a batch to its longest."""
    if not request.lengths:
        return request
    return replace(request, lengths=(max(request.lengths),) * len(request.lengths))


def _padding_note(request: Request) -> tuple[str, ...]:
    return ("a batch is padded to its longest sequence",) if request.lengths else ()


def _origin(request: Request, option: str, default: str = "default") -> str:
    return f"-o {option}" if option in request.options else default


class TransformersPlan(Plan):
    """The tensors of a cache, layer by layer."""

    def allocate(self) -> Tally:
        """Every tensor. Raises EngineError, UsageError, DtypeError, ConfigError."""
        return allocate(self.model, self.request, self.rules)

    @property
    def dip(self) -> int:
        """A quantised cache packs its residual when it is full."""
        options = self.request.options
        if options.get("cache") != "quantized":
            return 1
        return 2 * max(int(options.get("residual-length", quantized.RESIDUAL_LENGTH)), quantized.GROUP_SIZE)

    @property
    def breaks(self) -> tuple[int, ...]:
        """The first token after the prompt frees what a window cut off."""
        options = self.request.options
        return (int(options["prompt-tokens"]) + 1,) if "prompt-tokens" in options else ()


class Transformers(Engine):
    """The library's own caches."""

    name = "transformers"
    source = "transformers cache_utils.py and its model classes, 5.24.0 and 4.57.6"
    evidence = "measured: every tensor of the returned cache, models built from their configs"
    releases = RELEASES
    memory = Memory(levers=(("cache", "quantized"),))
    own_options = (
        Option("cache", "choice", "the cache class", "dynamic", CACHES),
        Option("max-cache-len", "count", "positions that a static cache is made for", "the tokens", minimum=1),
        Option("prompt-tokens", "count", "tokens prefilled at once; the rest come one by one", "all", minimum=1),
        Option("backend", "choice", "what quantises", "quanto", ("quanto", "hqq", "fp8")),
        Option("nbits", "int", "bits of a code", str(quantized.NBITS), minimum=1),
        Option("q-group-size", "int", "elements that share a scale", str(quantized.GROUP_SIZE), minimum=1),
        Option("residual-length", "int", "tokens that wait in the model's type", str(quantized.RESIDUAL_LENGTH), minimum=0),
        Option("axis-key", "int", "the axis along which keys are grouped", "0", minimum=-1),
        Option("axis-value", "int", "the axis along which values are grouped", "0", minimum=-1),
    )
    excluded = (
        "weights",
        "activations and workspace",
        "the old tensor beside the new one while a layer grows",
        "bookkeeping scalars",
    )

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Types that the release has. A type that no release is known to have is counted as its cache classes would."""
        named = model.metadata.get("model_type") if model.format == "hf" else None
        if rules.asked == OLDER_RELEASE and named in CLASS_DEFAULTS and named not in OLDER_TYPES:
            return Serving(f"transformers {rules.asked} has no model type {named!r}", where="-o release", fix=f"take {NEWEST}")
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> TransformersPlan:
        """The tensors of a request."""
        return TransformersPlan(self, model, request, rules)


ENGINE = Transformers()
