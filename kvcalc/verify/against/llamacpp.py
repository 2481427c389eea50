"""llama.cpp's own caches, asked of llama-cpp-python: the user's file is loaded, a context is made, its log is read.

The log rounds each cache to 0.01 MiB; a cache is equal when its cells, its layers and its printed sizes all are. Where the
library exports its memory breakdown (a C++ function, libstdc++ alone), the total is compared to the byte besides.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kvcalc.core.log_facts import Figure
from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.errors import EngineError, UsageError
from kvcalc.verify.results import AgainstReport, AgainstRow, Settings

MIB = 2**20
_TYPES = {"float32": 0, "float16": 1, "bfloat16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "iq4_nl": 20}
_FLASH = {"auto": -1, "off": 0, "on": 1}
_CACHE = re.compile(
    r"llama_kv_cache\w*: size =\s*(?P<total>[\d.]+) MiB \(\s*(?P<cells>\d+) cells,\s*(?P<layers>\d+) layers,.*?"
    r"K \(\w+\):\s*(?P<k>[\d.]+) MiB, V \(\w+\):\s*(?P<v>[\d.]+) MiB"
)
_RECURRENT = re.compile(
    r"llama_memory_recurrent: size =\s*(?P<total>[\d.]+) MiB.*?R \(f32\):\s*(?P<r>[\d.]+) MiB, S \(f32\):\s*(?P<s>[\d.]+) MiB"
)
_COMPRESSOR = re.compile(r"llama_dsv4_comp_state: \w+ ratio = .*size =\s*(?P<total>[\d.]+) MiB")
_BREAKDOWN = "_Z26llama_get_memory_breakdownPK13llama_context"


@dataclass(frozen=True, slots=True)
class Printed:
    """One cache as the log states it: sizes by name, and counts."""

    name: str
    sizes: Mapping[str, Figure]
    counts: Mapping[str, int]


def compare(model: Model, request: Request, _settings: Settings) -> AgainstReport:
    """Load the file, make the context, read what it allocated. Raises UsageError, EngineError; ModuleNotFoundError without it."""
    path = _file_of(model)
    tally = find_engine("llama.cpp").allocate(model, request)
    import llama_cpp

    log, exact = _ask(llama_cpp, path, tally)
    rows = tuple(_rows(_caches(tally), list(read_log(log))))
    total = sum(row.measured_bytes for row in rows) if exact is None else exact
    return AgainstReport(
        library="llama.cpp",
        version=f"llama-cpp-python {llama_cpp.__version__}",
        engine=f"llama.cpp {tally.report['release']}",
        rows=rows,
        measured_bytes=total,
        predicted_bytes=tally.total_bytes,
        notes=_notes(exact),
    )


def _notes(exact: int | None) -> tuple[str, ...]:
    found = ["each cache is compared as the library's log prints it, to 0.01 MiB"]
    if exact is not None:
        found.append("the total is the library's own memory breakdown, to the byte")
    return tuple(found)


def _file_of(model: Model) -> Path:
    path = Path(model.source)
    if model.format != "gguf" or not path.is_file() or not _is_gguf(path):
        raise UsageError("llama.cpp loads a whole GGUF file", fix="name a local one with --gguf")
    return path


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def _caches(tally: Tally) -> list[dict[str, Any]]:
    caches = tally.report["caches"]
    return [dict(cache) for cache in caches] if isinstance(caches, list) else []


def _ask(library: Any, path: Path, tally: Tally) -> tuple[str, int | None]:
    """The log of loading ``path`` and of making the context, and the context's bytes where they can be asked."""
    lines: list[str] = []

    def collect(_level: int, text: bytes | None, _data: object) -> None:
        lines.append((text or b"").decode("utf-8", "replace"))

    callback = library.llama_log_callback(collect)  # kept alive for as long as the library may call it
    library.llama_backend_init()
    library.llama_log_set(callback, ctypes.c_void_p(0))
    try:
        exact = _context_bytes(library, path, tally, lines)
    finally:
        library.llama_log_set(library.llama_log_callback(), ctypes.c_void_p(0))
    return "".join(lines), exact


def _context_bytes(library: Any, path: Path, tally: Tally, lines: list[str]) -> int | None:
    load = _function(library, "llama_model_load_from_file", "llama_load_model_from_file")
    loaded = load(str(path).encode(), _model_params(library))
    if not loaded:
        raise EngineError(
            f"llama.cpp does not load the file: {_last(lines)}", str(path), "it needs the file whole, with its tensors"
        )
    try:
        make = _function(library, "llama_init_from_model", "llama_new_context_with_model")
        context = make(loaded, _params(library, tally))
        if not context:
            raise EngineError(f"llama.cpp makes no such context: {_last(lines)}", str(path), "ask for less, or for other types")
        try:
            return _breakdown(library, context)
        finally:
            library.llama_free(context)
    finally:
        _function(library, "llama_model_free", "llama_free_model")(loaded)


def _function(library: Any, *names: str) -> Callable[..., Any]:
    """The first of these that the library has: names changed over its releases."""
    found: Callable[..., Any] = next(getattr(library, name) for name in names if hasattr(library, name))
    return found


def _last(lines: list[str]) -> str:
    spoken = [line.strip() for line in "".join(lines).splitlines() if "error" in line.lower() or "fail" in line.lower()]
    return (spoken[0] if spoken else "it does not say why")[:200]


def _model_params(library: Any) -> Any:
    params = library.llama_model_default_params()
    params.n_gpu_layers = 0
    if hasattr(params, "load_mtp"):
        params.load_mtp = True
    return params


