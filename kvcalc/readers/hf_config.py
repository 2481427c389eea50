"""A Hugging Face config.json, or a preset's copy of one, as a Model."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path

from kvcalc.architectures.base import Architecture
from kvcalc.architectures.lookup import (
    class_defaults,
    decoder_keys,
    find_architecture,
    flat_type,
    known,
    nested_decoder,
    neutral_fields,
    neutral_names,
    owning,
    refuse,
    type_by_class,
    type_by_keys,
)
from kvcalc.architectures.rules import draft_layers
from kvcalc.core.counting import Slab, Types, slabs_of
from kvcalc.core.fields import Field, Fields
from kvcalc.core.layers import CrossAttention, Layer
from kvcalc.core.model import Model
from kvcalc.dtypes import FLOAT32, find_dtype
from kvcalc.errors import ArchitectureError, ConfigError, DtypeError, KvcalcError, UsageError
from kvcalc.readers.files import is_folder, parse_object, read_text
from kvcalc.values import value

CONFIG_NAME = "config.json"
PARAMS_NAME = "params.json"  # Mistral's and Meta's own format
QUANT_NAME = "hf_quant_config.json"
_MAX_NESTING = 4
_LONGEST_DEFAULT = 40
_DTYPE_KEYS = ("dtype", "torch_dtype")


@value
class Decoder:
    """The part of a config that describes the text decoder."""

    model_type: str
    config: Mapping[str, object]
    path: str  # "" at the top level, else "text_config." and so on


def read_config(path: Path, overrides: Mapping[str, Field] | None = None, assume: str = "") -> Model:
    """The model of a config.json, or of a folder that holds one. Raises ConfigError, ArchitectureError."""
    if is_folder(path):
        path = config_in(path) or path / CONFIG_NAME
    config = parse_object(read_text(path), str(path))
    quant = path.with_name(QUANT_NAME)
    if path.name == CONFIG_NAME and quant.is_file() and "quantization_config" not in config:
        config = {**config, "quantization_config": parse_object(read_text(quant), str(quant)).get("quantization")}
    name = path.parent.resolve().name if path.name in (CONFIG_NAME, PARAMS_NAME) else path.stem
    return model_of(config, str(path), name, overrides, assume)


def config_in(folder: Path) -> Path | None:
    """The file of a folder that describes its model: config.json, or else params.json."""
    try:
        return next((folder / name for name in (CONFIG_NAME, PARAMS_NAME) if (folder / name).is_file()), None)
    except (OSError, ValueError):
        return None  # reading it says why


def model_of(
    config: Mapping[str, object],
    where: str,
    name: str,
    overrides: Mapping[str, Field] | None = None,
    assume: str = "",
    source_format: str = "hf",
) -> Model:
    """The model that a config object describes. ``where`` names it in errors. Raises ConfigError, ArchitectureError."""
    decoder = find_decoder(config, where, assume)
    row = find_architecture(decoder.model_type, where)
    fields = decoder_fields(decoder, row, config, where, overrides or {})
    layers = row.rule(fields)
    if not layers:
        raise ConfigError("the file describes a model without layers", where, "give their number with --layers")
    cache_dtype, cache_origin, dtype_notes = _cache_type(config, decoder, where)
    own_type, type_notes = _own_type(fields)
    notes = (*row.notes, *dtype_notes, *type_notes, *_class_default_notes(fields, row, layers))
    return Model(
        name=name,
        model_type=decoder.model_type,
        layers=layers,
        fields=fields,
        source=where,
        format=source_format,
        max_tokens=_max_tokens(fields),
        dtype=own_type,
        cache_dtype=cache_dtype,
        cache_dtype_origin=cache_origin,
        encoder_tokens=fields.int_or_none(row.encoder_tokens) if row.encoder_tokens else None,
        encoder_tokens_optional=_cross_alone(layers),
        draft_layers=draft_layers(fields, layers),
        assumed=assume,
        notes=notes,
        metadata=config,
    )


def find_decoder(config: Mapping[str, object], where: str, assume: str = "") -> Decoder:
    """Follow text_config, llm_config, thinker_config … down to the decoder's own keys. Raises ArchitectureError."""
    decoder, owner = Decoder(_type_of(config), config, ""), ""
    for _ in range(_MAX_NESTING):
        if not assume:
            refuse(decoder.model_type, where=where)
        owner = owner or owning(decoder.model_type)
        _check_nested(decoder, where)
        key = nested_decoder(decoder.model_type, decoder.config)
        if key is None:
            break
        nested = decoder.config.get(key.name)
        inner = nested if isinstance(nested, Mapping) else key.when_missing
        if inner is None:
            break
        model_type = key.fixed_type or _type_of(inner) or key.default_type
        if not known(model_type) and known(decoder.model_type):
            model_type = decoder.model_type
        decoder = Decoder(model_type, inner, f"{decoder.path}{key.name}.")
    if assume or owner:
        return Decoder(assume or owner, decoder.config, decoder.path)
    return _settled(decoder, config, where)


