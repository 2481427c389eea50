"""GGUF headers: both versions and byte orders, what is kept, and every kind of damage."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import pytest
from gguf_files import HOSTILE, LLAMA, TENSORS, header, huge
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.gguf import TENSOR_TYPES, Skipped, TensorInfo
from kvcalc.errors import GgufError
from kvcalc.readers.gguf_header import KEEP_ELEMENTS, GgufHeader, read_header

DEFECTS = Path(__file__).resolve().parents[1] / "data" / "gguf"


def read(raw: bytes) -> GgufHeader:
    return read_header(io.BytesIO(raw), "made.gguf", len(raw))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_and_byte_orders_say_the_same(version: int, order: str) -> None:
    found = read(header(version=version, order=order))
    assert (found.version, found.byte_order) == (version, "little" if order == "<" else "big")
    assert found.metadata["general.architecture"] == "llama"
    assert found.metadata["llama.attention.head_count_kv"] == [2, 2]
    assert found.metadata["llama.use_it"] is True
    assert found.metadata.types["llama.block_count"] == "u32"
    assert found.metadata.types["llama.attention.head_count_kv"] == "array of u32"
    assert found.metadata["tokenizer.ggml.tokens"] == Skipped("string", 4)
    assert found.tensors == tuple(TensorInfo(*row) for row in TENSORS)


def test_the_data_begins_at_the_next_multiple_of_the_alignment() -> None:
    raw = header({**LLAMA, "general.alignment": ("u32", 256)}, alignment=256)
    assert read(raw).data_offset == len(raw)
    assert read(raw).alignment == 256


def test_a_file_without_padding_or_data_is_complete() -> None:
    raw = header(alignment=1)
    assert read(raw).metadata["llama.block_count"] == 2


@pytest.mark.parametrize("kind", ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64", "bool"])
def test_every_number_and_array_of_numbers_comes_through(kind: str) -> None:
    value = kind == "bool" or 1
    found = read(header({"a": (kind, value), "b": (f"[{kind}]", [value, 0])}, ()))
    assert found.metadata["a"] == value
    assert found.metadata["b"] == [value, 0]
    assert found.metadata.types == {"a": kind, "b": f"array of {kind}"}


def test_long_arrays_and_texts_are_passed_over() -> None:
    keys = {"a": ("[u32]", [7] * (KEEP_ELEMENTS + 1)), "b": ("string", "x" * 5000), "c": ("u32", 1)}
    found = read(header(keys, ())).metadata
    assert found["a"] == Skipped("u32", KEEP_ELEMENTS + 1)
    assert found["b"] == Skipped("byte of text", 5000)
    assert found["c"] == 1


def test_a_large_vocabulary_is_passed_over() -> None:
    keys = {"t": ("[string]", [f"token {index}" for index in range(50_000)]), "after": ("u32", 5)}
    found = read(header(keys)).metadata
    assert (found["t"], found["after"]) == (Skipped("string", 50_000), 5)


def test_a_string_longer_than_the_window_is_passed_over() -> None:
    keys = {"t": ("[string]", ["a" * 3_000_000, "b"]), "after": ("u32", 5)}
    assert read(header(keys)).metadata["after"] == 5


class Pipe(io.RawIOBase):
    """Bytes that come in small pieces and only once."""

    def __init__(self, raw: bytes, piece: int) -> None:
        super().__init__()
        self._raw = io.BytesIO(raw)
        self._piece = piece

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        return self._raw.read(min(size, self._piece) if size >= 0 else self._piece)


@given(st.integers(1, 4096))
def test_a_pipe_gives_the_same_in_whatever_pieces(piece: int) -> None:
    raw = header({**LLAMA, "big": ("[f32]", [0.0] * 70_000), "end": ("u32", 9)})
    found = read_header(cast("IO[bytes]", Pipe(raw, piece + 1000)), "pipe")
    assert found == read(raw) or (found.tensors, found.data_offset) == (read(raw).tensors, read(raw).data_offset)
    assert found.metadata["end"] == 9


def test_weights_are_counted_by_blocks() -> None:
    assert TensorInfo("w", (256, 2), 12, 0).bytes == 512 // 256 * 144
    assert TensorInfo("w", (32,), 8, 0).bytes == 34
    assert TensorInfo("w", (10,), 200, 0).bytes is None
    assert TensorInfo("w", (10,), 200, 0).type_name == "type 200"


def test_block_sizes_equal_those_of_the_gguf_package() -> None:
    constants = pytest.importorskip("gguf.constants")
    for kind, (elements, size) in constants.GGML_QUANT_SIZES.items():
        if kind.name != "Q8_1":  # the package has the layout of before May 2024, 4 + 4 + 32
            assert TENSOR_TYPES[kind.value][1:] == (elements, size), kind


# Damage


@pytest.mark.parametrize("order", ["<", ">"])
def test_cut_off_at_any_byte_is_a_clear_error(order: str) -> None:
    raw = header(order=order, alignment=1)
    for length in range(len(raw)):
        with pytest.raises(GgufError):
            read(raw[:length])


def test_cut_off_in_a_pipe_is_a_clear_error() -> None:
    raw = header(alignment=1)
    for length in range(0, len(raw), 7):
        with pytest.raises(GgufError):
            read_header(cast("IO[bytes]", Pipe(raw[:length], 50)), "pipe")


def test_any_flipped_bit_gives_a_header_or_a_clear_error() -> None:
    raw = header(alignment=1)
    refused = 0
    for position in range(len(raw)):
        for bit in (0x01, 0x80, 0xFF):
            damaged = bytearray(raw)
            damaged[position] ^= bit
            try:
                read(bytes(damaged))
            except GgufError:
                refused += 1
    assert refused > len(raw)  # most of them are noticed


@given(st.binary(max_size=400))
def test_any_bytes_after_a_good_beginning_end_well(tail: bytes) -> None:
    beginning = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    with suppress(GgufError):
        assert read(beginning + tail).version == 3


@given(st.binary(max_size=64), st.integers(0, 600), st.integers(0, 64))
def test_any_replaced_piece_ends_well(piece: bytes, position: int, removed: int) -> None:
    raw = header(alignment=1)
    with suppress(GgufError):
        assert read(raw[:position] + piece + raw[position + removed :]).version in (2, 3)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_refused_for_their_own_reason(name: str) -> None:
    raw, what = HOSTILE[name]
    with pytest.raises(GgufError, match=what.replace("(", r"\(")) as caught:
        read(raw)
    assert caught.value.where.startswith("made.gguf")


@pytest.mark.parametrize("name", [path.stem for path in sorted(DEFECTS.glob("*.gguf"))])
def test_the_kept_files_are_those_that_the_script_writes(name: str) -> None:
    assert (DEFECTS / f"{name}.gguf").read_bytes() == HOSTILE[name][0]


@pytest.mark.parametrize("name", [name for name in HOSTILE if "2-6" in name])
def test_counts_beyond_all_reason_are_refused_in_a_pipe_too(name: str) -> None:
    with pytest.raises(GgufError):
        read_header(cast("IO[bytes]", Pipe(HOSTILE[name][0] + bytes(5000), 999)), "pipe")


def test_an_endless_stream_is_given_up() -> None:
    class Zeros(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return bytes(size)

    class Endless(Pipe):
        def read(self, size: int = -1) -> bytes:
            return super().read(size) or bytes(size)

    with pytest.raises(GgufError, match="not a GGUF"):
        read_header(cast("IO[bytes]", Zeros()), "/dev/zero")
    with pytest.raises(GgufError):
        read_header(cast("IO[bytes]", Endless(huge(1) + struct.pack("<Q", 2**40), 4096)), "endless")
