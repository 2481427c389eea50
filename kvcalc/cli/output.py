"""The one sink: data on stdout, everything else on stderr; colour only where a terminal shows it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from kvcalc.cli.streams import ascii_only, silence
from kvcalc.errors import ExitCode, KvcalcError
from kvcalc.escapes import visible_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPE_WIDTH = 120  # a table that goes to a file or a pipe isn't folded to 80


def console(stderr: bool = False, stream: TextIO | None = None) -> Console:
    """A console on the stream as it is now (tests and callers replace it)."""
    from kvcalc.reports.safe_console import SafeConsole

    stream = stream or (sys.stderr if stderr else sys.stdout)
    terminal = hasattr(stream, "isatty") and stream.isatty()
    width = None if terminal else PIPE_WIDTH

    # No markup: a file's own words may hold brackets, and are shown as they are.
    return SafeConsole(file=stream, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def show(*items: RenderableType) -> None:
    """Tables and text, on stdout; without the blanks that fill a terminal's lines where there is no terminal."""
    out = console()
    if out.is_terminal:
        out.print(*items, sep="\n")
        return
    with out.capture() as captured:
        out.print(*items, sep="\n")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def write_json(document: Mapping[str, object]) -> None:
    """One JSON document on stdout."""
    text = json.dumps(document, indent=2, ensure_ascii=ascii_only(sys.stdout), allow_nan=False)
    sys.stdout.write(visible_json(text) + "\n")


def warn(text: str) -> None:
    """A line on stderr that is no error."""
    _tell((f"note: {text}", "yellow"))


def show_error(problem: KvcalcError, as_json: bool) -> ExitCode:
    """What is wrong, where, how to fix it; as JSON on stdout where JSON was asked for."""
    if as_json:
        from kvcalc.reports.to_json import error_document

        try:
            write_json(error_document(problem))
            sys.stdout.flush()
        except OSError:
            silence()  # nobody reads it, or the disk is full: the exit code still says what was wrong
    lines = [(f"error: {problem.what}", "bold red")]
    lines += [(f"   at: {problem.where}", "")] if problem.where else []
    lines += [(f"  fix: {problem.fix}", "")] if problem.fix else []
    _tell(*lines)
    return problem.exit_code


def _tell(*lines: tuple[str, str]) -> None:
    """Lines and their styles on stderr; where that can't be written, the exit code still speaks."""
    try:
        out = console(stderr=True)
        for text, style in lines:
            out.print(text, style=style or None, soft_wrap=True)
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)