def _check_nested(decoder: Decoder, where: str) -> None:
    """What stands where the decoder's own object belongs must be one, or null. Raises ConfigError."""
    for key in decoder_keys(decoder.model_type):
        found = decoder.config.get(key)
        if found is not None and not isinstance(found, Mapping):
            place = f"{where}: {decoder.path}{key}" if where else f"{decoder.path}{key}"
            raise ConfigError(f"{key} must be an object, not {found!r:.40}", place, "take the model's complete file")


def _settled(decoder: Decoder, config: Mapping[str, object], where: str) -> Decoder:
    """An unknown type may still name a class whose code is known."""
    if known(decoder.model_type):
        return decoder
    by_class = type_by_class(decoder.config.get("architectures")) or type_by_class(config.get("architectures"))
    found = flat_type(decoder.model_type) or by_class or type_by_keys(decoder.config)
    if found:
        return Decoder(found, decoder.config, decoder.path)
    if not decoder.model_type:
        what = "the file names no model_type"
        if "quantization" in config or "quant_algo" in config:
            what = "this file holds quantisation settings only, not a model's sizes"
        raise ArchitectureError(what, where, "take the model's config.json, or name a type with --assume TYPE")
    find_architecture(decoder.model_type, where)  # raises, with its relatives
    return decoder


def _type_of(config: Mapping[str, object]) -> str:
    value = config.get("model_type")
    return value if isinstance(value, str) else ""


def decoder_fields(
    decoder: Decoder, row: Architecture, config: Mapping[str, object], where: str, overrides: Mapping[str, Field]
) -> Fields:
    """The decoder's own keys, its class's defaults, and what the command line says instead."""
    label = f"{Path(where).name}: {decoder.path}" if where else decoder.path
    defaults = {**class_defaults(row.defaults or decoder.model_type), **row.own_defaults}
    fields = neutral_fields(decoder.config, row, decoder.model_type, defaults, label, where)
    dtype = _dtype_field(decoder, config, where)
    if dtype is not None:
        fields = fields.with_values({"dtype": dtype})
    said = _said(overrides, decoder, row)
    return fields.with_values(said) if said else fields


def _said(overrides: Mapping[str, Field], decoder: Decoder, row: Architecture) -> dict[str, Field]:
    """What the user gives, under neutral names, however the file or we spell them. Raises UsageError, DtypeError."""
    said: dict[str, Field] = {}
    for key, field in overrides.items():
        bare = key.removeprefix(decoder.path)
        for name in ("dtype",) if bare in _DTYPE_KEYS else neutral_names(bare, decoder.model_type, row):
            if name in said and said[name].value != field.value:
                raise UsageError(f"{said[name].origin} and {field.origin} give two values for {name}", fix="give one of them")
            said[name] = field
    if "dtype" in said and said["dtype"].value not in (None, "auto"):
        find_dtype(str(said["dtype"].value))
    return said


def _dtype_field(decoder: Decoder, config: Mapping[str, object], where: str) -> Field | None:
    for source, path in ((decoder.config, decoder.path), (config, "")):
        for key in _DTYPE_KEYS:
            if isinstance(source.get(key), str):
                return Field(source[key], f"{Path(where).name}: {path}{key}")
    return None


