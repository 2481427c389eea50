"""Ranks with their own heads: joined they are full attention, and each holds what is predicted for one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from kvcalc.core.layers import FullAttention, LatentAttention, Layer, SlidingAttention
from kvcalc.core.model import Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.errors import DtypeError, UsageError
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.parts.base import Tracker
from kvcalc.verify.plan import choose_layers
from kvcalc.verify.results import Settings
from kvcalc.verify.run import make_plan
from kvcalc.verify.runs import storage_bytes
from kvcalc.verify.tensor_parallel import RankPart, Share, _context, _proofs, share_of, verify_ranks
from verify.verify_helpers import model_of

SPLIT: dict[str, Layer] = {
    "heads split": (FullAttention(4, 16, 24, 8),),
    "a head on several ranks": (FullAttention(2, 16, 16, 8),),
    "one head on all": (FullAttention(1, 16, 16, 8),),
    "sliding": (SlidingAttention(4, 16, 16, 7, 8),),
    "latent": (LatentAttention(24, 8, 8, 16, 12),),
    "latent, window": (LatentAttention(24, 8, 4, 16, 12, window=9),),
}
RANKS = 4


def joined(layer: Layer, shares: list[Share] | None = None) -> tuple[Tracker, list[int], int]:
    """All ranks one after the other, in this process: the joined outputs, bytes of each, and the prediction."""
    model = model_of(layer)
    plan = make_plan(model, Request(tokens=30, batch_size=2), Settings(device="cpu", cache=("concat",), layers=1))
    context = _context(plan, Inputs(0, torch.device("cpu")))
    ((_, proof),) = tuple(_proofs(context, choose_layers(plan.model.layers, 1)[0]))
    proof.prepare()
    parts = []
    for rank in range(RANKS):
        share = shares[rank] if shares else share_of(proof.part, proof.heads, rank, RANKS)
        parts.append(RankPart(plan, proof, share))
        for sequence, start, stop in plan.steps:
            parts[-1].step(sequence, start, stop)
    tracker = Tracker("joined")
    for sequence in context.sequences:
        probe = proof.probes[proof.layer, sequence]
        tracker.add(torch.cat([part.outputs(sequence) for part in parts]), probe.expected, probe.tolerance)
    predicted = find_engine("exact").allocate(model, Request(tokens=30, batch_size=2, tp_size=RANKS)).total_bytes
    return tracker, [storage_bytes(part.tensors()) for part in parts], predicted


@pytest.mark.parametrize("layer", SPLIT.values(), ids=SPLIT)
def test_joined_heads_are_full_attention(layer: Layer) -> None:
    """Every rank's outputs, one after the other, within the tolerance; its bytes as predicted for one rank."""
    tracker, held, predicted = joined(layer)
    assert tracker.measure().passed
    assert tracker.outputs == 60
    assert held == [predicted] * RANKS


def test_the_wrong_head_is_noticed() -> None:
    """Two ranks with each other's key heads: the outputs differ by more than the tolerance."""
    layer = SPLIT["heads split"]
    shares = [share_of(layer[0], 8, rank, RANKS) for rank in range(RANKS)]  # type: ignore[arg-type]
    swapped = [Share(shares[0].queries, shares[1].keys), Share(shares[1].queries, shares[0].keys), *shares[2:]]
    assert not joined(layer, swapped)[0].measure().passed


def test_shares() -> None:
    """8 query heads on 4 ranks: two each; 2 key heads: each on two ranks."""
    part = FullAttention(2, 16, 16, 8)
    found = [share_of(part, 8, rank, 4) for rank in range(4)]
    assert [(share.queries.start, share.queries.stop) for share in found] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert [(share.keys.start, share.keys.stop) for share in found] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    for heads, ranks in ((8, 3), (9, 3)):
        with pytest.raises(UsageError, match="can't be split"):
            share_of(FullAttention(2, 16, 16, heads), heads, 0, ranks)


def test_processes_that_meet() -> None:
    """The real thing: two processes under gloo, full, sliding and latent layers."""
    layers = (SPLIT["heads split"], SPLIT["sliding"], SPLIT["latent"], SPLIT["one head on all"])
    report = verify_ranks(model_of(*layers), Request(tokens=24), Settings(device="cpu"), 2)
    assert report.passed
    assert [check.kind for check in report.tensor_parallel] == ["full_attention", "sliding_attention", "mla", "full_attention"]
    assert all(check.measured_bytes == check.predicted_bytes > 0 for check in report.tensor_parallel)
    assert all("gloo" in check.note and "alike" in check.note for check in report.tensor_parallel)


@pytest.mark.parametrize(("ranks", "said"), [(1, "out of range"), (17, "out of range"), (3, "can't be split")])
def test_ranks_that_cannot_be_run(ranks: int, said: str) -> None:
    """One clear error before any process is started."""
    with pytest.raises(UsageError, match=said):
        verify_ranks(model_of(SPLIT["heads split"]), Request(tokens=24), Settings(device="cpu"), ranks)


def test_types_that_lose_digits_are_not_run() -> None:
    """Blocks of several heads can't be split by heads."""
    request = Request(tokens=24, k_dtype=find_dtype("q8_0"), v_dtype=find_dtype("q8_0"))
    with pytest.raises(DtypeError, match="ranks are run with"):
        verify_ranks(model_of(SPLIT["heads split"]), request, Settings(device="cpu"), 2)


@pytest.mark.skipif(sys.platform != "linux", reason="reads its children from /proc")
def test_an_interrupt_ends_the_ranks_too() -> None:
    """In silence, whoever of them gets the signal: here the first process alone."""
    argv = [sys.executable, "-m", "kvcalc", "verify", "gemma-3-4b", "--tp", "2", "--tokens", "4k"]  # long enough to be met
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        while running.poll() is None and len(children.read_text().split()) < 3:  # two ranks, and their tracker
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert (running.returncode, told.strip()) == (130, "interrupted")
