"""``from kvcalc import load_model, estimate``: the same figures, typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

import kvcalc
from kvcalc import Estimate, KvcalcError, Model, estimate, find_engine, load_model
from kvcalc.errors import ArchitectureError, ConfigError, DtypeError, EngineError, PresetError, UsageError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
}
A_TOKEN = 2 * 2 * 2 * 8 * 2


def test_everything_that_is_promised_is_there() -> None:
    assert sorted(kvcalc.__all__) == dir(kvcalc)
    for name in kvcalc.__all__:
        assert getattr(kvcalc, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        kvcalc.nope  # noqa: B018


def test_a_preset() -> None:
    model = load_model("llama-8b")
    assert isinstance(model, Model)
    found = estimate(model, tokens=4096)
    assert isinstance(found, Estimate)
    assert found.total_bytes == 2 * 32 * 4096 * 8 * 128 * 2


def test_a_config_as_object_file_and_folder(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    for config in (LLAMA, path, str(path), tmp_path):
        assert estimate(load_model(config=config), tokens=10).total_bytes == 10 * A_TOKEN


def test_keywords_stand_instead_of_fields() -> None:
    assert estimate(load_model(config=LLAMA, num_layers=4), tokens=1).total_bytes == 2 * A_TOKEN
    assert load_model(config=LLAMA, num_key_value_heads=4).layers[0] == load_model(config=LLAMA, num_kv_heads=4).layers[0]


def test_a_request_in_full() -> None:
    found = estimate(load_model(config=LLAMA), tokens=10, batch_size=3, k_dtype="fp8", v_dtype="float32")
    assert found.total_bytes == 3 * 10 * 2 * 2 * 8 * (1 + 4)
    assert found.tally.request["k_dtype"] == ("fp8_e4m3", "argument")
    assert found.tokens == 10


def test_lengths() -> None:
    assert estimate(load_model(config=LLAMA), lengths=(1, 5)).total_bytes == 6 * A_TOKEN


def test_an_engine_and_its_options() -> None:
    found = estimate(load_model(config=LLAMA), tokens=17, engine="paged", options={"block-size": "16"})
    assert found.engine is find_engine("paged")
    assert found.total_bytes >= 32 * A_TOKEN


def test_the_command_line_gives_the_same(cli: Cli) -> None:
    for name in ("gemma-3-27b", "deepseek-v4-flash", "jamba-1.5-mini"):
        assert (
            cli("estimate", name, "--tokens", "9k", "--json").json["total_bytes"]
            == estimate(load_model(name), tokens=9216).total_bytes
        )


MISUSE: dict[str, tuple[dict[str, Any], type[KvcalcError]]] = {
    "no model": ({}, UsageError),
    "two models": ({"preset": "llama-8b", "config": LLAMA}, UsageError),
    "an unknown preset": ({"preset": "nope"}, PresetError),
    "no file": ({"config": "nope.json"}, ConfigError),
    "an unknown type": ({"config": {"model_type": "nope"}}, ArchitectureError),
    "an unknown assumption": ({"config": LLAMA, "assume": "nope"}, ArchitectureError),
    "an impossible field": ({"config": LLAMA, "num_layers": -1}, ConfigError),
    "a text for a field": ({"config": LLAMA, "num_layers": "2"}, ConfigError),
}


@pytest.mark.parametrize("name", MISUSE)
def test_a_model_that_can_t_be_named_so(name: str) -> None:
    arguments, error = MISUSE[name]
    with pytest.raises(error):
        load_model(**arguments)


BAD: dict[str, tuple[dict[str, Any], type[KvcalcError]]] = {
    "no tokens": ({"tokens": 0}, UsageError),
    "negative tokens": ({"tokens": -1}, UsageError),
    "boolean tokens": ({"tokens": True}, UsageError),
    "half a token": ({"tokens": 1.5}, UsageError),
    "a text": ({"tokens": "many"}, UsageError),
    "ten to the thirty": ({"tokens": 10**30}, UsageError),
    "ten to the five thousand": ({"tokens": 10**5000}, UsageError),
    "no batch": ({"batch_size": 0}, UsageError),
    "no ranks": ({"tp_size": 0}, UsageError),
    "a negative encoder": ({"encoder_tokens": -1}, UsageError),
    "a boolean encoder": ({"encoder_tokens": True}, UsageError),
    "a negative length": ({"lengths": (5, -1)}, UsageError),
    "a length as text": ({"lengths": ("5",)}, UsageError),
    "lengths and tokens": ({"lengths": (5,), "tokens": 4}, UsageError),
    "an unknown type": ({"dtype": "fp7"}, DtypeError),
    "a type without a name": ({"dtype": ""}, DtypeError),
    "an unknown engine": ({"engine": "nope"}, EngineError),
    "an unknown option": ({"options": {"x": "1"}}, UsageError),
}


@pytest.mark.parametrize("name", BAD)
def test_a_request_that_can_t_be(name: str) -> None:
    arguments, error = BAD[name]
    with pytest.raises(error):
        estimate(load_model(config=LLAMA), **arguments)


CONSUMER = """
from kvcalc import Estimate, KvcalcError, Model, estimate, load_model

def size(name: str) -> int:
    try:
        model: Model = load_model(name, num_layers=2)
        found: Estimate = estimate(model, tokens=4096, dtype="fp8", engine="exact", options={})
    except KvcalcError as problem:
        print(problem.what, problem.where, problem.fix, int(problem.exit_code))
        return 0
    per_token = found.bytes_per_token
    reveal_type(per_token)
    return found.total_bytes
"""


@pytest.mark.slow
def test_a_typed_program_of_a_user_passes_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(CONSUMER)
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    environment = {**os.environ, "MYPYPATH": str(Path(kvcalc.__file__).parents[1])}
    ran = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert 'Revealed type is "fractions.Fraction | None"' in ran.stdout
    assert ran.returncode == 0, ran.stdout


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(kvcalc.__file__).parent / "py.typed").exists()
