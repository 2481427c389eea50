"""Tensor parallelism without a cluster: N processes under torch.distributed, each with its own heads' cache.

Every rank makes the same seeded numbers, stores the keys and values of its own heads (one head on several ranks where there
are fewer than ranks; a latent's rows whole), and attends with its share of the query heads. The outputs are gathered and
held against full attention over all heads; each rank's bytes against what ``estimate --tp N`` predicts for it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from kvcalc.core.counting import Reach
from kvcalc.core.layers import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    HeadedAttention,
    LatentAttention,
    Layer,
    Part,
    SlidingAttention,
    kind_of,
)
from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.errors import DeviceError, DtypeError, UsageError
from kvcalc.verify.attention import attend
from kvcalc.verify.codecs import PLAIN
from kvcalc.verify.device import describe, wide
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.parts.base import Context, Tracker
from kvcalc.verify.parts.key_value import OUTPUTS, KeyValueProof, Probe
from kvcalc.verify.parts.latent import LatentProof
from kvcalc.verify.plan import Chosen, choose_layers, kinds_of, same_kind
from kvcalc.verify.plan import describe as describe_layer
from kvcalc.verify.reference.attention import RULE as ATTENTION_RULE
from kvcalc.verify.results import Check, Measure, Settings, VerifyReport
from kvcalc.verify.run import Plan, exact_products, make_plan
from kvcalc.verify.runs import storage_bytes

MOST_RANKS = 16  # each is a process with a torch of its own
MEETING = timedelta(seconds=120)
SPLIT = (FullAttention, SlidingAttention, ChunkedAttention, CrossAttention, LatentAttention)


@dataclass(frozen=True, slots=True)
class Share:
    """Which heads one rank has."""

    queries: slice
    keys: slice


def share_of(part: HeadedAttention | LatentAttention, query_heads: int, rank: int, ranks: int) -> Share:
    """Query heads in equal runs; the key heads that those look at. Raises UsageError where they don't divide."""
    if query_heads % ranks:
        raise UsageError(
            f"{query_heads} query heads can't be split over {ranks} ranks", fix=f"take one of {_divisors(query_heads)} for --tp"
        )
    each = query_heads // ranks
    queries = slice(rank * each, (rank + 1) * each)
    if isinstance(part, LatentAttention):
        return Share(queries, slice(0, 1))
    heads = part.num_kv_heads
    if heads % ranks and ranks % heads:
        raise UsageError(
            f"{heads} key/value heads can't be split over {ranks} ranks", fix="the larger must be a multiple of the smaller"
        )
    if heads >= ranks:
        return Share(queries, slice(rank * heads // ranks, (rank + 1) * heads // ranks))
    own = rank * heads // ranks
    return Share(queries, slice(own, own + 1))


def _divisors(count: int) -> str:
    return ", ".join(str(each) for each in range(2, min(count, MOST_RANKS) + 1) if count % each == 0)


def verify_ranks(model: Model, request: Request, settings: Settings, ranks: int) -> VerifyReport:
    """Run one layer of each kind over ``ranks`` processes. Raises UsageError, DeviceError, DtypeError, EngineError."""
    began = time.monotonic()
    if not 2 <= ranks <= MOST_RANKS:
        raise UsageError(f"--tp {ranks} is out of range here", fix=f"give 2 to {MOST_RANKS}")
    plan = make_plan(model, request, replace(settings, cache=("concat",), controls=False, layers=1))
    if not {plan.types.k.name, plan.types.v.name} <= set(PLAIN):
        raise DtypeError("ranks are run with float32, bfloat16 or float16", fix="give one of those with --dtype")
    chosen, left = _chosen(plan)
    for each in chosen:
        for _, proof in _proofs(_context(plan, Inputs(settings.seed, torch.device("cpu"))), each):
            share_of(proof.part, proof.heads, 0, ranks)
    backend = _backend(plan.device, ranks)
    checks = tuple(
        _check(plan, each, found, ranks, backend) for each, found in zip(chosen, _run(plan, chosen, ranks, backend), strict=True)
    )
    return VerifyReport(
        model=model.name,
        source=model.source,
        device=describe(plan.device),
        torch_version=torch.__version__,
        compute_dtype="float32",
        reference_dtype=str(wide(plan.device)).removeprefix("torch."),
        request=_request_part(plan, len(chosen), ranks),
        steps=f"{plan.prompt:,} tokens prefilled, then decoded, on each of {ranks} ranks ({backend})",
        checks=(),
        weighings=(),
        tensor_parallel=checks,
        tolerance_rules={"attention": ATTENTION_RULE},
        notes=(*plan.notes, *left),
        seconds=time.monotonic() - began,
    )


def _request_part(plan: Plan, layers: int, ranks: int) -> dict[str, object]:
    return {
        "batch_size": len(plan.lengths),
        "tokens": max(plan.lengths),
        "lengths": list(plan.request.lengths),
        "k_dtype": plan.types.k.name,
        "v_dtype": plan.types.v.name,
        "encoder_tokens": plan.types.encoder_tokens,
        "prompt": plan.prompt,
        "layers": layers,
        "layers_in_model": len(plan.model.layers),
        "seed": plan.settings.seed,
        "tp_size": ranks,
    }


def _chosen(plan: Plan) -> tuple[tuple[Chosen, ...], tuple[str, ...]]:
    """One layer of each kind that has heads to split, and what is left out in words."""
    every = [each for each in choose_layers(plan.model.layers, 1) if each.source is None]
    split = tuple(each for each in every if any(isinstance(part, SPLIT) for part in each.layer))
    if not split:
        raise UsageError(f"no layer has heads to split: {kinds_of([each.layer for each in every])}", fix="name another model")
    others = [part.kind for each in every for part in each.layer if not isinstance(part, SPLIT)]
    left = ", ".join(dict.fromkeys(kind.replace("_", " ") for kind in others if kind not in ("no_attention", "shared")))
    return split, (f"not run over ranks: {left}",) if left else ()


def _backend(device: torch.device, ranks: int) -> str:
    if device.type == "cpu":
        return "gloo"
    if device.type == "cuda" and torch.cuda.device_count() >= ranks:
        return "nccl"
    raise DeviceError(f"{ranks} ranks need {ranks} GPUs of their own", fix="take --device cpu, where they are processes")


def _context(plan: Plan, inputs: Inputs) -> Context:
    return plan.context(inputs, plan.types, plan.chosen)


Proof = KeyValueProof | LatentProof


def _proofs(context: Context, chosen: Chosen) -> Iterable[tuple[Part, Proof]]:
    for part in chosen.layer:
        if isinstance(part, LatentAttention):
            yield part, LatentProof(context, part, chosen.index)
        elif isinstance(part, FullAttention | SlidingAttention | ChunkedAttention | CrossAttention) and part.num_kv_heads:
            proof = KeyValueProof(context, part, chosen.index)
            if proof.reach.fixed != 0:  # no encoder, or no image
                yield part, proof


Found = dict[str, list[float] | list[int]]  # error, tolerance, outputs; bytes of each rank


def _run(plan: Plan, chosen: Sequence[Chosen], ranks: int, backend: str) -> list[Found]:
    """Start the processes and read what the first of them wrote. Raises DeviceError."""
    from torch.multiprocessing.spawn import ProcessException

    with tempfile.TemporaryDirectory(prefix="kvcalc-ranks-") as folder:
        try:
            _together((ranks, backend, plan, tuple(chosen), folder), ranks)
        except ProcessException as problem:
            reason = str(problem).strip().splitlines()[-1][:200]
            raise DeviceError(f"the {ranks} ranks did not finish: {reason}", fix="try fewer, or --device cpu") from None
        found: list[Found] = json.loads((Path(folder) / "found.json").read_text())
        return found


def _together(arguments: tuple[object, ...], ranks: int) -> None:
    """All ranks to their end; whatever stops this process stops them too. Raises ProcessException."""
    from torch.multiprocessing.spawn import spawn

    with _deaf():  # a rank that starts must not answer Ctrl-C with a traceback of its own
        context = spawn(_rank, arguments, nprocs=ranks, join=False)  # type: ignore[no-untyped-call]
    try:
        while not context.join():
            pass
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()
            process.join()


@contextmanager
def _deaf() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _rank(rank: int, ranks: int, backend: str, plan: Plan, chosen: tuple[Chosen, ...], folder: str) -> None:
    """One process."""
    import torch.distributed as dist

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it at once, in silence

    if sys.platform == "linux" and Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are here: no host name needs to be found
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if backend == "nccl" else plan.device
    if backend == "nccl":
        torch.cuda.set_device(device)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=ranks, timeout=MEETING)
    try:
        with exact_products(), torch.inference_mode():
            own = replace(plan, device=device)
            context = _context(own, Inputs(own.settings.seed, device))
            found = [_layer(own, context, each, rank, ranks) for each in chosen]
        if rank == 0:
            (Path(folder) / "found.json").write_text(json.dumps(found))
    finally:
        dist.destroy_process_group()


def _layer(plan: Plan, context: Context, chosen: Chosen, rank: int, ranks: int) -> Found:
    """All parts of one layer on this rank: the joined outputs' worst error, and every rank's bytes."""
    tracker, held = Tracker(f"{OUTPUTS}, joined"), 0
    for _, proof in _proofs(context, chosen):
        proof.prepare()
        part = RankPart(plan, proof, share_of(proof.part, proof.heads, rank, ranks))
        for sequence, start, stop in plan.steps:
            part.step(sequence, start, stop)
        held += storage_bytes(part.tensors())
        for sequence in context.sequences:
            probe = proof.probes[proof.layer, sequence]
            tracker.add(_joined(part.outputs(sequence), ranks), probe.expected, probe.tolerance)
    return {
        "error": [tracker.error],
        "tolerance": [tracker.tolerance],
        "outputs": [tracker.outputs],
        "bytes": _everywhere(held, context.device, ranks),
    }


def _joined(own: Tensor, ranks: int) -> Tensor:
    """Every rank's heads, in order."""
    import torch.distributed as dist

    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own.contiguous())
    return torch.cat(parts)


