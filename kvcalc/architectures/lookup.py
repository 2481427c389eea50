"""From a file's words to a row of the table, and from its keys to neutral fields."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache

from kvcalc.architectures.aliases import COMMON_ALIASES, EXTRA_KEYS, NESTED_KEYS
from kvcalc.architectures.base import Architecture
from kvcalc.architectures.class_defaults import (
    ATTRIBUTE_MAP,
    CLASS_DEFAULTS,
    DECLARED_KEYS,
    TEXT_CONFIGS,
    TEXT_FIXED,
    TEXT_INIT,
)
from kvcalc.architectures.library_rows import REFUSED
from kvcalc.architectures.table import ARCHITECTURES
from kvcalc.architectures.table_remote import CLASS_TYPES, LLAVA_DECODERS, LLAVA_KEYS
from kvcalc.architectures.table_remote import REFUSED as REMOTE_REFUSED
from kvcalc.core.fields import Field, Fields
from kvcalc.errors import ArchitectureError
from kvcalc.values import value

_CLASS_ENDINGS = (
    "ForCausalLM",
    "ForConditionalGeneration",
    "LMHeadModel",
    "ForSeq2SeqLM",
    "SparseForCausalLM",
    "ForCausalLMV2",
    "Model",
)


def find_architecture(model_type: str, where: str = "") -> Architecture:
    """The row of ``model_type``. Raises ArchitectureError with its nearest relatives."""
    if model_type in ARCHITECTURES:
        return ARCHITECTURES[model_type]
    refuse(model_type, {**REMOTE_REFUSED, **REFUSED}, where)
    near = get_close_matches(model_type, ARCHITECTURES, n=4, cutoff=0.5)
    hint = f"nearest known types: {', '.join(near)}; " if near else ""
    raise ArchitectureError(
        f"model type {model_type[:60]!r} is not known",
        where,
        f"{hint}--assume TYPE counts it like one that is, marked as assumed",
    )


def refuse(model_type: str, reasons: Mapping[str, str] = REFUSED, where: str = "") -> None:
    """Nothing where ``model_type`` has no reason against it. Raises ArchitectureError with the reason.

    By default the library's own types only: a composite among them is refused whatever decoder it holds.
    """
    if model_type in reasons:
        raise ArchitectureError(f"model type {model_type} is not modelled: {reasons[model_type]}", where)


def type_by_class(class_names: object) -> str | None:
    """The model type that a file's ``architectures`` names: DeepseekV4ForCausalLM runs deepseek_v4's code."""
    if not isinstance(class_names, list):
        return None
    squeezed = {name.replace("_", "").replace("-", "").lower(): name for name in ARCHITECTURES}
    for word in class_names:
        if isinstance(word, str) and word in CLASS_TYPES:
            return CLASS_TYPES[word]
        for ending in _CLASS_ENDINGS:
            stem = word.removesuffix(ending).lower() if isinstance(word, str) else ""
            if stem in squeezed and stem != str(word).lower():
                return squeezed[stem]
    return None


def known(model_type: str) -> bool:
    """Whether the table has a row for it."""
    return model_type in ARCHITECTURES


def owning(model_type: str) -> str:
    """The type itself where its row reads the nested decoder's fields in that decoder's stead, else an empty string."""
    row = ARCHITECTURES.get(model_type)
    return model_type if row is not None and row.over_nested else ""


def class_defaults(model_type: str) -> Mapping[str, object]:
    """What the library's config class declares for keys that a file leaves out."""
    return CLASS_DEFAULTS.get(model_type, {})


def flat_type(model_type: str) -> str | None:
    """The decoder's type of a composite that has its decoder's keys flat at this level (Step-3.7, older Qwen-VL files)."""
    default_type = TEXT_CONFIGS.get(model_type, ("", ""))[1]
    return default_type if default_type in ARCHITECTURES else None


def type_by_keys(config: Mapping[str, object]) -> str | None:
    """Files without a known type that their keys give away: the original Mamba checkpoints, Mistral's and Meta's params.json."""
    if isinstance(config.get("ssm_cfg"), Mapping):
        return "mamba_ssm"
    if any(key in config for key in LLAVA_KEYS):
        return _llava_decoder(config)
    return "mistral_params" if all(key in config for key in ("dim", "n_layers", "n_heads")) else None


def _llava_decoder(config: Mapping[str, object]) -> str | None:
    """What the type's name ends with; a Qwen without KV heads is the first Qwen."""
    name = str(config.get("model_type", "")).lower()
    ending = max((word for word in LLAVA_DECODERS if name.endswith(word)), key=len, default="")
    if ending == "qwen" and "num_key_value_heads" not in config:
        return "qwen"
    return LLAVA_DECODERS.get(ending)


