"""Checks that can fail: every way of breaking a cache is caught, for every kind, and a check would report it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kvcalc.core.counting import Reach
from kvcalc.core.layers import Shared
from kvcalc.verify.breaking import BrokenCache, BrokenLayout, dropped_row, stale_row
from kvcalc.verify.caches.base import RowShape
from kvcalc.verify.caches.concat import ConcatCache
from kvcalc.verify.layouts import ConcatLayout
from kvcalc.verify.parts.base import Tracker
from kvcalc.verify.parts.recurrent import OpenRecurrent
from verify.verify_helpers import LAYERS, RECURRENT, run

CPU = torch.device("cpu")
ROWS = {"stale row", "last block", "dropped position"}
MASKS = {"mask one too long", "mask one too short"}
CACHES = {*ROWS, "scale off by 0.1 %", "chunk without mask", "block table swapped"}
LIFE = {"entries stay", "double free", "overrun"}
EXPECTED: dict[str, set[str]] = {
    "full": {*CACHES, *LIFE, "heads interleaved", "no copy on write"},
    "sliding": {*CACHES, *LIFE, *MASKS, "heads interleaved"},
    "chunked": {*CACHES, *MASKS, "heads interleaved"},
    "mla": {*CACHES, *LIFE, "rope part", "latent part", "no copy on write"},
    "compressed, overlap and indexer": {*ROWS, *MASKS, "scale off by 0.1 %", "compressor"},
    "mamba2": {"state not updated", "convolution not moved"},
    "short_conv": {"convolution not moved"},
    "lightning": {"state not updated"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_broken_and_that_it_is_caught(name: str) -> None:
    report = run(LAYERS[name], cache=("concat", "static", "paged"))
    assert {control.name for control in report.controls} == EXPECTED[name]
    assert all(control.sound and control.caught for control in report.controls)
    assert all(control.found_by for control in report.controls)
    assert all(control.error > 2 * control.tolerance for control in report.controls)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_sequence_is_broken(name: str) -> None:
    said = " ".join(control.what for control in run(LAYERS[name]).controls)
    assert all(f"sequence {number}" in said for number in range(3))


def test_every_array_is_broken() -> None:
    said = " ".join(control.what for control in run(LAYERS["compressed, overlap and indexer"]).controls)
    assert all(f"{array} of sequence" in said for array in ("window rows", "compressed rows", "index rows"))
    said = " ".join(control.what for control in run(LAYERS["full"]).controls)
    assert all(f"{array} of sequence" in said for array in ("keys", "values"))


def test_a_layer_that_reads_anothers_cache_sees_its_wrong_row() -> None:
    controls = run(LAYERS["full"], (Shared(),)).controls
    assert [control.caught for control in controls if control.kind == "shared"] == [True]


def test_the_indexer_and_the_encoders_rows_are_broken_too() -> None:
    for name, kind in (("full and indexer", "indexer"), ("full and cross", "cross_attention")):
        controls = [control for control in run(LAYERS[name]).controls if control.kind == kind]
        assert {control.name for control in controls} >= ROWS


NOTHING: dict[str, tuple[str, Any]] = {
    "rows": ("kvcalc.verify.controls.stale_row", lambda rows, index: rows),
    "scale": ("kvcalc.verify.controls.SCALE_OFF", 1.0),
    "mask": ("kvcalc.verify.controls._other", lambda sight, more: sight),
    "table": ("kvcalc.verify.life_controls.FAULTS", (("nothing", "nothing is broken", lambda table: None),)),
    "block scale": ("kvcalc.verify.controls.without_scale", lambda dtype: lambda rows, index: rows),
}


@pytest.mark.parametrize("what", NOTHING)
def test_a_control_that_changes_nothing_fails_the_run(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [LAYERS["full"], LAYERS["sliding"]]
    assert run(*layers).passed
    monkeypatch.setattr(*NOTHING[what])
    report = run(*layers)
    assert not report.passed
    assert any(control.sound and not control.caught for control in report.controls)


def test_a_cache_that_fails_unbroken_makes_no_control_count_as_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ConcatCache.append

    def loses(self: ConcatCache, sequence: int, rows: torch.Tensor) -> None:
        original(self, sequence, rows * 0 if sequence else rows)

    monkeypatch.setattr(ConcatCache, "append", loses)
    report = run(LAYERS["full"], cache=("concat",), request={"tokens": 40})
    assert report.checks[0].passed  # one sequence alone: the run itself can't see it
    assert not any(control.caught for control in report.controls if control.implementation == "concat")
    assert not report.passed


def test_controls_can_be_left_out() -> None:
    assert run(LAYERS["full"], controls=False).controls == ()


@pytest.mark.parametrize("name", RECURRENT)
def test_a_broken_state_makes_the_run_itself_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part = RECURRENT[name]
    original = OpenRecurrent.__init__

    def broken(self: OpenRecurrent, proof: object) -> None:
        original(self, proof)  # type: ignore[arg-type]
        self.skip_state = (0, 20) if part.states else (-1, -1)
        self.skip_conv = (-1, -1) if part.states else (0, 20)

    monkeypatch.setattr(OpenRecurrent, "__init__", broken)
    report = run((part,), cache=("concat",), controls=False)
    assert not report.passed
    assert report.checks[0].measured_bytes == report.checks[0].predicted_bytes


@pytest.mark.parametrize("name", ["full", "sliding", "mla", "full and cross", "full and indexer", "compressed"])
def test_a_broken_row_makes_the_run_itself_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = ConcatLayout.cache

    def broken(self: ConcatLayout, shape: RowShape, reach: Reach) -> BrokenCache:
        return BrokenCache(original(self, shape, reach), 0, 4 if reach.ratio > 1 else 38 if reach.fixed is None else 3, stale_row)

    monkeypatch.setattr(ConcatLayout, "cache", broken)
    report = run(LAYERS[name], cache=("concat",), controls=False)
    assert not report.checks[0].passed


def test_a_row_is_broken_once_and_where_it_should_be() -> None:
    rows = torch.arange(6.0).view(1, 6, 1)
    layout = BrokenLayout(ConcatLayout((6,), CPU), dropped_row, 0, lambda reach: 4, 0)
    first, second = (layout.cache(RowShape(1, 1, torch.float32), Reach(fixed=5)) for _ in range(2))
    first.append(0, rows[:, :5])
    assert first.read(0).rows.flatten().tolist()[:4] == [0.0, 1.0, 2.0, 3.0]
    second.append(0, rows[:, :5])
    assert second.read(0).rows.flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    cache = BrokenCache(ConcatCache(RowShape(1, 1, torch.float32), 1, CPU), 0, 3, stale_row)
    for start in (0, 3):
        cache.append(0, rows[:, start : start + 3])
    assert cache.read(0).rows.flatten().tolist() == [0.0, 1.0, 2.0, 0.0, 4.0, 5.0]


def test_a_tracker_keeps_the_worst_and_takes_no_nan_for_an_answer() -> None:
    tracker = Tracker("x")
    tracker.add(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.1]], dtype=torch.float64), 0.2)
    tracker.add(torch.tensor([[1.0]]), torch.tensor([[1.05]]), torch.tensor([[0.06]]))
    assert tracker.measure().error == pytest.approx(0.05, abs=1e-6)
    tracker.add(torch.tensor([[float("nan")]]), torch.tensor([[1.0]]), 0.2)
    assert not tracker.measure().passed
    missing = Tracker("x")
    missing.add(torch.zeros(1, 2), torch.zeros(1, 3), 1.0)
    assert not missing.measure().passed
