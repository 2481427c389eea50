"""The caches' own attention, and the numbers that it is fed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.verify.attention import Visibility, attend, attend_in_blocks, fold
from kvcalc.verify.inputs import BLOCK, Inputs
from kvcalc.verify.timing import Workspace, decode_attention

CPU = torch.device("cpu")


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 30), st.integers(1, 30), st.sampled_from([None, 5]))
def test_folded_groups_give_what_repeated_keys_give(
    kv_heads: int, group: int, width: int, length: int, window: int | None
) -> None:
    inputs = Inputs(2, CPU)
    keys, values = (inputs.uniform(side, shape=(kv_heads, length, width)) for side in ("k", "v"))
    queries = inputs.uniform("q", shape=(kv_heads * group, length, width))
    position = torch.arange(length)
    seen = Visibility(window=window).mask(position, position)
    repeated = attend(queries, keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0), 0.3, seen)
    torch.testing.assert_close(attend(queries, keys, values, 0.3, seen), repeated)


@pytest.mark.parametrize("sight", [Visibility(), Visibility(window=3)])
def test_attention_a_block_at_a_time_is_attention(sight: Visibility) -> None:
    inputs, position = Inputs(2, CPU), torch.arange(20)
    keys, values = (inputs.uniform(side, shape=(2, 20, 8)) for side in ("k", "v"))
    queries, seen = inputs.uniform("q", shape=(6, 20, 8)), sight.mask(position, position)
    parts = [slice(low, low + 7) for low in range(0, 20, 7)]
    found = attend_in_blocks(queries, ((keys[:, part], values[:, part], seen[:, part]) for part in parts), 0.3)
    torch.testing.assert_close(found, attend(queries, keys, values, 0.3, seen))


def test_folding_copies_nothing() -> None:
    queries = torch.randn(8, 1, 4)
    assert fold(queries, 2).data_ptr() == queries.data_ptr()


def test_the_timed_step_is_attention_too() -> None:
    """Whatever an earlier step left in the workspace, longer or shorter."""
    inputs, workspace = Inputs(3, CPU), Workspace()
    for length in (50, 7, 60, 59):
        keys, values = (inputs.uniform(side, length, shape=(2, length, 16)) for side in ("k", "v"))
        queries = inputs.uniform("q", length, shape=(6, 16))
        wanted = attend(queries[:, None], keys, values, 16**-0.5)[:, 0]
        torch.testing.assert_close(decode_attention(queries, keys, values, workspace), wanted)


@pytest.mark.parametrize("sight", [Visibility(), Visibility(window=4), Visibility(chunk=4)])
def test_a_mask_is_left_out_only_where_everything_is_seen(sight: Visibility) -> None:
    for position in range(12):
        query, keys = torch.tensor([position]), torch.arange(sight.first(position), position + 1)
        mask = sight.mask_or_none(query, keys, alone=True)
        assert mask is None or mask.all()
    two = sight.mask_or_none(torch.tensor([6, 7]), torch.arange(8), alone=False)
    assert two is not None
    assert not two.all()


@given(st.integers(0, 300), st.integers(1, 200))
def test_any_rows_can_be_had_without_those_before(start: int, count: int) -> None:
    rows = Inputs(5, CPU).rows("x", heads=2, width=3)
    stop = start + count
    assert torch.equal(rows.between(start, stop), Inputs(5, CPU).rows("x", heads=2, width=3).between(0, stop)[:, start:])
    assert torch.equal(rows.at([stop - 1, start]), rows.between(start, stop)[:, [-1, 0]])


def test_seeds_and_names_make_different_numbers() -> None:
    rows = [Inputs(seed, CPU).rows(name, heads=1, width=4).between(0, BLOCK) for seed in (0, 1) for name in ("k", "v")]
    assert len({tuple(row.flatten().tolist()) for row in rows}) == 4


def test_kept_blocks_stay_within_their_share_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcalc.verify.inputs.KEPT_BYTES", 3 * BLOCK * 16 * 4)
    inputs = Inputs(0, CPU)
    rows = inputs.rows("x", heads=1, width=16)
    for start in range(0, 20 * BLOCK, BLOCK):
        rows.between(start, start + BLOCK)
    assert len(inputs._blocks) == 3


@given(st.integers(0, 200), st.integers(1, 150), st.integers(0, 250))
def test_a_fork_begins_with_its_parents_rows(start: int, count: int, shared: int) -> None:
    parent, own = (Inputs(5, CPU).rows("x", name, heads=2, width=3) for name in (0, 1))
    fork, stop = replace(own, parent=parent, shared=shared), start + count
    wanted = torch.cat((parent.between(0, stop)[:, :shared], own.between(0, stop)[:, shared:]), dim=1)
    assert torch.equal(fork.between(start, stop), wanted[:, start:])
