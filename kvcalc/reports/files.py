"""Output files: whole or not at all, and never over another file unless asked.

The content goes to a temporary file beside the target, which takes the target's name once it is complete. A link is
followed and stays a link. What is no regular file (a pipe, a terminal, ``/dev/stdout``) can't be renamed over and is
written straight.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kvcalc.errors import OutputError, UsageError

_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY


def write_file(path: Path, content: str | bytes, *, force: bool = False) -> None:
    """Write ``content`` to ``path``. Raises UsageError when the file exists and ``force`` isn't set, OutputError."""
    with atomic_file(path, force=force) as stream:
        stream.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """A binary stream that becomes ``path`` when the block ends well, and leaves no trace when it doesn't.

    Raises UsageError when the file exists and ``force`` isn't set, OutputError when the system refuses.
    """
    check_target(path, force=force)
    try:
        if _is_special(path):
            with path.open("wb") as stream:
                yield stream
        else:
            with _beside(Path(os.path.realpath(path)), force) as stream:
                yield stream
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            raise  # the reader went away: nothing is wrong with the file
        raise _refused(path, problem) from problem


def check_target(path: Path, *, force: bool = False) -> None:
    """Refuse a target that can't be written, before the work is done. Raises UsageError, OutputError."""
    try:
        taken, folder, parent = path.exists(), path.is_dir(), path.resolve().parent.is_dir()
    except (OSError, ValueError, RuntimeError) as problem:  # a name too long, a NUL, a loop of links
        raise _refused(path, problem) from problem
    if folder:
        raise UsageError(f"{_shown(path)} is a folder", fix="name a file in it")
    if not parent:
        raise OutputError(f"there is no folder {_shown(path.parent)}", _shown(path), "make it first, or name another file")
    if taken and not force and not _is_special(path):
        raise UsageError(f"{_shown(path)} exists already", fix="name another file, or overwrite it with --force")


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


@contextmanager
def _beside(target: Path, force: bool) -> Iterator[BinaryIO]:
    part = target.with_name(f".kvcalc-{secrets.token_hex(6)}.part")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666  # an old file's rights stay as they were
    try:
        with os.fdopen(os.open(part, _NEW_FILE, mode), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        _take_name(part, target, force)
    finally:
        with suppress(OSError):
            part.unlink()


def _take_name(part: Path, target: Path, force: bool) -> None:
    if force:
        part.replace(target)
        return
    try:
        target.hardlink_to(part)  # unlike a rename, this fails if somebody else took the name meanwhile
    except FileExistsError:
        raise UsageError(f"{_shown(target)} exists already", fix="name another file, or overwrite it with --force") from None
    except OSError:
        part.rename(target)  # a file system without links


def _refused(path: Path, problem: Exception) -> OutputError:
    reason = getattr(problem, "strerror", None) or str(problem)
    return OutputError(f"can't write {_shown(path)}: {reason}", _shown(path), "free some space, or name another file")


def _shown(path: Path) -> str:
    return str(path).encode("unicode_escape", "replace").decode("ascii")[:200] if not str(path).isprintable() else str(path)[:200]
