"""Where a GGUF header comes from: files, pipes, split files, JSON dumps, a server's ranges."""

from __future__ import annotations

import io
import json
import os
import threading
import urllib.request
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, cast

import pytest
from gguf_files import LLAMA, TENSORS, header

from kvcalc.core.gguf import GgufMetadata
from kvcalc.errors import GgufError, HubError, UsageError
from kvcalc.readers import gguf_url
from kvcalc.readers.gguf import read_gguf, read_stream, split_names
from kvcalc.readers.gguf_url import RangeFile, open_url

RAW = header()
DATA = bytes(4096)


def test_a_whole_file_and_its_header_alone_say_the_same(tmp_path: Path) -> None:
    whole, alone = tmp_path / "whole.gguf", tmp_path / "alone.gguf"
    whole.write_bytes(RAW + DATA)
    alone.write_bytes(RAW)
    assert dict(read_gguf(str(whole)).metadata) == dict(read_gguf(str(alone)).metadata)
    assert read_gguf(str(whole)).tensors == read_gguf(str(alone)).tensors


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: path.mkdir(), "folder"),
        (lambda path: path.write_bytes(b""), "cut off"),
        (lambda path: path.write_bytes(b"GGUF"), "cut off"),
        (lambda path: None, "no such file"),
    ],
    ids=["folder", "empty", "magic alone", "missing"],
)
def test_what_is_no_file_is_a_clear_error(tmp_path: Path, make: object, what: str) -> None:
    path = tmp_path / "x.gguf"
    make(path)  # type: ignore[operator]
    with pytest.raises(GgufError, match=what) as caught:
        read_gguf(str(path))
    assert str(path) in caught.value.where


def test_a_name_with_a_null_byte_is_a_clear_error() -> None:
    with pytest.raises(GgufError, match="can't be read"):
        read_gguf("a\0b.gguf")


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(RAW + DATA))
    writer.start()
    try:
        assert read_gguf(str(path)).metadata["llama.block_count"] == 2
    finally:
        writer.join()


def test_standard_input_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(RAW)))
    assert read_gguf("-").metadata["llama.block_count"] == 2


# JSON dumps

DUMP = {"general.architecture": "llama", "llama.block_count": 2, "llama.attention.head_count_kv": [2, 2]}


@pytest.mark.parametrize(
    "content",
    [
        DUMP,
        {"model_info": DUMP, "license": "…"},
        {"filename": "x", "metadata": {key: {"index": 1, "type": "UINT32", "value": value} for key, value in DUMP.items()}},
    ],
    ids=["plain", "ollama's show", "gguf_dump --json"],
)
def test_a_dump_of_the_metadata_is_taken(content: object) -> None:
    found = read_stream(io.BytesIO(("  " + json.dumps(content)).encode()), "dump.json")
    assert dict(found.metadata) == DUMP
    assert found.tensors is None
    assert found.metadata.has_tensor("x") is None


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b'{"a": 1}',
        b'{"general.architecture": 5}',
        b"{" + b'"a":[' * 100_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
        b'{"a": "\xff"}',
    ],
    ids=["cut off", "no architecture", "architecture a number", "nested", "number of 10,000 digits", "not UTF-8"],
)
def test_a_dump_that_can_not_be_right_is_a_clear_error(raw: bytes) -> None:
    with pytest.raises(GgufError):
        read_stream(io.BytesIO(raw), "dump.json")


# Split files


def shards(folder: Path, count: int = 3) -> list[Path]:
    """A model in ``count`` parts: all keys in the first, a tensor in each."""
    paths = [folder / f"model-{index:05d}-of-{count:05d}.gguf" for index in range(1, count + 1)]
    for index, path in enumerate(paths):
        split = {"split.no": ("u16", index), "split.count": ("u16", count)}
        keys = {**LLAMA, **split} if index == 0 else split
        path.write_bytes(header(keys, ((f"blk.{index}.attn_k.weight", (32,), 0, 0),)))
    return paths


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_of_a_split_file_leads_to_all(tmp_path: Path, given: int) -> None:
    found = read_gguf(str(shards(tmp_path)[given]))
    assert found.metadata["llama.block_count"] == 2
    assert [tensor.name for tensor in found.tensors or ()] == [f"blk.{index}.attn_k.weight" for index in range(3)]
    assert found.notes == ()


