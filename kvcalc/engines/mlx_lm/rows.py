"""How many rows MLX-LM's buffers have after prompts and the tokens that followed.

Rules: mlx_lm ``models/cache.py``, ``generate.py``. The prompt runs in chunks of 2,048 and its last position alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcalc.units import ceil_div, round_up

STEP = 256


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a sequence's positions arrive: prompts, each in chunks, then one by one."""

    prompts: tuple[int, ...]
    prefill_step: int
    decoded: int

    def steps(self) -> list[tuple[int, int]]:
        """(positions of a forward pass, how many such passes): each prompt's chunks, and its last position alone."""
        found = []
        for prompt in self.prompts:
            whole, rest = divmod(prompt - 1, self.prefill_step)
            found += [(self.prefill_step, whole), (rest, 1), (1, 1)]
        return [(new, count) for new, count in found if new and count]


@dataclass(frozen=True, slots=True)
class Rows:
    """Buffer rows in the end, and the most that there were on the way."""

    held: int
    peak: int


def growing_rows(plan: Arrival) -> Rows:
    """KVCache: ``ceil(new / 256) · 256`` further rows whenever the new ones don't fit."""
    size = offset = 0
    for new, count in plan.steps():
        periods = max(count - STEP, 0) // STEP  # after 256 equal passes the end stands alike against the steps again
        for _ in range(count - periods * STEP):
            if offset + new > size:
                size = (offset if offset % STEP else size) + round_up(new, STEP)
            offset += new
        size, offset = size + periods * STEP * new, offset + periods * STEP * new
    size += STEP * max(0, ceil_div(offset + plan.decoded - size, STEP))
    return Rows(size, size)


def rotating_rows(plan: Arrival, window: int) -> Rows:
    """RotatingKVCache: chunks are appended to at most ``window`` − 1 rows, single positions grow it up to ``window``."""
    size = offset = peak = 0
    for new, count in plan.steps():
        if new > 1:
            kept = min(size, offset) if count == 1 else offset + (count - 1) * new  # nothing is spare after a chunk
            size = min(kept, window - 1) + new
        else:
            size = _in_place(size, offset + count, window)
        offset += count * new
        peak = max(peak, size)
    size = _in_place(size, offset + plan.decoded, window) if plan.decoded else size
    return Rows(size, max(peak, size))


def _in_place(size: int, tokens: int, window: int) -> int:
    """Rows once positions have come one by one up to ``tokens``: steps of 256 as they are needed, none beyond the window."""
    return min(window, size + STEP * max(0, ceil_div(tokens - size, STEP)))


def chunked_rows(plan: Arrival, chunk: int) -> Rows:
    """ChunkedKVCache: cut to ``chunk`` rows before each step, one step of 256 beyond it while tokens come one by one."""
    total = sum(plan.prompts) + plan.decoded
    if total <= chunk:
        return growing_rows(plan)
    longest = max((new for new, _ in plan.steps()), default=1)
    return Rows(chunk + STEP, max(chunk + STEP, min(total, chunk + round_up(longest, STEP))))
