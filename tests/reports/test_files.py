"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvcalc.errors import ExitCode, OutputError, UsageError
from kvcalc.reports.files import atomic_file, check_target, write_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_then(target: Path, then: Callable[[], object], *, force: bool = False) -> None:
    """Begin to write, and let ``then`` happen before the end."""
    with atomic_file(target, force=force) as stream:
        stream.write(b"half")
        then()


def raise_(problem: BaseException) -> None:
    raise problem


def test_text_is_written_as_utf8_and_bytes_as_they_are(tmp_path: Path) -> None:
    write_file(tmp_path / "a", "2·L")
    write_file(tmp_path / "b", b"\x00\xff")
    assert (tmp_path / "a").read_bytes() == "2·L".encode()
    assert (tmp_path / "b").read_bytes() == b"\x00\xff"


def test_an_existing_file_is_kept_without_force(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(UsageError, match="exists already") as caught:
        write_file(target, "new")
    assert "--force" in caught.value.fix
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_force_overwrites_and_keeps_the_rights(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("old")
    target.chmod(0o600)
    write_file(target, "new", force=True)
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_new_file_gets_the_usual_rights(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_file(tmp_path / "a", "x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_then(tmp_path / "a", lambda: raise_(KeyboardInterrupt()))
    assert names(tmp_path) == []


def test_a_failure_in_the_middle_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_then(tmp_path / "a", lambda: raise_(ZeroDivisionError()), force=True)
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_name_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists already"):
        write_then(tmp_path / "a", lambda: (tmp_path / "a").write_text("theirs"))
    assert (tmp_path / "a").read_text() == "theirs"
    assert names(tmp_path) == ["a"]


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_dangling_link_makes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "real").read_text() == "new"


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError):
        write_file(tmp_path / "a", "x")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder"):
        write_file(tmp_path, "x", force=True)


@pytest.mark.parametrize("name", ["missing/a", "n" * 300, "a\0b"])
def test_an_impossible_name_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError) as caught:
        check_target(tmp_path / name)
    assert caught.value.exit_code == ExitCode.UNAVAILABLE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_clear_error() -> None:
    with pytest.raises(OutputError, match="No space left"):
        write_file(Path("/dev/full"), "x" * 100_000)


def test_missing_rights_are_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", lambda *_: raise_(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(OutputError, match="Permission denied"):
        write_file(tmp_path / "a", "x")


def test_a_pipe_is_written_straight(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_file(tmp_path / "pipe", "through")
    reader.join()
    assert got == [b"through"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
