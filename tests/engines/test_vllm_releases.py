"""Every release's own planner, asked with caches written by hand: blocks, groups and concurrency are the same.

The data are written by ``tests/tools/ask_vllm_planner.py``, which runs the planner of each release.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.engines import find_engine
from kvcalc.engines.releases import number_of
from kvcalc.engines.vllm.releases import KNOWN
from kvcalc.errors import EngineError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import preset_model

ROWS = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "vllm_releases.jsonl").read_text().splitlines()]
ENGINE = find_engine("vllm")
MEMORY = 20 * 2**30
NO_CLASS_BEFORE = {"qwen3-next-80b-a3b": "0.10.2", "granite-4.0-h-small": "0.10.2"}  # or on the V0 engine alone


@cache
def model(name: str) -> Model:
    """A shipped preset, or a measured model's file."""
    configs = json.loads((Path(__file__).parents[1] / "data" / "vllm.json").read_text())["configs"]
    return model_of(configs[name], "config.json", name) if name in configs else preset_model(name)


def report(row: dict[str, Any]) -> dict[str, Any]:
    """What kvcalc makes of a row."""
    options: dict[str, OptionValue] = {
        "release": row["release"],
        "available-bytes": MEMORY,
        "max-model-len": row["max_model_len"],
        "max-num-batched-tokens": 8192,
        "enable-prefix-caching": False,
        "allow-long-max-model-len": True,
    }
    return dict(ENGINE.allocate(model(row["model"]), Request(options=options)).report)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['release']}-{row['model']}-{row['max_model_len']}")
def test_equal_to_the_releases_own_planner(row: dict[str, Any]) -> None:
    before = NO_CLASS_BEFORE.get(row["model"])
    if before and number_of(row["release"]) < number_of(before):
        with pytest.raises(EngineError, match=row["release"]):
            report(row)
        return
    if "error" in row:  # chunked layers were no class of their own yet
        assert row["model"] == "llama-4-scout"
        assert [group["kind"] for group in report(row)["groups"]] == ["FullAttentionSpec"]
        return
    found = report(row)
    assert (found["num_blocks"], sorted(_sizes(found))) == (row["num_blocks"], sorted(row["groups"]))
    if "max_concurrency" in row:
        assert found["max_concurrency"] == row["max_concurrency"]


def _sizes(found: dict[str, Any]) -> list[int]:
    return [group["layers"] for group in found["groups"] for _ in range(group.get("count", 1))]


def test_every_known_release_was_asked() -> None:
    assert {row["release"] for row in ROWS} == set(KNOWN)
    assert all(number_of(one) < number_of(other) for one, other in pairwise(KNOWN))
