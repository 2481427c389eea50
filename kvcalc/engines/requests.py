"""What a request leaves unsaid: types, lengths and layers, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping

from kvcalc.core.counting import Types
from kvcalc.core.layers import Layer
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import Dtype, find_dtype
from kvcalc.errors import ArchitectureError, ConfigError, EngineError

DEFAULT_TOKENS = 4096
DEFAULT_DTYPE = "float16"


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
    """The layers that a request counts: the model's, and its draft layers on request."""
    return model.layers + (model.draft_layers if request.draft else ())
