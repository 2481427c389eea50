"""The surroundings that a process may find: full disks, closed pipes, narrow terminals, small character sets, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")

ROOT = Path(__file__).resolve().parents[2]
KVCALC = [sys.executable, "-m", "kvcalc"]
ESTIMATE, COMPARE = ["estimate", "llama-8b"], ["compare", "llama-8b", "gemma-3-4b"]
ENDLESS = ["sweep", "llama-8b", "--tokens", "1..5000000:1", "--format", "csv"]
FULL = Path("/dev/full")
NOTHING: Mapping[str, str] = {}


def environment(more: Mapping[str, str] = NOTHING) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(*words: str, env: Mapping[str, str] = NOTHING, **more: object) -> subprocess.CompletedProcess[bytes]:
    command = [*KVCALC, *words]
    return subprocess.run(command, env=environment(env), timeout=120, check=False, **more)  # type: ignore[call-overload, no-any-return]


def both(*words: str, env: Mapping[str, str] = NOTHING) -> subprocess.CompletedProcess[bytes]:
    return run(*words, env=env, capture_output=True)


def no_trace(stderr: bytes) -> None:
    assert b"Traceback" not in stderr
    assert b"Exception ignored" not in stderr
    assert b"this is a bug" not in stderr


# Streams


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [["estimate", "llama-8b"], ["estimate", "llama-8b", "--json"], ENDLESS, ["presets"], ["--help"]]
)
def test_a_full_disk_is_one_clear_error(words: list[str]) -> None:
    with FULL.open("wb") as full:
        done = run(*words, stdout=full, stderr=subprocess.PIPE)
    no_trace(done.stderr)
    assert (done.returncode, b"No space left on device" in done.stderr) == (5, True)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize(("words", "code"), [(["estimate", "--foo"], 2), (["estimate", "nosuch"], 3), (["presets", "nosuch"], 3)])
def test_an_error_that_can_t_be_told_keeps_its_code(words: list[str], code: int) -> None:
    with FULL.open("wb") as full:
        assert run(*words, stdout=subprocess.PIPE, stderr=full).returncode == code
    closed = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *KVCALC, *words], env=environment(), timeout=120, check=False)
    assert closed.returncode == code


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_full_disk_under_an_output_file_is_one_clear_error() -> None:
    done = both("sweep", "llama-8b", "--tokens", "1k..4k", "--output", "/dev/full")
    no_trace(done.stderr)
    assert done.returncode == 5


@pytest.mark.parametrize(
    "words", [ENDLESS, ["presets"], ["compare", "llama-8b", "qwen3-8b"], ["sweep", "--tokens", "1..30000:1"]]
)
def test_a_closed_pipe_is_an_end_and_no_error(words: list[str]) -> None:
    with subprocess.Popen([*KVCALC, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(20)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=60) == 0
    no_trace(err)


def test_closed_streams_are_no_error() -> None:
    line = f"{sys.executable} -m kvcalc"
    for redirect, code in ((">&-", 0), ("2>&- >/dev/null", 0), (">&- 2>&-", 0)):
        done = subprocess.run(
            ["sh", "-c", f"{line} estimate llama-8b {redirect}"], env=environment(), capture_output=True, check=False
        )
        no_trace(done.stderr)
        assert done.returncode == code
    done = subprocess.run(["sh", "-c", f"{line} audit - llama-8b <&-"], env=environment(), capture_output=True, check=False)
    assert (done.returncode, b"standard input is closed" in done.stderr) == (3, True)


# Signals


def interrupted(tmp_path: Path) -> tuple[int, bytes]:
    """A sweep that is interrupted once it is at work, as the file that it writes shows."""
    command = [*KVCALC, "sweep", "llama-8b", "--tokens", "1..9000000:1", "--format", "csv", "--output", str(tmp_path / "a.csv")]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE) as process:
        while process.poll() is None and not any(tmp_path.iterdir()):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        return process.returncode, err


def test_ctrl_c_ends_quietly_and_leaves_no_half_written_file(tmp_path: Path) -> None:
    code, err = interrupted(tmp_path)
    no_trace(err)
    assert (code, list(tmp_path.iterdir())) == (130, [])


# Environment


def test_no_home_is_no_matter() -> None:
    done = subprocess.run(
        [*KVCALC, "presets"], env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}, capture_output=True, check=False
    )
    no_trace(done.stderr)
    assert done.returncode == 0
    done = both("estimate", "llama-8b", env={"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"})
    assert (done.returncode, done.stderr) == (0, b"")


SMALL = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


VERBS = (ESTIMATE, ["sweep", "llama-8b"], COMPARE, ["inspect", "gemma-3-4b"], ["presets"], ["presets", "llama-8b"])


@pytest.mark.parametrize("words", [*VERBS, ["engines"], ["engines", "vllm"], ["--help"], ["estimate", "--help"]], ids=" ".join)
def test_a_small_character_set_loses_no_figure(words: list[str]) -> None:
    small, wide = both(*words, env=SMALL), both(*words, env={"PYTHONUTF8": "1"})
    no_trace(small.stderr)
    assert small.returncode == wide.returncode == 0
    assert small.stdout.isascii()
    assert figures(small.stdout) == figures(wide.stdout)


def figures(out: bytes) -> list[bytes]:
    return [word for word in out.split() if word.replace(b",", b"").isdigit()]


def test_json_in_a_small_character_set_says_the_same() -> None:
    words = ["estimate", "llama-8b", "--json"]
    small, wide = both(*words, env=SMALL), both(*words, env={"PYTHONUTF8": "1"})
    assert small.stdout.isascii()
    assert json.loads(small.stdout) == json.loads(wide.stdout)


def test_letters_that_the_terminal_lacks_are_escaped_in_an_error() -> None:
    done = both("estimate", "modèle", env=SMALL)
    no_trace(done.stderr)
    assert (done.returncode, done.stderr.isascii()) == (3, True)


AUDIT = ["audit", "docs/examples/llama-server.log"]
FIT = ["fit", "llama-8b", "--memory", "24GiB", "--weights", "16GB"]


@pytest.mark.parametrize("columns", [20, 40, 80])
@pytest.mark.parametrize("words", [ESTIMATE, ["sweep", "llama-8b"], COMPARE, AUDIT, FIT, ["inspect", "gemma-3-4b"]], ids=" ".join)
def test_a_terminal_of_any_width_shows_every_figure_whole(words: list[str], columns: int) -> None:
    (narrow, code), (wide, _) = (in_terminal([*KVCALC, *words], width) for width in (columns, 200))
    assert code == 0
    assert b"Traceback" not in narrow
    assert set(figures(narrow)) <= set(figures(wide))  # none is cut
    if columns == 80:  # below that, columns that say a figure again (a bar, exact bytes beside a size) are left out
        assert set(figures(wide)) <= set(figures(narrow))
    assert max(len(line.rstrip()) for line in narrow.decode().splitlines()) <= columns


def in_terminal(command: list[str], columns: int) -> tuple[bytes, int]:
    """What a command writes on a terminal of this width, without colours."""
    import fcntl
    import struct
    import termios

    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = environment({"TERM": "xterm", "NO_COLOR": "1"})
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=other, stderr=other, stdin=other) as process:
        os.close(other)
        found = b""
        try:
            while chunk := os.read(main, 65536):
                found += chunk
        except OSError:  # the other end is closed
            pass
        code = process.wait(timeout=60)
    os.close(main)
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", found), code


# Files


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
    text = json.dumps(config, indent=1)
    (tmp_path / "unix.json").write_text(text)
    (tmp_path / "windows.json").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (tmp_path / "lengths.csv").write_bytes(b"length,count\r\n512,1\r\n8k,2\r\n")
    totals = [
        json.loads(both("estimate", "--config", str(tmp_path / name), "--json").stdout)["total_bytes"]
        for name in ("unix.json", "windows.json")
    ]
    assert totals[0] == totals[1] == 2 * 2 * 2 * 4 * 2 * 4096
    done = both("estimate", "llama-8b", "--lengths", str(tmp_path / "lengths.csv"), "--json")
    assert json.loads(done.stdout)["total_bytes"] == (512 + 8192) * 131072


def test_links_are_followed_and_loops_are_refused(tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
    (tmp_path / "real.json").write_text(json.dumps(config))
    (tmp_path / "link.json").symlink_to("real.json")
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    assert both("estimate", "--config", str(tmp_path / "link.json")).returncode == 0
    for words in (["estimate", "--config"], ["estimate", "--gguf"], ["audit"]):
        done = both(*words, str(tmp_path / "a.json"))
        no_trace(done.stderr)
        assert done.returncode == 3


@pytest.mark.parametrize("words", [["estimate", "--config"], ["estimate", "--gguf"], ["audit"], ["inspect"]], ids=" ".join)
@pytest.mark.parametrize("path", ["/proc/self/mem", "/", "/nonexistent/file.json", "/dev/null"])
def test_what_can_t_be_read_is_one_clear_error(words: list[str], path: str) -> None:
    if not Path("/proc/self/mem").exists():
        pytest.skip("no /proc here")
    done = both(*words, path)
    no_trace(done.stderr)
    assert done.returncode == 3
    assert done.stderr.startswith(b"error: ")
