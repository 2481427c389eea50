"""One layer of each shape of all presets: equal shapes once, every preset named, nothing unchecked called ok."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvcalc.core.layers import FullAttention, NoCache, Recurrent, Shared, SlidingAttention, State
from kvcalc.core.model import Model
from kvcalc.verify.all_presets import Shape, ShapeResult, shapes_of, verify_shapes
from kvcalc.verify.results import Settings
from verify.verify_helpers import LAYERS, model_of

Cli = Callable[..., Any]
FULL = (FullAttention(2, 16, 16, 4),)


def models() -> list[Model]:
    first = model_of(FULL, (SlidingAttention(2, 16, 16, 1024, 4),), (NoCache(),))
    second = model_of(FULL, (SlidingAttention(2, 16, 16, 4096, 4),), (Shared(source=0),))
    return [replace(first, name="first"), replace(second, name="second")]


def test_equal_shapes_are_one_and_windows_are_cut() -> None:
    shapes = {shape.layer: shape.names for shape in shapes_of(models())}
    assert shapes[FULL] == ("first", "second")
    assert shapes[(SlidingAttention(2, 16, 16, 32, 4),)] == ("first", "second")
    assert shapes[(NoCache(),)] == ("first",)
    assert shapes[(Shared(),)] == ("second",)
    assert len(shapes) == 4


def test_each_shape_is_run_and_what_keeps_nothing_is_said() -> None:
    results = {result.kind: result for result in verify_shapes(shapes_of(models()), Settings(device="cpu"))}
    assert all(result.passed for result in results.values())
    assert results["no_attention"].not_run == "it keeps nothing"
    for kind in ("full_attention", "sliding_attention", "shared"):
        assert [check.implementation for check in results[kind].checks] == ["concat", "static", "paged"]
        assert all(check.outputs for check in results[kind].checks)


def test_a_shape_without_a_rule_is_not_run_and_says_why() -> None:
    unknown = (Recurrent("unheard_of", (), (State((3, 5)),)),)
    found = next(iter(verify_shapes([Shape(unknown, model_of(unknown), ("toy",))], Settings(device="cpu"))))
    assert "no update rule is known" in found.not_run
    assert not ShapeResult("x", "", ("toy",), ()).passed


def test_the_command_prints_a_row_a_shape(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcalc.cli.verify_all.shipped_models", models)
    ran = cli("verify", "--all-presets", "--device", "cpu")
    assert ran.code == 0
    assert "2 presets have layers of 4 shapes; 3 were run" in ran.out
    assert ran.out.rstrip().endswith("passed")
    found = cli("verify", "--all-presets", "--device", "cpu", "--json").json
    assert (found["passed"], found["presets"], len(found["shapes"])) == (True, 2, 4)
    assert {"kind", "shape", "presets", "passed", "not_run"} <= set(found["shapes"][0])


def test_a_shape_that_differs_is_a_no(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcalc.cli.verify_all.shipped_models", models)
    monkeypatch.setattr("kvcalc.verify.runs.storage_bytes", lambda tensors: 1)
    ran = cli("verify", "--all-presets", "--device", "cpu")
    assert ran.code == 1
    assert "FAILED" in ran.out
    assert cli("verify", "--all-presets", "--time").code == 2


@pytest.mark.parametrize("name", sorted({"t5-small", "bart-base", "flan-t5-small", "llama-3.2-11b-vision"}))
def test_cross_attention_has_rows_to_read_by_default(cli: Cli, name: str) -> None:
    found = cli("verify", name, "--layers", "1", "--cache", "concat", "--no-controls", "--tokens", "4", "--json").json
    crossing = [check for check in found["checks"] if "cross" in check["kind"]]
    assert crossing
    assert all(check["measures"][0]["outputs"] and not check["not_run"] for check in crossing)
    assert any("encoder positions" in note for note in found["notes"])


@pytest.mark.slow
def test_every_shape_of_every_preset() -> None:
    from kvcalc.cli.verify_all import shipped_models

    every = list(shipped_models())
    shapes = shapes_of(every)
    assert {name for shape in shapes for name in shape.names} == {model.name for model in every}
    results = list(verify_shapes(shapes, Settings(device="cpu")))
    assert [(result.kind, result.shape) for result in results if not result.passed] == []
    assert [result.kind for result in results if result.not_run] == ["no_attention"]


def test_the_helpers_layers_are_all_computed() -> None:
    """None of the kinds that tests run is weighed alone."""
    results = list(verify_shapes([Shape(layer, model_of(layer), (name,)) for name, layer in LAYERS.items()], Settings("cpu")))
    assert [(result.kind, result.not_run) for result in results if not result.passed or result.not_run] == []
