"""From a stream of bytes to the lines that hold a known word: any encoding, compressed or not, in linear time."""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator

from kvcalc.errors import LogError

CHUNK = 1 << 20
PIECE = 1 << 12  # compressed bytes at a time: what a member leaves over is copied, so it must be short
LINE_MAX = 1 << 16  # vLLM's and SGLang's own longest lines have about 10,000 characters
WRAPPED, WHOLE = b"To serve at least one request", b"estimated maximum model length is "  # of a refusal that may be wrapped
WRAPPED_LINES, WRAPPED_MAX = 9, 1 << 11
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,10}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_])|[\x00-\x08\x0b-\x1f\x7f]"
)
_QUOTED = re.compile(r"^(?:[>|]\s{0,9}){1,5}")
_WRAPPERS = ("log", "message", "MESSAGE", "msg")  # docker's json-file driver, journalctl -o json, structured loggers

Reading = Callable[[int], bytes]

# Bytes: decompressed, and in an encoding that keeps ASCII


def plain(read: Reading, source: str) -> Iterator[bytes]:
    """The log's bytes, unpacked, in an encoding that keeps ASCII. Raises LogError for a damaged archive."""
    first = read(CHUNK)
    while 0 < len(first) < 4 and (more := read(CHUNK)):
        first += more
    chunks = _chain(first, read)
    if first.startswith(b"\x1f\x8b"):
        chunks = _gunzipped(chunks, source)
        first = next(chunks, b"")
        chunks = _chain_chunks(first, chunks)
    encoding = _wide_encoding(first)
    return _narrowed(chunks, encoding) if encoding else chunks


def _chain(first: bytes, read: Callable[[int], bytes]) -> Iterator[bytes]:
    chunk = first
    while chunk:
        yield chunk
        chunk = read(CHUNK)


def _chain_chunks(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _gunzipped(chunks: Iterable[bytes], source: str) -> Iterator[bytes]:
    inflate = zlib.decompressobj(31)
    try:
        for data in (chunk[at : at + PIECE] for chunk in chunks for at in range(0, len(chunk), PIECE)):
            while data:
                if piece := inflate.decompress(data, CHUNK):
                    yield piece
                data = inflate.unconsumed_tail
                if inflate.eof:  # rotated logs are often several members end to end
                    data, inflate = inflate.unused_data, zlib.decompressobj(31)
    except zlib.error as problem:
        raise LogError(f"the compressed log is damaged: {problem}", source, "unpack it first, or give it again") from problem


def _wide_encoding(first: bytes) -> str:
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = first[:4096]
    if head[1::2].count(0) * 3 > len(head):  # PowerShell's > writes UTF-16
        return "utf-16-le"
    return "utf-16-be" if head[::2].count(0) * 3 > len(head) else ""


def _narrowed(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


# Lines: those with a known word, numbered as an editor numbers them


class Lines:
    """Iterates over (number, text) of the lines that hold a needle; ``count`` is how many lines went by."""

    def __init__(self, chunks: Iterable[bytes], needles: Iterable[str]) -> None:
        self._chunks = chunks
        self._needles = tuple(sorted({needle.encode() for needle in needles}))
        self.count = 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for body in self._bodies():
            yield from self._known(body)
            self.count += body.count(b"\n")

    def _bodies(self) -> Iterator[bytes]:
        """Whole lines a chunk; a line longer than LINE_MAX loses its tail."""
        rest, skipping = b"", False
        for chunk in self._chunks:
            if skipping:
                cut = chunk.find(b"\n")
                if cut < 0:
                    continue
                chunk, skipping = chunk[cut:], False
            data = rest + chunk
            cut = data.rfind(b"\n") + 1
            wrapped = data.rfind(WRAPPED, max(0, cut - WRAPPED_MAX), cut)
            cut = cut if wrapped < 0 else data.rfind(b"\n", 0, wrapped) + 1  # its further lines may be in the next chunk
            yield data[:cut]
            rest, skipping = data[cut : cut + LINE_MAX], len(data) - cut > LINE_MAX
        if rest:
            yield rest + b"\n"

    def _known(self, body: bytes) -> Iterator[tuple[int, str]]:
        number, counted = self.count + 1, 0
        for start in sorted(self._starts(body)):
            number, counted = number + body.count(b"\n", counted, start), start
            line = body[start : min(body.find(b"\n", start), start + LINE_MAX)]
            if WRAPPED in line and WHOLE not in line:
                yield number, _joined(body[start : start + WRAPPED_MAX])
                continue
            for piece in line.split(b"\r"):  # progress bars
                if any(needle in piece for needle in self._needles):
                    yield number, _clean(piece)

    def _starts(self, body: bytes) -> set[int]:
        """Where the lines with a needle start. A search a needle is many times faster than one pattern of them all."""
        found = set()
        for needle in self._needles:
            at = body.find(needle)
            while at >= 0:
                found.add(body.rfind(b"\n", 0, at) + 1)
                at = body.find(needle, body.find(b"\n", at))
        return found


def _joined(lines: bytes) -> str:
    """A line and those after it as one, as it was before a terminal wrapped it."""
    cleaned = [_clean(line) for line in lines.split(b"\n")[:WRAPPED_LINES]]
    return "".join(_QUOTED.sub("", line) for line in cleaned)


def _clean(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    if text.lstrip()[:1] == "{":
        text = _unwrapped(text)
    return _ESCAPES.sub("", text).strip()


def _unwrapped(text: str) -> str:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return next((record[key] for key in _WRAPPERS if isinstance(record.get(key), str)), text)
