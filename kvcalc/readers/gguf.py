"""GGUF headers from wherever they are: a file whole or cut off after its header, a split one, a pipe, a URL, a JSON dump."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from kvcalc.core.gguf import GgufMetadata, TensorInfo
from kvcalc.errors import GgufError
from kvcalc.readers.files import parse_object
from kvcalc.readers.gguf_header import MAGIC, GgufHeader, read_header

MAX_DUMP_BYTES = 64 * 2**20  # a dump may hold the vocabulary
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)
_DUMP_WRAPPERS = ("model_info", "metadata")  # ollama's /api/show, gguf_dump.py --json


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a GGUF says of its model. ``tensors`` covers the parts of a split file that were found."""

    metadata: GgufMetadata
    source: str
    header: GgufHeader | None = None  # None for a JSON dump
    notes: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[TensorInfo, ...] | None:
        """The tensor table, where one was read."""
        return self.metadata.tensors


def read_gguf(name: str) -> GgufFile:
    """The header that ``name`` leads to: a path, ``-`` for standard input, or an http(s) URL. Raises GgufError."""
    if name.startswith(("http://", "https://")):
        from kvcalc.readers.gguf_url import open_url

        return read_parts(name, open_url, lambda _: True)
    if name == "-":
        if sys.stdin is None:
            raise GgufError("standard input is closed", "stdin", "pipe the file into it, or name a file")
        return read_stream(sys.stdin.buffer, "standard input")
    return read_parts(name, _open_path, lambda one: Path(one).is_file())


def read_stream(stream: IO[bytes], where: str, limit: int | None = None) -> GgufFile:
    """The header, or the JSON dump of one, at the beginning of a stream. Raises GgufError."""
    start = _read(stream, 4, where)
    if start.lstrip()[:1] == b"{":
        return _dump(start + _read(stream, MAX_DUMP_BYTES + 1, where), where)
    header = read_header(cast("IO[bytes]", _Prefixed(start, stream)), where, limit)
    return GgufFile(header.metadata, where, header)


def _read(stream: IO[bytes], size: int, where: str) -> bytes:
    """Up to ``size`` bytes, however small the pieces in which they come."""
    found = b""
    try:
        while len(found) < size:
            part = stream.read(size - len(found))
            if not part:
                break
            found += part
    except (OSError, ValueError) as problem:
        raise GgufError(f"it can't be read: {problem.__class__.__name__}", where) from None
    return found


class _Prefixed(io.RawIOBase):
    """A stream of which the first bytes were already taken."""

    def __init__(self, start: bytes, stream: IO[bytes]) -> None:
        super().__init__()
        self._start = start
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_CUR) -> int:
        if self._start or whence != io.SEEK_CUR:
            raise io.UnsupportedOperation("only forward, after the start")
        return self._stream.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if self._start:
            taken, self._start = self._start[:size], self._start[size:]
            return taken
        return self._stream.read(size) or b""


Opener = Callable[[str], tuple[IO[bytes], int | None]]  # a name to a stream, and its size where that is known
There = Callable[[str], bool]


def _open_path(name: str) -> tuple[IO[bytes], int | None]:
    path = Path(name)
    try:
        stream = path.open("rb")
        status = os.fstat(stream.fileno())
    except FileNotFoundError:
        raise GgufError("there is no such file", name, "check the path") from None
    except IsADirectoryError:
        raise GgufError("this is a folder, not a file", name, "name the .gguf file in it") from None
    except (OSError, ValueError) as problem:
        raise GgufError(
            f"the file can't be read: {problem.__class__.__name__}", name, "check its permissions and its name"
        ) from None
    return stream, status.st_size if stat.S_ISREG(status.st_mode) else None


def read_parts(name: str, opener: Opener, there: There) -> GgufFile:
    """A file, with the tensors of its other parts where it is one of several. Raises GgufError."""
    parts = split_names(name)
    first = parts[0] if parts and there(parts[0]) else name
    found = _one(first, opener)
    if found.header is None or len(parts) < 2:
        return found
    return _with_parts(found, [part for part in parts if part != first], opener, there)


def _one(name: str, opener: Opener) -> GgufFile:
    stream, limit = opener(name)
    with stream:
        return read_stream(stream, name, limit)


def split_names(name: str) -> list[str]:
    """All parts of a split file, by the name of one; empty for a file of one piece."""
    match = _SPLIT.search(name)
    if not match or not 1 <= int(match[1]) <= int(match[2]) <= 999:
        return []
    stem, count = name[: match.start()], int(match[2])
    return [f"{stem}-{index:05d}-of-{count:05d}{match[3]}" for index in range(1, count + 1)]


def _with_parts(found: GgufFile, others: list[str], opener: Opener, there: There) -> GgufFile:
    tensors = list(found.tensors or ())
    missing = 0
    for part in others:
        if not there(part):
            missing += 1
            continue
        tensors.extend(_one(part, opener).tensors or ())
    notes = (f"{missing} of {len(others) + 1} parts are not there: the weights are those of the others",) if missing else ()
    whole = GgufMetadata(found.metadata, found.metadata.types, tuple(tensors))
    return replace(found, metadata=whole, notes=notes)


def _dump(raw: bytes, where: str) -> GgufFile:
    """A JSON object whose keys are GGUF keys."""
    if len(raw) > MAX_DUMP_BYTES:
        raise GgufError(f"the JSON is over {MAX_DUMP_BYTES // 2**20} MiB", where, "leave the vocabulary out")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise GgufError("neither GGUF nor UTF-8 text", where, "give a .gguf file, or a JSON dump of its metadata") from None
    values: Mapping[str, object] = parse_object(text, where, GgufError)
    for wrapper in _DUMP_WRAPPERS:
        inner = values.get(wrapper)
        if "general.architecture" not in values and isinstance(inner, Mapping):
            values = {str(key): _unwrapped(value) for key, value in inner.items()}
    if not isinstance(values.get("general.architecture"), str):
        raise GgufError(
            "the JSON has no general.architecture, so it is no dump of GGUF metadata", where, "use --config for a config.json"
        )
    return GgufFile(GgufMetadata(values), where)


def _unwrapped(value: object) -> object:
    """gguf_dump.py writes {"type": …, "value": …}."""
    return value["value"] if isinstance(value, Mapping) and "value" in value else value


__all__ = ["MAGIC", "GgufFile", "read_gguf", "read_stream", "split_names"]
