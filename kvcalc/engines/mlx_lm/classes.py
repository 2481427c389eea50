"""MLX-LM's model classes: which a release has, and what their caches can do.

The facts are read from each release's sources by ``tests/tools/read_mlx_classes.py``, which says what each means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import pairwise
from typing import Any

from kvcalc.core.model import Model
from kvcalc.engines.base import SERVED, Serving
from kvcalc.engines.package_data import table, value_at
from kvcalc.engines.releases import Change, Releases, Rules
from kvcalc.values import value


@value
class Class:
    """One model class. Without facts it is a plain one: the library makes its caches, one a layer."""

    name: str
    own: bool = False  # it makes its cache itself
    rotates: bool = False  # windows are rotating caches
    listed: bool = False  # … where the file lists its layers' types
    latent: bool = False  # MLA keeps a latent
    lists: bool = False  # lists of caches, never quantised
    by_hand: bool = False  # its attention can't read a quantised cache
    required: tuple[str, ...] = ()
    text_required: tuple[str, ...] = ()
    defaults: Mapping[str, int | None] = field(default_factory=dict)  # of sizes that a file leaves out


def _changes() -> tuple[Change, ...]:
    """New classes of each release, and classes whose caches changed, in sentences."""
    new: dict[str, list[str]] = {}
    found = []
    for name, spans in _classes().items():
        if spans[0][0] != _known()[0]:
            new.setdefault(spans[0][0], []).append(name)
        for (_, before), (since, after) in pairwise(spans):
            if said := _difference(before or {}, after or {}):
                found.append(Change(f"{name} {since}", since, f"{name} {said}"))
    return (*(Change(f"new in {since}", since, f"new classes: {', '.join(names)}") for since, names in new.items()), *found)


_SAID = {
    "own": ("makes its own cache: max-kv-size has no effect", "takes the library's caches: max-kv-size has an effect"),
    "rotates": ("rotates the caches of its windows", "keeps every position in every layer"),
    "latent": ("keeps a latent (before: keys and values of every head)", "keeps keys and values of every head"),
    "lists": ("keeps lists of caches, which are never quantised", "keeps plain caches"),
    "by_hand": ("can't read a quantised cache any more", "reads quantised caches"),
}


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    changed = [name for name in _SAID if bool(before.get(name)) != bool(after.get(name))]
    return "; ".join(_SAID[name][not after.get(name)] for name in changed)


def _known() -> tuple[str, ...]:
    return tuple(table("mlx_lm")["releases"])


def serving_of(model: Model, rules: Rules) -> Serving:
    """Whether a release has a class for the file's type, and every key that the class insists on."""
    model_type = file_type(model)
    if not model_type:
        return SERVED
    found = _class(model_type, rules)
    where = "mlx_lm/utils.py: _get_classes"
    if found is None:
        return Serving(f"MLX-LM {rules.asked} has no class for model type {model_type!r}{_since(model_type)}", where=where)
    text = model.metadata.get("text_config")
    missing = [key for key in found.required if key not in model.metadata]
    missing += [f"text_config.{key}" for key in found.text_required if isinstance(text, Mapping) and key not in text]
    if missing and model.format == "hf":
        keys = ", ".join(missing)
        return Serving(f"MLX-LM's class {found.name} insists on keys that the file lacks: {keys}", where=model.source)
    other = _other_defaults(model, found, rules)
    return Serving(unchecked=other) if other else SERVED


def _other_defaults(model: Model, found: Class, rules: Rules) -> str:
    """What is said where a size that the file leaves out is another in MLX-LM's class, or not known there."""
    decoder = _class(model.model_type, rules)
    known = {**found.defaults, **(decoder.defaults if decoder is not None else {})}
    names = [held.origin.removeprefix(_DEFAULT) for held in model.fields.used.values() if held.origin.startswith(_DEFAULT)]
    differing = [name for name in names if name in _SIZES and not _alike(_declared(model, name), name, known)]
    if not differing:
        return ""
    said = ", ".join(f"{name} {known.get(name, 'unknown')}" for name in differing)
    return f"MLX-LM's class {found.name} may have other defaults for sizes that the file leaves out ({said}): write them out"


def _alike(declared: object, name: str, known: Mapping[str, int | None]) -> bool:
    """Whether both take the same; a null says nothing, and a key that MLX-LM's class doesn't have plays no part there."""
    return known.get(name, declared if declared is None else _UNKNOWN) == declared


_UNKNOWN = object()
_SIZES = frozenset(
    {
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "hidden_size",
        "layer_types",
        "sliding_window",
    }
)
_DEFAULT = "class default "


def _declared(model: Model, name: str) -> object:
    return next(held.value for held in model.fields.used.values() if held.origin == _DEFAULT + name)


def file_type(model: Model) -> str:
    """The type at the top of a config.json, by which the library finds its class; empty for other files."""
    named = model.metadata.get("model_type") if model.format in ("hf", "preset") else None
    return named if isinstance(named, str) else ""


def class_of(model: Model, rules: Rules) -> Class:
    """The class that makes the model's cache. A file without a type of the library's is like its decoder's class."""
    decoder = _class(model.model_type, rules) or Class(model.model_type)
    found = _class(file_type(model), rules) or decoder
    return Class(**{**vars(found), "latent": found.latent if decoder.name not in _classes() else decoder.latent})


def _class(model_type: str, rules: Rules) -> Class | None:
    name = value_at(table("mlx_lm")["aliases"].get(model_type, ()), rules.asked) or model_type
    facts: Mapping[str, Any] | None = value_at(_classes().get(name, ()), rules.asked)
    if facts is None:
        return None
    return Class(name, **{**facts, **{key: tuple(facts.get(key, ())) for key in ("required", "text_required")}})


def _classes() -> Mapping[str, Any]:
    found: Mapping[str, Any] = table("mlx_lm")["classes"]
    return found


def _since(model_type: str) -> str:
    spans = _classes().get(model_type)
    return f"; it came with {spans[0][0]}" if spans else ""


RELEASES = Releases("MLX-LM", _known(), _changes())
