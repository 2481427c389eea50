"""vLLM's cache groups: layers that share a block table, and the bytes of a block in the pool that all groups draw from.

Rules: vLLM 0.32.0, ``vllm/v1/core/kv_cache_utils.py`` (``get_kv_cache_groups``, ``_get_packed_kv_cache_groups``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import lcm

from kvcalc.engines.releases import Rules
from kvcalc.engines.vllm.specs import (
    CHUNKED,
    FULL,
    FULL_KINDS,
    MLA,
    RING,
    SLIDING,
    SLIDING_KINDS,
    SLIDING_MLA,
    STATE,
    Load,
    Spec,
)
from kvcalc.errors import EngineError
from kvcalc.units import ceil_div, round_up

# Layer counts within this ratio are padded to the larger instead of split to the smaller.
SIMILAR, SIMILAR_ONCE = (3, 2), (5, 4)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the caches of one model are to be grouped."""

    rules: Rules
    block_size: int
    block_outermost: bool = False  # mixed pages side by side in a block
    hybrid: bool = True  # the hybrid cache manager is on


@dataclass(frozen=True, slots=True)
class Group:
    """Caches under one block table: their indexes in registration order, and the spec each was given."""

    members: tuple[int, ...]
    specs: tuple[Spec, ...]
    spec: Spec  # decides the blocks where the group has no member on this rank

    def blocks(self, load: Load) -> int:
        """Blocks that one full-length request can hold in this group."""
        return max(spec.blocks(load) for spec in self.specs or (self.spec,))

    def page_bytes(self, *, strided: bool) -> int:
        """What its layers take of one block."""
        return sum(spec.stride if strided else spec.page_bytes for spec in self.specs)

    def on(self, members: frozenset[int]) -> Group:
        """The part of it that a pipeline stage owns."""
        kept = [(member, spec) for member, spec in zip(self.members, self.specs, strict=True) if member in members]
        return Group(tuple(member for member, _ in kept), tuple(spec for _, spec in kept), self.spec)


def bytes_per_block(groups: Sequence[Group], layout: Layout) -> int:
    """The widest group's pages: one block of the shared pool."""
    strides = "block_strides" in layout.rules
    widest = max((group.page_bytes(strided=strides and not layout.block_outermost) for group in groups), default=0)
    if not (strides and layout.block_outermost):
        return widest
    return round_up(widest, lcm(*(spec.stride_unit for group in groups for spec in group.specs)))


def blocks_per_request(groups: Iterable[Group], load: Load) -> int:
    """Blocks of the pool that one full-length request takes over all groups."""
    return sum(group.blocks(load) for group in groups)


def make_groups(specs: Sequence[Spec], layout: Layout) -> tuple[Group, ...]:
    """Every cache in its group. Raises EngineError where vLLM can't bring the pages together."""
    rules = layout.rules
    if not specs:
        return ()
    if not layout.hybrid or "hybrid_groups" not in rules:
        specs = _promote(specs, rules)
    if _one_spec(specs) or ("mixed_pages" in rules and same_type(specs)):
        return (Group(tuple(range(len(specs))), tuple(specs), specs[0]),)
    if layout.block_outermost and len({spec.page_bytes for spec in specs}) > 1:
        return _packed(specs)
    return _equal_pages(_unify_pages(specs, rules), rules)


def _merged(specs: Iterable[Spec]) -> set[Spec]:
    """Specs that differ in nothing that counts: full attention forgets what window it computes with."""
    return {replace(spec, window=0) if spec.kind == FULL else spec for spec in specs}


def _one_spec(specs: Sequence[Spec]) -> bool:
    if len(_merged(specs)) > 1:
        return False
    windows = {spec.window for spec in specs if spec.kind == FULL and spec.window}
    if len(windows) > 1:
        raise EngineError(
            f"vLLM allocates these layers as full attention, and then takes one window size only ({_listed(windows)})",
            "vllm/v1/kv_cache_interface.py: FullAttentionSpec.merge",
            "leave the hybrid cache manager on",
        )
    return True