def _everywhere(held: int, device: torch.device, ranks: int) -> list[int]:
    import torch.distributed as dist

    own = torch.tensor([held], dtype=torch.int64, device=device)
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    return [int(part) for part in parts]


class RankPart:
    """One rank's cache of one part, stepped; it keeps the outputs of the checked queries."""

    def __init__(self, plan: Plan, proof: Proof, share: Share) -> None:
        self.proof, self.context, self.share = proof, proof.context, share
        layout = plan.layout("concat")
        if isinstance(proof, LatentProof):
            rows = self.context.k.shape(1, proof.part.row_width)
            self.caches = [layout.cache(rows, Reach(cap=proof.part.window))]
        else:
            part, heads = proof.part, share.keys.stop - share.keys.start
            self.caches = [
                layout.cache(self.context.k.shape(heads, part.head_dim), proof.reach),
                layout.cache(self.context.v.shape(heads, part.v_head_dim), proof.reach),
            ]
        self._outputs: dict[int, list[Tensor]] = {}

    def tensors(self) -> list[Tensor]:
        """What the rank holds."""
        return [tensor for cache in self.caches for tensor in cache.tensors()]

    def outputs(self, sequence: int) -> Tensor:
        """``[own query heads, checked positions, v_width]``."""
        return torch.cat(self._outputs[sequence], dim=1)

    def step(self, sequence: int, start: int, stop: int) -> None:
        """Store this rank's rows; attend with its query heads from the checked positions among the new ones."""
        inside = self.context.within(sequence, start, stop)
        held = self._store(sequence, start, stop)
        if inside.start < inside.stop and held is not None:
            positions = self.context.positions(sequence)[inside]
            seen = self.proof.sight.mask_or_none(positions, held[1], stop - start == 1)
            probe = self.proof.probes[self.proof.layer, sequence]
            self._outputs.setdefault(sequence, []).append(self._attend(probe, inside, held[0], seen))

    def _store(self, sequence: int, start: int, stop: int) -> tuple[list[Tensor], Tensor] | None:
        """The rows that a step's queries may need, decoded, and their positions."""
        context = self.context
        if isinstance(self.proof, LatentProof):
            given = [(self.proof.rows(sequence), context.k, 1)]
        else:
            heads = self.share.keys.stop - self.share.keys.start
            given = [(self.proof.keys(sequence), context.k, heads), (self.proof.values(sequence), context.v, heads)]
        fixed = None if isinstance(self.proof, LatentProof) else self.proof.reach.fixed
        found, positions = [], None
        for cache, (rows, codec, heads) in zip(self.caches, given, strict=True):
            if fixed is None:
                held = cache.extend(sequence, codec.encode(rows.between(start, stop)[self.share.keys]))
            else:
                if start == 0:
                    cache.append(sequence, codec.encode(rows.between(0, fixed)[self.share.keys]))
                held = cache.read(sequence)
            found.append(codec.decode(held.rows, heads))
            positions = held.positions
        return None if positions is None else (found, positions)

    def _attend(self, probe: Probe, inside: slice, rows: list[Tensor], seen: Tensor | None) -> Tensor:
        queries = probe.queries[self.share.queries, inside]
        if isinstance(self.proof, LatentProof):
            latents = rows[0][:, :, : self.proof.part.kv_lora_rank]
            mixed = attend(queries, rows[0], latents, self.proof.scale, seen)
            return mixed @ self.proof.weights().out[self.share.queries].transpose(1, 2)
        return attend(queries, rows[0], rows[1], self.proof.scale, seen)


