"""``kvcalc audit``: an engine's own log lines against the prediction."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from time import sleep
from typing import Annotated

from typer import Argument, Option

from kvcalc.audit.audit import audit
from kvcalc.audit.findings import Audited
from kvcalc.audit.settings import Given
from kvcalc.cli import progress
from kvcalc.cli.from_log import own_model
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.model_args import load_reference, references
from kvcalc.cli.options import Adding, Naming, OneModel, Showing
from kvcalc.cli.output import show, write_json
from kvcalc.core.log_facts import EngineLog, Load
from kvcalc.dtypes import Dtype, find_dtype
from kvcalc.engines import ENGINES, find_engine
from kvcalc.errors import ExitCode, LogError, UsageError
from kvcalc.readers.engine_log import read_log, read_log_file
from kvcalc.units import parse_count

EXAMPLES = (
    "kvcalc audit server.log --preset llama-8b",
    "docker logs vllm 2>&1 | kvcalc audit - --config config.json --tp 4",
    "kvcalc audit llama-server.log",
)
STDIN = "-"


def given(adding: Adding) -> Given:
    """What the command line adds to the log. Raises UsageError, DtypeError."""
    by_hand = adding.dtype is not None and "=" in adding.dtype
    return Given(
        parse_count(adding.tp, "a value of --tp") if adding.tp else None,
        parse_count(adding.pp, "a value of --pp") if adding.pp else None,
        find_dtype(adding.dtype) if adding.dtype and not by_hand else None,
        adding.draft,
        tuple(adding.option),
        types_by_hand(adding.dtype or "") if by_hand else (),
    )


_BY_HAND = re.compile(r"\s*([\w.\-]{1,40})=(\d{1,6})/(\d{1,6})\s*", re.ASCII)


def types_by_hand(text: str) -> tuple[Dtype, ...]:
    """``turbo4=66/128,turbo3=50/128``: bytes of a block and its elements. Raises UsageError."""
    found = []
    for part in text.split(","):
        match = _BY_HAND.fullmatch(part)
        if match is None or not int(match[2]) or not int(match[3]):
            raise UsageError(f"--dtype {part[:40]!r} is not NAME=BYTES/ELEMENTS", fix="write --dtype turbo4=66/128")
        found.append(Dtype(match[1].lower(), int(match[3]), int(match[2])))
    return tuple(found)


@takes_groups
def command(
    log: Annotated[str, Argument(help="The engine's log: a file, or - for a pipe.", show_default=False, metavar="LOG")],
    one: OneModel,
    naming: Naming,
    adding: Adding,
    showing: Showing,
    follow: Annotated[bool, Option("--follow", help="Wait for a log that grows until the figures are there.")] = False,
) -> int:
    """Hold an engine's own log lines against the prediction, and explain the difference."""
    added, named = given(adding), references(naming, [one.model] if one.model else [])
    if len(named) > 1:
        raise UsageError(f"{len(named)} models are named", fix="name one")
    model = load_reference(named[0], naming) if named else None
    found = _followed(log) if follow else _read(log)
    check_options(found.loads, added)
    audits = [audit(load, model or own_model(load, found), added.known_to(load.engine)) for load in found.loads]
    _write(found, audits, showing)
    if not all(each.agrees for each in audits):
        return ExitCode.NO
    if any(each.checked for each in audits):
        return ExitCode.OK
    if showing.json:
        return ExitCode.INPUT
    raise LogError("nothing could be checked", found.source, "; ".join(_missing(audits)))


def check_options(loads: Iterable[Load], added: Given) -> None:
    """Every option is one of an engine of the log. Raises UsageError, as where the engine is named on the command line."""
    engines = dict.fromkeys(load.engine for load in loads if load.engine in ENGINES)
    for text in added.options:
        problems = [problem for engine in engines if (problem := _refused(engine, text))]
        if engines and len(problems) == len(engines):
            raise problems[0]


def _refused(engine: str, text: str) -> UsageError | None:
    try:
        find_engine(engine).parse_options([text])
    except UsageError as problem:
        return problem
    return None


def _missing(audits: list[Audited]) -> list[str]:
    return list(dict.fromkeys(text for each in audits for text in each.missing[:1])) or [
        "give the log from the engine's start on"
    ]


def _read(log: str) -> EngineLog:
    if log == STDIN:
        if sys.stdin is None:
            raise LogError("standard input is closed", "stdin", "pipe the log into it, or name a file")
        return read_log(sys.stdin.buffer, "stdin")
    return read_log_file(Path(log), lambda stream, size: progress.read(stream, size, "reading"))


POLL_SECONDS = 1.0
_BEFORE_FIGURES = ("available", "in_use", "hybrid_block", "padding", "free", "estimate")  # said before the cache is made


def _followed(log: str) -> EngineLog:
    """The log once it states a size, and has grown no more for a while. Raises UsageError for a pipe."""
    if log == STDIN:
        raise UsageError("--follow needs a file: a pipe is read to its end", fix="name the file that the engine writes")
    path, size = Path(log), -1
    while True:
        found, grown = _stated(path), _size(path)
        if found is not None and grown == size:
            return found
        size = grown
        sleep(POLL_SECONDS)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _stated(path: Path) -> EngineLog | None:
    """The log, where the last start in it states a size."""
    if not path.is_file():
        return None
    try:
        found = read_log_file(path)
    except LogError:
        return None
    last = found.loads[-1]
    return found if any(statement.kind not in _BEFORE_FIGURES for statement in last.statements) else None


def _write(found: EngineLog, audits: list[Audited], showing: Showing) -> None:
    if showing.json:
        from kvcalc.reports.audit_json import audit_document

        write_json(audit_document(found, audits))
    else:
        from kvcalc.reports.audit_tables import audit_view

        show(audit_view(found, audits))