def same_type(specs: Iterable[Spec]) -> bool:
    """Do all layers always need the same number of token slots? Then they share a table, whatever their pages."""
    specs = tuple(specs)
    if len({spec.block_size for spec in specs}) > 1:
        return False
    first = specs[0]
    if first.kind in FULL_KINDS:
        return all(spec.kind in FULL_KINDS for spec in specs)
    if first.kind == STATE:
        return len({(spec.kind, spec.page_bytes, spec.checkpoint_blocks) for spec in specs}) == 1
    if first.kind == SLIDING:
        return all(spec.kind in SLIDING_KINDS and spec.window == first.window for spec in specs)
    return all(spec.kind == first.kind and spec.window == first.window for spec in specs)


def _promote(specs: Sequence[Spec], rules: Rules) -> Sequence[Spec]:
    """The hybrid manager off: windows and chunks are allocated like full attention."""

    def uniform(these: Sequence[Spec]) -> bool:
        return _one_spec(these) or ("mixed_pages" in rules and same_type(these))

    if uniform(specs):
        return specs
    full_sizes = {spec.block_size for spec in specs if spec.kind in FULL_KINDS}
    local = {SLIDING: FULL, SLIDING_MLA: MLA, CHUNKED: FULL}
    if full_sizes and any(spec.kind in local for spec in specs):
        size = full_sizes.pop() if len(full_sizes) == 1 else 0
        specs = [_as_full(spec, local[spec.kind], size) if spec.kind in local else spec for spec in specs]
    if not uniform(specs):
        manager = "with the hybrid cache manager off vLLM" if "hybrid_groups" in rules else f"vLLM {rules.said}"
        raise EngineError(
            f"{manager} needs one kind of cache in all layers, and these can't be made one",
            "vllm/v1/core/kv_cache_utils.py: unify_hybrid_kv_cache_specs",
            "leave -o disable-hybrid-kv-cache-manager out, or take a newer -o release",
        )
    return specs


