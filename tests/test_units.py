"""Sizes and counts as people write them."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.errors import UsageError
from kvcalc.units import (
    MAX_COUNT,
    ceil_div,
    format_bytes,
    format_count,
    parse_bytes,
    parse_count,
    parse_counts,
    parse_memory,
    round_up,
)

COUNTS = {
    "1": 1,
    "4096": 4096,
    "4k": 4 * 1024,
    "32K": 32 * 1024,
    "1m": 1024 * 1024,
    "2g": 2 * 1024**3,
    "0.5k": 512,
    "1.5k": 1536,
    "1,000": 1000,
    "1,048,576": 2**20,
    "1_000": 1000,
    " 12 ": 12,
    "7 k": 7 * 1024,
    str(MAX_COUNT): 2**53,
}
NO_COUNTS = [
    *("", " ", "0", "0k", "-1", "+1", "abc", "k", "1kk", "1e3", "1e30", "nan", "inf", "true", "None", "0x10", "1.", ".5", "2^3"),
    *(
        "1,2",
        "12,34",
        ",1",
        "1,",
        "1__000",
        "1_0",
        "0,512",
        "024",
        "00",
        "1.5",
        "0.3k",
        "1..2",
        "4 096",
        "4096 tokens",
        "１２",
        "²",
    ),
    *("9007199254740993", "8388609g", "1" * 21, "1" * 5000, "1\n2", "1\0"),
]


@pytest.mark.parametrize(("text", "expected"), COUNTS.items(), ids=[repr(text) for text in COUNTS])
def test_a_count(text: str, expected: int) -> None:
    assert parse_count(text) == expected


@pytest.mark.parametrize("text", NO_COUNTS, ids=[repr(text[:24]) for text in NO_COUNTS])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_count(text, "a value of --tokens")
    assert "--tokens" in f"{caught.value}"
    assert len(str(caught.value)) < 200


SIZES = {
    "1073741824": 2**30,
    "512B": 512,
    "1KiB": 1024,
    "1KB": 1000,
    "24GiB": 24 * 2**30,
    "24GB": 24 * 10**9,
    "24 gib": 24 * 2**30,
    "24g": 24 * 10**9,
    "24Gi": 24 * 2**30,
    "1.5GiB": 3 * 2**29,
    "0.3GiB": 3 * 2**30 // 10,
    "80,000 MB": 80 * 10**9,
    "1TiB": 2**40,
    "2TB": 2 * 10**12,
    "1PiB": 2**50,
    "3PB": 3 * 10**15,
}


@pytest.mark.parametrize(("text", "expected"), SIZES.items(), ids=SIZES)
def test_a_memory_size(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0.4B", "-24GiB", "24XB", "24GiBs", "GiB", "1e9", "24 G iB", "9PiB", "nan"])
def test_what_is_no_memory_size(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text)


RANGES = {
    "1k": [1024],
    "1k..8k": [1024, 2048, 4096, 8192],
    "1k..6k": [1024, 2048, 4096, 6144],
    "3..3": [3],
    "1k..32k:8k": [1024, 9216, 17408, 25600],
    "1..4:1": [1, 2, 3, 4],
    "5..6:10": [5],
    "1k,3000,32k": [1024, 3000, 32768],
    "8,1..3:1,2": [8, 1, 2, 3, 2],
    " 1 , 2 .. 4 ": [1, 2, 4],
}


@pytest.mark.parametrize(("text", "expected"), RANGES.items(), ids=RANGES)
def test_a_range(text: str, expected: list[int]) -> None:
    assert list(parse_counts(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "1,,2",
        "1k..",
        "..4k",
        "..",
        "4k..1k",
        "1..2..3",
        "1..8:0",
        "1..8:",
        "1..8:x",
        "1:2",
        "0..4",
        "-1..4",
        "1,024",
        "a..b",
    ],
)
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError):
        parse_counts(text)


def test_a_range_is_walked_and_never_held() -> None:
    assert list(islice(parse_counts("1..10000000:1"), 3)) == [1, 2, 3]
    with pytest.raises(UsageError, match="steps"):
        parse_counts("1..10000003:1")


def test_a_list_is_checked_as_a_whole_before_its_first_value() -> None:
    with pytest.raises(UsageError, match="'x' is not a batch"):
        parse_counts("1,2,x", "a batch")


BYTES = {
    0: "0 B",
    1: "1 B",
    1023: "1,023 B",
    1024: "1 KiB",
    1536: "1.50 KiB",
    512 * 2**20: "512 MiB",
    5 * 2**28: "1.25 GiB",
    2**40: "1 TiB",
    2**50: "1 PiB",
    2**60: "1,024 PiB",
    -2048: "-2 KiB",
}


@pytest.mark.parametrize(("count", "expected"), BYTES.items(), ids=BYTES.values())
def test_bytes_are_shown_in_binary_units(count: int, expected: str) -> None:
    assert format_bytes(count) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "1"), (1000, "1,000"), (1024, "1k"), (1536, "1,536"), (131072, "128k"), (2**20, "1m"), (3 * 2**20, "3m")],
)
def test_a_length_is_shown_short_where_that_is_exact(count: int, expected: str) -> None:
    assert format_count(count) == expected


@given(st.integers(1, MAX_COUNT))
def test_a_shown_length_reads_back(count: int) -> None:
    assert parse_count(format_count(count)) == count


@given(st.integers(0, 2**60), st.integers(1, 2**40))
def test_rounding_up_is_the_least_multiple(value: int, step: int) -> None:
    rounded = round_up(value, step)
    assert rounded % step == 0
    assert 0 <= rounded - value < step
    assert ceil_div(value, step) * step == rounded


@given(st.text(max_size=30))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (parse_count, parse_bytes, parse_counts):
        with suppress(UsageError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("24GiB", 24 * 2**30), ("24B", 24), ("1048576", 2**20), ("25769803776", 24 * 2**30)]
)
def test_a_device_has_a_size(text: str, expected: int) -> None:
    assert parse_memory(text) == expected


@pytest.mark.parametrize("text", ["24", " 80 ", "1048575"])
def test_a_bare_number_below_a_mib_is_a_unit_forgotten(text: str) -> None:
    with pytest.raises(UsageError, match="bytes\\?") as raised:
        parse_memory(text)
    assert f"write {text.strip()}GiB" in str(raised.value.fix)
