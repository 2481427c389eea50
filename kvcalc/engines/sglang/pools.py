"""How SGLang divides the memory: tokens of the full pool, tokens of the window pool, state slots, and what it refuses.

Floats stand where the engine computes with floats, so that the same token is rounded away.
Sources of 0.5.23: ``srt/model_executor/pool_configurator.py``, ``srt/mem_cache/kv_cache_configurator.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from kvcalc.core.layers import CompressedAttention, Layer
from kvcalc.engines.sglang import compressed
from kvcalc.engines.sglang.setup import Setup
from kvcalc.engines.sglang.slots import COMPRESSED, FULL, REQUEST, STATE, TAIL, WINDOW, Slot
from kvcalc.units import format_bytes, round_up
from kvcalc.values import value

EVICTION_INTERVAL = 128  # SGLANG_SWA_EVICTION_INTERVAL
ENDLESS = 2**62  # tokens of a stage without any cache, where another has one
MIN_REQUESTS, MAX_REQUESTS, REQUESTS_PER_CONTEXT = 2048, 4096, 512
GIB = 1 << 30


@value
class Run:
    """``count`` equal layers from ``first`` on, and what each keeps."""

    first: int
    count: int
    layer: Layer
    slots: tuple[Slot, ...]


@value
class Cells:
    """Bytes by which the memory of one stage is divided."""

    full: float  # a token, over all layers of the full pool
    window: float  # … of the window pool
    state: int  # a state slot
    fixed: int = 0  # taken off before the rest is divided
    workspace: int = 0  # a token, once for all layers
    draft: int = 0  # a token of the draft's layers
    num_full: int = 0  # layers that have a slot in the full pool

    @property
    def token(self) -> float:
        """One token of the full pool and of the draft's."""
        return self.full + self.workspace + self.draft


@value
class Stage:
    """One pipeline stage's share of one rank."""

    first: int
    runs: tuple[Run, ...]
    cells: Cells


@value
class Pools:
    """What is handed out."""

    tokens: int
    window: int
    states: int
    requests: int
    page: int
    drafted: bool = False

    def rows(self, pool: str) -> int:
        """Rows that the buffers have: a page more, a state more, a request more."""
        if pool in COMPRESSED:
            return compressed.rows(pool, self.tokens, self.window, self.requests, self.drafted)
        return {
            FULL: self.tokens + self.page,
            WINDOW: self.window + self.page,
            STATE: self.states + 1,
            REQUEST: self.requests + 1,
            TAIL: self.requests + 2,
        }[pool]


@value
class Division:
    """The pools, or why there are none."""

    pools: Pools
    refusal: str = ""


def cells_of(runs: Sequence[Run], setup: Setup, workspace: int, rope_dim: int) -> Cells:
    """The sums over a stage's layers."""
    if setup.compressed:
        parts = [part for run in runs for part in run.layer * run.count if isinstance(part, CompressedAttention)]
        drafted = setup.draft is not None
        full, window = compressed.token_cells(parts, rope_dim, drafted)
        return Cells(full, window, 0, compressed.request_bytes(parts, setup.requests or 1, drafted))
    sizes = dict.fromkeys((FULL, WINDOW, STATE, REQUEST, TAIL), 0)
    for run in runs:
        for slot in run.slots:
            sizes[slot.pool] += run.count * slot.sized
    num_full = sum(run.count for run in runs if any(slot.pool == FULL for slot in run.slots))
    cells = Cells(sizes[FULL], sizes[WINDOW], sizes[STATE], workspace=workspace, num_full=num_full)
    return replace(cells, draft=_draft_cell(runs, cells, setup))


def _draft_cell(runs: Sequence[Run], cells: Cells, setup: Setup) -> int:
    """What EAGLE's layers add to a token: the share that so many of the model's own layers take; index keys in each."""
    if setup.draft is None or not setup.draft.layers or not cells.num_full:
        return 0
    index: float = sum(
        run.count * slot.sized for run in runs for slot in run.slots if slot.slab.component == "index" and slot.sized
    )
    each = max((slot.sized for run in runs for slot in run.slots if slot.slab.component == "index"), default=0)
    if not setup.shape.sparse:
        index = each = 0
    return int((cells.full - index) * setup.draft.layers / cells.num_full) + each * setup.draft.layers


