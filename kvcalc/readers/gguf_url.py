"""A remote file read by ranges, so that a header of a few megabytes is all that travels."""

from __future__ import annotations

import io
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import IO, cast
from urllib.parse import quote, urlsplit

from kvcalc.errors import HubError
from kvcalc.readers.gguf import _Opened

CHUNK = 2 * 2**20
TIMEOUT_SECONDS = 30
_AGENT = "kvcalc"


class RangeFile(io.RawIOBase):
    """A file on an HTTP server, forward only: each chunk is one request for a range of bytes."""

    def __init__(self, url: str, headers: dict[str, str] | None = None, chunk: int = CHUNK) -> None:
        super().__init__()
        self._url = url
        self._headers = headers or {}
        self._chunk = chunk
        self._offset = 0
        self._buffer = b""
        self._start = 0  # of the buffer
        self.size: int | None = None
        self._load()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._offset = offset if whence == io.SEEK_SET else self._offset + offset
        return self._offset

    def tell(self) -> int:
        return self._offset

    def read(self, size: int = -1) -> bytes:
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
        """The chunk at the offset."""
        asked = f"bytes={self._offset}-{self._offset + self._chunk - 1}"
        request = urllib.request.Request(self._url, headers={"User-Agent": _AGENT, "Range": asked, **self._headers})  # noqa: S310 - http(s) only, see open_url
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - as above
                self._take(answer)
        except urllib.error.HTTPError as problem:
            problem.close()
            if problem.code == 416:  # noqa: PLR2004 - "range not satisfiable": past the end
                self._buffer, self._start = b"", self._offset
                return
            raise HubError(f"the server answers {problem.code} {problem.reason}", self._url, _meaning(problem.code)) from None
        except (urllib.error.URLError, HTTPException, OSError, ValueError) as problem:
            reason = getattr(problem, "reason", problem)
            raise HubError(f"the server can't be reached: {reason}", self._url, "check the address and the network") from None

    def _take(self, answer: IO[bytes]) -> None:
        headers = answer.headers  # type: ignore[attr-defined]
        if answer.status == 206:  # type: ignore[attr-defined]  # noqa: PLR2004 - "partial content"
            total = str(headers.get("Content-Range", "")).rpartition("/")[2]
            self.size = int(total) if total.isdigit() else None
        elif self._offset:
            raise HubError("the server does not give ranges of a file", self._url, "fetch the file, and name it with --gguf")
        else:
            length = str(headers.get("Content-Length", ""))
            self.size = int(length) if length.isdigit() else None
        self._start = self._offset
        self._buffer = answer.read(self._chunk)


def _meaning(code: int) -> str:
    if code in (401, 403):
        return "the file is not public: give a token in HF_TOKEN, or fetch it yourself"
    return "check the address" if code == 404 else "try again later"  # noqa: PLR2004 - "not found"


def open_url(url: str, headers: dict[str, str] | None = None) -> _Opened:
    """The file at an http(s) URL. Raises HubError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise HubError("this is no http or https address", url, "write https://host/path/model.gguf")
    file = RangeFile(url, headers)
    return _Opened(cast("IO[bytes]", file), file.size)


def hub_url(name: str, file: str, revision: str | None) -> str:
    """Where the hub keeps ``file`` of the repository ``name``; follows HF_ENDPOINT. Raises MissingExtraError."""
    from kvcalc.readers.hub import hub_file_url

    return hub_file_url(name, quote(file), revision)
