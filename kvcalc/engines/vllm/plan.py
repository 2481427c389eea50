"""vLLM's plan: groups per pipeline stage, blocks in the memory there is, and the verdict on a length.

Rules: vLLM 0.32.0, ``vllm/v1/core/kv_cache_utils.py`` (``get_kv_cache_configs``, ``check_enough_kv_cache_memory``,
``get_kv_cache_capacity``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcalc.engines.releases import Rules
from kvcalc.engines.vllm.groups import Group, Layout, blocks_per_request, bytes_per_block, make_groups
from kvcalc.engines.vllm.specs import STATE, Load, Spec
from kvcalc.errors import EngineError, UsageError


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage: the groups' parts that it owns, and what a block takes there."""

    groups: tuple[Group, ...]
    bytes_per_block: int
    specs: tuple[Spec, ...]  # of its own layers, as they were before they were grouped
    rules: Rules

    def needed(self, load: Load) -> int:
        """Bytes of one full-length request, as the start check counts them."""
        if "needs_by_group" in self.rules:
            return self.bytes_per_block * blocks_per_request(self.groups, load)
        if "needs_by_first_group" in self.rules:
            return self.bytes_per_block * blocks_per_request(self.groups[:1], load)
        return sum(spec.page_bytes * spec.blocks(load) for spec in self.specs)

    @property
    def held_back(self) -> int:
        """Bytes that the start check sets aside: the null block."""
        return self.bytes_per_block if "null_block_reserved" in self.rules else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """How vLLM will cut the cache, before it knows how much memory there is."""

    groups: tuple[Group, ...]
    stages: tuple[Stage, ...]
    block_outermost: bool
    block_size: int
    rules: Rules

    @property
    def bytes_per_block(self) -> int:
        """Of the stage with most."""
        return max((stage.bytes_per_block for stage in self.stages), default=0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What vLLM says to a length and an amount of memory per rank."""

    load: Load  # with the length that was fitted
    plan: Plan
    num_blocks: int
    blocks_per_request: int
    needed_bytes: int  # by one full-length request on the tightest stage
    usable_bytes: int  # there, after the null block
    estimated_max_len: int  # the longest that would be accepted; the length asked for where that is
    fits: bool

    @property
    def max_concurrency(self) -> float:
        """Requests of the full length that the blocks hold: the engine's own quotient."""
        if "concurrency_by_blocks" not in self.plan.rules:
            return self.num_blocks * self.plan.block_size / self.load.max_model_len
        return self.num_blocks / self.blocks_per_request if self.blocks_per_request else 0.0

    @property
    def kv_tokens(self) -> int:
        """'GPU KV cache size': the quotient times the length, cut; once, each group's share of the blocks."""
        if "tokens_by_concurrency" in self.plan.rules:
            return int(self.max_concurrency * self.load.max_model_len)
        if not self.plan.groups:
            return 0
        sizes = [group.spec.block_size for group in self.plan.groups if group.spec.kind != STATE]
        smallest = min(sizes, default=self.load.max_model_len)
        return self.num_blocks // len(self.plan.groups) * smallest * self.load.dcp_size


def make_plan(specs: Sequence[Spec], stage_of: Sequence[int], stages: int, layout: Layout) -> Plan:
    """Groups over the whole model, then each stage's part. Raises EngineError."""
    if any(spec.page_bytes == 0 for spec in specs):
        raise EngineError(
            "a block of this size holds no whole row of a compressed cache",
            "vllm/v1/kv_cache_interface.py",
            "take a larger -o block-size, or leave it out",
        )
    groups = make_groups(specs, layout)
    parts = []
    for stage in range(stages):
        owned = frozenset(index for index, at in enumerate(stage_of) if at == stage)
        own = tuple(group.on(owned) for group in groups) if stages > 1 else groups
        kept = tuple(spec for index, spec in enumerate(specs) if index in owned)
        parts.append(Stage(own, bytes_per_block(own, layout), kept, layout.rules))
    return Plan(groups, tuple(parts), layout.block_outermost, layout.block_size, layout.rules)


def judge(plan: Plan, load: Load, available: int | None, *, auto_fit: bool = False, override: int | None = None) -> Verdict:
    """Blocks, and whether one request of the full length fits beside the null block.

    ``auto_fit`` shortens the length to the longest that fits (``max_model_len=-1``); ``override`` replaces the number of
    blocks, and the memory that the check sees, unless the release checks the memory there is. Raises UsageError.
    """
    if auto_fit and "fits_length" not in plan.rules:
        raise UsageError(f"vLLM {plan.rules.said} fits no length to the memory", fix="give -o max-model-len a length")
    stages = [stage for stage in plan.stages if stage.bytes_per_block]
    memory = [_checked(stage, available, override) for stage in stages]
    usable = [there - stage.held_back for there, stage in zip(memory, stages, strict=True)]
    longest = min(
        (longest_fitting(stage, load, there) for stage, there in zip(stages, usable, strict=True)), default=load.max_model_len
    )
    if auto_fit and longest:
        load = load.at(longest)
    tightest = max(range(len(stages)), key=lambda i: stages[i].needed(load) - usable[i], default=None)
    return Verdict(
        load=load,
        plan=plan,
        num_blocks=override
        if override is not None
        else min((m // s.bytes_per_block for m, s in zip(memory, stages, strict=True)), default=1),
        blocks_per_request=blocks_per_request(plan.groups, load),
        needed_bytes=0 if tightest is None else stages[tightest].needed(load),
        usable_bytes=available or 0 if tightest is None else max(usable[tightest], 0),
        estimated_max_len=longest,
        fits=longest >= load.max_model_len,
    )


def _checked(stage: Stage, available: int | None, override: int | None) -> int:
    """The memory that the start check sees on a stage."""
    if override is None:
        return available or 0
    known = available is not None and "override_is_checked" not in stage.rules
    return available or 0 if known else override * stage.bytes_per_block


def longest_fitting(stage: Stage, load: Load, usable: int) -> int:
    """The largest length up to the load's whose one request fits; 0 when not even one token does."""
    return largest(lambda length: stage.needed(load.at(length)) <= usable, load.max_model_len)


def largest(fits: Callable[[int], bool], upper: int) -> int:
    """The largest n in 1..upper that fits, by bisection, or 0. ``fits`` must not turn true again once false."""
    low, high = 0, upper
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
