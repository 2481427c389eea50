"""0 done, 1 no, 2 usage, 3 bad input, 4 unsupported, 5 unavailable, 70 a bug, 130 interrupted: and how each is told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import EQUATION, Cli

from kvcalc import __version__
from kvcalc.cli import app, main
from kvcalc.errors import ConfigError

CODES: dict[str, tuple[tuple[object, ...], int, str]] = {
    "done": (("estimate", *EQUATION), 0, ""),
    "too little memory": (("fit", "llama-8b", "--memory", "1GiB", "--weights", "16GB"), 1, ""),
    "no verb of that name": (("estimat",), 2, "usage"),
    "no option of that name": (("estimate", "--presett", "llama-8b"), 2, "usage"),
    "an option without its value": (("estimate", "--preset"), 2, "usage"),
    "a word too many": (("estimate", "llama-8b", "qwen3-8b"), 2, "usage"),
    "no model": (("estimate",), 2, "usage"),
    "two models": (("estimate", "llama-8b", "--preset", "qwen3-8b"), 2, "usage"),
    "a preset and a config": (("estimate", "--preset", "llama-8b", "--config", "x.json"), 2, "usage"),
    "an option twice": (("estimate", "--preset", "llama-8b", "--preset", "qwen3-8b"), 2, "usage"),
    "an option twice, in two spellings": (("sweep", *EQUATION, "-t", "1k", "--tokens", "2k"), 2, "usage"),
    "an engine's memory twice": (("fit", "llama-8b", "--memory", "1GiB", "-m", "2GiB"), 2, "usage"),
    "a field by two names": (("estimate", "llama-8b", "--set", "num_hidden_layers=4", "--layers", 8), 2, "usage"),
    "a field set twice": (("estimate", "llama-8b", "--set", "head_dim=4", "--set", "head_dim=8"), 2, "usage"),
    "a dark ground without a picture": (("compare", "llama-8b", "--dark"), 2, "usage"),
    "a revision without a hub": (("estimate", "llama-8b", "--revision", "main"), 2, "usage"),
    "a type that is none": (("estimate", "llama-8b", "--set", "torch_dtype=banana"), 4, "dtype"),
    "lengths and tokens": (("estimate", *EQUATION, "--lengths", "1,2", "--tokens", 5), 2, "usage"),
    "lengths and a batch": (("estimate", *EQUATION, "--lengths", "1,2", "--batch", 5), 2, "usage"),
    "lengths of nothing": (("estimate", *EQUATION, "--lengths", ""), 2, "usage"),
    "an option that the engine lacks": (("estimate", *EQUATION, "-o", "nonsense"), 2, "usage"),
    "set without a value": (("estimate", *EQUATION, "--set", "x"), 2, "usage"),
    "set without a key": (("estimate", *EQUATION, "--set", "=1"), 2, "usage"),
    "set with half a list": (("estimate", *EQUATION, "--set", "layer_types=[1,"), 2, "usage"),
    "set nested without end": (("estimate", *EQUATION, "--set", f"layer_types={'[' * 99_999}"), 2, "usage"),
    "an unknown preset": (("estimate", "nope"), 3, "preset"),
    "no file": (("estimate", "--config", "nope.json"), 3, "config"),
    "no gguf file": (("estimate", "nope.gguf"), 3, "gguf"),
    "a million layers": (("estimate", "--layers", "1000000", "--kv-heads", 1, "--head-dim", 1), 3, "config"),
    "heads that don't divide": (("estimate", *EQUATION, "--heads", 3), 3, "config"),
    "no width": (("estimate", "--layers", 2, "--kv-heads", 2), 3, "config"),
    "no heads": (("estimate", "--layers", 2, "--head-dim", 2), 3, "config"),
    "a file of lengths that isn't there": (("estimate", *EQUATION, "--lengths", "nope.txt"), 3, "input"),
    "an unknown type": (("estimate", *EQUATION, "--dtype", "fp7"), 4, "dtype"),
    "a broken block": (("estimate", *EQUATION, "--dtype", "q8_0"), 4, "dtype"),
    "an unknown engine": (("estimate", *EQUATION, "--engine", "nope"), 4, "engine"),
    "an unknown assumption": (("estimate", *EQUATION, "--assume", "nope"), 4, "architecture"),
    "no folder to write to": (("sweep", *EQUATION, "--output", "/nowhere/x"), 5, "output"),
}


@pytest.mark.parametrize("name", ["csv", "markdown"])
def test_a_format_written_as_a_flag_gets_the_option(name: str, cli: Cli) -> None:
    for verb in ("sweep", "estimate"):
        ran = cli(verb, "llama-8b", f"--{name}", "--json")
        assert (ran.code, ran.json["error"]["fix"]) == (2, f"kvcalc sweep writes it: --format {name}")


VALUES = [
    "0",
    "-1",
    "-5k",
    "1e30",
    "1" + "0" * 30,
    "true",
    "None",
    "nan",
    "inf",
    "abc",
    "",
    " ",
    "1k..",
    "..4",
    "1,2",
    "1.5",
    "0x10",
    "１２",
    "²",
]
FLAGS = [
    "--tokens",
    "--batch",
    "--layers",
    "--kv-heads",
    "--head-dim",
    "--heads",
    "--v-head-dim",
    "--hidden-size",
    "--sliding-window",
    "--tp",
    "--pp",
    "--dp",
]


@pytest.mark.parametrize("name", CODES)
def test_the_code_of(name: str, cli: Cli) -> None:
    words, code, _ = CODES[name]
    ran = cli(*words)
    assert ran.code == code, ran.err
    assert "Traceback" not in ran.err
    if code > 1:
        assert ran.out == ""
        assert ran.err.startswith("error: ")
        assert len(ran.err) < 1000


@pytest.mark.parametrize("name", [name for name, (_, code, _) in CODES.items() if code > 1])
def test_an_error_as_json_says_what_where_and_how_to_fix_it(name: str, cli: Cli) -> None:
    words, code, kind = CODES[name]
    ran = cli(*words[:1], "--json", *words[1:])
    assert ran.code == code
    assert set(ran.json) == {"schema_version", "error"}
    error = ran.json["error"]
    assert set(error) == {"code", "what", "where", "fix", "exit_code"}
    assert (error["code"], error["exit_code"]) == (kind, code)
    assert error["what"]
    assert error["fix"] or error["where"]
    assert ran.err.startswith("error: ")


@pytest.mark.parametrize("flag", FLAGS)
def test_a_value_that_can_t_be_is_a_usage_error(flag: str, cli: Cli) -> None:
    shape = {"--layers": "2", "--kv-heads": "2", "--head-dim": "4"}
    for value in VALUES:
        ran = cli("estimate", *(word for pair in {**shape, flag: value}.items() for word in pair))
        assert ran.code == 2, (value, ran.err)
        assert flag in ran.err
        assert "Traceback" not in ran.err


def test_zero_encoder_tokens_are_a_value(cli: Cli) -> None:
    assert cli("estimate", "llama-3.2-11b-vision", "--encoder-tokens", 0).code == 0
    assert cli("estimate", "llama-3.2-11b-vision", "--encoder-tokens", -1).code == 2


def test_figures_beyond_what_json_readers_hold_stay_integers(cli: Cli) -> None:
    largest = 2**53
    shape = ("--layers", 10_000, "--kv-heads", 2**30, "--head-dim", 2**30, "--tokens", largest, "--batch", largest)
    ran = cli("estimate", *shape, "--json")
    assert ran.json["total_bytes"] == 2 * 10_000 * 2**30 * 2**30 * largest * largest * 2
    assert cli("estimate", *shape).code == 0


def test_debug_shows_the_traceback_of_a_known_error(cli: Cli) -> None:
    plain, debug = cli("estimate", "nope"), cli("estimate", "nope", "--debug")
    assert (plain.code, debug.code) == (3, 3)
    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err
    assert debug.err.endswith(plain.err)


def breaking(problem: BaseException) -> Any:
    def command(*_: object, **__: object) -> Any:
        def run(*_: object, **__: object) -> int:
            raise problem

        return type("Group", (), {"main": staticmethod(run)})()

    return command


def test_a_bug_shows_its_traceback_and_ends_in_70(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_command", breaking(ZeroDivisionError("oops")))
    ran = cli("estimate", "llama-8b")
    assert ran.code == 70
    assert "ZeroDivisionError: oops" in ran.err
    assert f"a bug in kvcalc {__version__}" in ran.err


@pytest.mark.parametrize("problem", [MemoryError(), RecursionError("deep"), ValueError("x"), AssertionError()], ids=repr)
def test_nothing_else_passes_for_a_user_s_error(problem: Exception, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_command", breaking(problem))
    assert cli("estimate", "llama-8b").code == 70


def test_ctrl_c_ends_in_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_command", breaking(KeyboardInterrupt()))
    assert cli("estimate", "llama-8b") == (130, "", "\ninterrupted\n")


def test_a_known_error_keeps_its_own_code(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_command", breaking(ConfigError("what", "where", "fix")))
    assert cli("estimate") == (3, "", "error: what\n   at: where\n  fix: fix\n")


def test_main_takes_the_process_s_own_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["kvcalc", "--version"])
    assert main() == 0
    assert __version__ in capsys.readouterr().out


def test_main_never_ends_the_interpreter(cli: Cli) -> None:
    for words in ((), ("--help",), ("--version",), ("estimate", "--help"), ("nope",), ("estimate", "--nope")):
        assert isinstance(cli(*words).code, int)


def process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kvcalc", *words], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("code", [0, 2, 3, 4])
def test_the_process_ends_with_the_code(code: int) -> None:
    words = {0: ("estimate", *EQUATION), 2: ("estimate",), 3: ("estimate", "nope"), 4: ("estimate", *EQUATION, "--dtype", "fp7")}[
        code
    ]
    ran = process(*words)
    assert ran.returncode == code
    assert bool(ran.stdout) == (code == 0)
    assert bool(ran.stderr) == (code != 0)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupted_process_is_quiet_and_ends_in_130() -> None:
    words = [sys.executable, "-m", "kvcalc", "sweep", *EQUATION, "--tokens", "1..10000000:1", "--format", "csv"]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline()
    time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err in (b"", b"\ninterrupted\n")  # the parser may take the signal first


def interrupted(*words: str, delay: float, number: int, tmp_path: Path) -> tuple[int, str]:
    """A run of the program that gets a signal after a while."""
    command = [sys.executable, "-c", "from kvcalc.cli import run; run()", *words]
    started = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    time.sleep(delay)
    started.send_signal(number)
    return started.wait(60), started.communicate()[1]


SWEEP = ("sweep", "llama-8b", "--tokens", "1..3000000", "--output", "rows.csv", "--format", "csv")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_while_a_file_is_written_leaves_nothing(number: int, code: int, tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", "from kvcalc.cli import run; run()", *SWEEP], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    while not list(tmp_path.glob(".kvcalc-*.part")) and started.poll() is None:  # the sign that it is at work
        time.sleep(0.01)
    started.send_signal(number)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == code
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.4])
def test_ctrl_c_while_it_is_loaded_shows_no_traceback_of_ours(delay: float, tmp_path: Path) -> None:
    code, errors = interrupted("estimate", "llama-8b", delay=delay, number=signal.SIGINT, tmp_path=tmp_path)
    assert code in (0, 1, 130, -signal.SIGINT)  # done before, or the interpreter itself was still starting
    ours = re.findall(r'File "[^"]*/(kvcalc/[^"]+)"', errors)
    assert set(ours) <= {"kvcalc/__init__.py", "kvcalc/cli/__init__.py"}  # before anything of ours can catch it


def test_a_closed_input_is_an_empty_one() -> None:
    command = f"{sys.executable} -m kvcalc estimate --gguf - <&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("target", ["> /dev/full", "| true"])
def test_an_error_as_json_that_nobody_reads_keeps_its_code(target: str) -> None:
    command = f"set -o pipefail; {sys.executable} -m kvcalc estimate nope-model --json {target}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)


def test_a_file_outside_a_repository_is_refused(cli: Cli) -> None:
    for name in ("../x", "/etc/x", "a/../../x"):
        assert cli("estimate", "--hub", "a/b", "--file", name).code == 2
