"""The binary header of a GGUF file: versions 2 and 3, both byte orders, from any stream of bytes.

    magic "GGUF", u32 version, u64 tensors, u64 keys
    keys:    string name, u32 type, value (an array: u32 type, u64 count, values)
    tensors: string name, u32 dimensions, u64 each, u32 type, u64 offset
    a string is a u64 length and that many bytes

Only the header is read, so a file cut off after it is as good as a whole one. What no rule needs (vocabularies, merges,
chat templates) is passed over without being kept. Every count and length is held against what the stream can still
give before anything is done with it. Source: ggml's docs/gguf.md and src/gguf.cpp, 0.5.0-dev.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import IO, Literal

from kvcalc.core.gguf import TENSOR_TYPES, GgufMetadata, Skipped, TensorInfo
from kvcalc.errors import GgufError
from kvcalc.units import round_up

MAGIC = b"GGUF"
MAX_HEADER = 256 * 2**20  # real ones stay under 40 MB; a stream of unknown length is not followed further
MAX_KEYS = 2**13  # published files have under 100
MAX_TENSORS = 2**15  # and under 3,000
MAX_STRINGS = 2**21  # of one array; the largest vocabularies have 2^18
MAX_NAME = 2**16
MAX_DIMENSIONS = 4
KEEP_ELEMENTS = 4096  # per-layer arrays have at most 512
KEEP_TEXT = 4096
KEEP_BYTES = 8 * 2**20  # of all values together
MAX_TYPE_ID = 255  # a tensor type beyond the table may be a newer ggml's; beyond this it is damage

_SCALARS = {
    0: ("u8", "B", 1),
    1: ("i8", "b", 1),
    2: ("u16", "H", 2),
    3: ("i16", "h", 2),
    4: ("u32", "I", 4),
    5: ("i32", "i", 4),
    6: ("f32", "f", 4),
    7: ("bool", "B", 1),
    10: ("u64", "Q", 8),
    11: ("i64", "q", 8),
    12: ("f64", "d", 8),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_ASK_FOR_WHOLE = "fetch the file again; kvcalc needs its header complete (the tensors' data may be missing)"


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What stands before a GGUF file's tensor data."""

    metadata: GgufMetadata
    tensors: tuple[TensorInfo, ...]
    version: int
    byte_order: str  # little or big
    alignment: int
    data_offset: int  # where the tensor data begins


def read_header(stream: IO[bytes], where: str = "GGUF", limit: int | None = None) -> GgufHeader:
    """The header at the stream's position. ``limit`` is the stream's size where it is known. Raises GgufError."""
    source = _Source(stream, where, MAX_HEADER if limit is None else min(limit, MAX_HEADER))
    version = _open(source)
    tensor_count = source.count("the tensor count", MAX_TENSORS)
    key_count = source.count("the key count", MAX_KEYS)
    values, types = _keys(source, key_count)
    alignment = _alignment(source, values)
    tensors = _tensors(source, tensor_count)
    return GgufHeader(
        GgufMetadata(values, types, tensors), tensors, version, source.byte_order, alignment, round_up(source.offset, alignment)
    )


