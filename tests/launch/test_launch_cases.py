"""Launch lines from the field: engine, model and every setting read as its own parser reads them; the rest left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcalc.launch.forms import read_launches
from kvcalc.launch.values import Launch

ROWS = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data" / "launch" / "cases.jsonl").read_text("utf-8").splitlines()
]
NAMES = {
    "compose": "compose.yaml",
    "k8s": "deployment.yaml",
    "systemd": "llm.service",
    "python": "serve.py",
    "modelfile": "Modelfile",
    "env": "server.env",
    "config-file": "config.yaml",
}


def same(held: Any) -> Any:
    """A value as it compares: text that is a number or a truth value counts as one, keys by their dashes."""
    if isinstance(held, str):
        try:
            return same(json.loads(held))
        except ValueError:
            return held
    if isinstance(held, dict):
        return {key.replace("_", "-"): same(item) for key, item in held.items()}
    return [same(item) for item in held] if isinstance(held, list) else held


def key(name: str) -> str:
    return name.lstrip("-").split("=")[0].replace("_", "-").lower()


def right(launch: Launch, row: dict[str, Any]) -> bool:
    have = {key(name): same(held) for name, held in launch.settings.items()}
    want = {key(name): same(held) for name, held in row["settings"].items()}
    extra = {key(name) for name in row["unrelated"]} & have.keys()
    return (
        launch.engine == row["engine"]
        and launch.model == (row["model"] or launch.model)
        and not extra
        and want.items() <= have.items()
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_launch_from_the_field(row: dict[str, Any]) -> None:
    found = read_launches(row["text"], NAMES.get(row["form"], "run.sh"))
    assert any(right(launch, row) for launch in found), [(launch.engine, launch.model, launch.settings) for launch in found]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_every_flag_is_accounted_for(row: dict[str, Any]) -> None:
    for launch in read_launches(row["text"], NAMES.get(row["form"], "run.sh")):
        named = {flag.name for flag in launch.flags}
        assert launch.settings.keys() <= named
        assert all(flag.verdict for flag in launch.flags)
