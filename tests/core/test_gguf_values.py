"""GGUF metadata and tensors as values."""

from __future__ import annotations

import pytest

from kvcalc.core.gguf import TENSOR_TYPES, GgufMetadata, Skipped, TensorInfo


def test_a_passed_over_array_says_what_it_was() -> None:
    assert str(Skipped("string", 128256)) == "<128,256 x string, not read>"


# ggml-common.h: q4_K is two fp16 scales, 12 bytes of 6-bit scales and 4 bits a value; q6_K 6 bits, 16 scales, one fp16
TENSORS = {
    "f16": (TensorInfo("a", (4096, 1024), 1, 0), 4096 * 1024 * 2),
    "q8_0": (TensorInfo("a", (4096, 2), 8, 0), 4096 * 2 // 32 * 34),
    "q4_K": (TensorInfo("a", (256, 3), 12, 0), 3 * (2 * 2 + 12 + 256 // 2)),
    "q6_K": (TensorInfo("a", (512,), 14, 0), 2 * (256 * 6 // 8 + 16 + 2)),
    "type 99": (TensorInfo("a", (512,), 99, 0), None),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_s_type_and_bytes(name: str) -> None:
    tensor, size = TENSORS[name]
    assert (tensor.type_name, tensor.bytes) == (name, size)


def test_no_tensor_type_takes_less_than_a_bit_or_more_than_eight_bytes_a_value() -> None:
    for name, elements, size in TENSOR_TYPES.values():
        assert elements <= 8 * size <= 64 * elements, name


def test_metadata_is_a_mapping_with_the_file_s_types_and_tensors() -> None:
    found = GgufMetadata({"a": 1, "b": "x"}, {"a": "u32"}, (TensorInfo("t", (1,), 0, 0),))
    assert (dict(found), found.types, len(found)) == ({"a": 1, "b": "x"}, {"a": "u32"}, 2)
    assert found.has_tensor("t") is True
    assert found.has_tensor("u") is False


def test_without_a_tensor_table_nothing_is_claimed_of_tensors() -> None:
    assert GgufMetadata({}).has_tensor("t") is None