def _check(plan: Plan, chosen: Chosen, found: Found, ranks: int, backend: str) -> Check:
    """The layer's outputs, and the rank whose bytes are furthest from the prediction."""
    predicted = _predicted(plan, chosen, ranks)
    measured = max((int(size) for size in found["bytes"]), key=lambda size: abs(size - predicted))
    layer = chosen.layer
    return Check(
        kind=kind_of(layer),
        shape=describe_layer(layer),
        implementation=f"{ranks} ranks",
        engine="exact",
        k_dtype=plan.types.k.name,
        v_dtype=plan.types.v.name,
        layers=1,
        layers_in_model=plan.counts[same_kind(layer)],
        measures=(
            Measure(f"{OUTPUTS}, joined", float(found["error"][0]), float(found["tolerance"][0]), int(found["outputs"][0])),
        ),
        measured_bytes=measured,
        predicted_bytes=predicted,
        note=f"bytes of one rank; {ranks} processes under {backend}, all {ranks} alike"
        if len(set(found["bytes"])) == 1
        else "the ranks differ",
    )


def _predicted(plan: Plan, chosen: Chosen, ranks: int) -> int:
    layer: Layer = tuple(part for part in chosen.layer if isinstance(part, SPLIT))
    model = replace(plan.model, layers=(layer,))
    request = replace(plan.request, tp_size=ranks)
    return find_engine("exact").allocate(model, request).total_bytes
