"""How long a decode step takes at growing lengths, and how near its reading of K and V comes to the memory's own speed.

A step appends one token's rows and attends over all of them. The static cache writes one row, the paged one gathers its
blocks, the concatenated one copies everything it holds; all three then read the whole prefix, which is what makes a
step's time grow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvcalc.core.counting import ALL
from kvcalc.core.layers import ChunkedAttention, FullAttention, Layer, SlidingAttention
from kvcalc.errors import UnsupportedError
from kvcalc.verify.attention import fold
from kvcalc.verify.caches.base import RowCache, RowShape
from kvcalc.verify.codecs import PLAIN
from kvcalc.verify.inputs import Inputs
from kvcalc.verify.layouts import ConcatLayout, Layout, PagedLayout, StaticLayout
from kvcalc.verify.parts.key_value import query_heads
from kvcalc.verify.runs import Tick, no_tick

DEFAULT_TOKENS = 8192
POINTS = 5  # lengths, each twice the one before
STEPS = 5  # timed at each; the median counts
COPY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Timing:
    """One implementation at one length."""

    implementation: str
    tokens: int
    seconds: float  # one layer's step
    read_bytes: int  # K and V rows that the step must read

    @property
    def bytes_per_second(self) -> float:
        """K and V bytes by the step's whole time."""
        return self.read_bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class TimingReport:
    """All timings of one layer, and the device's own copying."""

    kind: str
    dtype: str
    copy_bytes_per_second: float  # read and written bytes of a plain copy
    timings: tuple[Timing, ...]


class Workspace:
    """Room for a step's scores, twice, kept from step to step: fresh pages would cost more than the softmax itself."""

    def __init__(self) -> None:
        self._rooms: list[Tensor] = []

    def pair(self, kv_heads: int, length: int, group: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """``[kv_heads, length, group]`` and ``[kv_heads, group, length]``, contiguous, their contents undefined."""
        size = kv_heads * length * group
        if not self._rooms or self._rooms[0].numel() < size:
            self._rooms = [torch.empty(size, dtype=like.dtype, device=like.device) for _ in range(2)]
        first, second = (room[:size] for room in self._rooms)
        return first.view(kv_heads, length, group), second.view(kv_heads, group, length)


def decode_attention(queries: Tensor, keys: Tensor, values: Tensor, workspace: Workspace) -> Tensor:
    """One token's attention, ``[heads, width]`` over ``[kv_heads, m, width]``, in the cache's own type.

    The query heads of a group are folded together, so that K and V are read once; asking the library to expand the
    groups reads them once a query head. The keys stand on the left of their product, which reads them in the order in
    which they lie. Half types on a CPU take the fused call: their plain products convert too much.
    """
    rows = fold(queries[:, None], keys.shape[0])
    if keys.device.type == "cpu" and keys.dtype != torch.float32:
        found = torch.nn.functional.scaled_dot_product_attention(rows[None], keys[None], values[None])
    else:
        scores, weights = workspace.pair(keys.shape[0], keys.shape[1], rows.shape[1], keys)
        torch.bmm(keys, (rows * keys.shape[2] ** -0.5).transpose(1, 2), out=scores)
        weights.copy_(scores.transpose(1, 2))
        found = torch.softmax(weights, -1, out=weights) @ values
    return found.reshape(queries.shape[0], -1)


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that a clock sees all of its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def median_seconds(work: Callable[[], object], device: torch.device, repeats: int = STEPS) -> float:
    """The median time of a few calls, after one that isn't counted."""
    work()
    found = []
    for _ in range(repeats):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        found.append(time.perf_counter() - began)
    return sorted(found)[len(found) // 2]


def copy_speed(device: torch.device, size: int = COPY_BYTES) -> float:
    """Bytes a second of a plain copy, those read and those written."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / median_seconds(lambda: target.copy_(source), device)


def timed_part(layers: Sequence[Layer]) -> FullAttention | SlidingAttention | ChunkedAttention:
    """The first part that keeps keys and values. Raises UnsupportedError where a model has none."""
    for layer in layers:
        for part in layer:
            if isinstance(part, FullAttention | SlidingAttention | ChunkedAttention) and part.num_kv_heads:
                return part
    raise UnsupportedError("no layer keeps keys and values of its own", fix="--time needs full or sliding attention")


def lengths_up_to(tokens: int) -> list[int]:
    """Up to ``POINTS`` lengths, each twice the one before, the last ``tokens``."""
    return sorted({max(tokens >> shift, 1) for shift in range(POINTS)})


def time_decode(
    layers: Sequence[Layer], device: torch.device, dtype: str, tokens: int, block_size: int, seed: int, tick: Tick = no_tick
) -> TimingReport:
    """Time one layer's step under each layout, the whole prefix in sight."""
    part = timed_part(layers)
    name = dtype if dtype in PLAIN else "float32"
    inputs, found = Inputs(seed, device), []
    with torch.inference_mode():
        for length in lengths_up_to(tokens):
            sized = (length + STEPS + 1,)
            for layout in (
                ConcatLayout(sized, device),
                StaticLayout(sized, device, sized[0]),
                PagedLayout(sized, device, block_size, seed),
            ):
                found.append(_time(part, layout, length, name, inputs))
                tick(f"time {layout.name}", 1)
        return TimingReport(part.kind, name, copy_speed(device), tuple(found))


def _time(
    part: FullAttention | SlidingAttention | ChunkedAttention, layout: Layout, length: int, dtype: str, inputs: Inputs
) -> Timing:
    kind = PLAIN[dtype]
    keys = layout.cache(RowShape(part.num_kv_heads, part.head_dim, kind), ALL)
    values = layout.cache(RowShape(part.num_kv_heads, part.v_head_dim, kind), ALL)
    for cache, width, side in ((keys, part.head_dim, "k"), (values, part.v_head_dim, "v")):
        _fill(cache, inputs, side, part.num_kv_heads, width, length, kind)
    query = inputs.uniform("time q", shape=(query_heads(part), part.head_dim)).to(kind)
    key = inputs.uniform("time k", shape=(part.num_kv_heads, 1, part.head_dim)).to(kind)
    value = inputs.uniform("time v", shape=(part.num_kv_heads, 1, part.v_head_dim)).to(kind)

    workspace = Workspace()

    def step() -> Tensor:
        return decode_attention(query, keys.extend(0, key).rows, values.extend(0, value).rows, workspace)

    seconds = median_seconds(step, inputs.device)
    return Timing(layout.name, length, seconds, length * part.num_kv_heads * (part.head_dim + part.v_head_dim) * kind.itemsize)


def _fill(cache: RowCache, inputs: Inputs, side: str, heads: int, width: int, length: int, kind: torch.dtype) -> None:
    rows = inputs.uniform("fill", side, shape=(heads, length, width)).to(kind)
    cache.append(0, rows)
