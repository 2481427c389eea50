"""Bars that count: on a terminal only, and never beside a file that is read at once."""

from __future__ import annotations

import io
import sys

import pytest

from kvcalc.cli import progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def watching(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in the place of stderr, and a pipe in that of stdout; not a fixture, for pytest sets both anew after those."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def test_a_large_file_is_counted_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = watching(monkeypatch)
    stream = io.BytesIO(b"x" * 100)
    with progress.read(stream, progress.LARGE_FILE, "engine.log") as reading:
        assert [len(reading(64)), len(reading(64)), len(reading(64))] == [64, 36, 0]
    assert "engine.log" in stderr.getvalue()


def test_a_small_file_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = watching(monkeypatch)
    with progress.read(io.BytesIO(b"abc"), 3, "engine.log") as reading:
        assert reading(8) == b"abc"
    assert stderr.getvalue() == ""


def test_nobody_looks_at_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not progress.watched()
    with progress.read(io.BytesIO(b"abc"), progress.LARGE_FILE, "engine.log") as reading:
        assert reading(8) == b"abc"


def test_items_pass_by_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = watching(monkeypatch)
    assert progress.watched()
    assert list(progress.tracked(range(3000), 3000, "combinations")) == list(range(3000))
    assert "combinations" in stderr.getvalue()
