"""The same proof on a CUDA device, with the allocator's own figures."""

from __future__ import annotations

import pytest
import torch

from kvcalc.core.model import Request
from kvcalc.verify.results import Settings
from kvcalc.verify.run import verify
from kvcalc.verify.timing import copy_speed, time_decode
from verify.verify_helpers import LAYERS, explain, model_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_kind(name: str, dtype: str) -> None:
    report = verify(model_of(LAYERS[name], dtype=dtype), Request(tokens=40), Settings(device="cuda"))
    assert report.passed, explain(report)
    assert report.reference_dtype == "float64"


def test_the_allocators_figures_are_shown() -> None:
    report = verify(model_of(LAYERS["full"]), Request(tokens=300), Settings(device="cuda", cache=("static",)))
    weighing = report.weighings[0]
    assert weighing.allocator_before is not None
    assert weighing.allocator_after is not None
    assert weighing.allocator_after - weighing.allocator_before >= weighing.measured_bytes


def test_equal_seeds_give_equal_runs() -> None:
    settings = Settings(device="cuda", cache=("paged",), seed=3)
    first, second = (verify(model_of(LAYERS["full"]), Request(tokens=40), settings) for _ in range(2))
    assert first.checks == second.checks


def test_a_step_is_timed() -> None:
    times = time_decode([LAYERS["full"]], torch.device("cuda"), "bfloat16", 512, 16, 0)
    assert len(times.timings) == 15
    assert copy_speed(torch.device("cuda")) > 0