def divide(stages: Sequence[Stage], setup: Setup, available: int) -> Division:
    """The pools that ``available`` bytes on each rank make: one capacity for every stage, the smallest."""
    states, rest = 0, float(available)
    if setup.stateful:
        states, rest = _states(stages, setup, available)
        if states <= 0:
            return _refused(setup, f"{format_bytes(available)} leaves no room for a state beside the pools")
    if rest <= 0:
        return _refused(setup, f"{format_bytes(available)} is taken by the states, and leaves nothing for tokens", states)
    cap = window_cap(stages, setup)
    tokens = min(_tokens(stage.cells, setup, int(rest), cap, stages) for stage in stages)
    if tokens <= 0:
        return _refused(setup, f"{format_bytes(available)} holds no page of tokens", states)
    most = setup.given.most_tokens
    return pools_of(stages, setup, min(tokens, most or tokens), states)


def _refused(setup: Setup, why: str, states: int = 0) -> Division:
    return Division(Pools(0, 0, max(states, 0), 0, setup.page), why)


def _tokens(cells: Cells, setup: Setup, rest: int, cap: int | None, stages: Sequence[Stage]) -> int:
    """Tokens of one stage, in whole pages."""
    page = setup.page
    if setup.compressed:
        return int(max(rest - cells.fixed, 0) / (setup.swa_ratio * cells.window + cells.full)) // page * page
    if cap is not None:
        left = rest - round_up(cap, page) * cells.window
        return int(left // cells.token) // page * page if cells.token else ENDLESS
    if cells.window:
        cell = cells.token + setup.swa_ratio * cells.window if cells.full else cells.window
        return int(rest // cell) // page * page
    if cells.token:
        return int(rest // cells.token) // page * page
    if any(stage.cells.full for stage in stages):
        return ENDLESS
    return (setup.given.most_tokens or setup.context) // page * page


def pools_of(stages: Sequence[Stage], setup: Setup, tokens: int, states: int) -> Division:
    """Everything that follows from the tokens of the full pool."""
    tokens = tokens // setup.page * setup.page
    window = window_tokens(stages, setup, tokens)
    requests = max_requests(setup, tokens, states)
    pools = Pools(tokens, window, states, requests, setup.page, setup.draft is not None)
    return Division(pools, _why_not(stages, setup, pools))


def _why_not(stages: Sequence[Stage], setup: Setup, pools: Pools) -> str:
    if pools.tokens <= 0:
        return "it holds no page of tokens"
    floor = window_floor(stages, setup)
    if floor is not None and window_cap(stages, setup) is None and pools.window <= floor:
        return (
            f"the window pool of {pools.window:,} tokens holds no request: the engine wants more than {floor:,},"
            " a window and a page"
        )
    if setup.stateful and pools.requests <= 0:
        return f"{pools.states:,} state slots hold no request, which takes {setup.slots_per_request}"
    return ""


def windowed(stages: Sequence[Stage]) -> bool:
    """Whether there is a window pool."""
    return any(stage.cells.window for stage in stages)


def window_tokens(stages: Sequence[Stage], setup: Setup, tokens: int) -> int:
    """Tokens of the window pool beside so many of the full one."""
    if not windowed(stages):
        return 0
    cap = window_cap(stages, setup)
    if cap is not None:
        return min(round_up(cap, setup.page), tokens)
    if not any(stage.cells.full for stage in stages):
        return tokens
    return int(tokens * setup.swa_ratio) // setup.page * setup.page


def window_floor(stages: Sequence[Stage], setup: Setup) -> int | None:
    """Tokens that a window pool must exceed: a window, as the class counts it, and a page."""
    if not windowed(stages) or setup.window is None or not any(stage.cells.full for stage in stages):
        return None
    return setup.window + setup.page


def window_cap(stages: Sequence[Stage], setup: Setup) -> int | None:
    """Slots for the requests that may run, where no prefix is kept and their number is named (SWARequestCapPoolConfigurator)."""
    given = setup.given
    capped = (
        not setup.compressed and setup.requests is not None and given.requests is not None and not given.radix and given.chunk > 0
    )
    if not capped or window_floor(stages, setup) is None:
        return None
    drafted = setup.draft.tokens if setup.draft else 1
    trailing = (setup.window or 0) + EVICTION_INTERVAL * drafted + setup.page
    chunk = max(1, given.chunk // given.attn_dp)
    flying = 2 if given.overlap else 1
    return (trailing + _decoded(setup)) * (setup.requests or 1) + flying * chunk + setup.page


def _decoded(setup: Setup) -> int:
    """Slots that one decode step allocates."""
    if setup.draft is None:
        return setup.page
    steps = (setup.given.steps or 1) * (setup.given.topk or 1)
    each = max(steps, setup.draft.tokens)
    return 2 * each if setup.given.overlap else max(round_up(steps, setup.page), round_up(setup.draft.tokens, setup.page))


def max_requests(setup: Setup, tokens: int, states: int) -> int:
    """Requests that run at once, on one group of ranks (resolve_max_num_reqs)."""
    estimated = max(min(int(tokens / setup.context * REQUESTS_PER_CONTEXT), MAX_REQUESTS), MIN_REQUESTS)
    found = min(setup.requests or estimated, tokens // 2)
    return min(found, states // setup.slots_per_request) if setup.stateful else found


def state_bytes(stages: Sequence[Stage]) -> int:
    """A slot of the stage with most layers that have one."""
    return max(stage.cells.state for stage in stages)


def _states(stages: Sequence[Stage], setup: Setup, available: int) -> tuple[int, float]:
    """(state slots, bytes that they leave): a share of the memory, a padding slot within (_handle_max_mamba_cache)."""
    each, rest = state_bytes(stages), available / GIB
    drafted = setup.draft.tokens if setup.draft else 0
    slots = _named_states(setup)
    if slots is None:
        budget = rest * setup.mamba_ratio / (1 + setup.mamba_ratio) * GIB
        each_slot = each * (1 + drafted / setup.slots_per_request)
        slots = int((budget - each * (1 + drafted)) // each_slot)
    if drafted:
        running = min(setup.requests or 1, slots // setup.slots_per_request) if setup.given.radix or setup.given.states else slots
        rest -= each * (running + 1) * drafted / GIB
    rest -= (slots + 1) * each / GIB
    return slots, rest * GIB


def _named_states(setup: Setup) -> int | None:
    given = setup.given
    if given.states is not None:
        return given.states // given.attn_dp
    if not given.radix and given.requests is not None:
        return setup.requests
    return None


def pools_for(stages: Sequence[Stage], setup: Setup, tokens: int, requests: int) -> Pools:
    """The smallest pools that hold so many tokens of so many requests at once, and that the engine starts with."""
    states = 0
    if setup.stateful:
        named = _named_states(setup)
        states = requests * setup.slots_per_request if named is None else named
    floor = window_floor(stages, setup)
    wanted = round_up(max(tokens, 1), setup.page)
    if floor is not None and window_cap(stages, setup) is None:
        wanted = max(wanted, round_up(ceil((floor + 1) / setup.swa_ratio), setup.page))
        while window_tokens(stages, setup, wanted) <= floor:
            wanted += setup.page
    return replace(pools_of(stages, setup, wanted, states).pools, requests=requests)


def needed(stages: Sequence[Stage], setup: Setup, pools: Pools) -> int:
    """Bytes of memory that make pools as large: those of the heaviest stage, and the shares of both sides."""
    kv = max(_kv_bytes(stage.cells, pools) for stage in stages)
    if not setup.stateful:
        return kv
    each = state_bytes(stages)
    drafted = setup.draft.tokens if setup.draft else 0
    states = (pools.states + 1) * each + (each * (pools.requests + 1) * drafted)
    if _named_states(setup) is not None:
        return kv + states
    ratio = setup.mamba_ratio
    share = each * (pools.states + 1) + (drafted * each * (1 + pools.states / setup.slots_per_request) if drafted else 0)
    return max(ceil(share * (1 + ratio) / ratio) + 2, ceil(kv * (1 + ratio)) + 2, kv + states)


def _kv_bytes(cells: Cells, pools: Pools) -> int:
    window = pools.rows(WINDOW) * cells.window if cells.window else 0
    return cells.fixed + ceil(pools.rows(FULL) * cells.token + window)
