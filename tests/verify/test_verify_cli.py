"""The verb: JSON contract, exit codes, messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kvcalc.core.model import Model, Request
from kvcalc.verify import against
from kvcalc.verify.results import AgainstReport, AgainstRow, Measure, Settings

Cli = Callable[..., Any]
SMALL = ("--layers", "2", "--kv-heads", "2", "--heads", "4", "--head-dim", "16", "--dtype", "bf16", "--tokens", "24")


def test_the_json_names_passed_checks_and_controls(cli: Cli) -> None:
    ran = cli("verify", *SMALL, "--json")
    assert ran.code == 0
    found = ran.json
    assert (found["schema_version"], found["verb"], found["passed"]) == (1, "verify", True)
    assert found["request"]["tokens"] == 24
    assert found["request"]["layers"] == 2
    first = found["checks"][0]
    assert {"kind", "implementation", "error", "tolerance", "measured_bytes", "predicted_bytes", "passed"} <= set(first)
    assert first["measured_bytes"] == first["predicted_bytes"] == 2 * 24 * 2 * 2 * 16 * 2
    assert 0 < first["error"] <= first["tolerance"]
    assert {"name", "caught"} <= set(found["controls"][0])
    assert [total["implementation"] for total in found["totals"][:3]] == ["concat", "static", "paged"]


def test_the_totals_are_estimates_own(cli: Cli) -> None:
    totals = {total["implementation"]: total for total in cli("verify", *SMALL, "--json", "--no-controls").json["totals"][:3]}
    for engine, implementation, options in (
        ("exact", "concat", ()),
        ("static", "static", ("-o", "capacity=64")),
        ("paged", "paged", ("-o", "block-size=16")),
    ):
        said = cli("estimate", *SMALL, "--engine", engine, *options, "--json").json["total_bytes"]
        assert totals[implementation]["measured_bytes"] == said


def test_the_table_says_where_with_what_and_how_it_ended(cli: Cli) -> None:
    ran = cli("verify", *SMALL, "--cache", "static", "-o", "capacity=40")
    assert ran.code == 0
    for words in ("torch 2", "cpu", "K bfloat16", "reference in float64", "seed 0", "passed:", "gamma(m)", "caught"):
        assert words in ran.out
    assert "2 of 2 layers" in ran.out
    assert ran.err == ""


def test_no_model_means_the_small_one(cli: Cli) -> None:
    ran = cli("verify", "--layers", "1", "--tokens", "8", "--cache", "concat", "--json")
    assert ran.json["model"]["name"] == "llama-8b"
    assert (ran.json["request"]["layers"], ran.json["request"]["layers_in_model"]) == (1, 32)


def test_a_difference_is_a_no(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcalc.verify.runs.storage_bytes", lambda tensors: 1)
    ran = cli("verify", *SMALL, "--no-controls", "--cache", "concat")
    assert ran.code == 1
    assert "failed: full_attention concat" in ran.out
    assert cli("verify", *SMALL, "--no-controls", "--cache", "concat", "--json").json["passed"] is False


def test_an_error_that_is_no_number_is_null_in_json(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcalc.verify.runs.merged", lambda measures: (Measure("outputs", float("inf"), 0.0, 1),))
    ran = cli("verify", *SMALL, "--no-controls", "--cache", "concat", "--json")
    assert ran.code == 1
    assert ran.json["checks"][0]["error"] is None


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--cache", "rolling"), 2, "is no implementation"),
        (("--prompt", "25"), 2, "is longer than 24 tokens"),
        (("--chunk", "0"), 2, "out of range"),
        (("--device", "abacus"), 5, "no device called"),
        (("--dtype", "nvfp4"), 4, "can't make a cache of nvfp4"),
        (("-o", "capacity=3"), 4, "can't hold"),
        (("-o", "page=3"), 2, "no option 'page=3'"),
        (("--plot", "x.png"), 2, "add --time"),
        (("--against", "abacus"), 2, "no library that verify knows"),
    ],
)
def test_refusals(cli: Cli, argv: tuple[str, ...], code: int, words: str) -> None:
    ran = cli("verify", *SMALL[:-4], "--tokens", "24", *argv)
    assert ran.code == code
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_cuda_that_is_missing_says_so_and_names_the_cpu(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ran = cli("verify", *SMALL, "--device", "cuda")
    assert ran.code == 5
    assert "--device cpu" in ran.err


def test_without_torch_the_install_command_is_named(cli: Cli) -> None:
    hidden: dict[str, Any] = {name: None for name in sys.modules if name == "torch" or name.startswith("torch.")}
    kept = {name: module for name, module in sys.modules.items() if not name.startswith(("kvcalc.verify.", "torch"))}
    kept["kvcalc.verify.results"] = sys.modules["kvcalc.verify.results"]
    with patch.dict(sys.modules, {**kept, **hidden, "torch": None}, clear=True):
        ran = cli("verify", *SMALL)
    assert ran.code == 5
    assert "pip install 'kvcalc[verify]'" in ran.err


def test_timing_is_a_table_and_a_picture(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    picture = tmp_path / "steps.svg"
    ran = cli("verify", *SMALL, "--time", "--plot", picture, "--cache", "concat")
    assert ran.code == 0
    assert "a plain copy moves" in ran.out
    assert picture.read_text().lstrip().startswith("<?xml")
    again = cli("verify", *SMALL, "--time", "--plot", picture, "--cache", "concat")
    assert again.code == 2
    steps = cli("verify", *SMALL, "--time", "--cache", "concat", "--json").json["time"]["steps"]
    assert {step["implementation"] for step in steps} == {"concat", "static", "paged"}
    assert max(step["tokens"] for step in steps) == 24
    assert all(step["read_bytes"] == step["tokens"] * 2 * (16 + 16) * 2 for step in steps)


def test_timing_checks_one_layer_unless_told(cli: Cli) -> None:
    words = ("verify", "gpt2", "--time", "--cache", "concat", "--tokens", "4", "--no-controls", "--json")
    assert [check["layers"] for check in cli(*words).json["checks"]] == [1]
    assert [check["layers"] for check in cli(*words, "--layers", "2").json["checks"]] == [2]


def test_a_model_without_keys_has_nothing_to_time(cli: Cli) -> None:
    ran = cli("verify", "mamba-130m", "--layers", "1", "--time", "--cache", "concat", "--tokens", "4")
    assert ran.code == 4
    assert "--time needs" in ran.err


def fake_library(monkeypatch: pytest.MonkeyPatch, compare: Callable[[Model, Request, Settings], AgainstReport]) -> None:
    module = type(sys)("kvcalc.verify.against.toy")
    module.compare = compare  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(against.LIBRARIES, "toy", (module.__name__, "paged", "toy_library", "pip install toy"))


def test_a_library_is_held_against_its_engine(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []

    def compare(model: Model, request: Request, settings: Settings) -> AgainstReport:
        asked.append(request)
        rows = tuple(AgainstRow(layer, "full attention", 10, 10 if layer else 12) for layer in range(3))
        return AgainstReport("toy", "1.0", "paged", rows, 30, 30, ("a note",))

    fake_library(monkeypatch, compare)
    ran = cli("verify", *SMALL, "--against", "toy", "-o", "block-size=8")
    assert ran.code == 1  # the total is equal, a layer isn't
    assert "1-2" in ran.out
    assert "toy differs" in ran.out
    found = cli("verify", *SMALL, "--against", "toy", "--json").json["against"][0]
    assert (found["measured_bytes"], found["passed"], len(found["layers"])) == (30, False, 3)


def test_a_library_that_is_not_installed_names_the_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(model: Model, request: Request, settings: Settings) -> AgainstReport:
        raise ModuleNotFoundError("no toy", name="toy_library.inner")

    fake_library(monkeypatch, compare)
    ran = cli("verify", *SMALL, "--against", "toy")
    assert ran.code == 5
    assert "pip install toy" in ran.err


def test_ctrl_c_leaves_with_a_clear_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvcalc.verify.run.prove", interrupt)
    ran = cli("verify", *SMALL)
    assert ran.code == 130
    assert ran.err.strip() == "interrupted"
