"""transformers: bytes of the returned cache, in total, a layer, and as the allocator holds them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.model import OptionValue, Request, Tally
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.engines.transformers import releases
from kvcalc.errors import EngineError, UsageError
from kvcalc.readers.hf_config import model_of

ENGINE = find_engine("transformers")
DATA = Path(__file__).resolve().parents[1] / "data"
SAMPLE = [json.loads(line) for line in (DATA / "transformers.jsonl").read_text().splitlines()]

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 256,
    "torch_dtype": "bfloat16",
}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": 8}
ROW = 2 * 2 * 64 * 2  # keys and values, 2 heads of 64, bf16


def options_of(row: dict[str, Any]) -> dict[str, OptionValue]:
    options: dict[str, OptionValue] = {"cache": row["cache"], "release": row["transformers"]}
    if row.get("max_cache_len"):
        options["max-cache-len"] = row["max_cache_len"]
    if row["cache"] == "quantized":
        options |= {"backend": row["backend"], "prompt-tokens": row["prefill_tokens"]}
        options |= {name.replace("_", "-"): value for name, value in row["backend_options"].items()}
    elif row["mode"] == "prefill+decode":
        options["prompt-tokens"] = row["tokens"] - 1
    return options


def tally(config: dict[str, Any], row: dict[str, Any]) -> Tally:
    dtype = find_dtype(row["dtype"])
    request = Request(
        batch_size=row["batch"],
        tokens=row["tokens"],
        k_dtype=dtype,
        v_dtype=dtype,
        encoder_tokens=row.get("encoder_tokens"),
        options=options_of(row),
    )
    return ENGINE.allocate(model_of(config, "measured", "measured"), request)


def bytes_a_layer(row: dict[str, Any]) -> dict[int, int] | None:
    """Layer → bytes, as measured; None where the library keeps a state of all layers in one tensor."""
    found: dict[int, int] = {}
    for spans, size in row["layers"]:
        if spans == "all":
            return None
        for span in spans.split(","):
            first, _, last = span.partition("-")
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), size)
    return found


@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: row["id"])
def test_bytes_are_the_librarys(row: dict[str, Any]) -> None:
    found = tally(row["config"], row)
    assert found.total_bytes == row["total_bytes"]
    assert found.held_bytes == row["storage_bytes"]
    measured = bytes_a_layer(row)
    if measured is not None and not found.shared:
        counted = {run.first + index: run.bytes_per_layer for run in found.layers for index in range(run.count)}
        assert {index: size for index, size in counted.items() if size} == {
            index: size for index, size in measured.items() if size
        }


def oracle_rows() -> Iterator[dict[str, Any]]:
    with (Path(os.environ["KVCALC_ORACLE"]) / "transformers.jsonl").open() as file:
        yield from map(json.loads, file)


@pytest.mark.oracle
@pytest.mark.skipif("KVCALC_ORACLE" not in os.environ, reason="KVCALC_ORACLE names no folder of measured figures")
def test_every_measured_case_in_both_forms() -> None:
    wrong = [
        f"{row['id']} ({form})"
        for row in oracle_rows()
        for form in ("config", "raw_config")
        if row.get(form) and tally(row[form], row).total_bytes != row["total_bytes"]
    ]
    assert wrong == []


def request(tokens: int, **options: OptionValue) -> Request:
    return Request(tokens=tokens, options={name.replace("_", "-"): value for name, value in options.items()})


@pytest.mark.parametrize(("tokens", "kept"), [(1, 1), (7, 7), (8, 7), (9, 7), (100, 7)])
def test_a_dynamic_window_keeps_one_less(tokens: int, kept: int) -> None:
    assert ENGINE.allocate(model_of(MISTRAL, "", "m"), request(tokens)).total_bytes == 2 * kept * ROW


def test_a_static_window_keeps_all_of_it() -> None:
    found = ENGINE.allocate(model_of(MISTRAL, "", "m"), request(4, cache="static", max_cache_len=100))
    assert found.total_bytes == 2 * 8 * ROW


def test_a_window_of_one_keeps_everything() -> None:
    one = model_of({**MISTRAL, "sliding_window": 1}, "", "m")
    assert ENGINE.allocate(one, request(50)).total_bytes == 2 * 50 * ROW


def test_after_a_prompt_the_whole_of_it_is_held() -> None:
    found = ENGINE.allocate(model_of(MISTRAL, "", "m"), request(100))
    assert (found.total_bytes, found.held_bytes) == (2 * 7 * ROW, 2 * 100 * ROW)


def test_one_step_later_only_the_window_is_held() -> None:
    found = ENGINE.allocate(model_of(MISTRAL, "", "m"), request(101, prompt_tokens=100))
    assert (found.total_bytes, found.held_bytes) == (2 * 7 * ROW, 2 * 8 * ROW)


@pytest.mark.parametrize(("release", "offset"), [("4.57.6", 0), ("5.24.0", 8)])
def test_an_xlstm_counts_its_tokens_in_a_tensor_of_its_own(release: str, offset: int) -> None:
    found = ENGINE.allocate(model_of({"model_type": "xlstm"}, "", "m"), request(10, release=release))
    assert sum(array.bytes for array in found.shared) == offset


def test_older_releases_have_no_static_cache_for_states() -> None:
    with pytest.raises(EngineError, match="recurrent states"):
        ENGINE.allocate(model_of({"model_type": "mamba"}, "", "m"), request(10, cache="static", release="4.57.6"))


def test_every_change_of_a_release_plays_a_part() -> None:
    """A change that no rule reads is a rule that was lost."""
    sources = "".join(path.read_text() for path in Path(releases.__file__).parent.glob("*.py"))
    assert [change.name for change in releases.CHANGES if sources.count(f'"{change.name}"') < 2] == []


def test_deepseek_v4_holds_plain_window_rows_twice() -> None:
    """Ratio 0 is the library's plain window class; compressing layers keep one tensor (models/deepseek_v4, HCA cache)."""
    config = {"model_type": "deepseek_v4", "num_hidden_layers": 2, "compress_ratios": [0, 128], "sliding_window": 8}
    found = ENGINE.allocate(model_of({**config, "head_dim": 64, "torch_dtype": "bfloat16"}, "", "m"), request(100))
    window = 7 * 64 * 2
    assert [run.bytes_per_layer for run in found.layers] == [2 * window, window + 100 * 2 * 64 * 2]