def test_missing_parts_are_noted(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    paths[2].unlink()
    found = read_gguf(str(paths[0]))
    assert len(found.tensors or ()) == 2
    assert "1 of 3 parts" in found.notes[0]


def test_without_its_first_part_a_split_file_has_no_architecture(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    paths[0].unlink()
    assert "general.architecture" not in read_gguf(str(paths[1])).metadata


@pytest.mark.parametrize("name", ["x.gguf", "x-00004-of-00003.gguf", "x-00000-of-00003.gguf", "x-00001-of-99999.gguf"])
def test_names_that_are_no_part(name: str) -> None:
    assert split_names(name) == []


# URLs


PORT = [0]


class Quiet(ThreadingHTTPServer):
    """A server that says nothing when a client leaves early."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing."""


class Server(BaseHTTPRequestHandler):
    """Serves ``files`` by ranges, and notes what was asked."""

    files: dict[str, bytes] = {}  # noqa: RUF012 - shared by the handler's instances on purpose
    asked: list[str] = []  # noqa: RUF012 - as above
    ranges = True
    most = 2**40  # bytes of an answer

    def do_GET(self) -> None:
        """A range of a file, or all of it."""
        wanted = self.headers.get("Range", "")
        type(self).asked.append(f"{self.path} {wanted} {self.headers.get('Authorization', '')}".strip())
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved"))
            self.end_headers()
            return
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{PORT[0]}{self.path.removeprefix('/away')}")
            self.end_headers()
            return
        raw = self.files.get(self.path)
        if raw is None:
            self.send_error(404)
            return
        first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
        if not self.ranges:
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
        elif first >= len(raw):
            self.send_error(416)
        else:
            piece = raw[first : min(last + 1, first + self.most)]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{first + len(piece) - 1}/{len(raw)}")
            self.send_header("Content-Length", str(len(piece)))
            self.end_headers()
            self.wfile.write(piece)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent."""


@pytest.fixture
def address() -> Iterator[str]:
    """A server on this machine."""
    Server.files, Server.asked, Server.ranges, Server.most = {}, [], True, 2**40
    server = Quiet(("127.0.0.1", 0), Server)
    PORT[0] = int(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_header_is_fetched_without_the_data_behind_it(address: str) -> None:
    Server.files = {"/m.gguf": RAW + bytes(8 * 2**20)}
    found = read_gguf(f"{address}/m.gguf")
    assert found.metadata["llama.block_count"] == 2
    assert Server.asked == ["/m.gguf bytes=0-2097151"]


def test_large_arrays_are_not_fetched(address: str) -> None:
    keys = {"scores": ("[f32]", [0.0] * 3_000_000), **LLAMA}
    Server.files = {"/m.gguf": header(keys)}
    file = RangeFile(f"{address}/m.gguf", chunk=100_000)
    found = read_stream(cast("IO[bytes]", file), "remote", file.size)
    assert found.metadata["llama.block_count"] == 2
    assert len(Server.asked) < 5  # 12 MB lie between


def test_a_redirect_is_followed(address: str) -> None:
    Server.files = {"/m.gguf": RAW}
    assert read_gguf(f"{address}/moved/m.gguf").metadata["llama.block_count"] == 2


def test_a_token_does_not_follow_to_another_host(address: str) -> None:
    Server.files = {"/m.gguf": RAW}
    stream, _ = open_url(f"{address}/away/m.gguf", {"Authorization": "Bearer secret"})
    stream.close()
    assert [("secret" in line) for line in Server.asked] == [True, False]


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [
        ("https://host/m.gguf", "http://host/m.gguf", False),
        ("https://host/m.gguf", "https://other/m.gguf", False),
        ("https://host/m.gguf", "https://host/n.gguf", True),
        ("http://host/m.gguf", "https://host/m.gguf", True),
    ],
)
def test_a_token_does_not_follow_to_a_line_that_anyone_can_read(start: str, end: str, kept: bool) -> None:
    asked = urllib.request.Request(start, headers={"authorization": "Bearer secret"})
    further = gguf_url._SameHostOnly().redirect_request(asked, io.BytesIO(), 302, "", Message(), end)
    assert further is not None
    assert further.has_header("Authorization") is kept


def test_a_server_of_one_byte_ranges_is_not_asked_for_ever(address: str) -> None:
    Server.files, Server.most = {"/m.gguf": RAW}, 1
    with pytest.raises(HubError, match="1 bytes at a time"):
        read_gguf(f"{address}/m.gguf")
    assert len(Server.asked) == 1


def test_a_server_of_short_ranges_is_read_on(address: str) -> None:
    Server.files, Server.most = {"/m.gguf": header({"scores": ("[f32]", [0.0] * 2_000), **LLAMA})}, 1_024
    assert read_gguf(f"{address}/m.gguf").metadata["llama.block_count"] == 2


def test_the_whole_transfer_ends(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Server.files = {"/m.gguf": RAW}
    monkeypatch.setattr(gguf_url, "WHOLE_SECONDS", -1)
    with pytest.raises(HubError, match="the server took over"):
        read_gguf(f"{address}/m.gguf")


def test_split_files_are_followed_on_a_server(address: str, tmp_path: Path) -> None:
    Server.files = {f"/{path.name}": path.read_bytes() for path in shards(tmp_path)}
    assert len(read_gguf(f"{address}/model-00002-of-00003.gguf").tensors or ()) == 3


def test_a_server_without_ranges_serves_small_headers(address: str) -> None:
    Server.files, Server.ranges = {"/m.gguf": RAW + bytes(100)}, False
    assert read_gguf(f"{address}/m.gguf").metadata["llama.block_count"] == 2


def test_a_server_without_ranges_is_told_of(address: str) -> None:
    Server.files, Server.ranges = {"/m.gguf": header({"t": ("[string]", ["x" * 100] * 60_000), **LLAMA})}, False
    with pytest.raises(HubError, match="ranges"):
        read_gguf(f"{address}/m.gguf")


def test_a_missing_remote_file_is_a_clear_error(address: str) -> None:
    with pytest.raises(HubError, match="404"):
        read_gguf(f"{address}/none.gguf")


def test_a_remote_header_cut_off_is_a_clear_error(address: str) -> None:
    Server.files = {"/m.gguf": RAW[:100]}
    with pytest.raises(GgufError, match="cut off"):
        read_gguf(f"{address}/m.gguf")


def test_an_unreachable_server_is_a_clear_error() -> None:
    with pytest.raises(HubError, match="can't be reached"):
        read_gguf("http://127.0.0.1:9/m.gguf")


@pytest.mark.parametrize("url", ["http://", "https:///x", "http://[::1/x", "http://a b/x.gguf", "ftp://h/x"])
def test_what_is_no_address_is_a_clear_error(url: str) -> None:
    with pytest.raises(HubError, match="no http or https address"):
        open_url(url)


def test_tensors_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(RAW)
    metadata = read_gguf(str(path)).metadata
    assert isinstance(metadata, GgufMetadata)
    assert metadata.has_tensor(TENSORS[0][0]) is True
    assert metadata.has_tensor("none") is False


def test_a_name_that_is_no_repository_is_a_usage_error() -> None:
    from kvcalc.readers.gguf_hub import read_hub_gguf

    with pytest.raises(UsageError, match="ORG/NAME"):
        read_hub_gguf("nonsense", "x.gguf")


def test_a_hub_file_is_read_by_ranges_with_the_users_token(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    from kvcalc.readers.gguf_hub import read_hub_gguf

    Server.files = {"/org/name/m.gguf": RAW + bytes(5000)}
    monkeypatch.setattr(hub, "hf_hub_url", lambda repository, file, revision: f"{address}/{repository}/{file}")
    monkeypatch.setattr(hub.utils, "build_hf_headers", lambda: {"authorization": "Bearer mine"})
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_, **__: None)
    assert read_hub_gguf("org/name", "m.gguf").metadata["llama.block_count"] == 2
    assert "Bearer mine" in Server.asked[0]


def test_a_hub_file_in_the_cache_is_taken_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    from kvcalc.readers.gguf_hub import read_hub_gguf

    path = tmp_path / "m.gguf"
    path.write_bytes(RAW)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_, **__: str(path))
    assert read_hub_gguf("org/name", "m.gguf").source == str(path)


def test_offline_a_hub_file_that_is_not_in_the_cache_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    from kvcalc.readers.gguf_hub import read_hub_gguf

    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_, **__: None)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="switched off"):
        read_hub_gguf("org/name", "m.gguf")
