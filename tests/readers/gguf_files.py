"""GGUF headers made to order, whole or with a defect."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kvcalc.readers.gguf_header import MAX_KEYS, MAX_STRINGS, MAX_TENSORS

NUMBERS = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f")}
NUMBERS |= {"bool": (7, "?"), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}
STRING, ARRAY = 8, 9

Value = tuple[str, Any]  # ("u32", 32), ("string", "llama"), ("[u32]", [1, 2]), ("[string]", ["a"])
LLAMA: Mapping[str, Value] = {
    "general.architecture": ("string", "llama"),
    "general.name": ("string", "tiny"),
    "llama.context_length": ("u32", 4096),
    "llama.embedding_length": ("u32", 512),
    "llama.block_count": ("u32", 2),
    "llama.attention.head_count": ("u32", 8),
    "llama.attention.head_count_kv": ("[u32]", [2, 2]),
    "llama.attention.layer_norm_rms_epsilon": ("f32", 1e-5),
    "llama.use_it": ("bool", True),
    "tokenizer.ggml.tokens": ("[string]", ["<s>", "</s>", "a", "b"]),
    "tokenizer.ggml.scores": ("[f32]", [0.0, 0.5, 1.0, 1.5]),
}
TENSORS = (("token_embd.weight", (512, 4), 12, 0), ("blk.0.attn_k.weight", (512, 128), 8, 1152))


def text(value: str, order: str = "<") -> bytes:
    """A length and the bytes."""
    raw = value.encode()
    return struct.pack(f"{order}Q", len(raw)) + raw


def value_bytes(kind: str, value: Any, order: str = "<") -> bytes:
    """A type and its value."""
    if kind == "string":
        return struct.pack(f"{order}I", STRING) + text(value, order)
    if kind == "[string]":
        return struct.pack(f"{order}IIQ", ARRAY, STRING, len(value)) + b"".join(text(item, order) for item in value)
    if kind.startswith("["):
        number, code = NUMBERS[kind[1:-1]]
        return struct.pack(f"{order}IIQ{len(value)}{code}", ARRAY, number, len(value), *value)
    number, code = NUMBERS[kind]
    return struct.pack(f"{order}I{code}", number, value)


def header(
    keys: Mapping[str, Value] = LLAMA,
    tensors: Sequence[tuple[str, tuple[int, ...], int, int]] = TENSORS,
    version: int = 3,
    order: str = "<",
    alignment: int = 32,
) -> bytes:
    """A header, complete up to where the tensors' data would begin."""
    parts = [b"GGUF", struct.pack(f"{order}IQQ", version, len(tensors), len(keys))]
    parts += [text(key, order) + value_bytes(kind, value, order) for key, (kind, value) in keys.items()]
    for name, shape, kind, offset in tensors:
        parts.append(text(name, order) + struct.pack(f"{order}I{len(shape)}QIQ", len(shape), *shape, kind, offset))
    raw = b"".join(parts)
    return raw + b"\0" * (-len(raw) % alignment)


def huge(count: int) -> bytes:
    """One key that is an array of ``count`` strings."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, count)


# name → the bytes, and what the error must say
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "does not fit"),
    "not-gguf": (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
    "version-1": (header(version=1), "version 1"),
    "version-4": (header(version=4), "version 4"),
    "version-0": (header(version=0), "version 0"),
    "tensor-count-2-60": (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), f"no file has over {MAX_TENSORS:,}"),
    "key-count-2-60": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), f"no file has over {MAX_KEYS:,}"),
    "key-length-2-60": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**60), "no file has over"),
    "string-longer-than-file": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IQ", 8, 2**40) + b"abc",
        "does not fit",
    ),
    "string-array-2-60": (huge(2**60), f"no file has over {MAX_STRINGS:,}"),
    "string-array-larger-than-file": (huge(2**20), "does not fit"),
    "string-in-array-longer-than-file": (huge(1) + struct.pack("<Q", 2**50) + b"abc", "does not fit"),
    "number-array-2-61": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 2**61),
        "does not fit",
    ),
    "nested-arrays": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * 50,
        "array of arrays",
    ),
    "unknown-value-type": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 13), "unknown type 13"),
    "unknown-element-type": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 77, 1) + bytes(8),
        "unknown type 77",
    ),
    "unknown-tensor-type": (header(tensors=(("t", (32,), 2**31, 0),)), "unknown type 2,147,483,648"),
    "duplicate-key": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + (text("k") + value_bytes("u32", 1)) * 2,
        "'k' stands twice",
    ),
    "empty-key": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("") + value_bytes("u32", 1), "no name"),
    "key-not-utf-8": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"\xff\xfe" + value_bytes("u32", 1),
        "no UTF-8",
    ),
    "duplicate-tensor": (header(tensors=TENSORS[:1] * 2), "stands twice"),
    "five-dimensions": (header(tensors=(("t", (32, 1, 1, 1, 1), 0, 0),)), "5 dimensions"),
    "elements-overflow": (header(tensors=(("t", (2**40, 2**40), 0, 0),)), "impossible shape"),
    "broken-block": (header(tensors=(("t", (33,), 8, 0),)), "impossible shape for q8_0"),
    "alignment-0": (header({**LLAMA, "general.alignment": ("u32", 0)}), "power of two"),
    "alignment-3": (header({**LLAMA, "general.alignment": ("u32", 3)}), "power of two"),
    "alignment-text": (header({**LLAMA, "general.alignment": ("string", "32")}), "power of two"),
    "values-without-end": (
        header({f"k{index}": ("[u32]", [1] * 4000) for index in range(80)}, ()),
        "takes over",
    ),
}