def test_latent_rows_were_expanded_before_they_were_kept() -> None:
    config = {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "torch_dtype": "bfloat16",
    }
    model = model_of(config, "", "m")
    assert ENGINE.allocate(model, request(10)).total_bytes == 10 * (32 + 8) * 2
    older = ENGINE.allocate(model, request(10, release="4.57.6"))
    assert older.total_bytes == 10 * 4 * ((16 + 8) + 16) * 2
    assert any("expanded" in array.note for run in older.layers for array in run.arrays)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"release": "3.0.0"}, EngineError),
        ({"release": "newest"}, (UsageError, EngineError)),
        ({"cache": "static", "max_cache_len": 4}, EngineError),
        ({"prompt_tokens": 11}, UsageError),
        ({"nbits": 4}, UsageError),
        ({"cache": "quantized", "backend": "quanto", "nbits": 3}, (UsageError, EngineError)),
    ],
)
def test_what_the_library_cannot_do_is_refused(
    options: dict[str, OptionValue], error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    with pytest.raises(error):
        ENGINE.allocate(model_of(LLAMA, "", "m"), request(10, **options))


def test_two_types_are_refused() -> None:
    mixed = replace(request(10), k_dtype=find_dtype("bf16"), v_dtype=find_dtype("q8_0"))
    with pytest.raises(EngineError, match="one type"):
        ENGINE.allocate(model_of(LLAMA, "", "m"), mixed)
