"""Element types: (elements a block, bytes a block) and every spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.dtypes import ALIASES, DTYPES, find_dtype
from kvcalc.errors import DtypeError, ExitCode

# torch's sizes; ggml-common.h's blocks: an fp16 scale of 2 bytes, a minimum of 2 in the _1 types, the fifth bits in q5;
# OCP MX v1.0: 32 values of 4 bits and one e8m0 scale; NVFP4: 16 values of 4 bits and one e4m3 scale
BLOCKS = {
    "float32": (1, 4),
    "bfloat16": (1, 2),
    "float16": (1, 2),
    "fp8_e4m3": (1, 1),
    "fp8_e5m2": (1, 1),
    "int8": (1, 1),
    "int4": (2, 1),
    "nvfp4": (16, 16 * 4 // 8 + 1),
    "mxfp4": (32, 32 * 4 // 8 + 1),
    "q8_0": (32, 2 + 32),
    "q4_0": (32, 2 + 32 * 4 // 8),
    "q4_1": (32, 2 + 2 + 32 * 4 // 8),
    "q5_0": (32, 2 + 32 // 8 + 32 * 4 // 8),
    "q5_1": (32, 2 + 2 + 32 // 8 + 32 * 4 // 8),
    "iq4_nl": (32, 2 + 32 * 4 // 8),
    "q1_0": (128, 2 + 128 // 8),
}
GGML = {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "q1_0"}


def test_every_type_is_in_the_table() -> None:
    assert {name: (dtype.block_elements, dtype.block_bytes) for name, dtype in DTYPES.items()} == BLOCKS
    assert {name for name, dtype in DTYPES.items() if dtype.ggml} == GGML


SPELLINGS = {
    "float32": ("f32", "fp32", "float", "torch.float32", "Float32"),
    "bfloat16": ("bf16", "torch.bfloat16", "BF16"),
    "float16": ("fp16", "f16", "half", "torch.float16", " fp16 "),
    "fp8_e4m3": ("fp8", "float8", "e4m3", "float8_e4m3fn", "torch.float8_e4m3fn"),
    "fp8_e5m2": ("e5m2", "float8_e5m2", "torch.float8_e5m2"),
    "int8": ("i8", "torch.int8"),
    "int4": ("i4",),
    "q8_0": ("q8", "Q8_0"),
    "q4_0": ("q4",),
    "q5_0": ("q5",),
}


@pytest.mark.parametrize(("name", "spelling"), [(name, word) for name, words in SPELLINGS.items() for word in words])
def test_a_spelling(name: str, spelling: str) -> None:
    assert find_dtype(spelling) is DTYPES[name]


def test_no_alias_hides_a_type_and_all_lead_to_one() -> None:
    assert not ALIASES.keys() & DTYPES.keys()
    assert set(ALIASES.values()) <= DTYPES.keys()
    assert all(word == word.lower().strip() for word in (*ALIASES, *DTYPES))


@pytest.mark.parametrize("word", ["", " ", "fp7", "float64x", "bf16,fp16", "q9_0", "x" * 5000, "f\0"])
def test_an_unknown_type_names_near_ones(word: str) -> None:
    with pytest.raises(DtypeError) as caught:
        find_dtype(word)
    assert caught.value.fix
    assert len(caught.value.what) < 120
    assert caught.value.exit_code == ExitCode.UNSUPPORTED


def test_a_misspelt_type_gets_its_nearest() -> None:
    with pytest.raises(DtypeError) as caught:
        find_dtype("q80")
    assert "q8_0" in caught.value.fix


@pytest.mark.parametrize("name", DTYPES)
def test_whole_blocks_are_counted_exactly(name: str) -> None:
    elements, size = BLOCKS[name]
    assert DTYPES[name].row_bytes(0) == 0
    assert DTYPES[name].row_bytes(7 * elements) == 7 * size
    assert str(DTYPES[name]) == name


@pytest.mark.parametrize("name", [name for name, (elements, _) in BLOCKS.items() if elements > 1])
def test_a_broken_block_is_refused_never_rounded_in_silence(name: str) -> None:
    elements, size = BLOCKS[name]
    with pytest.raises(DtypeError, match=f"multiple of {name}'s block of {elements}") as caught:
        DTYPES[name].row_bytes(elements + 1, "keys of 1 x 33")
    assert caught.value.where == "keys of 1 x 33"
    assert DTYPES[name].padded_row_bytes(elements + 1) == 2 * size
    assert DTYPES[name].padded_row_bytes(elements) == size


@given(st.sampled_from(sorted(DTYPES)), st.integers(0, 10**6))
def test_padding_adds_less_than_a_block(name: str, elements: int) -> None:
    dtype = DTYPES[name]
    padded = dtype.padded_row_bytes(elements)
    assert 0 <= padded * dtype.block_elements - elements * dtype.block_bytes < dtype.block_elements * dtype.block_bytes
