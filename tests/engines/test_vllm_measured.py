"""Measured vLLM plans: every case of the sample, and the whole file where it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.errors import ArchitectureError, EngineError
from kvcalc.readers.hf_config import model_of

DATA = json.loads((Path(__file__).parents[1] / "data" / "vllm.json").read_text())
FOLDER = os.environ.get("KVCALC_ORACLE", "")
ENGINE = find_engine("vllm")
FIGURES = ("num_blocks", "kv_tokens", "max_concurrency", "bytes_per_block", "blocks_per_request")
NAMES = {"tp": "tensor-parallel-size"}


def options(params: Mapping[str, Any]) -> list[str]:
    """A case's parameters under vLLM's own option names."""
    platform = "sm" + str(params["sm"]).replace(".", "") if params["sm"] else "cpu"
    asked = {key: value for key, value in params.items() if key not in ("sm", "extra", "release")} | params["extra"]
    words = [f"{NAMES.get(key, key.replace('_', '-'))}={_word(value)}" for key, value in asked.items() if value is not None]
    return [f"platform={platform}", f"release={params.get('release', '0.32.0')}", *words]


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def plan(config: Mapping[str, Any], name: str, params: Mapping[str, Any]) -> Tally:
    """What kvcalc makes of a case."""
    return ENGINE.allocate(model(config, name), Request(options=ENGINE.parse_options(options(params))))


def model(config: Mapping[str, Any], name: str) -> Model:
    """The case's model."""
    return model_of(config, "config.json", name)


def hold(case: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Fails where the figure, or the kind of refusal, is another than vLLM's."""
    want = case["want"]
    if "error" in want and "KV cache is needed" not in want["error"]:
        try:
            plan(config, case["model"], case["params"])
        except (ArchitectureError, EngineError):
            return
        raise AssertionError(f"vLLM refuses: {want['error']}")
    tally = plan(config, case["model"], case["params"])
    if "error" in want:
        _hold_refusal(tally, want["error"])
    elif "kv_tokens" in want:
        assert tally.fits
        assert [tally.report[key] for key in FIGURES] == [want[key] for key in FIGURES]
        assert tally.report["log_line"] == want["log_line"]
        assert tally.total_bytes == want["allocated_bytes"]
    else:  # a model that is run without a cache
        assert (tally.report["num_blocks"], tally.total_bytes) == (want["num_blocks"], 0)


def _hold_refusal(tally: Tally, error: str) -> None:
    assert not tally.fits
    needed = re.search(r"\(([\d.]+) GiB KV", error)
    assert needed is not None
    figure = tally.report["needed_bytes"]
    assert isinstance(figure, int)
    assert abs(float(needed.group(1)) - figure / 2**30) < 0.006  # printed to two digits
    longest = re.search(r"estimated maximum model length is (\d+)", error)
    assert longest is None or tally.report["longest_model_len"] == int(longest.group(1))


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"])
def test_equal_to_the_engine(case: dict[str, Any]) -> None:
    hold(case, DATA["configs"][case["model"]])


@pytest.mark.oracle
@pytest.mark.skipif(not FOLDER, reason="KVCALC_ORACLE names no folder of measured figures")
@pytest.mark.parametrize("name", ["vllm.jsonl", "vllm-0.33.jsonl"])
def test_the_whole_file(name: str) -> None:
    wrong = []
    for line in (Path(FOLDER) / name).read_text().splitlines():
        row = json.loads(line)
        try:
            hold({**row, "params": {"release": row["version"], **row["params"]}, "want": row}, row["config"])
        except AssertionError as problem:
            wrong.append(f"{row['id']}: {problem}")
    assert not wrong, wrong[:20]
