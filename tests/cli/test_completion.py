"""Completion in bash, zsh and fish: presets, engines, types, verbs and options; files are left to the shell."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

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
    "kvcalc estimate -e vllm -o kv-c": ["kv-cache-dtype=", "kv-cache-memory-bytes="],
    "kvcalc estimate -e llama.cpp -o swa": ["swa-full"],
    "kvcalc verify --cache qu": ["quantized"],
    "kvcalc verify --cache static,qu": ["static,quantized"],
    "kvcalc compare llama-8b whisper-large-v3-t": ["whisper-large-v3-turbo"],
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line", LINES)
def test_words_are_completed(shell: str, line: str) -> None:
    assert complete(shell, line) == LINES[line]


def test_a_choice_s_values_are_offered_and_an_unknown_engine_has_none() -> None:
    def offered(engine: str, start: str) -> list[str]:
        return completion.options(SimpleNamespace(params={"engine": engine}), start)  # type: ignore[arg-type]

    assert offered("vllm", "mamba-cache-dtype=f") == ["mamba-cache-dtype=float16", "mamba-cache-dtype=float32"]
    assert offered("nope", "") == []


def test_the_caches_are_those_of_verify() -> None:
    run = pytest.importorskip("kvcalc.verify.run", exc_type=ImportError)
    assert completion.CACHES == run.CACHES


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


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has a kvcalc that runs this tree."""
    script = tmp_path / "kvcalc"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from kvcalc.cli import run; run()" "$@"\n')
    script.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "TERM": "dumb"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_itself_takes_the_script(program: dict[str, str]) -> None:
    script = """
        eval "$(_KVCALC_COMPLETE=source_bash kvcalc)"
        COMP_WORDS=(kvcalc estimate --preset gpt2-m) COMP_CWORD=3
        _kvcalc_completion kvcalc
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script], env=program, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["gpt2-medium"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_itself_takes_the_script(program: dict[str, str]) -> None:
    words = 'env _KVCALC_COMPLETE=source_fish kvcalc | source; complete -C "kvcalc estimate --preset gpt2-m"'
    asked = ["fish", "--no-config", "-c", words]
    done = subprocess.run(asked, env=program, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["gpt2-medium"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_itself_takes_the_script(program: dict[str, str]) -> None:
    """Zsh completes only at a prompt: typed on a terminal of its own, then run to print what it has become."""
    child, terminal = pty.fork()
    if not child:
        os.execvpe("zsh", ["zsh", "-f", "-i"], program)
    os.write(terminal, b"unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; echo is''ready\n")
    _until(terminal, b"isready")
    os.write(terminal, b"eval \"$(_KVCALC_COMPLETE=source_zsh kvcalc)\"; echo is''loaded\n")
    _until(terminal, b"isloaded")
    os.write(terminal, b"kvcalc estimate --preset gpt2-m\t")
    _until(terminal, b"gpt2-medium")
    os.write(terminal, b"\x03exit\n")
    os.close(terminal)
    os.waitpid(child, 0)


def _until(terminal: int, awaited: bytes) -> None:
    seen, end = b"", time.monotonic() + 60
    while awaited not in seen:
        ready, _, _ = select.select([terminal], [], [], max(end - time.monotonic(), 0))
        assert ready, f"{awaited!r} is not in {seen!r}"
        seen += os.read(terminal, 4096)
