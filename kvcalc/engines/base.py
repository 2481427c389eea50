"""What an engine is: its name and release, its options under their own names, and one function that allocates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from kvcalc.core.counting import Types
from kvcalc.core.layers import Layer
from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.dtypes import Dtype, find_dtype
from kvcalc.errors import ArchitectureError, ConfigError, EngineError, UsageError
from kvcalc.units import parse_bytes, parse_count
from kvcalc.values import value

DEFAULT_TOKENS = 4096
DEFAULT_DTYPE = "float16"


@value
class Option:
    """One ``-o name=value``. ``kind`` is int, count (4k), bytes (24GiB), bool, text or choice."""

    name: str
    kind: str
    help: str
    default: str = ""  # for people
    choices: tuple[str, ...] = ()
    minimum: int = 0

    def parse(self, text: str | None) -> OptionValue:
        """The value of ``text``; a bare name (None) is true for a bool. Raises UsageError."""
        if self.kind == "bool":
            return self._bool(text)
        if text is None or text == "":
            raise UsageError(f"-o {self.name} needs a value", fix=f"write -o {self.name}=…")
        if self.kind == "bytes":
            return parse_bytes(text)
        if self.kind in ("int", "count"):
            return self._int(text)
        if self.kind == "choice" and text not in self.choices:
            raise UsageError(f"-o {self.name}={text[:40]} is none of its values", fix=f"one of {', '.join(self.choices)}")
        return text

    def _bool(self, text: str | None) -> bool:
        if text is None or text.lower() in ("true", "1", "on", "yes"):
            return True
        if text.lower() in ("false", "0", "off", "no"):
            return False
        raise UsageError(
            f"-o {self.name}={text[:40]} is neither true nor false", fix=f"write -o {self.name} or -o {self.name}=false"
        )

    def _int(self, text: str) -> int:
        bare = text.removeprefix("-")
        if bare.isascii() and bare.isdigit() and len(bare) <= 16:
            value = int(text)
        else:
            value = parse_count(text, f"a value of -o {self.name}")
        if value < self.minimum:
            raise UsageError(f"-o {self.name}={text[:40]} is below {self.minimum}", fix=f"give {self.minimum} or more")
        return value


def _one(_model: Model, _request: Request) -> int:
    return 1


def _none(_model: Model, _request: Request) -> tuple[int, ...]:
    return ()


def _further(_model: Model, request: Request, tally: Tally, step: int) -> Request:
    tokens = tally.request["tokens"][0]
    return request.at((tokens if isinstance(tokens, int) else 0) + step)


@value
class Engine:
    """An accounting. ``allocate`` is pure; ``step`` is the smallest length by which its figure can grow."""

    name: str
    version: str
    source: str  # where its rules were read
    evidence: str  # measured, or read only
    allocate: Callable[[Model, Request], Tally]
    options: tuple[Option, ...] = ()
    step: Callable[[Model, Request], int] = _one
    # the same request, ``step`` tokens longer: where a length comes by an option of the engine's own, that option grows
    longer: Callable[[Model, Request, Tally, int], Request] = _further
    # (model, request) → (batch, tokens) → bytes, where the figure is made of reaches: what makes long sweeps cheap
    total: Callable[[Model, Request], Callable[[int, int], int]] | None = None
    # the same for the bytes that must be there, where the engine divides its memory otherwise than it fills it
    need: Callable[[Model, Request], Callable[[int, int], int]] | None = None
    held_back: Callable[[Model, Request], int] | None = None  # bytes that no sequence gets
    # the longest stretch of lengths over which its figure may shrink, or a length be refused that a longer one is not
    dip: Callable[[Model, Request], int] = _one
    # lengths from which on another rule holds, under which less is taken
    breaks: Callable[[Model, Request], tuple[int, ...]] = _none
    ranks: Callable[[Request], int] | None = None  # that share the weights; None: it counts no ranks, and takes one device
    share: tuple[str, str] = ("1", "")  # of a whole card that it takes unless told otherwise, and the rule that says so
    share_of_rest: bool = False  # that share is taken of what the weights leave, not of the whole
    levers: tuple[tuple[str, OptionValue], ...] = ()  # options of its own that may free memory
    memory_options: tuple[str, ...] = ()  # options that name the memory itself
    # (a card's bytes, its name) → options that it decides where they are unsaid
    on_card: Callable[[int, str], Mapping[str, OptionValue]] | None = None
    caps: tuple[str, ...] = ()  # options that bound the pool, whatever the memory
    # (model, request) → why the pool so bounded holds no such batch at once, or nothing
    over_cap: Callable[[Model, Request], str] | None = None
    at_once: Callable[[Request], tuple[int, str]] | None = None  # sequences that run at once, and the option that says so
    reads_file: bool = False  # works from the file's own keys, not from the model's layers
    excluded: tuple[str, ...] = ("weights", "activations and workspace", "allocator padding and fragmentation")

    def parse_options(self, texts: list[str]) -> dict[str, OptionValue]:
        """``["block-size=32", "kv-unified"]`` → values by option name. Raises UsageError."""
        known = {option.name: option for option in self.options}
        values: dict[str, OptionValue] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            name = name.strip().replace("_", "-")
            if name not in known:
                near = get_close_matches(name, known, n=3, cutoff=0.5)
                hint = f"did you mean {', '.join(near)}?" if near else f"its options: {', '.join(known) or 'none'}"
                raise UsageError(f"engine {self.name} has no option {name[:40]!r}", fix=hint)
            if name in values:
                raise UsageError(f"-o {name} is given twice", fix="give it once")
            values[name] = known[name].parse(value.strip() if equals else None)
        return values


def resolve_types(model: Model, request: Request) -> tuple[Types, dict[str, tuple[object, str]]]:
    """The types and lengths that a request leaves unsaid, with the origin of each. Raises ConfigError, DtypeError."""
    own = find_dtype(model.dtype) if model.dtype else find_dtype(DEFAULT_DTYPE)
    own_origin = f"the model's own type ({model.fields.origin('dtype') or model.source})" if model.dtype else "default"
    k, k_origin = _side(request.k_dtype, "k_dtype", model, request, own, own_origin)
    v, v_origin = _side(request.v_dtype, "v_dtype", model, request, own, own_origin)
    encoder, encoder_origin = _encoder_tokens(model, request)
    # A cache type with no arithmetic of its own (fp8, q8_0 …) says nothing about states: those keep the model's.
    state = k if k.name in _STATE_TYPES and request.k_dtype is not None else own
    resolved: dict[str, tuple[object, str]] = {"k_dtype": (k.name, k_origin), "v_dtype": (v.name, v_origin)}
    if encoder is not None:
        resolved["encoder_tokens"] = (encoder, encoder_origin)
    return Types(k, v, state, encoder or 0), resolved


_STATE_TYPES = ("float32", "bfloat16", "float16")


def _side(asked: Dtype | None, name: str, model: Model, request: Request, own: Dtype, own_origin: str) -> tuple[Dtype, str]:
    if asked is not None:
        return asked, request.origins.get(name, "request")
    if model.cache_dtype:
        return find_dtype(model.cache_dtype), model.cache_dtype_origin
    return own, own_origin


def _encoder_tokens(model: Model, request: Request) -> tuple[int | None, str]:
    if not any(part.kind == "cross_attention" for layer in model.layers for part in layer):
        return None, ""
    if request.encoder_tokens is not None:
        return request.encoder_tokens, request.origins.get("encoder_tokens", "request")
    if model.encoder_tokens is not None:
        return model.encoder_tokens, model.source
    if model.encoder_tokens_optional:
        return 0, "default: text alone, no image"
    raise ConfigError(
        f"{model.name} has cross-attention, and its file names no encoder length", model.source, "give it with --encoder-tokens"
    )


def resolve_request(model: Model, request: Request) -> tuple[Request, Types, dict[str, tuple[object, str]]]:
    """The request with its defaults filled in (tokens 4,096), its types, and the origin of everything."""
    types, resolved = resolve_types(model, request)
    tokens_origin = request.origins.get("tokens", "default" if request.tokens is None else "request")
    filled = request.at(DEFAULT_TOKENS if request.tokens is None else request.tokens)
    facts: Mapping[str, tuple[object, str]] = {
        "batch_size": (len(request.lengths) or request.batch_size, request.origins.get("batch_size", "default")),
        "tokens": (max(request.lengths, default=filled.tokens), tokens_origin),
    }
    return filled, types, {**facts, **resolved}


def require_layers(model: Model) -> None:
    """Raise ArchitectureError, or ConfigError for a bad value, where a model's layers could not be told from its file."""
    if model.layers_unknown:
        error = ConfigError if model.layers_invalid else ArchitectureError
        raise error(
            f"the layers of {model.name} could not be told: {model.layers_unknown}",
            model.source,
            "ask an engine that reads this file itself (llama.cpp), or use --assume TYPE",
        )


def refuse_draft(request: Request, engine: str) -> None:
    """Raise EngineError where draft layers are asked for, under an engine whose allocation of them isn't modelled."""
    if request.draft:
        raise EngineError(
            f"what {engine} allocates for draft layers is not modelled", "--draft", "leave it out, or take --engine exact"
        )


def counted_layers(model: Model, request: Request) -> tuple[Layer, ...]:
    """The layers that a request counts: the model's, and its draft layers on request. Raises ArchitectureError."""
    require_layers(model)
    return model.layers + (model.draft_layers if request.draft else ())
