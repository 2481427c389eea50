"""Read a 10 MB GGUF header with kvcalc and with the reader of PyPI's gguf, side by side in one run.

    python benchmarks/gguf_header.py [--runs 5]

The header is shaped like a published one: a vocabulary of 200,000 tokens with scores and types, 200,000 merges, and the
tensor table of an 80-layer model. The file given to the other reader is complete (its data is a hole: no disk is used),
since it refuses one without; ours reads the same file, and the header alone.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kvcalc.readers.gguf import read_gguf

TOKENS = 200_000


def text(value: str) -> bytes:
    """A length and the bytes."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name: str, kind: int, raw: bytes) -> bytes:
    """A key, its type and its value."""
    return text(name) + struct.pack("<I", kind) + raw


def array(kind: int, count: int, raw: bytes) -> bytes:
    """An array's type, length and elements."""
    return struct.pack("<IQ", kind, count) + raw


def header() -> tuple[bytes, int]:
    """The header, and the size of the data that belongs behind it."""
    vocabulary = b"".join(text(f"token-{index:07d}") for index in range(TOKENS))
    merges = b"".join(text(f"a{index:05d} b{index:04d}") for index in range(TOKENS))
    keys = [
        key("general.architecture", 8, text("llama")),
        key("llama.block_count", 4, struct.pack("<I", 80)),
        key("tokenizer.ggml.tokens", 9, array(8, TOKENS, vocabulary)),
        key("tokenizer.ggml.scores", 9, array(6, TOKENS, bytes(4 * TOKENS))),
        key("tokenizer.ggml.token_type", 9, array(5, TOKENS, bytes(4 * TOKENS))),
        key("tokenizer.ggml.merges", 9, array(8, TOKENS, merges)),
    ]
    tensors, offset = [], 0
    for layer in range(80):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "attn_norm", "ffn_norm"):
            tensors.append(text(f"blk.{layer}.{name}.weight") + struct.pack("<IQQIQ", 2, 1024, 32, 8, offset))
            offset += 1024 // 32 * 34 * 32
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return raw + bytes(-len(raw) % 32), offset


def seconds(work: Callable[[], object], runs: int) -> float:
    """The median of several runs."""
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def main() -> None:
    """Write both files, read both ways, print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    from gguf import GGUFReader

    with tempfile.TemporaryDirectory() as folder:
        alone, whole = Path(folder) / "header.gguf", Path(folder) / "whole.gguf"
        raw, data = header()
        alone.write_bytes(raw)
        with whole.open("wb") as file:
            file.write(raw)
            file.truncate(len(raw) + data)
        ours = {path.name: seconds(lambda path=path: read_gguf(str(path)), runs) for path in (alone, whole)}  # type: ignore[misc]
        other = seconds(lambda: GGUFReader(whole), max(1, runs // 2))
    print(f"header of {len(raw) / 1e6:.1f} MB")
    for name, time_taken in ours.items():
        print(f"kvcalc, {name}: {time_taken * 1000:.0f} ms")
    print(f"gguf's GGUFReader, whole.gguf: {other * 1000:.0f} ms ({other / ours['whole.gguf']:.0f} times as long)")


if __name__ == "__main__":
    main()