class _Source:
    """A window on the stream that moves forward; skipping seeks where the stream can."""

    def __init__(self, stream: IO[bytes], where: str, limit: int) -> None:
        self._stream = stream
        self._where = where
        self._limit = limit
        self._seekable = _seekable(stream)
        self._buffer = b""
        self._position = 0  # in the buffer
        self._base = 0  # bytes before the buffer
        self._chunk = 2**16
        self.order = "<"  # as struct writes it
        self.byte_order: Literal["little", "big"] = "little"
        self.kept = 0

    @property
    def offset(self) -> int:
        """Bytes from the beginning."""
        return self._base + self._position

    def error(self, what: str, fix: str = "") -> GgufError:
        """A GgufError that says where in the file."""
        return GgufError(what, f"{self._where}, byte {self.offset:,}", fix)

    def demand(self, size: int, what: str) -> None:
        """Raise GgufError unless ``size`` more bytes can be there."""
        if self.offset + size > self._limit:
            raise self.error(
                f"{what} does not fit into what is left of the file: the header is cut off or damaged", _ASK_FOR_WHOLE
            )

    def _fill(self, size: int, what: str) -> None:
        """Have ``size`` bytes from the position on in the buffer."""
        missing = self._position + size - len(self._buffer)
        if missing <= 0:
            return
        rest = self._buffer[self._position :]
        self._base += self._position
        self._buffer, self._position = rest, 0
        parts = [rest]
        while missing > 0:
            part = self._read(max(missing, self._chunk))
            if not part:
                raise self.error(f"the file ends inside {what}", _ASK_FOR_WHOLE)
            parts.append(part)
            missing -= len(part)
        self._chunk = min(self._chunk * 2, 2**20)
        self._buffer = b"".join(parts)

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size) or b""
        except (OSError, ValueError) as problem:
            raise GgufError(f"cannot be read: {problem}", self._where) from problem

    def take(self, size: int, what: str) -> bytes:
        """The next ``size`` bytes."""
        start = self._position
        if start + size > len(self._buffer):
            self.demand(size, what)
            self._fill(size, what)
            start = self._position
        self._position = start + size
        return self._buffer[start : start + size]

    def skip(self, size: int, what: str) -> None:
        """Go ``size`` bytes on without keeping them."""
        self.demand(size, what)
        ahead = self._position + size - len(self._buffer)
        if ahead <= 0:
            self._position += size
            return
        self._base += self._position + size
        self._buffer, self._position = b"", 0
        if self._seekable and ahead > 2**16:
            self._stream.seek(ahead, io.SEEK_CUR)
            return
        while ahead > 0:
            part = self._read(min(ahead, 2**20))
            if not part:
                raise self.error(f"the file ends inside {what}", _ASK_FOR_WHOLE)
            ahead -= len(part)

    def number(self, code: str, size: int, what: str) -> int | float:
        """One number of struct's ``code``."""
        value: int | float = struct.unpack(self.order + code, self.take(size, what))[0]
        return value

    def u32(self, what: str) -> int:
        """An unsigned 32-bit integer."""
        return int.from_bytes(self.take(4, what), self.byte_order)

    def u64(self, what: str) -> int:
        """An unsigned 64-bit integer."""
        return int.from_bytes(self.take(8, what), self.byte_order)

    def count(self, what: str, largest: int) -> int:
        """A u64 that counts things. Raises GgufError beyond ``largest``."""
        value = self.u64(what)
        if value > largest:
            raise self.error(f"{what} is {value:,}, and no file has over {largest:,}", "the file is damaged")
        return value

    def name(self, what: str) -> str:
        """A key or a tensor's name."""
        length = self.u64(what)
        if length > MAX_NAME:
            raise self.error(f"{what} is {length:,} bytes long, and no file has over {MAX_NAME:,}", "the file is damaged")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError as problem:
            raise self.error(f"{what} is no UTF-8 text", "the file is damaged") from problem

    def skip_strings(self, count: int, what: str) -> None:
        """Pass over ``count`` strings: the one hot loop, since vocabularies are most of a header."""
        length_at = struct.Struct(self.order + "Q").unpack_from
        while count:
            self._fill(8, what)
            buffer, position = self._buffer, self._position
            last = len(buffer) - 8
            while count and position <= last:
                position += 8 + length_at(buffer, position)[0]
                count -= 1
            # the last string may reach beyond the buffer, or claim to reach beyond the file
            self.skip(position - self._position, what)


def _seekable(stream: IO[bytes]) -> bool:
    try:
        return stream.seekable()
    except (AttributeError, ValueError):
        return False


def _open(source: _Source) -> int:
    """Magic and version; sets the byte order."""
    magic = source.take(4, "the magic")
    if magic != MAGIC:
        raise source.error(
            f"not a GGUF file: it begins with {magic!r}, not {MAGIC!r}", "give a .gguf file, or use --config for a config.json"
        )
    version = source.u32("the version")
    if version & 0xFFFF == 0:  # a small number in the other byte order
        source.order, source.byte_order = ">", "big"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in (2, 3):
        older = version == 1
        raise source.error(
            f"GGUF version {version} is not read" if version < 2**16 else "the version is damaged",
            "convert it anew: version 1 is of August 2023, and engines don't read it any more"
            if older
            else "versions 2 and 3 are",
        )
    return version


