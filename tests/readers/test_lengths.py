"""A traffic sample: one length a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Cli

from kvcalc.errors import InputError
from kvcalc.readers.lengths import read_lengths

GOOD: dict[str, tuple[str, tuple[int, ...]]] = {
    "a length a line": ("512\n8k\n1\n", (512, 8192, 1)),
    "a heading, empty lines and comments": ("length\n\n512 # short\n# all\n", (512,)),
    "a table's first column": ("tokens,user\n512,a\n1024,b\n", (512, 1024)),
    "quoted": ('"512","x"\n', (512,)),
    "windows' line ends": ("512\r\n1024\r\n", (512, 1024)),
    "no line end": ("7", (7,)),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file(name: str, tmp_path: Path) -> None:
    text, expected = GOOD[name]
    path = tmp_path / "lengths"
    path.write_text(text, newline="")
    assert read_lengths(path, 100) == expected


BAD: dict[str, tuple[str | bytes, str, str]] = {
    "nothing": ("", "names no length", ""),
    "a heading alone": ("tokens\n", "names no length", ""),
    "a word": ("512\nmany\n", "'many'", ": line 2"),
    "zero": ("0\n", "out of range", ": line 1"),
    "negative": ("512\n-5\n", "'-5'", ": line 2"),
    "a half": ("512\n1.5\n", "no whole number", ": line 2"),
    "no text": (b"\xff\xfe5", "not UTF-8", ""),
    "too many": ("1\n" * 101, "over 100 sequences", ""),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_says_where(name: str, tmp_path: Path) -> None:
    content, words, line = BAD[name]
    path = tmp_path / "lengths"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_lengths(path, 100)
    assert words in caught.value.what
    assert caught.value.where == f"{path}{line}"


def test_a_file_and_a_list_give_the_same(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    path.write_text("512\n8k\n512\n")
    shape = ("estimate", "--layers", 2, "--kv-heads", 2, "--head-dim", 4, "--dtype", "fp16", "--json", "--lengths")
    listed, read = cli(*shape, "512,8k,512").json, cli(*shape, path).json
    assert listed["total_bytes"] == read["total_bytes"] == 2 * 2 * (512 + 8192 + 512) * 2 * 4 * 2
    assert listed["request"]["lengths"] == read["request"]["lengths"] == [512, 8192, 512]
    assert (listed["request"]["batch_size"], listed["request"]["tokens"]) == (3, 8192)