def _params(library: Any, tally: Tally) -> Any:
    """What was resolved, in the library's own fields; those that a release lacks are left out."""
    report = tally.report
    params = library.llama_context_default_params()
    wanted = {
        "n_ctx": tally.request["ctx-size"][0],
        "n_batch": tally.request["batch-size"][0],
        "n_ubatch": tally.request["ubatch-size"][0],
        "n_seq_max": report["n_seq_max"],
        "n_rs_seq": report["n_rs_seq"],
        "kv_unified": report["kv_unified"],
        "swa_full": report["swa_full"],
        "type_k": _TYPES[str(report["type_k"])],
        "type_v": _TYPES[str(report["type_v"])],
        "flash_attn_type": _FLASH[str(report["flash_attn"])],
        "flash_attn": report["flash_attn"] == "on",
        "ctx_type": int(report["context_type"] == "mtp"),
    }
    for name, value in wanted.items():
        if hasattr(params, name):
            setattr(params, name, value)
    return params


def _breakdown(library: Any, context: Any) -> int | None:
    """The context's bytes over all devices: a std::map from buffer type to (model, context, compute), walked by hand."""
    loaded = getattr(library, "_lib", None) or getattr(getattr(library, "llama_cpp", None), "_lib", None)
    function = getattr(loaded, _BREAKDOWN, None)
    if function is None or sys.platform != "linux":
        return None
    function.restype, function.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
    tree = (ctypes.c_uint64 * 6)()  # comparator, then the header node: colour, root, leftmost, rightmost, count
    function(ctypes.addressof(tree), context)
    return sum(_nodes(tree[2]))


def _nodes(address: int) -> Iterator[int]:
    if address:
        node = (ctypes.c_uint64 * 8).from_address(address)  # colour, parent, left, right, key, model, context, compute
        yield node[6]
        yield from _nodes(node[2])
        yield from _nodes(node[3])


def read_log(text: str) -> Iterator[Printed]:
    """The caches that a log states, in its order."""
    for line in text.splitlines():
        if match := _CACHE.search(line):
            sizes = {"k_bytes": Figure(match["k"], MIB), "v_bytes": Figure(match["v"], MIB)}
            yield Printed("cache", sizes, {"cells": int(match["cells"]), "layers": int(match["layers"])})
        elif match := _RECURRENT.search(line):
            yield Printed("recurrent", {"r_bytes": Figure(match["r"], MIB), "s_bytes": Figure(match["s"], MIB)}, {})
        elif match := _COMPRESSOR.search(line):
            yield Printed("compressor", {"bytes": Figure(match["total"], MIB)}, {})


def _rows(predicted: list[dict[str, Any]], printed: list[Printed]) -> Iterator[AgainstRow]:
    """Each predicted cache beside what the log prints: attention caches in order, then states, then compressors."""
    special = ("recurrent", "compressor")
    plain = zip_longest(
        [cache for cache in predicted if cache["name"] not in special], [one for one in printed if one.name not in special]
    )
    pairs = [*plain, *(_gathered(name, predicted, printed) for name in special)]
    for index, (cache, one) in enumerate(pair for pair in pairs if pair != (None, None)):
        yield _row(index, cache, one)


def _gathered(name: str, predicted: list[dict[str, Any]], printed: list[Printed]) -> tuple[dict[str, Any] | None, Printed | None]:
    cache = next((cache for cache in predicted if cache["name"] == name), None)
    found = [one for one in printed if one.name == name]
    if not found:
        return cache, None
    sizes = {key: _added([one.sizes[key] for one in found]) for key in found[0].sizes}
    return cache, Printed(name, sizes, {})


def _added(figures: list[Figure]) -> Figure:
    """Several printed sizes as one: the compressor's three states."""
    if len(figures) == 1:
        return figures[0]
    hundredths = sum(round(float(figure.text) * 100) for figure in figures)
    return Figure(f"{hundredths / 100:.1f}", MIB)


def _row(index: int, cache: dict[str, Any] | None, one: Printed | None) -> AgainstRow:
    if cache is None or one is None:
        return _alone(index, cache, one)
    expected = sum(value for key, value in cache.items() if key.endswith("bytes"))
    name = str(cache["name"])
    printed = ", ".join(f"{key.removesuffix('_bytes')} {figure.text} MiB" for key, figure in one.sizes.items())
    counts = {key: (cache[key], value) for key, value in one.counts.items() if cache[key] != value}
    wrong = "".join(f"; {key}: {ours:,} predicted, {theirs:,} made" for key, (ours, theirs) in counts.items())
    fits = not counts and all(_fits(cache, key, figure) for key, figure in one.sizes.items())
    measured = expected if fits else sum(figure.value for figure in one.sizes.values())
    return AgainstRow(index, name, measured, expected, f"printed: {printed}{wrong}")


def _alone(index: int, cache: dict[str, Any] | None, one: Printed | None) -> AgainstRow:
    """A cache that one side alone names."""
    if cache is not None:
        expected = sum(value for key, value in cache.items() if key.endswith("bytes"))
        return AgainstRow(index, str(cache["name"]), 0, expected, "the library's log names no such cache" if expected else "")
    sizes = [figure.value for figure in one.sizes.values()] if one else []
    return AgainstRow(index, one.name if one else "", sum(sizes), 0, "the library makes one more")


def _fits(cache: dict[str, Any], key: str, figure: Figure) -> bool:
    """Whether the prediction prints so; some releases print the n-gram history (P) within R."""
    history = int(cache.get("p_bytes", 0)) if key == "r_bytes" else 0
    return figure.covers(int(cache[key])) or figure.covers(int(cache[key]) + history)