def _own_type(fields: Fields) -> tuple[str | None, tuple[str, ...]]:
    """The model's own type, where it is one that a cache can have."""
    text = fields.raw("dtype")
    if not isinstance(text, str) or text == "auto":
        return None, ()
    try:
        return find_dtype(text).name, ()
    except DtypeError:
        return None, (f"{fields.at('dtype')} says {text[:40]!r}, which is no cache type: float16 is taken instead",)


def _max_tokens(fields: Fields) -> int | None:
    value = fields.raw("max_tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _cross_alone(layers: tuple[tuple[object, ...], ...]) -> bool:
    """A vision model's cross layers stand alone; an encoder-decoder's come with self-attention."""
    return any(len(layer) == 1 and isinstance(layer[0], CrossAttention) for layer in layers)


def _class_default_notes(fields: Fields, row: Architecture, layers: tuple[Layer, ...]) -> tuple[str, ...]:
    """The class's defaults that decided bytes. A switch that is off says only what the model lacks."""
    declared = {name: field.value for name, field in fields.used.items() if field.origin.startswith("class default")}
    deciding = [name for name, value in declared.items() if value and _decides(name, value, fields, row, layers)]
    if not deciding:
        return ()
    words = ", ".join(f"{name} {str(declared[name])[:_LONGEST_DEFAULT]}" for name in deciding)
    return (f"not in the file, so the class's defaults stand: {words}",)


def _decides(name: str, value: object, fields: Fields, row: Architecture, layers: tuple[Layer, ...]) -> bool:
    """Whether another value would keep other rows; one that the rule can't do without does."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    others: tuple[object, ...] = (value * 2, value + 1, value - 1) if whole and isinstance(value, int) else (None,)
    found = [_layers_with(fields.with_values({name: Field(other, "")}), row) for other in others]
    kept = _kept(layers)
    return all(each is None for each in found) or any(each is not None and _kept(each) != kept for each in found)


def _layers_with(trial: Fields, row: Architecture) -> tuple[Layer, ...] | None:
    trial.used = {}  # a trial leaves no trace in what the model read
    try:
        return row.rule(trial)
    except KvcalcError:
        return None


_ANY_TYPES = Types(FLOAT32, FLOAT32, FLOAT32, encoder_tokens=1)


def _kept(layers: tuple[Layer, ...]) -> list[list[Slab]]:
    """What each layer keeps, which is less than what it is: query heads have no bytes."""
    slabs = {part: slabs_of(part, _ANY_TYPES) for part in dict.fromkeys(part for layer in layers for part in layer)}
    return [[slab for part in layer for slab in slabs[part]] for layer in layers]


_CACHE_ALGORITHMS = {
    "fp8": "fp8_e4m3",
    "fp8_e4m3": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
    "int8": "int8",
    "int4": "int4",
    "nvfp4": "nvfp4",
}


def _cache_type(config: Mapping[str, object], decoder: Decoder, where: str) -> tuple[str | None, str, tuple[str, ...]]:
    """A cache type that the file's quantisation sets: compressed-tensors' kv_cache_scheme, ModelOpt's kv_cache_quant_algo."""
    for source, name in product((decoder.config, config), ("quantization_config", "compression_config")):
        quant = source.get(name)
        if not isinstance(quant, Mapping):
            continue
        for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
            if quant.get(key):
                return _named_cache_type(quant[key], f"{Path(where).name}: {name}.{key}")
    return None, "", ()


def _named_cache_type(scheme: object, origin: str) -> tuple[str | None, str, tuple[str, ...]]:
    if isinstance(scheme, Mapping):
        kind = {"float": "fp", "int": "int"}.get(str(scheme.get("type", "float")), "")
        scheme = f"{kind}{scheme.get('num_bits', 8)}"
    found = _CACHE_ALGORITHMS.get(str(scheme).lower())
    if found is None:
        return None, "", (f"{origin} names a cache type that is not known ({str(scheme)[:40]}): the model's own type is counted",)
    return found, origin, ()


__all__ = ["CONFIG_NAME", "Decoder", "config_in", "decoder_fields", "find_decoder", "model_of", "read_config"]
