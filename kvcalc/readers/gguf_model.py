"""A GGUF file as a Model: its keys as neutral fields, through the same rules as config.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from kvcalc.architectures.gguf import OVERRIDES, GgufFields, Row, fields_of, find_row, with_own_widths
from kvcalc.architectures.lookup import find_architecture
from kvcalc.architectures.registry_names import upstream
from kvcalc.architectures.rules import draft_layers
from kvcalc.core.fields import Field, Fields
from kvcalc.core.gguf import GgufMetadata
from kvcalc.core.layers import Layer
from kvcalc.core.model import Model
from kvcalc.errors import ArchitectureError, ConfigError, GgufError, KvcalcError, UsageError
from kvcalc.readers.gguf import GgufFile, read_gguf


def read_gguf_model(
    name: str,
    file: str | None = None,
    revision: str | None = None,
    overrides: Mapping[str, Field] | None = None,
    assume: str = "",
) -> Model:
    """The model of a GGUF file: a path, a URL, or ``file`` of the hub's repository ``name``.

    Raises GgufError, ArchitectureError, ConfigError, HubError.
    """
    if file:
        from kvcalc.readers.gguf_hub import read_hub_gguf

        return model_of_gguf(read_hub_gguf(name, file, revision), overrides or {}, assume)
    return model_of_gguf(read_gguf(name), overrides or {}, assume)


def model_of_gguf(found: GgufFile, overrides: Mapping[str, Field], assume: str = "") -> Model:
    """The model that a header describes. Raises GgufError, ArchitectureError, ConfigError."""
    arch = found.metadata.get("general.architecture")
    if not isinstance(arch, str) or not arch:
        raise GgufError("the file names no general.architecture", found.source, _no_architecture(found))
    known = upstream(found.metadata)
    arch = str(known["general.architecture"])
    metadata, origins = _overridden(known, arch, overrides)
    label = PurePath(found.source).name
    keys = GgufFields(metadata, arch, lambda key: origins.get(key, f"{label}: {key}"), found.source)
    fields, layers, problem = _laid_out(keys, arch, assume, found.source)
    return Model(
        name=_name(found, arch),
        model_type=arch,
        layers=layers,
        fields=fields,
        source=found.source,
        format="gguf",
        max_tokens=fields.int_or_none("max_tokens"),
        draft_layers=draft_layers(fields, layers) if problem is None else (),
        assumed=assume,
        notes=found.notes,
        layers_unknown="" if problem is None else f"{problem.what} ({problem.where})",
        layers_invalid=isinstance(problem, ConfigError),
        metadata=metadata,
    )


def _laid_out(keys: GgufFields, arch: str, assume: str, where: str) -> tuple[Fields, tuple[Layer, ...], KvcalcError | None]:
    """Fields and layers; or why there are none, since an engine that reads the keys itself may still know more."""
    row = Row(find_architecture(assume, where).rule) if assume else find_row(arch, where)
    fields = Fields(keys.base(), where)
    try:
        fields = fields_of(keys, row)
        return fields, with_own_widths(row.rule(fields), fields), None
    except (ArchitectureError, ConfigError) as problem:
        return fields, (), problem


def _name(found: GgufFile, arch: str) -> str:
    name = found.metadata.get("general.name")
    return name if isinstance(name, str) and name.strip() else PurePath(found.source).stem or arch


def _no_architecture(found: GgufFile) -> str:
    if "split.no" in found.metadata:
        return "this is a later part of a split file: give the first, -00001-of-…"
    return "take the published file"


def _overridden(metadata: GgufMetadata, arch: str, overrides: Mapping[str, Field]) -> tuple[GgufMetadata, dict[str, str]]:
    """The file's keys with what the command line says instead, as the engine's own --override-kv does."""
    if not overrides:
        return metadata, {}
    values, origins = dict(metadata), {}
    said: dict[str, Field] = {}
    for name, field in overrides.items():
        key = name if "." in name else f"{arch}.{OVERRIDES.get(name, name)}"
        first = said.setdefault(key, field)
        if first.value != field.value:
            raise UsageError(f"{first.origin} and {field.origin} give two values for {key}", fix="give one of them")
        values[key], origins[key] = field.value, field.origin
        twin = f"{arch}.{OVERRIDES['v_head_dim']}"
        if name == "head_dim" and "v_head_dim" not in overrides and twin not in overrides:
            values[twin], origins[twin] = field.value, field.origin
    types = {key: kind for key, kind in metadata.types.items() if key not in origins}
    return GgufMetadata(values, types, metadata.tensors), origins