def _keys(source: _Source, count: int) -> tuple[dict[str, object], dict[str, str]]:
    values: dict[str, object] = {}
    types: dict[str, str] = {}
    for index in range(count):
        key = source.name("a key's name")
        if not key or key in values:
            raise source.error(f"the key {key!r} stands twice" if key else f"key {index} has no name", "the file is damaged")
        values[key], types[key] = _value(source, source.u32("a key's type"), key)
    return values, types


def _value(source: _Source, kind: int, key: str) -> tuple[object, str]:
    if kind == _ARRAY:
        return _array(source, key)
    if kind == _STRING:
        return _text(source, key), "string"
    name, code, size = _scalar(source, kind, key)
    value = source.number(code, size, key)
    return (bool(value) if kind == _BOOL else value), name


def _scalar(source: _Source, kind: int, key: str) -> tuple[str, str, int]:
    if kind not in _SCALARS:
        raise source.error(f"{key} has the unknown type {kind}", "the file is damaged, or of a later version of GGUF")
    return _SCALARS[kind]


def _text(source: _Source, key: str) -> object:
    length = source.u64(f"the length of {key}")
    if length > KEEP_TEXT:
        source.skip(length, key)
        return Skipped("byte of text", length)
    _keep(source, length, key)
    return source.take(length, key).decode("utf-8", "replace")


def _array(source: _Source, key: str) -> tuple[object, str]:
    kind = source.u32(f"the element type of {key}")
    if kind == _ARRAY:
        raise source.error(f"{key} is an array of arrays, which no engine reads", "the file is damaged")
    count = source.u64(f"the length of {key}")
    if kind == _STRING:
        if count > MAX_STRINGS:
            raise source.error(f"{key} has {count:,} strings, and no file has over {MAX_STRINGS:,}", "the file is damaged")
        source.demand(8 * count, key)
        source.skip_strings(count, key)
        return Skipped("string", count), "array of string"
    name, code, size = _scalar(source, kind, key)
    if count > KEEP_ELEMENTS:
        source.skip(count * size, key)
        return Skipped(name, count), f"array of {name}"
    _keep(source, count * 32, key)
    numbers = list(struct.unpack(f"{source.order}{count}{code}", source.take(count * size, key)))
    return ([bool(number) for number in numbers] if kind == _BOOL else numbers), f"array of {name}"


def _keep(source: _Source, size: int, key: str) -> None:
    source.kept += size
    if source.kept > KEEP_BYTES:
        raise source.error(f"the metadata up to {key} takes over {KEEP_BYTES // 2**20} MiB", "the file is damaged")


def _alignment(source: _Source, values: dict[str, object]) -> int:
    value = values.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value & (value - 1):
        raise source.error(f"general.alignment is {value!r:.30}, and must be a power of two", "the file is damaged")
    return value


def _tensors(source: _Source, count: int) -> tuple[TensorInfo, ...]:
    found: list[TensorInfo] = []
    names: set[str] = set()
    for _ in range(count):
        tensor = _tensor(source)
        if tensor.name in names:
            raise source.error(f"the tensor {tensor.name!r} stands twice", "the file is damaged")
        names.add(tensor.name)
        found.append(tensor)
    return tuple(found)


def _tensor(source: _Source) -> TensorInfo:
    name = source.name("a tensor's name")
    dimensions = source.u32("a tensor's dimensions")
    if dimensions > MAX_DIMENSIONS:
        raise source.error(
            f"the tensor {name!r} has {dimensions:,} dimensions, and {MAX_DIMENSIONS} is the most", "the file is damaged"
        )
    row = source.take(8 * dimensions + 12, "a tensor's row")
    *shape, type_id, offset = struct.unpack(f"{source.order}{dimensions}QIQ", row)
    tensor = TensorInfo(name, tuple(shape), type_id, offset)
    if type_id > MAX_TYPE_ID:
        raise source.error(f"the tensor {name!r} has the unknown type {type_id:,}", "the file is damaged")
    known = TENSOR_TYPES.get(type_id)
    if tensor.elements >= 2**63 or (known and shape and shape[0] % known[1]):
        raise source.error(f"the tensor {name!r} has an impossible shape for {tensor.type_name}", "the file is damaged")
    return tensor
