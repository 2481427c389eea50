"""A remote file read by ranges, so that a header of a few megabytes is all that travels."""

from __future__ import annotations

import io
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import IO, cast
from urllib.parse import urlsplit

from kvcalc.errors import HubError

CHUNK = 2 * 2**20
TIMEOUT_SECONDS = 30  # without a byte
WHOLE_SECONDS = 600  # for a file's header, however many requests it takes
LEAST_BYTES = 2**10  # of an answer before the end of the file; less is a server that would be asked for ever
_PARTIAL_CONTENT, _PAST_THE_END, _NOT_FOUND = 206, 416, 404
_NOT_ALLOWED = (401, 403)
_FETCH = "fetch the file, and name it with --gguf"


class RangeFile(io.RawIOBase):
    """A file on an HTTP server, forward only: each chunk is one request for a range of bytes."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, chunk: int = CHUNK) -> None:
        super().__init__()
        self._url = url
        self._headers = dict(headers or {})
        self._chunk = chunk
        self._offset = 0
        self._buffer = b""
        self._start = 0  # of the buffer
        self.size: int | None = None
        self._until = time.monotonic() + WHOLE_SECONDS
        self._load()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """Skipping costs no transfer."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; nothing is fetched before it is read."""
        self._offset = offset if whence == io.SEEK_SET else self._offset + offset
        return self._offset

    def tell(self) -> int:
        """The byte that is read next."""
        return self._offset

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes; fewer at the end of a chunk, none at the end of the file. Raises HubError."""
        ahead = self._offset - self._start
        if not 0 <= ahead < len(self._buffer):
            if self.size is not None and self._offset >= self.size:
                return b""
            self._load()
            ahead = 0
        found = self._buffer[ahead:] if size < 0 else self._buffer[ahead : ahead + size]
        self._offset += len(found)
        return found

    def _load(self) -> None:
        """Fetch the chunk at the offset."""
        asked = f"bytes={self._offset}-{self._offset + self._chunk - 1}"
        headers = {"User-Agent": "kvcalc", "Accept-Encoding": "identity", "Range": asked, **self._headers}
        request = urllib.request.Request(self._url, headers=headers)  # noqa: S310 - open_url lets http and https through, no more
        try:
            with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
                self._take(answer)
        except urllib.error.HTTPError as problem:
            problem.close()
            if problem.code != _PAST_THE_END:
                raise HubError(f"the server answers {problem.code} {problem.reason}", self._url, _meaning(problem.code)) from None
            self._buffer, self._start, self.size = b"", self._offset, self._offset
        except (urllib.error.URLError, HTTPException, OSError, ValueError) as problem:
            reason = getattr(problem, "reason", None) or problem.__class__.__name__
            raise HubError(f"the server can't be reached: {reason}", self._url, "check the address and the network") from None

    def _take(self, answer: HTTPResponse) -> None:
        if answer.status == _PARTIAL_CONTENT:
            self.size = _number(answer.headers.get("Content-Range", "").rpartition("/")[2])
        elif self._offset:
            raise HubError("the server does not give ranges of a file", self._url, _FETCH)
        else:
            self.size = _number(answer.headers.get("Content-Length", ""))
        self._start = self._offset
        self._buffer = self._received(answer)
        end = self._start + len(self._buffer)
        if self.size is not None and len(self._buffer) < min(LEAST_BYTES, self._chunk) and end < self.size:
            raise HubError(f"the server answers {len(self._buffer)} bytes at a time", self._url, _FETCH)

    def _received(self, answer: HTTPResponse) -> bytes:
        """Up to a chunk of the answer, as it comes: a server that drips must not hold us for ever."""
        found = bytearray()
        while len(found) < self._chunk:
            if time.monotonic() > self._until:
                raise HubError(f"the server took over {WHOLE_SECONDS} seconds", self._url, _FETCH)
            piece = answer.read1(self._chunk - len(found))
            if not piece:
                break
            found += piece
        return bytes(found)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _meaning(code: int) -> str:
    if code in _NOT_ALLOWED:
        return "the file is not public: log in with hf auth login, or fetch it yourself"
    return "check the address" if code == _NOT_FOUND else "try again later"


class _SameHostOnly(urllib.request.HTTPRedirectHandler):
    """A token goes to the host that it was meant for, not to where that host sends us."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        """Follow to http(s) alone, without credentials for another host or over a line that anyone can read."""
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme not in ("http", "https"):
            return None
        further = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]  # HTTPMessage is a Message
        laid_open = before.scheme == "https" and after.scheme == "http"
        if further is not None and (laid_open or after.netloc != before.netloc):
            further.remove_header("Authorization")
        return further


_OPENER = urllib.request.build_opener(_SameHostOnly)


def open_url(url: str, headers: Mapping[str, str] | None = None) -> tuple[IO[bytes], int | None]:
    """The file at an http(s) URL, and its size where the server says it. Raises HubError."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise HubError("this is no http or https address", url[:200], "write https://host/path/model.gguf")
    file = RangeFile(url, headers)
    return cast("IO[bytes]", file), file.size
