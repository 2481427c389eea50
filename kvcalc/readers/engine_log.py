"""An engine's own log, in one pass and flat memory: gigabytes, pipes, colours, prefixes, any encoding.

Lines without a known word never leave the byte buffer. Which wordings are known stands in ``engine_log_rows``.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from kvcalc.core.log_facts import Beginning, EngineLog, Figure, Load, Setting, Statement, Value
from kvcalc.errors import LogError
from kvcalc.readers.engine_log_bytes import Lines, Reading, plain
from kvcalc.readers.engine_log_row import SUFFIXES, UNITS, Row
from kvcalc.readers.engine_log_rows import ROWS

LOADS_MAX = 64
STATEMENTS_MAX = 512
METADATA_MAX = 512
LAYERS_MAX = 10_000
TEXT_MAX = 300
_RANK = re.compile(
    r"(?<![A-Za-z])(?:(?:DP\d{1,4}[ _])?(?:PP\d{1,4}[ _])?TP\d{1,4}|[Rr]ank[= ]\d{1,5}|RANK \d{1,5}|EngineCore_DP\d{1,4})"
)
_SETTING_UP = ("hybrid_block", "padding", "estimate")  # said before the engine's own banner
_FRONT = ("platform",)  # said before the server's


Wrapper = Callable[[BinaryIO, int], AbstractContextManager[Reading]]


def read_log_file(path: Path, wrapped: Wrapper | None = None) -> EngineLog:
    """What the log at ``path`` says. Raises LogError when it can't be read or no line of it is known.

    ``wrapped`` may stand between the file and the reader, to show how far it has come.
    """
    try:
        with path.open("rb") as stream:
            if wrapped is None:
                return read_log(stream, str(path))
            with wrapped(stream, os.fstat(stream.fileno()).st_size) as reading:
                return _read(reading, str(path))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise LogError(f"can't read the log: {reason}", str(path), "name a readable file, or - for a pipe") from problem


def read_log(stream: BinaryIO, source: str = "the log") -> EngineLog:
    """What the log in ``stream`` says. Raises LogError when no line of it is known."""
    return _read(getattr(stream, "read1", stream.read), source)


def _read(reading: Reading, source: str) -> EngineLog:
    found = _Loads()
    lines = Lines(plain(reading, source), [needle for row in ROWS for needle in row.needles])
    for number, text in lines:
        for row in ROWS:
            if any(needle in text for needle in row.needles):
                found.take(row, number, text)
    loads = found.finished()
    if not loads:
        raise _nothing(found.begun, lines.count, source)
    return EngineLog(tuple(loads), lines.count, source, found.forgotten)


def _nothing(begun: list[Load], lines: int, source: str) -> LogError:
    if begun:
        named = "; ".join(dict.fromkeys(f"{load.engine} {load.version}".strip() for load in begun))
        return LogError(
            f"settings found ({named}), no size line: the log ends before it, in {lines:,} lines",
            source,
            "give the log up to where the engine states its cache's size, or wait for it with --follow",
        )
    return LogError(
        f"nothing about a KV cache in {lines:,} lines",
        source,
        "give the log from the engine's start on: vLLM, llama.cpp, ollama, SGLang and TensorRT-LLM say it there",
    )


# Loads: what the known lines add up to


@dataclass(slots=True)
class _Pending:
    """What was said of a cache before the line that states it."""

    values: dict[str, Value] = field(default_factory=dict)
    buffers: dict[str, list[tuple[int, str, Value]]] = field(default_factory=dict)  # kind → line, text, size


class _Loads:
    """Builds loads from rows. Engines of one file (a compose log) are kept apart."""

    def __init__(self) -> None:
        self._open: dict[str, Load] = {}
        self._pending: dict[str, _Pending] = {}
        self._servers: dict[str, str] = {}  # engine → the version of the server that starts it
        self._done: deque[Load] = deque(maxlen=LOADS_MAX)
        self.forgotten = 0
        self.begun: list[Load] = []  # those that state no size

    def take(self, row: Row, number: int, text: str) -> None:
        """Let ``row`` add what it finds in ``text``."""
        match = row.pattern.search(text)
        if match is None:
            return
        handle: Callable[[Row, int, str, re.Match[str]], None] = getattr(self, f"_{row.role}")
        handle(row, number, text, match)

    def finished(self) -> list[Load]:
        """Close what is open, and return every load that states something, in the order of the log."""
        for engine in list(self._open):
            self._close(engine)
        return sorted(self._done, key=lambda load: load.statements[0].line)

    def _load(self, engine: str, number: int) -> Load:
        if engine not in self._open:
            self._open[engine] = Load(engine, number, self._servers.get(engine, ""))
            self._pending[engine] = _Pending()
        return self._open[engine]

    def _close(self, engine: str) -> Load | None:
        load = self._open.pop(engine, None)
        if load is None:
            return None
        self._flush(load)
        if load.statements:
            self.forgotten += len(self._done) == LOADS_MAX
            self._done.append(load)
        elif len(self.begun) < LOADS_MAX:
            self.begun.append(load)
        return load

    def _start(self, row: Row, number: int, _text: str, match: re.Match[str]) -> None:
        self._flush(load := self._load(row.engine, number))
        said = {statement.kind for statement in load.statements}
        if said and (row.kind != "engine" or not said <= set(_SETTING_UP)):
            self._close(row.engine)
            load = self._load(row.engine, number)
        if row.kind == "api":
            self._front(load, match)
        load.metadata.clear()
        load.clipped.clear()
        load.shape.clear()
        load.layer_widths.clear()
        load.version = match.groupdict().get("version") or load.version

    def _version(self, row: Row, _number: int, _text: str, match: re.Match[str]) -> None:
        """A server that starts anew: what an earlier one loaded is done."""
        self._close(row.engine)
        self._servers[row.engine] = match["version"]

    @staticmethod
    def _front(load: Load, match: re.Match[str]) -> None:
        """A server's banner: what an earlier start said, that came to nothing, plays no part."""
        kept = (*_FRONT, *(() if "version" in match.groupdict() else load.settings))
        load.settings = {name: setting for name, setting in load.settings.items() if name in kept}

    def _context(self, row: Row, number: int, _text: str, _match: re.Match[str]) -> None:
        self._flush(old := self._load(row.engine, number))
        if not old.statements:
            return
        self._close(row.engine)
        new = self._load(row.engine, number)
        new.version, new.shape, new.metadata, new.clipped = old.version, old.shape, old.metadata, old.clipped
        new.settings = {key: old.settings[key] for key in ("release",) if key in old.settings}

    def _setting(self, row: Row, number: int, _text: str, match: re.Match[str]) -> None:
        load = self._load(row.engine, number)
        for name, value in match.groupdict().items():
            load.settings[name] = Setting(value.replace(",", ""), number)

    def _pairs(self, row: Row, number: int, text: str, match: re.Match[str]) -> None:
        load, seen = self._load(row.engine, number), set[str]()
        for pair in row.pattern.finditer(text, match.start()):
            key, value = pair["key"], pair["value"].strip("'\"")
            if key not in seen and value not in ("None", ""):
                load.settings[key] = Setting(value[:400], number)
            seen.add(key)

    def _shape(self, row: Row, number: int, _text: str, match: re.Match[str]) -> None:
        self._load(row.engine, number).shape[match["key"]] = Setting(match["value"].strip(), number)

    def _metadata(self, row: Row, number: int, _text: str, match: re.Match[str]) -> None:
        load = self._load(row.engine, number)
        if match["key"].startswith("tokenizer.") or len(load.metadata) >= METADATA_MAX:
            return
        value = _metadata_value(match["type"], match["value"].strip())
        if value is None:
            load.clipped[match["key"]] = _beginning(match["type"], match["value"])
        else:
            load.metadata[match["key"]] = value

    def _width(self, row: Row, number: int, _text: str, match: re.Match[str]) -> None:
        widths = self._load(row.engine, number).layer_widths
        if len(widths) < LAYERS_MAX:
            widths[int(match["layer"])] = (int(match["k"]), int(match["v"]))

    def _part(self, row: Row, number: int, text: str, match: re.Match[str]) -> None:
        load, values = self._load(row.engine, number), _values(match)
        pending = self._pending[row.engine]
        if (size := values.get("total_mib") or values.get("total_named")) is None:
            self._flush(load)
            pending.values.update(values)
            return
        kept = pending.buffers.setdefault(row.kind, [])
        if len(kept) < STATEMENTS_MAX:
            kept.append((number, text[:TEXT_MAX], size))

    def _statement(self, row: Row, number: int, text: str, match: re.Match[str]) -> None:
        load, pending = self._load(row.engine, number), self._pending[row.engine]
        values = {**pending.values, **_values(match)}
        pending.values.clear()
        pending.buffers.pop("rs_buffer" if row.kind == "state" else "buffer", None)  # the line adds them up itself
        self._keep(load, Statement(row.kind, number, text[:TEXT_MAX], values, _rank_in(text, match)))

    def _memory(self, row: Row, number: int, text: str, match: re.Match[str]) -> None:
        """What a rank has. One that has spoken before a size was stated speaks of a further start."""
        load = self._load(row.engine, number)
        rank = _rank_in(text, match)
        spoken = any(each.kind == row.kind and each.rank == rank for each in load.statements)
        if spoken and any(each.kind == "capacity" for each in load.statements):
            self._close(row.engine)
            new = self._load(row.engine, number)
            new.version, new.settings = load.version, dict(load.settings)
        self._statement(row, number, text, match)

    def _flush(self, load: Load) -> None:
        """Buffers that no total line followed are stated as they are."""
        pending = self._pending[load.engine]
        for kind, parts in pending.buffers.items():
            sizes = {f"part_{index}": size for index, (_, _, size) in enumerate(parts)}
            number, text, _ = parts[0]
            self._keep(load, Statement(kind, number, text, {**pending.values, **sizes}))
        pending.buffers.clear()
        pending.values.clear()

    def _keep(self, load: Load, statement: Statement) -> None:
        if len(load.statements) < STATEMENTS_MAX:
            load.statements.append(statement)
        else:
            load.dropped += 1


