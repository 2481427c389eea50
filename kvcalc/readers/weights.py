"""How big a model's weights are, read where it is written: tensor tables and indexes, never the tensors."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path

from kvcalc.core.gguf import GgufMetadata
from kvcalc.core.model import Model
from kvcalc.dtypes import find_dtype
from kvcalc.errors import ConfigError, GgufError, HubError, InputError, PresetError
from kvcalc.readers.files import parse_object, read_text
from kvcalc.readers.presets import find_preset, read_preset
from kvcalc.units import ceil_div

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
MAX_HEADER_BYTES = 100 * 2**20  # the format's own limit
MAX_INDEX_BYTES = 64 * 2**20  # names of some hundred thousand tensors
MOST_BYTES = 2**60
_ASK = "say it: --weights 16GB"

Weights = tuple[int, str]  # bytes, and where they were read


def weights_of_gguf(model: Model) -> Weights:
    """The sum over the tensor table. Raises GgufError."""
    tensors = model.metadata.tensors if isinstance(model.metadata, GgufMetadata) else None
    if tensors is None:
        raise GgufError("no tensor table was seen, so the size of the weights isn't known", model.source, _ASK)
    sizes = [tensor.bytes for tensor in tensors]
    unknown = [tensor.type_name for tensor in tensors if tensor.bytes is None]
    if unknown:
        raise GgufError(f"the size of {unknown[0]} tensors isn't known", model.source, _ASK)
    return sum(size for size in sizes if size is not None), f"the tensor table of {Path(model.source).name}"


def weights_of_folder(config: Path) -> Weights:
    """The safetensors index beside a config.json, or the headers of the files there. Raises ConfigError."""
    folder = config if config.is_dir() else config.parent
    if (folder / INDEX_NAME).is_file():
        return weights_of_index(folder / INDEX_NAME)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(f"there is neither {INDEX_NAME} nor a .safetensors file beside the config", str(folder), _ASK)
    return sum(_header_bytes(file) for file in files), f"the headers of {len(files)} .safetensors files"


def weights_of_index(path: Path) -> Weights:
    """``metadata.total_size`` of a safetensors index. Raises ConfigError."""
    metadata = parse_object(read_text(path, ConfigError, MAX_INDEX_BYTES), str(path)).get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(size, float) and size.is_integer():
        size = int(size)  # some tools write it so
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < MOST_BYTES:
        raise ConfigError("the index names no metadata.total_size", str(path), _ASK)
    return size, f"{path.name}: metadata.total_size"


def weights_of_hub(repository: str, revision: str | None) -> Weights:
    """The repository's safetensors index. Raises HubError, MissingExtraError."""
    from kvcalc.readers.hub import fetch

    try:
        return weights_of_index(fetch(repository, INDEX_NAME, revision))
    except HubError as problem:
        raise HubError(f"the size of the weights isn't known: {problem.what}", problem.where, _ASK) from None


def weights_of_preset(name: str, extra: Path | None) -> Weights:
    """The bytes of its tensors in their own format, or parameters × bytes of their type. Raises PresetError."""
    preset = read_preset(find_preset(name, extra))
    if preset.weights_bytes is not None:
        return preset.weights_bytes, f"preset {preset.name}: its tensors in {preset.weights_format or 'their own format'}"
    if preset.parameters is None:
        raise PresetError(f"the preset {preset.name} names no parameters, so the size of its weights isn't known", fix=_ASK)
    dtype = find_dtype(preset.weights_dtype or "bfloat16")
    size = ceil_div(preset.parameters * dtype.block_bytes, dtype.block_elements)
    assumed = "" if preset.weights_dtype else " (assumed: it names no type, and servers load 16 bits)"
    return size, f"preset {preset.name}: {preset.parameters:,} parameters in {dtype}{assumed}"


def parameters_of_preset(name: str, extra: Path | None) -> int:
    """Published parameters. Raises PresetError."""
    preset = read_preset(find_preset(name, extra))
    if preset.parameters is None:
        raise PresetError(f"the preset {preset.name} names no parameters, so no format of them can be reckoned", fix=_ASK)
    return preset.parameters


def parameters_of_gguf(model: Model) -> int:
    """Elements of the tensor table. Raises GgufError."""
    tensors = model.metadata.tensors if isinstance(model.metadata, GgufMetadata) else None
    if tensors is None:
        raise GgufError("no tensor table was seen, so the number of parameters isn't known", model.source, _ASK)
    return sum(prod(tensor.shape) for tensor in tensors)


def parameters_of_folder(config: Path) -> int:
    """Elements of the tensors that the safetensors headers beside a config.json list. Raises ConfigError.

    Packed integers of a quantised checkpoint hold several weights an element: such a folder is refused.
    """
    folder = config if config.is_dir() else config.parent
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError("there is no .safetensors file beside the config", str(folder), _ASK)
    return sum(_elements(file) for file in files)


def _elements(path: Path) -> int:
    count = 0
    for tensor in _header(path).values():
        shape, kind = (tensor.get("shape"), tensor.get("dtype")) if isinstance(tensor, Mapping) else (None, None)
        if shape is None:
            continue  # __metadata__
        if (
            kind not in _WHOLE
            or not isinstance(shape, list)
            or not all(type(size) is int and 0 <= size < MOST_BYTES for size in shape)
        ):
            raise ConfigError("a tensor of the header is packed, or has no shape", str(path), _ASK)
        count += prod(shape)
    return count


_WHOLE = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


def _header_bytes(path: Path) -> int:
    """Bytes of the tensors that a safetensors header lists: the end of the last one. Raises ConfigError."""
    return max(_ends(_header(path).values(), path), default=0)


def _header(path: Path) -> Mapping[str, object]:
    """A safetensors file's header. Raises ConfigError.

    Pipes and devices that stand in a folder are not opened: one that nobody writes to would never answer.
    """
    if not path.is_file():
        raise ConfigError("this is not a regular file", str(path), _ASK)
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            raw = file.read(length) if 2 <= length <= MAX_HEADER_BYTES else b""
    except OSError as problem:
        raise ConfigError(f"the file can't be read: {problem.__class__.__name__}", str(path), _ASK) from None
    if not raw or len(raw) < length:
        raise ConfigError("this is no whole safetensors header", str(path), _ASK)
    return parse_object(_decoded(raw, path), str(path))


def _decoded(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("this is no safetensors header", str(path), _ASK) from None


def _ends(tensors: Iterable[object], path: Path) -> Iterable[int]:
    for tensor in tensors:
        offsets = tensor.get("data_offsets") if isinstance(tensor, Mapping) else None
        if offsets is None:
            continue  # __metadata__
        end = offsets[1] if isinstance(offsets, list) and len(offsets) == 2 else None
        if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < MOST_BYTES:
            raise InputError("a tensor of the header has no data_offsets", str(path), _ASK)
        yield end
