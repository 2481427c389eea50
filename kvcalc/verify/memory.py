"""What a run needs on its device, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvcalc.core.layers import LatentAttention, Layer, Recurrent
from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.errors import DeviceError
from kvcalc.units import format_bytes
from kvcalc.verify.inputs import KEPT_BYTES
from kvcalc.verify.layouts import Layout
from kvcalc.verify.parts.recurrent import MOST_STEPS
from kvcalc.verify.plan import PROBE_BYTES, probe_bytes

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


def work_bytes(layers: Sequence[Layer], sequences: int) -> int:
    """What layers take beside their caches: queries beyond their share, a latent's weights, a state's inputs and reference."""
    probes = max(2 * sequences * sum(probe_bytes(layer) for layer in layers) - PROBE_BYTES, 0)
    kinds = {part for layer in layers for part in layer}
    return probes + sum(_part_work(part) for part in kinds)


def _part_work(part: object) -> int:
    """float32 and float64 copies of a latent's weights; of a recurrent part a few arrays of float64."""
    if isinstance(part, LatentAttention):
        return (4 + 8) * part.num_heads * (part.nope_dim + part.v_head_dim) * part.kv_lora_rank
    if isinstance(part, Recurrent):
        channels = sum(conv.channels for conv in part.convs)
        heads = max((state.shape[0] for state in part.states if len(state.shape) == 3), default=0)
        return 4 * 8 * (MOST_STEPS * channels + heads * MOST_STEPS**2 + sum(state.elements for state in part.states))
    return 0


def check_memory(needed: Callable[[int], int], tokens: int, free: int | None, device: str) -> None:
    """Raise DeviceError, with the largest ``--tokens`` that would fit, when the run needs more than is free."""
    if free is None or needed(tokens) <= free:
        return
    largest = _largest(needed, tokens, free)
    fix = f"the largest that fits is --tokens {largest:,}".replace(",", "") if largest else "a smaller --batch or -o capacity"
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
