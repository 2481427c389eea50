"""Every layer kind under every layout, in float32 and bfloat16: outputs equal full attention, bytes equal the prediction."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from kvcalc.core.layers import ChunkedAttention, FullAttention, LatentAttention, Layer, Recurrent, Shared, SlidingAttention, State
from kvcalc.core.model import Request
from kvcalc.engines import find_engine
from verify.verify_helpers import EVERYTHING, LAYERS, explain, model_of, run


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_kind(name: str, dtype: str) -> None:
    report = run(LAYERS[name], dtype=dtype, cache=("concat", "static", "paged"), block_size=8)
    assert report.passed, explain(report)
    assert [check.implementation for check in report.checks] == ["concat", "static", "paged"]
    assert all(measure.outputs for check in report.checks for measure in check.measures)
    assert all(check.measures for check in report.checks)


def test_all_kinds_in_one_model_add_up_to_what_the_engine_says() -> None:
    report = run(*EVERYTHING, tokens=30, cache=("concat",), controls=False)
    assert report.passed, explain(report)
    exact = find_engine("exact").allocate(model_of(*EVERYTHING), Request(tokens=30))
    assert report.weighings[0].measured_bytes == exact.total_bytes
    assert sum(check.measured_bytes for check in report.checks) == exact.total_bytes


def test_the_figures_are_the_engines_own_arithmetic() -> None:
    report = run((FullAttention(2, 16, 8, 4),), tokens=40, cache=("concat", "static", "paged"), capacity=50, block_size=16)
    row = 2 * (16 + 8) * 2
    assert [weighing.measured_bytes for weighing in report.weighings] == [40 * row, 50 * row, 48 * row + 3 * 4]
    assert report.weighings[2].shared_measured == 3 * 4


def test_unequal_sequences_share_a_pool() -> None:
    layers = [LAYERS[name] for name in ("full", "sliding", "mla", "compressed", "mamba2")]
    report = run(*layers, request={"lengths": (33, 7, 50, 1)}, cache=("concat", "static", "paged"), block_size=8)
    assert report.passed, explain(report)


@pytest.mark.parametrize("chunks", [(1,), (7,), (2, 1, 9)])
@pytest.mark.parametrize("prompt", [1, 13, 40])
def test_prompts_and_chunks_of_any_size(prompt: int, chunks: tuple[int, ...]) -> None:
    layers = [LAYERS[name] for name in ("full", "sliding", "chunked", "mla, window", "compressed, overlap and indexer", "kda")]
    report = run(*layers, prompt=prompt, chunks=chunks, cache=("concat", "static", "paged"), block_size=4, controls=False)
    assert report.passed, explain(report)


def test_a_sharing_layer_holds_nothing_and_its_queries_are_checked() -> None:
    report = run((FullAttention(2, 16, 16, 4),), (Shared(),), cache=("concat",))
    shared = next(check for check in report.checks if check.kind == "shared")
    assert (shared.measured_bytes, shared.predicted_bytes) == (0, 0)
    assert shared.shown.outputs == 40
    assert 0 < shared.shown.error <= shared.shown.tolerance


def test_a_state_whose_shape_no_rule_knows_is_weighed() -> None:
    unknown = (Recurrent("unheard_of", (), (State((3, 5)),)),)
    report = run(unknown, cache=("concat",))
    assert not report.passed  # nothing was checked
    assert report.checks[0].passed
    assert report.checks[0].measures == ()
    assert "no update rule is known here for unheard_of" in report.checks[0].not_run
    assert run(unknown, LAYERS["full"], cache=("concat",)).passed
    assert report.checks[0].measured_bytes == 3 * 5 * 4


@pytest.mark.parametrize("name", LAYERS)
def test_a_device_without_float64_has_a_reference_in_float32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcalc.verify.parts.base.wide", lambda device: torch.float32)
    report = run(LAYERS[name], cache=("concat",))
    assert report.passed, explain(report)


def test_no_image_means_an_empty_cross_cache() -> None:
    report = run(LAYERS["full and cross"], request={"encoder_tokens": 0}, cache=("concat", "paged"))
    assert report.passed, explain(report)
    assert all(check.not_run.startswith("cross attention has no encoder positions") for check in report.checks)


widths = st.sampled_from([1, 2, 7, 8, 16])


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    kv_heads = draw(st.integers(1, 3))
    group, k_width, v_width = draw(st.integers(1, 4)), draw(widths), draw(widths)
    extent = draw(st.integers(1, 40))
    kind = draw(st.sampled_from(["full", "sliding", "chunked", "latent"]))
    if kind == "full":
        return (FullAttention(kv_heads, k_width, v_width, kv_heads * group),)
    if kind == "sliding":
        return (SlidingAttention(kv_heads, k_width, v_width, extent, kv_heads * group),)
    if kind == "chunked":
        return (ChunkedAttention(kv_heads, k_width, v_width, extent, kv_heads * group),)
    return (
        LatentAttention(k_width, draw(st.sampled_from([0, 4])), group, v_width, k_width, draw(st.sampled_from([None, extent]))),
    )


@profile(max_examples=40)
@given(
    layer=layers(),
    lengths=st.lists(st.integers(1, 45), min_size=1, max_size=3),
    prompt=st.integers(1, 45),
    chunks=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    block_size=st.integers(1, 20),
    spare=st.integers(0, 30),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
)
def test_any_shape(
    layer: Layer, lengths: list[int], prompt: int, chunks: list[int], block_size: int, spare: int, seed: int, dtype: str
) -> None:
    report = run(
        layer,
        dtype=dtype,
        request={"lengths": tuple(lengths)},
        prompt=min(prompt, max(lengths)),
        chunks=tuple(chunks),
        block_size=block_size,
        capacity=max(lengths) + spare,
        cache=("concat", "static", "paged"),
        controls=False,
        seed=seed,
    )
    assert report.passed, explain(report)