_NEUTRAL = {"num_hidden_layers": "num_layers", "num_key_value_heads": "num_kv_heads", "max_position_embeddings": "max_tokens"}


def aliases_of(model_type: str, row: Architecture) -> dict[str, tuple[str, ...]]:
    """Neutral name → the keys to look under: the row's, else the class's own spelling and the common ones."""
    found = dict(COMMON_ALIASES)
    for common, own in ATTRIBUTE_MAP.get(row.defaults or model_type, {}).items():
        name = _NEUTRAL.get(common, common)
        found[name] = (own, common, *found.get(name, ()))
    return {**found, **row.aliases}


def neutral_names(key: str, model_type: str, row: Architecture) -> tuple[str, ...]:
    """Every name under which a file's key is read: its own, and each neutral one (``num_key_value_heads`` → ``num_kv_heads``)."""
    names = aliases_of(model_type, row)
    neutral = [name for name, keys in names.items() if key in keys or key == name]
    return tuple(dict.fromkeys((*neutral, key)))


def neutral_fields(
    config: Mapping[str, object], row: Architecture, model_type: str, defaults: Mapping[str, object], label: str, where: str
) -> Fields:
    """A config's own keys and its class's defaults as neutral fields. An explicit null beats a default.

    ``label`` goes before each key in origins (``config.json: text_config.``).
    """
    declared = {key: Field(value, f"class default {key}") for key, value in defaults.items()}
    own = {key: Field(value, f"{label}{key}") for key, value in config.items()}
    fields = {**declared, **own}
    names = aliases_of(model_type, row)
    dotted = {key: _inside(config, key) for keys in names.values() for key in keys if "." in key}
    own.update((key, Field(value, f"{label}{key}")) for key, value in dotted.items() if value is not None)
    for name, keys in names.items():
        chosen = _first(keys, own) or _first(keys, declared)
        if chosen is not None:
            fields[name] = chosen
        elif name not in keys:
            fields.pop(name, None)  # this type means something else by that key
    constants = {key: Field(value, "fixed by the model's code") for key, value in row.constants.items()}
    return Fields({**fields, **constants}, where)


def _inside(config: Mapping[str, object], path: str) -> object:
    """What stands at ``attn_config.kv_n_heads``, or None."""
    found: object = config
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _first(keys: tuple[str, ...], source: Mapping[str, Field]) -> Field | None:
    """The first key with a value, else the first explicit null."""
    there = [source[key] for key in keys if key in source]
    return next((field for field in there if field.value is not None), there[0] if there else None)


@value
class NestedKey:
    """Where a composite keeps its decoder, and what stands there when its file leaves it out."""

    name: str
    default_type: str
    fixed_type: str = ""  # the nested object's own model_type isn't read
    when_missing: Mapping[str, object] | None = None  # None: the decoder's keys are flat


def decoder_keys(model_type: str) -> tuple[str, ...]:
    """The keys under which only a decoder's own object can stand (``decoder`` alone may be a word of something else)."""
    own = (TEXT_CONFIGS[model_type][0],) if model_type in TEXT_CONFIGS else ()
    return (*own, *(key for key in NESTED_KEYS if key.endswith(("_config", "_cfg"))))


def nested_decoder(model_type: str, config: Mapping[str, object]) -> NestedKey | None:
    """The nested object to read next, or None where this level is the decoder."""
    if model_type in TEXT_CONFIGS:
        name, default_type = TEXT_CONFIGS[model_type]
        fixed = default_type if model_type in TEXT_FIXED else ""
        flat = any(key in config for key in COMMON_ALIASES["num_layers"])
        missing = None if flat else TEXT_INIT.get(model_type, {})
        if isinstance(config.get(name), Mapping) or not flat:
            return NestedKey(name, default_type, fixed, missing)
    name = next((key for key in NESTED_KEYS if isinstance(config.get(key), Mapping)), "")
    return NestedKey(name, model_type) if name else None


@cache
def config_keys() -> frozenset[str]:
    """Every key of a config.json that can matter: what presets may hold."""
    common = {key for keys in COMMON_ALIASES.values() for key in keys}
    own = {key for row in ARCHITECTURES.values() for keys in row.aliases.values() for key in keys}
    return frozenset(DECLARED_KEYS | common | own | EXTRA_KEYS | set(NESTED_KEYS))
