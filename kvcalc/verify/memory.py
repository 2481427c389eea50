"""What a run needs on its device, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.errors import DeviceError
from kvcalc.units import format_bytes
from kvcalc.verify.inputs import KEPT_BYTES
from kvcalc.verify.layouts import Layout
from kvcalc.verify.plan import PROBE_BYTES

WORK_BYTES = 256 * 2**20  # torch's own, the reference's blocks, weights of latent and recurrent layers
WIDEST = 3  # one layer's rows once more while it grows or is gathered, and a latent's in float32


def needed_bytes(model: Model, request: Request, layouts: Sequence[Layout]) -> int:
    """The largest implementation's cache, its widest layer on the way, queries, references and kept inputs."""
    most = 0
    for layout in layouts:
        tally = find_engine(layout.engine).allocate(model, replace(request, options=layout.options()))
        widest = max((run.bytes_per_layer for run in tally.layers), default=0)
        most = max(most, tally.total_bytes + WIDEST * widest)
    return most + PROBE_BYTES + KEPT_BYTES + WORK_BYTES


def check_memory(needed: Callable[[int], int], tokens: int, free: int | None, device: str) -> None:
    """Raise DeviceError, with the largest ``--tokens`` that would fit, when the run needs more than is free."""
    if free is None or needed(tokens) <= free:
        return
    largest = _largest(needed, tokens, free)
    fix = f"the largest that fits is --tokens {largest:,}".replace(",", "") if largest else "fewer --layers, or a smaller --batch"
    raise DeviceError(
        f"{tokens:,} tokens need {format_bytes(needed(tokens))} on {device}, of which {format_bytes(max(free, 0))} are free",
        fix=f"{fix}; --layers 1 runs one layer of each kind",
    )


def _largest(needed: Callable[[int], int], tokens: int, free: int) -> int:
    low, high = 0, tokens
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) <= free else (low, middle)
    return low


def most_layers(needed: Callable[[int], int], deepest: int, free: int | None) -> int | None:
    """How many layers of each kind fit, or None where all do."""
    if free is None or needed(deepest) <= free:
        return None
    low, high = 1, deepest
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) <= free else (low, middle)
    return low
