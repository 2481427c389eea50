"""SGLang's pools as its own configurator made them: tokens, window tokens, state slots and bytes, and its refusals."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.errors import EngineError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import preset_model

ENGINE = find_engine("sglang")
DATA: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "sglang.json").read_text(encoding="utf-8"))
ROWS = DATA["rows"]


@cache
def model(name: str) -> Model:
    return model_of(DATA["configs"][name], "measured", name)


def asked(row: dict[str, Any]) -> Request:
    """Server arguments as options under their own names; ranks are the request's."""
    params, sizes, texts = row["params"], {}, []
    for name, value in (params.get("args") or {}).items():
        if name in ("tp_size", "pp_size"):
            sizes[name] = value
        else:
            texts.append(f"{name}={str(value).lower() if isinstance(value, bool) else value}")
    texts += [f"available-bytes={params['available_bytes']}", f"platform=sm{params['sm']}"]
    return Request(tokens=1, options=ENGINE.parse_options(texts), **sizes)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_measured_case_is_equal_or_refused(row: dict[str, Any]) -> None:
    if "error" in row:
        assert refused(row)
        return
    tally = ENGINE.allocate(model(row["config"]), asked(row))
    found = {
        "tokens": tally.report["max_total_num_tokens"],
        "window_tokens": tally.report.get("swa_max_total_num_tokens") or None,
        "states": tally.report.get("max_mamba_cache_size") or None,
        "total_bytes": tally.total_bytes,
    }
    assert found == {key: row[key] for key in found}


def refused(row: dict[str, Any]) -> bool:
    """Whether the engine has no such model, or too little memory."""
    try:
        return not ENGINE.allocate(model(row["config"]), asked(row)).fits
    except EngineError:
        return True


def test_the_sample_has_pools_of_each_kind_and_refusals() -> None:
    assert sum("error" in row for row in ROWS) > 10
    assert all(sum(bool(row.get(key)) for row in ROWS) > 10 for key in ("tokens", "window_tokens", "states"))


def test_a_preset_goes_by_its_type_however_the_library_spells_the_class() -> None:
    assert ENGINE.plan(preset_model("kimi-k2.5"), Request(tokens=16, tp_size=8)).tally.total_bytes > 0
