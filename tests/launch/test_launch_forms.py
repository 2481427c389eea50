"""Forms in which people keep launch lines: each read to its engine, model and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcalc.launch.forms import read_launches
from kvcalc.launch.values import Launch

ROWS = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data" / "launch" / "forms.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_form(row: dict[str, Any]) -> None:
    found = read_launches(row["text"], row["file"])
    best = [launch for launch in found if all(getattr(launch, name) == row[name] for name in ("engine", "model", "settings"))]
    assert best, [(launch.engine, launch.model, launch.settings) for launch in found]


NOT_STARTED = (
    "pip install vllm==0.9.0",
    "echo 'vllm serve m'",
    "pkill -f 'vllm serve'",
    "lmdeploy serve api_client http://localhost",
    "vllm chat --url http://localhost",
    "python -m sglang.bench_serving --backend sglang",
    "ollama pull m:8b",
    'model = "F5-TTS"\nref_audio = "a.wav"\nref_text = "x"\ngen_text = "y"\n',
    "git clone https://github.com/vllm-project/vllm",
    "apiVersion: v1\nkind: Service\nspec: {ports: [{port: 8000}]}\n",
    "services:\n  db:\n    image: postgres:16\n    command: postgres -c max_connections=100\n",
    "",
)


@pytest.mark.parametrize("text", NOT_STARTED)
def test_what_starts_no_engine(text: str) -> None:
    assert read_launches(text) == []


def variants(text: str) -> list[Launch]:
    return read_launches(text, "run.sh")


def test_each_way_that_a_script_may_go() -> None:
    text = (
        'if [ "$CC" = 10.0 ]; then\n  D=FP4; K=fp8\nelif [ "$CC" = 9.0 ]; then\n  D=FP8; K=auto\nelse\n  exit 1\nfi\n'
        "vllm serve m/x-$D --kv-cache-dtype $K &\n"
    )
    assert [(launch.model, launch.settings["kv-cache-dtype"]) for launch in variants(text)] == [
        ("m/x-FP4", "fp8"),
        ("m/x-FP8", "auto"),
    ]


def test_a_failure_elsewhere_ends_nothing() -> None:
    (launch,) = variants("cd /x || exit 1\nvllm serve m/x\n")
    assert launch.model == "m/x"


def test_the_release_of_an_image_and_of_an_installation() -> None:
    texts = {
        "docker run vllm/vllm-openai:v0.17.0-aarch64-cu130 --model m": "0.17.0",
        "docker run rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4 vllm serve m": "0.6.4",
        "docker run ghcr.io/ggml-org/llama.cpp:server-cuda-b10236@sha256:00 -m m.gguf": "b10236",
        "docker run vllm/vllm-openai:latest --model m": "",
        "pip install sglang[all]==0.4.2.post4\nsglang serve --model-path m": "0.4.2.post4",
    }
    assert {text: read_launches(text)[0].release for text in texts} == texts


def test_the_line_of_a_flag_in_a_block_of_yaml() -> None:
    text = (
        "services:\n  a:\n    image: vllm/vllm-openai\n    entrypoint: [bash, -c]\n    command:\n      - |\n        set -e\n"
        "        exec vllm serve m/x \\\n          --swap-space 4\n"
    )
    (launch,) = read_launches(text, "compose.yaml")
    assert [text.split("\n")[flag.line - 1].strip() for flag in launch.flags] == ["--swap-space 4"]
