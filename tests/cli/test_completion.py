"""Completion in bash, zsh and fish: presets, engines, types, verbs and options; files are left to the shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvcalc.cli import completion

ROOT = Path(__file__).resolve().parents[2]


def complete(shell: str, line: str) -> list[str]:
    """What the program offers after ``line``, in the protocol of ``shell``."""
    words = line.split(" ")
    protocol = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "_KVCALC_COMPLETE": f"complete_{shell}", **protocol}
    code = "import sys; from kvcalc.cli import run; sys.argv = ['kvcalc']; run()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    if shell == "zsh":
        return re.findall(r'"([^"]*)"(?::"[^"]*")?', done.stdout)  # "word":"what it is"
    return [line.split("\t")[0] for line in done.stdout.splitlines() if line]


LINES = {
    "kvcalc es": ["estimate"],
    "kvcalc audit --opt": ["--option"],
    "kvcalc estimate --preset gpt2-m": ["gpt2-medium"],
    "kvcalc estimate --engine llama": ["llama.cpp"],
    "kvcalc sweep --dtype q8": ["q8", "q8_0"],
    "kvcalc compare llama-8b whisper-large-v3-t": ["whisper-large-v3-turbo"],
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line", LINES)
def test_words_are_completed(shell: str, line: str) -> None:
    assert complete(shell, line) == LINES[line]


def test_models_offer_files_of_models_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "a.gguf", "a.txt"):
        (tmp_path / name).touch()
    (tmp_path / "a-folder").mkdir()
    assert set(completion.models("a")) >= {"a.json", "a.gguf", "a-folder/"}
    assert "a.txt" not in completion.models("a")
    (tmp_path / "a-folder" / "config.json").touch()
    assert completion.models("a-folder/") == ["a-folder/config.json"]


def test_what_stands_before_a_missing_folder_offers_nothing() -> None:
    assert completion.models("no/such/folder/x") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_itself_takes_the_script(tmp_path: Path) -> None:
    program = tmp_path / "kvcalc"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from kvcalc.cli import run; run()" "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_KVCALC_COMPLETE=source_bash kvcalc)"
        COMP_WORDS=(kvcalc estimate --preset gpt2-m) COMP_CWORD=3
        _kvcalc_completion kvcalc
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["gpt2-medium"]
