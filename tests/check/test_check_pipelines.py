"""The hook and the workflow that docs show: their commands are this program's, and they say yes and no."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Cli

ROOT = Path(__file__).resolve().parents[2]


def hook() -> dict[str, Any]:
    (found,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("compose.yaml", True),
        ("infra/docker-compose.gpu.yml", True),
        ("deploy/vllm.yaml", True),
        ("units/llm.service", True),
        ("Modelfile", True),
        ("src/main.py", False),
        ("README.md", False),
    ],
)
def test_the_files_that_the_hook_takes(path: str, taken: bool) -> None:
    assert bool(re.search(hook()["files"], path)) is taken


def test_the_hook_fails_where_a_launch_does_not_fit(cli: Cli, tmp_path: Path) -> None:
    words = hook()["entry"].split()
    assert words[0] == "kvcalc"
    plain, vllm = tmp_path / "service.yaml", tmp_path / "vllm.yaml"
    plain.write_text("apiVersion: v1\nkind: Service\nspec: {ports: [{port: 80}]}\n")
    assert cli(*words[1:], plain).code == 0
    vllm.write_text("services: {a: {image: vllm/vllm-openai, command: --model Qwen/Qwen3-8B --max-model-len 32768}}\n")
    assert cli(*words[1:], plain, vllm, "--memory", "80GiB", "--weights", "16GB").code == 0
    assert cli(*words[1:], plain, vllm, "--memory", "18GiB", "--weights", "16GB").code == 1


def test_the_workflow_calls_this_program(cli: Cli) -> None:
    held = yaml.safe_load((ROOT / "docs" / "examples" / "check-launch-lines.yml").read_text("utf-8"))
    (line,) = [step["run"] for step in held["jobs"]["check"]["steps"] if "kvcalc check" in step.get("run", "")]
    words = line.replace("deploy/*.yaml", str(ROOT / "docs" / "examples" / "check-compose.yaml")).split()
    assert cli(*words[1:]).code == 4  # --swap-space is gone from the release that the file names