def _as_full(spec: Spec, kind: str, block_size: int) -> Spec:
    block_size = block_size or spec.block_size
    padded = spec.padded and max(spec.padded, replace(spec, padded=0).real_page_bytes * block_size // spec.block_size)
    return replace(spec, kind=kind, block_size=block_size, padded=padded)


def _unify_pages(specs: Sequence[Spec], rules: Rules) -> list[Spec]:
    """Every page made as large as the largest: more tokens a block where that divides, padding where not."""
    largest = max(spec.page_bytes for spec in specs)
    return [spec if spec.page_bytes == largest else _grown(spec, largest, rules) for spec in specs]


def _grown(spec: Spec, page: int, rules: Rules) -> Spec:
    if spec.kind == STATE and "padded_states" in rules:
        return replace(spec, padded=page)
    if page % spec.page_bytes == 0 and "grown_blocks" in rules:
        grown = replace(spec, block_size=spec.block_size * (page // spec.page_bytes))
        if grown.page_bytes == page:
            return grown
    elif (spec.kind not in FULL_KINDS or spec.kind == FULL) and "padded_pages" in rules:
        return replace(spec, padded=page)
    raise EngineError(
        f"a page of {spec.page_bytes:,} B can't be brought to the largest page of {page:,} B by vLLM {rules.said}",
        "vllm/v1/core/kv_cache_utils.py: get_kv_cache_groups",
        "try another -o block-size, or a newer -o release",
    )


def _equal_pages(specs: Sequence[Spec], rules: Rules) -> tuple[Group, ...]:
    """Buckets of equal specs, split into groups of g layers: the smallest bucket, or the largest where they are close."""
    buckets: dict[Spec, list[int]] = {}
    for index, spec in enumerate(specs):
        buckets.setdefault(next(iter(_merged([spec]))), []).append(index)
    sizes = [len(bucket) for bucket in buckets.values()]
    group_size = _group_size(sizes, rules)
    groups = []
    for bucket in buckets.values():
        count = ceil_div(len(bucket), group_size)
        if "even_groups" in rules:
            groups += [_group(bucket[offset::count], specs) for offset in range(count)]
        else:
            groups += [_group(bucket[i * group_size : (i + 1) * group_size], specs) for i in range(count)]
    return tuple(groups)


def _group_size(sizes: Sequence[int], rules: Rules) -> int:
    """Layers a group."""
    if "close_buckets" not in rules:
        return min(sizes)
    more, less = SIMILAR if "closer_buckets" in rules else SIMILAR_ONCE
    return max(sizes) if max(sizes) * less < min(sizes) * more else min(sizes)


def _group(members: Sequence[int], specs: Sequence[Spec]) -> Group:
    return Group(tuple(members), tuple(specs[index] for index in members), specs[members[0]])


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Layers of one type, in a block-outermost layout, by page size."""

    first: Spec
    by_page: dict[int, list[int]]

    @property
    def balanced(self) -> bool:
        return len({len(members) for members in self.by_page.values()}) == 1

    @property
    def repeats(self) -> int:
        return max(len(members) for members in self.by_page.values())

    @property
    def count(self) -> int:
        return sum(len(members) for members in self.by_page.values())

    @property
    def members(self) -> list[int]:
        return sorted(member for members in self.by_page.values() for member in members)

    def widest(self, groups: int) -> int:
        """Page bytes of the largest of so many groups."""
        return sum(ceil_div(len(members), groups) * page for page, members in self.by_page.items())

    def split(self, specs: Sequence[Spec], groups: int) -> list[Group]:
        if groups == 1:
            return [_group(self.members, specs)]
        repeats = list(zip(*self.by_page.values(), strict=False))  # vLLM drops a ragged tail too
        return [_group([member for repeat in repeats[i::groups] for member in repeat], specs) for i in range(groups)]


def _packed(specs: Sequence[Spec]) -> tuple[Group, ...]:
    """Mixed page sizes side by side in a block: groups of equally many repeats of the layer pattern."""
    buckets = _typed_buckets(specs)
    floor = max((bucket.repeats for bucket in buckets if bucket.balanced and len(bucket.by_page) > 1), default=0)
    repeats = _least_padding([bucket.repeats for bucket in buckets if bucket.balanced], floor) if floor else 0

    def groups_of(bucket: _Bucket) -> int:
        return ceil_div(bucket.repeats, repeats) if repeats and bucket.balanced else 1

    def is_state(bucket: _Bucket) -> bool:
        return bucket.first.kind in (STATE, RING) or (not repeats and bucket.first.kind in SLIDING_KINDS)

    anchor = max(bucket.widest(bucket.count if is_state(bucket) else groups_of(bucket)) for bucket in buckets)
    groups: list[Group] = []
    for bucket in buckets:
        count = groups_of(bucket)
        if is_state(bucket):  # never widen the block for a state: split it down to what the others need
            count = max(count, ceil_div(bucket.count, max(anchor // bucket.first.page_bytes, 1)))
        groups += bucket.split(specs, count)
    return tuple(groups)


def _typed_buckets(specs: Sequence[Spec]) -> list[_Bucket]:
    found: list[list[int]] = []
    for index, spec in enumerate(specs):
        for bucket in found:
            if same_type([specs[bucket[0]], spec]):
                bucket.append(index)
                break
        else:
            found.append([index])
    buckets = []
    for bucket in found:
        by_page: dict[int, list[int]] = {}
        for index in bucket:
            by_page.setdefault(specs[index].page_bytes, []).append(index)
        buckets.append(_Bucket(specs[bucket[0]], by_page))
    return buckets


def _least_padding(values: Sequence[int], lower: int) -> int:
    """The chunk d ≥ lower that pads the values least when each is rounded up to a multiple; the larger of equals."""
    return min(range(lower, max(values) + 1), key=lambda d: (sum(-value % d for value in values), -d), default=lower)


def _listed(values: Iterable[int]) -> str:
    return ", ".join(f"{value:,}" for value in sorted(values))
