"""Planning and reporting: which layers, positions and steps are run, and what is refused before anything is allocated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.layers import Conv, FullAttention, LatentAttention, Layer, NoCache, Recurrent, Shared, SlidingAttention, State
from kvcalc.core.model import Request
from kvcalc.errors import DeviceError, DtypeError, UsageError
from kvcalc.verify import run as run_module
from kvcalc.verify.codecs import QUANTIZED
from kvcalc.verify.device import pick_device
from kvcalc.verify.memory import check_memory, most_layers
from kvcalc.verify.plan import (
    PREFILL_TOKENS,
    check_positions,
    choose_layers,
    default_prompt,
    default_tokens,
    source_of,
    steps_of,
)
from kvcalc.verify.results import Check, Control, Measure, Settings, Weighing
from kvcalc.verify.run import CACHES, make_plan, verify, work_units
from verify.verify_helpers import LAYERS, explain, model_of, run

FULL = (FullAttention(2, 16, 16, 4),)
SLIDING = (SlidingAttention(2, 16, 16, 8, 4),)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=4), st.integers(1, 5000), st.lists(st.integers(1, 50), min_size=1))
def test_steps_cover_every_position_once_and_in_order(lengths: list[int], prompt: int, chunks: list[int]) -> None:
    fed = [0] * len(lengths)
    for sequence, start, stop in steps_of(lengths, [prompt] * len(lengths), chunks):
        assert start == fed[sequence] < stop <= lengths[sequence]
        assert stop - start <= max(PREFILL_TOKENS if start < prompt else 0, *chunks)
        fed[sequence] = stop
    assert fed == lengths


@given(st.integers(1, 10_000), st.lists(st.integers(1, 9000), max_size=4), st.integers(2, 300), st.integers(0, 5))
def test_checked_positions_have_the_first_and_the_last_and_are_few(length: int, edges: list[int], most: int, seed: int) -> None:
    found = check_positions(length, edges, most, seed)
    assert found == tuple(sorted(set(found)))
    assert {0, length - 1} <= set(found) <= set(range(length))
    assert len(found) <= max(most, 2)
    assert found == check_positions(length, edges, most, seed)


def test_positions_around_edges_are_checked() -> None:
    assert {511, 512, 513, 1023, 1024, 1025} <= set(check_positions(5000, (512, 1024), 128, 0))


def test_defaults_pass_every_short_window() -> None:
    assert default_tokens([FULL]) == 64
    assert default_tokens([(SlidingAttention(1, 8, 8, 1024),), (SlidingAttention(1, 8, 8, 32768),)]) == 1056
    assert [default_prompt(tokens) for tokens in (1, 2, 16, 17, 64)] == [1, 1, 8, 1, 48]


def test_layers_of_each_kind_and_those_that_they_read() -> None:
    layers = (FULL, SLIDING, SLIDING, FULL, (Shared(),), (NoCache(),), (Shared(source=1),))
    assert [chosen.index for chosen in choose_layers(layers, None)] == list(range(7))
    assert [chosen.index for chosen in choose_layers(layers, 1)] == [0, 1, 3, 4, 5]
    assert source_of(layers, 4) == 3
    assert source_of(layers, 6) == 1
    assert source_of(((Shared(),),), 0) is None


def test_how_many_layers_were_run_is_said() -> None:
    report = run(FULL, FULL, FULL, layers=2, cache=("concat",), controls=False)
    assert (report.checks[0].layers, report.checks[0].layers_in_model) == (2, 3)
    assert report.weighings[0].measured_bytes == 2 * 40 * 2 * 32 * 2


def test_equal_seeds_give_equal_runs() -> None:
    first, second, other = (run(FULL, cache=("concat",), seed=seed) for seed in (5, 5, 6))
    assert first.checks == second.checks
    assert first.controls == second.controls
    assert first.checks != other.checks


def test_every_quantised_type_is_run_as_keys_and_as_values() -> None:
    report = run(FULL, cache=("quantized",), request={"k_dtype": "bf16"})
    assert report.passed, explain(report)
    assert {check.k_dtype for check in report.checks} == {check.v_dtype for check in report.checks} == set(QUANTIZED)
    kinds = [measure.what for measure in report.checks[0].measures]
    assert len(kinds) == 3
    assert "scale lost" in {control.name for control in report.controls}


@pytest.mark.parametrize(("k", "v"), [("q8_0", "q4_0"), ("int4", "fp8"), ("float32", "int8"), ("q5_1", "q5_1")])
def test_a_quantised_type_that_is_asked_for_is_run_in_every_layout(k: str, v: str) -> None:
    report = run(
        *[LAYERS[name] for name in ("full", "mamba2")], (SlidingAttention(2, 32, 32, 9, 4),), request={"k_dtype": k, "v_dtype": v}
    )
    assert report.passed, explain(report)
    names = [weighing.implementation for weighing in report.weighings]
    assert names == ["concat", "static", "paged", "paged, forked", "paged, reused"]


def test_rows_that_are_no_whole_blocks_are_left_out_of_the_quantised_runs() -> None:
    report = run((FullAttention(1, 16, 16, 4),), cache=("quantized",))
    assert {check.k_dtype for check in report.checks} == {"fp8_e4m3", "fp8_e5m2", "int8"}


def test_part_names_choose_layers() -> None:
    assert {check.kind for check in run(FULL, SLIDING, cache=("sliding",)).checks} == {"sliding_attention"}
    with pytest.raises(UsageError, match="no such layers"):
        run(FULL, cache=("latent",))
    with pytest.raises(UsageError, match="is no implementation"):
        run(FULL, cache=("rolling",))
    assert set(CACHES) >= {"concat", "static", "paged", "sliding", "latent", "quantized", "recurrent", "shared", "cross"}


def test_a_window_that_is_not_reached_is_said() -> None:
    report = run((SlidingAttention(1, 8, 8, 4096, 1),), tokens=20, cache=("concat",))
    assert "4128" in report.notes[0]


def test_an_impossible_prompt_is_refused() -> None:
    with pytest.raises(UsageError, match="--prompt 50 is longer than 40 tokens"):
        run(FULL, prompt=50)


def test_a_type_that_no_codec_makes_is_refused_with_the_list() -> None:
    with pytest.raises(DtypeError) as refused:
        run(FULL, request={"k_dtype": "mxfp4"})
    assert "float32" in refused.value.fix


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:1", ""])
def test_unknown_devices_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match="no device called"):
        pick_device(name)


def test_cuda_that_is_missing_names_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError) as refused:
        pick_device("cuda")
    assert "--device cpu" in refused.value.fix


def test_what_does_not_fit_is_refused_with_the_largest_length_that_does() -> None:
    with pytest.raises(DeviceError) as refused:
        check_memory(lambda tokens: 1000 * tokens, 500, 123_456, "cpu")
    assert "--tokens 123" in refused.value.fix
    check_memory(lambda tokens: 1000 * tokens, 500, None, "cpu")
    check_memory(lambda tokens: 1000 * tokens, 500, 500_000, "cpu")


def test_a_run_is_refused_before_it_allocates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "free_memory", lambda device: 2**30)
    with pytest.raises(DeviceError, match="are free"):
        run((FullAttention(8, 128, 128, 32),), tokens=2**20, layers=1)
    plan = make_plan(model_of(*[FULL] * 4), Request(tokens=2**18), Settings(device="cpu"))
    assert len(plan.chosen) == 4


@pytest.mark.parametrize("request_", [{"tokens": 2**40}, {"batch_size": 2**40}, {"lengths": (1,) * 2000}])
def test_what_no_run_could_step_through_is_refused_at_once(request_: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="can't run"):
        make_plan(model_of(LAYERS["mamba"]), Request(**request_), Settings(device="cpu"))


@pytest.mark.parametrize(
    "layer",
    [
        (FullAttention(1, 64, 64, 2**36),),
        (LatentAttention(2**16, 64, 2**16, 128, 128),),
        (Recurrent("mamba2", (Conv(2**36, 4),), (State((2**20, 2**10, 8)),)),),
    ],
)
def test_a_model_of_absurd_sizes_is_refused_before_it_allocates(layer: Layer) -> None:
    with pytest.raises(DeviceError, match="are free"):
        make_plan(model_of(layer), Request(tokens=4), Settings(device="cpu", layers=1))


def test_as_many_layers_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "free_memory", lambda device: 2**30)
    plan = make_plan(model_of(*[(FullAttention(8, 128, 128, 32),)] * 40), Request(tokens=4096), Settings(device="cpu"))
    assert 1 < len(plan.chosen) < 40
    assert f"memory allows {len(plan.chosen)} layers of each kind" in plan.notes
    assert most_layers(lambda layers: layers, 10, 10) is None
    assert most_layers(lambda layers: layers, 10, 7) == 7


def test_ticks_add_up_to_the_announced_work() -> None:
    plan = make_plan(model_of(FULL, SLIDING), Request(tokens=40), Settings(device="cpu"))
    done = []
    run_module.run_plan(plan, lambda what, units: done.append(units))
    assert sum(done) == work_units(plan)


CHECK = Check("full_attention", "", "concat", "exact", "float32", "float32", 1, 1, (Measure("outputs", 0.1, 0.2, 1),), 8, 8)


def test_nothing_passes_that_differs() -> None:
    assert CHECK.passed
    assert not replace(CHECK, measured_bytes=9).passed
    assert not replace(CHECK, measures=(Measure("outputs", 0.3, 0.2, 1),)).passed
    assert not replace(CHECK, measures=(Measure("outputs", float("nan"), 0.2, 1),)).passed
    assert not Weighing("concat", "exact", "", "", 8, 9).passed
    assert not Weighing("paged", "paged", "", "", 8, 8, 4, 5).passed
    assert not Control("x", "", "", "", 0.1, 0.2).caught
    assert Control("x", "", "", "", float("nan"), 0.2).caught
    report = verify(model_of(FULL), Request(tokens=8), Settings(device="cpu", cache=("concat",)))
    assert report.passed
    assert not replace(report, controls=(Control("x", "", "", "", 0.1, 0.2),)).passed
    assert not replace(report, checks=(replace(CHECK, measured_bytes=9),)).passed


def test_the_draft_layers_are_run_on_request() -> None:
    model = replace(model_of(FULL), draft_layers=(FULL,))
    settings = Settings(device="cpu", cache=("concat",), controls=False)
    assert verify(model, Request(tokens=8, draft=True), settings).checks[0].layers == 2
    assert verify(model, Request(tokens=8), settings).checks[0].layers == 1


def test_long_sequences_are_checked_in_part_and_prefilled_in_pieces() -> None:
    report = run(SLIDING, tokens=PREFILL_TOKENS + 300, cache=("static", "paged"), controls=False)
    assert report.passed, explain(report)
    assert report.checks[0].shown.outputs == 64
