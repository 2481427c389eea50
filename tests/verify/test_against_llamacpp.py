"""llama.cpp's own caches: what its log says, held against the prediction; the library itself where it is installed."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvcalc.core.model import OptionValue, Request
from kvcalc.errors import EngineError, UsageError
from kvcalc.readers.gguf import GgufFile, read_gguf
from kvcalc.readers.gguf_model import model_of_gguf, read_gguf_model
from kvcalc.verify.against.llamacpp import compare, read_log
from kvcalc.verify.results import Settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "readers"))
from gguf_files import header

LOG = """\
llama_context: flash_attn            = auto
llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells
llama_kv_cache:        CPU KV buffer size =    {k}.00 MiB
llama_kv_cache: size =   {total:5.2f} MiB (  {cells} cells,   2 layers,  1/1 seqs), \
K (f16):    {k:.2f} MiB, V (f16):    {k:.2f} MiB
"""


def _silent(*_: object) -> None:
    """Nobody listens."""


class Library(SimpleNamespace):
    """As much of llama-cpp-python as is asked: it writes a log instead of loading anything."""

    def __init__(self, log: str, loads: bool = True, makes: bool = True) -> None:
        super().__init__(__version__="0.0.test")
        self.llama_log_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self._log, self._loads, self._makes = log, loads, makes
        self._say: Callable[..., None] = _silent
        self.asked: Any = None

    def llama_backend_init(self) -> None:
        """Nothing."""

    def llama_log_set(self, callback: Any, _data: object) -> None:
        """Keep the callback; an empty one is the default."""
        self._say = callback if bool(callback) else _silent

    def llama_model_default_params(self) -> Any:
        """Fields that the real one has."""
        return SimpleNamespace(n_gpu_layers=-1, load_mtp=False)

    def llama_context_default_params(self) -> Any:
        """As above; n_rs_seq is missing, as in older ones."""
        return SimpleNamespace(n_ctx=0, n_batch=0, n_ubatch=0, n_seq_max=0, kv_unified=False, swa_full=True, type_k=1, type_v=1)

    def llama_model_load_from_file(self, _path: bytes, _params: object) -> object:
        """A model, or none with an error in the log."""
        if not self._loads:
            self._say(3, b"error loading model: data is not within the file bounds\n", None)
        return self._loads

    def llama_init_from_model(self, _model: object, params: object) -> object:
        """A context whose making is logged."""
        self.asked = params
        for line in self._log.splitlines(keepends=True):
            self._say(2, line.encode(), None)
        return self._makes

    def llama_free(self, _context: object) -> None:
        """Nothing."""

    def llama_model_free(self, _model: object) -> None:
        """Nothing."""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "m.gguf"
    path.write_bytes(header())
    return str(path)


def ask(monkeypatch: pytest.MonkeyPatch, file: str, library: Library) -> Any:
    monkeypatch.setitem(sys.modules, "llama_cpp", library)
    return compare(read_gguf_model(file), Request(options={"ctx-size": 4096, "parallel": 1}), Settings())


# 4096 cells of 2 layers with 2 heads of 64: K is 4096 · 2 · 2 · 64 · 2 bytes = 2 MiB, and so is V
AGREES = LOG.format(total=4.0, cells=4096, k=2.0)


def test_equal_caches_pass(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    library = Library(AGREES)
    report = ask(monkeypatch, file, library)
    assert report.passed
    assert (report.measured_bytes, report.predicted_bytes) == (4 * 2**20, 4 * 2**20)
    assert [(row.kind, row.measured_bytes) for row in report.rows] == [("attn", 4 * 2**20)]
    assert (library.asked.n_ctx, library.asked.n_seq_max, library.asked.n_batch) == (4096, 1, 2048)


@pytest.mark.parametrize(
    "log",
    [LOG.format(total=4.5, cells=4096, k=2.25), "", AGREES * 2],
    ids=["other bytes", "no cache", "one cache more"],
)
def test_what_differs_fails(monkeypatch: pytest.MonkeyPatch, file: str, log: str) -> None:
    assert not ask(monkeypatch, file, Library(log)).passed


def test_other_counts_are_told(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    report = ask(monkeypatch, file, Library(LOG.format(total=4.0, cells=8192, k=2.0)))
    assert "cells: 4,096 predicted, 8,192 made" in report.rows[0].note


def test_a_file_that_the_library_does_not_load_is_refused_with_its_words(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    with pytest.raises(EngineError, match="not within the file bounds"):
        ask(monkeypatch, file, Library("", loads=False))


def test_a_context_that_the_library_does_not_make_is_refused(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    with pytest.raises(EngineError, match="failed to allocate"):
        ask(monkeypatch, file, Library("llama_kv_cache: failed to allocate buffer\n", makes=False))


def test_a_dump_is_no_file_to_load(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    metadata = GgufFile(read_gguf(file).metadata, "somewhere.json")
    monkeypatch.setitem(sys.modules, "llama_cpp", Library(""))
    with pytest.raises(UsageError, match="whole GGUF file"):
        compare(model_of_gguf(metadata, {}), Request(tokens=256), Settings())


def test_states_and_compressors_are_read() -> None:
    text = (
        "llama_memory_recurrent: size =    0.97 MiB (     1 cells,  16 layers,  1 seqs  0 rs_seq), "
        "R (f32):    0.08 MiB, S (f32):    0.89 MiB, P (f32):    0.00 MiB\n"
        "llama_dsv4_comp_state:        CPU DSV4 csa state buffer size =     0.75 MiB\n"
        "llama_dsv4_comp_state: csa ratio = 4, state = 8 x 256, streams = 1, rs_seq = 0, layers = 3, size =    0.05 MiB\n"
    )
    found = list(read_log(text))
    assert [one.name for one in found] == ["recurrent", "compressor"]
    assert found[0].sizes["s_bytes"].text == "0.89"


@pytest.mark.engines
def test_the_library_itself_agrees(tmp_path: Path) -> None:
    """A tiny model of random numbers, made on the spot, loaded by the real library."""
    pytest.importorskip("llama_cpp")
    from gguf_llama import write_tiny_llama

    path = tmp_path / "tiny.gguf"
    write_tiny_llama(path)
    asked: list[dict[str, OptionValue]] = [{"ctx-size": 4096}, {"ctx-size": 3000, "parallel": 3, "cache-type-k": "q8_0"}]
    for options in asked:
        report = compare(read_gguf_model(str(path)), Request(options=options), Settings())
        assert report.passed, json.dumps([row.note for row in report.rows])
