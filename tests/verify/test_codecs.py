"""Stored rows: their bytes are what the count says, and a number comes back within the bound that its format gives."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.dtypes import DTYPES, find_dtype
from kvcalc.errors import DtypeError
from kvcalc.verify import ggml_blocks
from kvcalc.verify.codecs import CODECS, LIMIT, PLAIN, QUANTIZED, codec_of
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.parts.base import format_bound

CPU = torch.device("cpu")


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return Inputs(seed, CPU).uniform("test", shape=shape)


@pytest.mark.parametrize("name", CODECS)
def test_a_row_takes_what_the_count_says(name: str) -> None:
    codec, dtype = CODECS[name], DTYPES[name]
    shape = codec.shape(3, 64)
    assert shape.heads * shape.width * shape.dtype.itemsize == dtype.row_bytes(3 * 64)
    stored = codec.encode(numbers(0, 3, 5, 64))
    assert (stored.shape[0], stored.shape[2], stored.dtype) == (shape.heads, shape.width, shape.dtype)
    assert stored.nbytes == 5 * dtype.row_bytes(3 * 64)


@pytest.mark.parametrize("name", QUANTIZED)
@given(seed=st.integers(0, 50), size=st.sampled_from([1.0, 0.3, 1e-3, 0.0]))
def test_there_and_back_stays_within_the_formats_bound(name: str, seed: int, size: float) -> None:
    values, codec = numbers(seed, 2, 4, 32) * size, CODECS[name]
    error = (codec.decode(codec.encode(values), 2) - values).abs()
    assert (error <= format_bound(codec, values)).all()


@pytest.mark.parametrize("name", QUANTIZED)
def test_the_bound_is_no_wider_than_a_step_and_a_half(name: str) -> None:
    """What the type can tell apart: a bound of several steps would hold for a broken codec too."""
    values, codec = numbers(1, 2, 64, 32), CODECS[name]
    error = (codec.decode(codec.encode(values), 2) - values).abs()
    assert format_bound(codec, values).max() <= error.max() * 1.6


@pytest.mark.parametrize("name", PLAIN)
def test_plain_types_lose_nothing_of_verifys_numbers(name: str) -> None:
    rows = Inputs(4, CPU).rows("x", heads=2, width=8, dtype=name).between(0, 70)
    assert rows.abs().max() <= LIMIT
    assert torch.equal(CODECS[name].decode(CODECS[name].encode(rows), 2), rows)


def test_a_type_without_a_codec_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(DtypeError, match="can't make a cache of nvfp4"):
        codec_of(find_dtype("nvfp4"))


def test_q8_0_byte_for_byte() -> None:
    """32 numbers of 1, one of them 127: d = 1, stored as fp16, then 32 int8."""
    row = torch.ones(1, 32)
    row[0, 5] = 127.0
    assert bytes(ggml_blocks.quantize("q8_0", row)[0].tolist()) == struct.pack("<e32b", 1.0, *[1] * 5, 127, *[1] * 26)


def test_q4_0_byte_for_byte() -> None:
    """The furthest from zero is -8: d = -8 / -8 = 1, so number x is stored as x + 8, j low and j + 16 high in byte j."""
    row = torch.tensor([[-8.0 + (j % 16) for j in range(32)]])
    found = bytes(ggml_blocks.quantize("q4_0", row)[0].tolist())
    assert found == struct.pack("<e", 1.0) + bytes(j | j << 4 for j in range(16))


def test_q4_1_byte_for_byte() -> None:
    """Minimum 2, maximum 17: d = 15 / 15 = 1, m = 2."""
    row = torch.tensor([[2.0 + (j % 16) for j in range(32)]])
    found = bytes(ggml_blocks.quantize("q4_1", row)[0].tolist())
    assert found == struct.pack("<ee", 1.0, 2.0) + bytes(j | j << 4 for j in range(16))


@pytest.mark.parametrize(("name", "head"), [("q5_0", struct.pack("<e", 1.0)), ("q5_1", struct.pack("<ee", 1.0, -16.0))])
def test_five_bit_types_byte_for_byte(name: str, head: bytes) -> None:
    """-16 … 15 in order are stored as 0 … 31: the second half has its fifth bits set."""
    row = torch.tensor([[j - 16.0 for j in range(32)]])
    found = bytes(ggml_blocks.quantize(name, row)[0].tolist())
    assert found == head + bytes([0, 0, 0xFF, 0xFF]) + bytes(j | j << 4 for j in range(16))


@pytest.mark.engines
@pytest.mark.parametrize("name", ggml_blocks.BLOCKS)
def test_blocks_equal_those_of_ggmls_own_package(name: str) -> None:
    gguf = pytest.importorskip("gguf", reason="ggml's package isn't installed")
    from gguf import quants

    values = numbers(7, 40, 256)
    values[3, :32], values[4] = 0, values[4, 0]
    kind = getattr(gguf.GGMLQuantizationType, name.upper())
    theirs = quants.quantize(values.numpy(), kind)
    ours = ggml_blocks.quantize(name, values).numpy()
    assert (theirs == ours).all()
    assert (quants.dequantize(theirs, kind) == ggml_blocks.dequantize(name, torch.from_numpy(ours)).numpy()).all()


def test_int4_packs_two_numbers_in_a_byte() -> None:
    codec, step = CODECS["int4"], LIMIT / 7
    row = torch.tensor([[[7 * step, -7 * step, 0.0, step]]])
    assert codec.encode(row).flatten().tolist() == [15 | 1 << 4, 8 | 9 << 4]
    assert torch.allclose(codec.decode(codec.encode(row), 1), row)
