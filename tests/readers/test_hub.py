"""``--hub``: the real client against a small server on loopback. No network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import Cli

from kvcalc.errors import HubError, MissingExtraError, UsageError
from kvcalc.readers.hub import fetch

pytest.importorskip("huggingface_hub")

LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
BODIES = {
    "org/model": json.dumps(LLAMA).encode(),
    "org/broken": b"{",
    "org/other": json.dumps({**LLAMA, "num_hidden_layers": 4}).encode(),
}
REFUSALS = {
    "org/missing": (404, "RepoNotFound"),
    "org/private": (401, "RepoNotFound"),
    "org/gated": (403, "GatedRepo"),
    "org/no-file": (404, "EntryNotFound"),
    "org/no-revision": (404, "RevisionNotFound"),
    "org/ill": (500, ""),
}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as config.json needs."""

    asked: list[str]
    tokens: list[str]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        repository = "/".join(self.path.strip("/").split("/")[:2])
        type(self).asked.append(f"{self.command} {self.path}")
        type(self).tokens.append(self.headers.get("Authorization", ""))
        if repository in REFUSALS:
            status, code = REFUSALS[repository]
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = BODIES[repository]
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    """A hub of our own, an empty cache, no retries that wait."""
    from huggingface_hub import constants

    handler = type("OneHub", (Hub,), {"asked": [], "tokens": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_of_the_hub(hub: type[Hub], cli: Cli) -> None:
    ran = cli("estimate", "--hub", "org/model", "--dtype", "fp16", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["total_bytes"] == 2 * 2 * 4096 * 2 * 16 * 2
    assert ran.json["model"]["name"] == "org/model"
    assert ran.json["model"]["source"] == "hub org/model: config.json"


def test_the_user_s_endpoint_cache_and_offline_switch_hold(hub: type[Hub], tmp_path: Path) -> None:
    from huggingface_hub import constants

    def ask(**more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "kvcalc", "estimate", "--hub", "org/model"]
        environment = {**os.environ, "HF_ENDPOINT": constants.ENDPOINT, "HF_HUB_CACHE": str(tmp_path / "mine"), **more}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)

    assert "can't be reached" in ask(HF_HUB_OFFLINE="1").stderr
    assert hub.asked == []
    online = ask()
    assert (online.returncode, online.stderr) == (0, "")
    assert list((tmp_path / "mine").rglob("config.json"))
    hub.asked.clear()
    assert ask(HF_HUB_OFFLINE="1").stdout == online.stdout
    assert hub.asked == []


def test_org_slash_name_alone_is_the_hub(hub: type[Hub], cli: Cli) -> None:
    assert cli("estimate", "org/model").code == 0


def test_config_json_alone_is_fetched_with_the_user_s_token(hub: type[Hub], cli: Cli) -> None:
    assert cli("estimate", "--hub", "org/model").code == 0
    assert {line.rsplit("/", 1)[-1] for line in hub.asked} == {"config.json"}
    assert set(hub.tokens) == {"Bearer hf_secret"}


def test_a_revision_is_asked_for(hub: type[Hub], cli: Cli) -> None:
    assert cli("estimate", "--hub", "org/model", "--revision", "v2").code == 0
    assert all("/v2/" in line or COMMIT in line for line in hub.asked)


def test_what_is_in_the_cache_is_read_offline(hub: type[Hub], cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    assert cli("estimate", "--hub", "org/model").code == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.asked.clear()
    assert cli("estimate", "--hub", "org/model").code == 0
    assert hub.asked == []


def test_offline_without_a_cache_is_unavailable(hub: type[Hub], cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    ran = cli("estimate", "--hub", "org/model")
    assert ran.code == 5
    assert "can't be reached" in ran.err
    assert hub.asked == []


NOT_THERE = {
    "org/missing": "no such repository",
    "org/private": "no such repository",
    "org/gated": "gated",
    "org/no-file": "has no config.json",
    "org/no-revision": "no revision",
}


@pytest.mark.parametrize("repository", NOT_THERE)
def test_what_the_hub_refuses(repository: str, hub: type[Hub], cli: Cli) -> None:
    ran = cli("estimate", "--hub", repository, "--json")
    assert (ran.code, ran.json["error"]["code"]) == (5, "hub")
    assert NOT_THERE[repository] in ran.json["error"]["what"]
    assert ran.json["error"]["fix"]
    assert "Traceback" not in ran.err


def test_a_broken_file_of_the_hub_is_bad_input(hub: type[Hub], cli: Cli) -> None:
    assert cli("estimate", "--hub", "org/broken").code == 3


def test_several_models_of_the_hub(hub: type[Hub], cli: Cli) -> None:
    ran = cli("compare", "org/model", "org/other", "llama-8b", "--json")
    assert [found["model"]["name"] for found in ran.json["estimates"]] == ["org/model", "org/other", "llama-8b"]


@pytest.mark.parametrize(
    "name", ["", "model", "a/b/c", "../x", "org/", "/model", "org/mo del", "org/..", "https://hub/org/model", "a/" + "b" * 200]
)
def test_what_names_no_repository(name: str) -> None:
    with pytest.raises(UsageError, match="no hub repository"):
        fetch(name, "config.json")


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(time, "sleep", lambda _: None)  # the client waits longer and longer between its tries
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(HubError, match=r"can't be reached|did not answer"):
        fetch("org/model", "config.json")


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError) as caught:
        fetch("org/model", "config.json")
    assert "kvcalc[hub]" in caught.value.fix
