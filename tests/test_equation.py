"""2·L·B·T·H_kv·D_h·s, and the two values that must hold for ever."""

from __future__ import annotations

import pytest
from conftest import Cli

from kvcalc import estimate, load_model

SMALL = ("estimate", "--layers", 2, "--kv-heads", 2, "--head-dim", 4, "--batch", 1, "--dtype", "fp16")
TEN, TWENTY = 2 * 2 * 1 * 10 * 2 * 4 * 2, 2 * 2 * 1 * 20 * 2 * 4 * 2
LLAMA = 2 * 32 * 1 * 4096 * 8 * 128 * 2


def test_the_worked_values_are_what_the_note_says() -> None:
    assert (TEN, TWENTY, LLAMA) == (640, 1_280, 512 * 2**20)


@pytest.mark.parametrize(("tokens", "expected"), [(10, TEN), (20, TWENTY)])
def test_the_small_shape_through_the_api(tokens: int, expected: int) -> None:
    model = load_model(num_layers=2, num_kv_heads=2, head_dim=4)
    assert estimate(model, tokens=tokens, batch_size=1, dtype="fp16").total_bytes == expected


def test_the_large_shape_through_the_api() -> None:
    model = load_model(num_layers=32, num_kv_heads=8, head_dim=128)
    assert estimate(model, tokens=4096).total_bytes == LLAMA
    assert estimate(load_model("llama-8b")).total_bytes == LLAMA


@pytest.mark.parametrize(("tokens", "expected"), [(10, "640 bytes"), (20, "1,280 bytes")])
def test_the_small_shape_on_the_command_line(cli: Cli, tokens: int, expected: str) -> None:
    ran = cli(*SMALL, "--tokens", tokens)
    assert (ran.code, ran.err) == (0, "")
    assert expected in ran.out


FACTORS = [
    ("2", "arrays: keys and values", "2", "the equation"),
    ("L", "layers", "2", "flag --layers"),
    ("B", "sequences", "1", "flag --batch"),
    ("T", "cached positions of a sequence", "10", "flag --tokens"),
    ("H_kv", "key/value heads", "2", "flag --kv-heads"),
    ("D_h", "head dimension", "4", "flag --head-dim"),
    ("s", "bytes of an element (float16)", "2", "flag --dtype"),
]


@pytest.mark.parametrize("factor", FACTORS, ids=[factor[0] for factor in FACTORS])
def test_each_factor_stands_on_its_own_row_with_value_and_origin(cli: Cli, factor: tuple[str, ...]) -> None:
    rows = [line for line in cli(*SMALL, "--tokens", 10).out.splitlines() if line.startswith(f"{factor[0]} ")]
    assert len(rows) == 1
    assert " ".join(rows[0].split()) == " ".join(factor)


def test_the_text_ends_with_total_growth_and_what_is_left_out(cli: Cli) -> None:
    text = cli(*SMALL, "--tokens", 10).out
    squeezed = [" ".join(line.split()) for line in text.splitlines()]
    assert "total 640 bytes 640 B" in squeezed
    assert f"per additional token {2 * 2 * 2 * 4 * 2} bytes 64 B" in squeezed
    left_out = next(line for line in squeezed if line.startswith("not counted:"))
    assert all(word in left_out for word in ("weights", "activations", "padding", "allocator overhead"))


def test_the_small_shape_as_json(cli: Cli) -> None:
    found = cli(*SMALL, "--tokens", 10, "--json").json
    assert found["total_bytes"] == TEN
    assert found["components"] == {"kv": TEN, "index": 0, "state": 0, "other": 0}
    assert found["bytes_per_token"] == 2 * 2 * 2 * 4 * 2
    assert (found["request"]["tokens"], found["request"]["batch_size"]) == (10, 1)
    assert [run["bytes"] for run in found["layers"]] == [TEN]


def test_the_preset_shows_512_mib_with_its_defaults_marked(cli: Cli) -> None:
    text = cli("estimate", "--preset", "llama-8b").out
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "512 MiB" in rows["llama-8b:"]
    assert "536,870,912 bytes" in rows["total"]
    assert rows["B"].rstrip().endswith("default")
    assert rows["T"].rstrip().endswith("default")
    assert "the model's own type" in rows["s"]


def test_without_a_type_of_its_own_the_shape_takes_fp16_and_says_default(cli: Cli) -> None:
    found = cli("estimate", "--layers", 1, "--kv-heads", 1, "--head-dim", 1, "--json").json
    assert found["request"]["k_dtype"] == found["request"]["v_dtype"] == "float16"
    assert found["request"]["origins"]["k_dtype"] == "default"
    assert found["total_bytes"] == 2 * 1 * 1 * 4096 * 1 * 1 * 2


def test_keys_and_values_of_different_types(cli: Cli) -> None:
    found = cli(
        "estimate", "--layers", 2, "--kv-heads", 8, "--head-dim", 64, "--tokens", 3, "--k-dtype", "q8_0", "--v-dtype", "q4_0"
    )
    row_k, row_v = 8 * 64 // 32 * 34, 8 * 64 // 32 * 18
    assert f"{2 * 3 * (row_k + row_v):,} bytes" in found.out


def test_values_of_another_width(cli: Cli) -> None:
    found = cli("estimate", *SMALL[1:], "--tokens", 10, "--v-head-dim", 6, "--json").json
    assert found["total_bytes"] == 2 * 1 * 10 * 2 * (4 + 6) * 2
