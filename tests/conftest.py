"""Fixtures for every test: the command line in process, in a clean environment at a fixed width."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from kvcalc.cli import main

settings.register_profile(
    "kvcalc", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kvcalc")

EQUATION = ("--layers", "2", "--kv-heads", "2", "--head-dim", "4")


class Ran(NamedTuple):
    """What a command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Ran]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No user's presets, hub cache, colour or terminal width reaches a test."""
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")  # Typer's help


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """``cli("estimate", "--preset", "llama-8b")`` → (exit code, stdout, stderr)."""

    def run(*argv: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in argv])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """``write({...})`` → the path of a config.json that holds it (text and bytes as they are)."""

    def file(content: object, name: str = "config.json") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return file
