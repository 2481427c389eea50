"""The default run catches every fault of the library, and passes without them."""

from __future__ import annotations

import pytest

from kvcalc.core.model import Request
from kvcalc.verify.results import Settings, VerifyReport
from kvcalc.verify.run import verify
from verify.faults import FAULTS, Fault
from verify.verify_helpers import explain, model_of


def default_run(fault: Fault) -> VerifyReport:
    return verify(model_of(*fault.model), Request(), Settings(device="cpu"))


def test_the_library_is_large_and_names_no_fault_twice() -> None:
    assert len(FAULTS) >= 60
    assert len({(fault.what, fault.layers) for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("layers", sorted({fault.layers for fault in FAULTS}), ids=" ".join)
def test_without_a_fault_the_run_passes(layers: tuple[str, ...]) -> None:
    report = default_run(next(fault for fault in FAULTS if fault.layers == layers))
    assert report.passed, explain(report)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.what} ({fault.layers[0]})")
def test_a_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.broken(monkeypatch)
    report = default_run(fault)
    assert not report.passed