def _rank_in(text: str, match: re.Match[str]) -> str:
    rank = _RANK.search(text, 0, match.start())
    return rank.group() if rank else ""


def _values(match: re.Match[str]) -> dict[str, Value]:
    return {name: _value(name, text) for name, text in match.groupdict().items() if text is not None}


def _value(name: str, text: str) -> Value:
    suffix = name[name.rfind("_") :] if "_" in name else ""
    if suffix == "_named":
        number, _, unit = text.partition(" ")
        return Figure(number, SUFFIXES[unit])
    if suffix in UNITS:
        return Figure(text, UNITS[suffix])
    return Figure(text) if text[:1].isdigit() and name not in _WORDS else text


_WORDS = ("k_type", "v_type", "r_type", "s_type", "device", "dtype", "cache")
_KINDS: dict[str, Callable[[str], object]] = {"f32": float, "f64": float, "str": str, "bool": lambda text: text == "true"}


def _metadata_value(kind: str, text: str) -> object:
    """The value of a dumped GGUF key, or None where the engine cut it short."""
    if kind.startswith("arr["):
        return _array(kind[4:].partition(",")[0], text)
    if text.endswith("...") and kind == "str":
        return None
    try:
        return _KINDS.get(kind, int)(text)
    except ValueError:
        return None


_LENGTH = re.compile(r"arr\[\w{1,5},(\d{1,9})\]")


def _beginning(kind: str, text: str) -> Beginning:
    """How many items an array has, and those that are shown whole."""
    length = _LENGTH.match(kind)
    shown = text.strip().removeprefix("[").partition("...")[0].rpartition(",")[0]  # the last one may be cut itself
    items = _array(kind[4:].partition(",")[0], f"[{shown}]") if length else None
    return Beginning(int(length[1]) if length else 0, tuple(items or ()))


def _array(kind: str, text: str) -> list[object] | None:
    if not text.startswith("[") or not text.endswith("]") or "..." in text:
        return None
    try:
        return [_KINDS.get(kind, int)(item.strip().strip('"')) for item in text[1:-1].split(",") if item.strip()]
    except ValueError:
        return None
